"""Patterns as text, and the search for their matches in a program.

A pattern is lines of `name = operator|other(name, name)`. A name without a line is an input. `?`
before a line: the operator may be missing, and its first operand replaces it. `?` after an operand:
it may be missing. Sums and products take their operands in either order. The search begins at the
last line.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from tessera.driver.trace.patterns.flow import OUTSIDE, Value, ValueFlow
from tessera.ir.program.program import LibraryCall, Operand

_LINE = re.compile(r"(\??)(\w+) = ([\w.|]+)\(([\w, ?]*)\)")
_EITHER_WAY = ("aten::add.Tensor", "aten::mul.Tensor")


@dataclass(frozen=True, slots=True)
class PatternLine:
    """One operator of a pattern."""

    name: str
    operators: tuple[str, ...]
    operands: tuple[str, ...]
    is_optional: bool


@dataclass(frozen=True, slots=True)
class Match:
    """A pattern in a program: the calls by the names of their lines, operands by their names."""

    calls: dict[str, LibraryCall]
    places: dict[str, int]
    operands: dict[str, Operand]
    values: dict[str, Value]

    def group(self) -> list[int]:
        """The places of the calls, in order."""
        return sorted(set(self.places.values()))


@functools.cache
def read_pattern(text: str) -> dict[str, PatternLine]:
    """The lines of a pattern by name; the last one is the root."""
    lines = {}
    for line in text.strip().splitlines():
        known = _LINE.fullmatch(line.strip())
        if known is None:
            raise ValueError(f"`{line.strip()}` is no line of a pattern")
        operators = tuple(f"aten::{name}" for name in known[3].split("|"))
        operands = tuple(part.strip() for part in known[4].split(",") if part.strip())
        lines[known[2]] = PatternLine(known[2], operators, operands, bool(known[1]))
    return lines


def find_match(text: str, flow: ValueFlow, root: int) -> Match | None:
    """A match of a pattern whose last line is the call at `root`."""
    lines = read_pattern(text)
    last = next(reversed(lines.values()))
    if flow.calls[root].operator not in last.operators:
        return None
    return _PatternSearch(lines, flow).call(last, root, Match({}, {}, {}, {}))


class _PatternSearch:
    """A search backward from a call to the calls that make its operands."""

    def __init__(self, lines: dict[str, PatternLine], flow: ValueFlow) -> None:
        self.lines, self.flow = lines, flow

    def call(self, line: PatternLine, at: int, known: Match) -> Match | None:
        """Match the call at a place with a line."""
        call = self.flow.calls[at]
        if line.name in known.places:
            return known if known.places[line.name] == at else None
        if call.operator not in line.operators or at in known.places.values():
            return None
        wanted = [name.rstrip("?") for name in line.operands]
        least = sum(not name.endswith("?") for name in line.operands)
        reads = list(zip(call.reads, self.flow.reads[at], strict=True))
        if not least <= len(reads) <= len(wanted):
            return None
        mine = Match(
            {**known.calls, line.name: call},
            {**known.places, line.name: at},
            {**known.operands, line.name: call.writes[0]},
            {**known.values, line.name: (int(call.writes[0].pointer.buffer), at)},
        )
        orders = [reads]
        if call.operator in _EITHER_WAY and len(reads) == 2:
            orders.append(reads[::-1])
        for order in orders:
            matched: Match | None = mine
            for name, (operand, value) in zip(wanted, order, strict=False):
                matched = self.value(name, operand, value, matched) if matched is not None else None
            if matched is not None:
                return matched
        return None

    def value(self, name: str, operand: Operand, value: Value, known: Match) -> Match | None:
        """Match an operand with a name: by the name's line, or as an input."""
        line = self.lines.get(name)
        if line is not None:
            if name in known.values:
                return known if known.values[name] == value else None
            if value[1] != OUTSIDE:
                matched = self.call(line, value[1], known)
                if matched is not None:
                    return matched
            if not line.is_optional:
                return None
            matched = self.value(line.operands[0], operand, value, known)
            if matched is None:
                return None
            return Match(
                matched.calls,
                matched.places,
                {**matched.operands, name: operand},
                {**matched.values, name: value},
            )
        if name in known.values:
            return known if known.values[name] == value else None
        return Match(
            known.calls,
            known.places,
            {**known.operands, name: operand},
            {**known.values, name: value},
        )
