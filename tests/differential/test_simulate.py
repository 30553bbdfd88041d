"""The simulator against a slow one that was written from the rules alone; what the rules imply.

Random launch programs: every request begins and ends at the same time in both, back to back and
with arrivals. In a third of the cases all durations are small whole numbers, so that much happens
at the same moment and the order of service decides.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from tessera.ir.plan.launch_program import (
    HOST,
    Await,
    DeviceEventId,
    DeviceProgram,
    LoweredReplica,
    LoweredTrace,
    Operation,
    Queue,
    Queued,
    Receive,
    Record,
    Run,
    Send,
    Transfer,
    TransferId,
)
from tessera.ir.plan.plan import Plan
from tessera.ir.program.program import LaunchId
from tessera.simulation.events import EventLoop
from tessera.simulation.hardware import Hardware, Path, process_hardware
from tessera.simulation.intake import SimulatedReplica, always
from tessera.simulation.journal import Journal
from tessera.simulation.known_work import work_of
from tessera.simulation.simulate import arrive
from tessera.simulation.steady import saturate
from tests.helpers.launch_cases import Case, Numbers, on_slices, plan_of, random_launches
from tests.helpers.portions import one_portion
from tests.helpers.share import share
from tests.helpers.slow_simulator import SlowSimulator

SAME = 1e-9
"""The largest difference between two times, as a fraction. They are sums of the same numbers."""

Times = list[tuple[float, ...]]


def a_case(seed: int) -> Case:
    case = random_launches(seed, ties=seed % 3 == 1, lowered=seed % 6 in (1, 2))
    return on_slices(case, seed) if seed % 5 == 0 else case


def shares_of(plan: Plan) -> list[float]:
    return [trace.share for trace in plan.traces]


def back_to_back(plan: Plan, hardware: Hardware, requests: int, timeline: bool = False) -> Journal:
    """Until so many requests of every replica have ended."""
    loop = EventLoop(
        [
            SimulatedReplica(
                work=work,
                slots=replica.slots,
                sequences=replica.lanes,
                depth=hardware.depth,
                coming=always(shares_of(plan), replica.lanes),
            )
            for replica, work in zip(plan.replicas, work_of(plan.replicas, hardware), strict=True)
        ],
        hardware.capacities,
        hardware.neighbours,
        keep_timeline=timeline,
    )
    loop.run([requests] * len(plan.replicas))
    return loop.traffic()


def arriving(case: Case) -> Journal:
    shares = shares_of(case.plan)
    return arrive(case.plan.replicas, shares, case.hardware, case.times_ns).traffic


def times_of(requests: Iterable[Any], replica: int) -> Times:
    return sorted(
        (one.ended_ns, one.began_ns, float(one.trace)) for one in requests if one.replica == replica
    )


def first(times: Times, count: int) -> Times:
    """The first ones to end. Who of those that end with the last one is among them is open."""
    last = times[count - 1][0]
    return [row for row in times if row[0] < last] + [(last,)]


def assert_same(left: Times, right: Times) -> None:
    assert len(left) == len(right)
    for mine, yours in zip(left, right, strict=True):
        assert mine == pytest.approx(yours, rel=SAME, abs=SAME)


def assert_both_agree(case: Case) -> None:
    fast = back_to_back(case.plan, case.hardware, case.requests).passages
    slow = SlowSimulator(case.plan, case.hardware).saturate(case.requests)
    for replica in range(len(case.plan.replicas)):
        mine, yours = times_of(fast, replica), times_of(slow, replica)
        assert_same(first(mine, case.requests), first(yours, case.requests))
    fast = arriving(case).passages
    slow = SlowSimulator(case.plan, case.hardware).arrive(case.times_ns)
    assert len(fast) == len(case.times_ns)
    for replica in range(len(case.plan.replicas)):
        assert_same(times_of(fast, replica), times_of(slow, replica))


@pytest.mark.parametrize("seed", share(range(40)))
def test_rows_are_what_their_steps_are_one_by_one(seed: int) -> None:
    """With a timeline every step is an event of its own."""
    case = a_case(seed)
    rows, steps = (
        back_to_back(case.plan, case.hardware, 9, timeline=timeline) for timeline in (False, True)
    )
    assert rows.passages == steps.passages
    assert rows.busy_ns == pytest.approx(steps.busy_ns)


@pytest.mark.parametrize("seed", share(range(150)))
def test_both_simulators_agree(seed: int) -> None:
    assert_both_agree(a_case(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(150, 500))
def test_both_simulators_agree_on_more(seed: int) -> None:
    assert_both_agree(a_case(seed))


def test_requests_of_one_replica_do_not_keep_back_those_of_another_for_ever() -> None:
    """Those of the first are split over devices that requests of the second are on, too."""
    case = a_case(155)
    works = work_of(case.plan.replicas, case.hardware)
    assert [work[0].is_split for work in works] == [True, True]
    assert not works[1][1].is_split
    loop = EventLoop(
        [
            SimulatedReplica(
                work=work,
                slots=replica.slots,
                sequences=replica.lanes,
                depth=case.hardware.depth,
                coming=islice(always(shares_of(case.plan), replica.lanes), 400),
            )
            for replica, work in zip(case.plan.replicas, works, strict=True)
        ],
        case.hardware.capacities,
        case.hardware.neighbours,
    )
    loop.run([10, 10])
    assert len(loop.ends_of(0)) < 100
    assert_both_agree(case)


@pytest.mark.parametrize("seed", share(range(8)))
def test_both_agree_where_links_have_no_limit(seed: int) -> None:
    case = a_case(seed)
    devices = tuple({device: 0 for one in case.plan.replicas for device in one.lowered.devices})
    hardware = process_hardware(devices, None if seed % 2 else 1e9)
    assert_both_agree(replace(case, hardware=replace(hardware, depth=1 + seed % 3)))


def test_cases_have_what_they_are_for() -> None:
    cases = [a_case(seed) for seed in range(150)]
    replicas = [replica.lowered for case in cases for replica in case.plan.replicas]
    traces = [trace for replica in replicas for trace in replica.traces]
    operations = [q.operation for t in traces for p in t.programs for q in p.operations]
    kinds = {type(operation).__name__ for operation in operations}
    local = {"Run", "Fill", "Free", "Send", "Receive", "Record", "Await"}
    assert kinds == local | {"Put", "AwaitPut", "Credit"}
    assert {case.hardware.buffered for case in cases} == {True, False}
    assert {case.hardware.depth for case in cases} == {1, 2, 3}
    assert {replica.slots for replica in replicas} == {replica.lanes for replica in replicas}
    assert {len(replica.devices) for replica in replicas} >= {1, 2, 3, 4}
    assert {len(case.plan.traces) for case in cases} == {1, 2, 3}
    assert {len(case.plan.replicas) for case in cases} == {1, 2}
    assert sum(trace.gate is not None for trace in traces) > 50
    ends = {(HOST in (t.source, t.target)) for trace in traces for t in trace.transfers}
    assert ends == {True, False}
    assert any(not any(program.operations for program in trace.programs) for trace in traces)


# --- what follows from the rules ----------------------------------------------------------------


@pytest.mark.parametrize("seed", share(range(0, 60, 3)))
def test_no_period_is_below_the_busiest_load(seed: int) -> None:
    case = a_case(seed)
    traffic = back_to_back(case.plan, case.hardware, 30)
    load: dict[str, float] = {}
    works = work_of(case.plan.replicas, case.hardware)
    for passage in traffic.passages:
        for node in works[passage.replica][passage.trace].nodes:
            for name in node.place if node.ns else ():
                part = node.rate / case.hardware.capacities[name] if node.rate else 1.0
                load[name] = load.get(name, 0.0) + node.least_ns * part
    assert traffic.ended_ns >= max(load.values(), default=0.0) * (1 - SAME)


@pytest.mark.parametrize("seed", share(range(0, 60, 3)))
def test_nothing_does_more_than_it_can(seed: int) -> None:
    case = random_launches(seed, ties=False, lowered=seed % 2 == 1)
    timeline = back_to_back(case.plan, case.hardware, 10, timeline=True).timeline
    last: dict[str, float] = {}
    for busy in sorted(timeline, key=lambda busy: busy.start_ns):
        if busy.place[:1] and busy.place[0] not in case.hardware.capacities:
            assert busy.start_ns >= last.get(busy.place[0], 0.0)
            last[busy.place[0]] = busy.end_ns


@pytest.mark.parametrize("seed", share(range(0, 40, 4)))
def test_more_slots_never_delay_the_first_request(seed: int) -> None:
    case = a_case(seed)
    for slots in (1, 2, 4, 8):
        replicas = tuple(replace(one, slots=slots) for one in case.plan.replicas)
        more = replace(case, plan=replace(case.plan, replicas=replicas))
        assert min(p.began_ns for p in arriving(more).passages) == case.times_ns[0]
        passages = back_to_back(more.plan, more.hardware, 4).passages
        assert min(passage.began_ns for passage in passages) == 0.0


@pytest.mark.parametrize("seed", share(range(0, 40, 4)))
def test_the_same_comes_out_twice(seed: int) -> None:
    case = a_case(seed)
    runs = [back_to_back(case.plan, case.hardware, 12, timeline=True) for _ in range(2)]
    assert runs[0] == runs[1]
    assert arriving(case) == arriving(case)


def test_replicas_that_are_followed_once_are_all_in_what_comes_out() -> None:
    """Replicas that are alike but for names, and one that is not, each on a device of its own."""
    made = []
    for device, ns in (("g0", 3.0), ("g1", 5.0), ("g2", 5.0)):
        program = DeviceProgram(device=device, operations=(Queued(*A_STEP),))
        trace = LoweredTrace(trace=0, transfers=(), programs=(program,))
        made += plan_of([_replica(trace, slots=2)], [1.0], [1.0], _Always(ns)).replicas
    found = saturate(made, [1.0], NO_LINKS)
    assert found.busy == {"g0": 1.0, "g1": 1.0, "g2": 1.0}
    assert found.period_ns == 5.0
    for replica, ns in enumerate((3.0, 5.0, 5.0)):
        ends = [one.ended_ns for one in found.traffic.passages if one.replica == replica]
        assert ends == [ns * number for number in range(1, len(ends) + 1)]
        assert len(ends) > 10


# --- programs that take no time -----------------------------------------------------------------


def plan_with(
    *traces: list[tuple[Queue, Operation]],
    ns: float = 0.0,
    slots: int = 2,
    replicas: int = 1,
    transfers: tuple[Transfer, ...] = (),
) -> Plan:
    """A plan on one device whose steps all take `ns`."""
    made = [
        LoweredTrace(
            trace=number,
            transfers=transfers,
            programs=(DeviceProgram(device="g0", operations=tuple(Queued(*one) for one in trace)),),
        )
        for number, trace in enumerate(traces)
    ]
    lowered = _replica(*made, slots=slots)
    return plan_of([lowered] * replicas, [1.0] * replicas, [1.0] * len(traces), _Always(ns))


def _replica(*traces: LoweredTrace, slots: int) -> LoweredReplica:
    return LoweredReplica(
        devices=tuple(program.device for program in traces[0].programs),
        slots=slots,
        lanes=slots,
        areas=(),
        places=(),
        homes=(),
        traces=traces,
    )


class _Always(Numbers):
    """Every step takes the same."""

    def __init__(self, step_ns: float) -> None:
        super().__init__(random.Random(0), ties=True)
        self.step_ns = step_ns

    def ns(self, most: float) -> float:
        del most
        return self.step_ns


NO_LINKS = Hardware(paths={}, capacities={})
A_STEP = (Queue.COMPUTE, Run(LaunchId(0)))


def both(plan: Plan, requests: int) -> list[tuple[float, float]]:
    """Begins and ends of the first requests, the same in both simulators."""
    case = Case(plan, NO_LINKS, requests, tuple(float(n) for n in range(requests)))
    assert_both_agree(case)
    passages = back_to_back(plan, NO_LINKS, requests).passages
    return [(passage.began_ns, passage.ended_ns) for passage in passages]


def test_requests_without_operations_end_when_they_begin() -> None:
    assert set(both(plan_with([]), 5)) == {(0.0, 0.0)}
    passages = arrive(plan_with([]).replicas, [1.0], NO_LINKS, [3.0, 3.0, 8.0]).traffic.passages
    assert [(p.began_ns, p.ended_ns) for p in passages] == [(3.0, 3.0), (3.0, 3.0), (8.0, 8.0)]


def test_a_period_of_nothing_is_zero() -> None:
    assert saturate(plan_with([]).replicas, [1.0], NO_LINKS).period_ns == 0.0
    assert saturate(plan_with([A_STEP]).replicas, [1.0], NO_LINKS).period_ns == 0.0


def test_steps_that_take_no_time_wait_for_no_device() -> None:
    assert set(both(plan_with([A_STEP, A_STEP]), 5)) == {(0.0, 0.0)}


def test_empty_requests_do_not_hold_up_others() -> None:
    rows = both(plan_with([], [A_STEP], ns=7.0), 8)
    assert sorted(end for began, end in rows if end > began)[:3] == [7.0, 14.0, 21.0]


def test_a_replica_without_work_beside_one_with_work_comes_to_an_end() -> None:
    idle, busy = plan_with([]), plan_with([A_STEP], ns=5.0)
    both(replace(busy, replicas=(*idle.replicas, *busy.replicas)), 6)
    both(replace(busy, replicas=(*busy.replicas, *idle.replicas)), 6)


def test_long_chains_without_time_need_no_deep_stack() -> None:
    """Three queues that wait for each other again and again, after a step and an input."""
    bytes_in = one_portion(0, 0, HOST, "g0", ((0, 3),))
    trace: list[tuple[Queue, Operation]] = [A_STEP, (Queue.IN, Receive(TransferId(0)))]
    events: list[DeviceEventId] = []
    for layer in range(1000):
        trace += [(queue, Await(event)) for queue in Queue for event in events]
        events = [DeviceEventId(3 * layer + number) for number in range(3)]
        trace += [(queue, Record(event)) for queue, event in zip(Queue, events, strict=True)]
    plan = plan_with(trace, ns=5.0, transfers=(bytes_in,))
    path = Path(bytes_per_second=1e9, latency_ns=1.0, shares=())
    hardware = Hardware(paths={(HOST, "g0"): path}, capacities={})
    passages = back_to_back(plan, hardware, 2).passages
    assert [(passage.began_ns, passage.ended_ns) for passage in passages] == [
        (0.0, 5.0),
        (0.0, 10.0),
    ]


# --- single rules -------------------------------------------------------------------------------


def test_of_requests_that_come_together_the_first_is_served_first() -> None:
    """Even if it went to a later replica: here both share a device, and the second one is due."""
    plan = plan_with([A_STEP], ns=5.0, replicas=2)
    shares = 0.2, 0.8
    replicas = tuple(
        replace(one, share=share) for one, share in zip(plan.replicas, shares, strict=True)
    )
    plan = replace(plan, replicas=replicas)
    assert_both_agree(Case(plan, NO_LINKS, 4, (0.0,) * 8))
    passages = arrive(replicas, [1.0], NO_LINKS, [0.0] * 8).traffic.passages
    assert [passage.replica for passage in passages][:2] == [1, 1]


def test_of_one_request_what_stands_first_goes_first() -> None:
    """A send and a step wait for the same event. Which one the device does first, their order
    says, whatever queues they are on."""
    move = one_portion(0, 0, "g0", "g1", ((0, 8),))
    wait = Await(DeviceEventId(0))
    send = [Queued(Queue.OUT, wait), Queued(Queue.OUT, Send(move.id))]
    step = [Queued(Queue.COMPUTE, wait), Queued(Queue.COMPUTE, Run(LaunchId(1)))]
    head = [Queued(*A_STEP), Queued(Queue.COMPUTE, Record(DeviceEventId(0)))]
    path = Path(bytes_per_second=1e9, latency_ns=0.0, shares=(), tax_ns=3.0)
    hardware = Hardware(paths={("g0", "g1"): path}, capacities={})
    ends = []
    for order in (send + step, step + send):
        programs = (
            DeviceProgram(device="g0", operations=tuple(head + order)),
            DeviceProgram(device="g1", operations=(Queued(Queue.IN, Receive(move.id)),)),
        )
        lowered = LoweredTrace(trace=0, transfers=(move,), programs=programs)
        plan = plan_of([_replica(lowered, slots=1)], [1.0], [1.0], _Always(5.0))
        assert_both_agree(Case(plan, hardware, 3, (0.0, 1.0)))
        ends.append(back_to_back(plan, hardware, 1).passages[0].ended_ns)
    # 5 for the first step; then 3 + 8 + 3 for the transfer, behind the other step or beside it.
    assert ends == [19.0, 24.0]
