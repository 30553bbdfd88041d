"""The names of one block of a function: where each is declared, and what kind of operand it is."""

from __future__ import annotations

from collections.abc import Iterator

from tessera.ir.ptx import syntax as ptx
from tessera.ir.verify_ptx.operands import LABEL

_DIGITS = "0123456789"

# Constants that hold no symbol.
_NUMBERS = frozenset({ptx.Integer, ptx.Float})


class NameScope:
    """Single names with their place and kind, register ranges by prefix, and labels."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.kinds: dict[str, str] = {}
        self.ranges: dict[str, tuple[int, int, str]] = {}
        self.labels: dict[str, int] = {}

    def declared(self, name: str) -> int | None:
        """Where a name is declared in this block, if it is."""
        place = self.names.get(name)
        if place is not None or not self.ranges:
            return place
        span = self._range(name)
        return None if span is None else span[1]

    def kind(self, name: str) -> str | None:
        """The word for a name of this block (`verify_ptx.operands`), if it is one."""
        kind = self.kinds.get(name)
        if kind is not None:
            return kind
        if self.ranges and (span := self._range(name)) is not None:
            return span[2]
        return LABEL if name in self.labels else None

    def add(self, variable: ptx.Variable, kind: str) -> None:
        """Declare a variable."""
        if variable.count is None:
            self.names[variable.name] = variable.at
            self.kinds[variable.name] = kind
        else:
            self.ranges[variable.name] = (variable.count, variable.at, kind)

    def _range(self, name: str) -> tuple[int, int, str] | None:
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
