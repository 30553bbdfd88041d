"""How values of PTX types are held, and the bits of constants."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from tessera.ir.ptx import syntax as ptx


class Unsupported(Exception):
    """An instruction, or a form of one, that the executor does not have."""


@dataclass(frozen=True, slots=True)
class ValueKind:
    """How a PTX type is held: `form` u, s, f or p; `width` in bytes (0 for predicates)."""

    form: str
    width: int

    @property
    def dtype(self) -> str:
        """The name of the NumPy type in generated code."""
        return _DTYPES[self.form, self.width]


_DTYPES = {("p", 0): "b1", ("u", 16): "c16"} | {
    (form, width): f"{letter}{width}"
    for form, letter, widths in (
        ("u", "u", (1, 2, 4, 8)),
        ("s", "i", (1, 2, 4, 8)),
        ("f", "f", (4, 8)),
    )
    for width in widths
}

_PACKED = {
    **dict.fromkeys(("f16", "bf16", "e4m3x2", "e5m2x2", "ue8m0x2", "e2m3x2", "e3m2x2"), 2),
    **dict.fromkeys(("f16x2", "bf16x2", "u16x2", "s16x2", "tf32", "e4m3x4", "e5m2x4"), 4),
    **dict.fromkeys(("e4m3", "e5m2", "e2m1x2"), 1),
    "f32x2": 8,
    "b1": 4,
}


def kind_of(type_name: str) -> ValueKind:
    """How values of a PTX type are held."""
    if type_name == "pred":
        return ValueKind("p", 0)
    if type_name in _PACKED:
        return ValueKind("u", _PACKED[type_name])
    if type_name in ("f32", "f64"):
        return ValueKind("f", int(type_name[1:]) // 8)
    letter, digits = type_name[:1], type_name[1:]
    if letter in "usb" and digits in ("8", "16", "32", "64", "128"):
        return ValueKind("s" if letter == "s" else "u", int(digits) // 8)
    raise Unsupported(f"type `.{type_name}`")


TYPES = frozenset(
    {"pred", "f32", "f64", *_PACKED}
    | {letter + digits for letter in "usb" for digits in ("8", "16", "32", "64", "128")}
)


def float_bits(operand: ptx.Float, kind: ValueKind) -> int:
    """A floating-point constant in a type; a double becomes a single where one is asked for."""
    if kind.form == "f" and operand.width != 8 * kind.width:
        if operand.width == 64:
            return pack_float(struct.unpack("<d", struct.pack("<Q", operand.bits))[0], kind.width)
        return pack_float(struct.unpack("<f", struct.pack("<I", operand.bits))[0], kind.width)
    if kind.form != "f" and operand.width == 64 and kind.width == 4:
        return pack_float(struct.unpack("<d", struct.pack("<Q", operand.bits))[0], 4)
    return operand.bits


def pack_float(value: float, width: int) -> int:
    """The bits of a number as single or double, overflow to infinity."""
    if width == 8:
        return int(struct.unpack("<Q", struct.pack("<d", value))[0])
    try:
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    except OverflowError:
        return 0xFF800000 if value < 0 else 0x7F800000


def constant_value(operand: ptx.Operand) -> int | None:
    """The value of a constant expression without symbols, or None."""
    match operand:
        case ptx.Integer(value=value):
            return value
        case ptx.Name(name="WARP_SZ"):
            return 32
        case ptx.Unary(operator=operator, operand=inner):
            value_of = constant_value(inner)
            return None if value_of is None else _UNARY[operator](value_of)
        case ptx.Binary(operator=operator, left=left, right=right):
            first, second = constant_value(left), constant_value(right)
            if first is None or second is None:
                return None
            return _BINARY[operator](first, second)
        case ptx.Conditional(condition=condition, then=then, otherwise=otherwise):
            chosen = constant_value(condition)
            if chosen is None:
                return None
            return constant_value(then if chosen else otherwise)
        case ptx.Cast(type=to, operand=inner):
            value_of = constant_value(inner)
            if value_of is None:
                return None
            value_of &= (1 << 64) - 1
            return value_of - (1 << 64) if to == "s64" and value_of >> 63 else value_of
        case _:
            return None


_UNARY: dict[str, Callable[[int], int]] = {
    "-": lambda a: -a,
    "+": lambda a: a,
    "~": lambda a: ~a,
    "!": lambda a: int(not a),
}
_BINARY: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0,
    "%": lambda a, b: (abs(a) % abs(b)) * (-1 if a < 0 else 1) if b else 0,
    "<<": lambda a, b: a << (b & 63),
    ">>": lambda a, b: a >> (b & 63),
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "<": lambda a, b: int(a < b),
    ">": lambda a, b: int(a > b),
    "<=": lambda a, b: int(a <= b),
    ">=": lambda a, b: int(a >= b),
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "&&": lambda a, b: int(bool(a) and bool(b)),
    "||": lambda a, b: int(bool(a) or bool(b)),
}
