"""Plans of the self-test's traces: made, run, and compared with one device to the byte.

In: a `TrialGround` and a folder for traces and profiles. Out: plans, outcomes, rows. The kernels
give equal bytes on all GPUs (`traces`), so the comparison is to the byte on unlike ones too: all
requests run again on the first device of the plan, and outputs and states have to be equal.

How long the steps take is a profile per model: on GPUs that of `tessc profile`, on the CPU backend
what the timeline of a run on one device says, the same for all devices: the machine under them is
one.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tessera.backend.processes.reference import Expected, Reference
from tessera.backend.service import Bytes
from tessera.diagnostics import ExitCode, TesseraError
from tessera.driver.load import load
from tessera.driver.plan import plan as make_plan
from tessera.driver.profile.profile_trace import profile, profile_text
from tessera.driver.profile.trace_timer import ProfileOptions
from tessera.driver.run.compare_runs import OneDeviceRun
from tessera.driver.run.options import PlanRunOptions
from tessera.driver.run.outcome import Outcome
from tessera.driver.run.run_plan import Prepared, prepare_run, run_prepared
from tessera.driver.run.schedule import Turn
from tessera.driver.run.serving import models_of
from tessera.driver.selftest.document import Row
from tessera.driver.selftest.ground import TrialGround
from tessera.driver.selftest.traces import TrialModel, TrialSize, trace_text
from tessera.frontend.machine.profile import SCHEMA
from tessera.ir.plan.launch_program import Queue
from tessera.ir.plan.machine import Machine
from tessera.ir.plan.plan import Plan
from tessera.ir.plan.print_plan import print_plan
from tessera.ir.program.print_trace import program_digest
from tessera.ir.text_digest import text_digest
from tessera.planning.given.options import PlanOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """Where traces are planned and run. `machine` has the links that were measured."""

    ground: TrialGround
    machine: Machine
    folder: Path
    seed: int
    limit_s: float

    def trace(self, model: TrialModel, size: TrialSize) -> str:
        """The file of a model's trace."""
        path = self.folder / f"{model}_{size}.ptx"
        if not path.exists():
            path.write_text(trace_text(model, size), "utf-8")
        return str(path)

    def plan(self, trace: str, **options: object) -> Plan:
        """A plan for the devices; the options are those of `PlanOptions`."""
        asked = replace(PlanOptions(machine=self.machine), **options)  # type: ignore[arg-type]
        return make_plan(trace, asked, compare=False).plan

    def prepare(self, plan: Plan, requests: int, *, timeline: bool = False) -> Prepared:
        """A run of a plan on its devices, proved and ready."""
        used = [device for replica in plan.replicas for device in replica.lowered.devices]
        options = PlanRunOptions(
            backend=self.ground.backend,
            targets=self.ground.used(used),
            requests=requests,
            seed=self.seed,
            timeline=timeline,
            limit_s=self.limit_s,
        )
        return prepare_run(plan, options)


def digest_of(plan: Plan) -> str:
    """The digest of a plan's text."""
    return text_digest(print_plan(plan))


def run_whole(prepared: Prepared) -> Outcome:
    """Run all requests; raises what ended the run early."""
    try:
        outcome = run_prepared(prepared)
        if outcome.fault:
            raise TesseraError(outcome.fault, exit_code=outcome.exit_code)
    except TesseraError as failure:
        if failure.exit_code == ExitCode.INTERRUPTED:
            raise KeyboardInterrupt from None  # it ends the test, not only this run
        raise
    return outcome


def compare_bytes(outcome: Outcome, prepared: Prepared) -> int:
    """The number of bytes that were compared; raises TSR5054 if some differ."""
    references, close = _references(prepared)
    sequences = [
        (index, sequence)
        for index, replica in enumerate(outcome.opened.replicas)
        for sequence in range(replica.lowered.lanes)
    ]
    last: dict[int, Expected] = {}
    compared = 0
    try:
        for turn in outcome.turns:
            replica, lane = sequences[turn.sequence]
            inputs = prepared.materials.inputs(turn.request, turn.trace, turn.turn)
            expected = references[replica].run(
                inputs, trace=turn.trace, lane=lane, request=turn.request
            )
            last[turn.sequence] = expected
            compared += _equal(expected.outputs, outcome.done[turn.request].outputs, turn)
    finally:
        close()
    for turn in outcome.turns:
        if outcome.states is not None and turn.sequence in last:
            states = last.pop(turn.sequence).states
            compared += _equal(states, outcome.states[turn.sequence], turn)
    return compared


def _references(prepared: Prepared) -> tuple[list[OneDeviceRun], Callable[[], None]]:
    """Runs of the requests of each replica on one device, the same for all replicas."""
    models = models_of(prepared.opened, prepared.materials)
    if prepared.choice.backend == "cpu":
        return [
            Reference(model.traces, model.weights, model.states, model.fillings, max_steps=None)
            for model in models
        ], lambda: None
    from tessera.driver.run.verify import AloneOn

    first = models[0].lowered.devices[:1]
    alone = [
        AloneOn(
            replace(model, lowered=replace(model.lowered, devices=first)),
            prepared.opened.graphs,
            prepared.choice,
            prepared.options.limit_s,
        )
        for model in models
    ]

    def close() -> None:
        for reference in alone:
            reference.close()

    return [*alone], close


def _equal(wanted: Mapping[str, Bytes], given: Mapping[str, Bytes], turn: Turn) -> int:
    compared = 0
    for name, content in wanted.items():
        differs = np.asarray(content != given[name])
        if differs.any():
            raise TesseraError.of(
                "TSR5054",
                f"request {turn.request} differs from the run on one device in `{name}`: "
                f"{int(differs.sum())} of {len(differs)} bytes",
                notes=(f"the first of them is byte {int(np.argmax(differs))}",),
                exit_code=ExitCode.MISMATCH,
            )
        compared += len(content)
    return compared


# --- durations of steps --------------------------------------------------------------------------


_REPEATS = 5
_REQUESTS = 5
_UNTIMED = 1
_LEAST_ERROR = 0.05


def measure_durations(shop: Workshop, trace: str) -> Row:
    """The profile of a trace on the devices."""
    if shop.ground.backend == "cpu":
        return _from_timeline(shop, trace)
    options = ProfileOptions(
        devices=shop.ground.devices, repeats=_REPEATS, seed=shop.seed, limit_s=shop.limit_s
    )
    return profile(trace, options)


def keep_profile(shop: Workshop, model: str, measured: Row) -> str:
    """Write a profile to a file, for plans."""
    path = shop.folder / f"{model}.profile.json"
    path.write_text(profile_text(measured), "utf-8")
    return str(path)


def _from_timeline(shop: Workshop, trace: str) -> Row:
    placed = shop.folder / "alone.place"
    placed.write_text(f"*={shop.machine.devices[0].name}\n", "utf-8")
    plan = shop.plan(trace, placement=str(placed), slots=1, sequences=1)
    outcome = run_whole(shop.prepare(plan, _UNTIMED + _REQUESTS, timeline=True))
    times: dict[int, list[int]] = {}
    for request in sorted(outcome.done)[_UNTIMED:]:
        for event in outcome.done[request].events:
            if event.queue is Queue.COMPUTE and event.step is not None:
                times.setdefault(int(event.step), []).append(event.end_ns - event.start_ns)
    program = load(trace)
    names = {step.step: step.name for step in plan.replicas[0].traces[0].steps}
    devices = {(shop.machine.gpu_of(d).key, d.sms) for d in shop.machine.devices}
    rows = []
    for gpu, sms in sorted(devices):
        for step, taken in sorted(times.items()):
            middle = max(statistics.median(taken), 1.0)
            spread = statistics.median(abs(ns - middle) for ns in taken) / middle
            rows.append(
                {
                    "step": step,
                    "name": names[step],
                    "gpu": gpu,
                    "sms": sms,
                    "ns": round(middle, 1),
                    "error": round(min(max(spread, _LEAST_ERROR), 1.0), 4),
                }
            )
    return {"schema": SCHEMA, "program": program_digest(program), "rows": rows}
