"""f64 operations on single values with `Fraction`: slow and exact, in every rounding mode.

They serve lanes that error-free transformations cannot handle (overflow, underflow, infinities,
NaNs, zeros whose sign depends on the mode), and tests as a reference. The payload of a NaN result
does not matter here.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

# Fraction bits of a root: the smallest root, 2^-537, still has more than twice the bits of f64.
_ROOT_BITS = 700


def _rounded(value: Fraction, mode: str) -> float:
    """A nonzero value, rounded in the given mode; integer division rounds to nearest even."""
    try:
        nearest = float(value)
    except OverflowError:
        nearest = math.inf if value > 0 else -math.inf
    goes_down = mode == "rm" or (mode == "rz" and value > 0)
    goes_up = mode == "rp" or (mode == "rz" and value < 0)
    if goes_down and nearest > value:
        return math.nextafter(nearest, -math.inf)
    if goes_up and nearest < value:
        return math.nextafter(nearest, math.inf)
    return nearest


def _sum(a: Fraction, b: Fraction, signs: tuple[float, float], mode: str) -> float:
    """The rounded sum of two values; their signs decide the sign of a zero."""
    if a + b:
        return _rounded(a + b, mode)
    first, second = (math.copysign(0.0, sign) for sign in signs)
    same = math.copysign(1, first) == math.copysign(1, second)
    return first if same else -0.0 if mode == "rm" else 0.0


def add(a: float, b: float, mode: str) -> float:
    """a + b."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return a + b
    return _sum(Fraction(a), Fraction(b), (a, b), mode)


def mul(a: float, b: float, mode: str) -> float:
    """a * b."""
    if not (math.isfinite(a) and math.isfinite(b) and a and b):
        return a * b
    return _rounded(Fraction(a) * Fraction(b), mode)


def fma(a: float, b: float, c: float, mode: str) -> float:
    """a * b + c, rounded once."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b + c
    if not math.isfinite(c):
        return c
    sign = math.copysign(1, a) * math.copysign(1, b)
    return _sum(Fraction(a) * Fraction(b), Fraction(c), (sign, c), mode)


def div(a: float, b: float, mode: str) -> float:
    """a / b."""
    if not (math.isfinite(a) and math.isfinite(b) and a and b):
        return float(np.divide(a, b))
    return _rounded(Fraction(a) / Fraction(b), mode)


def sqrt(a: float, mode: str) -> float:
    """The square root of a."""
    if not (math.isfinite(a) and a > 0):
        return float(np.sqrt(a))
    numerator, denominator = a.as_integer_ratio()
    scaled, rest = divmod(numerator << 2 * _ROOT_BITS, denominator)
    root = math.isqrt(scaled)
    # A sticky last bit stands for the bits that were cut off.
    sticky = rest != 0 or root * root != scaled
    return _rounded(Fraction(2 * root + sticky, 2 << _ROOT_BITS), mode)
