"""The period of a simulation is that of many requests, however their pattern repeats."""

from __future__ import annotations

import pytest

from benchmarks.prediction.simulated_cpu import case_of, model_of_case, replica_of, simulated_ns
from tessera.simulation import steady
from tessera.simulation.events import EventLoop
from tessera.simulation.hardware import process_hardware
from tessera.simulation.intake import SimulatedReplica, always
from tessera.simulation.known_work import work_of
from tessera.simulation.steady import Saturation, saturate

MANY = 400


def many_requests_ns(number: int) -> float:
    """The period of a case over many requests."""
    case = case_of(number, 1)
    lowered = model_of_case(case).lowered
    hardware = process_hardware(lowered.devices, case.bytes_per_s)
    (work,) = work_of([replica_of(case, lowered)], hardware)
    replica = SimulatedReplica(
        work=work,
        slots=lowered.slots,
        sequences=lowered.lanes,
        depth=1,
        coming=always(case.shares, lowered.lanes),
    )
    loop = EventLoop([replica], hardware.capacities)
    loop.run([MANY])
    ends = loop.ends_of(0)
    return (ends[MANY - 1] - ends[MANY // 4 - 1]) / (MANY - MANY // 4)


# Mixes whose traces repeat after 8, 16 and 20 requests.
@pytest.mark.parametrize("number", [9, 24, 39])
def test_the_period_is_that_of_many_requests(number: int) -> None:
    assert simulated_ns(case_of(number, 1))[0] == pytest.approx(many_requests_ns(number), rel=0.005)


@pytest.mark.parametrize("number", [1, 9, 17, 24])
def test_work_that_is_measured_tells_the_same(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for large plans. Without rounds that repeat, of which the period is read off."""
    monkeypatch.setattr(steady, "_LARGE", 0)
    monkeypatch.setattr(steady, "STEADY", -1.0)
    assert simulated_ns(case_of(number, 1))[0] == pytest.approx(many_requests_ns(number), rel=0.01)


def test_a_device_without_work_so_far_is_not_divided_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first requests may all be of traces that the busiest device does nothing for."""
    monkeypatch.setattr(steady, "_LARGE", 0)
    monkeypatch.setattr(steady, "STEADY", -1.0)
    busy_ns = EventLoop.busy_ns
    seen: list[dict[str, float]] = []

    def none_at_first(loop: EventLoop) -> dict[str, float]:
        seen.append(dict.fromkeys(busy_ns(loop), 0.0) if len(seen) < 2 else busy_ns(loop))
        return seen[-1]

    monkeypatch.setattr(EventLoop, "busy_ns", none_at_first)
    assert simulated_ns(case_of(9, 1))[0] == pytest.approx(many_requests_ns(9), rel=0.3)
    assert len(seen) > 3


def test_a_device_that_has_worked_ahead_is_not_divided_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """With very many slots, the work of later rounds may be done when the first one ends."""
    monkeypatch.setattr(steady, "_LARGE", 0)
    monkeypatch.setattr(steady, "STEADY", -1.0)
    busy_ns = EventLoop.busy_ns
    seen: list[dict[str, float]] = []

    def done_ahead(loop: EventLoop) -> dict[str, float]:
        seen.append(seen[0] if len(seen) in (1, 2) else busy_ns(loop))
        return seen[-1]

    monkeypatch.setattr(EventLoop, "busy_ns", done_ahead)
    assert simulated_ns(case_of(9, 1))[0] == pytest.approx(many_requests_ns(9), rel=0.3)
    assert len(seen) > 3


@pytest.mark.parametrize("number", [9, 17])
def test_a_simulation_goes_on_from_where_it_was_left(number: int) -> None:
    case = case_of(number, 1)
    lowered = model_of_case(case).lowered
    hardware = process_hardware(lowered.devices, case.bytes_per_s)
    replicas = [replica_of(case, lowered)]
    works = work_of(replicas, hardware)
    left = Saturation(replicas, works, case.shares, hardware)
    assert left.period_ns(2) > 0
    assert left.follow() == saturate(replicas, case.shares, hardware)
