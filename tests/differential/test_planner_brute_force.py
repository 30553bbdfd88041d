"""The planner against an enumeration of all placements, on small random problems."""

from __future__ import annotations

import random

import pytest

from tessera.passes.partition_problem import Problem, measure, memory_of
from tessera.passes.partition_search import State, improve, splice
from tessera.passes.partition_solve import SolveOptions, lower_bound, solve
from tests.helpers.planning import every_placement, fits, period, random_problem

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
    from dataclasses import replace

    pipes = tuple(replace(pipe, ns_per_byte=0.0) for pipe in problem.pipes)
    return replace(problem, pipes=pipes, rooms=(), transfer_ns=0.0)


def test_equal_to_enumeration() -> None:
    outcomes = [compare(seed, 7) for seed in range(120)]
    assert sum(split and binds for split, binds in outcomes) > len(outcomes) / 3


@pytest.mark.slow
def test_equal_to_enumeration_up_to_ten_tasks() -> None:
    outcomes = [compare(seed, 10) for seed in range(1000, 1400)]
    assert sum(split and binds for split, binds in outcomes) > len(outcomes) / 3


@pytest.mark.parametrize("seed", range(30))
def test_loads_stay_exact_while_tasks_move(seed: int) -> None:
    problem = sized(seed, 9)
    rng = random.Random(seed)
    state = State(problem, [task.allowed()[0] for task in problem.tasks])
    for _ in range(40):
        task = rng.randrange(len(problem.tasks))
        options = [d for d in problem.tasks[task].allowed() if d != state.place[task]]
        if options:
            to = rng.choice(options)
            excess = state.excess_after(task, to)
            state.move(task, to, state.change(task, to))
            assert state.excess() == pytest.approx(excess)
    place = tuple(state.place)
    assert state.loads == pytest.approx(measure(problem, place).loads, abs=1e-6)
    assert state.memory == pytest.approx(memory_of(problem, place))
    assert state.period() == pytest.approx(period(problem, place))


@pytest.mark.parametrize("seed", range(30))
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
