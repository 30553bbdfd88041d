"""A short run of the fuzz target, and tests of its judge."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.fuzz import oracle, positions
from tests.fuzz.mutate import MUTATIONS, mutate
from tests.fuzz.ptx import case_text, run_cases, sources
from tests.helpers.corpus import handwritten_texts
from tests.helpers.ptxas import find_ptxas
from tests.helpers.share import share

TEXTS = [text for _, text in handwritten_texts()]
VALID = ".version 8.0\n.target sm_80\n.address_size 64\n.entry k() { ret; }\n"


def test_damaged_files_are_refused_in_place_or_accepted() -> None:
    outcome = run_cases(20, iter(range(250)), TEXTS)
    assert outcome["failures"] == []
    assert outcome["outcomes"]["refused"] > 100


@pytest.mark.slow
def test_many_damaged_files() -> None:
    outcome = run_cases(21, iter(range(3000)), sources())
    assert outcome["failures"] == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_mutation_changes_the_text(mutation: oracle.Verdict) -> None:
    texts = [mutation(TEXTS[3], random.Random(seed), TEXTS) for seed in range(20)]  # type: ignore[operator]
    assert any(text != TEXTS[3] for text in texts)


def test_a_case_is_reproduced_by_its_number() -> None:
    assert case_text(5, 17, TEXTS) == case_text(5, 17, TEXTS)
    assert case_text(5, 17, TEXTS) != case_text(5, 18, TEXTS)
    assert mutate(random.Random(1), TEXTS) == mutate(random.Random(1), TEXTS)


def test_judge_accepts_valid_text() -> None:
    assert oracle.judge(VALID).outcome == "accepted"


def test_judge_gives_the_line_of_a_fault() -> None:
    verdict = oracle.judge(VALID.replace("ret;", "\nret;\nbra nowhere;"))
    assert (verdict.outcome, verdict.line) == ("refused", 6)


def test_judge_calls_a_crash_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "parse_module", lambda *_: 1 // 0)
    assert oracle.judge(VALID).outcome == "crash"


def test_judge_calls_a_hang_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait_for_ever(*_: object) -> None:
        for _unused in itertools.count():
            pass

    monkeypatch.setattr(oracle, "parse_module", wait_for_ever)
    assert oracle.judge(VALID, seconds=0.05).outcome == "hang"


def test_judge_calls_a_lossy_printer_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "print_module", lambda _: VALID.replace("ret", "exit"))
    assert oracle.judge(VALID).outcome == "unequal"


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not on PATH")
def test_faults_are_found_where_ptxas_finds_them() -> None:
    table = positions.check_positions(per_kind=len(share(range(2))), texts=positions.plain_texts())
    for kind, row in table.items():
        assert row["we refuse"] == row["ptxas refuses"] == row["cases"], kind
        assert row["elsewhere"] == [], kind


@pytest.mark.parametrize("fault", positions.FAULTS, ids=lambda fault: fault.__name__)
def test_fault_changes_the_text_at_its_line(fault: positions.Fault) -> None:
    name, text = positions.plain_texts()[0]
    injected = positions.inject(text, fault, random.Random(3))
    assert injected is not None, name
    assert injected[0] != text
    assert 1 <= injected[1] <= injected[0].count("\n") + 1
