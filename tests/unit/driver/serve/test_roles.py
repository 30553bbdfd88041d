"""Replicas with roles on the CPU backend: what one has read, another one answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tessera.driver.serve.engine import Engine
from tests.helpers.host_runs import hosts_file
from tests.helpers.role_plans import (
    check_nothing_left,
    deaths_in_hand_overs,
    role_plan,
    serve_answers,
)

SHARES = {
    "apart": ((1.0, 0.0), (0.0, 1.0)),
    "two-answer": ((1.0, 0.0), (0.0, 0.5), (0.0, 0.5)),
    "mixed": ((0.9, 0.3), (0.1, 0.7)),
}


def serve(name: str, roles: str, lanes: int) -> None:
    engine = Engine(role_plan(name, SHARES[roles], lanes=lanes), backend="cpu")
    with engine:
        assert serve_answers(engine, name, 3, 30) >= 20
        assert engine.counts.hand_overs >= 10
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


def survive(engine: Engine, name: str, seed: int, deaths: int) -> None:
    """Replicas die in hand-overs until so many have: no answer is lost or wrong."""
    with deaths_in_hand_overs(engine, seed, 0.2, deaths) as killed:
        for round_number in range(40 * deaths):
            serve_answers(engine, name, seed + round_number, 12)
            if len(killed) == deaths:
                break
    assert len(killed) == deaths
    assert engine.counts.restarts > 0
    assert serve_answers(engine, name, seed, 10) >= 8


def test_a_replica_that_dies_in_a_hand_over_loses_no_sequence() -> None:
    engine = Engine(role_plan("recurrent"), backend="cpu")
    with engine:
        survive(engine, "recurrent", 1, 6)
    check_nothing_left(engine)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "roles"), [("llama", "two-answer"), ("recurrent", "mixed")])
def test_many_replicas_die_in_hand_overs(name: str, roles: str) -> None:
    engine = Engine(role_plan(name, SHARES[roles]), backend="cpu")
    with engine:
        survive(engine, name, 5, 50)
    check_nothing_left(engine)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "gpt"])
def test_hosts_that_die_in_hand_overs(tmp_path: Path, name: str) -> None:
    hosts = {"a": "left", "b": "right"}
    rows = ('name = "left"\ndevices = ["a"]', 'name = "right"\ndevices = ["b"]')
    plan = role_plan(name, hosts=hosts)
    engine = Engine(plan, hosts=hosts_file(tmp_path, *rows))
    with engine:
        assert serve_answers(engine, name, 3, 20) >= 14
        assert engine.counts.hand_overs >= 5
        survive(engine, name, 7, 10)
    check_nothing_left(engine)
