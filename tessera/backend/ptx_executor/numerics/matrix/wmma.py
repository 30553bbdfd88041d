"""`wmma.load`, `wmma.mma`, `wmma.store`: fragments whose layout PTX leaves to the implementation.

A fragment gives each lane some elements; `positions` lists them. C and D follow the layout of
`mma.sync` (8 x 8 tiles, two columns per thread); A and B are distributed in row-major order. The
f16 fragments of A and B have 16 elements per lane for every shape, so elements repeat, as on
hardware. Elements of 4 bits and 1 bit come in words of 32 bits, placed by their first element.

Source: PTX ISA, warp-level matrix instructions using wmma.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tessera.backend.ptx_executor.numerics.bits import Bits, Numbers, Operand, bits
from tessera.backend.ptx_executor.numerics.matrix.elements import (
    ELEMENT_BITS,
    element_bits,
    gather,
    lane_shape,
    scatter,
    unpack,
)
from tessera.backend.ptx_executor.numerics.matrix.mma import multiply, parse_shape

Index = NDArray[np.intp]
_ACCUMULATOR_BITS = {"f16": 16, "f32": 32, "s32": 32, "f64": 64}


def extent(which: str, shape: str) -> tuple[int, int]:
    """Rows and columns of matrix `a`, `b`, `c` or `d`."""
    m, n, k = parse_shape(shape)
    return {"a": (m, k), "b": (k, n), "c": (m, n), "d": (m, n)}[which]


def item_bits(which: str, t: str) -> int:
    """The bits of one loaded element: the width of the type, 32 for sub-byte types."""
    size = _ACCUMULATOR_BITS[t] if which in "cd" else element_bits(t)
    return size if size >= 8 else 32


def registers(which: str, shape: str, t: str) -> tuple[int, int]:
    """Registers per lane of a fragment, and loaded elements per register."""
    rows, columns = extent(which, shape)
    size = _ACCUMULATOR_BITS[t] if which in "cd" else element_bits(t)
    per = max(32 // item_bits(which, t), 1)
    if which in "ab" and t == "f16":
        return 8, per
    return rows * columns * size // (32 * (64 if size == 64 else 32)), per


@lru_cache(maxsize=64)
def positions(which: str, shape: str, t: str) -> tuple[Index, Index]:
    """Row and column of each loaded element, as [32 lanes, elements] arrays."""
    count, per = registers(which, shape, t)
    rows, columns = extent(which, shape)
    lane, item = np.arange(32)[:, None], np.arange(count * per)[None, :]
    if which in "cd":
        return _accumulator_positions(rows, lane, item)
    packed = item_bits(which, t) // ELEMENT_BITS[t]
    linear = (lane * count * per + item) * packed % (rows * columns)
    if which == "b" and packed > 1:
        # Words run along k, which is down a column of B.
        column, row = np.divmod(linear, rows)
        return row, column
    row, column = np.divmod(linear, columns)
    return row, column


def _accumulator_positions(rows: int, lane: Index, item: Index) -> tuple[Index, Index]:
    halves = min(rows // 8, 2)
    tile, inside = np.divmod(item, 2 * halves)
    row = (lane >> 2) + 8 * (inside >> 1)
    column = 2 * (lane & 3) + (inside & 1) + 8 * tile
    if rows <= 16:
        return row, column
    # m32n8: a second block of 16 rows instead of further columns.
    return row + 16 * tile, column - 8 * tile


def pack(which: str, t: str, items: Numbers) -> list[Bits]:
    """Registers, [warps, 32] each, from loaded elements [warps, 32, elements]."""
    width = 64 if item_bits(which, t) == 64 else 32
    words = np.ascontiguousarray(items).view(f"uint{width}")
    return [np.ascontiguousarray(words[..., index]) for index in range(words.shape[-1])]


def unpack_items(which: str, t: str, fragment: Sequence[Operand]) -> Bits:
    """Elements to store, [warps, 32, elements], from registers."""
    size = item_bits(which, t)
    width = 64 if size == 64 else 32
    words = np.stack([bits(width, register).reshape(-1, 32) for register in fragment], axis=-1)
    return words.view(f"uint{size}")


@lru_cache(maxsize=64)
def _sources(which: str, shape: str, t: str) -> Index:
    """For each matrix position, the flat index [element, lane] that holds it."""
    row, column = positions(which, shape, t)
    rows, columns = extent(which, shape)
    flat = np.arange(row.size).reshape(row.shape[1], 32)
    table = np.zeros((rows, columns), np.intp)
    table[row.T, column.T] = flat
    return table


def mma(
    shape: str,
    dt: str,
    at: str,
    bt: str,
    ct: str,
    a: Sequence[Operand],
    b: Sequence[Operand],
    c: Sequence[Operand],
    *,
    satfinite: bool = False,
    op: str | None = None,
    rounding: str = "rn",
) -> list[Bits]:
    """The registers of D = A * B + C."""
    left, right = _factor("a", shape, at, a).swapaxes(0, 1), _factor("b", shape, bt, b)
    total = _load(shape, ct, c)
    steps = 2 if at == "tf32" else 1
    for x, y in zip(np.split(left, steps), np.split(right, steps), strict=True):
        total = multiply(dt, at, ct, x, y, total, satfinite=satfinite, op=op, rounding=rounding)
    row, column = positions("d", shape, dt)
    items = total[row.T, column.T]
    out = lane_shape([*a, *b, *c])
    if dt != "f16":
        return scatter(items, out)
    wide = items.astype(np.uint32)
    return scatter(wide[0::2] | (wide[1::2] << np.uint32(16)), out)


def _factor(which: str, shape: str, t: str, fragment: Sequence[Operand]) -> Numbers:
    """Values [row, column, warp] of A or B (b1: words along k)."""
    turned = gather(fragment, 64 if t == "f64" else 32)
    warps = turned.shape[2]
    # [register, element, lane, warp]
    parts = np.stack(unpack(t, turned), axis=1)
    if ELEMENT_BITS[t] >= 8:
        return parts.reshape(-1, warps)[_sources(which, shape, t)]
    # One word per lane: lane l holds part l % 4 of row (or column) l / 4.
    split = parts.reshape(-1, 8, 4, warps).transpose(1, 2, 0, 3)
    whole = split.reshape(8, -1, warps)
    return whole if which == "a" else whole.transpose(1, 0, 2)


def _load(shape: str, t: str, fragment: Sequence[Operand]) -> Bits:
    """The bits of C as [row, column, warp]."""
    turned = gather(fragment, 64 if t == "f64" else 32)
    if t == "f16":
        low, high = turned.astype(np.uint16), (turned >> np.uint32(16)).astype(np.uint16)
        turned = np.stack([low, high], axis=1)
    return turned.reshape(-1, turned.shape[-1])[_sources("c", shape, t)]
