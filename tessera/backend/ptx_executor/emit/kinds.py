"""How generated code holds values of PTX types, and the bits of constants."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache

from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.types import is_type, type_width


class Unsupported(Exception):
    """An instruction, or a form of an instruction, that the executor does not support."""


@dataclass(frozen=True, slots=True)
class ValueKind:
    """How a PTX type is held: `form` u, s, f or p; `width` in bytes (0 for predicates)."""

    form: str
    width: int

    @property
    def dtype(self) -> str:
        """The name of the NumPy type in generated code."""
        return _DTYPES[self.form, self.width]

    @property
    def bits(self) -> str:
        """The untyped PTX type of this width: `b32` for four bytes."""
        return "pred" if self.form == "p" else f"b{8 * self.width}"


_DTYPES = {("p", 0): "b1", ("u", 16): "c16"} | {
    (form, width): f"{letter}{width}"
    for form, letter, widths in (
        ("u", "u", (1, 2, 4, 8)),
        ("s", "i", (1, 2, 4, 8)),
        ("f", "f", (4, 8)),
    )
    for width in widths
}


@cache
def kind_of(type_name: str) -> ValueKind:
    """How values of a PTX type are held."""
    if type_name == "pred":
        return ValueKind("p", 0)
    if not is_type(type_name):
        raise Unsupported(f"type `.{type_name}`")
    # Single-bit elements (`b1`) are held in 32-bit words.
    width = 4 if type_name == "b1" else type_width(type_name)
    if type_name in ("f32", "f64"):
        return ValueKind("f", width)
    return ValueKind("s" if type_name[0] == "s" and type_name[1:].isdigit() else "u", width)


def float_bits(operand: ptx.Float, kind: ValueKind) -> int:
    """The bits of a floating-point constant; a double is rounded for a single-precision type."""
    if operand.width == 8 * kind.width or (
        kind.form != "f" and (operand.width, kind.width) != (64, 4)
    ):
        return operand.bits
    raw = operand.bits.to_bytes(operand.width // 8, "little")
    return pack_float(struct.unpack("<d" if operand.width == 64 else "<f", raw)[0], kind.width)


def pack_float(value: float, width: int) -> int:
    """The bits of a number as single or double; overflow gives infinity."""
    if width == 8:
        return int(struct.unpack("<Q", struct.pack("<d", value))[0])
    try:
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    except OverflowError:
        return 0xFF800000 if value < 0 else 0x7F800000
