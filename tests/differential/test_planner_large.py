"""Very many tasks and devices: the bound of kinds is a bound, runs of tasks are the best runs."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from tessera.planning.bound.class_model import class_bound
from tessera.planning.problem.device_types import types_of
from tessera.planning.problem.problem import Placement, Problem, contract, measure
from tessera.planning.search import many
from tessera.planning.search.candidates import candidate_of, one_placement, with_rates
from tessera.planning.search.chains import best_runs
from tessera.planning.search.plans import choose
from tessera.planning.search.solve import SolveOptions, lower_bound
from tests.helpers.planning import every_placement, layered, random_problem
from tests.helpers.share import share


def in_types(seed: int, layers: int, counts: tuple[int, ...]) -> Problem:
    """Equal layers on devices that come in types, with slots and memory that are often tight."""
    rng = random.Random(seed)
    base = layered(seed, layers, width=3)
    wide = random_problem(seed, 2, sum(counts))
    speeds = [rng.uniform(0.5, 2.0) for _ in counts]
    shape = [
        [float(task.ns[0] or 1.0) * speed * rng.uniform(0.7, 1.4) for speed in speeds]
        for task in base.tasks[:3]
    ]
    total = sum(resident.bytes for resident in base.residents)
    room = [int(total * rng.choice([0.4, 0.6, 1.1])) + 1 for _ in counts]
    kinds = [kind for kind, n in enumerate(counts) for _ in range(n)]
    return replace(
        wide,
        tasks=tuple(
            replace(task, ns=tuple(shape[n % 3][kind] for kind in kinds))
            for n, task in enumerate(base.tasks)
        ),
        tensors=base.tensors,
        residents=base.residents,
        rooms=tuple(
            replace(own, bytes=room[kind]) for own, kind in zip(wide.rooms, kinds, strict=True)
        ),
        slots=rng.choice([1, 2, 4]),
        lanes=None,
    )


def best_of_all(problem: Problem) -> float:
    """The shortest period of any placement, and of any two placements side by side."""
    alone = [one_placement(problem, "", placement) for placement in every_placement(problem)]
    fitting = [
        candidate.replicas[0].placement
        for candidate in alone
        if candidate.usd_per_request < float("inf")
    ]
    best = min((candidate.period_ns for candidate in alone), default=float("inf"))
    apart: dict[frozenset[int], Placement] = {}
    for placement in fitting:
        apart.setdefault(frozenset(placement), placement)
    for first, second in itertools.combinations(apart.values(), 2):
        pair = candidate_of(problem, "", with_rates(problem, (first, second)))
        best = min(best, pair.period_ns)
    return best


@pytest.mark.parametrize("seed", share(range(12)))
def test_no_placement_beats_the_bound_of_kinds(seed: int) -> None:
    problem = in_types(seed, 2, ((1, 2), (2, 1), (1, 1))[seed % 3])
    bound = class_bound(problem, problem.slots)
    assert class_bound(problem, None) <= bound * (1 + 1e-9)
    assert bound <= best_of_all(problem) * (1 + 1e-9)


@pytest.mark.parametrize("seed", share(range(4)))
def test_joined_tasks_keep_the_bound(seed: int) -> None:
    problem = in_types(seed, 3, (1, 2))
    groups = [task // 2 for task in range(len(problem.tasks))]
    groups[-1] = groups[0]  # runs in turns with others
    names = {group: n for n, group in enumerate(dict.fromkeys(groups))}
    joined = contract(problem, tuple(names[group] for group in groups))
    assert class_bound(joined, joined.slots) <= best_of_all(joined) * (1 + 1e-9)


@pytest.mark.parametrize("seed", share(range(6)))
def test_the_bound_of_kinds_is_no_tighter_than_the_integer_program(seed: int) -> None:
    problem = replace(random_problem(seed, 30, 3), slots=None)
    assert class_bound(problem, None) <= lower_bound(problem) * (1 + 1e-6)


def test_slots_and_the_way_between_types_are_in_the_bound() -> None:
    problem = replace(in_types(3, 4, (2, 2)), slots=1)
    times = [min(ns for ns in task.ns if ns is not None) for task in problem.tasks]
    roomy = replace(problem, rooms=tuple(replace(room, bytes=10**9) for room in problem.rooms))
    assert class_bound(problem, 1) > class_bound(problem, 64)
    copies = len(roomy.devices)
    assert class_bound(roomy, 1) >= sum(times) / copies * (1 - 1e-9)


def every_run(problem: Problem) -> float:
    """The least largest load of all ways to cut the tasks, in all orders of devices."""
    count, least = len(problem.tasks), float("inf")
    for number in range(1, len(problem.devices) + 1):
        for devices in itertools.permutations(range(len(problem.devices)), number):
            for cuts in itertools.combinations(range(1, count), number - 1):
                ends = (0, *cuts, count)
                placement = tuple(
                    device
                    for device, (a, b) in zip(devices, itertools.pairwise(ends), strict=True)
                    for _ in range(a, b)
                )
                free = measure(replace(problem, tensors=()), placement)
                if free.fits:
                    least = min(least, free.period_ns)
    return least


@pytest.mark.parametrize("seed", share(range(6)))
def test_runs_are_the_best_of_all_runs(seed: int) -> None:
    problem = in_types(seed, 3, ((2, 2), (1, 2), (3, 1))[seed % 3])
    least = every_run(problem)
    groups, order = types_of(problem), range(len(problem.tasks))
    placement = best_runs(problem, groups, order, 0.0, len(problem.devices))
    if placement is None:
        assert least == float("inf")
        return
    made = measure(replace(problem, tensors=()), placement)
    assert made.fits
    assert least * (1 - 1e-9) <= made.period_ns <= least * 1.01


def test_more_counts_than_can_be_listed_are_taken_in_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tessera.planning.search.chains._MOST_COUNTS", 1)
    problem = in_types(1, 6, (3, 3))
    placement = best_runs(problem, types_of(problem), range(len(problem.tasks)), 0.0, 6)
    assert placement is not None
    assert measure(problem, placement).fits


def test_a_large_problem_is_planned_by_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = replace(in_types(5, 12, (3, 3)), slots=None)
    usual = choose(problem, options=SolveOptions(gap=0.01))
    monkeypatch.setattr(many, "_LARGE", 10)
    assert many.is_large(problem)
    choice = choose(problem, options=SolveOptions(gap=0.01))
    assert choice is not None
    assert usual is not None
    assert choice.bound <= usual.best.period_ns * (1 + 1e-9)
    assert choice.best.period_ns <= usual.best.period_ns * 1.25


def test_what_no_device_holds_is_planned_by_runs_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = in_types(5, 12, (3, 3))
    monkeypatch.setattr(many, "_LARGE_IF_SPREAD", 10)
    needed = sum(resident.bytes for resident in problem.residents)
    for part, spread in ((0.5, True), (1.0, False)):
        rooms = tuple(replace(room, bytes=int(needed * part)) for room in problem.rooms)
        assert many.is_large(replace(problem, rooms=rooms)) is spread
