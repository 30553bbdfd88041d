"""Floating-point arithmetic by PTX type: the entry points, dispatching to one format each.

Types: f32, f64, f16, bf16 and the packed f16x2, bf16x2, f32x2. All results are correctly rounded
(approximations are in `approx`); a NaN result is canonical.
"""

from __future__ import annotations

import numpy as np

from tessera.backend.ptx_executor.numerics import float16, float32, float64
from tessera.backend.ptx_executor.numerics.bits import Bits, Operand, bits, packed, unsigned
from tessera.backend.ptx_executor.numerics.formats import flush, format_of, widen
from tessera.backend.ptx_executor.numerics.minmax import extremum
from tessera.ir.arrays import Flags

PACKED = {"f16x2": "f16", "bf16x2": "bf16", "f32x2": "f32"}


def _width(t: str) -> int:
    return 64 if t == "f32x2" else 32


def _nearest_only(t: str, rounding: str) -> None:
    if rounding != "rn":
        raise NotImplementedError(f".{t} arithmetic rounds by .rn only, not .{rounding}")


def add(
    t: str, a: Operand, b: Operand, *, rounding: str = "rn", ftz: bool = False, sat: bool = False
) -> Bits:
    """`add`."""
    if t == "f32":
        return float32.add(a, b, rounding, ftz, sat)
    if t in PACKED:
        function = lambda x, y: add(PACKED[t], x, y, rounding=rounding, ftz=ftz, sat=sat)  # noqa: E731
        return packed(function, _width(t), a, b)
    if t == "f64":
        return float64.add(a, b, rounding)
    _nearest_only(t, rounding)
    return float16.add(t, a, b, ftz, sat)


def sub(
    t: str, a: Operand, b: Operand, *, rounding: str = "rn", ftz: bool = False, sat: bool = False
) -> Bits:
    """`sub`."""
    if t == "f32":
        return float32.sub(a, b, rounding, ftz, sat)
    if t in PACKED:
        function = lambda x, y: sub(PACKED[t], x, y, rounding=rounding, ftz=ftz, sat=sat)  # noqa: E731
        return packed(function, _width(t), a, b)
    if t == "f64":
        return float64.sub(a, b, rounding)
    _nearest_only(t, rounding)
    return float16.sub(t, a, b, ftz, sat)


def mul(
    t: str, a: Operand, b: Operand, *, rounding: str = "rn", ftz: bool = False, sat: bool = False
) -> Bits:
    """`mul`."""
    if t == "f32":
        return float32.mul(a, b, rounding, ftz, sat)
    if t in PACKED:
        function = lambda x, y: mul(PACKED[t], x, y, rounding=rounding, ftz=ftz, sat=sat)  # noqa: E731
        return packed(function, _width(t), a, b)
    if t == "f64":
        return float64.mul(a, b, rounding)
    _nearest_only(t, rounding)
    return float16.mul(t, a, b, ftz, sat)


def fma(
    t: str,
    a: Operand,
    b: Operand,
    c: Operand,
    *,
    rounding: str = "rn",
    ftz: bool = False,
    sat: bool = False,
    relu: bool = False,
) -> Bits:
    """`fma` and `mad`: one rounding; `.relu` clamps negative results to +0.0."""
    if t == "f32":
        return float32.fma(a, b, c, rounding, ftz, sat)
    if t in PACKED:
        return packed(
            lambda x, y, z: fma(PACKED[t], x, y, z, rounding=rounding, ftz=ftz, sat=sat, relu=relu),
            _width(t),
            a,
            b,
            c,
        )
    if t == "f64":
        return float64.fma(a, b, c, rounding)
    _nearest_only(t, rounding)
    return float16.fma(t, a, b, c, ftz, sat, relu)


def div(t: str, a: Operand, b: Operand, *, rounding: str = "rn", ftz: bool = False) -> Bits:
    """`div.rn/rz/rm/rp`."""
    if t == "f64":
        return float64.div(a, b, rounding)
    _single(t)
    return float32.div(a, b, rounding, ftz)


def rcp(t: str, a: Operand, *, rounding: str = "rn", ftz: bool = False) -> Bits:
    """`rcp.rn/rz/rm/rp`."""
    if t == "f64":
        return float64.rcp(a, rounding)
    _single(t)
    return float32.rcp(a, rounding, ftz)


def sqrt(t: str, a: Operand, *, rounding: str = "rn", ftz: bool = False) -> Bits:
    """`sqrt.rn/rz/rm/rp`."""
    if t == "f64":
        return float64.sqrt(a, rounding)
    _single(t)
    return float32.sqrt(a, rounding, ftz)


def _single(t: str) -> None:
    if t != "f32":
        raise NotImplementedError(f"PTX has no exactly rounded operation of this kind for .{t}")


def min(
    t: str,
    a: Operand,
    b: Operand,
    *,
    ftz: bool = False,
    nan: bool = False,
    xorsign_abs: bool = False,
) -> Bits:
    """`min{.ftz}{.NaN}{.xorsign.abs}`."""
    return _extremum(t, a, b, True, ftz, nan, xorsign_abs)


def max(
    t: str,
    a: Operand,
    b: Operand,
    *,
    ftz: bool = False,
    nan: bool = False,
    xorsign_abs: bool = False,
) -> Bits:
    """`max{.ftz}{.NaN}{.xorsign.abs}`."""
    return _extremum(t, a, b, False, ftz, nan, xorsign_abs)


def _extremum(
    t: str, a: Operand, b: Operand, is_min: bool, ftz: bool, nan: bool, xorsign_abs: bool
) -> Bits:
    if t in PACKED:
        return packed(
            lambda x, y: _extremum(PACKED[t], x, y, is_min, ftz, nan, xorsign_abs), _width(t), a, b
        )
    format_of(t)
    return extremum(t, a, b, is_min=is_min, ftz=ftz, nan=nan, xorsign_abs=xorsign_abs)


def min3(
    t: str,
    a: Operand,
    b: Operand,
    c: Operand,
    *,
    ftz: bool = False,
    nan: bool = False,
    abs: bool = False,
) -> Bits:
    """Three-input `min{.ftz}{.NaN}{.abs}.f32`."""
    x, y, z = (_magnitude(t, value) if abs else value for value in (a, b, c))
    return min(t, min(t, x, y, ftz=ftz, nan=nan), z, ftz=ftz, nan=nan)


def max3(
    t: str,
    a: Operand,
    b: Operand,
    c: Operand,
    *,
    ftz: bool = False,
    nan: bool = False,
    abs: bool = False,
) -> Bits:
    """Three-input `max{.ftz}{.NaN}{.abs}.f32`."""
    x, y, z = (_magnitude(t, value) if abs else value for value in (a, b, c))
    return max(t, max(t, x, y, ftz=ftz, nan=nan), z, ftz=ftz, nan=nan)


def abs(t: str, a: Operand, *, ftz: bool = False) -> Bits:
    """`abs`: clears the sign."""
    if t in PACKED:
        return packed(lambda x: abs(PACKED[t], x, ftz=ftz), _width(t), a)
    raw = _flushed(t, a, ftz)
    return _keep_nan(t, raw, _magnitude(t, raw))


def _keep_nan(t: str, raw: Bits, result: Bits) -> Bits:
    """A NaN operand of `abs` or `neg` becomes canonical; f64 keeps its sign and payload."""
    values = widen(t, raw)
    if not values.size or (top := values.max()) == top:
        return result
    nan = values != values
    quiet = raw[nan] | raw.dtype.type(1 << 51) if t == "f64" else format_of(t).nan
    result[nan] = quiet
    return result


def _magnitude(t: str, a: Operand) -> Bits:
    raw = bits(format_of(t).width, a)
    return raw & raw.dtype.type(format_of(t).sign - 1)


def _flushed(t: str, a: Operand, ftz: bool) -> Bits:
    raw = bits(format_of(t).width, a)
    return flush(t, raw) if ftz else raw


def neg(t: str, a: Operand, *, ftz: bool = False) -> Bits:
    """`neg`: flips the sign."""
    if t in PACKED:
        return packed(lambda x: neg(PACKED[t], x, ftz=ftz), _width(t), a)
    raw = _flushed(t, a, ftz)
    return _keep_nan(t, raw, raw ^ raw.dtype.type(format_of(t).sign))


def copysign(t: str, a: Operand, b: Operand) -> Bits:
    """`copysign`: the sign of a on the magnitude of b."""
    form = format_of(t)
    x = bits(form.width, a)
    return (x & x.dtype.type(form.sign)) | _magnitude(t, b)


def testp(op: str, t: str, a: Operand) -> Flags:
    """`testp`: what kind of number a is; zeros count as normal."""
    form = format_of(t)
    magnitude = _magnitude(t, a)
    infinity = magnitude.dtype.type(form.infinity)
    smallest = magnitude.dtype.type(1 << form.mantissa)
    if op == "finite":
        return magnitude < infinity
    if op == "infinite":
        result: Flags = magnitude == infinity
        return result
    if op == "number":
        return magnitude <= infinity
    if op == "notanumber":
        return magnitude > infinity
    if op == "normal":
        result = ((magnitude >= smallest) & (magnitude < infinity)) | (magnitude == 0)
        return result
    if op == "subnormal":
        result = (magnitude != 0) & (magnitude < smallest)
        return result
    raise NotImplementedError(f"testp.{op} does not exist")


def add_mixed(
    t: str,
    a: Operand,
    c: Operand,
    *,
    rounding: str = "rn",
    sat: bool = False,
    subtract: bool = False,
) -> Bits:
    """`add.f32.f16` / `sub.f32.bf16`: a widened to f32 first, which is exact."""
    x = unsigned(float16.load(t, a, False))
    return (sub if subtract else add)("f32", x, c, rounding=rounding, sat=sat)


def fma_mixed(
    t: str, a: Operand, b: Operand, c: Operand, *, rounding: str = "rn", sat: bool = False
) -> Bits:
    """`fma.f32.f16` / `fma.f32.bf16`: a and b widened to f32 first."""
    x, y = (unsigned(np.ascontiguousarray(float16.load(t, v, False))) for v in (a, b))
    return fma("f32", x, y, c, rounding=rounding, sat=sat)
