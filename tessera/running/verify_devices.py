"""Verification on GPUs: to the byte where that can hold, else launch by launch.

In: the outcome of a run on GPUs. Out: a `Verdict`. Where all devices are GPUs of one kind, run the
same variants and add no floats atomically, one of them runs every request alone and bytes have to
be equal. Otherwise the reasons are stated, and each launch of the first request of every trace runs
on its device from the inputs that it has on the CPU backend; results are compared within the
tolerance of their type (`tolerance`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from tessera.backend.cpu.launch import LaunchResult
from tessera.backend.cpu.run import OneDevice
from tessera.backend.cpu_plan.engine import step_name
from tessera.backend.cpu_plan.reference import Expected, Reference
from tessera.backend.service import Backend, Bytes, Model, Request, ServedTrace
from tessera.diagnostics import TesseraError, error
from tessera.ir import program as ir
from tessera.ir import ptx
from tessera.ir.graph import KernelGraph
from tessera.ir.launch_program import DeviceProgram, Run
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences import Dependences
from tessera.passes.lower_plan import lower_replica
from tessera.running import Prepared
from tessera.running.backends import Choice, find_gpus, make_backend
from tessera.running.diverge import written
from tessera.running.outcome import Outcome
from tessera.running.serving import ServingOptions, backend_options
from tessera.running.tolerance import Distance, distance
from tessera.running.verify import MISMATCH, Verdict, compare_runs, variants_used

Progress = Callable[[int, int], None] | None
_FLOATS = frozenset(("f16", "f16x2", "bf16", "bf16x2", "f32", "f64"))
_WAIT_S = 60.0


def verify_on_devices(
    outcome: Outcome, prepared: Prepared, models: list[Model], on_progress: Progress = None
) -> Verdict:
    """Compare a run on GPUs with one of them."""
    reasons = obstacles(prepared)
    if reasons:
        verdict = verify_launches(prepared, models, on_progress)
        return replace(verdict, notes=(*reasons, *verdict.notes))
    references = [AloneOn(model, prepared.opened.graphs, prepared.choice) for model in models]
    try:
        return compare_runs(outcome, prepared.materials, models, references, on_progress)
    finally:
        for reference in references:
            reference.close()


def obstacles(prepared: Prepared) -> tuple[str, ...]:
    """Why bytes need not be equal to those of one device."""
    found = []
    gpus = {gpu.target: gpu.name for gpu in find_gpus()}
    kinds = {
        gpus.get(":".join(target.split(":")[:2]), target)
        for target in prepared.choice.targets.values()
    }
    if len(kinds) > 1:
        found.append(f"bytes need not be equal: the devices differ ({', '.join(sorted(kinds))})")
    for module, arches in variants_used(prepared).items():
        if len(arches) > 1:
            found.append(f"bytes need not be equal: module `{module}` runs as {', '.join(arches)}")
    for kernel in sorted(_adding(prepared.opened.programs)):
        found.append(f"bytes need not be equal: kernel `{kernel}` adds floats atomically")
    return tuple(found)


def _adding(programs: tuple[ir.Program, ...]) -> set[str]:
    """Kernels in whose modules floats are added atomically by a function that they may reach."""
    found = set()
    for program in programs:
        for step in program.launches():
            module = program.modules[step.module].variants[0].ptx
            for function in module.functions():
                own = function.name == step.kernel or not function.is_entry
                if own and function.body is not None and _adds(function.body):
                    found.add(step.kernel)
    return found


def _adds(body: tuple[ptx.Statement, ...]) -> bool:
    return any(
        isinstance(statement, ptx.Instruction)
        and statement.opcode.name in ("atom", "red")
        and not _FLOATS.isdisjoint(statement.opcode.modifiers)
        for statement in ptx.walk_statements(body)
    )


class AloneOn:
    """Requests on the first device of a replica alone, through the same backend."""

    def __init__(self, model: Model, graphs: tuple[KernelGraph, ...], choice: Choice) -> None:
        device = model.lowered.devices[0]
        programs = [served.program for served in model.traces]
        placements = [[device for _ in program.work()] for program in programs]
        lowered = lower_replica(programs, graphs, placements, slots=1, lanes=model.lowered.lanes)
        self._backend = _backend(replace(model, lowered=lowered), choice, device)
        self._next = 0

    def run(self, inputs: Mapping[str, Bytes], *, trace: int, lane: int) -> Expected:
        """The next request of a lane."""
        request = Request(number=self._next, trace=trace, slot=0, lane=lane, inputs=inputs)
        self._next += 1
        self._backend.begin(request)
        done = self._backend.collect(_WAIT_S)
        if not done:
            raise self._backend.stalled()
        return Expected(done[0].outputs, self._backend.read_states(lane), done[0].printed)

    def close(self) -> None:
        """Give the device back."""
        self._backend.close()


def _backend(model: Model, choice: Choice, device: str) -> Backend:
    targets = {device: choice.targets[device]} if device in choice.targets else {}
    alone = replace(choice, targets=targets)
    return make_backend(alone, model, backend_options(alone, ServingOptions(timeline=False)))


def verify_launches(
    prepared: Prepared, models: list[Model], on_progress: Progress = None
) -> Verdict:
    """Each launch on its device, from the inputs that it has on the CPU backend."""
    report = on_progress or (lambda done, total: None)
    comparison = _Launches(prepared.choice, models[0], report)
    reference = Reference(models[0].traces, models[0].weights, models[0].states, models[0].fillings)
    for turn in prepared.turns:
        if turn.turn == 0 and turn.lane < models[0].lowered.lanes:
            comparison.start(turn.trace)
            inputs = prepared.materials.inputs(turn.request, turn.trace, turn.turn)
            reference.run(inputs, trace=turn.trace, lane=turn.lane,
                          before_step=comparison.before, on_step=comparison.after)  # fmt: skip
    worst = comparison.worst
    notes = ("no launch writes numbers",) if worst is None else (f"worst: {worst[1]}",)
    return Verdict(
        requests=len({turn.trace for turn in prepared.turns if turn.turn == 0}), lanes=0,
        bytes=comparison.compared, how="launch by launch, within the tolerance of each type",
        notes=notes,
    )  # fmt: skip


class _Launches:
    """Runs launches one by one and compares what they write."""

    def __init__(self, choice: Choice, model: Model, report: Callable[[int, int], None]) -> None:
        self.choice = choice
        self.model = model
        self.compared = 0
        self.worst: tuple[float, str] | None = None
        self._report = report
        self._before: dict[str, Bytes] = {}
        self._trace = 0

    def start(self, trace: int) -> None:
        """The steps that follow are of this trace."""
        self._trace = trace

    def before(self, step: ir.Work, _: LaunchResult | None, machine: OneDevice) -> None:
        """Keep what the step starts from."""
        self._before = {
            buffer.name: machine.buffers[buffer.id].numpy().reshape(-1).view(np.uint8)
            for buffer in machine.program.buffers
            if buffer.role is not ir.Role.VARIABLE
        }

    def after(self, step: ir.Work, result: LaunchResult | None, machine: OneDevice) -> None:
        """Run the step on its device too, and compare."""
        program = machine.program
        self._report(int(step.id), sum(1 for _ in program.work()))
        changed = written(program, step, result)
        if any(program.buffers[b].role is ir.Role.VARIABLE for b, _ in changed):
            return
        states = self._alone(program, step)
        for number, spans in changed:
            buffer = program.buffers[number]
            expected = machine.buffers[number].numpy().reshape(-1).view(np.uint8)
            self._compare(program, step, buffer, spans, expected, states[buffer.name])

    def _alone(self, program: ir.Program, step: ir.Work) -> Mapping[str, Bytes]:
        """The buffers after one step on its device."""
        lowered = next(t for t in self.model.lowered.traces if t.trace == self._trace)
        device = _device_of(lowered.programs, step)
        single = replace(
            program,
            buffers=tuple(
                b if b.role is ir.Role.VARIABLE else replace(b, role=ir.Role.STATE)
                for b in program.buffers
            ),
            steps=(replace(step, id=ir.LaunchId(0)),),
        )
        graph = AnalysisManager(single).get(Dependences).graph
        arch = self.model.traces[self._trace].arches[step.id]
        model = Model(
            lowered=lower_replica([single], [graph], [[device]], slots=1, lanes=1),
            traces=(ServedTrace(name="launch", program=single, arches=(arch,)),),
            weights={}, states=[self._before], fillings=[{}],
        )  # fmt: skip
        backend = _backend(model, self.choice, device)
        try:
            backend.begin(Request(number=0, trace=0, slot=0, lane=0, inputs={}))
            if not backend.collect(_WAIT_S):
                raise backend.stalled()
            return backend.read_states(0)
        finally:
            backend.close()

    def _compare(
        self, program: ir.Program, step: ir.Work, buffer: ir.Buffer,
        spans: tuple[tuple[int, int], ...], expected: Bytes, found: Bytes,
    ) -> None:  # fmt: skip
        unit = 1 if buffer.dtype is None else buffer.dtype.bytes
        picked = np.zeros(len(expected) // unit, np.bool_)
        for start, end in spans:
            picked[start // unit : -(-end // unit)] = True
        rows = np.flatnonzero(picked)
        pair = [content.reshape(-1, unit)[rows].reshape(-1) for content in (expected, found)]
        result = distance(buffer.dtype, pair[0], pair[1])
        self.compared += len(rows) * unit
        if not len(rows):
            return
        result = replace(result, element=int(rows[result.element]))
        label = f"#{step.id} `{step_name(program, step)}`, `{buffer.name}`, {result.text()}"
        if not result.is_within:
            raise _outside(label, result)
        if self.worst is None or result.error > self.worst[0]:
            self.worst = result.error, label


def _outside(label: str, result: Distance) -> TesseraError:
    return TesseraError(
        error("TSR5054", "a launch differs from the CPU backend by more than the tolerance",
              notes=(label, f"the tolerance of its type is {result.tolerance:g}")),
        MISMATCH,
    )  # fmt: skip


def _device_of(programs: tuple[DeviceProgram, ...], step: ir.Work) -> str:
    for program in programs:
        if any(one.operation == Run(step.id) for one in program.operations):
            return program.device
    raise AssertionError("every step is on a device")
