"""Values of PTX constant expressions (PTX ISA 4.5): 64-bit integers, signed unless told otherwise.

In: a `ptx.Constant`. Out: its value as a Python integer, or None where it names a symbol or is
a float. An operation is unsigned when one of its operands is; a shift takes the kind of its left
operand. Results wrap to 64 bits.
"""

from __future__ import annotations

from tessera.ir.ptx import syntax as ptx

WARP_SIZE_NAME = "WARP_SZ"
_MASK = (1 << 64) - 1
_Typed = tuple[int, bool]  # value, is unsigned


def integer_value(constant: ptx.Constant) -> int | None:
    """The value of an integer constant expression; None for symbols and floats."""
    typed = _evaluate(constant)
    return None if typed is None else typed[0]


def typed_value(constant: ptx.Constant) -> tuple[int, bool] | None:
    """As `integer_value`, with whether the value is an unsigned one."""
    return _evaluate(constant)


def is_constant_name(operand: object) -> bool:
    """Whether an operand is the predefined constant `WARP_SZ`."""
    return isinstance(operand, ptx.Name) and operand.name == WARP_SIZE_NAME


def _wrap(value: int, unsigned: bool) -> _Typed:
    value &= _MASK
    if not unsigned and value >> 63:
        value -= 1 << 64
    return value, unsigned


def _evaluate(constant: ptx.Constant) -> _Typed | None:
    match constant:
        case ptx.Integer(text, value):
            return _wrap(value, text.endswith("U") or value >= 1 << 63)
        case ptx.Name(name, None):
            return (32, False) if name == WARP_SIZE_NAME else None
        case ptx.Unary(operator, operand):
            inner = _evaluate(operand)
            return None if inner is None else _unary(operator, inner)
        case ptx.Binary(operator, left, right):
            first, second = _evaluate(left), _evaluate(right)
            if first is None or second is None:
                return None
            return _binary(operator, first, second)
        case ptx.Conditional(condition, then, otherwise):
            chosen = _evaluate(condition)
            return None if chosen is None else _evaluate(then if chosen[0] else otherwise)
        case ptx.Cast(kind, operand):
            inner = _evaluate(operand)
            return None if inner is None else _wrap(inner[0], kind == "u64")
        case _:
            return None


def _unary(operator: str, operand: _Typed) -> _Typed:
    value, unsigned = operand
    match operator:
        case "-":
            return _wrap(-value, unsigned)
        case "~":
            return _wrap(~value, unsigned)
        case "!":
            return int(value == 0), False
        case _:
            return operand


def _binary(operator: str, left: _Typed, right: _Typed) -> _Typed | None:
    unsigned = left[1] or right[1]
    if operator in ("<<", ">>"):
        shift = right[0] & _MASK
        if shift > 63:
            return (-1 if operator == ">>" and left[0] < 0 else 0), left[1]
        return _wrap(left[0] << shift if operator == "<<" else left[0] >> shift, left[1])
    a, b = _wrap(left[0], unsigned)[0], _wrap(right[0], unsigned)[0]
    match operator:
        case "+":
            return _wrap(a + b, unsigned)
        case "-":
            return _wrap(a - b, unsigned)
        case "*":
            return _wrap(a * b, unsigned)
        case "/" | "%" if b == 0:
            return None
        case "/":
            quotient = abs(a) // abs(b)
            return _wrap(quotient if (a < 0) == (b < 0) else -quotient, unsigned)
        case "%":
            return _wrap((abs(a) % abs(b)) * (-1 if a < 0 else 1), unsigned)
        case "&":
            return _wrap(a & b, unsigned)
        case "|":
            return _wrap(a | b, unsigned)
        case "^":
            return _wrap(a ^ b, unsigned)
        case _:
            return int(_COMPARISONS[operator](a, b)), False


_COMPARISONS = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "&&": lambda a, b: a != 0 and b != 0,
    "||": lambda a, b: a != 0 or b != 0,
}
