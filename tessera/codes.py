"""The table of diagnostic codes, and the pages that explain them.

A code never changes its meaning: 1xxx syntax and files, 2xxx analysis, 3xxx planning, 4xxx
lowering, 5xxx running, 9xxx a fault of Tessera's own. Every code has a page
`explain/<code>.md` with the sections What it means, Why it matters, Example, What to do; the
tests hold the table, the pages and the code that reports them against each other.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from tessera.diagnostics import Severity

_PAGES = Path(__file__).parent / "explain"


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of finding: its code, what it says in general, and how bad it is by default."""

    code: str
    title: str
    severity: Severity = Severity.ERROR


_WARNING = Severity.WARNING

CODES: tuple[Code, ...] = (
    Code("TSR1900", "the file does not exist"),
    Code("TSR1901", "a folder was given in place of a file"),
    Code("TSR1902", "the file cannot be read"),
    Code("TSR1903", "the file is empty"),
    Code("TSR1904", "the file is too large"),
    Code("TSR1905", "the file is GPU machine code, not PTX"),
    Code("TSR1906", "the file is a host binary or a fat binary, not PTX"),
    Code("TSR1907", "the file is compressed"),
    Code("TSR1908", "the text is UTF-16 or UTF-32"),
    Code("TSR1909", "the file holds binary data"),
    Code("TSR1910", "the text is another language, not PTX"),
    Code("TSR1911", "the output cannot be written"),
    Code("TSR9000", "an internal error of Tessera"),
)

_BY_CODE = {entry.code: entry for entry in CODES}


def find_code(text: str) -> Code | None:
    """The entry for a code as a user may type it: `TSR1900`, `tsr1900` or `1900`."""
    return _BY_CODE.get(_canonical(text))


def near_codes(text: str) -> tuple[Code, ...]:
    """Up to three entries whose code or title is close to `text`, nearest first."""
    wanted = _canonical(text)
    by_code = difflib.get_close_matches(wanted, _BY_CODE, n=3, cutoff=0.7)
    if by_code:
        return tuple(_BY_CODE[code] for code in by_code)
    words = [word for word in text.lower().split() if len(word) > 2]
    hits = [entry for entry in CODES if any(word in entry.title.lower() for word in words)]
    return tuple(hits[:3])


def explain(entry: Code) -> str:
    """The page of a code, in Markdown."""
    return (_PAGES / f"{entry.code}.md").read_text(encoding="utf-8")


def _canonical(text: str) -> str:
    stripped = text.strip().upper()
    return f"TSR{stripped}" if stripped.isascii() and stripped.isdigit() else stripped
