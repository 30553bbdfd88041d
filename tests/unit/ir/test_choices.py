"""Choices with behaviour: classes whose one value equals the word that users type."""

from __future__ import annotations

import json
import pickle

import pytest

from tessera.ir.choices import Ending
from tessera.ir.objectives import (
    COST,
    LATENCY,
    OBJECTIVES,
    PAIR,
    THROUGHPUT,
    Objective,
    PlanFigures,
)
from tessera.planning.search.strategies import (
    FLEET_STRATEGIES,
    KERNEL,
    PLAN_STRATEGIES,
    TENSOR,
    Strategy,
)


@pytest.mark.parametrize("word", [*OBJECTIVES, *Strategy.every()])
def test_a_choice_is_its_word(word: Objective | Strategy) -> None:
    copy = pickle.loads(pickle.dumps(word))
    assert type(copy) is type(word)
    assert copy == word == str(word) == word.word
    assert json.dumps({"choice": word}) == f'{{"choice": "{word.word}"}}'


def test_words_are_found_again() -> None:
    assert [Objective.named(str(one)) for one in OBJECTIVES] == [*OBJECTIVES]
    assert type(Strategy.named("kernel")) is type(KERNEL)
    assert OBJECTIVES == ("throughput", "latency", "cost", "latency+throughput")


def test_an_objective_is_a_number_of_figures() -> None:
    row = PlanFigures(period_ns=2.0, latency_ns=3.0, usd_per_request=5.0)
    assert [one.value(row) for one in (THROUGHPUT, LATENCY, COST, PAIR)] == [2.0, 3.0, 5.0, 2.0]
    assert [one.is_rate for one in OBJECTIVES] == [True, False, False, False]
    assert THROUGHPUT.unit.gain(1.0, 2.0) == 1.0  # half the period is twice the rate
    assert LATENCY.unit.gain(1.0, 2.0) == 0.5


def test_strategies_of_plans_and_fleets() -> None:
    assert TENSOR in FLEET_STRATEGIES
    assert {*PLAN_STRATEGIES} - {*FLEET_STRATEGIES} == {"dp", "parts", "roles"}
    assert [strategy for strategy in PLAN_STRATEGIES if strategy.is_divided] == ["tensor", "parts"]


def test_every_end_of_a_search_has_a_text() -> None:
    assert len({ending.text for ending in Ending}) == len(Ending)
    assert [ending for ending in Ending if ending.is_cut_short] == ["clock", "interrupted"]
    assert not Ending.GIVEN.is_search
