"""Requests that take turns on a slice: those of a trace that is on one device of several.

All begin together and go through one slice together, then through the other, unless a gate keeps
them apart: by priorities a GPU cannot know which of them is the older.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tessera.driver.plan import PlanOptions, PlanReport, plan
from tessera.ir.plan.plan import Plan
from tessera.planning.promise.trial import with_gate
from tessera.simulation.hardware import hardware_of
from tessera.simulation.known_work import KnownWork
from tessera.simulation.simulate import Simulation, shares_of, with_counts
from tessera.simulation.steady import Saturation

MLP = Path(__file__).parents[3] / "examples" / "traces" / "mlp.ptx"
STEP_NS = {84: 1.0e6, 48: 0.9e6}


@pytest.fixture(scope="module")
def phased(tmp_path_factory: pytest.TempPathFactory) -> PlanReport:
    """Two traces in one replica, each on its slice."""
    folder = tmp_path_factory.mktemp("turns")
    first = plan(MLP, PlanOptions(gpus="h200"), compare=False).plan
    rows = [
        {
            "step": number,
            "name": step.name,
            "gpu": "h200",
            "sms": sms,
            "ns": ns,
            "beside_compute_ns": 1.02 * ns,
            "beside_memory_ns": 1.04 * ns,
        }
        for number, step in enumerate(first.replicas[0].traces[0].steps)
        for sms, ns in STEP_NS.items()
    ]
    digest = first.traces[0].digest
    profile = {"schema": "tessera-profile/1", "program": digest, "rows": rows}
    (folder / "times.json").write_text(json.dumps(profile))
    traces = []
    for name in ("prompt", "answer"):
        traces.append(str(folder / f"{name}.ptx"))
        shutil.copy(MLP, traces[-1])
    (folder / "apart.txt").write_text("prompt:*=h200-0.0\nanswer:*=h200-0.1\n")
    options = PlanOptions(
        gpus="h200:84sm,h200:48sm",
        placement=str(folder / "apart.txt"),
        slots=2,
        profiles=(str(folder / "times.json"),),
    )
    return plan(traces, options, compare=False)


def test_a_gate_keeps_requests_of_one_slice_apart(phased: PlanReport) -> None:
    made = phased.plan
    (replica,) = made.replicas
    used = [{step.device for step in own.steps} for own in replica.traces]
    assert [len(devices) for devices in used] == [1, 1]
    assert used[0] != used[1]
    gates = [own.gate for own in replica.lowered.traces]
    assert any(gate is not None for gate in gates)
    alone = [sum(step.predicted_ns for step in own.steps) for own in replica.traces]
    assert made.period_ns <= 1.05 * max(alone) / 2


def followed(made: Plan, slots: int, *, gates: bool, split: bool = False) -> Simulation:
    """The requests of a plan with so many slots, with its gates or without."""
    hardware = hardware_of(made)
    assert hardware is not None
    replicas = tuple(with_counts(replica, slots, slots) for replica in made.replicas)
    if not gates:
        for trace in (0, 1):
            replicas = tuple(with_gate(replica, trace, None) for replica in replicas)
    works = [
        {trace: replace(own, is_split=split) for trace, own in work.items()}
        for work in KnownWork(hardware).of(replicas)
    ]
    return Saturation(replicas, works, shares_of(made), hardware, timeline=True).follow()


def first_pass(found: Simulation, steps: int) -> list[int]:
    """Whose steps the first device did, in order, until two requests were through it."""
    events = sorted(found.traffic.timeline, key=lambda busy: busy.start_ns)
    own = [busy.request for busy in events if busy.place == ("h200-0.0",)]
    return own[: 2 * steps]


def test_requests_on_one_device_take_turns_step_by_step(phased: PlanReport) -> None:
    made = phased.plan
    steps = len(made.replicas[0].traces[0].steps)
    in_turns = first_pass(followed(made, 2, gates=False), steps)
    assert in_turns == in_turns[:2] * steps
    by_age = first_pass(followed(made, 2, gates=False, split=True), steps)
    assert by_age == [by_age[0]] * steps + [by_age[-1]] * steps
    gated = first_pass(followed(made, 2, gates=True), steps)
    assert len(set(gated[:3])) == 1


def test_with_one_slot_nobody_has_a_turn_to_wait_for(phased: PlanReport) -> None:
    made = phased.plan
    alone = followed(made, 1, gates=False).period_ns
    assert followed(made, 1, gates=True).period_ns == pytest.approx(alone)
    assert followed(made, 1, gates=False, split=True).period_ns == pytest.approx(alone)


def test_more_slots_are_not_tried_where_those_of_the_attempt_stay() -> None:
    """For the least latency there is one slot, whatever more of them would do for the rate."""
    options = PlanOptions(gpus="a100,l40s", strategy="phase", objective="latency")
    made = plan([f"{MLP}:3", f"{MLP}:1"], options, compare=False).plan
    assert [(replica.slots, replica.lanes) for replica in made.replicas] == [(1, 1)]
    assert made.period_ns == pytest.approx(made.latency_ns)
