"""Elementary functions in float64, from exactly rounded operations only: equal on every machine.

The functions of NumPy differ in the last bit between CPUs. These are within a few units of the last
place of float64, so results rounded to 32 bits or fewer nearly always equal the correctly rounded
values. The series are Taylor series after the usual argument reductions.
"""

from __future__ import annotations

import functools
import math
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from tessera.ir.arrays import Flags, Floats, Signed

Array = NDArray[np.float64]

_LN2_DIGITS = Decimal("0.69314718055994530941723212145817656807550013436026")
# The leading part has few bits, so its products with exponents are exact.
_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
_LN2_LOW = float(_LN2_DIGITS - Decimal(_LN2_HIGH))
_HALF_PI_DIGITS = Decimal("1.57079632679489661923132169163975144209858469968755")
_HALF_PI_HIGH = float.fromhex("0x1.921fb54400000p+0")
_HALF_PI_MIDDLE = float.fromhex("0x1.0b46110000000p-34")
_HALF_PI_LOW = float(_HALF_PI_DIGITS - Decimal(_HALF_PI_HIGH) - Decimal(_HALF_PI_MIDDLE))
_EXP = tuple(1.0 / math.factorial(n) for n in range(14))
_ATANH = tuple(1.0 / (2 * n + 1) for n in range(12))
_SIN = tuple((-1.0) ** n / math.factorial(2 * n + 1) for n in range(10))
_COS = tuple((-1.0) ** n / math.factorial(2 * n) for n in range(10))
# Above this angle, the reduction loses bits in float64, so it uses Python integers. The largest
# angle has 1024 bits before the point, and no angle is closer to a multiple of pi/2 than 2^-64.
_LARGE_ANGLE = float(1 << 19)
_ANGLE_BITS = 1200
_ERF_TERMS = 200


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    total = np.full(x.shape, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total *= x
        total += coefficient
    return total


def exp(x: Array) -> Array:
    """e^x."""
    bounded = np.minimum(np.maximum(x, -800.0), 800.0)
    known = bounded == bounded
    count = np.where(known, np.rint(bounded * (1.0 / float(_LN2_DIGITS))), 0.0)
    rest = (bounded - count * _LN2_HIGH) - count * _LN2_LOW
    return _scaled(_polynomial(_EXP, rest), count.astype(np.int64))


def _scaled(values: Array, exponent: Signed) -> Array:
    """values * 2^exponent in two steps, so that a subnormal result is rounded once."""
    first = exponent >> 1
    return values * _power_of_two(first) * _power_of_two(exponent - first)


def _power_of_two(exponent: Signed) -> Array:
    return ((exponent + 1023) << 52).view(np.float64)


def expm1(x: Array) -> Array:
    """e^x - 1, accurate near zero."""
    small = np.abs(x) < 0.35
    near = np.where(small, x, 0.0)
    return np.where(small, near * _polynomial(_EXP[1:], near), exp(x) - 1.0)


def log(x: Array) -> Array:
    """The natural logarithm."""
    tiny = (x > 0) & (x < 2.0**-1000)
    scaled = np.where(tiny, x * 2.0**60, np.where((x > 0) & (x < np.inf), x, 1.0))
    bits = scaled.view(np.int64)
    exponent = (bits >> 52) - 1023
    mantissa = ((bits & ((1 << 52) - 1)) | (1023 << 52)).view(np.float64)
    large = mantissa > math.sqrt(2.0)
    mantissa = np.where(large, mantissa * 0.5, mantissa)
    exponent = exponent + large - 60 * tiny
    result: Floats = _atanh_series(mantissa - 1.0, mantissa + 1.0)
    result = exponent * _LN2_HIGH + (result + exponent * _LN2_LOW)
    result = np.where(x == np.inf, np.inf, np.where(x == 0, -np.inf, result))
    return np.where((x < 0) | (x != x), np.nan, result)


def _atanh_series(numerator: Array, denominator: Array) -> Array:
    """2 atanh(numerator / denominator), which is at most 0.18."""
    ratio = numerator / denominator
    return 2.0 * ratio * _polynomial(_ATANH, ratio * ratio)


def log1p(x: Array) -> Array:
    """log(1 + x), accurate near zero."""
    small = np.abs(x) < 0.4
    near = np.where(small, x, 0.0)
    return np.where(small, _atanh_series(near, near + 2.0), log(x + 1.0))


def log2(x: Array) -> Array:
    """The logarithm to base 2; exact for powers of two."""
    logarithm = log(x) * (1.0 / float(_LN2_DIGITS))
    near = np.rint(logarithm)
    exact = np.isfinite(logarithm) & (np.abs(near) < 1000)
    return np.where(exact & (_whole_power(near, exact) == x), near, logarithm)


def _whole_power(exponent: Array, usable: Flags) -> Array:
    return _power_of_two(np.where(usable, exponent, 0.0).astype(np.int64))


def tanh(x: Array) -> Array:
    """The hyperbolic tangent."""
    grown = expm1(2.0 * np.minimum(np.abs(x), 30.0))
    return np.copysign(grown / (grown + 2.0), x)


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x)."""
    return 1.0 / (1.0 + exp(-x))


def sin(x: Array) -> Array:
    """The sine."""
    return _circular(x, 0)


def cos(x: Array) -> Array:
    """The cosine."""
    return _circular(x, 1)


def _circular(x: Array, shift: int) -> Array:
    large = ~(np.abs(x) < _LARGE_ANGLE)
    angle = np.where(large, 0.0, x)
    quadrant = np.rint(angle * (1.0 / float(_HALF_PI_DIGITS)))
    rest = angle - quadrant * _HALF_PI_HIGH - quadrant * _HALF_PI_MIDDLE
    rest = np.asarray(rest - quadrant * _HALF_PI_LOW)
    turn = np.asarray(quadrant.astype(np.int64))
    if large.any():
        turn[large], rest[large] = zip(*map(_reduced, x[large].tolist()), strict=True)
    turn = (turn + shift) & 3
    square = rest * rest
    odd = rest * _polynomial(_SIN, square)
    value = np.where(turn & 1, _polynomial(_COS, square), odd)
    return np.where(turn & 2, -value, value)


def _reduced(angle: float) -> tuple[int, float]:
    """The nearest multiple of pi/2, modulo 4, and the remainder; computed with integers."""
    if not math.isfinite(angle):
        return 0, math.nan
    numerator, denominator = angle.as_integer_ratio()
    half_pi = 8 * _arc_tangent(5) - 2 * _arc_tangent(239)
    multiple, rest = divmod((numerator << _ANGLE_BITS) // denominator + half_pi // 2, half_pi)
    return multiple & 3, (rest - half_pi // 2) / (1 << _ANGLE_BITS)


@functools.cache
def _arc_tangent(whole: int) -> int:
    """atan(1 / whole) in units of 2^-_ANGLE_BITS."""
    power, total, odd = (1 << _ANGLE_BITS) // whole, 0, 1
    while power:
        total += power // odd if odd % 4 == 1 else -(power // odd)
        power //= whole * whole
        odd += 2
    return total


def erf(x: Array) -> Array:
    """The error function, as a series of positive terms."""
    bounded = np.minimum(np.abs(x), 6.0)
    term = np.where(bounded == bounded, bounded, 0.0)
    twice = 2.0 * term * term
    total = term.copy()
    for n in range(_ERF_TERMS):
        term = term * twice / (2 * n + 3)
        total += term
        if not (term > total * 2.0**-60).any():
            break
    value = np.minimum(2.0 / math.sqrt(math.pi) * exp(-0.5 * twice) * total, 1.0)
    return np.where(x != x, np.nan, np.copysign(value, x))


def gelu(x: Array) -> Array:
    """x times the normal distribution at x."""
    return 0.5 * x * (1.0 + erf(x * math.sqrt(0.5)))


def gelu_by_tanh(x: Array) -> Array:
    """The usual approximation of `gelu` with `tanh`."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1.0 + tanh(inner))


def power(x: Array, y: Array) -> Array:
    """x^y; whole exponents keep the sign of x."""
    x, y = np.broadcast_arrays(x, y)
    whole = y == np.rint(y)
    odd = whole & (np.abs(y) < 2.0**53) & ((np.where(np.isfinite(y), y, 0.0) % 2) == 1)
    size = exp(y * log(np.abs(x)))
    size = np.where((y == 0) | (np.abs(x) == 1), 1.0, size)
    value = np.where((x < 0) & odd, -size, size)
    value = np.where((x == 0) & odd, np.copysign(size, x), value)
    outside = (x < 0) & ~whole & np.isfinite(x) & np.isfinite(y)
    unknown = ((x != x) & (y != 0)) | ((y != y) & (x != 1))
    return np.where(outside | unknown, np.nan, value)
