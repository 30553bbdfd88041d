"""Collects the findings of a trace: exact places, at most 20 errors, in file order.

`TraceFindings.error` and `fail` take offsets into the trace's own text; `fail` also abandons the
current record, so that one fault is reported once and the next record is read as usual.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable
from typing import NoReturn

from tessera.diagnostics import Diagnostic, Label, Severity, Source, Span, error, warning
from tessera.ir.gather_findings import Finding, gather_findings

MAX_ERRORS = 20

_LONGEST_NAME = 80
_MAX_CANDIDATES = 1000


class RecordAbandoned(Exception):
    """The current record cannot be used; its fault has been reported."""


class TooManyErrors(Exception):
    """Reading stops: there are `MAX_ERRORS` errors."""


class TraceFindings:
    """The diagnostics of one trace so far."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._diagnostics: list[Diagnostic] = []
        self._warnings: list[Finding] = []
        self._errors = 0

    @property
    def has_errors(self) -> bool:
        """Whether any finding makes the trace unusable."""
        return self._errors > 0

    def add(self, diagnostic: Diagnostic) -> None:
        """Keep a diagnostic made elsewhere; stops the reading at the limit."""
        self._diagnostics.append(diagnostic)
        if diagnostic.severity is Severity.ERROR:
            self._errors += 1
            if self._errors >= MAX_ERRORS:
                raise TooManyErrors

    def span(self, start: int, end: int) -> Span:
        """Characters of the trace; at least one, so that a caret has a place."""
        return Span(self.source, start, max(end, start + 1))

    def error(
        self,
        code: str,
        headline: str,
        place: tuple[int, int],
        label: str = "",
        *,
        secondary: Iterable[Label] = (),
        notes: tuple[str, ...] = (),
        hint: str | None = None,
    ) -> None:
        """Report an error at characters `place` of the trace."""
        span = self.span(*place)
        others = tuple(secondary)
        self.add(error(code, headline, span, label, secondary=others, notes=notes, hint=hint))

    def warning(
        self,
        code: str,
        headline: str,
        place: tuple[int, int],
        label: str = "",
        *,
        about: tuple[str, ...],
        hint: str,
    ) -> None:
        """Report a warning at characters `place` of the trace, once for each value of `about`."""
        span = self.span(*place)
        diagnostic = warning(code, headline, span, label, hint=hint)
        self._warnings.append(Finding(diagnostic, about, span))

    def fail(
        self,
        code: str,
        headline: str,
        place: tuple[int, int],
        label: str = "",
        *,
        secondary: Iterable[Label] = (),
        notes: tuple[str, ...] = (),
        hint: str | None = None,
    ) -> NoReturn:
        """Report an error and abandon the record."""
        self.error(code, headline, place, label, secondary=secondary, notes=notes, hint=hint)
        raise RecordAbandoned

    def in_file_order(self) -> tuple[Diagnostic, ...]:
        """Everything found, by line and column."""
        return tuple(sorted([*self._diagnostics, *gather_findings(self._warnings)], key=_position))


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint with the nearest known names, or None if none is near."""
    wanted = name[:_LONGEST_NAME]
    candidates = list(known)
    if len(candidates) > _MAX_CANDIDATES:  # comparing is slow: keep those of about the same length
        slack = 1 + len(wanted) // 4
        similar = (word for word in candidates if abs(len(word) - len(wanted)) <= slack)
        candidates = list(itertools.islice(similar, _MAX_CANDIDATES))
    near = difflib.get_close_matches(wanted, candidates, n=2, cutoff=0.6)
    if not near:
        return None
    return "did you mean " + " or ".join(f"`{word}`" for word in near) + "?"


def _position(diagnostic: Diagnostic) -> tuple[int, int]:
    if diagnostic.primary is None:
        return (0, 0)
    span = diagnostic.primary.span
    return span.source.position(span.start)
