"""`cvt` of every pair of types.

In and out: register bits. A result has the width of its type; 8-bit types are extended to 16.

- Floats round to integral values and clamp to the destination's range. NaN gives 0, but
  1 << (width - 1) where a 64-bit integer or an f64 takes part (PTX ISA, cvt, integer notes).
- A packed operand holds its first element in the low half. Conversions of `f32` pairs take the
  upper element first, as PTX does. All results of 8, 6 and 4 bits are saturating (`.satfinite`);
  formats without NaN turn it into their largest value.

Source: PTX ISA, cvt, alternate floating-point data formats, packed data types.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tessera.backend.ptx_executor.numerics.bits import (
    INTEGER_TYPES,
    SIGNED,
    UNSIGNED,
    Bits,
    Operand,
    bits,
    halves,
    integer_type,
    join,
    signed,
    typed,
    unsigned,
)
from tessera.backend.ptx_executor.numerics.float16 import modify
from tessera.backend.ptx_executor.numerics.float32 import saturate
from tessera.backend.ptx_executor.numerics.float64 import step_f64
from tessera.backend.ptx_executor.numerics.formats import (
    FORMATS,
    SMALL,
    decode_table,
    finish,
    flush,
    format_of,
    narrow_half,
    widen,
)
from tessera.backend.ptx_executor.numerics.rounding import (
    F64,
    check_mode,
    encode,
    make_odd,
    narrow,
    odd_f32,
    two_sum,
)
from tessera.ir.arrays import Floats

_TO_INTEGRAL = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_HALVES = {"f16x2": "f16", "bf16x2": "bf16"}
_SMALL_PAIRS = {f"{name}x2": name for name in (*SMALL, "ue8m0")}
_PACKED = {**_HALVES, **_SMALL_PAIRS}


def cvt(
    dt: str,
    st: str,
    a: Operand,
    *,
    b: Operand | None = None,
    rounding: str | None = None,
    ftz: bool = False,
    sat: bool = False,
    satfinite: bool = False,
    relu: bool = False,
) -> Bits:
    """`cvt` of every pair of types; for packed results `a` is the upper and `b` the lower half."""
    if dt in _PACKED or st in _PACKED:
        return _cvt_packed(dt, st, a, b, rounding or "rn", satfinite, relu)
    if dt == "tf32":
        return to_tf32(a, rounding or "rna", satfinite, relu)
    if dt in INTEGER_TYPES and st in INTEGER_TYPES:
        return _widened(dt, _integer_to_integer(dt, st, a, sat))
    if dt in INTEGER_TYPES:
        return _widened(dt, _from_float(dt, st, a, rounding or "rzi", ftz))
    if st in INTEGER_TYPES:
        raw = _to_float(dt, st, a, rounding or "rn")
        return _clamped(dt, raw, False, sat, False)
    return _float_to_float(dt, st, a, rounding, ftz, sat, satfinite, relu)


def _widened(dt: str, raw: Bits) -> Bits:
    """Extend 8-bit results to 16 bits, by the signedness of their type."""
    if raw.dtype.itemsize > 1:
        return raw
    return unsigned(signed(raw).astype(np.int16)) if dt[0] == "s" else raw.astype(np.uint16)


def _integer_to_integer(dt: str, st: str, a: Operand, sat: bool) -> Bits:
    width, to_signed = integer_type(dt)
    _, from_signed = integer_type(st)
    value = typed(st, a)
    if sat:
        low = -(1 << (width - 1)) if to_signed else 0
        high = (1 << (width - to_signed)) - 1
        info = np.iinfo(value.dtype)
        value = np.clip(value, max(low, int(info.min)), min(high, int(info.max)))
    target = (SIGNED if from_signed else UNSIGNED)[width]
    return unsigned(value.astype(target))


def _float_to_float(
    dt: str,
    st: str,
    a: Operand,
    rounding: str | None,
    ftz: bool,
    sat: bool,
    satfinite: bool,
    relu: bool,
) -> Bits:
    format_of(dt)
    raw = bits(format_of(st).width, a)
    if ftz and st == "f32":
        raw = finish("f32", flush("f32", raw).view(np.float32).copy())
    if rounding in _TO_INTEGRAL:
        values = _TO_INTEGRAL[rounding](widen(st, raw))
        rounding = "rn"
    else:
        values = widen(st, raw)
    result = _encode(dt, values, rounding or "rn", satfinite)
    if dt == st and dt in ("f32", "f64") and rounding is None and not ftz and not sat:
        return raw.copy()
    if "f64" in (dt, st) or ((dt, st) == ("f32", "bf16") and not ftz):
        result = _with_payloads(dt, st, raw, result)
    return _clamped(dt, result, ftz, sat, relu)


def _with_payloads(dt: str, st: str, raw: Bits, result: Bits) -> Bits:
    """NaNs keep sign and upper payload where f64 takes part (quieted), and from bf16 to f32."""
    values = widen(st, raw)
    if not values.size or (top := values.max()) == top:
        return result
    nan = values != values
    source, target = FORMATS[st], FORMATS[dt]
    lanes = raw[nan].astype(np.uint64)
    shift = target.mantissa - source.mantissa
    fraction = lanes & np.uint64((1 << source.mantissa) - 1)
    fraction = fraction << np.uint64(shift) if shift >= 0 else fraction >> np.uint64(-shift)
    if (dt, st) != ("f32", "bf16"):
        fraction |= np.uint64(1 << (target.mantissa - 1))
    sign = (lanes >> np.uint64(source.width - 1)) << np.uint64(target.width - 1)
    result[nan] = (sign | np.uint64(target.infinity) | fraction).astype(result.dtype)
    return result


def _encode(dt: str, values: Floats, rounding: str, satfinite: bool) -> Bits:
    """The bits of float32 or float64 values in format `dt`."""
    if dt == "f64":
        return finish("f64", values.astype(np.float64))
    if dt == "f32" and values.dtype == np.float32:
        return finish("f32", values.copy())
    if dt == "f32":
        return narrow(values, rounding)
    if rounding == "rn" and not satfinite:
        raw = odd_f32(values) if values.dtype == np.float64 else unsigned(values)
        return narrow_half(dt, raw)
    return encode(FORMATS[dt], values.astype(np.float64), rounding, satfinite=satfinite)


def _clamped(dt: str, raw: Bits, ftz: bool, sat: bool, relu: bool) -> Bits:
    """Apply `.ftz` (f32 results), `.sat` and `.relu`."""
    if dt in ("f16", "bf16"):
        return modify(dt, raw, False, sat, relu)
    if ftz and dt == "f32":
        raw = flush("f32", raw)
    if not sat:
        return raw
    if dt == "f32":
        return saturate(raw)
    values = raw.view(np.float64)
    return (np.minimum(np.fmax(values, 0.0), 1.0) + 0.0).view(np.uint64)


def to_tf32(a: Operand, rounding: str, satfinite: bool = False, relu: bool = False) -> Bits:
    """f32 with 10 bits of mantissa, in an f32 register whose low 13 bits are zero."""
    raw = bits(32, a)
    cut = np.uint32(0x1FFF)
    if rounding == "rna":
        rounded: Bits = raw + np.uint32(0x1000)
    elif rounding == "rn":
        rounded = raw + np.uint32(0xFFF) + ((raw >> np.uint32(13)) & np.uint32(1))
    elif rounding == "rz":
        rounded = raw
    else:
        raise NotImplementedError(f"cvt.{rounding}.tf32.f32 does not exist")
    rounded = rounded & ~cut
    magnitude = raw & np.uint32(0x7FFFFFFF)
    sign = raw & np.uint32(0x80000000)
    if satfinite:
        largest = np.uint32(0x7F7FE000)
        rounded = np.minimum(rounded & np.uint32(0x7FFFFFFF), largest) | sign
    if relu:
        rounded = np.where(sign != 0, np.uint32(0), rounded)
    # `.rna` only truncates a NaN; the other modes make it canonical. Recorded on an H200.
    nan = raw & ~cut if rounding == "rna" else np.uint32(0x7FFFE000)
    if satfinite and rounding == "rna":
        nan = nan - np.uint32(0x2000)
    return np.where(magnitude > 0x7F800000, nan, rounded)


def cvt_pack(dt: str, st: str, a: Operand, b: Operand, c: Operand | None = None) -> Bits:
    """`cvt.pack.sat`: clamp a and b to `dt`, pack a above b, and c above both."""
    if st != "s32" or dt[0] not in "us" or not dt[1:].isdigit():
        raise NotImplementedError(f"cvt.pack.sat.{dt}.{st} does not exist")
    size, is_signed = int(dt[1:]), dt[0] == "s"
    low, high = (-(1 << (size - 1)), (1 << (size - 1)) - 1) if is_signed else (0, (1 << size) - 1)
    mask = np.uint32((1 << size) - 1)
    upper, lower = (
        unsigned(np.clip(signed(bits(32, value)), low, high)) & mask for value in (a, b)
    )
    pair = upper << np.uint32(size) | lower
    if c is None:
        return pair
    return bits(32, c) << np.uint32(2 * size) | pair


# --- integers and floats -------------------------------------------------------------------


def _from_float(dt: str, st: str, a: Operand, rounding: str, ftz: bool) -> Bits:
    """Bits of integer type `dt` (8-bit types in uint8)."""
    if rounding not in _TO_INTEGRAL:
        raise NotImplementedError(f"cvt.{rounding}.{dt}.{st} does not exist")
    raw = bits(format_of(st).width, a)
    if ftz and st == "f32":
        raw = flush("f32", raw)
    values = _TO_INTEGRAL[rounding](widen(st, raw))
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
    """Cast integral values that are known to fit."""
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


def _to_float(dt: str, st: str, a: Operand, rounding: str) -> Bits:
    """Bits of float type `dt`."""
    check_mode(rounding)
    format_of(dt)
    value = typed(st, a)
    if rounding == "rn" and dt in ("f32", "f64"):
        return finish(dt, value.astype(np.float32 if dt == "f32" else np.float64))
    total, error = _exact_parts(value)
    if dt == "f64":
        return finish("f64", step_f64(total, error, rounding))
    return _encode(dt, make_odd(total, error), rounding, False)


def _exact_parts(value: NDArray[np.integer]) -> tuple[F64, F64]:
    """The nearest float64, and its exact error."""
    if value.dtype.itemsize < 8:
        nearest = value.astype(np.float64)
        return nearest, np.zeros_like(nearest)
    shift = value.dtype.type(32)
    high = (value >> shift).astype(np.float64) * 2.0**32
    low = (value & value.dtype.type(0xFFFFFFFF)).astype(np.float64)
    return two_sum(high, low)


# --- packed and small types ----------------------------------------------------------------


def _cvt_packed(
    dt: str, st: str, a: Operand, b: Operand | None, rounding: str, satfinite: bool, relu: bool
) -> Bits:
    """`cvt` with a packed type on at least one side."""
    if st in _SMALL_PAIRS:
        return _from_small(dt, _SMALL_PAIRS[st], a, relu)
    high, low = _sources(dt, st, a, b)
    if dt in _HALVES:
        scalar = _HALVES[dt]
        parts = (_encode(scalar, part, rounding, satfinite) for part in (low, high))
        return join(*(modify(scalar, raw, False, False, relu) for raw in parts))
    if dt not in _SMALL_PAIRS:
        raise NotImplementedError(f"cvt from .{st} to .{dt} does not exist")
    name = _SMALL_PAIRS[dt]
    return _join_small(name, *(_small(name, part, rounding, relu) for part in (low, high)))


def _sources(dt: str, st: str, a: Operand, b: Operand | None) -> tuple[Floats, Floats]:
    """The upper and lower elements as float32 values."""
    if st in _HALVES:
        low, high = halves(bits(32, a))
        return widen(_HALVES[st], high), widen(_HALVES[st], low)
    if st != "f32" or b is None:
        raise NotImplementedError(f"cvt from .{st} to .{dt} needs two .f32 or one packed source")
    return widen("f32", bits(32, a)), widen("f32", bits(32, b))


def _small(name: str, values: Floats, rounding: str, relu: bool) -> Bits:
    """One element of a small format, as uint8."""
    if name == "ue8m0":
        return _to_ue8m0(values.view(np.uint32), rounding)
    raw = values.view(np.uint32)
    # The upper 16 bits with a sticky last bit are enough to round to 4 bits.
    odd = raw >> np.uint32(16)
    odd |= (raw & np.uint32(0xFFFF)) != 0
    return _narrowing_table(name, rounding, relu).take(odd)


@lru_cache(maxsize=32)
def _narrowing_table(name: str, rounding: str, relu: bool) -> Bits:
    """A small format's bits for each of the 65536 values of bf16."""
    values = widen("bf16", np.arange(65536, dtype=np.uint16))
    table = encode(SMALL[name], values.astype(np.float64), rounding, satfinite=True)
    if relu:
        table[np.signbit(values) & (values == values)] = 0
    table.flags.writeable = False
    return table


def _to_ue8m0(raw: Bits, rounding: str) -> Bits:
    """The exponent as a power of two, rounded towards zero or up; NaN gives 0xff, others clamp."""
    magnitude = raw & np.uint32(0x7FFFFFFF)
    exponent = magnitude >> np.uint32(23)
    rest = magnitude & np.uint32(0x7FFFFF)
    if rounding == "rp":
        # 2^-127, the smallest value, is the f32 subnormal 0x400000.
        exponent = exponent + np.where(exponent == 0, rest > 0x400000, rest != 0)
    elif rounding != "rz":
        raise NotImplementedError(f"cvt.{rounding} to .ue8m0x2 does not exist")
    exponent = np.minimum(exponent, 0xFE)
    return np.where(magnitude > 0x7F800000, 0xFF, exponent).astype(np.uint8)


def _join_small(name: str, low: Bits, high: Bits) -> Bits:
    """Two elements in 16 bits; the 4-bit format packs them into the low byte."""
    if name == "e2m1":
        return (low | high << np.uint8(4)).astype(np.uint16)
    return join(low, high)


def _from_small(dt: str, name: str, a: Operand, relu: bool) -> Bits:
    if dt not in _HALVES:
        raise NotImplementedError(f"cvt from .{name}x2 to .{dt} does not exist")
    raw = bits(16, a)
    low: Bits
    high: Bits
    if name == "e2m1":
        low, high = raw & np.uint16(15), (raw >> np.uint16(4)) & np.uint16(15)
    else:
        low, high = halves(raw)
    table = _half_table(name, _HALVES[dt])
    result = join(table.take(low), table.take(high))
    if not relu:
        return result
    return join(*(modify(_HALVES[dt], part, False, False, True) for part in halves(result)))


@lru_cache(maxsize=16)
def _half_table(name: str, t: str) -> Bits:
    """The f16 or bf16 bits of every value of a small format."""
    raw = encode(FORMATS[t], decode_table(name))
    raw.flags.writeable = False
    return raw
