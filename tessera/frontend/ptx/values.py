"""Statements without the values of their numbers, which few rules look at.

In: the text of statements, or of a block. Out: the same with `0` for every integer, and a zero of
its width for every float. Statements keep their numbers if a measured rule reads one
(`opcodes.rules.READS_VALUES`), all but displacements, which no rule reads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tessera.frontend.ptx.terminals import BLANK, FLOAT, INTEGER, NAME, NAME_CHARACTERS
from tessera.ir.opcodes.rules import READS_VALUES

MANY = 100_000
"""Remembered texts are forgotten when there are more."""

_NUMBER = re.compile(rf"([0-9](?<![{NAME_CHARACTERS}.%:][0-9])[{NAME_CHARACTERS}.]*+)")
_INTEGER, _FLOAT = re.compile(INTEGER), re.compile(FLOAT)
_DECLARES = re.compile(rf"[;{{]{BLANK}\.")
_VALUED = "|".join(
    rf"{first}(?=[{NAME_CHARACTERS}.:]*?\.(?:{'|'.join(sorted(seconds))}))"
    if seconds
    else rf"{first}(?![{NAME_CHARACTERS}])"
    for first, seconds in sorted(READS_VALUES.items())
)
_READS_VALUES = re.compile(rf"(?:@{BLANK}!?{BLANK}{NAME}{BLANK})?(?:{_VALUED})")
_HAS_VALUED = re.compile(rf"(?<![{NAME_CHARACTERS}.%])(?:{_VALUED})")
_DISPLACEMENT = re.compile(rf"\+{BLANK}-?{INTEGER}(?![{NAME_CHARACTERS}.])")
_KINDS: dict[str, str] = {}  # kept from module to module


def forget() -> None:
    """Forget what other modules have left here."""
    _KINDS.clear()


def without_values(statements: Sequence[str]) -> list[str]:
    """Statements without the values of their numbers, in the same order."""
    if kept := list(filter(_READS_VALUES.match, statements)):
        known = dict(zip(kept, _DISPLACEMENT.sub("+0", ";".join(kept)).split(";"), strict=True))
        others = [text for text in statements if text not in known]
        known.update(zip(others, _forget_values(";".join(others)).split(";"), strict=False))
        return [known[text] for text in statements]
    return _forget_values(";".join(statements)).split(";")


def forget_in_block(block: str) -> str:
    """A block, unchanged if a rule may read a number in it."""
    kept = _DECLARES.search(block) or _HAS_VALUED.search(block)
    return block if kept else _forget_values(block)


def _forget_values(text: str) -> str:
    if len(_KINDS) > MANY:
        _KINDS.clear()
    parts = _NUMBER.split(text)
    try:
        parts[1::2] = map(_KINDS.__getitem__, parts[1::2])
    except KeyError:
        _KINDS.update((word, _kind_of_number(word)) for word in parts[1::2])
        parts[1::2] = map(_KINDS.__getitem__, parts[1::2])
    return "".join(parts)


def _kind_of_number(word: str) -> str:
    if _INTEGER.fullmatch(word):
        return "0"
    if _FLOAT.fullmatch(word):
        return "0f00000000" if word[1:2] in ("f", "F") else "0d0000000000000000"
    return word
