"""How far apart requests begin: what happens without a gate, and that the one found helps."""

from __future__ import annotations

import random

import pytest

from tessera.passes.partition.problem import Problem, Task, Tensor, Wire, measure
from tessera.passes.partition.spacing import find_spacing, follow, stops_of


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
