"""`cvt` between scalars: entry point, integers to integers, floats to floats.

In and out: register bits. A result has the width of its type (8-bit types are extended to 16);
`extend` fits it to a wider destination register. Conversions with integers on one side are in
`convert_integer`, the 8-, 6- and 4-bit formats and all packed results in `convert_packed`.

Source: PTX ISA, cvt.
"""

from __future__ import annotations

import numpy as np

from tessera.backend.ptx_executor.numerics import convert_integer, convert_packed
from tessera.backend.ptx_executor.numerics.bits import (
    INTEGER_TYPES,
    SIGNED,
    UNSIGNED,
    Bits,
    Operand,
    bits,
    integer_type,
    signed,
    typed,
    unsigned,
)
from tessera.backend.ptx_executor.numerics.float16 import modify
from tessera.backend.ptx_executor.numerics.float32 import saturate
from tessera.backend.ptx_executor.numerics.formats import FORMATS, finish, flush, format_of, widen
from tessera.backend.ptx_executor.numerics.rounding import F64, encode, narrow, narrow_half, odd_f32

_TO_INTEGRAL = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


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
    rbits: Operand | None = None,
    scale: Operand | None = None,
) -> Bits:
    """`cvt` of every pair of types; for packed results `a` is the upper and `b` the lower half."""
    if rbits is not None or scale is not None or rounding == "rs":
        raise NotImplementedError(f"stochastic or scaled cvt to .{dt} is not supported")
    if dt in convert_packed.PACKED or st in convert_packed.PACKED:
        return convert_packed.cvt_packed(dt, st, a, b, rounding or "rn", satfinite, relu)
    if dt == "tf32":
        return to_tf32(a, rounding or "rna", satfinite, relu)
    if dt in INTEGER_TYPES and st in INTEGER_TYPES:
        return _widened(dt, _integer_to_integer(dt, st, a, sat))
    if dt in INTEGER_TYPES:
        return _widened(dt, convert_integer.from_float(dt, st, a, rounding or "rzi", ftz))
    if st in INTEGER_TYPES:
        raw = convert_integer.to_float(dt, st, a, rounding or "rn")
        return _clamped(dt, raw, False, sat, False)
    return _float_to_float(dt, st, a, rounding, ftz, sat, satfinite, relu)


def _widened(dt: str, raw: Bits) -> Bits:
    """8-bit results travel in 16 bits."""
    return extend(dt, raw, 16) if raw.dtype.itemsize == 1 else raw


def extend(dt: str, raw: Operand, width: int) -> Bits:
    """Bits of integer or untyped type `dt` sign- or zero-extended (or cut) to `width` bits."""
    if dt not in INTEGER_TYPES:
        return bits(width, raw)
    own, is_signed = integer_type(dt)
    value = bits(own, raw)
    if own == width:
        return value
    if is_signed:
        return unsigned(signed(value).astype(SIGNED[width]))
    return value.astype(UNSIGNED[width])


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


def _encode(dt: str, values: F64, rounding: str, satfinite: bool) -> Bits:
    """float32 or float64 values in format `dt`."""
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
    # `.rna` only cuts a NaN, the other modes make it canonical; recorded on an H200.
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
