"""Every fault in `*.ptx` of this folder is reported where its expectation stands, once.

`// expect: CODE words` names a finding on its own line, `// expect-next:` on the line after, and
`// expect-above:` on the line before, where a line cannot carry a comment. The words have to
occur in the headline or in the label. Missing and unexpected findings both fail.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tessera.diagnostics import Diagnostic
from tests.helpers.explained import findings

HERE = Path(__file__).parent
FILES = sorted(HERE.rglob("*.ptx"))
EXPECTATION = re.compile(r"//\s*expect(-next|-above)?:\s*(TSR\d{4})[ \t]*(.*?)\s*$")
SHIFT = {None: 0, "-next": 1, "-above": -1}


def expectations(text: str) -> list[tuple[int, str, str]]:
    """Line, code and words of each expectation; a line may hold several."""
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        for part in re.split(r"(?=//\s*expect)", line.rstrip("\r")):
            if match := EXPECTATION.match(part):
                found.append((number + SHIFT[match[1]], match[2], match[3]))
    return sorted(found)


def line_of(found: Diagnostic) -> int:
    if found.primary is None:
        return 0
    return found.primary.span.source.position(found.primary.span.start)[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HERE)))
def test_expected_findings(path: Path) -> None:
    wanted = expectations(path.read_bytes().decode("utf-8", "surrogateescape"))
    assert wanted, "a file in this folder has to expect something"
    found = sorted(findings(path), key=lambda d: (line_of(d), d.code))
    assert [(line_of(d), d.code) for d in found] == [(line, code) for line, code, _ in wanted]
    for diagnostic, (_, _, words) in zip(found, wanted, strict=True):
        label = diagnostic.primary.text if diagnostic.primary else ""
        assert words in f"{diagnostic.headline} {label}"


def test_there_are_files() -> None:
    assert FILES
