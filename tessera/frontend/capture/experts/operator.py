"""`tessera::grouped_product`, `tessera::greatest`: operators that torch.compile leaves as they are.

In: tensors. Out: new tensors. They launch `kernels`. They are defined when they are first asked
for.
"""

from __future__ import annotations

import functools

import torch

from tessera.frontend.capture.experts.launch import (
    ProductTiles,
    candidates,
    launch,
    launch_greatest,
    size_of,
)
from tessera.frontend.capture.tuning import tuned

_SCHEMAS = {
    "grouped_product": "(Tensor rows, Tensor weights, Tensor ends) -> Tensor",
    "greatest": "(Tensor rows, int count) -> (Tensor, Tensor)",
}


def grouped_product() -> torch._ops.OpOverload:
    """Rows sorted by expert times the weights of their experts."""
    _define()
    return torch.ops.tessera.grouped_product.default


def greatest() -> torch._ops.OpOverload:
    """The greatest numbers along the last dimension, and their places."""
    _define()
    return torch.ops.tessera.greatest.default


@functools.cache
def _define() -> None:
    tags = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)
    library = torch.library.Library("tessera", "FRAGMENT")
    made = {"grouped_product": (_product, _product_shape), "greatest": (_greatest, _greatest_shape)}
    for name, schema in _SCHEMAS.items():
        compute, shape = made[name]
        library.define(name + schema, tags=(tags,))
        library.impl(name, compute, "CompositeExplicitAutograd")
        torch.library.register_fake(f"tessera::{name}", shape, lib=library)
    _KEPT.append(library)


# An operator is gone when its library is.
_KEPT: list[object] = []


def _product_shape(rows: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return rows.new_empty((rows.shape[0], weights.shape[2]))


def _product(rows: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    rows = rows if rows.stride(1) == 1 else rows.contiguous()

    def run(tiles: ProductTiles, weights: torch.Tensor = weights) -> torch.Tensor:
        return launch(rows, weights, ends, tiles)

    size = size_of(rows, weights)
    return run(tuned(size, list(candidates(size)), (weights,), run))


def _greatest_shape(rows: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (*rows.shape[:-1], count)
    return rows.new_empty(shape), rows.new_empty(shape, dtype=torch.int64)


def _greatest(rows: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    values, places = launch_greatest(rows.reshape(-1, rows.shape[-1]), count)
    shape = (*rows.shape[:-1], count)
    return values.view(shape), places.view(shape)
