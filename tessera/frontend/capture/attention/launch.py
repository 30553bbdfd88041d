"""Launches the attention kernels.

In: tensors as `scaled_dot_product_attention` takes them, the keys that are seen, and `Tiles`. Out:
a new tensor [batch, head, token, size], stored token by token, as models use it next.
"""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import torch
    import triton

    Kernel: TypeAlias = triton.JITFunction

_MOST_32 = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """How a call is cut.

    Rows of queries and keys of a block; `packed`: all heads of a group are rows of a tile; and the
    number of parts that the keys are split into.
    """

    rows: int
    keys: int
    warps: int
    stages: int
    packed: bool = False
    splits: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The keys that a token sees, apart from masks: see `kernels`."""

    causal: bool = False
    offset: int = 0
    window: int = 0


class Nothing(enum.IntEnum):
    """The result of a token that sees no key: zeros, the mean of all values, or NaN."""

    ZEROS = 0
    MEAN = 1
    NAN = 2


def launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    seen: Seen,
    scale: float,
    soft_cap: float = 0.0,
    mask: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    position: torch.Tensor | None = None,
    lengths: torch.Tensor | None = None,
    table: torch.Tensor | None = None,
    nothing: Nothing = Nothing.ZEROS,
    tiles: Tiles,
) -> torch.Tensor:
    """Compute attention; with `table`, keys and values are pages [page, head, place, size]."""
    import torch

    attention, combine = _kernels()

    batch, heads, tokens, size = q.shape
    kv_heads, v_size = k.shape[1], v.shape[3]
    page = 0 if table is None else k.shape[2]
    keys = k.shape[2] if table is None else table.shape[1] * page
    group = heads // kv_heads
    pack = group if tiles.packed else 1
    made = torch.empty((batch, tokens, heads, v_size), dtype=q.dtype, device=q.device)
    out = made.transpose(1, 2)
    splits = tiles.splits
    partial = logs = None  # arguments that are None are not parameters of the kernel
    if splits > 1:
        rows = batch * heads * tokens * splits
        partial = torch.empty(rows * v_size, dtype=torch.float32, device=q.device)
        logs = torch.empty(rows, dtype=torch.float32, device=q.device)
    main = max(1 << (size.bit_length() - 1), 16)
    rest = 0 if size <= main else max(least_power(size - main), 16)
    mask_kind, mask_strides, masks = 0, (0, 0, 0, 0), mask
    if mask is not None:
        wide = mask.expand(batch, heads, tokens, keys)
        mask_strides = wide.stride()
        mask_kind = 2
        if mask.dtype == torch.bool:
            mask_kind, masks = 3 if nothing is Nothing.MEAN else 1, mask.view(torch.uint8)
    _, mask_h, mask_m, mask_n = mask_strides
    furthest = (
        tokens * max(q.stride(2), out.stride(2)),
        k.shape[2] * max(k.stride(2), v.stride(2)),
        heads * mask_h + tokens * mask_m + keys * mask_n,
    )
    grid = (heads // pack, -(-tokens * pack // tiles.rows) * splits, batch)
    attention[grid](
        q,
        k,
        v,
        out,
        partial,
        logs,
        masks,
        sinks,
        position,
        lengths,
        table,
        tokens,
        keys,
        heads,
        seen.offset,
        seen.window,
        scale,
        soft_cap,
        *q.stride()[:3],
        *k.stride()[:3],
        *v.stride()[:3],
        *out.stride()[:3],
        *mask_strides,
        table.stride(0) if table is not None else 0,
        GROUP=group,
        PACK=pack,
        CAUSAL=seen.causal,
        WINDOWED=seen.window > 0,
        MASK=mask_kind,
        SOFT_CAP=soft_cap > 0,
        SINKS=sinks is not None,
        NAN=nothing is Nothing.NAN,
        LONG=max(furthest) > _MOST_32,
        POSITION=position is not None,
        LENGTHS=lengths is not None,
        PAGE=page,
        SPLIT=splits > 1,
        SIZE=size,
        MAIN=main,
        REST=rest,
        V_SIZE=v_size,
        V_WIDE=max(least_power(v_size), 16),
        BLOCK_M=tiles.rows,
        BLOCK_N=tiles.keys,
        STAGES=tiles.stages,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )
    if splits > 1:
        combine[(batch * heads * tokens,)](
            partial,
            logs,
            out,
            sinks,
            tokens,
            heads,
            splits,
            *out.stride()[:3],
            SINKS=sinks is not None,
            NAN=nothing is Nothing.NAN,
            V_SIZE=v_size,
            V_WIDE=max(least_power(v_size), 16),
            SPLITS=least_power(splits),
            num_warps=4,
        )
    return out


@functools.cache
def _kernels() -> tuple[Kernel, Kernel]:
    """The kernels, as Triton launches them."""
    import triton

    from tessera.frontend.capture.attention import kernels

    return triton.jit(kernels.attention), triton.jit(kernels.combine)


def least_power(number: int) -> int:
    """The least power of two that is at least `number`."""
    return 1 << (number - 1).bit_length()
