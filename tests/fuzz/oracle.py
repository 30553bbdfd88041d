"""What must hold of `parse_module` for any text at all.

It returns a module that survives printing, or raises `TesseraError` whose diagnostics have a
code, a headline and a place inside the text; within a time limit, and never anything else.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tessera.diagnostics import Diagnostic, TesseraError
from tessera.frontend.ptx.read_ptx import parse_module
from tessera.frontend.text.readfile import source_of_text
from tessera.ir.ptx.print_ptx import print_module

CODE = re.compile(r"TSR1\d{3}")


class TooLong(BaseException):
    """Raised by the timer; not an Exception, so that no handler takes it for an error of ours."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`accepted`, `refused`, or the name of the broken rule with what happened."""

    outcome: str
    detail: str = ""
    line: int | None = None

    @property
    def sound(self) -> bool:
        """Whether no rule was broken."""
        return self.outcome in ("accepted", "refused")


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TooLong` in the main thread after some seconds."""

    def give_up(*_: object) -> None:
        raise TooLong

    previous = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def judge(text: str, seconds: float = 10.0) -> Verdict:
    """Parse a text and check every rule."""
    try:
        with time_limit(seconds):
            return _judge(text)
    except TooLong:
        return Verdict("hang", f"more than {seconds} s")
    except Exception as crash:
        return Verdict("crash", f"{type(crash).__name__}: {crash}"[:300])


def _judge(text: str) -> Verdict:
    try:
        module = parse_module(text, "fuzz.ptx")
    except TesseraError as failure:
        return _judge_refusal(text, failure)
    printed = print_module(module)
    try:
        again = parse_module(printed, "printed.ptx")
    except TesseraError as failure:
        return Verdict("unprintable", str(failure)[:300])
    if again != module:
        return Verdict("unequal", "the printed text parses to another module")
    return Verdict("accepted")


def _judge_refusal(text: str, failure: TesseraError) -> Verdict:
    if not failure.diagnostics:
        return Verdict("silent", "an error without diagnostics")
    for diagnostic in failure.diagnostics:
        fault = _fault_of(text, diagnostic)
        if fault:
            return Verdict("misplaced", f"{fault}: {diagnostic.headline}"[:300])
    first = failure.diagnostics[0]
    line = (
        first.primary.span.source.position(first.primary.span.start)[0] if first.primary else None
    )
    return Verdict("refused", first.code, line)


def _fault_of(text: str, diagnostic: Diagnostic) -> str | None:
    if not CODE.fullmatch(diagnostic.code):
        return f"code {diagnostic.code} is not of the syntax group"
    if not str(diagnostic.headline).strip():
        return "no headline"
    labels = [*diagnostic.secondary]
    if diagnostic.primary is None:
        return "no position"
    for label in [diagnostic.primary, *labels]:
        span = label.span
        if span.source.text != source_of_text(text, span.source.name).text:
            return "a span in another text"
        if not 0 <= span.start <= span.end <= len(text):
            return f"a span outside the text: {span.start}..{span.end} of {len(text)}"
    return None
