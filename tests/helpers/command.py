"""Run `tessc` inside the test process, with its output and exit code caught."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from unittest import mock

from tessera.cli import main as cli


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command line left behind."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.out.decode()


class _Stream(io.TextIOWrapper):
    """A text stream that keeps its bytes after it is closed."""

    def __init__(self, data: bytes = b"") -> None:
        self.bytes = io.BytesIO(data)
        super().__init__(self.bytes, encoding="utf-8", errors="surrogateescape", newline="\n")


def tessc(*arguments: str, stdin: bytes = b"") -> Outcome:
    """Run a command line, `tessc` itself left off."""
    streams = {"stdin": _Stream(stdin), "stdout": _Stream(), "stderr": _Stream()}
    with mock.patch.multiple(sys, **streams):
        code = cli.run(list(arguments))
        streams["stdout"].flush()
        streams["stderr"].flush()
    return Outcome(
        code, streams["stdout"].bytes.getvalue(), streams["stderr"].bytes.getvalue().decode()
    )
