"""The changelog has the form that it promises."""

from __future__ import annotations

import re

import tessera
from tests.docs.pages import ROOT, read

TEXT = read(ROOT / "CHANGELOG.md")
KINDS = ["Added", "Changed", "Fixed", "Security", "Removed"]


def test_versions() -> None:
    versions = re.findall(r"^## (.*)$", TEXT, re.MULTILINE)
    assert versions[0] == "Unreleased"
    assert versions[1].split()[0] == tessera.__version__
    assert all(re.match(r"\d+\.\d+\.\d+", version) for version in versions[1:])


def test_sections() -> None:
    for part in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]:
        sections = re.findall(r"^### (.*)$", part, re.MULTILINE)
        assert sections == [kind for kind in KINDS if kind in sections]


def test_every_line_stands_in_a_section() -> None:
    section = None
    for line in TEXT.splitlines():
        if line.startswith("#"):
            section = line[4:] if line.startswith("### ") else None
        assert not line.startswith("- ") or section in KINDS, line
    lines = [line for line in TEXT.splitlines() if line]
    assert all(line.startswith(("#", "- ")) for line in lines[2:] if line != "The first version.")
    assert not re.search(r"^[ \t]+-", TEXT, re.MULTILINE)
