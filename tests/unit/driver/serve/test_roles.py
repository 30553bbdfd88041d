"""Replicas with roles on the CPU backend: what one has read, another one answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tessera.driver.serve.engine import Engine
from tests.helpers.host_runs import hosts_file
from tests.helpers.role_plans import (
    APART,
    Cases,
    check_nothing_left,
    deaths_in_hand_overs,
    example_cases,
    role_plan,
    serve_answers,
    tiny_cases,
)
from tests.helpers.tiny_model import LIMIT_S, tiny_answer, tiny_plan, tiny_role_plan

SHARES = {
    "apart": APART,
    "two-answer": ((1.0, 0.0), (0.0, 0.5), (0.0, 0.5)),
    "mixed": ((0.9, 0.3), (0.1, 0.7)),
}


def serve(name: str, roles: str, lanes: int) -> None:
    engine = Engine(role_plan(name, SHARES[roles], lanes=lanes), backend="cpu")
    with engine:
        assert serve_answers(engine, example_cases(name), 3, 30) >= 20
        assert engine.counts.hand_overs >= 5
        assert engine.counts.hand_over_bytes > 0
    check_nothing_left(engine)


def test_tokens_of_a_decoder_whose_prompts_are_read_elsewhere() -> None:
    serve("llama", "apart", 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "gpt", "recurrent"])
@pytest.mark.parametrize("roles", SHARES)
@pytest.mark.parametrize("lanes", [1, 2])
def test_other_families_and_roles(name: str, roles: str, lanes: int) -> None:
    serve(name, roles, lanes)


# --- faults ---------------------------------------------------------------------------------------


def survive(engine: Engine, cases: Cases, seed: int, deaths: int) -> None:
    """Replicas die in hand-overs until so many have: no answer is lost or wrong."""
    with deaths_in_hand_overs(engine, seed, 0.2, deaths) as killed:
        for round_number in range(40 * deaths):
            serve_answers(engine, cases, seed + round_number, 12)
            if len(killed) == deaths:
                break
    assert len(killed) == deaths
    assert 0 < engine.counts.restarts <= deaths
    assert serve_answers(engine, cases, seed, 10) >= 8


def test_a_replica_that_dies_in_a_hand_over_loses_no_sequence() -> None:
    engine = Engine(tiny_role_plan(APART), backend="cpu")
    with engine:
        survive(engine, tiny_cases, 1, 6)
    check_nothing_left(engine)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "roles"), [("llama", "two-answer"), ("gpt", "apart"), ("recurrent", "mixed")]
)
def test_many_replicas_die_in_hand_overs(name: str, roles: str) -> None:
    engine = Engine(role_plan(name, SHARES[roles]), backend="cpu")
    with engine:
        survive(engine, example_cases(name), 5, 34)
    check_nothing_left(engine)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "gpt"])
def test_hosts_that_die_in_hand_overs(tmp_path: Path, name: str) -> None:
    plan = role_plan(name, hosts={"a": "left", "b": "right"})
    rows = ('name = "left"\ndevices = ["a"]', 'name = "right"\ndevices = ["b"]')
    engine = Engine(plan, hosts=hosts_file(tmp_path, *rows))
    with engine:
        assert serve_answers(engine, example_cases(name), 3, 20) >= 14
        assert engine.counts.hand_overs >= 5
        survive(engine, example_cases(name), 7, 10)
    check_nothing_left(engine)


@pytest.mark.slow
def test_another_plan_takes_answers_over_that_are_under_way() -> None:
    """Fewer rows, then more: states move row by row, and answers wait where there is no row."""
    with Engine(tiny_plan(), backend="cpu", steps={"context": 400}) as engine:
        given = [engine.submit([n, 3], max_tokens=300) for n in range(4)]
        for plan in (tiny_plan(1), tiny_plan(2)):
            while not all(len(own.tokens) > 5 for own in given):
                pass
            engine.replace_plan(plan)
        assert engine.counts.hand_overs >= 2
        assert [own.result(LIMIT_S) for own in given] == [
            tiny_answer([n, 3], 300) for n in range(4)
        ]
