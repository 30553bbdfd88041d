"""What is chosen is never worse than a baseline, fits in memory, and is the best there is."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tessera.ir.objectives import COST, LATENCY, SINGLE_OBJECTIVES, THROUGHPUT, Objective
from tessera.planning.bound.infeasible import find_obstacle
from tessera.planning.problem.device_types import aggregate, equal_parts, types_of
from tessera.planning.problem.problem import Problem, Tensor
from tessera.planning.search.many import solve_many
from tessera.planning.search.plans import choose
from tessera.planning.search.solve import SolveOptions, lower_bound
from tessera.planning.search.strategies import PLAN_STRATEGIES
from tests.helpers.planning import (
    constrained,
    every_placement,
    fits,
    layered,
    makespan,
    period,
    random_problem,
    value,
)
from tests.helpers.share import least, share

EXACT = SolveOptions(gap=0.0, max_nodes=100_000)
HOUR = 3600e9


def alike(seed: int, tasks: int, counts: tuple[int, ...]) -> Problem:
    """A problem in which devices come in types: equal times and memory."""
    problem = random_problem(seed, tasks, sum(counts))
    of = [kind for kind, count in enumerate(counts) for _ in range(count)]
    first = [of.index(kind) for kind in of]
    made = tuple(
        replace(task, ns=tuple(task.ns[first[d]] for d in range(len(of)))) for task in problem.tasks
    )
    made = tuple(task if task.allowed() else replace(task, ns=(10.0,) * len(of)) for task in made)
    rooms = tuple(
        replace(room, bytes=problem.rooms[first[d]].bytes, usd_per_hour=float(1 + of[d]))
        for d, room in enumerate(problem.rooms)
    )
    return replace(problem, tasks=made, rooms=rooms)


def check(problem: Problem, seed: int, objective: Objective, options: SolveOptions) -> None:
    """Never above a baseline, never above memory, both from the definitions."""
    choice = choose(problem, objective, options)
    baselines = [strategy.best_placement(problem) for strategy in PLAN_STRATEGIES]
    if choice is None:
        assert not any(baselines), seed
        return
    best = choice.best
    assert choice.bound <= best.value(objective) * (1 + 1e-9), seed
    used = [0] * len(problem.rooms)
    for replica in best.replicas:
        for resident in problem.residents:
            for device in {replica.placement[task] for task in resident.users}:
                used[next(i for i, r in enumerate(problem.rooms) if device in r.devices)] += (
                    resident.bytes
                )
    assert all(u <= room.bytes for u, room in zip(used, problem.rooms, strict=True)), seed
    for placement in filter(None, baselines):
        assert fits(problem, placement), seed
        at_baseline = value(problem, placement, objective)
        assert best.value(objective) <= at_baseline * (1 + 1e-9), (seed, objective)


def instance(seed: int, most: int) -> Problem:
    """A random problem; every second one with slices, pins, slots and lanes."""
    rng = random.Random(seed)
    tasks, devices = rng.randrange(3, most), rng.choice([1, 2, 2, 3, 4])
    if seed % 2 and devices > 1:
        return constrained(seed, tasks, devices)
    return random_problem(seed, tasks, devices)


@pytest.mark.parametrize("objective", SINGLE_OBJECTIVES)
def test_never_above_a_baseline_or_memory(objective: Objective) -> None:
    for seed in range(least(10, 4)):
        check(instance(seed, 20), seed, objective, SolveOptions(gap=0.05, max_nodes=20))


@pytest.mark.slow
def test_never_above_a_baseline_or_memory_in_a_thousand() -> None:
    for seed in range(1000, 2000):
        objective = SINGLE_OBJECTIVES[seed % 3]
        check(instance(seed, 40), seed, objective, SolveOptions(gap=0.05, max_nodes=20))


@pytest.mark.parametrize("seed", share(range(25)))
def test_cost_is_equal_to_enumeration(seed: int) -> None:
    rng = random.Random(seed)
    devices = rng.choice([2, 3])
    problem = random_problem(seed, rng.randrange(3, 7 if devices == 2 else 6), devices)

    def money(placement: tuple[int, ...]) -> float:
        price = sum(room.usd_per_hour for d, room in enumerate(problem.rooms) if d in placement)
        return period(problem, placement) * price / HOUR

    best = min(map(money, every_placement(problem)), default=None)
    choice = choose(problem, COST, EXACT)
    if best is None:
        assert choice is None or len(choice.best.replicas) > 1
        return
    assert choice is not None
    if len(choice.best.replicas) == 1:
        assert choice.best.usd_per_request == pytest.approx(best, rel=1e-6)
    assert choice.best.usd_per_request <= best * (1 + 1e-6)
    assert choice.bound <= choice.best.usd_per_request


def test_requests_shared_between_equal_devices() -> None:
    problem = alike(3, 8, (2,))
    problem = replace(problem, rooms=tuple(replace(r, bytes=10**9) for r in problem.rooms))
    choice = choose(problem, THROUGHPUT)
    assert choice is not None
    alone = next(c for c in choice.candidates if c.name.startswith("single"))
    assert choice.best.period_ns <= alone.period_ns / 2 * (1 + 1e-9)


def test_a_latency_plan_where_no_baseline_fits() -> None:
    problem = layered(4, 6)
    total = sum(resident.bytes for resident in problem.residents)
    rooms = tuple(replace(room, bytes=int(total * 0.52)) for room in problem.rooms)
    problem = replace(problem, rooms=rooms)
    choice = choose(problem, LATENCY)
    assert choice is not None
    placement = choice.best.replicas[0].placement
    assert fits(problem, placement)
    assert choice.best.latency_ns == pytest.approx(makespan(problem, placement))


def test_few_slots_are_a_limit() -> None:
    problem = random_problem(8, 12, 2)
    for slots in (1, 2):
        choice = choose(replace(problem, slots=slots))
        assert choice is not None
        for one in choice.candidates:
            for replica in one.replicas:
                floor = makespan(problem, replica.placement) * replica.share / slots
                assert one.period_ns >= floor * (1 - 1e-9)


@pytest.mark.parametrize("seed", share(range(12)))
def test_types_give_a_bound(seed: int) -> None:
    counts = random.Random(seed).choice([(2, 1), (2, 2), (1, 1, 1), (3,)])
    problem = alike(seed, 5, counts)
    merged, groups = aggregate(problem)
    assert sum(map(len, groups)) == sum(counts)
    bound = lower_bound(merged)
    best = min((period(problem, one) for one in every_placement(problem)), default=None)
    if best is not None:
        assert bound <= best * (1 + 1e-9)
        found = solve_many(problem, SolveOptions(), ())
        if found.placement is not None:
            assert found.period_ns >= best * (1 - 1e-9)
            assert found.bound_ns <= best * (1 + 1e-6)


def test_equal_parts() -> None:
    problem = alike(1, 6, (4, 2))
    assert types_of(problem) == ((0, 1, 2, 3), (4, 5))
    assert equal_parts(problem, 2) == ((0, 1, 4), (2, 3, 5))
    assert equal_parts(problem, 4) == ((0,), (1, 4), (2,), (3, 5))


@pytest.mark.parametrize("seed", share(range(40)))
def test_the_smallest_change_makes_it_feasible(seed: int) -> None:
    problem = random_problem(seed, 5, 2)
    tight = tuple(replace(room, bytes=room.bytes * 2 // 3) for room in problem.rooms)
    problem = replace(problem, rooms=tight)
    if next(every_placement(problem), None) is not None:
        return
    obstacle = find_obstacle(problem)
    assert obstacle.kind == "memory"
    for name, extra in obstacle.extra_bytes:
        for offset, feasible in ((0, True), (-2, False)):
            rooms = tuple(
                replace(room, bytes=room.bytes + extra + offset) if room.name == name else room
                for room in tight
            )
            found = next(every_placement(replace(problem, rooms=rooms)), None)
            assert (found is not None) == feasible, (name, extra, offset)


def test_tasks_that_run_nowhere_and_devices_without_links() -> None:
    problem = random_problem(1, 5, 2)
    stuck = replace(problem.tasks[2], ns=(None, None))
    bad = replace(problem, tasks=(*problem.tasks[:2], stuck, *problem.tasks[3:]))
    assert choose(bad) is None
    assert find_obstacle(bad).tasks == ("k2",)
    apart = tuple(
        replace(task, ns=(1.0, None) if n % 2 else (None, 1.0))
        for n, task in enumerate(problem.tasks)
    )
    chain = tuple(Tensor(name=f"t{n}", bytes=1.0, producer=n, consumers=(n + 1,)) for n in range(4))
    cut = replace(problem, tasks=apart, tensors=chain, wires=(), pipes=(), rooms=(), residents=())
    assert choose(cut) is None
    assert find_obstacle(cut).kind == "links"
