"""Which opcodes of the table have forms: all but those that a file lists."""

from __future__ import annotations

from pathlib import Path

from tessera.ir.opcodes import OPCODES, form_table
from tessera.ir.ptx import syntax as ptx

LIST = Path(__file__).parents[2] / "data" / "opcodes" / "without_forms.txt"


def test_every_opcode_has_forms_or_is_listed() -> None:
    lines = LIST.read_text("utf-8").splitlines()
    listed = {line for line in lines if line and not line.startswith("#")}
    missing = {name for name in OPCODES if not _has_forms(name)}
    assert missing - listed == set(), "add lines to `FORMS` of the family, or list these"
    assert listed - missing == set(), "these have forms: take them off the list"


def _has_forms(dotted: str) -> bool:
    words = tuple(dotted.split("."))
    begins = any(name[: len(words)] == words for name in form_table._LINES)
    return begins or bool(form_table.forms_of(ptx.Opcode(words[0], words[1:])))
