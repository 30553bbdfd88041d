"""Slow exact references for `numerics`: floats as fractions, rounded by definition."""

from __future__ import annotations

from fractions import Fraction
from math import inf, isqrt, nan

import numpy as np

EXACT = Fraction | float

# width, exponent bits, mantissa bits, canonical NaN
SHAPES = {
    "f16": (16, 5, 10, 0x7FFF),
    "bf16": (16, 8, 7, 0x7FFF),
    "f32": (32, 8, 23, 0x7FFFFFFF),
    "f64": (64, 11, 52, 0x7FFFFFFFFFFFFFFF),
}


def decode(t: str, raw: int) -> tuple[int, Fraction | str]:
    """Sign and magnitude: a fraction, "inf" or "nan"."""
    width, exponent_bits, mantissa_bits, _ = SHAPES[t]
    sign = raw >> (width - 1)
    exponent = raw >> mantissa_bits & ((1 << exponent_bits) - 1)
    mantissa = raw & ((1 << mantissa_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    if exponent == (1 << exponent_bits) - 1:
        return sign, "nan" if mantissa else "inf"
    if exponent:
        mantissa |= 1 << mantissa_bits
    scale = max(exponent, 1) - bias - mantissa_bits
    return sign, Fraction(mantissa) * Fraction(2) ** scale


def value(t: str, raw: int) -> Fraction | float:
    """The value of the bits; infinities and NaN as floats."""
    sign, magnitude = decode(t, raw)
    if magnitude == "nan":
        return nan
    if magnitude == "inf":
        return -inf if sign else inf
    assert isinstance(magnitude, Fraction)
    return -magnitude if sign else magnitude


def encode(t: str, exact: Fraction | float, mode: str = "rn", zero_sign: int = 0) -> int:
    """The bits of an exact value rounded by definition; `zero_sign` is the sign of a zero."""
    width, exponent_bits, mantissa_bits, canonical = SHAPES[t]
    sign_bit = 1 << (width - 1)
    infinity = ((1 << exponent_bits) - 1) << mantissa_bits
    if isinstance(exact, float):
        if exact != exact:
            return canonical
        return infinity | (sign_bit if exact < 0 else 0)
    if exact == 0:
        return sign_bit if zero_sign else 0
    negative = exact < 0
    magnitude = abs(exact)
    bias = (1 << (exponent_bits - 1)) - 1
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, 1 - bias) - mantissa_bits)
    count = magnitude / unit
    kept = count.numerator // count.denominator
    kept += _rounds_up(count - kept, kept, negative, mode)
    limit = (1 << (mantissa_bits + 1)) * Fraction(2) ** (bias - mantissa_bits)
    if kept * unit >= limit:
        to_infinity = mode in ("rn", "rna") or mode == ("rm" if negative else "rp")
        return (infinity if to_infinity else infinity - 1) | (sign_bit if negative else 0)
    field = kept + ((max(exponent, 1 - bias) + bias - 1) << mantissa_bits)
    return field | (sign_bit if negative else 0)


def _rounds_up(rest: Fraction, kept: int, negative: bool, mode: str) -> bool:
    half = Fraction(1, 2)
    if mode == "rn":
        return rest > half or (rest == half and kept & 1 == 1)
    if mode == "rna":
        return rest >= half
    if mode == "rz":
        return False
    return rest > 0 and negative == (mode == "rm")


def operate(t: str, op: str, operands: list[int], mode: str = "rn") -> int:
    """`add`, `sub`, `mul`, `div`, `fma` or `sqrt` of bits, rounded once."""
    signs = [raw >> (SHAPES[t][0] - 1) for raw in operands]
    values = [value(t, raw) for raw in operands]
    if op == "sub":
        signs[1] ^= 1
        values[1] = -values[1]
        op = "add"
    if op == "add":
        return encode(t, *_sum(*values, *signs, mode))  # type: ignore[misc]
    if op == "mul":
        return encode(t, _product(*values), mode, signs[0] ^ signs[1])  # type: ignore[misc]
    if op == "fma":
        product_sign = signs[0] ^ signs[1]
        product = _product(values[0], values[1])
        return encode(t, *_sum(product, values[2], product_sign, signs[2], mode))
    if op == "div":
        return encode(t, _quotient(*values, signs[0] ^ signs[1]), mode, signs[0] ^ signs[1])  # type: ignore[misc]
    return _sqrt(t, operands[0], mode)


def _sum(x: EXACT, y: EXACT, sx: int, sy: int, mode: str) -> tuple[EXACT, str, int]:
    specials = [part for part in (x, y) if isinstance(part, float)]
    total = sum(specials) if specials else x + y
    zero_sign = sx if sx == sy else int(mode == "rm")
    return total, mode, zero_sign


def _product(x: EXACT, y: EXACT) -> EXACT:
    for left, right in ((x, y), (y, x)):
        if isinstance(left, float):
            if left != left or right == 0:
                return nan
            return left if right > 0 else -left if right == right else nan
    return x * y


def _quotient(x: EXACT, y: EXACT, sign: int) -> EXACT:
    x_special, y_special = isinstance(x, float), isinstance(y, float)
    if x != x or y != y or (x_special and y_special) or (x == 0 and y == 0):
        return nan
    if x_special or y == 0:
        return -inf if sign else inf
    return Fraction(0) if y_special else x / y


def _sqrt(t: str, raw: int, mode: str) -> int:
    sign, magnitude = decode(t, raw)
    if magnitude == "nan" or (sign and magnitude != 0):
        return SHAPES[t][3]
    if magnitude in ("inf", 0):
        return raw
    assert isinstance(magnitude, Fraction)
    # Enough bits, and a sticky one below them, decide every rounding.
    scale = 4**1200
    scaled = magnitude.numerator * scale // magnitude.denominator
    root = isqrt(scaled)
    exact = Fraction(root, 2**1200)
    if exact * exact != magnitude:
        exact += Fraction(1, 2**1201)
    return encode(t, exact, mode)


def random_bits(t: str, count: int, seed: int) -> np.ndarray:
    """Bits that favour the awkward: special values, subnormals, near-ties, close exponents."""
    width, exponent_bits, mantissa_bits, _ = SHAPES[t]
    rng = np.random.default_rng(seed)
    dtype = np.dtype(f"uint{width}")
    raw = rng.integers(0, 1 << width, count, dtype=dtype, endpoint=False)
    kind = rng.integers(0, 8, count)
    infinity = ((1 << exponent_bits) - 1) << mantissa_bits
    specials = np.array(
        [0, 1, infinity, infinity - 1, infinity + 1, 1 << mantissa_bits, (1 << mantissa_bits) - 1],
        dtype,
    )
    sign = raw & dtype.type(1 << (width - 1))
    raw = np.where(kind == 0, specials[rng.integers(0, len(specials), count)] | sign, raw)
    bias = (1 << (exponent_bits - 1)) - 1
    near_one = (rng.integers(bias - 4, bias + 4, count) << mantissa_bits).astype(dtype)
    mantissa = raw & dtype.type((1 << mantissa_bits) - 1)
    raw = np.where((kind >= 1) & (kind <= 4), near_one | mantissa | sign, raw)
    sparse = mantissa & dtype.type(3 | 3 << (mantissa_bits - 2))
    raw = np.where((kind == 3) | (kind == 4), near_one | sparse | sign, raw)
    return np.where(kind == 5, mantissa | sign, raw).astype(dtype)
