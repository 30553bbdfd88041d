"""Runs of the solver end, whatever they are given; what they leave open is not called proved."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from tessera.planning.bound import counts, relax
from tessera.planning.bound.coarse import coarsen
from tessera.planning.bound.counts import classes_of
from tessera.planning.bound.model import build_model
from tessera.planning.bound.relax import spread_bound
from tessera.planning.problem.limits import ENDLESS, SearchWatch
from tessera.planning.problem.problem import Problem, Task, Tensor, Wire, measure
from tessera.planning.search import solve
from tessera.planning.search.latency import separators
from tessera.planning.search.plans import choose
from tessera.planning.search.single_moves import State
from tessera.planning.search.strategies import LAYERS
from tests.helpers.planning import every_placement, layered, period, random_problem


class Enough(Exception):
    """What a signal handler may raise."""


@pytest.mark.parametrize("method", ["simplex", "ipm", "mip"])
def test_what_is_raised_while_highs_runs_comes_out(method: str) -> None:
    model = build_model(layered(1, 12, 6))
    solver = relax.make_solver(model, integer=method == "mip")
    if method != "mip":
        solver.setOptionValue("solver", method)
    calls: list[None] = []

    def wish() -> bool:
        calls.append(None)
        raise Enough

    with pytest.raises(Enough):
        relax.run_solver(solver, SearchWatch(should_stop=wish), integer=method == "mip")
    assert len(calls) == 1


def test_the_clock_counts_for_each_run_of_a_solver() -> None:
    """HiGHS counts the time of a relaxation from the first run of a solver on."""
    model = build_model(layered(1, 12, 6))
    solver = relax.make_solver(model, integer=False)
    for _ in range(3):
        solver.clearSolver()
        relax.run_solver(solver, SearchWatch(deadline=time.perf_counter() + 1000.0))
        limit = solver.getOptionValue("time_limit")[1]
        assert limit - solver.getRunTime() > 900.0


@pytest.mark.parametrize("ended", ["steps", "clock", "wish"])
def test_a_relaxation_that_is_not_solved_still_bounds(
    monkeypatch: pytest.MonkeyPatch, ended: str
) -> None:
    watch = ENDLESS
    if ended == "steps":
        for name in ("_SIMPLEX_STEPS", "_SIMPLEX_STEPS_PER_ROW", "_INTERIOR_STEPS"):
            monkeypatch.setattr(relax, name, 0)
    elif ended == "clock":
        watch = SearchWatch(deadline=0.0)
    else:
        watch = SearchWatch(should_stop=lambda: True)
    solved = []
    for seed in range(6):
        problem = replace(random_problem(seed, 7, 2), rooms=())
        found = relax.relax(build_model(problem), watch)
        assert found is not None
        solved.append(found.solved)
        best = min(period(problem, one) for one in every_placement(problem))
        assert found.bound_ns <= best * (1 + 1e-9)
        solution = solve.solve(problem, solve.SolveOptions(gap=0.0))
        assert solution.placement is not None
        assert solution.bound_ns <= best * (1 + 1e-6)
        assert solution.period_ns >= best * (1 - 1e-9)
    assert ended == "clock" or not all(solved)  # of that a tenth of a second is left


@pytest.mark.parametrize("lost", [None, "lost"])
def test_counting_that_cannot_start_proves_nothing(
    monkeypatch: pytest.MonkeyPatch, lost: counts.Solved
) -> None:
    problem = layered(2, 5)
    model = build_model(problem, classes_of(problem))
    monkeypatch.setattr(counts._Solver, "root", lambda self: lost)
    found = counts.branch_on_counts(
        model,
        next(iter(every_placement(problem))),
        lambda relaxed, best: best,
        gap=0.0,
        most_work=1,
        watch=ENDLESS,
    )
    assert (found.bound_ns, found.ended) == (0.0, "nodes")


def test_a_start_that_fits_outweighs_a_solver_that_finds_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = replace(random_problem(3, 6, 2), rooms=())
    start = next(iter(every_placement(problem)))
    monkeypatch.setattr(solve, "relax", lambda model, watch: None)
    found = solve.solve(problem, starts=(start,))
    assert found.placement is not None
    assert found.bound_ns <= min(period(problem, one) for one in every_placement(problem))
    assert solve.solve(problem).placement is None


def hostile(seed: int) -> Problem:
    """Times and sizes up to eighteen orders of magnitude apart."""
    rng = random.Random(seed)
    problem = random_problem(seed, rng.randrange(3, 7), rng.choice([2, 3]))
    span = rng.choice([9, 15, 18]) / 2

    def factor() -> float:
        return float(10 ** rng.uniform(-span, span))

    return replace(
        problem,
        tasks=tuple(
            replace(task, ns=tuple(None if ns is None else ns * factor() for ns in task.ns))
            for task in problem.tasks
        ),
        tensors=tuple(replace(one, bytes=one.bytes * factor()) for one in problem.tensors),
        transfer_ns=problem.transfer_ns * factor(),
    )


@pytest.mark.filterwarnings("error")
def test_times_far_apart_are_planned_as_enumeration_does() -> None:
    for seed in range(60):
        problem = hostile(seed)
        choice = choose(problem)
        every = [period(problem, one) for one in every_placement(problem)]
        if not every:
            continue
        assert choice is not None, seed
        assert choice.bound <= min(every) * (1 + 1e-6), seed
        lone = [one.period_ns for one in choice.candidates if len(one.replicas) == 1]
        assert min(lone) >= min(every) * (1 - 1e-9), seed
        if choice.ended == "gap":
            assert min(lone) <= min(every) * 1.0011, seed


def test_numbers_that_highs_refuses_are_planned_all_the_same() -> None:
    """It takes no coefficient from 1e15 on: such a model would be empty."""
    tasks = tuple(Task(name=f"k{n}", ns=(1.0, 1e40) if n % 2 else (1e40, 1.0)) for n in range(20))
    problem = replace(random_problem(0, 20, 2), tasks=tasks, tensors=(), rooms=(), residents=())
    choice = choose(problem)
    assert choice is not None
    assert choice.best.period_ns == pytest.approx(10.0)
    assert choice.bound == pytest.approx(10.0, rel=1e-3)


def test_the_bound_of_times_alone() -> None:
    for seed in range(30):
        problem = replace(random_problem(seed, 6, 2 + seed % 2), rooms=())
        best = min(period(problem, one) for one in every_placement(problem))
        assert 0 < spread_bound(problem) <= best * (1 + 1e-9), seed
    alike = tuple(Task(name="k", ns=(float(n),) * 3) for n in range(1, 9))
    assert spread_bound(replace(problem, devices=("a", "b", "c"), tasks=alike)) == pytest.approx(12)
    even = tuple(Task(name="k", ns=ns) for ns in ((1.0, 2.0), (4.0, 2.0), (3.0, None)))
    assert spread_bound(replace(problem, devices=("a", "b"), tasks=even)) == pytest.approx(10 / 3)
    assert spread_bound(Problem(devices=("a",), tasks=())) == 0.0


def test_large_problems_are_solved_by_runs_of_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = replace(layered(4, 60, 5), rooms=())
    fine = solve.solve(problem)
    monkeypatch.setattr(solve, "MOST_TASKS", 100)
    monkeypatch.setattr(solve, "coarsen", lambda one: coarsen(one, 60))
    found = solve.solve(problem)
    assert found.placement is not None
    assert len(found.placement) == len(problem.tasks)
    assert found.period_ns == pytest.approx(measure(problem, found.placement).period_ns)
    assert found.bound_ns <= fine.period_ns
    assert found.period_ns <= 1.5 * fine.period_ns
    assert solve.lower_bound(problem) <= fine.period_ns


def test_runs_of_tasks_are_of_tasks_that_can_go_together() -> None:
    tasks = [Task(name="k", ns=(1.0, 2.0)) for _ in range(10)]
    tasks[4], tasks[5] = Task(name="k", ns=(1.0, None)), Task(name="k", ns=(None, 2.0))
    tasks[7:] = [replace(task, trace=1) for task in tasks[7:]]
    tensors = tuple(Tensor(name="t", bytes=1, producer=n, consumers=(n + 1,)) for n in range(9))
    small = coarsen(Problem(devices=("a", "b"), tasks=tuple(tasks), tensors=tensors), 4)
    assert small.groups == (0, 0, 0, 1, 1, 2, 2, 3, 3, 3)
    assert [task.ns for task in small.problem.tasks][1:3] == [(2.0, None), (None, 4.0)]
    placement = (0, 0, 1, 0)
    assert small.shrink(small.expand(placement)) == placement


def test_layers_are_cut_where_both_devices_can_run_their_side() -> None:
    for seed in range(40):
        problem = random_problem(seed, 7, 2)
        count = len(problem.tasks)
        cuts = [
            one
            for first, second in ((0, 1), (1, 0))
            for cut in range(count + 1)
            if measure(problem, one := (*(first,) * cut, *(second,) * (count - cut))).period_ns
            < float("inf")
        ]
        found = [measure(problem, one) for one in LAYERS.placements(problem)]
        if not cuts:
            assert found == []
            continue
        ranks = [(not m.fits, m.period_ns) for m in (measure(problem, one) for one in cuts)]
        best = [(not m.fits, m.period_ns) for m in found]
        if not min(ranks)[0]:
            assert min(best) == pytest.approx(min(ranks)), seed


def led_to(
    problem: Problem, task: int, ends: Callable[[Tensor], list[tuple[int, int]]]
) -> set[int]:
    """All that can be reached from a task."""
    found, new = set[int](), {task}
    steps = [pair for tensor in problem.tensors for pair in ends(tensor)]
    while new:
        found |= new
        new = {b for a, b in steps if a in new} - found
    return found - {task}


def test_separators_are_what_everything_passes_through() -> None:
    counted = 0
    for seed in range(60):
        problem = random_problem(seed, 8, 2)
        expected = []
        for task in range(8):
            after = led_to(problem, task, lambda t: [(t.producer, c) for c in t.consumers])
            before = led_to(problem, task, lambda t: [(c, t.producer) for c in t.consumers])
            by = (t.producer < task < max(t.consumers) for t in problem.tensors)
            everything = after == set(range(task + 1, 8)) and before == set(range(task))
            if everything and not any(by):
                expected.append(task)
        assert list(separators(problem)) == expected, seed
        counted += len(expected)
    assert counted > 60


def test_combinations_of_limits_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is short, there is a placement, and a bound below it."""
    problem = layered(5, 30, 4)
    starts = ((0,) * 120, (1,) * 120)
    for steps, deadline in itertools.product((0, 10_000), (None, 0.0)):
        monkeypatch.setattr(relax, "_SIMPLEX_STEPS", steps)
        monkeypatch.setattr(relax, "_SIMPLEX_STEPS_PER_ROW", 0)
        seconds = None if deadline is None else 1e-3
        found = solve.solve(replace(problem, rooms=()), solve.SolveOptions(seconds=seconds), starts)
        assert found.placement is not None
        assert 0 < found.bound_ns <= found.period_ns


def test_wires_of_one_kind_are_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 64 GPUs there are 4,032 wires, and a search starts anew very often."""
    problem = random_problem(3, 40, 12)
    count = 0
    tax_ns = Problem.tax_ns

    def counted(self: Problem, tensor: Tensor, wire: Wire) -> float:
        nonlocal count
        count += 1
        return tax_ns(self, tensor, wire)

    monkeypatch.setattr(Problem, "tax_ns", counted)
    State(problem, [0] * len(problem.tasks))
    kinds = {wire.end_ns_per_byte for wire in problem.wires}
    assert 0 < count <= len(problem.tensors) * len(kinds)
    assert len(problem.wires) > 10 * len(kinds)
