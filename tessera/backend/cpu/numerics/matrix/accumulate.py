"""How a matrix instruction sums: the one place that decides the bits of its float results.

PTX leaves order and rounding of the sum open. The rule here is that of an H200, found by fitting
recorded results, which it reproduces to the bit:

- Products are exact. Each has the exponent ea + eb of its factors (those of a factor that is
  subnormal in its format count as normal ones do not: they are the format's lowest exponent).
- All products of the instruction and the accumulator are cut, towards zero, to multiples of
  2^(emax - 25), where emax is the largest exponent among them. What is left is summed exactly.
- An f32 result is cut towards zero to 24 bits; too large a result is infinity. An f16 result is
  rounded to nearest. A sum of zero is +0.0.
- `wgmma` on 8-bit floats keeps only 13 bits instead of 25, and 14 in the result.
- `mma.sync` on 8-bit floats is two f16 products, k = 0, 1 mod 4 and then k = 2, 3 mod 4, started
  from zero; C is added last, to nearest. Each step gives f32 or f16, as D is.
- `wmma` on tf32 (m16n16k8) is two products, k below 4 first.

Other GPUs group and cut differently. Integer sums are exact modulo 2^32; f64 products are chains
of fused multiply-adds by rising k.

Operands are arrays [k, ...] whose slices broadcast against the accumulator.
"""

# mypy: disable-error-code="no-any-return"
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessera.backend.cpu.numerics import float64
from tessera.backend.cpu.numerics.bits import Bits, unsigned
from tessera.backend.cpu.numerics.bitwise import popc
from tessera.backend.cpu.numerics.formats import finish, widen
from tessera.backend.cpu.numerics.rounding import F64, narrow, narrow_half, odd_f32

Values = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """Bits kept below the largest exponent, bits of an f32 result, lowest exponent of a factor."""

    kept: int
    result: int
    lowest: int


_LOWEST = {"f16": -14, "bf16": -126, "tf32": -126, "e4m3": -6, "e5m2": -14}


def rule_for(t: str, *, is_wgmma: bool = False) -> Rule:
    """The rule for factors of type `t`."""
    if t in ("e4m3", "e5m2"):
        return Rule(13, 14, _LOWEST[t]) if is_wgmma else Rule(25, 24, _LOWEST["f16"])
    return Rule(25, 24, _LOWEST[t])


# Biased exponents in which float32 holds every product and its scaled value exactly, and one
# that stands for zero: below any sum of two others.
_SAFE_LOW, _SAFE_HIGH, _ZERO = 37, 227, np.int16(-16000)


@dataclass(frozen=True, slots=True)
class Factor:
    """Slices [k, ...] of A or B: float32 values, their biased exponents, is any subnormal."""

    values: Values
    exponents: Values
    has_subnormal: bool

    def spread(self, transform: Callable[[Values], Values]) -> Factor:
        """The same with both arrays reshaped or repeated."""
        return Factor(transform(self.values), transform(self.exponents), self.has_subnormal)

    def pick(self, ks: list[int]) -> Factor:
        """Some of the slices."""
        return Factor(self.values[ks], self.exponents[ks], self.has_subnormal)


def factor(values: Values, lowest: int) -> Factor:
    """Values with their exponents; those below `lowest` (of a subnormal) are raised to it."""
    exponents = _exponents(values)
    zero = exponents == 0
    has_zero = bool(zero.any())
    has_subnormal = has_zero and bool((values[zero] != 0).any())
    if lowest > -126:
        np.maximum(exponents, np.int16(lowest + 127), out=exponents)
    if has_zero:
        exponents[zero] = _ZERO
    return Factor(values, exponents, has_subnormal)


def _exponents(values: Values) -> Values:
    """The biased exponents of float32 values."""
    field = values.view(np.uint32) << np.uint32(1)
    field >>= np.uint32(24)
    return field.astype(np.int16)


def sum_of_products(a: Factor, b: Factor, c: Values, rule: Rule) -> F64:
    """c + sum of a[k] * b[k] for float32 values, cut by the rule: float64, exact or NaN."""
    own = factor(c, -126)
    top = own.exponents + np.int16(127)
    exponent = np.empty_like(top)
    for x, y in zip(a.exponents, b.exponents, strict=True):
        np.add(x, y, out=exponent)
        np.maximum(top, exponent, out=top)
    top -= np.int16(127)
    subnormal = a.has_subnormal or b.has_subnormal or own.has_subnormal
    if subnormal or not _is_safe(top):
        return _wide_sum(a.values, b.values, c, rule)
    top[top < 0] = 127
    scale = ((254 + rule.kept) - top.astype(np.uint32)) << np.uint32(23)
    total = _scaled_sum(a.values, b.values, c, scale.view(np.float32))
    unit = (top.astype(np.uint64) + np.uint64(1023 - 127 - rule.kept)) << np.uint64(52)
    total *= unit.view(np.float64)
    return total


def _is_safe(top: Values) -> bool:
    """Whether float32 is enough: no huge or tiny exponents but those of zero, all finite."""
    if not top.size:
        return True
    if top.max() > _SAFE_HIGH:
        return False
    return bool(top.min() >= _SAFE_LOW) or not ((top < _SAFE_LOW) & (top > -2000)).any()


def _scaled_sum(a: Values, b: Values, c: Values, scale: Values) -> F64:
    """The sum of all terms times `scale`, each cut to an integer below 2^27."""
    product = np.empty(c.shape, np.float32)
    term = np.empty(c.shape, np.int32)
    # Casting cuts towards zero. Eight products and c cannot overflow 32 bits.
    total = (c * scale).astype(np.int32)
    sums: F64 | None = None
    for k in range(a.shape[0]):
        if k and k % 8 == 0:
            sums = total.astype(np.float64) if sums is None else sums + total
            total[...] = 0
        np.multiply(a[k], b[k], out=product)
        np.multiply(product, scale, out=product)
        np.copyto(term, product, casting="unsafe")
        total += term
    return total.astype(np.float64) if sums is None else sums + total


def _wide_sum(a: Values, b: Values, c: Values, rule: Rule) -> F64:
    """The same for any values, in float64; lanes with infinities or NaNs get their plain sum."""
    left, right, first = (values.astype(np.float64) for values in (a, b, c))
    plain = first + 0.0
    top = _wide_powers(first, -126)
    powers_a, powers_b = _wide_powers(left, rule.lowest), _wide_powers(right, rule.lowest)
    for k in range(a.shape[0]):
        plain = plain + left[k] * right[k]
        top = np.maximum(top, np.where(np.isfinite(plain), powers_a[k] * powers_b[k], 0.0))
    top[~((top > 0) & (top < np.inf))] = 1.0
    unit = top * 2.0**-rule.kept
    total = np.trunc(first / unit)
    for k in range(a.shape[0]):
        total = total + np.trunc(left[k] * right[k] / unit)
    return np.where(np.isfinite(plain), total * unit, plain)


def _wide_powers(values: F64, lowest: int) -> F64:
    powers = (values.view(np.uint64) & np.uint64(0x7FF0000000000000)).view(np.float64)
    return np.where(powers != 0, np.maximum(powers, 2.0**lowest), 0.0)


def round_sum(dt: str, total: F64, rule: Rule) -> Bits:
    """Bits of f32 (cut towards zero) or f16 (to nearest) of an exact sum."""
    total = total + 0.0
    if dt == "f16":
        half = narrow_half("f16", odd_f32(total))
        half[half == 0x8000] = 0
        return half
    if dt != "f32":
        raise NotImplementedError(f"matrix products do not accumulate in .{dt}")
    cut = total.view(np.uint64) & np.uint64(~((1 << (53 - rule.result)) - 1) & (2**64 - 1))
    values = cut.view(np.float64)
    result: NDArray[np.float32] = values.astype(np.float32)
    if factor(result, -126).has_subnormal:
        small = np.abs(values) < 2.0**-126
        result[small] = narrow(values[small], "rz").view(np.float32)
    special = ~np.isfinite(total)
    if special.any():
        # Cutting may have emptied the mantissa of a NaN.
        result[special] = total[special].astype(np.float32)
    return finish("f32", result)


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
    """Bits of D for factors of a float type; all values are float32."""
    rule = rule_for(at, is_wgmma=is_wgmma)
    a, b = factor(left, rule.lowest).spread(spread), factor(right, rule.lowest)
    if at not in ("e4m3", "e5m2") or is_wgmma:
        return round_sum(dt, sum_of_products(a, b, c, rule), rule)
    total = np.zeros_like(c)
    for first in (0, 2):
        picks = [k for k in range(len(left)) if k % 4 in (first, first + 1)]
        part = sum_of_products(a.pick(picks), b.pick(picks), total, rule)
        total = np.ascontiguousarray(widen(dt, round_sum(dt, part, rule)))
    total = total + c
    return finish("f32", total) if dt == "f32" else narrow_half("f16", unsigned(total))


def chained_product(dt: str, a: Values, b: Values, c: Values) -> Bits:
    """m8n8k4 on f16: f32 fused multiply-adds by rising k.

    For an f32 result they start from zero and C is added last; for f16 they start from C.
    """
    total: Values = np.zeros(c.shape, np.float32) if dt == "f32" else c
    for x, y in zip(a, b, strict=True):
        # A product of f16 is exact in float64, and a sum near a tie of f32 is, too.
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
    """f64: a chain of fused multiply-adds by rising k."""
    total = c.view(np.uint64)
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
    """Bits of D = A * B + C, from values [k, ...] and the bits of C.

    `spread` brings A to a shape whose slices broadcast against C.
    """
    if at == "b1":
        return bit_product(spread(a), b, c, op or "xor")
    if at == "f64":
        return fused_product(spread(a), b, c.view(np.float64), rounding)
    if at in ("s8", "u8", "s4", "u4"):
        return integer_product(spread(a), b, c.view(np.int32), satfinite)
    initial = np.ascontiguousarray(widen(ct, c))
    return float_product(dt, at, a, b, initial, spread, is_wgmma=is_wgmma)
