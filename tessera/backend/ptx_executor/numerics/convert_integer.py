"""Conversions between integers and floats.

Floats round to integral values and clamp to the destination's range. NaN gives 0, but
1 << (width - 1) where a 64-bit integer or an f64 takes part (PTX ISA, cvt, integer notes).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tessera.backend.ptx_executor.numerics.bits import (
    SIGNED,
    UNSIGNED,
    Bits,
    Operand,
    bits,
    integer_type,
    typed,
    unsigned,
)
from tessera.backend.ptx_executor.numerics.float64 import step_f64
from tessera.backend.ptx_executor.numerics.formats import FORMATS, finish, flush, format_of, widen
from tessera.backend.ptx_executor.numerics.rounding import (
    F64,
    check_mode,
    encode,
    make_odd,
    narrow,
    narrow_half,
    odd_f32,
    two_sum,
)
from tessera.ir.arrays import Floats

_ROUNDERS = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def from_float(dt: str, st: str, a: Operand, rounding: str, ftz: bool) -> Bits:
    """Bits of integer type `dt` (8-bit types in uint8)."""
    if rounding not in _ROUNDERS:
        raise NotImplementedError(f"cvt.{rounding}.{dt}.{st} does not exist")
    raw = bits(format_of(st).width, a)
    if ftz and st == "f32":
        raw = flush("f32", raw)
    values = _ROUNDERS[rounding](widen(st, raw))
    return _to_integer(dt, st, values)


def _to_integer(dt: str, st: str, values: Floats) -> Bits:
    width, is_signed = integer_type(dt)
    low = -(2.0 ** (width - 1)) if is_signed else 0.0
    limit = 2.0 ** (width - is_signed)
    # NumPy leaves out-of-range casts undefined; a NaN makes the first comparison false.
    if not values.size or (values.max() < limit and values.min() >= low):
        return _cast(values, width, is_signed)
    nan = values != values
    inside = (values >= low) & (values < limit)
    result = _cast(np.where(inside, values, values.dtype.type(0)), width, is_signed)
    dtype = UNSIGNED[width]
    result = np.where(values >= limit, dtype.type((1 << (width - is_signed)) - 1), result)
    smallest = 1 << (width - 1) if is_signed else 0
    result = np.where(values < low, dtype.type(smallest), result)
    odd_one = 1 << (width - 1) if width == 64 or st == "f64" else 0
    return np.where(nan, dtype.type(odd_one), result)


def _cast(values: Floats, width: int, is_signed: bool) -> Bits:
    """Integral values known to fit."""
    if is_signed:
        carrier = SIGNED[max(width, 32)]
        return unsigned(values.astype(carrier)).astype(UNSIGNED[width], copy=False)
    if width < 64:
        return values.astype(np.int64).astype(UNSIGNED[width])
    half = values.dtype.type(2.0**63)
    large = values >= half
    if not large.any():
        return values.astype(np.int64).view(np.uint64)
    small = np.where(large, values - half, values).astype(np.int64).view(np.uint64)
    return small + (large.astype(np.uint64) << np.uint64(63))


def to_float(dt: str, st: str, a: Operand, rounding: str) -> Bits:
    """Bits of float type `dt`."""
    check_mode(rounding)
    format_of(dt)
    value = typed(st, a)
    if rounding == "rn" and dt in ("f32", "f64"):
        return finish(dt, value.astype(np.float32 if dt == "f32" else np.float64))
    total, error = _exact_parts(value)
    if dt == "f64":
        return finish("f64", step_f64(total, error, rounding))
    exact = make_odd(total, error)
    if dt == "f32":
        return narrow(exact, rounding)
    if rounding == "rn":
        return narrow_half(dt, odd_f32(exact))
    return encode(FORMATS[dt], exact, rounding)


def _exact_parts(value: NDArray[np.integer]) -> tuple[F64, F64]:
    """Nearest float64 and the exact error."""
    if value.dtype.itemsize < 8:
        nearest = value.astype(np.float64)
        return nearest, np.zeros_like(nearest)
    shift = value.dtype.type(32)
    high = (value >> shift).astype(np.float64) * 2.0**32
    low = (value & value.dtype.type(0xFFFFFFFF)).astype(np.float64)
    return two_sum(high, low)
