"""`mma.sync`: D = A * B + C on fragments spread over the lanes of each warp.

In: the registers of A, B and C, one array per register, for all warps at once. Out: the registers
of D. All shapes share one layout rule: register r of A holds rows group + 8 * (r odd) and a chunk
of four threads' worth of k; register r of B holds chunk r for column group; C holds two columns per
thread. Only m8n8k4 on f16 (Volta) differs: each quad pair multiplies its own matrices.

Source: PTX ISA, warp-level matrix instructions, mma fragments.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

import numpy as np

from tessera.backend.ptx_executor.numerics.bits import Bits, Operand
from tessera.backend.ptx_executor.numerics.formats import widen
from tessera.backend.ptx_executor.numerics.matrix.accumulate import chained_product, product
from tessera.backend.ptx_executor.numerics.matrix.elements import (
    INTEGERS,
    Values,
    accumulator_of,
    element_bits,
    gather,
    lane_shape,
    matrix_a,
    matrix_b,
    registers_of,
    scatter,
    unpack,
)

# Warps per step: the repeated rows of A stay in the second-level cache.
_WARPS = 64

_SHAPES = {
    16: ("m16n8k8", "m16n8k16"),
    32: ("m16n8k4", "m16n8k8"),
    64: ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"),
    8: ("m8n8k16", "m16n8k16", "m16n8k32"),
    4: ("m8n8k32", "m16n8k32", "m16n8k64"),
    1: ("m8n8k128", "m16n8k128", "m16n8k256"),
}


@functools.cache
def parse_shape(shape: str) -> tuple[int, int, int]:
    """(m, n, k) of a modifier such as `m16n8k16`."""
    match = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", shape)
    if match is None:
        raise NotImplementedError(f".{shape} is no matrix shape")
    m, n, k = (int(part) for part in match.groups())
    return m, n, k


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
    alayout: str = "row",
    blayout: str = "col",
    satfinite: bool = False,
    op: str | None = None,
    rounding: str = "rn",
) -> list[Bits]:
    """The registers of D, in the shape of the operands' arrays."""
    if shape == "m8n8k4" and at == "f16":
        return _mma_m8n8k4(dt, ct, a, b, c, alayout, blayout)
    _check(shape, dt, at, bt, ct, alayout, blayout)
    m, _, _ = parse_shape(shape)
    total = multiply(
        dt,
        at,
        ct,
        matrix_a(at, a, m),
        matrix_b(bt, b),
        accumulator_of(ct, c, m),
        satfinite=satfinite,
        op=op,
        rounding=rounding,
    )
    return registers_of(dt, total, lane_shape([*a, *b, *c]))


def _check(shape: str, dt: str, at: str, bt: str, ct: str, alayout: str, blayout: str) -> None:
    name = f"mma.sync.{shape}.{alayout}.{blayout}.{dt}.{at}.{bt}.{ct}"
    if shape not in _SHAPES[element_bits(at)] or (alayout, blayout) != ("row", "col"):
        raise NotImplementedError(f"{name} is not supported")
    if element_bits(at) != element_bits(bt):
        raise NotImplementedError(f"{name}: A and B differ in element size")
    integral = at in INTEGERS or at == "b1"
    expected = ("s32",) if integral else ("f64",) if at == "f64" else ("f16", "f32")
    if dt not in expected or ct not in expected:
        raise NotImplementedError(f"{name} is not supported")


def multiply(
    dt: str,
    at: str,
    ct: str,
    a: Values,
    b: Values,
    c: Bits,
    *,
    satfinite: bool = False,
    op: str | None = None,
    rounding: str = "rn",
) -> Bits:
    """Bits of D [row, column, warp] from values [k, row, warp], [k, column, warp] and C's bits."""
    warps = max(a.shape[-1], b.shape[-1], c.shape[-1])
    a, b, c = (_spread(part, warps) for part in (a, b, c))
    (depth, rows, _), columns = a.shape, b.shape[1]
    parts = []
    for start in range(0, warps, _WARPS):
        chunk = slice(start, start + _WARPS)
        left = a[..., chunk]
        right = np.ascontiguousarray(b[..., chunk]).reshape(depth, 1, -1)
        initial = np.ascontiguousarray(c[..., chunk]).reshape(rows, -1)
        total = product(
            dt,
            at,
            ct,
            np.ascontiguousarray(left),
            right,
            initial,
            satfinite=satfinite,
            op=op,
            rounding=rounding,
            # With repeated rows of A, every operation on one k is a few long contiguous loops.
            spread=lambda x: x.repeat(columns, axis=1).reshape(depth, rows, -1),
        )
        parts.append(total.reshape(rows, columns, -1))
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)


def _spread(values: Values, warps: int) -> Values:
    if values.shape[-1] == warps:
        return values
    return np.broadcast_to(values, (*values.shape[:-1], warps))


# --- m8n8k4 on f16 -------------------------------------------------------------------------
#
# Four independent products per warp, one per quad pair: pair q consists of lanes 4q to 4q+3 (lower)
# and 4q+16 to 4q+19 (upper). Source: PTX ISA, matrix fragments for mma.m8n8k4 with .f16.

# [upper, pair, thread] of a lane: lane = 16 * upper + 4 * pair + thread.
_SPLIT = (2, 4, 4)


def _mma_m8n8k4(
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
