"""The number of bytes that an access covers, from its modifiers.

Source: PTX ISA 9.0, sections 9.7.9 (vectors), 9.7.14.4 (wmma), 9.7.14.5 (ldmatrix).
"""

from __future__ import annotations

import re
from math import prod

from tessera.ir.opcodes.records import (
    Bytes,
    Extent,
    Matrix,
    Rows,
    SizeOperand,
    TensorBox,
    UnknownExtent,
)
from tessera.ir.ptx.types import VECTOR_COUNTS, is_type, type_bits, type_width

_MATRIX_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")


def matrix_shape(modifier: str) -> tuple[int, int, int] | None:
    """Rows, columns and depth that a modifier such as `m16n8k16` stands for; None for others."""
    shape = _MATRIX_SHAPE.fullmatch(modifier)
    return None if shape is None else (int(shape[1]), int(shape[2]), int(shape[3]))


def extent_of(notation: str, modifiers: tuple[str, ...], words: list[str]) -> Extent:
    """The extent that a table writes as `notation`, for an opcode and the operands present."""
    match notation:
        case "type":
            return _typed(modifiers)
        case "rows":
            return _matrix_rows(modifiers)
        case "matrix":
            return _wmma_matrix(modifiers, words)
        case "box":
            return TensorBox()
        case "?":
            return UnknownExtent()
    if notation.isdigit():
        return Bytes(int(notation))
    return SizeOperand(words.index(notation))


def _typed(modifiers: tuple[str, ...]) -> Extent:
    types = [modifier for modifier in modifiers if is_type(modifier)]
    if not types:
        return UnknownExtent()
    vector = prod(VECTOR_COUNTS.get(modifier, 1) for modifier in modifiers)
    return Bytes(type_width(types[-1]) * vector)


def _matrix_rows(modifiers: tuple[str, ...]) -> Extent:
    """ldmatrix and stmatrix: 16 bytes at the address of each of the first lanes (9.7.14.5.15)."""
    count = next((int(m[1:]) for m in modifiers if m in {"x1", "x2", "x4"}), None)
    if count is None:
        return Rows(16, 32)
    per_matrix = 16 if "m16n16" in modifiers else 8
    return Rows(16, min(32, per_matrix * count))


def _wmma_matrix(modifiers: tuple[str, ...], words: list[str]) -> Extent:
    shape = next(filter(None, map(matrix_shape, modifiers)), None)
    part = next((m for m in modifiers if m in {"a", "b", "c", "d"}), None)
    types = [m for m in modifiers if is_type(m)]
    if shape is None or part is None or not types:
        return UnknownExtent()
    m, n, k = shape
    rows, columns = {"a": (m, k), "b": (k, n)}.get(part, (m, n))
    if "col" in modifiers:
        rows, columns = columns, rows
    bits = type_bits(types[-1])
    stride = words.index("stride") if "stride" in words else None
    return Matrix(rows, columns * bits, bits, stride)
