"""Statements that were looked at before: the verdicts of common ones come with the package.

In: instructions as canonical text (`accept_outline`), all of them well formed. Out: those that the
table has for a version and target. `data/statements.txt` is made by the verifier itself
(`python -m benchmarks.reading.known`), and `tests/property/test_known_statements.py` asks it again.
What the table lacks is looked at, so it changes how long a verdict takes and nothing else.

The table begins with classes, one in a line: the versions and targets (none: all) that take the
statements of a class. Behind an empty line, each line has an opcode and its operands, by class.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

from tessera.ir.opcodes.targets import Version, read_version, target_since

TABLE = Path(__file__).parents[2] / "data" / "statements.txt"
_BLANKS = str.maketrans("\t\n\r", "   ")
_GUARDS = ("@%0pred", "@!%0pred")


def split_statement(text: str) -> tuple[str, str]:
    """The opcode and the operands of a canonical statement: no guard, no displacements, no blanks.

    A guard that is not plain stays, so that no table has the statement.
    """
    text = text.translate(_BLANKS)
    if text[:1] == "@":
        guard, _, rest = text.partition(" ")
        text = rest.lstrip(" ") if guard in _GUARDS else text
    opcode, _, operands = text.partition(" ")
    return opcode, operands.replace(" ", "").replace("+0]", "]").replace("+-0]", "]")


class KnownStatements:
    """The statements of the table that are taken in one version and target."""

    def __init__(self, version: Version, target: str) -> None:
        since = target_since(target)
        self.place = None if since is None or since > version else (version, target)
        self.classes: dict[int, bool] = {}

    def known(self, texts: Sequence[str]) -> Iterator[str]:
        """Those of the statements that the table has."""
        if self.place is None:
            return
        for text in texts:
            opcode, operands = split_statement(text)
            for number, written in operands_of(opcode):
                if operands in written and self._is_class(number):
                    yield text

    def _is_class(self, number: int) -> bool:
        """Whether the statements of a class are taken here."""
        taken = self.classes.get(number)
        if taken is None and self.place is not None:
            taken = self.classes[number] = _is_in(read_table()[0][number], *self.place)
        return bool(taken)


@functools.lru_cache(maxsize=10_000)
def operands_of(opcode: str) -> list[tuple[int, frozenset[str]]]:
    """The operands of an opcode, by class."""
    groups = (group.split(":", 1) for group in read_table()[1].get(opcode, "").split())
    return [(int(number), frozenset(written.split(";"))) for number, written in groups]


@functools.cache
def _is_in(places: str, version: Version, target: str) -> bool:
    """Whether one of the places has a version and target."""
    for place in places.split(" | "):
        if " " not in place or f" {target} " in f"{place} ":
            first, _, last = place.partition(" ")[0].partition("-")
            if read_version(first) <= version and not (last and read_version(last) < version):
                return True
    return False


@functools.cache
def read_table() -> tuple[list[str], dict[str, str]]:
    """The classes, and the classes and operands of each opcode, unparsed."""
    head, _, rows = TABLE.read_text("ascii").partition("\n\n")
    return head.splitlines()[1:], dict(line.split(" ", 1) for line in rows.splitlines())
