"""Spelled constants to records (PTX ISA 4.5).

Integers are 64 bits wide; decimal floats are f64; `0f` and `0d` give the bits of an f32 or f64.
"""

from __future__ import annotations

import functools
import re
import struct

from tessera.frontend.ptx.terminals import BLANKS, FLOAT, STRING
from tessera.ir.ptx import syntax as ptx

_STRING = re.compile(STRING)


def integer_constant(text: str) -> ptx.Integer:
    """`-4`, `0x1FU`, `0b101`, `017` with their value."""
    digits = text.rstrip("U")
    sign = -1 if digits.startswith("-") else 1
    digits = digits.lstrip("-")
    if digits[:2] in ("0x", "0X"):
        value = int(digits, 16)
    elif digits[:2] in ("0b", "0B"):
        value = int(digits, 2)
    elif digits[0] == "0":
        value = int(digits, 8)
    elif len(digits) <= 20:
        value = int(digits)
    else:  # more digits than 64 bits can hold, and int() refuses very long ones
        value = 1 << 64
    return ptx.Integer(text, sign * value)


def strings_in(text: str) -> tuple[str, ...]:
    """What stands between the quotation marks of a text without comments."""
    return tuple([string[1:-1] for string in _STRING.findall(text)])


def fits(constant: ptx.Integer) -> bool:
    """Whether an integer constant can be held in 64 bits, signed or unsigned."""
    return -(1 << 63) <= constant.value < 1 << 64


def float_constant(text: str) -> ptx.Float:
    """`0f3F800000`, `0d...`, `1.5`, `-2e-3` with their bits."""
    if text[:2] in ("0f", "0F"):
        return ptx.Float(text, int(text[2:], 16), 32)
    if text[:2] in ("0d", "0D"):
        return ptx.Float(text, int(text[2:], 16), 64)
    if text.startswith((".", "-.")):  # after an opcode, `.5` would read as a modifier
        text = text.replace(".", "0.", 1)
    bits: int = struct.unpack("<Q", struct.pack("<d", float(text)))[0]
    return ptx.Float(text, bits, 64)


@functools.lru_cache(maxsize=10_000)
def number_constant(text: str) -> ptx.Integer | ptx.Float:
    """An integer or a float, by its spelling."""
    # The usual case in tables of numbers; the branches below give the same result.
    if text.isdecimal() and len(text) <= 18 and (text[0] != "0" or text == "0"):
        return ptx.Integer(text, int(text))
    return float_constant(text) if _IS_FLOAT.match(text) else integer_constant(text)


class Numbers(dict[str, ptx.Integer | ptx.Float]):
    """Numbers by their spelling, built once each."""

    def __missing__(self, text: str) -> ptx.Integer | ptx.Float:
        constant = self[text] = number_constant(text)
        return constant

    def number(self, text: str) -> ptx.Integer | ptx.Float:
        """One number."""
        return self[text]

    def table(self, text: str) -> ptx.InitializerList:
        """`{ 1, 2, 3 }`, which holds nothing but numbers."""
        words = text.translate(_BLANKS_AND_BRACES).split(",")
        return ptx.InitializerList(tuple(map(self.__getitem__, words)))


_IS_FLOAT = re.compile(rf"-?{FLOAT}")
_BLANKS_AND_BRACES = str.maketrans("", "", BLANKS + "{}")
