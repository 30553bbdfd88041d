"""Operands as words: what kind of operand stands where, without its name.

In: an operand and the kinds of the names in scope. Out: a word as `opcodes.operand_types` has it.
Instructions with the same opcode and the same words are right or wrong together, so that each
combination is looked at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera.ir.opcodes import special_register
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import WARP_SIZE_NAME, integer_value

_COMPONENTS = frozenset("xyzwrgba")
_OPAQUE = frozenset({"texref", "samplerref", "surfref"})
LABEL = ":"
FUNCTION = "()"


def variable_kind(variable: ptx.Variable, *, is_input: bool = False) -> str:
    """The word for a variable: its type if it is a register, else the space that it is in."""
    if variable.space == "reg":
        if variable.dimensions:
            return "?"
        return variable.type if variable.vector is None else f"v{variable.vector}.{variable.type}"
    if variable.type in _OPAQUE and variable.space != "param":
        return "=opaque"
    return f"={variable.space.partition('::')[0]}{':in' * is_input}"


def special_kind(name: str) -> str | None:
    """The word for a special register or a predefined constant."""
    if name == WARP_SIZE_NAME:
        return "#i"
    register = special_register(name)
    if register is None:
        return None
    vector = "v4." if register.components else ""
    return f"%{vector}{register.type}:{name}"


def operand_word(operand: ptx.Operand, kinds: Mapping[str, str]) -> str:
    """The word for an operand, `?` where nothing is said about it."""
    kind = type(operand)
    if kind is ptx.Name:
        return _name_word(operand, kinds)  # type: ignore[arg-type]
    if kind is ptx.Integer:
        return "#i"
    match operand:
        case ptx.Address(parts):
            first = _address_word(parts[0], kinds)
            return f"[{first}]" if len(parts) == 1 else f"[*{operand_word(parts[-1], kinds)}]"
        case ptx.Float(_, _, width):
            return "#f" if width == 32 else "#d"
        case ptx.Vector(elements):
            return "{" + ",".join([operand_word(e, kinds) for e in elements]) + "}"
        case ptx.Not(inner):
            return f"!{operand_word(inner, kinds)}"
        case ptx.Pair(first, second):
            return f"{operand_word(first, kinds)}|{operand_word(second, kinds)}"
        case ptx.Sink():
            return "_"
        case ptx.Offset(base):
            return _name_word(base, kinds)
        case ptx.Subscript(name):
            return kinds.get(name, "?")
        case ptx.Unary() | ptx.Binary() | ptx.Conditional() | ptx.Cast():
            return "?" if integer_value(operand) is None else "#i"
        case _:
            return "?"


def _address_word(part: ptx.Operand, kinds: Mapping[str, str]) -> str:
    if isinstance(part, ptx.Offset):
        if isinstance(part.displacement, ptx.Float):
            return "#f"
        return _name_word(part.base, kinds)
    return operand_word(part, kinds)


def _name_word(name: ptx.Name, kinds: Mapping[str, str]) -> str:
    kind = kinds.get(name.name, "?")
    if name.component is None or kind == "?":
        return kind
    if name.component in _COMPONENTS:
        if kind[0] == "v":
            return kind.partition(".")[2]
        if kind.startswith("%v"):
            return "%" + kind.partition(".")[2]
    return f"{kind}.{name.component}"
