"""`min` and `max` of floats: NaN loses unless `.NaN` asks for it, and -0.0 is below +0.0.

In and out: bits of one scalar format. With `.xorsign.abs` the magnitudes compete and the result's
sign is the exclusive or of both.
"""

from __future__ import annotations

import numpy as np

from tessera.backend.ptx_executor.numerics.bits import UNSIGNED, Bits, Operand, bits
from tessera.backend.ptx_executor.numerics.formats import FORMATS, finish, flush, widen
from tessera.backend.ptx_executor.numerics.rounding import narrow_half


def extremum(
    t: str,
    a: Operand,
    b: Operand,
    *,
    is_min: bool,
    ftz: bool = False,
    nan: bool = False,
    xorsign_abs: bool = False,
) -> Bits:
    """The smaller or larger of two values of format `t`."""
    form = FORMATS[t]
    x, y = bits(form.width, a), bits(form.width, b)
    if ftz:
        x, y = flush(t, x), flush(t, y)
    if not xorsign_abs:
        return _pick(t, x, y, is_min, nan)
    sign = x.dtype.type(form.sign)
    result = _pick(t, x & ~sign, y & ~sign, is_min, nan)
    return np.where(result == form.nan, result, result | ((x ^ y) & sign))


def _pick(t: str, x: Bits, y: Bits, is_min: bool, nan: bool) -> Bits:
    left, right = widen(t, x), widen(t, y)
    chosen = (np.minimum if is_min else np.maximum)(left, right)
    if chosen.size and (top := chosen.max()) != top:
        return _with_nans(t, x, y, is_min, nan)
    wide = finish("f64" if t == "f64" else "f32", chosen)
    result = wide if t in ("f32", "f64") else narrow_half(t, wide)
    equal = left == right
    if equal.any():
        # Equal values have equal bits, but for zeros, where the sign decides.
        zeros = x | y if is_min else x & y
        result = np.where(equal, zeros, result)
    return result


def _with_nans(t: str, x: Bits, y: Bits, is_min: bool, nan: bool) -> Bits:
    """The same where some operands are NaN: each NaN gives way to the other operand."""
    form = FORMATS[t]
    dtype = UNSIGNED[form.width]
    magnitude = dtype.type(form.sign - 1)
    x_nan = (x & magnitude) > form.infinity
    y_nan = (y & magnitude) > form.infinity
    result = _pick(
        t, np.where(x_nan, dtype.type(0), x), np.where(y_nan, dtype.type(0), y), is_min, nan
    )
    result = np.where(x_nan, y, np.where(y_nan, x, result))
    lost = (x_nan | y_nan) if nan else (x_nan & y_nan)
    # f64 keeps the payload of the second operand.
    quiet = y | dtype.type(1 << 51) if t == "f64" else dtype.type(form.nan)
    return np.where(lost, quiet, result)
