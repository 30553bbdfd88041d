"""Entry points of floating-point arithmetic, which dispatch by PTX type to one format.

Types: f32, f64, f16, bf16 and the packed f16x2, bf16x2, f32x2. All results are correctly rounded
(approximations are in `approx`); a NaN result is canonical.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from tessera.backend.ptx_executor.numerics import float16, float32, float64
from tessera.backend.ptx_executor.numerics.bits import UNSIGNED, Bits, Operand, bits, packed
from tessera.backend.ptx_executor.numerics.formats import (
    FORMATS,
    finish,
    flush,
    format_of,
    narrow_half,
    widen,
)
from tessera.ir.arrays import Flags

PACKED = {"f16x2": "f16", "bf16x2": "bf16", "f32x2": "f32"}


def _halves(function: Callable[..., Bits], t: str, operands: tuple[Operand, ...]) -> Bits:
    """Apply a scalar function to both halves of a packed type; it takes the type first."""
    width = 64 if t == "f32x2" else 32
    return packed(lambda *lanes: function(PACKED[t], *lanes), width, *operands)


def _nearest_only(t: str, rounding: str) -> None:
    if rounding != "rn":
        raise NotImplementedError(f".{t} arithmetic rounds by .rn only, not .{rounding}")


# --- arithmetic ----------------------------------------------------------------------------


def _arithmetic(op: str, in_f64: Callable[[Operand, Operand, str], Bits]) -> Callable[..., Bits]:
    def apply(
        t: str,
        a: Operand,
        b: Operand,
        *,
        rounding: str = "rn",
        ftz: bool = False,
        sat: bool = False,
    ) -> Bits:
        if t == "f32":
            return float32.arithmetic(op, a, b, rounding, ftz, sat)
        if t in PACKED:
            return _halves(partial(apply, rounding=rounding, ftz=ftz, sat=sat), t, (a, b))
        if t == "f64":
            return in_f64(a, b, rounding)
        _nearest_only(t, rounding)
        return float16.arithmetic(op, t, a, b, ftz, sat)

    return apply


# `add`, `sub` and `mul` take the type, two operands, and the modifiers by keyword.
add = _arithmetic("add", float64.add)
sub = _arithmetic("sub", float64.sub)
mul = _arithmetic("mul", float64.mul)


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
        on_each = partial(fma, rounding=rounding, ftz=ftz, sat=sat, relu=relu)
        return _halves(on_each, t, (a, b, c))
    if t == "f64":
        return float64.fma(a, b, c, rounding)
    _nearest_only(t, rounding)
    return float16.fma(t, a, b, c, ftz, sat, relu)


def _rounded(in_f32: Callable[..., Bits], in_f64: Callable[..., Bits]) -> Callable[..., Bits]:
    """An operation that only f32 and f64 have."""

    def apply(t: str, *operands: Operand, rounding: str = "rn", ftz: bool = False) -> Bits:
        if t == "f64":
            return in_f64(*operands, rounding)
        if t != "f32":
            raise NotImplementedError(f"PTX has no exactly rounded operation of this kind for .{t}")
        return in_f32(*operands, rounding, ftz)

    return apply


# `div`, `rcp` and `sqrt` take the type, operands, and `rounding` and `ftz` by keyword.
div = _rounded(float32.div, float64.div)
rcp = _rounded(float32.rcp, float64.rcp)
sqrt = _rounded(float32.sqrt, float64.sqrt)


# --- min and max ---------------------------------------------------------------------------


def _extreme(is_min: bool) -> Callable[..., Bits]:
    """`min` or `max` of two or three operands.

    A NaN operand is ignored unless `.NaN` is set, and -0.0 is below +0.0. With `.xorsign.abs`,
    magnitudes are compared and the sign of the result is the exclusive or of both signs. With
    `.abs` (of three operands) the sign is dropped.
    """

    def apply(
        t: str,
        *operands: Operand,
        ftz: bool = False,
        nan: bool = False,
        xorsign_abs: bool = False,
        abs: bool = False,
    ) -> Bits:
        if t in PACKED:
            on_each = partial(apply, ftz=ftz, nan=nan, xorsign_abs=xorsign_abs, abs=abs)
            return _halves(on_each, t, operands)
        form = format_of(t)
        first, *others = (_magnitude(t, a) if abs else bits(form.width, a) for a in operands)
        for other in others:
            x, y = (flush(t, first), flush(t, other)) if ftz else (first, other)
            if not xorsign_abs:
                first = _pick(t, x, y, is_min, nan)
                continue
            sign = x.dtype.type(form.sign)
            result = _pick(t, x & ~sign, y & ~sign, is_min, nan)
            first = np.where(result == form.nan, result, result | ((x ^ y) & sign))
        return first

    return apply


min = _extreme(True)
max = _extreme(False)


def _pick(t: str, x: Bits, y: Bits, is_min: bool, nan: bool) -> Bits:
    left, right = widen(t, x), widen(t, y)
    chosen = (np.minimum if is_min else np.maximum)(left, right)
    if chosen.size and (top := chosen.max()) != top:
        return _with_nans(t, x, y, is_min, nan)
    wide = finish("f64" if t == "f64" else "f32", chosen)
    result = wide if t in ("f32", "f64") else narrow_half(t, wide)
    equal = left == right
    if equal.any():
        # Equal values have equal bits, except zeros, where the sign decides.
        zeros = x | y if is_min else x & y
        result = np.where(equal, zeros, result)
    return result


def _with_nans(t: str, x: Bits, y: Bits, is_min: bool, nan: bool) -> Bits:
    """`min` or `max` where some operands are NaN: the other operand replaces a NaN."""
    form = FORMATS[t]
    dtype = UNSIGNED[form.width]
    x_nan, y_nan = (_magnitude(t, value) > form.infinity for value in (x, y))
    zero = dtype.type(0)
    result = _pick(t, np.where(x_nan, zero, x), np.where(y_nan, zero, y), is_min, nan)
    result = np.where(x_nan, y, np.where(y_nan, x, result))
    lost = (x_nan | y_nan) if nan else (x_nan & y_nan)
    # f64 keeps the payload of the second operand.
    quiet = y | dtype.type(1 << 51) if t == "f64" else dtype.type(form.nan)
    return np.where(lost, quiet, result)


# --- signs and classes ---------------------------------------------------------------------


def _magnitude(t: str, a: Operand) -> Bits:
    raw = bits(format_of(t).width, a)
    return raw & raw.dtype.type(format_of(t).sign - 1)


def _with_sign(change: Callable[[str, Bits], Bits]) -> Callable[..., Bits]:
    """`abs` or `neg`. A NaN operand becomes canonical; f64 keeps its sign and payload."""

    def apply(t: str, a: Operand, *, ftz: bool = False) -> Bits:
        if t in PACKED:
            return _halves(partial(apply, ftz=ftz), t, (a,))
        raw = bits(format_of(t).width, a)
        raw = flush(t, raw) if ftz else raw
        result, values = change(t, raw), widen(t, raw)
        if not values.size or (top := values.max()) == top:
            return result
        nan = values != values
        result[nan] = raw[nan] | raw.dtype.type(1 << 51) if t == "f64" else format_of(t).nan
        return result

    return apply


abs = _with_sign(_magnitude)
neg = _with_sign(lambda t, raw: raw ^ raw.dtype.type(format_of(t).sign))


def copysign(t: str, a: Operand, b: Operand) -> Bits:
    """`copysign`: the sign of a on the magnitude of b."""
    form = format_of(t)
    x = bits(form.width, a)
    return (x & x.dtype.type(form.sign)) | _magnitude(t, b)


# Tests of a magnitude against infinity and the smallest normal number; zeros count as normal.
_CLASSES: dict[str, Callable[[Bits, np.integer, np.integer], Flags]] = {
    "finite": lambda size, infinity, _: size < infinity,
    "infinite": lambda size, infinity, _: np.equal(size, infinity),
    "number": lambda size, infinity, _: size <= infinity,
    "notanumber": lambda size, infinity, _: size > infinity,
    "normal": lambda size, infinity, least: ((size >= least) & (size < infinity)) | (size == 0),
    "subnormal": lambda size, _, least: (size != 0) & (size < least),
}


def testp(op: str, t: str, a: Operand) -> Flags:
    """`testp`: whether a is a number of the class `op`."""
    if op not in _CLASSES:
        raise NotImplementedError(f"testp.{op} does not exist")
    size, form = _magnitude(t, a), format_of(t)
    kind = size.dtype.type
    return _CLASSES[op](size, kind(form.infinity), kind(1 << form.mantissa))
