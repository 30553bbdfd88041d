"""The latency planner against an enumeration of all placements."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tessera.planning.bound.relax import request_bound
from tessera.planning.problem.problem import INFINITY, Problem, Tensor
from tessera.planning.search import latency as partition_latency
from tessera.planning.search.latency import separators, solve_latency
from tessera.planning.search.schedule import MovedRequest, latency_of
from tessera.planning.search.single_moves import Offers, State
from tests.helpers.planning import every_placement, makespan, random_problem
from tests.helpers.share import share


def chained(seed: int, blocks: int, devices: int) -> Problem:
    """Blocks of three tasks that come together in a fourth: a separator each."""
    problem = random_problem(seed, 4 * blocks, devices)
    tensors = []
    for index in range(4 * blocks):
        following = range(index + 1, min(index + 4, 4 * blocks))
        readers = tuple(following) if index % 4 == 3 else (index + 3 - index % 4,)
        if readers:
            size = 1.0 + (index * 37 + seed) % 50
            tensors.append(Tensor(name=f"t{index}", bytes=size, producer=index, consumers=readers))
    return replace(problem, tensors=tuple(tensors), rooms=(), residents=())


@pytest.mark.parametrize("seed", share(range(60)))
def test_equal_to_enumeration(seed: int) -> None:
    rng = random.Random(seed)
    devices = rng.choice([2, 3])
    problem = random_problem(seed, rng.randrange(3, 8 if devices == 2 else 6), devices)
    best = min((makespan(problem, one) for one in every_placement(problem)), default=None)
    found = solve_latency(problem)
    if best is None:
        assert found.placement is None
        return
    assert found.placement is not None
    assert found.exact
    assert found.latency_ns == pytest.approx(best, rel=1e-9)
    assert makespan(problem, found.placement) == pytest.approx(best, rel=1e-9)
    assert latency_of(problem, found.placement) == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("seed", share(range(20)))
def test_segments_joined_are_equal_to_enumeration(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = chained(seed, 2, 2)
    assert len(separators(problem)) >= 2
    best = min(makespan(problem, one) for one in every_placement(problem))
    monkeypatch.setattr(partition_latency, "_MOST_PLACEMENTS", 40)
    found = solve_latency(problem)
    assert found.exact
    assert found.latency_ns == pytest.approx(best, rel=1e-9)


def test_a_deep_chain_is_exact() -> None:
    problem = chained(3, 60, 2)
    found = solve_latency(problem)
    assert found.exact
    assert found.placement is not None
    assert found.bound_ns == pytest.approx(found.latency_ns)


@pytest.mark.parametrize("seed", share(range(8)))
def test_memory_is_kept_where_segments_are_joined(seed: int) -> None:
    free = chained(seed, 8, 2)
    tight = random_problem(seed, len(free.tasks), 2)
    problem = replace(free, rooms=tight.rooms, residents=tight.residents)
    starts = [(*(0,) * cut, *(1,) * (len(free.tasks) - cut)) for cut in range(len(free.tasks) + 1)]
    starts = [
        start
        for start in starts
        if all(task.ns[d] is not None for task, d in zip(free.tasks, start, strict=True))
    ]
    found = solve_latency(problem, starts)
    assert found.bound_ns <= found.latency_ns
    if found.placement is not None:
        used = [0, 0]
        for resident in problem.residents:
            for device in {found.placement[task] for task in resident.users}:
                used[device] += resident.bytes
        assert all(u <= room.bytes for u, room in zip(used, problem.rooms, strict=True))


def test_a_tensor_that_passes_by_is_no_cut() -> None:
    problem = chained(0, 2, 2)
    bypass = Tensor(name="skip", bytes=1.0, producer=1, consumers=(6,))
    assert set(separators(replace(problem, tensors=(*problem.tensors, bypass)))) < set(
        separators(problem)
    )


def test_many_tasks_with_one_place_each() -> None:
    problem = chained(1, 12, 2)
    pinned = tuple(
        replace(task, ns=(5.0, 7.0 if n < 4 else None)) for n, task in enumerate(problem.tasks)
    )
    found = solve_latency(replace(problem, tasks=pinned))
    assert found.exact
    assert found.placement is not None
    assert set(found.placement[4:]) == {0}


@pytest.mark.parametrize("seed", share(range(10)))
def test_chains_and_loads_bound_what_is_too_large_to_enumerate(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = chained(seed, 2, 2)
    monkeypatch.setattr(partition_latency, "_MOST_PLACEMENTS", 1)
    found = solve_latency(problem, [(0,) * len(problem.tasks)])
    ends: list[float] = []
    for number, task in enumerate(problem.tasks):
        makers = [t.producer for t in problem.tensors if number in t.consumers]
        before = max((ends[maker] for maker in makers), default=0.0)
        ends.append(before + min(ns for ns in task.ns if ns is not None))
    assert not found.exact or found.latency_ns == found.bound_ns
    best = min(makespan(problem, one) for one in every_placement(problem))
    assert max(ends) * (1 - 1e-9) <= found.bound_ns <= best * (1 + 1e-9)
    assert found.latency_ns <= 1.05 * best


@pytest.mark.parametrize("seed", share(range(40)))
def test_no_request_is_shorter_than_chains_and_loads(seed: int) -> None:
    problem = random_problem(seed, 3 + seed % 5, 2 + seed % 2)
    best = min((makespan(problem, one) for one in every_placement(problem)), default=None)
    if best is not None:
        assert request_bound(problem) <= best * (1 + 1e-9)


@pytest.mark.parametrize("seed", share(range(20)))
def test_a_request_is_followed_while_tasks_move(seed: int) -> None:
    problem = random_problem(seed, 90, 3)
    rng = random.Random(seed)
    place = [rng.choice(task.allowed()) for task in problem.tasks]
    request = MovedRequest(problem, tuple(place))
    for _ in range(40):
        task = rng.randrange(len(place))
        device = rng.choice(problem.tasks[task].allowed())
        time = latency_of(problem, (*place[:task], device, *place[task + 1 :]))
        assert request.latency_if(task, device, INFINITY) == time
        below = time * rng.choice((0.5, 0.9, 1.0, 1.1))
        assert (request.latency_if(task, device, below) < below) == (time < below)
        if rng.random() < 0.5:
            place[task] = device
            request.move(task, device)


@pytest.mark.parametrize("seed", share(range(20)))
def test_kept_changes_are_those_of_now(seed: int) -> None:
    problem = random_problem(seed, 14, 3)
    rng = random.Random(seed)
    state = State(problem, [rng.choice(task.allowed()) for task in problem.tasks])
    offers = Offers(state)
    for _ in range(60):
        for task, options in enumerate(state.allowed):
            for to in set(options) - {state.place[task]}:
                assert offers.change(task, to)[0] == state.change(task, to)
        task = rng.randrange(len(state.place))
        to = rng.choice(state.allowed[task])
        if to != state.place[task]:
            offers.move(task, to, state.change(task, to))
