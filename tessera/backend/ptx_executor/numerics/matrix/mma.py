"""`mma.sync`: D = A * B + C on fragments spread over the lanes of each warp.

In: the registers of A, B and C, one array per register, of all warps at once. Out: those of D.
All shapes share one layout rule: register r of A holds rows group + 8 * (r odd) and a chunk of
four threads' worth of k; register r of B holds chunk r for column group; C holds two columns per
thread. m8n8k4 on f16 (Volta's) alone differs: each quad pair multiplies its own matrices.

Source: PTX ISA, warp-level matrix instructions, mma fragments.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

import numpy as np

from tessera.backend.ptx_executor.numerics.bits import Bits, Operand
from tessera.backend.ptx_executor.numerics.matrix import volta
from tessera.backend.ptx_executor.numerics.matrix.accumulate import product
from tessera.backend.ptx_executor.numerics.matrix.elements import (
    INTEGERS,
    Values,
    accumulator_of,
    element_bits,
    lane_shape,
    matrix_a,
    matrix_b,
    registers_of,
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
        return volta.mma_m8n8k4(dt, ct, a, b, c, alayout, blayout)
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
            # Repeated rows of A make every operation on one k a few long contiguous loops.
            spread=lambda x: x.repeat(columns, axis=1).reshape(depth, rows, -1),
        )
        parts.append(total.reshape(rows, columns, -1))
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)


def _spread(values: Values, warps: int) -> Values:
    if values.shape[-1] == warps:
        return values
    return np.broadcast_to(values, (*values.shape[:-1], warps))
