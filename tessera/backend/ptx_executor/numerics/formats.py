"""The binary floating-point formats of PTX, and exact widening to formats of NumPy.

`f32` and `f64` are computed in themselves, `f16` and `bf16` in f32 or f64. Every arithmetic
result that is NaN takes the canonical pattern of its format (0x7fffffff for f32, 0x7fff for f16
and bf16), so neither the host's NaN payloads nor their signs ever show.

Source: PTX ISA, fundamental and alternate floating-point data formats.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tessera.backend.ptx_executor.numerics.bits import UNSIGNED, Bits, unsigned
from tessera.ir.arrays import Floats


@dataclass(frozen=True, slots=True)
class FloatLayout:
    """A sign, `exponent` bits and `mantissa` bits in `width` bits.

    The top exponent holds infinity and NaNs as in IEEE 754. In a format without infinity, `finite`
    holds the bits of the largest finite value.
    """

    name: str
    width: int
    exponent: int
    mantissa: int
    nan: int
    finite: int | None = None

    @property
    def bias(self) -> int:
        """The bias of the exponent."""
        return (1 << (self.exponent - 1)) - 1

    @property
    def one(self) -> int:
        """The bits of 1.0."""
        return self.bias << self.mantissa

    @property
    def infinity(self) -> int:
        """The bits of +infinity, or of the largest value of a format without it."""
        if self.finite is not None:
            return self.finite
        return ((1 << self.exponent) - 1) << self.mantissa

    @property
    def largest(self) -> int:
        """The bits of the largest finite value."""
        return self.infinity - 1 if self.finite is None else self.finite

    @property
    def sign(self) -> int:
        """The sign bit."""
        return 1 << (self.width - 1)


FORMATS: dict[str, FloatLayout] = {
    form.name: form
    for form in (
        FloatLayout("f16", 16, 5, 10, 0x7FFF),
        FloatLayout("bf16", 16, 8, 7, 0x7FFF),
        FloatLayout("f32", 32, 8, 23, 0x7FFFFFFF),
        FloatLayout("f64", 64, 11, 52, 0x7FFFFFFFFFFFFFFF),
    )
}
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
FLOAT_DTYPES: dict[int, np.dtype[np.floating]] = {
    32: np.dtype(np.float32),
    64: np.dtype(np.float64),
}

_U32_1 = np.uint32(1)
_U32_13 = np.uint32(13)
_U32_16 = np.uint32(16)


def format_of(t: str) -> FloatLayout:
    """The format that a PTX type names."""
    try:
        return FORMATS[t]
    except KeyError:
        raise NotImplementedError(f"floating-point type .{t} is not supported here") from None


def widen(t: str, raw: Bits) -> Floats:
    """Values of the bits of an f16, bf16, f32 or f64: exact, as float32 (f64: float64)."""
    if t == "f32" or t == "f64":
        return raw.view(FLOAT_DTYPES[raw.dtype.itemsize * 8])
    if t == "bf16":
        wide = raw.astype(np.uint32)
        wide <<= _U32_16
        return wide.view(np.float32)
    if t == "f16":
        return _widen_f16(raw)
    raise NotImplementedError(f"values of .{t} cannot be widened")


def _widen_f16(raw: Bits) -> NDArray[np.float32]:
    """Shift the fields into place; one multiplication fixes the exponent, also of subnormals."""
    wide = raw.view(np.int16).astype(np.int32).view(np.uint32)
    wide <<= _U32_13
    wide &= np.uint32(0x8FFFE000)
    values = wide.view(np.float32)
    values *= np.float32(2.0**112)
    if values.size and (values.max() >= 65536 or values.min() <= -65536):
        special = np.abs(values) >= 65536
        wide[special] |= np.uint32(0x7F800000)
    return values


@lru_cache(maxsize=8)
def decode_table(name: str) -> NDArray[np.float64]:
    """The value of each of the 256 bytes (high bits outside the format are ignored)."""
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


def flush(t: str, raw: Bits) -> Bits:
    """Subnormals replaced by zeros of their sign; `raw` itself if there are none."""
    form = format_of(t)
    dtype = UNSIGNED[form.width]
    # Shifting the sign out and subtracting one makes zero the largest value.
    magnitude = raw << dtype.type(1)
    magnitude -= dtype.type(1)
    limit = dtype.type((1 << (form.mantissa + 1)) - 1)
    if not magnitude.size or magnitude.min() >= limit:
        return raw
    flushed = raw.copy()
    flushed[magnitude < limit] &= dtype.type(form.sign)
    return flushed


def finish(t: str, values: Floats) -> Bits:
    """The bits of fresh f32 or f64 results, NaNs made canonical (in place)."""
    raw = unsigned(values)
    if values.size:
        top = values.max()
        if top != top:
            raw[values != values] = FORMATS[t].nan
    return raw


def narrow_half(t: str, raw: Bits) -> Bits:
    """f32 bits to f16 or bf16 bits, to nearest even; NaN becomes canonical."""
    return _narrow_f16(raw) if t == "f16" else _narrow_bf16(raw)


def _narrow_f16(raw: Bits) -> Bits:
    magnitude = raw & np.uint32(0x7FFFFFFF)
    rounded = magnitude >> _U32_13
    rounded &= _U32_1
    rounded += magnitude
    rounded -= np.uint32((112 << 23) - 0xFFF)
    rounded >>= _U32_13
    small = magnitude < np.uint32(0x38800000)
    if small.any():
        # Adding 0.5 rounds to multiples of 2^-24, the unit of f16's subnormals.
        shifted = magnitude[small].view(np.float32) + np.float32(0.5)
        rounded[small] = shifted.view(np.uint32) - np.uint32(0x3F000000)
    if magnitude.size and magnitude.max() >= 0x47800000:
        rounded[magnitude >= 0x47800000] = 0x7C00
    sign = raw ^ magnitude
    sign >>= _U32_16
    rounded |= sign
    if magnitude.size and magnitude.max() > 0x7F800000:
        rounded[magnitude > 0x7F800000] = 0x7FFF
    return rounded.astype(np.uint16)


def _narrow_bf16(raw: Bits) -> Bits:
    rounded = raw >> _U32_16
    rounded &= _U32_1
    rounded += raw
    rounded += np.uint32(0x7FFF)
    rounded >>= _U32_16
    result = rounded.astype(np.uint16)
    values = raw.view(np.float32)
    if values.size:
        top = values.max()
        if top != top:
            result[values != values] = 0x7FFF
    return result
