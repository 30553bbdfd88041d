"""Names and operands of a function: the position of each declaration, and the kind of each operand.

In: declarations, and operands with the names in scope. Out: positions, and the words that
`opcodes.operand_types` defines. Instructions with the same opcode and the same words are all valid
or all invalid, so each combination is checked once.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping

from tessera.ir.opcodes import special_register
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import WARP_SIZE_NAME, integer_value

_COMPONENTS = frozenset("xyzwrgba")
_OPAQUE = frozenset({"texref", "samplerref", "surfref"})
LABEL = ":"
FUNCTION = "()"
_DIGITS = "0123456789"
# Constants without a symbol.
_NUMBERS = frozenset({ptx.Integer, ptx.Float})


def variable_kind(variable: ptx.Variable, *, is_input: bool = False) -> str:
    """The word for a variable: its type if it is a register, else its state space."""
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


# --- tokens --------------------------------------------------------------------------------

TOKEN = "%0"
"""How tokens begin: names that stand for any name of a kind. No compiler makes such names."""
KIND_OF_TOKEN: dict[str, str] = {}
_OTHER = re.compile(r"[^A-Za-z0-9]")


@functools.cache
def kind_token(kind: str) -> str:
    """The token for a word: a name that a verdict can be remembered by."""
    token = TOKEN + _OTHER.sub(lambda match: f"${ord(match[0]):x}$", kind)
    KIND_OF_TOKEN[token] = kind
    return token


def operand_word(operand: ptx.Operand, kinds: Mapping[str, str]) -> str:
    """The word for an operand; `?` for an operand that is not checked."""
    kind = type(operand)
    if kind is ptx.Name:
        return _name_word(operand, kinds)  # type: ignore[arg-type]
    if kind is ptx.Integer:
        return "#i"
    match operand:
        case ptx.Address(parts):
            first = _address_word(parts[0], kinds)
            if len(parts) == 1:
                return f"[{first}]"
            return f"[{'*' * (len(parts) - 1)}{operand_word(parts[-1], kinds)}]"
        case ptx.Float(_, _, width):
            return "#f" if width == 32 else "#d"
        case ptx.Vector(elements):
            return "{" + ",".join([operand_word(e, kinds) for e in elements]) + "}"
        case ptx.Not(inner):
            return f"!{operand_word(inner, kinds)}"
        case ptx.Negated(inner):
            return f"-{operand_word(inner, kinds)}"
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


# --- scopes --------------------------------------------------------------------------------


class NameScope:
    """Single names with their position and kind, register ranges by prefix, and labels."""

    __slots__ = ("kinds", "labels", "names", "ranges")

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.kinds: dict[str, str] = {}
        self.ranges: dict[str, tuple[int, int, str]] = {}
        self.labels: dict[str, int] = {}

    def copy(self) -> NameScope:
        """A scope that can be added to."""
        scope = NameScope()
        scope.names |= self.names
        scope.kinds |= self.kinds
        scope.ranges |= self.ranges
        scope.labels |= self.labels
        return scope

    def declared(self, name: str) -> int | None:
        """The position of a name's declaration in this block, or None."""
        place = self.names.get(name)
        if place is not None or not self.ranges:
            return place
        span = self.ranged(name)
        return None if span is None else span[1]

    def kind(self, name: str) -> str | None:
        """The word for a name of this block (`operand_word`), or None."""
        kind = self.kinds.get(name)
        if kind is not None:
            return kind
        if self.ranges and (span := self.ranged(name)) is not None:
            return span[2]
        return LABEL if name in self.labels else None

    def add(self, variable: ptx.Variable, kind: str) -> None:
        """Declare a variable."""
        if variable.count is None:
            self.names[variable.name] = variable.at
            self.kinds[variable.name] = kind
        else:
            self.ranges[variable.name] = (variable.count, variable.at, kind)

    def ranged(self, name: str) -> tuple[int, int, str] | None:
        """The count, the position and the kind of the range that a name belongs to."""
        if name[-1] not in _DIGITS:
            return None
        for end in range(len(name.rstrip(_DIGITS)), len(name)):  # `%r1<20>` declares `%r10` too
            span = self.ranges.get(name[:end])
            if span is not None and len(name) - end <= 10 and int(name[end:]) < span[0]:
                return span
        return None


def names_in(operand: ptx.Operand) -> Iterator[str]:
    """The names in an operand that must be declared."""
    match operand:
        case ptx.Name(name):
            yield name
        case ptx.Address(parts) | ptx.Vector(parts) | ptx.Group(parts):
            for part in parts:
                yield from names_in(part)
        case ptx.Offset(base):
            yield base.name
        case ptx.Not(inner) | ptx.Negated(inner):
            yield inner.name
        case ptx.Pair(first, second):
            yield from names_in(first)
            yield from names_in(second)
        case ptx.Subscript(name, index):
            yield name
            if isinstance(index, ptx.Offset | ptx.Name):
                yield from names_in(index)
        case ptx.Generic(inner) | ptx.MaskedByte(_, inner):
            yield from names_in_constant(inner)
        case _:
            return


def names_in_constant(initializer: ptx.Initializer) -> Iterator[str]:
    """The symbols in an initialiser (fields of samplers name modes, not symbols)."""
    pending: list[ptx.Initializer] = [initializer]
    while pending:
        match pending.pop():
            case ptx.Name(name):
                yield name
            case ptx.InitializerList(elements):
                if not _NUMBERS.issuperset(map(type, elements)):
                    pending += elements
            case ptx.Generic(inner) | ptx.MaskedByte(_, inner) | ptx.Unary(_, inner):
                pending.append(inner)
            case ptx.Binary(_, left, right):
                pending += (right, left)
            case _:
                pass
