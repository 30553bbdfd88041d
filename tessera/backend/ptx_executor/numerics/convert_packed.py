"""Packed conversions and the 8-, 6- and 4-bit formats.

A packed operand holds its first element in the low half. Conversions of `f32` pairs take the
upper element first, as PTX does. All narrow results are saturating (`.satfinite`); formats
without NaN turn it into their largest value.

Source: PTX ISA, alternate floating-point data formats, packed data types, cvt.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tessera.backend.ptx_executor.numerics.bits import Bits, Operand, bits, halves, join
from tessera.backend.ptx_executor.numerics.float16 import modify
from tessera.backend.ptx_executor.numerics.formats import FORMATS, FloatLayout, widen
from tessera.backend.ptx_executor.numerics.rounding import F64, encode, narrow_half
from tessera.ir.arrays import Floats

SMALL: dict[str, FloatLayout] = {
    form.name: form
    for form in (
        FloatLayout("e4m3", 8, 4, 3, 0x7F, 0x7E),
        FloatLayout("e5m2", 8, 5, 2, 0x7F),
        FloatLayout("e2m3", 6, 2, 3, 0x1F, 0x1F),
        FloatLayout("e3m2", 6, 3, 2, 0x1F, 0x1F),
        FloatLayout("e2m1", 4, 2, 1, 0x07, 0x07),
    )
}
_HALVES = {"f16x2": "f16", "bf16x2": "bf16"}
_SMALL_PAIRS = {f"{name}x2": name for name in (*SMALL, "ue8m0")}
PACKED = {**_HALVES, **_SMALL_PAIRS}


def cvt_packed(
    dt: str, st: str, a: Operand, b: Operand | None, rounding: str, satfinite: bool, relu: bool
) -> Bits:
    """`cvt` with a packed type on at least one side."""
    if st in _SMALL_PAIRS:
        return _from_small(dt, _SMALL_PAIRS[st], a, relu)
    high, low = _sources(dt, st, a, b)
    if dt in _HALVES:
        scalar = _HALVES[dt]
        parts = (_half(scalar, part, rounding, satfinite, relu) for part in (low, high))
        return join(*parts)
    if dt not in _SMALL_PAIRS:
        raise NotImplementedError(f"cvt from .{st} to .{dt} does not exist")
    name = _SMALL_PAIRS[dt]
    return _join_small(name, *(_small(name, part, rounding, relu) for part in (low, high)))


def _sources(dt: str, st: str, a: Operand, b: Operand | None) -> tuple[Floats, Floats]:
    """Upper and lower element as float32 values."""
    if st in _HALVES:
        low, high = halves(bits(32, a))
        return widen(_HALVES[st], high), widen(_HALVES[st], low)
    if st != "f32" or b is None:
        raise NotImplementedError(f"cvt from .{st} to .{dt} needs two .f32 or one packed source")
    return widen("f32", bits(32, a)), widen("f32", bits(32, b))


def _half(t: str, values: Floats, rounding: str, satfinite: bool, relu: bool) -> Bits:
    if rounding == "rn" and not satfinite:
        raw = narrow_half(t, values.view(np.uint32))
    else:
        raw = encode(FORMATS[t], values.astype(np.float64), rounding, satfinite=satfinite)
    return modify(t, raw, False, False, relu)


def _small(name: str, values: Floats, rounding: str, relu: bool) -> Bits:
    """One element of a small format, as uint8."""
    if name == "ue8m0":
        return _to_ue8m0(values.view(np.uint32), rounding)
    raw = values.view(np.uint32)
    # The upper 16 bits with a sticky last bit hold all that rounding to 4 bits needs.
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
    """The exponent of a power of two: towards zero or up; NaN is 0xff, the rest clamps."""
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
    table = half_table(name, _HALVES[dt])
    result = join(table.take(low), table.take(high))
    if not relu:
        return result
    return join(*(modify(_HALVES[dt], part, False, False, True) for part in halves(result)))


@lru_cache(maxsize=16)
def half_table(name: str, t: str) -> Bits:
    """The f16 or bf16 bits of every value of a small format."""
    raw = encode(FORMATS[t], decode_table(name))
    raw.flags.writeable = False
    return raw


@lru_cache(maxsize=8)
def decode_table(name: str) -> F64:
    """The value of each of the 256 bytes (high bits that the format lacks are ignored)."""
    codes = np.arange(256)
    if name == "ue8m0":
        values: NDArray[np.float64] = np.array([2.0 ** (code - 127) for code in codes.tolist()])
        values[255] = np.nan
        return values
    form = SMALL[name]
    codes &= (1 << form.width) - 1
    values = np.array([_decode(form, int(code)) for code in codes])
    return values


def _decode(form: FloatLayout, code: int) -> float:
    sign = -1.0 if code & form.sign else 1.0
    magnitude = code & (form.sign - 1)
    if form.finite is None and magnitude >= form.infinity:
        return sign * (float("inf") if magnitude == form.infinity else float("nan"))
    if magnitude > form.largest:
        return float("nan")
    exponent, fraction = magnitude >> form.mantissa, magnitude & ((1 << form.mantissa) - 1)
    if exponent:
        fraction |= 1 << form.mantissa
    return sign * fraction * 2.0 ** (max(exponent, 1) - form.bias - form.mantissa)
