"""Scalars of every `DataType` between text and bits, exactly.

Integers are decimal or hexadecimal; untyped bits print as hexadecimal. A float is a decimal
number rounded to nearest, ties to even, straight from its digits (never through a wider float,
which would round twice), or `inf`, `nan`, or its exact bits as `0x` and two digits per byte.
Invariant: `scalar_bits(kind, scalar_text(kind, bits)) == bits` for all bits of all kinds.

Source: IEEE 754; OCP 8-bit floating point (E4M3 has no infinity and one NaN per sign).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from tessera.ir.program.data_type import DataType

_INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_LONGEST_NUMBER = 400


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """The layout of sign, exponent and fraction. Without infinity, only all ones is NaN."""

    exponent_bits: int
    fraction_bits: int
    has_infinity: bool = True

    @property
    def bias(self) -> int:
        """The number added to an exponent."""
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def bits(self) -> int:
        """Width in bits."""
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def infinity(self) -> int:
        """The first pattern above every finite pattern (a NaN if there is no infinity)."""
        top = ((1 << self.exponent_bits) - 1) << self.fraction_bits
        return top if self.has_infinity else top | ((1 << self.fraction_bits) - 1)

    @property
    def nan(self) -> int:
        """The quiet NaN that is printed as `nan`."""
        quiet = 1 << (self.fraction_bits - 1)
        return self.infinity | (quiet if self.has_infinity else 0)


FORMATS = {
    DataType.F16: FloatFormat(5, 10),
    DataType.BF16: FloatFormat(8, 7),
    DataType.F32: FloatFormat(8, 23),
    DataType.F64: FloatFormat(11, 52),
    DataType.E4M3: FloatFormat(4, 3, has_infinity=False),
    DataType.E5M2: FloatFormat(5, 2),
}


def is_scalar_type(kind: DataType) -> bool:
    """Whether `TYPE:VALUE` can express a value of this type."""
    return kind not in (DataType.BOOL, DataType.C64, DataType.C128)


def scalar_bits(kind: DataType, text: str) -> int:
    """The bits of a number of this type; raises `ValueError` with the reason."""
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text)} characters is too long")
    layout = FORMATS.get(kind)
    return _integer_bits(kind, text) if layout is None else _float_bits(kind, layout, text)


def scalar_text(kind: DataType, bits: int) -> str:
    """A text that gives these bits back: the shortest, or the exact value of a narrow float."""
    if layout := FORMATS.get(kind):
        return _float_text(kind, layout, bits)
    width = 8 * kind.bytes
    if kind.is_bits:
        return f"0x{bits:0{width // 4}x}"
    return str(bits - (1 << width) if kind.is_signed and bits >> (width - 1) else bits)


def float_value(layout: FloatFormat, bits: int) -> Fraction:
    """The exact value of a finite pattern."""
    fraction = bits & ((1 << layout.fraction_bits) - 1)
    exponent = (bits >> layout.fraction_bits) & ((1 << layout.exponent_bits) - 1)
    if exponent:
        fraction |= 1 << layout.fraction_bits
    power = max(exponent, 1) - layout.bias - layout.fraction_bits
    magnitude = Fraction(fraction) * Fraction(2) ** power
    return -magnitude if bits >> (layout.bits - 1) else magnitude


def round_to_format(layout: FloatFormat, magnitude: Fraction) -> int:
    """The pattern nearest to a magnitude, ties to even; `infinity` or above if none is near."""
    if magnitude == 0:
        return 0
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    exponent = max(exponent, 1 - layout.bias)
    steps = round(magnitude / Fraction(2) ** (exponent - layout.fraction_bits))
    # A carry out of the fraction increments the exponent, which is correct for rounding up.
    return ((exponent + layout.bias - 1) << layout.fraction_bits) + steps


def _integer_bits(kind: DataType, text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"`{text}` is not an integer")
    value, width = int(text, 0), 8 * kind.bytes
    low = -(1 << (width - 1)) if kind.is_signed else 0
    high = (1 << (width - 1 if kind.is_signed else width)) - 1
    if not low <= value <= high:
        raise ValueError(f"`{text}` is not in the range of `{kind.value}`: {low} to {high}")
    return value & ((1 << width) - 1)


def _float_bits(kind: DataType, layout: FloatFormat, text: str) -> int:
    sign = 1 << (layout.bits - 1) if text.startswith("-") else 0
    bare = text.removeprefix("-")
    if bare.startswith(("0x", "0X")):
        return _exact_bits(kind, text)
    if bare == "nan":
        return layout.nan | sign
    if bare == "inf" and layout.has_infinity:
        return layout.infinity | sign
    if not _DECIMAL.fullmatch(text):
        raise ValueError(f"`{text}` is not a number")
    bits = _magnitude_bits(layout, Decimal(bare))
    if bits >= layout.infinity:
        raise ValueError(f"`{text}` is out of the range of `{kind.value}`")
    return bits | sign


def _magnitude_bits(layout: FloatFormat, number: Decimal) -> int:
    # The exponent alone decides numbers far out of range, before anything large is computed.
    if number == 0 or number.adjusted() < -400:
        return 0
    if number.adjusted() > 400:
        return layout.infinity
    return round_to_format(layout, abs(Fraction(number)))


def _exact_bits(kind: DataType, text: str) -> int:
    digits = 2 * kind.bytes
    if not re.fullmatch(rf"0[xX][0-9a-fA-F]{{{digits}}}", text):
        raise ValueError(f"the bits of one `{kind.value}` are `0x` and {digits} digits")
    return int(text, 16)


@lru_cache(maxsize=4096)  # few distinct floats per trace; the shortest text needs a search
def _float_text(kind: DataType, layout: FloatFormat, bits: int) -> str:
    sign_bit = 1 << (layout.bits - 1)
    magnitude, sign = bits & (sign_bit - 1), "-" if bits & sign_bit else ""
    if magnitude == layout.nan:
        return sign + "nan"
    if magnitude == layout.infinity:
        return sign + "inf"
    if magnitude > layout.infinity:
        return f"0x{bits:0{2 * kind.bytes}x}"
    value = float(float_value(layout, magnitude))
    if kind.bytes <= 2:
        return sign + repr(value)
    for precision in range(1, 18):
        text = f"{value:.{precision}g}"
        if _magnitude_bits(layout, Decimal(text)) == magnitude:
            return sign + repr(float(text))
    raise AssertionError("17 digits identify every double")
