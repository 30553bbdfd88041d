"""The planner against an enumeration of all placements, on small random problems."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from tessera.ir.objectives import SINGLE_OBJECTIVES
from tessera.planning.bound.counts import classes_of
from tessera.planning.problem.problem import Problem, measure, memory_of
from tessera.planning.search.balance import balance
from tessera.planning.search.plans import choose
from tessera.planning.search.single_moves import State, improve, splice
from tessera.planning.search.solve import SolveOptions, lower_bound, solve
from tests.helpers.planning import (
    constrained,
    every_placement,
    fits,
    layered,
    period,
    random_problem,
    shortest_period,
    value,
)
from tests.helpers.share import least, share

EXACT = SolveOptions(gap=0.0, max_nodes=100_000)


def sized(seed: int, most: int) -> Problem:
    """A problem with 2 or 3 devices, and up to `most` tasks on 2, two fewer on 3."""
    rng = random.Random(seed)
    devices = rng.choice([2, 2, 3])
    return random_problem(seed, rng.randrange(3, most + 1 - 2 * (devices == 3)), devices)


def compare(seed: int, most: int) -> tuple[bool, bool]:
    """Whether the best placement is split, and whether memory or a link binds it."""
    problem = sized(seed, most)
    best = min(((period(problem, one), one) for one in every_placement(problem)), default=None)
    found = solve(problem, EXACT)
    if best is None:
        assert found.placement is None, seed
        return False, True
    assert found.placement is not None, seed
    assert fits(problem, found.placement), seed
    assert found.period_ns == pytest.approx(period(problem, found.placement), rel=1e-9), seed
    assert found.period_ns == pytest.approx(best[0], rel=1e-6), seed
    assert found.bound_ns <= best[0] * (1 + 1e-6), seed
    assert found.relaxation_ns <= best[0] * (1 + 1e-6), seed
    free = random_free(problem)
    binds = min(period(free, one) for one in every_placement(free)) < best[0] * (1 - 1e-6)
    return len(set(best[1])) > 1, binds


def random_free(problem: Problem) -> Problem:
    """The same with endless memory and links that cost nothing."""
    pipes = tuple(replace(pipe, ns_per_byte=0.0) for pipe in problem.pipes)
    return replace(problem, pipes=pipes, rooms=(), transfer_ns=0.0)


def test_equal_to_enumeration() -> None:
    outcomes = [compare(seed, 7) for seed in range(least(60, 25))]
    assert sum(split and binds for split, binds in outcomes) > len(outcomes) / 3


@pytest.mark.slow
def test_equal_to_enumeration_up_to_ten_tasks() -> None:
    outcomes = [compare(seed, 10) for seed in range(1000, 1400)]
    assert sum(split and binds for split, binds in outcomes) > len(outcomes) / 3


def compare_objectives(seed: int, most: int) -> tuple[bool, bool]:
    """All objectives under all constraints; split, and bound by memory, link, slots or lanes."""
    rng = random.Random(seed)
    devices = rng.choice([2, 2, 3])
    problem = constrained(seed, rng.randrange(3, most + 1 - 2 * (devices == 3)), devices)
    everything = list(every_placement(problem))
    split = binds = False
    for objective in SINGLE_OBJECTIVES:
        choice = choose(problem, objective, EXACT)
        if not everything:
            assert choice is None or len(choice.best.replicas) > 1, (seed, objective)
            return False, True
        best = min((value(problem, one, objective), one) for one in everything)
        assert choice is not None, (seed, objective)
        lone = [c.value(objective) for c in choice.candidates if len(c.replicas) == 1]
        assert min(lone) == pytest.approx(best[0], rel=1e-6), (seed, objective)
        assert choice.best.value(objective) <= best[0] * (1 + 1e-6), (seed, objective)
        assert choice.bound <= choice.best.value(objective) * (1 + 1e-9), (seed, objective)
        for replica in choice.best.replicas:
            assert fits(problem, replica.placement), (seed, objective)
        if objective == "throughput":
            free = replace(random_free(problem), slots=None, lanes=None)
            least = min(value(free, one, objective) for one in every_placement(free))
            split, binds = len(set(best[1])) > 1, least < best[0] * (1 - 1e-6)
    return split, binds


def test_all_objectives_and_constraints_are_equal_to_enumeration() -> None:
    outcomes = [compare_objectives(seed, 6) for seed in range(35)]
    assert sum(split and binds for split, binds in outcomes) > len(outcomes) / 3


@pytest.mark.slow
def test_all_objectives_and_constraints_up_to_ten_tasks() -> None:
    outcomes = [compare_objectives(seed, 10) for seed in range(2000, 2300)]
    assert sum(split and binds for split, binds in outcomes) > len(outcomes) / 3


@pytest.mark.parametrize("seed", share(range(8)))
def test_counting_equal_tasks_keeps_the_bound(seed: int) -> None:
    problem = layered(seed, 4)
    assert max(classes_of(problem)) < len(problem.tasks) - 1
    best = shortest_period(problem)
    for gap in (0.0, 0.001, 0.02):
        found = solve(problem, SolveOptions(gap=gap))
        if best == float("inf"):
            assert found.placement is None
            continue
        assert found.placement is not None
        assert fits(problem, found.placement)
        assert found.period_ns == pytest.approx(period(problem, found.placement))
        assert found.relaxation_ns <= found.bound_ns * (1 + 1e-9)
        assert found.bound_ns <= best * (1 + 1e-6)
        assert found.period_ns >= best * (1 - 1e-9)
        assert found.ended == "gap"
        assert found.period_ns <= found.bound_ns * (1 + gap) * (1 + 1e-6)


def test_a_search_that_is_stopped_keeps_what_it_has() -> None:
    problem = layered(3, 40, 7)
    reports: list[tuple[float, float]] = []
    found = solve(
        problem,
        SolveOptions(gap=0.0),
        on_progress=lambda *one: reports.append(one),
        should_stop=lambda: True,
    )
    assert found.ended == "interrupted"
    assert found.placement is not None
    assert reports
    assert reports[0][0] <= found.period_ns
    limited = solve(problem, SolveOptions(gap=0.0, seconds=1e-6))
    assert limited.ended == "clock"
    assert limited.placement is not None


@pytest.mark.parametrize("seed", share(range(8)))
def test_balancing_never_loses(seed: int) -> None:
    problem = layered(seed, 12)
    start = solve(problem, SolveOptions(gap=0.1)).placement
    if start is None:
        return
    patterns = [(0,) * len(problem.tasks), (1,) * len(problem.tasks)]
    prices = np.array([1.0, 1.0, 0.1, 0.1, 0.1, 0.1])
    better = balance(problem, start, prices, patterns, 0.0)
    assert fits(problem, better)
    assert period(problem, better) <= period(problem, start) * (1 + 1e-9)


@pytest.mark.parametrize("seed", share(range(30)))
def test_loads_stay_exact_while_tasks_move(seed: int) -> None:
    problem = sized(seed, 9)
    rng = random.Random(seed)
    state = State(problem, [task.allowed()[0] for task in problem.tasks])
    for _ in range(40):
        task = rng.randrange(len(problem.tasks))
        options = [d for d in problem.tasks[task].allowed() if d != state.place[task]]
        if options:
            to = rng.choice(options)
            excess = state.excess_after(task, to, state.excess())
            state.move(task, to, state.change(task, to))
            assert state.excess() == pytest.approx(excess)
    place = tuple(state.place)
    assert state.loads == pytest.approx(measure(problem, place).loads, abs=1e-6)
    assert state.memory == pytest.approx(memory_of(problem, place))
    assert state.period() == pytest.approx(period(problem, place))


@pytest.mark.parametrize("seed", share(range(30)))
def test_search_never_loses(seed: int) -> None:
    problem = sized(seed, 9)
    rng = random.Random(seed)
    first, second = (tuple(rng.choice(task.allowed()) for task in problem.tasks) for _ in range(2))
    better = improve(problem, first)
    if fits(problem, first):
        assert fits(problem, better)
        assert period(problem, better) <= period(problem, first) * (1 + 1e-9)
        assert lower_bound(problem) <= period(problem, better) * (1 + 1e-9)
    spliced = splice(problem, first, second)
    cuts = [n for n in range(len(first) + 1) if spliced == (*first[:n], *second[n:])]
    assert cuts
    if fits(problem, second):
        assert period(problem, spliced) <= period(problem, second) * (1 + 1e-9)


def test_same_input_same_answer() -> None:
    problem = random_problem(5, 9, 3)
    assert solve(problem) == solve(problem)
