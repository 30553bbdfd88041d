"""Launches the product of sorted rows with the weights of their experts, and the choice of experts.

In: rows [row, k], weights [expert, k, n] (any strides), the end of each expert's rows, and
`ProductTiles`. Out: a new tensor [row, n]. `launch_greatest`: the greatest numbers of each row.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import torch
    import triton

    Kernel: TypeAlias = triton.JITFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductTiles:
    """Rows and columns of a block, and the part of k per iteration."""

    rows: int
    columns: int
    inner: int
    warps: int
    stages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductSize:
    """The sizes that decide how a product is best cut."""

    rows: int
    experts: int
    inner: int
    columns: int
    bytes: int
    turned: bool
    shared: int


def launch(
    rows: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor, tiles: ProductTiles
) -> torch.Tensor:
    """Multiply every row with the weights of its expert."""
    import torch

    count, inner = rows.shape
    experts, _, columns = weights.shape
    out = torch.empty((count, columns), dtype=rows.dtype, device=rows.device)
    grid = (-(-count // tiles.rows), -(-columns // tiles.columns))
    product, _ = _kernels()
    product[grid](
        rows,
        weights,
        ends,
        out,
        count,
        rows.stride(0),
        *weights.stride(),
        K=inner,
        N=columns,
        EXPERTS=experts,
        WIDE=_power(experts),
        BLOCK_M=tiles.rows,
        BLOCK_N=tiles.columns,
        BLOCK_K=tiles.inner,
        STAGES=tiles.stages,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )
    return out


def launch_greatest(rows: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The greatest numbers of each row of a matrix and their places."""
    import torch

    _, greatest = _kernels()
    many, columns = rows.shape
    values = torch.empty((many, count), dtype=rows.dtype, device=rows.device)
    places = torch.empty((many, count), dtype=torch.int64, device=rows.device)
    wide = _power(columns)
    greatest[(many,)](
        rows,
        values,
        places,
        *rows.stride(),
        COLUMNS=columns,
        WIDE=wide,
        COUNT=count,
        num_warps=1 if wide <= 512 else 4,
    )
    return values, places


def size_of(rows: torch.Tensor, weights: torch.Tensor) -> ProductSize:
    """The sizes of a call."""
    shared = 101_376
    if rows.is_cuda:
        import torch

        device = torch.cuda.get_device_properties(rows.device)
        shared = int(getattr(device, "shared_memory_per_block_optin", shared))
    return ProductSize(
        rows=rows.shape[0],
        experts=weights.shape[0],
        inner=weights.shape[1],
        columns=weights.shape[2],
        bytes=rows.element_size(),
        turned=weights.stride(2) != 1,
        shared=shared,
    )


def candidates(size: ProductSize) -> Iterator[ProductTiles]:
    """Ways to cut a product; the best by rule comes first."""
    fitting = [tiles for tiles in _shapes(size) if _shared(tiles, size) <= size.shared]
    yield from fitting or [ProductTiles(rows=16, columns=32, inner=32, warps=4, stages=1)]


def _shapes(size: ProductSize) -> Iterator[ProductTiles]:
    """Shapes of blocks by the rows of an expert: a block should not span many experts."""
    each = size.rows / min(size.experts, size.rows)
    if size.bytes > 2:
        shapes = ((32, 64, 32, 4, 3), (16, 64, 32, 4, 3), (64, 64, 32, 8, 3))
    elif each <= 16:
        shapes = ((16, 64, 128, 4, 4), (16, 128, 64, 4, 4), (16, 32, 256, 4, 3))
    elif each <= 64:
        shapes = ((32, 64, 128, 4, 3), (64, 128, 64, 4, 4), (16, 64, 128, 4, 4))
    else:
        shapes = ((128, 128, 64, 8, 3), (64, 128, 64, 4, 4), (128, 256, 64, 8, 3))
    for rows, columns, inner, warps, stages in shapes:
        yield ProductTiles(rows=rows, columns=columns, inner=inner, warps=warps, stages=stages)


def _shared(tiles: ProductTiles, size: ProductSize) -> int:
    """Bytes of shared memory: blocks in flight."""
    return (tiles.rows + tiles.columns) * tiles.inner * size.bytes * max(tiles.stages, 1)


@functools.cache
def _kernels() -> tuple[Kernel, Kernel]:
    """The kernels, as Triton launches them."""
    import triton

    from tessera.frontend.capture.experts import kernels

    return triton.jit(kernels.grouped_product), triton.jit(kernels.greatest)


def _power(number: int) -> int:
    """The least power of two that is at least `number`."""
    return 1 << (number - 1).bit_length()
