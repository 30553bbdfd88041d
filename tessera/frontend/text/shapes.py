"""Checks data of a JSON or TOML file against classes: types, limits, and no unknown keys.

In: the values that a reader has parsed, and an `msgspec.Struct`. Out: a record of that class, or
one error that names the path of the first fault (`rows[3].ns`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from tessera.diagnostics import TesseraError

T = TypeVar("T")
# The terms of msgspec, in the words of these files.
_WORDS = {
    "Object contains unknown field": "unknown key",
    "Object missing required field": "missing key",
    "`array`": "a list",
    "`object`": "a table",
    "`str`": "a text",
    "`int`": "a whole number",
    "`float`": "a number",
}
_UNKNOWN = re.compile(r"unknown key `(.*)`")


def shaped(
    data: object,
    kind: type[T],
    bad: Callable[[str, str | None], TesseraError],
    parts: Iterable[type[msgspec.Struct]] = (),
) -> T:
    """The data as a record; `bad` makes the error of a headline and a hint.

    For an unknown key, the hint names a similar key of the classes `parts`, if there is one.
    """
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as fault:
        what, _, path = str(fault).partition(" - at ")
        place = path.strip("`").removeprefix("$").removeprefix(".")
        for theirs, ours in _WORDS.items():
            what = what.replace(theirs, ours)
        known = sorted({name for part in parts for name in part.__struct_fields__})
        unknown = _UNKNOWN.fullmatch(what)
        near = difflib.get_close_matches(unknown[1], known, n=1) if unknown else []
        hint = f"did you mean `{near[0]}`?" if near else None
        where = f", at `{place}`" if place else ""
        raise bad(f"{what[:1].lower()}{what[1:]}{where}", hint) from None
