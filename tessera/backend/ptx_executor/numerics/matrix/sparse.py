"""`mma.sp`: products with a structured sparse A, given as its kept elements and metadata.

A row of A consists of groups of four columns (two for tf32, eight for 4-bit types), and half of
each group is kept. A four-bit field per group selects the kept columns with two indices of two
bits. The kept elements are laid out as a dense A with half the columns; each is multiplied with the
element of B that its index selects.

Source: PTX ISA, mma.sp: sparse matrix storage, sparsity selector and metadata layouts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tessera.backend.ptx_executor.numerics.bits import Bits, Operand
from tessera.backend.ptx_executor.numerics.matrix.accumulate import product
from tessera.backend.ptx_executor.numerics.matrix.elements import (
    Values,
    accumulator_of,
    element_bits,
    gather,
    lane_shape,
    matrix_a,
    matrix_b,
    registers_of,
)
from tessera.backend.ptx_executor.numerics.matrix.mma import parse_shape

_SHAPES = {
    16: ("m16n8k16", "m16n8k32"),
    32: ("m16n8k8", "m16n8k16"),
    8: ("m16n8k32", "m16n8k64"),
    4: ("m16n8k64", "m16n8k128"),
}
# Columns per metadata field, by element size in bits.
_GROUP = {16: 4, 32: 2, 8: 4, 4: 8}


def mma_sp(
    shape: str,
    dt: str,
    at: str,
    bt: str,
    ct: str,
    a: Sequence[Operand],
    b: Sequence[Operand],
    c: Sequence[Operand],
    metadata: Operand,
    *,
    selector: int,
    satfinite: bool = False,
) -> list[Bits]:
    """The registers of D, in the shape of the operands' arrays."""
    size = element_bits(at)
    if shape not in _SHAPES.get(size, ()):
        raise NotImplementedError(f"mma.sp.{shape}.{dt}.{at}.{bt}.{ct} is not supported")
    m, _, k = parse_shape(shape)
    kept, chosen = matrix_a(at, a, m), matrix_b(bt, b)
    warps = max(kept.shape[-1], chosen.shape[-1])
    fields = _fields(metadata, k // _GROUP[size], selector, whole_rows=size < 16)
    partners = _partners(chosen, fields, size)
    total = product(
        dt,
        at,
        ct,
        kept,
        partners.reshape(k // 2, m, -1),
        np.ascontiguousarray(accumulator_of(ct, c, m)).reshape(m, -1),
        satfinite=satfinite,
        spread=lambda x: x.repeat(8, axis=1).reshape(k // 2, m, -1),
    ).reshape(m, 8, warps)
    return registers_of(dt, total, lane_shape([*a, *b, *c]))


def _fields(metadata: Operand, groups: int, selector: int, *, whole_rows: bool) -> Bits:
    """Four-bit fields as [group of columns, row, warp].

    One, two or all four threads of each group of four lanes contribute. A word holds four fields
    of row r (low half) and four of row r + 8; for 8- and 4-bit elements, eight fields of one row.
    """
    # [row % 8, thread, warp]
    words = gather([metadata], 32)[0].reshape(8, 4, -1)
    nibbles = np.stack([(words >> np.uint32(4 * i)) & np.uint32(15) for i in range(8)])
    count, warps = max(groups // 4, 1), words.shape[-1]
    chosen = nibbles[:, :, selector * count : (selector + 1) * count]
    if whole_rows:
        # [field, row % 8, column part, row half, warp]
        split = chosen.reshape(8, 8, count // 2, 2, warps).transpose(2, 0, 3, 1, 4)
    else:
        # [row half, field, row % 8, thread, warp]
        split = chosen.reshape(2, 4, 8, count, warps).transpose(3, 1, 0, 2, 4)
    return split.reshape(groups, 16, warps)


def _partners(b: Values, fields: Bits, size: int) -> Values:
    """The element of B for each kept element of A, as [k / 2, row, column, warp]."""
    groups, rows, warps = fields.shape
    width = _GROUP[size]
    # 4-bit elements are kept in pairs; a tf32 field counts halves of elements.
    unit = 2 if size == 4 else 1
    pieces: list[NDArray[np.intp]] = []
    for piece in range(1 if size == 32 else 2):
        index = (fields >> np.uint32(2 * piece)) & np.uint32(3)
        if size == 32:
            index = fields >> np.uint32(3)
        start = np.arange(groups)[:, None, None] * width + index.astype(np.intp) * unit
        pieces.extend(start + part for part in range(unit))
    # [group, piece, row, warp] in the order of the kept elements.
    ks = np.stack(pieces, axis=1).reshape(-1, rows, 1, warps)
    return b[ks, np.arange(8)[:, None], np.arange(warps)]
