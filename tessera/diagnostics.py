"""Findings about user input: one record, rendered in several forms by `render`.

A `Diagnostic` has a stable code (`codes`), a headline that makes sense alone, one primary label
and any number of secondary ones, notes, and a hint that works if followed. Library functions
return diagnostics with their results or raise `TesseraError`, which carries them; only the
command line prints.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from tessera.wording import Wording

LONGEST_TEXT = 1000


@dataclass(frozen=True, slots=True)
class Source:
    """A file, or a run of whole lines of one, that spans point into.

    `first_line` is the line number of the first line of `text` in the file: a PTX module
    inside a trace is a source of its own.
    """

    name: str
    text: str = field(repr=False)
    first_line: int = 1

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column (both from 1) of a character offset."""
        offset = min(max(offset, 0), len(self.text))
        start = self.text.rfind("\n", 0, offset) + 1
        return self.first_line + self.text.count("\n", 0, offset), offset - start + 1

    def line_text(self, offset: int) -> str:
        """The line around a character offset, without its line end."""
        start = self.text.rfind("\n", 0, max(offset, 0)) + 1
        end = self.text.find("\n", start)
        return self.text[start : end if end >= 0 else len(self.text)].rstrip("\r")


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start` to `end` (exclusive) of a source."""

    source: Source
    start: int
    end: int

    def __str__(self) -> str:
        line, column = self.source.position(self.start)
        return f"{self.source.name}:{line}:{column}"


class Severity(enum.Enum):
    """Severity of a finding; only errors change the exit code (warnings do under `--strict`)."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Label:
    """A span, and the text that stands under it."""

    span: Span
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One finding. `primary` is None if no place in a text is to blame."""

    code: str
    severity: Severity
    headline: Wording
    primary: Label | None = None
    secondary: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    hint: str | None = None


def shorten(text: str) -> str:
    """A text to show, without its middle if it is very long (a name may have megabytes)."""
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 60]}...{text[-57:]}"


def _finding(
    severity: Severity,
    code: str,
    headline: str | Wording,
    span: Span | None = None,
    label: str = "",
    *,
    secondary: tuple[Label, ...] = (),
    notes: tuple[str, ...] = (),
    hint: str | None = None,
) -> Diagnostic:
    """A finding, with the common parts by position."""
    return Diagnostic(
        code=code,
        severity=severity,
        headline=Wording(shorten(str(headline))),
        primary=None if span is None else Label(span, shorten(label)),
        secondary=secondary,
        notes=notes,
        hint=hint,
    )


error = partial(_finding, Severity.ERROR)
warning = partial(_finding, Severity.WARNING)
note = partial(_finding, Severity.NOTE)


class ExitCode(enum.IntEnum):
    """Exit statuses of `tessc`."""

    OK = 0
    ERRORS = 1
    USAGE = 2
    NO_PLAN = 3
    NO_DEVICE = 4
    MISMATCH = 5
    FAULT = 6
    INTERNAL = 70
    INTERRUPTED = 130


class TesseraError(Exception):
    """Input that cannot be used. `exit_code` is the exit code of the command line."""

    def __init__(
        self, diagnostics: Iterable[Diagnostic] | Diagnostic, exit_code: int = ExitCode.ERRORS
    ) -> None:
        if isinstance(diagnostics, Diagnostic):
            diagnostics = (diagnostics,)
        self.diagnostics: tuple[Diagnostic, ...] = tuple(diagnostics)
        self.exit_code = exit_code
        super().__init__("\n".join(map(summarise, self.diagnostics)))

    @classmethod
    def of(
        cls,
        code: str,
        headline: str,
        span: Span | None = None,
        label: str = "",
        *,
        secondary: tuple[Label, ...] = (),
        notes: tuple[str, ...] = (),
        hint: str | None = None,
        exit_code: int = ExitCode.ERRORS,
    ) -> Self:
        """One `error(...)`, to be raised."""
        made = error(code, headline, span, label, secondary=secondary, notes=notes, hint=hint)
        return cls(made, exit_code)

    def __reduce__(self) -> tuple[Callable[..., TesseraError], tuple[object, ...]]:
        return _from_another_process, (type(self), self.args, dict(self.__dict__))


def _from_another_process(
    kind: type[TesseraError], args: tuple[str, ...], fields: dict[str, object]
) -> TesseraError:
    """An error that was raised in another process; its fields are complete."""
    same = kind.__new__(kind, *args)
    same.__dict__.update(fields)
    return same


def summarise(diagnostic: Diagnostic) -> str:
    """The one-line form: `file:line:column: error[CODE] headline`."""
    where = f"{diagnostic.primary.span}: " if diagnostic.primary else ""
    return f"{where}{diagnostic.severity.value}[{diagnostic.code}] {diagnostic.headline}"


def in_one_line(diagnostic: Diagnostic) -> str:
    """The headline and the notes, for a message about something else."""
    return "; ".join((str(diagnostic.headline), *diagnostic.notes))


def in_text_order(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Diagnostics sorted by position; those without a position come first."""
    return sorted(diagnostics, key=lambda d: d.primary.span.start if d.primary else -1)
