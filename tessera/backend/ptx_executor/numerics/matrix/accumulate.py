"""Summation in matrix instructions: this file alone decides the bits of their float results.

PTX leaves the order and rounding of the sum open. The rule here is that of an H200. It was fitted
to recorded results and reproduces them to the bit:

- Products are exact. The exponent of a product is ea + eb, the sum of the exponents of its factors.
  A factor that is subnormal in its format has the format's lowest exponent.
- All products of the instruction and the accumulator are cut, towards zero, to multiples of
  2^(emax - 25), where emax is the largest exponent among them. The cut terms are summed exactly.
- An f32 result is cut towards zero to 24 bits; on overflow it is infinity. An f16 result is
  rounded to nearest. A sum of zero is +0.0.
- `wgmma` on 8-bit floats keeps only 13 bits instead of 25, and 14 in the result.
- `mma.sync` on 8-bit floats is two f16 products, k = 0, 1 mod 4 and then k = 2, 3 mod 4, started
  from zero; C is added last, to nearest. Each step gives the type of D, f32 or f16.
- `wmma` on tf32 (m16n16k8) is two products, k below 4 first.

Other GPUs group and cut differently. Integer sums are exact modulo 2^32; f64 products are chains
of fused multiply-adds in ascending k.

Operands are arrays [k, ...] whose slices broadcast against the accumulator.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tessera.backend.ptx_executor.numerics import float64
from tessera.backend.ptx_executor.numerics.bits import Bits, unsigned
from tessera.backend.ptx_executor.numerics.bitwise import popc
from tessera.backend.ptx_executor.numerics.formats import finish, narrow_half, widen
from tessera.backend.ptx_executor.numerics.matrix.cut_sum import Rule, factor, sum_of_products
from tessera.backend.ptx_executor.numerics.matrix.elements import Values
from tessera.backend.ptx_executor.numerics.rounding import F64

_LOWEST = {"f16": -14, "bf16": -126, "tf32": -126, "e4m3": -6, "e5m2": -14}


def rule_for(t: str, *, is_wgmma: bool = False) -> Rule:
    """The rule for factors of type `t`."""
    if t in ("e4m3", "e5m2"):
        return Rule(13, 14, _LOWEST[t]) if is_wgmma else Rule(25, 24, _LOWEST["f16"])
    return Rule(25, 24, _LOWEST[t])


def float_product(
    dt: str,
    at: str,
    left: Values,
    right: Values,
    c: Values,
    spread: Callable[[Values], Values],
    *,
    is_wgmma: bool = False,
) -> Bits:
    """The bits of D for factors of a float type; all values are float32."""
    rule = rule_for(at, is_wgmma=is_wgmma)
    a, b = factor(left, rule.lowest).spread(spread), factor(right, rule.lowest)
    if at not in ("e4m3", "e5m2") or is_wgmma:
        return sum_of_products(dt, a, b, c, rule)
    total = np.zeros_like(c)
    for first in (0, 2):
        picks = [k for k in range(len(left)) if k % 4 in (first, first + 1)]
        part = sum_of_products(dt, a.pick(picks), b.pick(picks), total, rule)
        total = np.ascontiguousarray(widen(dt, part))
    total = total + c
    return finish("f32", total) if dt == "f32" else narrow_half("f16", unsigned(total))


def chained_product(dt: str, a: Values, b: Values, c: Values) -> Bits:
    """m8n8k4 on f16: f32 fused multiply-adds in ascending k.

    For an f32 result the chain starts from zero and C is added last; for f16 it starts from C.
    """
    total: Values = np.zeros(c.shape, np.float32) if dt == "f32" else c
    for x, y in zip(a, b, strict=True):
        # A product of f16 values is exact in float64, and so is a sum near a tie of f32.
        total = (np.multiply(x, y, dtype=np.float64) + total).astype(np.float32)
    return finish("f32", total + c) if dt == "f32" else narrow_half("f16", unsigned(total))


def integer_product(a: Values, b: Values, c: Values, satfinite: bool) -> Bits:
    """c + sum of products of int32 values: wraps modulo 2^32, or clamps with `satfinite`."""
    total: Values = c.astype(np.int64 if satfinite else np.int32)
    product = np.empty_like(total)
    for x, y in zip(a, b, strict=True):
        np.multiply(x, y, out=product)
        total += product
    if satfinite:
        total = np.clip(total, -(2**31), 2**31 - 1).astype(np.int32)
    return unsigned(total)


def bit_product(a: Bits, b: Bits, c: Bits, op: str) -> Bits:
    """c plus the number of ones of `a op b`, over words of 32 bits."""
    combine = {"xor": np.bitwise_xor, "and": np.bitwise_and}[op]
    total = c.copy()
    for x, y in zip(a, b, strict=True):
        total += popc("b32", combine(x, y))
    return total


def fused_product(a: F64, b: F64, c: F64, rounding: str = "rn") -> Bits:
    """f64: a chain of fused multiply-adds in ascending k."""
    total: Bits = c.view(np.uint64)
    for x, y in zip(a, b, strict=True):
        left, right = (np.broadcast_to(v, c.shape).copy().view(np.uint64) for v in (x, y))
        total = float64.fma(left, right, total, rounding)
    return total


def product(
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
    is_wgmma: bool = False,
    spread: Callable[[Values], Values] = np.asarray,
) -> Bits:
    """The bits of D = A * B + C, from values [k, ...] and the bits of C.

    `spread` transforms A to a shape whose slices broadcast against C.
    """
    if at == "b1":
        return bit_product(spread(a), b, c, op or "xor")
    if at == "f64":
        return fused_product(spread(a), b, c.view(np.float64), rounding)
    if at in ("s8", "u8", "s4", "u4"):
        return integer_product(spread(a), b, c.view(np.int32), satfinite)
    initial = np.ascontiguousarray(widen(ct, c))
    return float_product(dt, at, a, b, initial, spread, is_wgmma=is_wgmma)
