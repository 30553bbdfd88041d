"""The seam between modeling code of the transformers library and a cache in blocks.

In: what the library's attention interface hands over: queries, keys and values of all tokens of a
step, and the mask function of the layer. Out: attention of each token over its own sequence. The
function writes keys and values into the blocks of the sequences, and reads all of them from there.

The seam knows no model. The mask is the model's own function, called with positions, so that
windows and chunks come along; a scale, a soft cap and sinks are arguments of the interface. What
would mix tokens in another way is refused, by the name of the module: a cache other than keys and
values, a mask that is not made by the interface, a tensor that the seam does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import transformers
import triton
from torch import Tensor, nn
from transformers.masking_utils import AttentionMaskInterface, causal_mask_function

from tessera.diagnostics import TesseraError
from tessera.frontend.capture.mixed.block_kernel import block_attention

NAME = "tessera_blocks"
_KERNEL = triton.jit(block_attention)
_LINES = 16
"""Lines of a program, which are queries of its tokens by head: the fewest that tensor cores
multiply, because answers under way have one token each."""
_NARROW = 2  # bytes of the elements that the kernel is for; others go by operators
# Arguments of the interface that say nothing more than the seam knows already.
_KNOWN_TENSORS = ("position_ids", "cache_position")


@dataclass(slots=True)
class StepTables:
    """The tokens of the step under way: positions, rows of the table of blocks, and the cache.

    made = mask_function(first, first, queries, keys)
    made = made.unflatten(0, (1, -1) if tables.is_flat else (-1, 1))[:, None]
    if mask_function is causal_mask_function:
        tables.causal = made
    return made
    """

    positions: Tensor
    rows: Tensor
    blocks: Tensor
    at: Tensor
    offset: Tensor
    context: int
    is_flat: bool = True
    caches: Sequence[tuple[Tensor, Tensor]] = ()
    causal: Tensor | None = None
    calls: list[tuple[nn.Module, Tensor, Tensor]] = field(default_factory=list)
    count: int = 0


class _UnderWay:
    """The step under way; the interface of the library has no room for it."""

    tables: StepTables | None = None


UNDER_WAY = _UnderWay()


class SeamCache(transformers.Cache):  # type: ignore[misc]
    """The cache that a model is given: keys and values pass through, for attention keeps them."""

    def __init__(self) -> None:
        super().__init__(layers=[])

    def update(
        self, key: Tensor, value: Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """Keys and values as they are."""
        return key, value

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions are given, so that no length counts."""
        return 0

    def get_query_offset(self, layer_idx: int = 0) -> int:
        """Masks are made from positions."""
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Masks are made from positions."""
        return query_length, 0

    @property
    def is_compileable(self) -> bool:
        """Whether the library should compile by itself."""
        return False


def refused(what: str, module: nn.Module | None = None) -> TesseraError:
    """The error for a model that cannot be served from its folder."""
    owner = "" if module is None else f"`{type(module).__name__}` "
    return TesseraError.of(
        "TSR6019",
        f"{owner}{what}",
        hint="write the steps of the model as Python, and plan their traces (docs/guides/serve.md)",
    )


def _mask(*, mask_function: Callable[..., Tensor], **_: object) -> Tensor:
    """The mask [sequences, 1, tokens, context] of the model's own function, by positions."""
    tables = UNDER_WAY.tables
    assert tables is not None
    queries = tables.positions[:, None]
    keys = torch.arange(tables.context, device=queries.device)[None]
    first = torch.zeros((), dtype=torch.long, device=queries.device)
    made = mask_function(first, first, queries, keys)
    made = made.unflatten(0, (1, -1) if tables.is_flat else (-1, 1))[:, None]
    if mask_function is causal_mask_function:
        tables.causal = made
    return made


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **others: object,
) -> tuple[Tensor, None]:
    """Attention of [sequences, heads, tokens, size] over the blocks of each token's sequence."""
    tables = UNDER_WAY.tables
    assert tables is not None
    for name, other in others.items():
        if isinstance(other, Tensor) and name not in _KNOWN_TENSORS:
            raise refused(f"gives attention a tensor that is not known here: `{name}`", module)
    shape = (query.shape[0], 1, query.shape[2], tables.context)
    if attention_mask is None or attention_mask.shape != shape:
        raise refused("makes a mask of its own, and not by the interface of the library", module)
    queries, keys, values = (part.transpose(1, 2).flatten(0, 1) for part in (query, key, value))
    number, tables.count = tables.count, tables.count + 1
    if not tables.caches:
        tables.calls.append((module, keys, values))
        return queries.new_zeros(*shape[::2], queries.shape[1], values.shape[-1]), None
    caches = tables.caches[number]
    for cache, new in zip(caches, (keys, values), strict=True):
        cache[tables.at, tables.offset] = new
    scale = queries.shape[-1] ** -0.5 if scaling is None else scaling
    mask = attention_mask.flatten(0, 2)
    if queries.is_cuda and queries.element_size() == _NARROW:
        needed = None if attention_mask is tables.causal else mask
        made = launched(queries, caches, tables, needed, scale, softcap, s_aux)
    else:
        held = [cache[tables.blocks[tables.rows]].flatten(1, 2) for cache in caches]
        made = attention(queries, held[0], held[1], mask, scale, softcap, s_aux)
    return made.unflatten(0, shape[::2]), None


def launched(
    queries: Tensor,
    caches: tuple[Tensor, Tensor],
    tables: StepTables,
    mask: Tensor | None,
    scale: float,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """The same as `attention`, by a kernel that reads keys and values where they lie.

    Without a mask, tokens see all tokens before them.
    """
    keys, values = caches
    tokens, heads, size = queries.shape
    _, block, key_heads, wide = values.shape
    out = torch.empty((tokens, heads, wide), dtype=queries.dtype, device=queries.device)
    if queries.stride(2) != 1:
        queries = queries.contiguous()
    group = _power(heads // key_heads, 1)
    _KERNEL[(tokens, key_heads)](
        queries,
        keys,
        values,
        tables.blocks,
        tables.rows,
        tables.positions,
        tables.positions if mask is None else mask.to(torch.uint8).contiguous(),
        tables.rows if sinks is None else sinks,
        out,
        tokens,
        queries.stride(0),
        queries.stride(1),
        COLUMNS=tables.blocks.shape[1],
        BLOCK=block,
        HEADS=key_heads,
        GROUP=heads // key_heads,
        SIZE=size,
        VALUE=wide,
        QUERIES=max(_LINES // group, 1),
        WIDE_GROUP=group,
        WIDE_SIZE=_power(size, 16),
        WIDE_VALUE=_power(wide, 16),
        SCALE=float(scale),
        CAP=float(softcap or 0.0),
        HAS_MASK=mask is not None,
        HAS_SINKS=sinks is not None,
        TILE=64 if max(size, wide) <= 128 else 32,
        num_warps=4,
        num_stages=2,
    )
    return out


def _power(number: int, least: int) -> int:
    """The least power of two, from `least` on, that is at least `number`."""
    power = least
    while power < number:
        power *= 2
    return power


def attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor,
    scale: float,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """[tokens, heads, size] over [tokens, context, key heads, size], in the type of the values."""
    tokens, heads, _ = queries.shape
    shared = queries.unflatten(1, (keys.shape[2], -1))
    scores = (shared[:, None].float() * keys[:, :, :, None].float()).sum(-1) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~mask[:, :, None, None], float("-inf"))
    top = scores.amax(1, keepdim=True)
    if sinks is not None:
        sink = sinks.float().view(1, 1, keys.shape[2], -1)
        top = torch.maximum(top, sink)
    shares = torch.exp(scores - top)
    total = shares.sum(1, keepdim=True)
    if sinks is not None:
        total = total + torch.exp(sink - top)
    shares = (shares / total).to(values.dtype)
    mixed = (shares[..., None].float() * values[:, :, :, None].float()).sum(1)
    return mixed.to(values.dtype).reshape(tokens, heads, -1)


def register() -> None:
    """Make the seam known to the library; a second call changes nothing."""
    transformers.AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, _mask)
