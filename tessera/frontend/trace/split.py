"""Splits a trace's text into records and the PTX of its modules, with exact positions.

In: the `Source` of a whole file. Out: `Line`s (records) and `Segment`s (the PTX of a module) in
file order, or the finding that the file is plain PTX. Lines that start with `//!` are records. A
module's PTX reaches from its `module` record to the next record of the kinds `module`, `launch`,
`memset`, `memcpy`, `op`; other records inside it are blanked in the segment's text, and those after
its last line are left out, so that segment lines are file lines and a module is the same text after
printing and reading again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tessera.diagnostics import Source
from tessera.frontend.trace.records import RECORDS

MARK = "//!"

_RECORD = re.compile(r"^//![^\n]*", re.MULTILINE)
_FIRST_WORD = re.compile(r"//![ \t]*([^\s=\[\]{}]*)")
_INDENTED = re.compile(
    r"^[ \t]+(//![ \t]*(?:" + "|".join(map(re.escape, RECORDS)) + r")(?=\s|$))", re.MULTILINE
)
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_ENDS_MODULE = frozenset(word for word, kind in RECORDS.items() if kind.ends_module)


@dataclass(frozen=True, slots=True)
class Line:
    """A record: its first word, and characters `start` to `end` of the file."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Segment:
    """The PTX of the `module` record before it, as a source of its own."""

    source: Source


@dataclass(frozen=True, slots=True)
class Stray:
    """Characters `start` to `end`, which are not a record, a comment or part of a module."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Indented:
    """A record at characters `start` to `end` that does not start its line."""

    start: int
    end: int


Part = Line | Segment | Stray | Indented


def is_trace(text: str) -> bool:
    """Whether a text has any record; other `//!` comments do not count."""
    if MARK not in text:
        return False
    return any(_kind(text, record.start()) in RECORDS for record in _RECORD.finditer(text))


def split_trace(source: Source) -> list[Part]:
    """The parts of a trace in file order; a module's segment follows its record."""
    splitter = _Splitter(source)
    for record in _RECORD.finditer(source.text):
        splitter.record(record.start(), record.end())
    splitter.finish()
    indented = [Indented(*line.span(1)) for line in _INDENTED.finditer(source.text)]
    return [*indented, *splitter.parts]


def _kind(text: str, start: int) -> str:
    word = _FIRST_WORD.match(text, start)
    return word[1] if word else ""


class _Splitter:
    """Walks the records of a file once, closing each module's segment as it ends."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.parts: list[Part] = []
        self._position = 0  # end of the last record line, its line end included
        self._module: Line | None = None
        self._pieces: list[tuple[int, int, bool]] = []  # start, end, is a record
        self._index = -1  # where in `parts` the open module's segment goes
        self._line = 1
        self._counted = 0

    def record(self, start: int, end: int) -> None:
        self._between(start)
        text = self.source.text
        stop = min(end + 1, len(text))
        line = Line(_kind(text, start), start, end - (text[end - 1] == "\r"))
        if line.kind in _ENDS_MODULE:
            self._close()
        elif self._module is not None:
            self._pieces.append((start, stop, True))
        self.parts.append(line)
        if line.kind == "module":
            self._module = line
            self._index = len(self.parts)
            self.parts.append(Stray(stop, stop))  # replaced when the segment is complete
        self._position = stop

    def finish(self) -> None:
        self._between(len(self.source.text))
        self._close()

    def _between(self, end: int) -> None:
        """Take the text since the last record: PTX of the open module, comments, or stray text."""
        start = self._position
        if start >= end:
            return
        if self._module is not None:
            self._pieces.append((start, end, False))
            return
        text = self.source.text[start:end]
        bare = _COMMENTS.sub(lambda comment: re.sub(r"[^\n]", " ", comment[0]), text)
        if stray := re.search(r"\S[^\n]*", bare):
            stop = start + stray.start() + len(stray[0].rstrip())
            self.parts.append(Stray(start + stray.start(), stop))

    def _close(self) -> None:
        if self._module is None:
            return
        first = self._pieces[0][0] if self._pieces else self._position
        segment = Source(self.source.name, self._segment_text(), self._line_number(first))
        self.parts[self._index] = Segment(segment)
        self._module, self._pieces = None, []

    def _segment_text(self) -> str:
        """The open module's PTX: records in it are blanked, and those after its last line left
        out."""
        text = self.source.text
        pieces = self._pieces
        last = next((i for i in reversed(range(len(pieces))) if self._has_text(pieces[i])), -1)
        kept = pieces[: max(last + 1, 1 if pieces and not pieces[0][2] else 0)]
        joined = "".join("\n" if blank else text[start:end] for start, end, blank in kept)
        return joined if joined.endswith("\n") or not joined else joined + "\n"

    def _has_text(self, piece: tuple[int, int, bool]) -> bool:
        start, end, is_record = piece
        return not is_record and not self.source.text[start:end].isspace()

    def _line_number(self, offset: int) -> int:
        self._line += self.source.text.count("\n", self._counted, offset)
        self._counted = offset
        return self._line
