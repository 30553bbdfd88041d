"""Conversion between registers and matrix elements or accumulators.

Registers of many warps are transposed so that the warp is the last axis: [register, lane, warp].
Matrices become [k, row, warp], so that operations on one k run over long contiguous rows. `lane` is
split into group (lane >> 2) and thread (lane & 3), as in the fragment layouts of the ISA.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessera.backend.ptx_executor.numerics.bits import Bits, Operand, aligned_empty, bits
from tessera.backend.ptx_executor.numerics.formats import decode_table, widen
from tessera.ir.ptx.types import type_bits

Values = NDArray[Any]

_FLOATS = ("f16", "bf16", "tf32", "f64", "e4m3", "e5m2")
INTEGERS = ("s8", "u8", "s4", "u4")
_FP8 = ("e4m3", "e5m2")
ELEMENT_BITS = {t: type_bits(t) for t in (*_FLOATS, *INTEGERS, "b1")}


def element_bits(t: str) -> int:
    """The number of bits per element of a matrix operand type."""
    try:
        return ELEMENT_BITS[t]
    except KeyError:
        raise NotImplementedError(f"matrix elements of type .{t} are not supported") from None


def gather(registers: Sequence[Operand], width: int) -> Bits:
    """[register, lane, warp] from one array of lanes per register."""
    rows = [bits(width, register).reshape(-1, 32) for register in registers]
    warps = max(row.shape[0] for row in rows)
    turned: Bits = np.empty((len(rows), 32, warps), rows[0].dtype)
    for index, row in enumerate(rows):
        turned[index] = row.T
    return turned


def scatter(turned: Iterable[Bits], shape: tuple[int, ...]) -> list[Bits]:
    """One array of lanes per register, in the given shape, from [lane, warp] of each."""
    return [np.ascontiguousarray(lanes.T).reshape(shape) for lanes in turned]


def lane_shape(registers: Sequence[Operand]) -> tuple[int, ...]:
    """The shape that results should have: that of the widest register."""
    shapes = [np.shape(register) for register in registers]
    return max(shapes, key=lambda shape: math.prod(shape))


def unpack(t: str, turned: Bits) -> list[Values]:
    """The elements of each register, lowest first: float32, float64 (f64), int32 or words (b1)."""
    if t == "f64":
        return [turned.view(np.float64)]
    if t == "b1":
        return [turned]
    if t == "tf32":
        return [(turned & np.uint32(0xFFFFE000)).view(np.float32)]
    if t == "bf16":
        low, high = turned << np.uint32(16), turned & np.uint32(0xFFFF0000)
        return [part.view(np.float32) for part in (low, high)]
    if t == "f16":
        low, high = turned.astype(np.uint16), (turned >> np.uint32(16)).astype(np.uint16)
        return [widen("f16", part) for part in (low, high)]
    size = element_bits(t)
    return [_small(t, turned, size, index) for index in range(32 // size)]


def _small(t: str, turned: Bits, size: int, index: int) -> Values:
    """Element `index` of 8 or 4 bits."""
    if t[0] == "s":
        up = np.uint32(32 - size - size * index)
        return (turned << up).view(np.int32) >> np.int32(32 - size)
    field = (turned >> np.uint32(size * index)) & np.uint32((1 << size) - 1)
    if t in _FP8:
        return decode_table(t).astype(np.float32).take(field)
    return field.view(np.int32)


def matrix_a(t: str, registers: Sequence[Operand], rows: int) -> Values:
    """A as [k, row, warp]."""
    turned = gather(registers, 64 if t == "f64" else 32)
    halves = rows // 8
    chunks, warps = turned.shape[0] // halves, turned.shape[2]
    # [chunk, thread, row half, group, warp]
    order, split = (0, 3, 1, 2, 4), (chunks, halves, 8, 4, warps)
    parts = [part.reshape(split).transpose(order) for part in unpack(t, turned)]
    return _interleave(parts).reshape(-1, rows, warps)


def matrix_b(t: str, registers: Sequence[Operand]) -> Values:
    """B as [k, column, warp]."""
    turned = gather(registers, 64 if t == "f64" else 32)
    chunks, warps = turned.shape[0], turned.shape[2]
    # [chunk, thread, group, warp]
    split = (chunks, 8, 4, warps)
    parts = [part.reshape(split).transpose(0, 2, 1, 3) for part in unpack(t, turned)]
    return _interleave(parts).reshape(-1, 8, warps)


def _interleave(parts: list[Values]) -> Values:
    """Stack parts to [chunk, thread, element, ...]: flattened in this order, the axes give k."""
    first = parts[0]
    whole = aligned_empty((*first.shape[:2], len(parts), *first.shape[2:]), first.dtype)
    for element, part in enumerate(parts):
        whole[:, :, element] = part
    return whole


def accumulator_of(t: str, registers: Sequence[Operand], rows: int) -> Bits:
    """The bits of C as [row, column, warp] for 8 columns."""
    turned = gather(registers, 64 if t == "f64" else 32)
    halves, warps = rows // 8, turned.shape[2]
    if t == "f16":
        pairs = np.stack([turned.astype(np.uint16), (turned >> np.uint32(16)).astype(np.uint16)])
        split: Bits = pairs.reshape(2, halves, 8, 4, warps).transpose(1, 2, 3, 0, 4)
    else:
        split = turned.reshape(halves, 2, 8, 4, warps).transpose(0, 2, 3, 1, 4)
    return split.reshape(rows, 8, warps)


def registers_of(t: str, total: Bits, shape: tuple[int, ...]) -> list[Bits]:
    """Registers of D from its bits [row, column, warp]."""
    halves, warps = total.shape[0] // 8, total.shape[2]
    split = total.reshape(halves, 8, 4, 2, warps).transpose(0, 3, 1, 2, 4)
    if t == "f16":
        wide = split.astype(np.uint32)
        packed = wide[:, 0] | (wide[:, 1] << np.uint32(16))
        return scatter(packed.reshape(halves, 32, warps), shape)
    return scatter([half.reshape(32, warps) for pair in split for half in pair], shape)


# --- ldmatrix, stmatrix, movmatrix ---------------------------------------------------------
#
# A row is the 16 bytes at one address; row r of matrix m belongs to the address of lane 8 * m + r.
# Registers are [warp, 32] arrays. Source: PTX ISA, ldmatrix, stmatrix, movmatrix.


def ldmatrix(rows: Bits, num: int, trans: bool = False) -> list[Bits]:
    """Registers from rows: uint8 [warp, num * 8, 16]."""
    warps = rows.shape[0]
    halves = np.ascontiguousarray(rows).view(np.uint16).reshape(warps, num, 8, 8)
    if trans:
        halves = np.ascontiguousarray(halves.transpose(0, 1, 3, 2))
    words = halves.view(np.uint32).reshape(warps, num, 32)
    return [np.ascontiguousarray(words[:, matrix]) for matrix in range(num)]


def stmatrix(registers: Sequence[Operand], trans: bool = False) -> Bits:
    """Rows, uint8 [warp, num * 8, 16], from registers."""
    words = np.stack([bits(32, register).reshape(-1, 32) for register in registers], axis=1)
    warps, num = words.shape[:2]
    halves = words.view(np.uint16).reshape(warps, num, 8, 8)
    if trans:
        halves = halves.transpose(0, 1, 3, 2)
    return np.ascontiguousarray(halves).view(np.uint8).reshape(warps, num * 8, 16)


def movmatrix(register: Operand) -> Bits:
    """`movmatrix.m8n8.trans.b16`: the transpose of an 8x8 matrix held by a warp."""
    words = bits(32, register)
    halves = np.ascontiguousarray(words).view(np.uint16).reshape(-1, 8, 8)
    turned = np.ascontiguousarray(halves.transpose(0, 2, 1))
    return turned.view(np.uint32).reshape(words.shape)
