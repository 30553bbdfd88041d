"""The targets of `make`: all are in the help."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
# What others call: the help leaves them out.
PARTS = {"help", "setup", "types", "imports", "pytest", "format-check", "lint", "dead"}


def recipe(target: str) -> str:
    """The lines that `make TARGET` would run."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)*)", MAKEFILE, re.MULTILINE)
    assert found, target
    return found[1]


def test_every_target_is_in_the_help() -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):(?!=)", MAKEFILE, re.MULTILINE))
    named = set(re.findall(r'echo "make ([\w-]+)', recipe("help")))
    assert named == targets - PARTS


def test_every_target_is_phony() -> None:
    named = re.findall(r"^(?:\.PHONY:|checks :=)(.*)$", MAKEFILE, re.M)
    phony = set(re.findall(r"[\w-]+", " ".join(named)))
    assert set(re.findall(r"^([a-z][\w-]*):(?!=)", MAKEFILE, re.MULTILINE)) <= phony


def test_make_knows_the_targets() -> None:
    for target in ("bench", "bench-gpu", "fuzz", "corpus"):
        command = ["make", "-n", target, "VENV=/nonexistent"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
