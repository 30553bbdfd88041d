"""The table of trace records agrees with the grammar and with the records of the program."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from tessera.diagnostics import Source
from tessera.frontend.ptx.read_ptx import parse_source
from tessera.frontend.text.grammar import grammar_text
from tessera.frontend.trace.build_trace import ProgramBuilder, _unreadable
from tessera.frontend.trace.findings import TraceFindings
from tessera.frontend.trace.parse_record import record_forms
from tessera.frontend.trace.records import HIGHEST, LIMITS, RECORDS

# Fields that no name and no key fills: counted, or known from the place of a record.
ELSEWHERE = {"id", "notes", "ctas", "module", "variants", "span", "name_place", "arch_place"}


@pytest.fixture(scope="module")
def builder() -> ProgramBuilder:
    return ProgramBuilder(TraceFindings(Source("t.ptx", "")), parse_source, 0)


def test_the_grammar_has_the_same_records() -> None:
    forms = record_forms()
    rule = re.search(r"^record:.*?\n\n", grammar_text("trace"), re.MULTILINE | re.DOTALL)
    assert rule is not None
    assert list(forms) == re.findall(r'"([a-z.]+)"', rule[0])
    assert set(forms) == set(RECORDS)
    for word, form in forms.items():
        assert len(form.names) == len(RECORDS[word].names)
        takes_keys = form.rest.fullmatch(" key=value") is not None
        assert takes_keys == bool(RECORDS[word].keys or RECORDS[word].takes_notes)


@pytest.mark.parametrize("word", RECORDS)
def test_every_field_comes_from_somewhere(word: str) -> None:
    kind = RECORDS[word]
    filled = [key.field for key in (*kind.names, *kind.keys)]
    assert len(set(filled)) == len(filled)
    missing = {one.name for one in fields(kind.record)} - set(filled)
    assert missing <= ELSEWHERE
    assert all(key.required for key in kind.names)


@pytest.mark.parametrize("word", RECORDS)
def test_every_value_has_a_reader_and_every_record_a_taker(
    word: str, builder: ProgramBuilder
) -> None:
    assert word in builder._takers
    for key, special, by_type in builder._readers[word]:
        assert special is not None or by_type is not _unreadable, key
        if key.type in ("int", "bool"):
            assert key.name in LIMITS
        if key.type == "Triple":
            assert key.name in HIGHEST


def test_no_reader_is_for_a_key_that_is_not_there(builder: ProgramBuilder) -> None:
    keys = {(word, k.name) for word, kind in RECORDS.items() for k in (*kind.names, *kind.keys)}
    streams = {(word, "stream") for word in RECORDS}
    assert set(builder.steps.readers) - streams <= keys
    assert set(builder.steps.takers) <= set(RECORDS)
