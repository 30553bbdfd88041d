"""A planted fault as it is recorded, and what Tessera says about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tessera.diagnostics import Severity, TesseraError
from tessera.frontend.ptx.read_ptx import parse_module
from tests.fuzz.faults.text import DATA, Edit

RECORDED, FLOORS = DATA / "recorded.jsonl", DATA / "floors.json"
Seen = tuple[int | None, str]


@dataclass(frozen=True, slots=True)
class Planted:
    """A fault in a file: lines count from 0 in the edit and from 1 in what ptxas names."""

    file: str
    kind: str
    edit: Edit
    ptxas_lines: tuple[int, ...]
    said: str

    def to_json(self) -> dict[str, Any]:
        """The record as plain data."""
        edit = self.edit
        return {
            "file": self.file,
            "kind": self.kind,
            "edit": [edit.at, edit.removed, list(edit.lines), edit.fault],
            "ptxas": list(self.ptxas_lines),
            "said": self.said,
        }

    @staticmethod
    def from_json(row: dict[str, Any]) -> Planted:
        """The record of plain data."""
        at, removed, lines, fault = row["edit"]
        edit = Edit(at, removed, tuple(lines), fault)
        return Planted(row["file"], row["kind"], edit, tuple(row["ptxas"]), row["said"])

    def outcome(self, seen: Seen) -> str:
        """`accepted`, `right line` or `wrong line`."""
        if seen[0] is None:
            return "accepted"
        return "right line" if seen[0] in (self.edit.fault + 1, *self.ptxas_lines) else "wrong line"


def apply(text: str, edit: Edit) -> str:
    """The text with the fault in it."""
    return "\n".join(edit.apply(text.split("\n")))


def look(text: str) -> Seen:
    """The line and the headline of Tessera's first error; None where it accepts the text."""
    try:
        parse_module(text, "fault.ptx")
    except TesseraError as failure:
        for found in failure.diagnostics:
            if found.severity is Severity.ERROR and found.primary is not None:
                span = found.primary.span
                return span.source.position(span.start)[0], f"{found.code} {found.headline}"
        return 0, "an error without a place"
    return None, ""
