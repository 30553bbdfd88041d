"""Output of the commands: findings on standard error, data on standard output or in a file."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import click

from tessera.diagnostics import Diagnostic, TesseraError
from tessera.output import Kind, write_file
from tessera.report import diagnostics as render
from tessera.settings import read_settings


def at_terminal() -> bool:
    """Whether standard error is a terminal; it may be closed."""
    return sys.stderr is not None and sys.stderr.isatty()


def page_width(target: str = "-") -> int | None:
    """The width of the terminal that shows standard output; None for a file or a pipe."""
    if target != "-" or sys.stdout is None or not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns  # `COLUMNS`, if it is set


def silence(stream: Any) -> None:
    """Discard buffered output of a stream whose reader is gone, also at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Forgiving:
    """Standard error that may be closed with its terminal, which must not end a run."""

    def __init__(self) -> None:
        self._stream = sys.stderr

    def write(self, text: str) -> int:
        """Write what can be written."""
        try:
            return self._stream.write(text)
        except OSError:
            silence(self._stream)
            return len(text)

    def flush(self) -> None:
        """Flush what can be flushed."""
        try:
            self._stream.flush()
        except OSError:
            silence(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@dataclass(frozen=True, slots=True)
class Messages:
    """How to show findings on standard error."""

    color: str = "auto"
    form: str = "full"

    def show(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Print findings in the chosen form."""
        shown = tuple(diagnostics)
        if not shown:
            return
        if self.form == "json":
            text = render.render_json(shown)
        elif self.form == "concise":
            text = render.render_concise(shown)
        else:
            text = render.render_full(shown, self._colored())
        try:
            click.echo(text, err=True, color=True)
        except OSError:
            silence(sys.stderr)

    def _colored(self) -> bool:
        if self.color != "auto":
            return self.color == "always"
        return at_terminal() and read_settings().color is not False


class ReaderGone(Exception):
    """The reader of standard output is gone. Not an OSError: click would exit with 1."""


def write_data(data: bytes, target: str, kind: Kind = Kind.REPORT) -> None:
    """Data to a file, or to standard output for `-`."""
    if target != "-":
        write_file(target, data, kind)
        return
    if sys.stdout is None:
        raise TesseraError.of("TSR1911", "cannot write standard output: it is closed")
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise ReaderGone from None


def write_text(text: str) -> None:
    """Text to standard output; what cannot be encoded is replaced."""
    write_data(text.encode(errors="replace"), "-")
