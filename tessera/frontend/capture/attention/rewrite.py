"""Replaces PyTorch's attention, and attention that models write out, in a recorded graph.

In: the graph that torch.compile has recorded, of torch functions (for Inductor's
`pre_grad_custom_pass`). Out: the same graph, with calls of `tessera::attention` in place of
`scaled_dot_product_attention` and of products with a softmax between them (`written_out`), if they
compute the same: 16-bit types, heads of at most 256, no dropout, no gradients. Everything else
stays.

Heads of keys that were repeated for their group are used unrepeated. A mask that is proved to be a
range of keys (`masks`) becomes numbers; any other mask is passed on as a tensor.

The graph still changes memory in place, so a value that is read at another place must not change in
between: unrepeated heads are used only if no node in between writes, and a position is copied where
the mask used it. Unused nodes are left for the compiler to drop: at this stage an in-place
operation looks unused. The operator `tessera::attention` is defined here, too.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch.fx import Graph, Node

from tessera.frontend.capture.attention.choose import choose
from tessera.frontend.capture.attention.index_lines import HeldValue
from tessera.frontend.capture.attention.launch import Nothing, Seen, Tiles, launch
from tessera.frontend.capture.attention.masks import KeyRange, is_bool_tensor, read_mask
from tessera.frontend.capture.attention.written_out import (
    WrittenOut,
    boolean_of,
    read_written_out,
)
from tessera.frontend.capture.graphs.graph_nodes import (
    call_of,
    changed_memory,
    is_plain_index,
    shape_of,
    value_of,
    written_by,
)

_MOST = 256  # the largest head size
_ANY_WAY = ("transpose", "permute", "reshape", "contiguous")  # accept any layout of a tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class _AttentionCall:
    """A call of `scaled_dot_product_attention` with its arguments by name."""

    query: Node
    key: Node
    value: Node
    attn_mask: Node | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False
    soft_cap: float = 0.0
    sinks: Node | None = None
    nothing: Nothing = Nothing.ZEROS


@dataclass(frozen=True, slots=True)
class _Changes:
    """The memory that a graph changes in place, and copies of positions as they were before."""

    memory: frozenset[int] | None
    copies: dict[HeldValue, Node] = field(default_factory=dict)


def replace_attention(graph: Graph) -> None:
    """Replace attention in place, if the kernels compute it."""
    asked = torch.nn.functional.scaled_dot_product_attention
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    changes = _Changes(changed_memory(graph))
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target is asked:
            call = _AttentionCall(**dict(zip(names, node.args, strict=False)), **node.kwargs)
            _replace(graph, node, call, changes)
        else:
            written = read_written_out(node)
            if written is not None and _unwritten(written.first, node):
                call = _call_of(written, _shown(graph, written, node))
                _replace(graph, node, call, changes)


def _shown(graph: Graph, written: WrittenOut, node: Node) -> Node | None:
    """The mask of written-out attention; a mask of hidden keys is inverted."""
    hidden = written.hidden
    if hidden is None:
        return written.mask
    name, arguments = call_of(hidden)
    if name in ("invert", "logical_not", "bitwise_not") and _unwritten(hidden, node):
        source = arguments[0]
        if is_bool_tensor(source):
            return source
    value = value_of(hidden)
    with graph.inserting_before(node):
        shown = graph.call_method("logical_not", (hidden,))
    shown.meta["example_value"] = None if value is None else value.logical_not()
    return shown


def _call_of(written: WrittenOut, mask: Node | None) -> _AttentionCall:
    """Attention that is written out, as a call."""
    return _AttentionCall(
        query=written.query,
        key=written.key,
        value=written.value,
        attn_mask=mask,
        scale=written.scale,
        soft_cap=written.soft_cap,
        sinks=written.sinks,
        nothing=written.nothing,
    )


def _replace(graph: Graph, node: Node, call: _AttentionCall, changes: _Changes) -> None:
    """Replace a node with our operator, if it computes the call."""
    if not _is_ours(call):
        return
    query, (key, value) = shape_of(call.query), _heads(call, node)
    keys = shape_of(key)
    if query is None or keys is None:
        return
    scale = call.scale if call.scale is not None else query[3] ** -0.5
    if not scale > 0:
        return
    seen, mask = _seen(call, query[2], keys[2], changes.memory)
    position = _position(graph, seen, changes.copies)
    nothing = call.nothing if mask is not None else Nothing.ZEROS
    with graph.inserting_before(node):
        new = graph.call_function(
            attention(),
            (call.query, key, value, mask, call.sinks, position, None, None, float(scale)),
            {
                "causal": seen is not None,
                "offset": seen.offset if seen is not None else 0,
                "window": seen.window if seen is not None else 0,
                "soft_cap": call.soft_cap,
                "nothing": int(nothing),
            },
        )
        if not all(call_of(user)[0] in _ANY_WAY for user in node.users):
            # Our result is stored token by token, PyTorch's head by head: a view may depend on
            # that.
            new = graph.call_method("contiguous", (new,))
    new.meta.update(node.meta)
    node.replace_all_uses_with(new)
    graph.erase_node(node)


def _seen(
    call: _AttentionCall, tokens: int, keys: int, changed: frozenset[int] | None
) -> tuple[KeyRange | None, Node | None]:
    """The keys that each token sees, as numbers, or else as a mask."""
    mask = call.attn_mask
    if call.is_causal:
        return KeyRange(offset=0), None
    if mask is None:
        return None, None
    is_bool = is_bool_tensor(mask)
    boolean = mask if is_bool else boolean_of(mask, changed)
    seen = read_mask(boolean, tokens, keys, changed) if boolean is not None else None
    # If every key is hidden by a number, all of them count.
    is_zero = is_bool and call.nothing is Nothing.ZEROS
    if seen is not None and not (is_zero or seen.is_never_empty(tokens, keys)):
        seen = None
    if seen is not None and seen.position is not None and not _is_on_gpu(seen.position.value):
        seen = None  # the kernels read the mask instead
    return seen, mask if seen is None else None


def _position(graph: Graph, seen: KeyRange | None, copies: dict[HeldValue, Node]) -> Node | None:
    """A copy of the position at the time when a mask was made; one for all its users."""
    term = seen.position if seen is not None else None
    if term is None or term.used is None:
        return None
    if term not in copies:
        with graph.inserting_before(term.used):
            copies[term] = graph.call_method("clone", (term.value,))
    return copies[term]


def _is_ours(call: _AttentionCall) -> bool:
    """Whether the kernels compute this call."""
    tensors = [value_of(node) for node in (call.query, call.key, call.value)]
    shapes = [shape_of(node) for node in (call.query, call.key, call.value)]
    if any(t is None or s is None or len(s) != 4 for t, s in zip(tensors, shapes, strict=True)):
        return False
    query, key, value = (t for t in tensors if t is not None)
    if not query.is_cuda or query.dtype not in (torch.float16, torch.bfloat16):
        return False
    if key.dtype != query.dtype or value.dtype != query.dtype or call.dropout_p:
        return False
    if torch.is_grad_enabled() and (
        query.requires_grad or key.requires_grad or value.requires_grad
    ):
        return False
    if max(query.shape[3], value.shape[3]) > _MOST or 0 in (*query.shape, *key.shape):
        return False
    if key.shape[0] != query.shape[0] or value.shape[:3] != key.shape[:3]:
        return False
    if key.shape[1] != query.shape[1] and not (
        call.enable_gqa and query.shape[1] % key.shape[1] == 0
    ):
        return False
    return _fits(call.attn_mask, (*query.shape[:3], key.shape[2]), call.is_causal)


def _fits(mask: Node | None, shape: Iterable[int], is_causal: bool) -> bool:
    """Whether a mask is one that the kernels read."""
    if mask is None:
        return True
    value, sizes = value_of(mask), shape_of(mask)
    if value is None or sizes is None or is_causal or not 1 < len(sizes) <= 4:
        return False
    kinds = (torch.bool, torch.float32, torch.float16, torch.bfloat16)
    wide = tuple(shape)
    right = zip(reversed(sizes), reversed(wide), strict=False)
    return value.dtype in kinds and all(have in (1, want) for have, want in right)


def _is_on_gpu(node: Node) -> bool:
    value = value_of(node)
    return value is not None and value.is_cuda


def _heads(call: _AttentionCall, node: Node) -> tuple[Node, Node]:
    """Keys and values, without repeats if both are repeated."""
    key, value = _unrepeated(call.key, node), _unrepeated(call.value, node)
    if key is None or value is None:
        return call.key, call.value
    keys, values, whole = shape_of(key), shape_of(value), shape_of(call.key)
    if keys is None or values is None or whole is None or keys[:3] != values[:3]:
        return call.key, call.value
    return key, value


def _unrepeated(node: Node, until: Node) -> Node | None:
    """The operand that `x[:, :, None].expand(..).reshape(..)` or `repeat_interleave` repeats by
    head."""
    name, arguments = call_of(node)
    if name == "repeat_interleave":
        counts = (*arguments[1:], node.kwargs.get("repeats"))
        dims = (*arguments[2:], node.kwargs.get("dim"))
        source, read = arguments[0], node
        if not isinstance(counts[0], int) or dims[0] not in (1, -3):
            return None
    else:
        if name not in ("reshape", "view", "flatten"):
            return None
        wide = arguments[0]
        middle, inner = call_of(wide)
        if middle not in ("expand", "repeat"):
            return None
        added, outer = call_of(inner[0])
        if added not in ("getitem", "unsqueeze"):
            return None
        if added == "getitem" and not is_plain_index(outer[1]):
            return None
        source, read = outer[0], inner[0]
        before, plus, after = shape_of(source), shape_of(inner[0]), shape_of(wide)
        if before is None or plus is None or after is None or len(before) != 4:
            return None
        if plus != (*before[:2], 1, *before[2:]) or after[:2] + after[3:] != before:
            return None
    before, whole = shape_of(source), shape_of(node)
    if before is None or whole is None or len(before) != 4:
        return None
    if before[:1] + before[2:] != whole[:1] + whole[2:] or whole[1] % before[1]:
        return None
    return source if _unwritten(read, until) else None


def _unwritten(first: Node, last: Node) -> bool:
    """Whether no node from `first` to `last` may write memory."""
    node = first
    while node is not last:
        if written_by(node):
            return False
        node = node.next
    return True


_SCHEMA = (
    "attention(Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor? sinks, Tensor? position,"
    " Tensor? lengths, Tensor? table, float scale, *, bool causal=False, int offset=0,"
    " int window=0, float soft_cap=0.0, int nothing=0) -> Tensor"
)


@functools.cache
def attention() -> torch._ops.OpOverload:
    """The operator; `k` and `v` are pages if there is a `table` of them."""
    tags = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)
    library = torch.library.Library("tessera", "FRAGMENT")
    library.define(_SCHEMA, tags=(tags,))
    library.impl("attention", _compute, "CompositeExplicitAutograd")
    torch.library.register_fake("tessera::attention", _shape, lib=library)
    _KEPT.append(library)
    return torch.ops.tessera.attention.default


# An operator exists as long as its library does.
_KEPT: list[object] = []


def _shape(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: object, **__: object
) -> torch.Tensor:
    batch, heads, tokens, _size = q.shape
    return q.new_empty((batch, tokens, heads, v.shape[3])).transpose(1, 2)


def _compute(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    sinks: torch.Tensor | None,
    position: torch.Tensor | None,
    lengths: torch.Tensor | None,
    table: torch.Tensor | None,
    scale: float,
    *,
    causal: bool = False,
    offset: int = 0,
    window: int = 0,
    soft_cap: float = 0.0,
    nothing: int = 0,
) -> torch.Tensor:
    q, k, v = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v))

    def run(tiles: Tiles, keys: torch.Tensor = k, values: torch.Tensor = v) -> torch.Tensor:
        return launch(
            q,
            keys,
            values,
            seen=Seen(causal=causal, offset=offset, window=window),
            scale=scale,
            soft_cap=soft_cap,
            mask=mask,
            sinks=sinks,
            position=position,
            lengths=lengths,
            table=table,
            nothing=Nothing(nothing),
            tiles=tiles,
        )

    return run(choose(q, k, v, run, causal=causal, window=window, plain=mask is None, table=table))
