"""Waiting and moving are told apart: by hand, in simulations, on processes and the stand-in."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from tessera.backend.service import BackendOptions, EventKind, TimelineEvent
from tessera.driver.plan import plan as make_plan
from tessera.driver.run.options import PlanRunOptions
from tessera.driver.run.run_plan import prepare_run, run_prepared
from tessera.driver.simulated_timeline import timeline_events
from tessera.driver.timeline import timeline_json
from tessera.driver.waiting import TimeByPlace, time_by_place, time_spent, waits_of
from tessera.ir.plan.launch_program import (
    HOST,
    Await,
    DeviceEventId,
    DeviceProgram,
    LoweredTrace,
    Operation,
    Queue,
    Queued,
    Receive,
    Record,
    Run,
    Send,
    TransferId,
)
from tessera.ir.plan.plan import Plan
from tessera.ir.program.program import LaunchId
from tessera.planning.given.options import PlanOptions
from tessera.report.page.timeline_file import read_timeline
from tessera.report.page.timeline_section import timeline_section
from tessera.simulation.options import SimulateOptions
from tessera.simulation.simulate_plan import simulate
from tests.helpers.fake_cuda import FakeCuda

TRACE = str(Path(__file__).parents[3] / "examples" / "traces" / "mlp.ptx")
SLICES = "h200:84sm,h200:48sm"


# --- made up -----------------------------------------------------------------------------------


def program(device: str, *operations: tuple[Queue, Operation]) -> DeviceProgram:
    made = tuple(Queued(*operation) for operation in operations)
    return DeviceProgram(device=device, operations=made)


DONE, FREE, MOVED = DeviceEventId(0), DeviceEventId(1), TransferId(7)
PROGRAMS = (
    program(
        "a",
        (Queue.OUT, Await(DONE)),
        (Queue.OUT, Send(MOVED)),
        (Queue.COMPUTE, Run(LaunchId(0))),
        (Queue.COMPUTE, Record(DONE)),
        (Queue.COMPUTE, Run(LaunchId(1))),
    ),
    program(
        "b",
        (Queue.COMPUTE, Run(LaunchId(2))),
        (Queue.COMPUTE, Record(FREE)),
        (Queue.IN, Await(FREE)),
        (Queue.IN, Receive(MOVED)),
    ),
)


def made(device: str, queue: Queue, start: int, end: int, **more: Any) -> TimelineEvent:
    own = {"slot": 0, "request": 0, "name": "op", **more}
    return TimelineEvent(device=device, queue=queue, start_ns=start, end_ns=end, **own)


@pytest.mark.parametrize("has_steps", [True, False])
def test_an_end_waits_from_when_its_queue_comes_to_the_transfer(has_steps: bool) -> None:
    steps: list[Any] = [0, 1, 2] if has_steps else [None] * 3
    events = (
        made("a", Queue.COMPUTE, 0, 100, step=steps[0]),
        made("a", Queue.COMPUTE, 100, 180, step=steps[1]),
        made("b", Queue.COMPUTE, 10, 150, step=steps[2]),
        made("a", Queue.OUT, 200, 230, transfer=MOVED, peer="b", bytes=64, name="send x to b"),
        made("b", Queue.IN, 200, 230, transfer=MOVED, peer="a", bytes=64),
    )
    lowered = LoweredTrace(trace=0, transfers=(), programs=PROGRAMS)
    waits = list(waits_of(events, lowered))
    # Without an event per step, the last that ended on the device counts.
    since = 100 if has_steps else 180
    spans = [(wait.device, wait.queue, wait.start_ns, wait.end_ns) for wait in waits]
    assert spans == [("a", Queue.OUT, since, 200), ("b", Queue.IN, 150, 200)]
    assert waits[0].name == "wait to send x to b"
    assert all(wait.kind is EventKind.WAITING and not wait.bytes for wait in waits)
    spent = time_by_place((*events, *waits), ("a", "b"), 230)
    assert astuple(spent["a"][0]) == (180, 30, 20, 0)
    assert astuple(spent["b"][0]) == (140, 30, 50, 10)
    assert astuple(spent["a"][1][Queue.OUT]) == (0, 30, 200 - since, since)


@pytest.mark.parametrize("seed", range(20))
def test_every_moment_counts_once(seed: int) -> None:
    rng = random.Random(seed)
    pieces = []
    for _ in range(rng.randint(0, 12)):
        start = rng.randint(0, 40)
        pieces.append((rng.choice([*EventKind]), start, start + rng.randint(0, 15)))
    moments = [
        min((kinds.index(k) for k, a, b in pieces if a <= at < b), default=3)
        for kinds in [[*EventKind]]
        for at in range(60)
    ]
    assert astuple(time_spent(pieces, 60)) == tuple(moments.count(kind) for kind in range(4))


# --- random plans ------------------------------------------------------------------------------


def planned(gpus: str, seed: int) -> Plan:
    options = PlanOptions(gpus=gpus, placement=f"random:{seed}", slots=1 + seed % 3)
    return make_plan(TRACE, options, compare=False).plan


def check(plan: Plan, events: Sequence[TimelineEvent], spent: TimeByPlace) -> None:
    """Sums are whole, waits end where bytes move, and some end of every exchange waits."""
    whole = max(e.end_ns for e in events) - min(e.start_ns for e in events)
    for own, queues in spent.values():
        for sums in (own, *queues.values()):
            assert sum(astuple(sums)) == whole
            assert min(astuple(sums)) >= 0
        assert queues[Queue.IN].computing_ns == queues[Queue.OUT].computing_ns == 0
        assert own.computing_ns <= queues[Queue.COMPUTE].computing_ns
    edges = {
        (e.device, e.request, e.transfer, at)
        for e in events
        if e.transfer is not None and not e.is_wait
        for at in (e.start_ns, e.end_ns)
    }
    waits = [event for event in events if event.is_wait]
    assert waits
    for wait in waits:
        assert wait.end_ns > wait.start_ns
        own_edges = {(wait.device, wait.request, wait.transfer, wait.end_ns)} | {
            (wait.device, wait.request, wait.transfer, wait.start_ns)
        }
        assert own_edges & edges
    between = [
        transfer.id
        for transfer in plan.replicas[0].lowered.traces[0].transfers
        if HOST not in (transfer.source, transfer.target)
    ]
    for request in {event.request for event in events}:
        moved = [
            event.transfer
            for event in events
            if event.request == request and event.bytes and event.peer != HOST
        ]
        assert sorted(moved) == sorted(2 * between)


@pytest.mark.parametrize("backend", ["cuda", "cpu"])
@pytest.mark.parametrize("seed", [3, 4, 5])
def test_simulated_time_is_whole(seed: int, backend: str) -> None:
    plan = planned("a100,l40s", seed)
    throttle = None if backend == "cuda" else 1e8
    options = SimulateOptions(
        requests=4, timeline=True, backend=backend, throttle_bytes_per_s=throttle
    )
    report = simulate(plan, options)
    events = timeline_events(report)
    devices = plan.replicas[0].lowered.devices
    whole = max(e.end_ns for e in events) - min(e.start_ns for e in events)
    check(plan, events, time_by_place(events, devices, whole))
    read = read_timeline(json.loads(timeline_json(events, devices)), "t")
    data: Any = timeline_section(read, 0, "t").data
    assert sorted(span.name for span in read.spans) == sorted(event.name for event in events)
    kinds = [span.kind for span in read.spans]
    assert kinds.count(EventKind.WAITING) == sum(event.is_wait for event in events)
    assert data["spans"]["kind"] == [[*EventKind].index(kind) for kind in kinds]
    for device, *parts in data["spent"]:
        assert sum(parts) == pytest.approx(data["end"], abs=2)
        expected = time_by_place(events, devices, whole)[device][0]
        assert parts == pytest.approx(astuple(expected), abs=2 * len(events))


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_time_of_a_run_is_whole(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCuda(memory=1 << 30, name="NVIDIA H200")
    monkeypatch.setattr("tessera.backend.cuda.targets.bindings", lambda: fake)
    monkeypatch.setattr("tessera.backend.cuda.backend._LOOK_S", 1e-4)
    plan = planned(SLICES, 4)
    options = PlanRunOptions(backend=backend, requests=3)
    prepared = prepare_run(plan, options)
    for rows in (False, True) if backend == "cuda" else (False,):
        outcome = run_prepared(prepared, asked=BackendOptions(rows=rows))
        figures = outcome.figures()
        assert figures.hidden is not None
        check(plan, outcome.events(), figures.time)
