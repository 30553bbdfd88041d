"""Types are said, not waived: how many lines name `Any`, and how many files switch a check off.

The numbers only go down. Whoever takes some away lowers them here.
"""

from __future__ import annotations

import re
from pathlib import Path

import tessera

PACKAGE = Path(tessera.__file__).parent
MOST_LINES_WITH_ANY = 236
MOST_FILES_WITHOUT_A_CHECK = 0
_ANY = re.compile(r"\bAny\b")
_SWITCHED_OFF = re.compile(r"^# mypy: ", re.MULTILINE)


def _texts() -> dict[Path, str]:
    return {path: path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


def test_any_is_named_no_more_often_than_before() -> None:
    by_file = {
        path.relative_to(PACKAGE).as_posix(): sum(
            1 for line in text.splitlines() if _ANY.search(line)
        )
        for path, text in _texts().items()
    }
    total = sum(by_file.values())
    worst = sorted(by_file.items(), key=lambda item: -item[1])[:5]
    assert total <= MOST_LINES_WITH_ANY, (
        f"{total} lines of tessera/ name `Any`, at most {MOST_LINES_WITH_ANY} may: say the type"
        f" (`tessera/ir/arrays.py` names those of arrays). Most are in {worst}"
    )


def test_no_file_switches_a_check_of_mypy_off() -> None:
    odd = [path.name for path, text in _texts().items() if _SWITCHED_OFF.search(text)]
    assert len(odd) <= MOST_FILES_WITHOUT_A_CHECK, (
        f"{len(odd)} files switch a mypy code off, at most {MOST_FILES_WITHOUT_A_CHECK} may:"
        f" {', '.join(odd)}. Name a local of the type that the function returns instead"
    )
