"""Constant expressions of any depth: an expression nested too deeply to walk becomes its value.

Records are walked by recursion in many places, so an expression keeps its spelling up to
`FOLD_DEPTH` operators and becomes one number, or one symbol and one number, beyond that. Folding
happens while the parser reduces, from the inside out, so no walk is deeper than `FOLD_DEPTH`.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable

from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import typed_value

FOLD_DEPTH = 100
_ON_FLOATS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


def fold(constant: ptx.Constant) -> ptx.Constant | None:
    """An equal constant with little nesting, or None if there is none."""
    return _number(constant) or _symbol_and_number(constant)


def _number(constant: ptx.Constant) -> ptx.Integer | ptx.Float | None:
    typed = typed_value(constant)
    if typed is not None:
        value, unsigned = typed
        return ptx.Integer(f"{value}U" if unsigned else str(value), value)
    real = _real_value(constant)
    if real is None:
        return None
    bits = struct.unpack("<Q", struct.pack("<d", real))[0]
    return ptx.Float(f"0d{bits:016X}", bits, 64)


def _symbol_and_number(constant: ptx.Constant) -> ptx.Constant | None:
    """`symbol + 4 + 4` as `symbol + 8`; sums of addresses wrap at 64 bits like those of numbers."""
    total, rest = 0, constant
    while isinstance(rest, ptx.Binary) and rest.operator in ("+", "-"):
        typed = typed_value(rest.right)
        if typed is None:
            return None
        total += typed[0] if rest.operator == "+" else -typed[0]
        rest = rest.left
    if not isinstance(rest, ptx.Name | ptx.Generic):
        return None
    total = (total + (1 << 63)) % (1 << 64) - (1 << 63)
    return ptx.Binary("+", rest, ptx.Integer(str(total), total))


def _real_value(constant: ptx.Constant) -> float | None:
    match constant:
        case ptx.Float(_, bits, width):
            whole, real = ("<L", "<f") if width == 32 else ("<Q", "<d")
            return float(struct.unpack(real, struct.pack(whole, bits))[0])
        case ptx.Unary("-" | "+" as sign, operand):
            inner = _real_value(operand)
            return None if inner is None else -inner if sign == "-" else inner
        case ptx.Binary(sign, left, right) if sign in _ON_FLOATS:
            first, second = _real_value(left), _real_value(right)
            if first is None or second is None or (sign == "/" and second == 0):
                return None
            return _ON_FLOATS[sign](first, second)
        case _:
            return None
