"""Model graphs: how near the bound, and CPU time against one relaxation of the same model."""

from __future__ import annotations

import time

import pytest

from benchmarks.model_graphs import FAMILIES, draft_graph, model_graph
from tessera.passes.partition_plans import choose
from tessera.passes.partition_problem import measure
from tessera.passes.partition_solve import SolveOptions, lower_bound, solve


@pytest.mark.parametrize("family", FAMILIES)
def test_graphs_are_in_order_and_of_the_size_asked_for(family: str) -> None:
    for size in (60, 400):
        draft = draft_graph(family, size)
        assert 0.7 * size <= len(draft.tasks) <= size
        assert all(r > made for _, made, readers in draft.tensors for r in readers)


@pytest.mark.parametrize("family", ["dense", "ssm"])
def test_one_percent_at_a_thousand_kernels(family: str) -> None:
    problem = model_graph(family, 1000)
    started = time.process_time()
    bound = lower_bound(problem)
    relaxation = time.process_time() - started
    started = time.process_time()
    found = solve(problem, SolveOptions(gap=0.01))
    spent = time.process_time() - started
    assert found.placement is not None
    assert found.period_ns <= bound * 1.01
    assert spent <= 15 * relaxation + 0.2


def test_memory_binds_and_holds() -> None:
    problem = model_graph("dense", 400, memory_scale=0.7)
    choice = choose(problem, "throughput", SolveOptions(gap=0.05))
    assert choice is not None
    alone = (0,) * len(problem.tasks)
    assert not measure(problem, alone).fits
    for used, room in zip(choice.best.memory, problem.rooms, strict=True):
        assert used <= room.bytes
