"""The page on the trace format says what the reader does: kinds, keys, types, roles, examples."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tessera.frontend.trace.read_trace import parse_trace
from tessera.frontend.trace.records import RECORDS
from tessera.ir.program.data_type import DataType
from tessera.ir.program.print_trace import print_program
from tessera.ir.program.program import Role

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "trace-format.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```trace\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", EXAMPLES)
def test_examples_are_valid(text: str) -> None:
    program = parse_trace(text)
    assert parse_trace(print_program(program)) == program


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 4


def test_the_table_of_records() -> None:
    rows = re.findall(r"^\| `([a-z.]+)[^|]*` \| ?([^|]*)\| ?([^|]*)\|$", PAGE, re.MULTILINE)
    table = {kind: tuple(_words(cell) for cell in cells) for kind, *cells in rows}
    assert set(RECORDS) <= set(table)
    for word, kind in RECORDS.items():
        assert table[word] == (set(kind.required_keys), set(kind.optional_keys))


def test_every_type_and_role_is_named() -> None:
    words = set(re.findall(r"`([a-z0-9]+)`", PAGE))
    assert {kind.value for kind in DataType} <= words
    assert {role.value for role in Role if role is not Role.VARIABLE} <= words


def _words(cell: str) -> set[str]:
    return set(re.findall(r"`([a-z_]+)`", cell))
