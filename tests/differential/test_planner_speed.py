"""Model graphs: how near the bound, and CPU time against one relaxation of the same model."""

from __future__ import annotations

import time

import pytest

from benchmarks.planning.model_graphs import FAMILIES, draft_graph, model_graph
from tessera.ir.objectives import THROUGHPUT
from tessera.planning.problem.device_types import aggregate
from tessera.planning.problem.problem import Problem, measure
from tessera.planning.search.plans import choose
from tessera.planning.search.solve import SolveOptions, lower_bound, solve


@pytest.mark.parametrize("family", FAMILIES)
def test_graphs_are_in_order_and_of_the_size_asked_for(family: str) -> None:
    for size in (60, 400):
        draft = draft_graph(family, size)
        assert 0.7 * size <= len(draft.tasks) <= size
        assert all(r > made for _, made, readers in draft.tensors for r in readers)


def check(problem: Problem, gap: float, relaxations: float) -> None:
    """Proven to be within the gap, in the time of so many relaxations."""
    started = time.process_time()
    bound = lower_bound(problem)
    relaxation = time.process_time() - started
    started = time.process_time()
    found = solve(problem, SolveOptions(gap=gap))
    spent = time.process_time() - started
    assert found.placement is not None
    assert found.period_ns <= found.bound_ns * (1 + gap)
    assert found.bound_ns >= bound * (1 - 1e-9)
    assert spent <= relaxations * relaxation + 0.3


@pytest.mark.parametrize("family", ["dense", "ssm"])
def test_one_percent_at_a_thousand_kernels(family: str) -> None:
    check(model_graph(family, 1000), 0.01, 15)


@pytest.mark.parametrize("family", ["dense", "dit"])
def test_a_thousandth_at_a_thousand_kernels(family: str) -> None:
    check(model_graph(family, 1000), 0.001, 60)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("kernels", "gap", "relaxations"),
    [(1000, 0.01, 15), (1000, 0.001, 150), (2000, 0.01, 15), (5000, 0.01, 15)],
)
def test_all_families(family: str, kernels: int, gap: float, relaxations: float) -> None:
    check(model_graph(family, kernels), gap, relaxations)


@pytest.mark.parametrize("family", ["dense", "ssm"])
def test_sixteen_gpus_of_two_types(family: str) -> None:
    problem = model_graph(family, 500, "8xa100,8xl40s")
    started = time.process_time()
    bound = lower_bound(aggregate(problem)[0])
    relaxation = time.process_time() - started
    started = time.process_time()
    choice = choose(problem, THROUGHPUT, SolveOptions(gap=0.01))
    spent = time.process_time() - started
    assert choice is not None
    assert choice.best.period_ns <= bound * 1.02
    assert spent <= 60 * relaxation + 1.0


def test_stages_hold_a_model_that_no_pair_holds() -> None:
    problem = model_graph("dense", 200, "2xa100,2xl40s", memory_scale=0.4)
    choice = choose(problem, THROUGHPUT, SolveOptions(gap=0.02))
    assert choice is not None
    for used, room in zip(choice.best.memory, problem.rooms, strict=True):
        assert used <= room.bytes
    assert choice.gap < 0.05
    others = [one for one in choice.candidates[1:] if one.name in ("layers", "phase", "kernel")]
    assert others
    assert all(choice.best.period_ns < one.period_ns for one in others)


def test_memory_binds_and_holds() -> None:
    problem = model_graph("dense", 400, memory_scale=0.7)
    choice = choose(problem, THROUGHPUT, SolveOptions(gap=0.05))
    assert choice is not None
    alone = (0,) * len(problem.tasks)
    assert not measure(problem, alone).fits
    for used, room in zip(choice.best.memory, problem.rooms, strict=True):
        assert used <= room.bytes
