"""Changes of plans that still parse: those that give another result in some order are refused, and
those that provably change nothing are accepted.

`tests.helpers.plan_simulator` decides what is different, in 50 random orders with requests that
overlap. `python -m benchmarks.planning.plan_changes` counts more of them by kind.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tessera.passes.checker.check_plan import check_replica
from tests.helpers.plan_changes import Tally, crowded_plan, judge, random_plan
from tests.helpers.plan_harmless import harmless
from tests.helpers.plan_simulator import differs
from tests.helpers.share import share
from tests.property.test_check_real_plans import lowered


def check(tally: Tally) -> None:
    assert tally.faults == []
    assert tally.share() >= 0.95, tally.refused


@pytest.mark.parametrize("seed", [3, 5, 7, 31, 60])
def test_changes_of_random_plans(seed: int) -> None:
    tally = Tally()
    judge(str(seed), *random_plan(seed), seed, 15, tally, run_refused=False)
    check(tally)


@pytest.mark.parametrize(("name", "most"), [("mix", 12), ("divided", 8)])
def test_changes_of_plans_of_kernels(name: str, most: int) -> None:
    tally = Tally()
    judge(name, *lowered(name, 1, 2, 2), 1, most, tally, run_refused=False)
    check(tally)


def test_most_changes_give_another_result_and_are_refused() -> None:
    tally = Tally()
    for seed in (11, 21):
        judge(str(seed), *random_plan(seed), seed, 15, tally, run_refused=True)
    check(tally)
    counts = Counter[str]()
    for (_, what), count in tally.changes.items():
        counts[what] += count
    assert counts["refused"] >= counts["different"] > 0.3 * (counts["refused"] + counts["accepted"])


def test_changes_that_change_nothing_on_top_of_each_other() -> None:
    """Only then are there transfers to join, and buffers that share no memory but are freed."""
    few = ("joined transfers", "exchanged transfers", "fewer frees")
    kinds = (*few, "split transfers", "memory of its own")
    seen = Counter[str]()
    for seed in range(8):
        rng = random.Random(seed)
        case, replica = crowded_plan(seed)
        for _ in range(30):
            made = harmless(rng, case, replica, kinds)
            if made is not None:
                kind, case, replica = made
                seen[kind] += 1
        assert check_replica(replica, case.programs, case.graphs, case.placements) == (), seed
        assert differs(replica, case.programs, case.graphs, 10) == "", seed
    assert all(seen[kind] for kind in few)


def test_what_lowering_makes_of_crowded_memory_is_proved() -> None:
    """Many buffers of many sizes take each other's place, on queues that transfers share. By 74 and
    84, a transfer frees a buffer whose place a step needs that has nothing to do with it."""
    for seed in (74, 84, *share(range(100))):
        case, replica = crowded_plan(seed)
        assert check_replica(replica, case.programs, case.graphs, case.placements) == (), seed


def test_what_lowering_makes_of_more_steps_is_proved() -> None:
    for seed in share(range(100)):
        case, replica = random_plan(seed, most_steps=4 + seed % 7, most_devices=2 + seed % 3)
        assert check_replica(replica, case.programs, case.graphs, case.placements) == (), seed


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_changes_of_random_plans_at_length(seed: int) -> None:
    tally = Tally()
    judge(str(seed), *random_plan(seed), seed, 60, tally, run_refused=False)
    check(tally)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["mix", "prefill", "divided", "dit"])
def test_changes_of_plans_of_kernels_at_length(name: str, seed: int) -> None:
    tally = Tally()
    judge(name, *lowered(name, seed, 2, 2), seed, 60, tally, run_refused=False)
    check(tally)
