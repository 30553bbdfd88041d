"""Faults that were mended, made again, to see whether generated kernels notice them.

In: `tests/data/sabotage/reverted.txt`, a fault by name. Out: a process of pytest that runs tests
with this fault in Tessera. As a plugin of pytest (`-p tests.helpers.reverted`, with the name in
`TESSERA_REVERTED`) it changes the text of modules before they are imported; no file is changed.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).parents[2]
FAULTS = ROOT / "tests/data/sabotage/reverted.txt"
_NAME = "TESSERA_REVERTED"
_SECONDS = 900  # of processor time; without a fault no generator takes a third of it


@dataclass(slots=True)
class Fault:
    """What was wrong, the commit that mended it, the test that notices it in how many cases, or why
    none does; and the lines to change: a file, its lines of today, and those with the fault."""

    what: str
    mended: str = ""
    by: str = ""
    cases: str = ""
    why: str = ""
    changes: list[tuple[Path, str, str]] = field(default_factory=list)

    def texts(self) -> dict[str, str]:
        """The files with the fault, by path; the lines of today are there once each."""
        texts: dict[str, str] = {}
        for path, old, new in self.changes:
            text = texts.get(str(path)) or path.read_text("utf-8")
            if text.count(old) != 1:
                raise ValueError(f"{self.what}: {path} has these lines {text.count(old)} times")
            texts[str(path)] = text.replace(old, new)
        return texts


def faults() -> list[Fault]:
    """All that are recorded."""
    found: list[Fault] = []
    for line in FAULTS.read_text("utf-8").splitlines(keepends=True):
        kind, _, rest = line.rstrip("\n").partition(": ")
        if kind == "fault":
            found.append(Fault(rest))
        elif kind in ("mended", "by", "cases", "why"):
            setattr(found[-1], kind, rest)
        elif line.startswith("@ "):
            found[-1].changes.append((ROOT / line[2:].strip(), "", ""))
        elif line[0] in "-+ " and found:
            path, old, new = found[-1].changes[-1]
            old += line[1:] if line[0] in "- " else ""
            new += line[1:] if line[0] in "+ " else ""
            found[-1].changes[-1] = path, old, new
    return found


def run_with(fault: Fault, tests: Sequence[str]) -> tuple[int, str]:
    """The exit status of pytest over tests, and what it printed, with a fault. Tests that take much
    longer than without it end by a signal: their status is negative."""
    given = {_NAME: fault.what, "PYTHONPATH": str(ROOT), "HYPOTHESIS_PROFILE": "slow"}
    options = ["-q", "-x", "-n0", "--tb=line", "-pno:cacheprovider", "-ptests.helpers.reverted"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-m", "not gpu", *tests],
        cwd=ROOT,
        env=os.environ | given,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS)),
    )
    return done.returncode, done.stdout + done.stderr


def _install(texts: dict[str, str]) -> None:
    original = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        if self.path in texts:
            return compile(texts[self.path], self.path, "exec", dont_inherit=True)
        return original(self, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]


for _fault in faults():
    if _fault.what == os.environ.get(_NAME):
        _install(_fault.texts())
