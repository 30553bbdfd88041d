"""Values of PTX constant expressions (PTX ISA 4.5): 64-bit integers, signed unless told otherwise.

In: a `ptx.Constant`. Out: its value as a Python integer, or None where it names a symbol or is
a float. An operation is unsigned when one of its operands is; a shift takes the kind of its left
operand. Results wrap to 64 bits.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from tessera.ir.ptx import syntax as ptx

WARP_SIZE_NAME = "WARP_SZ"
_MASK = (1 << 64) - 1
_Typed = tuple[int, bool]  # value, is unsigned


def integer_value(constant: ptx.Operand) -> int | None:
    """The value of an integer constant expression; None for anything else."""
    typed = typed_value(constant)
    return None if typed is None else typed[0]


def is_constant_name(operand: object) -> bool:
    """Whether an operand is the predefined constant `WARP_SZ`."""
    return isinstance(operand, ptx.Name) and operand.name == WARP_SIZE_NAME


def _wrap(value: int, unsigned: bool) -> _Typed:
    value &= _MASK
    if not unsigned and value >> 63:
        value -= 1 << 64
    return value, unsigned


def typed_value(constant: ptx.Operand) -> tuple[int, bool] | None:
    """Like `integer_value`, and whether the value is unsigned."""
    match constant:
        case ptx.Integer(text, value):
            return _wrap(value, text.endswith("U") or value >= 1 << 63)
        case ptx.Name(name, None):
            return (32, False) if name == WARP_SIZE_NAME else None
        case ptx.Unary(name, operand):
            inner = typed_value(operand)
            return None if inner is None else _unary(name, inner)
        case ptx.Binary(name, left, right):
            first, second = typed_value(left), typed_value(right)
            if first is None or second is None:
                return None
            return _binary(name, first, second)
        case ptx.Conditional(condition, then, otherwise):
            chosen = typed_value(condition)
            return None if chosen is None else typed_value(then if chosen[0] else otherwise)
        case ptx.Cast(kind, operand):
            inner = typed_value(operand)
            return None if inner is None else _wrap(inner[0], kind == "u64")
        case _:
            return None


def _unary(name: str, operand: _Typed) -> _Typed:
    value, unsigned = operand
    match name:
        case "-":
            return _wrap(-value, unsigned)
        case "~":
            return _wrap(~value, unsigned)
        case "!":
            return int(value == 0), False
        case _:
            return operand


def _binary(name: str, left: _Typed, right: _Typed) -> _Typed | None:
    unsigned = left[1] or right[1]
    if name in ("<<", ">>"):
        shift = right[0] & _MASK
        if shift > 63:
            return (-1 if name == ">>" and left[0] < 0 else 0), left[1]
        return _wrap(left[0] << shift if name == "<<" else left[0] >> shift, left[1])
    a, b = _wrap(left[0], unsigned)[0], _wrap(right[0], unsigned)[0]
    if name in _COMPARISONS:
        return int(_COMPARISONS[name](a, b)), False
    if name in _ARITHMETIC:
        return _wrap(_ARITHMETIC[name](a, b), unsigned)
    if b == 0:
        return None
    # Division truncates towards zero; a remainder has the sign of the dividend.
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return _wrap(quotient if name == "/" else a - quotient * b, unsigned)


_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "&&": lambda a, b: a != 0 and b != 0,
    "||": lambda a, b: a != 0 or b != 0,
}
