"""`mma.sync.m8n8k4` on f16: four independent products per warp, one per quad pair.

Quad pair q consists of lanes 4q to 4q+3 (lower) and 4q+16 to 4q+19 (upper).

Source: PTX ISA, matrix fragments for mma.m8n8k4 with .f16 floating point type.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tessera.backend.ptx_executor.numerics.bits import Bits, Operand
from tessera.backend.ptx_executor.numerics.formats import widen
from tessera.backend.ptx_executor.numerics.matrix.accumulate import chained_product
from tessera.backend.ptx_executor.numerics.matrix.elements import (
    Values,
    gather,
    lane_shape,
    scatter,
    unpack,
)

# [upper, pair, thread] of a lane: lane = 16 * upper + 4 * pair + thread.
_SPLIT = (2, 4, 4)


def mma_m8n8k4(
    dt: str,
    ct: str,
    a: Sequence[Operand],
    b: Sequence[Operand],
    c: Sequence[Operand],
    alayout: str,
    blayout: str,
) -> list[Bits]:
    """The registers of D."""
    shape = lane_shape([*a, *b, *c])
    left = _matrix(a, transposed=alayout == "col")
    right = _matrix(b, transposed=blayout == "row")
    initial = widen(ct, _load_c(ct, c))
    total = chained_product(
        dt, left.swapaxes(0, 1)[:, :, :, None], right.swapaxes(0, 1)[:, :, None], initial
    )
    return _store_d(dt, total, shape)


def _matrix(registers: Sequence[Operand], transposed: bool) -> Values:
    """[pair, k, row of A or column of B, warp]."""
    turned = gather(registers, 32)
    warps = turned.shape[2]
    # Element i = 2 * register + half: [i, upper, pair, thread, warp].
    elements = np.stack(unpack("f16", turned), axis=1).reshape(4, *_SPLIT, warps)
    if transposed:
        # Thread is k; elements of lower and upper lanes are rows 0-3 and 4-7.
        return elements.transpose(2, 3, 1, 0, 4).reshape(4, 4, 8, warps)
    return elements.transpose(2, 0, 1, 3, 4).reshape(4, 4, 8, warps)


def _load_c(t: str, registers: Sequence[Operand]) -> Bits:
    """The bits of C as [pair, row, column, warp]."""
    turned = gather(registers, 32)
    warps = turned.shape[2]
    if t == "f16":
        halves = np.stack(
            [turned.astype(np.uint16), (turned >> np.uint32(16)).astype(np.uint16)], axis=1
        )
        columns = halves.reshape(8, *_SPLIT, warps)
        return columns.transpose(2, 1, 3, 0, 4).reshape(4, 8, 8, warps)
    rows, pairs, columns_of = _f32_positions()
    result: Bits = np.empty((4, 8, 8, warps), np.uint32)
    result[pairs, rows, columns_of] = turned
    return result


def _f32_positions() -> tuple[Values, Values, Values]:
    """Row, pair and column of element i of each lane, as [8, 32] arrays."""
    index, lane = np.arange(8)[:, None], np.arange(32)[None, :]
    row = (lane & 1) + (index & 2) + 4 * (lane >> 4)
    column = (index & 4) + (lane & 2) + (index & 1)
    pair = np.broadcast_to((lane >> 2) & 3, (8, 32))
    return row, pair, column


def _store_d(t: str, total: Bits, shape: tuple[int, ...]) -> list[Bits]:
    if t == "f32":
        rows, pairs, columns = _f32_positions()
        return scatter(total[pairs, rows, columns], shape)
    warps = total.shape[3]
    lanes = total.reshape(4, 2, 4, 8, warps).transpose(3, 1, 0, 2, 4).reshape(8, 32, warps)
    wide = lanes.astype(np.uint32)
    return scatter(wide[0::2] | (wide[1::2] << np.uint32(16)), shape)
