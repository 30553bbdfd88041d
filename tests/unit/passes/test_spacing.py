"""How far apart requests begin: what happens without a gate, and that the one found helps."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tessera.passes.placement.problem import (
    INFINITY,
    Pipe,
    Problem,
    Task,
    Tensor,
    Wire,
    contract,
    measure,
)
from tessera.passes.placement.spacing import Stop, find_spacing, follow, in_fewer, stops_of


def chain(times: list[float], *, bytes_between: float = 0.0) -> Problem:
    """Tasks one after the other, each as fast on both devices."""
    return Problem(
        devices=("a", "b"),
        tasks=tuple(Task(name=f"t{i}", ns=(ns, ns)) for i, ns in enumerate(times)),
        tensors=tuple(
            Tensor(name=f"x{i}", bytes=bytes_between, producer=i, consumers=(i + 1,))
            for i in range(len(times) - 1)
        ),
        wires=(
            Wire(source=0, target=1, ns_per_byte=1.0, latency_ns=10.0),
            Wire(source=1, target=0, ns_per_byte=1.0, latency_ns=10.0),
        ),
    )


def test_requests_that_begin_together_stay_together() -> None:
    """Two stages of many short tasks: both slots are in the first, then both in the second."""
    problem = chain([100.0] * 20)
    placement = (0,) * 10 + (1,) * 10
    stops = stops_of(problem, placement)
    assert follow(stops, 2, 40, None, None) > 1.8 * 1000
    found = find_spacing(problem, placement, 2)
    assert found.gate is not None
    assert found.period_ns < 1.03 * 1000
    assert follow(stops, 2, 40, found.gate, 7) < 1.06 * 1000


def test_one_device_or_one_slot_needs_none() -> None:
    problem = chain([100.0] * 8)
    assert find_spacing(problem, (0,) * 8, 4).gate is None
    assert find_spacing(problem, (0,) * 4 + (1,) * 4, 1).gate is None


def test_a_wire_can_be_what_limits() -> None:
    problem = chain([100.0, 100.0], bytes_between=500.0)
    found = find_spacing(problem, (0, 1), 4)
    assert found.period_ns == pytest.approx(500.0, rel=0.05)


@pytest.mark.parametrize("seed", range(12))
def test_what_is_found_is_never_slower_than_nothing(seed: int) -> None:
    """And never faster than the busiest device, which no order of requests can be."""
    rng = random.Random(seed)
    problem = chain([rng.choice([5.0, 50.0, 200.0]) for _ in range(rng.randrange(6, 40))])
    placement = tuple(rng.randrange(2) for _ in problem.tasks)
    slots = rng.randrange(2, 7)
    found = find_spacing(problem, placement, slots)
    none = max(follow(stops_of(problem, placement), slots, 12 * slots, None, s) for s in (None, 1))
    least = measure(problem, placement).period_ns
    assert least <= found.period_ns <= max(none, least) * 1.0001


def test_placements_that_cannot_run_have_no_gate() -> None:
    """No way between two devices, a task that cannot run there, nothing to do at all."""
    placement = (0,) * 4 + (1,) * 4
    apart = replace(chain([100.0] * 8), wires=())
    assert find_spacing(apart, placement, 2).period_ns == INFINITY
    assert find_spacing(apart, (0,) * 8, 2).period_ns == 800.0
    tasks = tuple(Task(name=f"t{i}", ns=(100.0, None)) for i in range(8))
    found = find_spacing(replace(apart, tasks=tasks), placement, 2)
    assert (found.gate, found.period_ns) == (None, INFINITY)
    nothing = Problem(devices=("a", "b"), tasks=())
    assert find_spacing(nothing, (), 2).period_ns == 0.0


def random_problem(rng: random.Random) -> Problem:
    """Tasks that read each other, some joined, some devices without a way between them."""
    devices, count = rng.randint(1, 4), rng.randint(1, 24)
    pairs = [(a, b) for a in range(devices) for b in range(devices) if a != b]
    times = [[rng.choice([0.0, 1.0, 50.0, 1e5]) for _ in range(devices)] for _ in range(count)]
    problem = Problem(
        devices=tuple("abcd"[:devices]),
        tasks=tuple(Task(name=f"t{i}", ns=tuple(ns)) for i, ns in enumerate(times)),
        tensors=tuple(
            Tensor(
                name=f"x{i}",
                bytes=rng.choice([0.0, 900.0]),
                producer=i,
                consumers=tuple(sorted({rng.randrange(i + 1, count) for _ in range(2)})),
            )
            for i in range(count - 1)
        ),
        wires=tuple(
            Wire(source=a, target=b, ns_per_byte=rng.random(), latency_ns=5.0)
            for a, b in pairs
            if rng.random() < 0.95
        ),
        pipes=(Pipe(name="bus", ns_per_byte=rng.random(), pairs=tuple(pairs)),),
        transfer_ns=rng.choice([0.0, 300.0]),
    )
    if rng.random() < 0.5:
        return problem
    numbers: dict[int, int] = {}
    drawn = [rng.randrange(count) for _ in range(count)]
    return contract(problem, tuple(numbers.setdefault(one, len(numbers)) for one in drawn))


@pytest.mark.parametrize("seed", range(4))
def test_random_problems(seed: int) -> None:
    """The period is never below any load, and a gate is one task, joined or not."""
    rng = random.Random(seed)
    for _ in range(12):
        problem = random_problem(rng)
        placement = tuple(rng.randrange(len(problem.devices)) for _ in problem.tasks)
        found = find_spacing(problem, placement, rng.choice([1, 2, 5]))
        least = measure(problem, placement).period_ns
        assert found.period_ns >= least * (1 - 1e-9)
        steps = len(problem.detail.groups) if problem.detail else len(problem.tasks)
        assert found.gate is None or 0 <= found.gate < steps


def test_many_tasks_are_followed_in_groups() -> None:
    """Two stages of 2500 tasks each, which one by one would take too long to follow."""
    problem = chain([100.0] * 5000)
    placement = (0,) * 2500 + (1,) * 2500
    stops = stops_of(problem, placement)
    fewer = in_fewer(stops, 200)
    assert len(fewer) <= 210
    for seed in (None, 3):
        one, other = follow(stops, 2, 6, None, seed), follow(fewer, 2, 6, None, seed)
        assert other == pytest.approx(one, rel=0.05)
    found = find_spacing(problem, placement, 4)
    assert found.gate is not None
    assert found.period_ns < 1.05 * 250_000
    assert follow(stops, 4, 12, found.gate, None) < 1.1 * 250_000


@pytest.mark.parametrize("seed", range(6))
def test_groups_keep_the_load_of_every_place(seed: int) -> None:
    rng = random.Random(seed)
    problem = chain([rng.uniform(1, 100) for _ in range(300)], bytes_between=5.0)
    placement = tuple(int(rng.random() < 0.5) if i % 20 == 0 else -1 for i in range(300))
    filled: list[int] = []
    for one in placement:
        filled.append(filled[-1] if one < 0 else one)
    stops = stops_of(problem, tuple(filled))
    fewer = in_fewer(stops, 60)
    assert len(fewer) < len(stops)

    def loads(some: list[Stop]) -> dict[tuple[int, ...], float]:
        found: dict[tuple[int, ...], float] = {}
        for stop in some:
            found[stop.place] = found.get(stop.place, 0.0) + stop.ns
        return found

    assert loads(fewer) == pytest.approx(loads(stops))
    assert sum(stop.before for stop in fewer) == sum(len(stop.after) for stop in fewer)
