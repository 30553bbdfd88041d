"""The PTX parser that comes with the package, and its lexer, are those that Lark would make."""

from __future__ import annotations

from typing import Any

import lark
import pytest
from lark import Lark

from tessera.diagnostics import Source, TesseraError
from tessera.frontend.ptx import grammar
from tessera.frontend.ptx.stored_parser import stored_parser
from tessera.frontend.text.grammar import grammar_text
from tests.helpers.corpus import ROOT, handwritten_texts

LOCKED = (ROOT / "requirements-dev.lock").read_text()
of_locked_version = pytest.mark.skipif(
    f"lark=={lark.__version__}\n" not in LOCKED, reason="stored for another version of Lark"
)


def rows(parser: Lark) -> dict[str, list[Any]]:
    """The states in order of their first visit, by start rule, with their actions."""
    frontend: Any = parser.parser
    table = frontend.parser._parse_table
    found: dict[str, list[Any]] = {}
    for start, first in table.start_states.items():
        number = {first: 0}
        found[start] = []
        for state in number_in_turn(number):
            row: list[tuple[str, str, object]] = []
            for token, (action, aim) in sorted(table.states[state].items()):
                if str(action) == "Shift":
                    aim = number.setdefault(aim, len(number))
                row.append((token, str(action), str(aim)))
            found[start].append(row)
        found[start].append(number[table.end_states[start]])
    return found


def number_in_turn(number: dict[int, int]) -> Any:
    """The keys of a dictionary that grows meanwhile."""
    turn = 0
    while turn < len(number):
        yield list(number)[turn]
        turn += 1


def terminals(parser: Lark) -> list[tuple[str, str, int]]:
    """The terminals that the grammar spells, and their priorities."""
    spelled = [t for t in parser.terminals if t.name not in grammar.FAST_TERMINALS]
    return sorted((t.name, t.pattern.to_regexp(), t.priority) for t in spelled)


@of_locked_version
def test_the_stored_parser_is_that_of_the_grammar() -> None:
    """To store it again: `python tools/store_parser.py`."""
    loaded = grammar.load_parser()
    assert loaded is not None
    built, _ = grammar.build_parser()
    assert rows(loaded[0]) == rows(built)
    assert terminals(loaded[0]) == terminals(built)
    assert loaded[0].lexer_conf.ignore == built.lexer_conf.ignore


@of_locked_version
def test_another_grammar_has_no_stored_parser() -> None:
    assert stored_parser(grammar_text("ptx") + "\n", {}) is None
    assert stored_parser(grammar_text("ptx"), {}) is not None


def read(text: str) -> object:
    """The module, or what is wrong with it."""
    try:
        return grammar.parse_whole(Source("t.ptx", text), with_runs=False)
    except TesseraError as fault:
        return fault.diagnostics


@pytest.mark.parametrize("cut", [None, 0.5, pytest.param(0.9, marks=pytest.mark.slow)])
def test_the_lexer_is_that_of_lark(cut: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [text[: cut and int(cut * len(text))] for _, text in handwritten_texts()]
    ours = [read(text) for text in texts]
    monkeypatch.setattr(grammar, "_PLUGINS", {})
    built = grammar.build_parser(with_runs=False)
    monkeypatch.setattr(grammar, "_shared_parser", lambda _: built)
    assert [read(text) for text in texts] == ours
