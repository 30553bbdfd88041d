"""The approximate functions of PTX, within the error bounds that the ISA states.

The tables of the hardware are not published, so these results need not equal its bits. They are
computed with exactly rounded operations only (polynomials in f32, reductions in f64), so they are
equal on every host, and they are more accurate than the ISA requires:

| function | bound of the ISA | here |
|---|---|---|
| rcp, sqrt, div.full | 1 ulp, relative 2^-23, 2 ulp | correctly rounded |
| rsqrt | relative 2^-22.9 | 2^-23.9 |
| div | 2 ulp | 1.5 ulp |
| ex2 | relative 2^-22 (2 ulp over all) | 2^-23 |
| lg2 | absolute 2^-22 inside (0.5, 2), else relative 2^-22 | 2^-23 |
| sin, cos | absolute 2^-20.5 in [-2 pi, 2 pi] | 2^-23 |
| tanh | relative 2^-11 | 2^-21 |

Special values follow the tables of the ISA. Source: PTX ISA, floating-point instructions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tessera.backend.ptx_executor.numerics import float16, float32
from tessera.backend.ptx_executor.numerics.bits import Bits, Operand, bits, blocked, packed
from tessera.backend.ptx_executor.numerics.float32 import F32, load, store
from tessera.backend.ptx_executor.numerics.float64 import finish_f64
from tessera.backend.ptx_executor.numerics.formats import finish, flush
from tessera.backend.ptx_executor.numerics.rounding import F64

_HALVES = {"f16x2": "f16", "bf16x2": "bf16"}

# Polynomials in f32, lowest power first, fitted at Chebyshev nodes.
# (2^f - 1) / f on [-1/2, 1/2]
_EX2 = (
    0.6931471824645996,
    0.24022650718688965,
    0.055503569543361664,
    0.009618083015084267,
    0.0013390863314270973,
    0.00015453163359779865,
)
# log2((1 + t) / (1 - t)) / t, in t^2, up to t^2 = 0.03
_LG2 = (
    2.885390043258667,
    0.9617967009544373,
    0.5770837664604187,
    0.4116629362106323,
    0.34092164039611816,
)
# (sin r - r) / r^3 and (cos r - 1 + r^2/2) / r^4, in r^2, up to r = pi/4
_SIN = (-0.1666666716337204, 0.008333331905305386, -0.00019840063760057092, 2.7246869649388827e-06)
_COS = (0.0416666679084301, -0.00138888880610466, 2.480057992215734e-05, -2.729840673509898e-07)
# (tanh x - x) / x^3, in x^2, up to x = 0.6
_TANH = (
    -0.3333333134651184,
    0.13332915306091309,
    -0.053873948752880096,
    0.021110959351062775,
    -0.006269119679927826,
)

# pi/2 in three parts: products of the first two with quadrant numbers below 2^20 are exact.
_HALF_PI = (
    float.fromhex("0x1.921fb544p+0"),
    float.fromhex("0x1.0b4611a6p-34"),
    float.fromhex("0x1.3198a2e037073p-69"),
)
_TWO_OVER_PI = float.fromhex("0x1.45f306dc9c883p-1")


def _polynomial(coefficients: tuple[float, ...], x: F32) -> F32:
    """Horner's rule, one rounding per operation."""
    total = x * np.float32(coefficients[-1])
    for coefficient in coefficients[-2:0:-1]:
        total += np.float32(coefficient)
        total *= x
    total += np.float32(coefficients[0])
    return total


def _single(t: str, name: str) -> None:
    if t != "f32":
        raise NotImplementedError(f"{name}.approx.{t} does not exist")


def _apply(
    function: Callable[[F32], F32], name: str, t: str, a: Operand, ftz: bool, *, halves: bool
) -> Bits:
    """Apply an f32 function to an operand of type `t`, with `.ftz` on both sides."""
    if t == "f32":
        return blocked(
            lambda raw: store(finish("f32", function(load(raw, ftz))), ftz, False), bits(32, a)
        )
    if not halves:
        _single(t, name)
    if t in _HALVES:
        return packed(lambda x: _apply(function, name, _HALVES[t], x, ftz, halves=True), 32, a)
    if t not in ("f16", "bf16"):
        raise NotImplementedError(f"{name}.approx.{t} does not exist")
    return blocked(
        lambda raw: float16.store(t, function(float16.load(t, raw, ftz)), ftz, False), bits(16, a)
    )


def ex2(t: str, a: Operand, *, ftz: bool = False) -> Bits:
    """`ex2.approx`: 2^a."""
    return _apply(_ex2, "ex2", t, a, ftz, halves=True)


def _ex2(x: F32) -> F32:
    # Beyond these bounds the result is infinity or rounds to zero; NaN passes through.
    bounded = np.minimum(np.maximum(x, np.float32(-160)), np.float32(160))
    whole = np.rint(bounded)
    fraction = bounded - whole
    power = _polynomial(_EX2, fraction)
    power *= fraction
    power += np.float32(1)
    # Two factors, so that a subnormal result is rounded once, by the second.
    exponent = np.where(whole == whole, whole, np.float32(0)).astype(np.int32)
    first = exponent >> 1
    power *= _power_of_two(first)
    power *= _power_of_two(exponent - first)
    return power


def _power_of_two(exponent: Bits) -> F32:
    return ((exponent + np.int32(127)) << np.int32(23)).view(np.float32)


def lg2(t: str, a: Operand, *, ftz: bool = False) -> Bits:
    """`lg2.approx.f32`: the logarithm to base 2."""
    return _apply(_lg2, "lg2", t, a, ftz, halves=False)


def _lg2(x: F32) -> F32:
    # Subnormals are scaled up; the mantissa is then taken to [sqrt(1/2), sqrt(2)).
    tiny = np.abs(x) < np.float32(2.0**-126)
    scaled = x * np.where(tiny, np.float32(2.0**24), np.float32(1)) if tiny.any() else x
    raw = scaled.view(np.uint32)
    offset = raw - np.uint32(0x3F3504F3)
    exponent = offset.view(np.int32) >> np.int32(23)
    mantissa = (raw - (exponent.view(np.uint32) << np.uint32(23))).view(np.float32)
    ratio = (mantissa - np.float32(1)) / (mantissa + np.float32(1))
    result = _polynomial(_LG2, ratio * ratio)
    result *= ratio
    result += exponent - np.int32(24) * tiny
    result = result.astype(np.float32)
    result[x == 0] = -np.inf
    result[x < 0] = np.nan
    result[~(x < np.inf)] += np.float32(np.inf)
    result[x != x] = np.nan
    return result


def sin(t: str, a: Operand, *, ftz: bool = False) -> Bits:
    """`sin.approx.f32`."""
    return _apply(lambda x: _sine(x, 0), "sin", t, a, ftz, halves=False)


def cos(t: str, a: Operand, *, ftz: bool = False) -> Bits:
    """`cos.approx.f32`."""
    return _apply(lambda x: _sine(x, 1), "cos", t, a, ftz, halves=False)


def _sine(x: F32, quarter: int) -> F32:
    """sin(x + quarter * pi/2); NaN for infinities. Meaningful up to about 2^20 pi."""
    wide = np.where(np.isfinite(x), x, np.float32(np.nan)).astype(np.float64)
    turns = np.rint(wide * _TWO_OVER_PI)
    rest: F64 = wide - turns * _HALF_PI[0]
    rest = rest - turns * _HALF_PI[1]
    rest = rest - turns * _HALF_PI[2]
    r = rest.astype(np.float32)
    square = r * r
    sine = _polynomial(_SIN, square)
    sine *= square * r
    sine += r
    cosine = _polynomial(_COS, square)
    cosine *= square * square
    cosine += np.float32(1) - square * np.float32(0.5)
    # The count modulo 4 is exact even if it is large; the branch for NaN does not matter.
    quadrant = turns - 4.0 * np.floor(turns * 0.25) + quarter
    odd = (quadrant == 1) | (quadrant == 3)
    negative = (quadrant == 2) | (quadrant == 3)
    result = np.where(odd, cosine, sine)
    result = np.where(negative, -result, result)
    if quarter == 0:
        result = np.where(x == 0, x, result)
    return np.where(rest == rest, np.clip(result, -1, 1), np.float32(np.nan)).astype(np.float32)


def tanh(t: str, a: Operand, *, ftz: bool = False) -> Bits:
    """`tanh.approx`."""
    return _apply(_tanh, "tanh", t, a, ftz, halves=True)


def _tanh(x: F32) -> F32:
    size = np.abs(x)
    square = np.minimum(size, np.float32(1))
    square *= square
    small = _polynomial(_TANH, square)
    small *= square * size
    small += size
    # 1 - 2 / (e^2x + 1); e^2x = 2^(2x log2 e).
    grown = _ex2(np.minimum(size, np.float32(20)) * np.float32(2.8853900817779268))
    large = np.float32(1) - np.float32(2) / (grown + np.float32(1))
    return np.copysign(np.where(size < np.float32(0.6), small, large), x)


def rcp(t: str, a: Operand, *, ftz: bool = False) -> Bits:
    """`rcp.approx`: 1/a; the f64 form is the coarse approximation in the upper word."""
    if t == "f64":
        return _upper_word(lambda x: np.float64(1) / x, a)
    _single(t, "rcp")
    return float32.rcp(a, "rn", ftz)


def rsqrt(t: str, a: Operand, *, ftz: bool = False) -> Bits:
    """`rsqrt.approx`: 1/sqrt(a); f64 with `.ftz` is the coarse approximation."""
    if t == "f64":
        if ftz:
            return _upper_word(_rsqrt, a)
        x = bits(64, a).view(np.float64)
        return finish_f64(_rsqrt(x), x)
    return _apply(
        lambda x: _rsqrt(x.astype(np.float64)).astype(np.float32), "rsqrt", t, a, ftz, halves=False
    )


def _rsqrt(x: F64) -> F64:
    """1 / sqrt(x), with sqrt(-0.0) = -0.0."""
    return np.float64(1) / np.sqrt(x)


def _upper_word(function: Callable[[F64], F64], a: Operand) -> Bits:
    """`approx.ftz.f64`: only the upper 32 bits of operand and result count."""
    word = np.uint64(0xFFFFFFFF00000000)
    raw = flush("f64", bits(64, a) & word)
    result = finish("f64", function(raw.view(np.float64)))
    special = (result & np.uint64(0x7FF0000000000000)) == np.uint64(0x7FF0000000000000)
    rounded = np.where(special, result, result + np.uint64(0x80000000))
    return flush("f64", rounded & word)


def sqrt(t: str, a: Operand, *, ftz: bool = False) -> Bits:
    """`sqrt.approx.f32`."""
    _single(t, "sqrt")
    return float32.sqrt(a, "rn", ftz)


def div(t: str, a: Operand, b: Operand, *, ftz: bool = False) -> Bits:
    """`div.approx.f32`: a * (1/b), where 1/b is zero for |b| above 2^126."""
    _single(t, "div")
    reciprocal = rcp("f32", b, ftz=True) if ftz else flush("f32", rcp("f32", b))
    quotient = float32.arithmetic("mul", a, reciprocal, "rn", ftz, False)
    divisor = bits(32, b)
    tiny = (divisor & np.uint32(0x7FFFFFFF)) < np.uint32(0x00800000)
    if ftz or not tiny.any():
        return quotient
    # Without `.ftz` a subnormal divisor is not flushed, though its reciprocal may overflow.
    return np.where(tiny, float32.div(a, b, "rn", False), quotient)


def div_full(a: Operand, b: Operand, *, ftz: bool = False) -> Bits:
    """`div.full.f32`: within 2 ulp over the whole range."""
    return float32.div(a, b, "rn", ftz)
