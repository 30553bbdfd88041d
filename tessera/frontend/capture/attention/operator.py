"""`tessera::attention`: an operator that torch.compile leaves as it is. It launches `kernels`.

In: tensors. Out: a new tensor. The operator is defined when it is first asked for. Queries, keys
and values may lie in any way that has the numbers of one head side by side.
"""

from __future__ import annotations

import functools

import torch

from tessera.frontend.capture.attention.choose import choose
from tessera.frontend.capture.attention.launch import Nothing, Seen, Tiles, launch

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


# An operator is gone when its library is.
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
