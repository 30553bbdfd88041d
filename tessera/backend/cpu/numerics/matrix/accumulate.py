"""How a matrix instruction sums: the one place that decides the bits of its float results.

PTX leaves order and rounding of the sum unspecified ("at least single precision"). The rule here:
products are exact, and are added to the accumulator one by one, by rising k, in float64; the total
is rounded once, to nearest even, to f32 or f16. Hardware aligns the products of a group to the
largest one and truncates instead, so results may differ from its in the last bits.

Operands are sequences over k of arrays that broadcast against the accumulator. Integer sums are
exact modulo 2^32.
"""

# mypy: disable-error-code="no-any-return"
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessera.backend.cpu.numerics import float64
from tessera.backend.cpu.numerics.bits import Bits, unsigned
from tessera.backend.cpu.numerics.formats import widen
from tessera.backend.cpu.numerics.rounding import F64, narrow, narrow_half, odd_f32

Values = NDArray[Any]


def sum_of_products(a: Sequence[F64], b: Sequence[F64], c: F64) -> F64:
    """c + a[0]*b[0] + a[1]*b[1] + ... in float64, in this order."""
    total: F64 = c.copy()
    product = np.empty_like(total)
    for x, y in zip(a, b, strict=True):
        np.multiply(x, y, out=product)
        total += product
    return total


def integer_sum_of_products(
    a: Sequence[Values], b: Sequence[Values], c: Values, satfinite: bool
) -> Bits:
    """The same for int32 values; wraps modulo 2^32, or clamps with `satfinite`."""
    dtype = np.int64 if satfinite else np.int32
    total: Values = c.astype(dtype)
    product = np.empty_like(total)
    for x, y in zip(a, b, strict=True):
        np.multiply(x, y, out=product)
        total += product
    if satfinite:
        total = np.clip(total, -(2**31), 2**31 - 1).astype(np.int32)
    return unsigned(total)


def bit_sum(a: Sequence[Bits], b: Sequence[Bits], c: Bits, op: str) -> Bits:
    """c plus the number of ones of `a op b`, over words of 32 bits."""
    combine = {"xor": np.bitwise_xor, "and": np.bitwise_and}[op]
    total = c.copy()
    for x, y in zip(a, b, strict=True):
        total += np.bitwise_count(combine(x, y))
    return total


def fused_sum_of_products(a: Sequence[F64], b: Sequence[F64], c: F64, rounding: str = "rn") -> Bits:
    """f64 matrix products: a chain of fused multiply-adds by rising k."""
    shape = np.broadcast_shapes(c.shape, a[0].shape, b[0].shape)
    total = np.broadcast_to(c, shape).view(np.uint64)
    for x, y in zip(a, b, strict=True):
        left, right = (np.broadcast_to(v, shape).copy().view(np.uint64) for v in (x, y))
        total = float64.fma(left, right, total, rounding)
    return total


def load_accumulator(t: str, raw: Bits) -> Values:
    """Values of accumulator bits: float64 for floats, int32 for s32."""
    if t == "s32":
        return raw.view(np.int32)
    if t == "f64":
        return raw.view(np.float64)
    return widen(t, raw).astype(np.float64)


def store_accumulator(t: str, total: F64) -> Bits:
    """A float64 sum as bits of f32 or f16, rounded once."""
    if t == "f32":
        return narrow(total)
    if t == "f16":
        return narrow_half("f16", odd_f32(total))
    raise NotImplementedError(f"matrix products do not accumulate in .{t}")
