"""`tessera.simulate`: figures that can be worked out by hand, and plans that cannot be followed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import tessera
from tessera.diagnostics import TesseraError
from tessera.driver.simulated_timeline import timeline_events
from tessera.ir.arrivals import Arrival, Arrivals
from tessera.ir.options import WrongOption
from tessera.ir.plan.launch_program import (
    Area,
    AreaKind,
    Await,
    DeviceEventId,
    Home,
    Place,
    Queue,
    Queued,
    Record,
)
from tessera.ir.plan.plan import Plan, PlanCapacity, PlanPath
from tessera.ir.program.program import BufferId
from tessera.report.simulation import simulation_json, simulation_text
from tessera.simulation.blocked import blocked_queues
from tessera.simulation.options import SimulateOptions
from tessera.simulation.report import SimulationReport, middle, windows_of
from tessera.simulation.simulate_plan import simulate
from tests.helpers import naps
from tests.helpers.plan_files import plan_of, write_plan
from tests.helpers.traces import trace

STEP_NS = 1000.0
CHAIN = """
launch m.doze grid=1,1,1 block=1,1,1 args=[h, x]
launch m.doze grid=1,1,1 block=1,1,1 args=[y, h]
"""


@cache
def the_plan(devices: tuple[str, ...] = ("a", "a"), slots: int = 1, error: float = 0.5) -> Plan:
    """Two steps of 1000 ns one after the other, on one device or two."""
    program = trace(naps.BUFFERS, naps.SLEEP, CHAIN)
    plan = plan_of([program], [devices], slots=slots, lanes=slots)
    replica = plan.replicas[0]
    placed = replica.traces[0]
    steps = tuple(replace(s, predicted_ns=STEP_NS, error=error) for s in placed.steps)
    replica = replace(replica, traces=(replace(placed, steps=steps),))
    names = [device.name for device in plan.devices]
    ends = [(s, t) for s in (*names, "host") for t in (*names, "host") if s != t]
    return replace(
        plan,
        replicas=(replica,),
        period_ns=2000.0,
        latency_ns=2000.0,
        bound=2000.0,
        capacities=(PlanCapacity(name="bus", bytes_per_second=4e9),),
        # A word takes 1 ns on its way.
        paths=tuple(
            PlanPath(source=s, target=t, bytes_per_second=4e9, latency_ns=10.0, shares=("bus",))
            for s, t in ends
        ),
    )


def at(*times: int) -> Arrivals:
    return Arrivals(name="here", form="test", requests=tuple(map(Arrival, times)))


def cpu(plan: Plan, **options: object) -> SimulationReport:
    """By the rules of the CPU backend, where transfers take no time."""
    return simulate(plan, SimulateOptions(backend="cpu", **options))  # type: ignore[arg-type]


def test_back_to_back() -> None:
    report = cpu(the_plan())
    assert report.full.period_ns == pytest.approx(2 * STEP_NS)
    assert report.alone_ns == 2 * STEP_NS
    assert report.full.latency_ns == 2 * STEP_NS
    assert report.served is None
    assert report.windows() == ()
    two = cpu(the_plan(("a", "b"), 2))
    assert two.full.period_ns == pytest.approx(STEP_NS)
    assert two.full.latency_ns == 2 * STEP_NS
    assert two.full.busy.keys() == {"a", "b"}
    assert min(two.full.busy.values()) > 0.9


def test_links_of_the_plan() -> None:
    report = simulate(the_plan())
    # A word in, two steps, a word out; each word takes 1 ns and 10 ns of latency.
    assert report.alone_ns == pytest.approx(2 * STEP_NS + 22)
    slow = simulate(the_plan(("a", "b")), SimulateOptions(throttle_bytes_per_s=4e6))
    between = 4 / 4e6 * 1e9
    assert slow.alone_ns == pytest.approx(2 * STEP_NS + 22 + between + 10)


def test_requests_that_come() -> None:
    report = cpu(the_plan(), arrivals=at(0, 500, 10_000))
    served = report.served
    assert served is not None
    assert [(p.came_ns, p.began_ns, p.ended_ns) for p in served.traffic.passages] == [
        (0, 0, 2000),
        (500, 2000, 4000),
        (10_000, 10_000, 12_000),
    ]
    assert served.latencies_ns == (2000, 2000, 2000)
    assert served.responses_ns == (2000, 2000, 3500)
    windows = report.windows()
    assert [window.came for window in windows] == [2, 0, 0, 0, 0, 0, 0, 0, 1, 0]
    assert sum(window.ended for window in windows) == 3
    assert windows[0].most_waiting == 1
    assert windows[0].mean_waiting == pytest.approx(700 / 1200)
    assert windows[1].mean_waiting == pytest.approx(800 / 1200)
    assert windows[2].most_waiting == 0


def test_speed_and_number_of_arrivals() -> None:
    fast = cpu(the_plan(), arrivals=at(0, 20_000, 40_000), speed=20, requests=2)
    assert fast.served is not None
    assert [p.came_ns for p in fast.served.traffic.passages] == [0, 1000]
    assert fast.served.responses_ns == (2000, 3000)


def test_a_number_of_requests_back_to_back() -> None:
    report = cpu(the_plan(("a", "b"), 2), requests=5)
    assert report.served is not None
    assert max(p.ended_ns for p in report.served.traffic.passages) == 6 * STEP_NS
    assert len(report.served.traffic.passages) == 5


def test_poisson_at_a_low_and_at_a_high_load() -> None:
    low = cpu(the_plan(), arrivals="poisson:1000/s:200")
    high = cpu(the_plan(), arrivals="poisson:1000/us:200")
    assert low.served is not None
    assert high.served is not None
    assert low.served.responses_ns[100] == 2 * STEP_NS
    # All come at once and are served one after the other.
    assert high.served.responses_ns[-1] == pytest.approx(200 * 2 * STEP_NS, rel=0.01)
    assert high.windows()[0].most_waiting > 150
    assert cpu(the_plan(), arrivals="poisson:1000/s:200", seed=5).served != low.served


def test_other_slots_and_sequences() -> None:
    plan = the_plan(("a", "b"), 2)
    assert cpu(plan, slots=1).full.period_ns == pytest.approx(2 * STEP_NS)
    assert cpu(plan, sequences=1).full.period_ns == pytest.approx(2 * STEP_NS)
    assert cpu(plan, sequences=1).full.period_ns == pytest.approx(2 * STEP_NS)
    assert cpu(plan, slots=8, sequences=8).full.latency_ns == pytest.approx(8 * STEP_NS)
    with pytest.raises(TesseraError, match=r"TSR5053.*at most 1024 slots"):
        cpu(plan, slots=1025)
    with pytest.raises(TesseraError, match=r"TSR5053.*at most 4096 sequences"):
        cpu(plan, sequences=5000)
    small = tuple(replace(card, capacity_bytes=card.used_bytes) for card in plan.cards)
    cpu(replace(plan, cards=small))
    with pytest.raises(TesseraError, match=r"TSR4009.*no room"):
        cpu(replace(plan, cards=small), slots=3)


def test_a_replica_that_writes_variables_keeps_its_slot() -> None:
    plan = the_plan()
    replica = plan.replicas[0]
    lowered = replace(
        replica.lowered,
        areas=(*replica.lowered.areas, Area(device="a", kind=AreaKind.MODULE, bytes=4, count=1)),
        places=(
            *replica.lowered.places,
            Place(trace=0, buffer=BufferId(9), device="a", kind=AreaKind.MODULE, offset=0),
        ),
        homes=(
            *replica.lowered.homes,
            Home(trace=0, buffer=BufferId(9), device="a", bytes=((0, 4),)),
        ),
    )
    changed = replace(plan, replicas=(replace(replica, lowered=lowered),))
    assert cpu(changed, slots=4).replicas[0].slots == 1
    assert cpu(plan, slots=4).replicas[0].slots == 4


def test_policies() -> None:
    slow, fast = the_plan(), the_plan()
    quick = replace(
        fast.replicas[0].traces[0],
        steps=tuple(replace(s, predicted_ns=1.0) for s in fast.replicas[0].traces[0].steps),
    )
    both = replace(
        slow,
        replicas=(
            replace(fast.replicas[0], policy="latency", traces=(quick,)),
            replace(slow.replicas[0], policy="throughput"),
        ),
    )
    assert cpu(both).policy == "throughput"
    assert cpu(both).full.period_ns == pytest.approx(2 * STEP_NS)
    assert cpu(both, policy="latency").full.period_ns == pytest.approx(2.0)
    names = [[claim.name for claim in cpu(both, policy=p).claims()] for p in ("latency", None)]
    assert names == [["latency alone", "bound"], ["rate", "bound"]]
    with pytest.raises(TesseraError, match=r"TSR5053.*no policy `best`"):
        cpu(both, policy="best")
    with pytest.raises(TesseraError, match=r"TSR5053.*no policy"):
        cpu(slow, policy="latency")


def test_claims() -> None:
    plan = replace(the_plan(), period_ns=1000.0, loaded_latency_ns=4000.0)
    claims = {claim.name: claim for claim in cpu(plan).claims()}
    assert claims["rate"].claimed == pytest.approx(1e6)
    assert claims["rate"].simulated == pytest.approx(5e5)
    assert claims["rate"].off == pytest.approx(-0.5)
    assert claims["latency alone"].off == 0
    assert claims["latency loaded"].off == pytest.approx(-0.5)
    assert claims["bound"].off == pytest.approx(0.0)
    latency = {claim.name: claim for claim in cpu(replace(plan, objective="latency")).claims()}
    assert latency["bound"].unit == "ns"
    dear = replace(plan, objective="cost", usd_per_request=1e-6, bound=2e-6)
    cost = {claim.name: claim for claim in cpu(dear).claims()}
    assert (cost["bound"].unit, cost["bound"].off) == ("usd", pytest.approx(0.0))
    assert "$2.0000 per million" in simulation_text(cpu(dear))


def test_noise() -> None:
    exact = cpu(the_plan(error=0.0), noise=True)
    assert len(exact.draws) == 20
    assert {round(draw.full.period_ns, 6) for draw in exact.draws} == {2000.0}
    noisy = cpu(the_plan(), noise=True, arrivals=at(0, 1))
    again = cpu(the_plan(), noise=True, arrivals=at(0, 1))
    assert [d.full.period_ns for d in noisy.draws] == [d.full.period_ns for d in again.draws]
    low, high = middle([draw.full.period_ns for draw in noisy.draws])
    assert 2000 / 1.6 < low < 2000 < high < 2000 * 1.6
    assert noisy.full.period_ns == pytest.approx(2000)
    assert [draw.number for draw in noisy.draws] == list(range(20))
    # One draw has the same times for requests back to back and for those that come.
    for draw in noisy.draws:
        assert draw.served is not None
        assert draw.served.latencies_ns[0] == pytest.approx(draw.full.period_ns)
    assert middle(list(range(20))) == (1, 18)
    assert middle([5.0]) == (5.0, 5.0)


def test_steps_that_take_no_time() -> None:
    plan = the_plan()
    placed = plan.replicas[0].traces[0]
    steps = tuple(replace(step, predicted_ns=0.0) for step in placed.steps)
    replica = replace(plan.replicas[0], traces=(replace(placed, steps=steps),))
    report = simulate(replace(plan, replicas=(replica,)))
    assert report.alone_ns == pytest.approx(22)


def test_the_timeline_has_what_the_devices_did() -> None:
    options = SimulateOptions(requests=3, timeline=True)
    report = simulate(the_plan(("a", "b"), 2), options)
    events = timeline_events(report)
    steps = [event for event in events if event.step is not None]
    assert len(steps) == 6
    assert {(event.device, event.step) for event in steps} == {("a", 0), ("b", 1)}
    assert {event.name for event in steps} == {"m.doze"}
    assert all(event.end_ns - event.start_ns == STEP_NS for event in steps)
    late = [e for e in events if e.name == "wait for the link: receive h from a"]
    latency = next(p.latency_ns for p in report.plan.paths if (p.source, p.target) == ("a", "b"))
    assert [(e.end_ns - e.start_ns, e.is_wait) for e in late] == [(latency, True)] * 3
    events = [event for event in events if not event.is_wait]
    sends = [e for e in events if e.queue is Queue.OUT and e.device == "a"]
    assert [(e.name, e.bytes, e.peer) for e in sends] == [("send h to b", 4, "b")] * 3
    receives = [e for e in events if e.queue is Queue.IN and e.device == "b"]
    assert [e.name for e in receives] == ["receive h from a"] * 3
    assert timeline_events(simulate(the_plan(), SimulateOptions(timeline=True)))
    assert timeline_events(simulate(the_plan())) == []
    with pytest.raises(TesseraError, match=r"TSR5053.*would be too large"):
        simulate(the_plan(), replace(options, requests=1_000_000))


# --- plans that cannot be followed ---------------------------------------------------------------


def test_a_plan_of_version_1(tmp_path: Path) -> None:
    old = replace(the_plan(), capacities=(), paths=())
    path = write_plan(tmp_path, old)
    for given in (old, path):
        with pytest.raises(TesseraError) as failure:
            simulate(given)
        (found,) = failure.value.diagnostics
        assert found.code == "TSR5060"
        assert "version 1" in str(found.headline)
        assert "--backend cpu" in (found.hint or "")
    assert simulate(path, SimulateOptions(backend="cpu")).full.period_ns == pytest.approx(2000)


def test_programs_that_wait_for_each_other() -> None:
    plan = the_plan(("a", "b"))
    lowered = plan.replicas[0].lowered
    assert blocked_queues(lowered.traces[0], buffered=True) == []
    assert blocked_queues(lowered.traces[0], buffered=False) == []
    event = DeviceEventId(77)
    program = lowered.traces[0].programs[0]
    stuck = replace(
        program,
        operations=(
            Queued(Queue.COMPUTE, Await(event)),
            *program.operations,
            Queued(Queue.COMPUTE, Record(event)),
        ),
    )
    changed = replace(
        lowered,
        traces=(replace(lowered.traces[0], programs=(stuck, *lowered.traces[0].programs[1:])),),
    )
    bad = replace(plan, replicas=(replace(plan.replicas[0], lowered=changed),))
    for backend in ("cuda", "cpu"):
        with pytest.raises(TesseraError) as failure:
            simulate(bad, SimulateOptions(backend=backend))
        (found,) = failure.value.diagnostics
        assert found.code == "TSR4008"
        assert "`a compute` waits for event 77" in found.notes
        assert "`b in` waits for transfer" in " ".join(found.notes)


def test_a_plan_whose_parts_do_not_agree() -> None:
    plan = the_plan()
    with pytest.raises(TesseraError, match="TSR4013"):
        simulate(replace(plan, replicas=(replace(plan.replicas[0], slots=5),)))
    with pytest.raises(TesseraError, match=r"TSR5053.*must be a path or a `Plan`"):
        simulate(7)  # type: ignore[arg-type]


def test_files_that_are_no_plans(tmp_path: Path) -> None:
    with pytest.raises(TesseraError, match="TSR1900"):
        simulate(tmp_path / "plan.tsp")
    (tmp_path / "plan.tsp").write_text("tessera-plan 99\n")
    with pytest.raises(TesseraError, match="TSR3020"):
        simulate(tmp_path / "plan.tsp")


@pytest.mark.parametrize(
    "options",
    [
        {"speed": 0},
        {"speed": float("nan"), "arrivals": "poisson:1/s"},
        {"requests": 0},
        {"slots": 0},
        {"sequences": 1.5},
        {"seed": -1},
        {"noise": "yes"},
        {"timeline": 1},
        {"policy": 3},
        {"throttle_bytes_per_s": -1.0},
        {"arrivals": 20},
    ],
)
def test_options_that_make_no_sense(options: dict[str, object]) -> None:
    with pytest.raises(TesseraError, match="TSR5053"):
        SimulateOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [{"backend": "gpu"}, {"speed": 2.0}, {"requests": 10**8}],
)
def test_options_that_do_not_go_together(options: dict[str, object]) -> None:
    with pytest.raises(WrongOption):
        SimulateOptions(**options)  # type: ignore[arg-type]


def test_the_library_has_it() -> None:
    found: Callable[..., object] = tessera.simulate
    assert found is simulate
    assert tessera.SimulateOptions is SimulateOptions


@pytest.mark.parametrize("arrivals", [at(), at(5, 3), at(-1, 3)])
def test_arrivals_that_cannot_be(arrivals: Arrivals) -> None:
    with pytest.raises(TesseraError, match=r"TSR5053.*in order"):
        cpu(the_plan(), arrivals=arrivals)


def test_arrivals_that_are_too_slow() -> None:
    with pytest.raises(TesseraError, match=r"TSR5053.*speed of 1e-300"):
        cpu(the_plan(), arrivals=at(0, 10), speed=1e-300)
    fast = cpu(the_plan(), arrivals=at(0, 10), speed=1e300)
    assert fast.served is not None
    assert fast.served.responses_ns == (2000, 4000)


@pytest.mark.parametrize(
    "options", [{}, {"requests": 3}, {"arrivals": at(0, 0)}, {"arrivals": at(0, 9), "noise": True}]
)
def test_a_report_of_requests_that_take_no_time(options: dict[str, object]) -> None:
    plan = the_plan()
    placed = plan.replicas[0].traces[0]
    steps = tuple(replace(step, predicted_ns=0.0) for step in placed.steps)
    replica = replace(plan.replicas[0], traces=(replace(placed, steps=steps),))
    report = cpu(replace(plan, replicas=(replica,), period_ns=0.0, bound=0.0), **options)
    assert "no rate" in simulation_text(report)
    assert "nan" not in simulation_json(report).lower()
    assert "infinity" not in simulation_json(report).lower()


def test_windows_of_nothing() -> None:
    report = cpu(the_plan(), arrivals=at(0))
    assert report.served is not None
    traffic = replace(report.served.traffic, ended_ns=0.0)
    assert windows_of(traffic) == ()
