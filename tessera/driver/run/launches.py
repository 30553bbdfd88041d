"""Launches one by one, from identical inputs: what one way to run them writes against another.

In: a model, and a function that runs one step another way. Out: `Compared`, with the worst element.
The first request of each trace runs on one device of the CPU backend; every step also runs the
other way from the same bytes, and what it wrote is compared as numbers (`tolerance`). That is what
can be said where bytes need not be equal: another GPU, another variant, floats added atomically.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tessera.backend.processes.reference import Reference
from tessera.backend.processes.visits import step_name
from tessera.backend.ptx_executor.device import Device
from tessera.backend.ptx_executor.run import OneDevice, oldest
from tessera.backend.ptx_executor.simt.launch import LaunchResult
from tessera.backend.service import Bytes, Model
from tessera.diagnostics import ExitCode, TesseraError, error
from tessera.driver.run.diverge import written
from tessera.driver.run.run_plan import Prepared
from tessera.driver.run.tolerance import nearest
from tessera.ir.program import program as ir
from tessera.ir.progress import OnProgress, counter

OtherWay = Callable[[int, ir.Work, Mapping[str, Bytes]], Mapping[str, Bytes] | None]
"""The buffers after a step of a trace, from those before it; None where there is no other way."""


@dataclass(slots=True)
class Compared:
    """What was compared, and the worst element."""

    requests: int = 0
    bytes: int = 0
    launches: int = 0
    worst: tuple[float, str] | None = None

    def notes(self) -> tuple[str, ...]:
        """For people."""
        if self.worst is None:
            return ()
        many = "1 launch" if self.launches == 1 else f"{self.launches} launches"
        if self.worst[0] == 0:
            return (f"{many} compared, all equal to the byte",)
        return (f"{many} compared, the worst: {self.worst[1]}",)


def compare_launches(
    prepared: Prepared,
    model: Model,
    other_way: OtherWay,
    against: str,
    on_progress: OnProgress | None = None,
) -> Compared:
    """The first request of each trace; a result outside the tolerance raises TSR5054."""
    report = counter(on_progress, "verifying", "steps")
    compared = Compared()
    reference = Reference(model.traces, model.weights, model.states, model.fillings)
    for turn in prepared.turns:
        if turn.turn == 0 and turn.sequence < model.lowered.lanes:
            comparison = _Comparison(model, turn.trace, other_way, against, compared, report)
            inputs = prepared.materials.inputs(turn.request, turn.trace, turn.turn)
            reference.run(
                inputs,
                trace=turn.trace,
                lane=turn.sequence,
                before_step=comparison.before,
                on_step=comparison.after,
            )
            compared.requests += 1
    return compared


@dataclass(slots=True)
class _Comparison:
    """One request, step by step."""

    model: Model
    trace: int
    other_way: OtherWay
    against: str
    found: Compared
    report: Callable[[int, int], None]
    held: dict[str, Bytes] | None = None

    def before(self, step: ir.Work, _: LaunchResult | None, machine: OneDevice) -> None:
        """Keep what the step starts from."""
        self.held = {
            buffer.name: machine.buffers[buffer.id].numpy().reshape(-1).view(np.uint8)
            for buffer in machine.program.buffers
            if buffer.role is not ir.Role.VARIABLE
        }

    def after(self, step: ir.Work, result: LaunchResult | None, machine: OneDevice) -> None:
        """Do the step the other way too, and compare what it wrote."""
        program = machine.program
        self.report(int(step.id), sum(1 for _ in program.work()))
        changed = written(program, step, result)
        if any(program.buffers[b].role is ir.Role.VARIABLE for b, _ in changed):
            return
        other = self.other_way(self.trace, step, self.held or {})
        if other is None:
            return
        self.found.launches += 1
        for number, spans in changed:
            buffer = program.buffers[number]
            here = machine.buffers[number].numpy().reshape(-1).view(np.uint8)
            self._compare(step, buffer, spans, here, other[buffer.name])

    def _compare(
        self,
        step: ir.Work,
        buffer: ir.Buffer,
        spans: tuple[tuple[int, int], ...],
        here: Bytes,
        other: Bytes,
    ) -> None:
        unit = 8 if len(here) % 8 == 0 else 1
        picked = np.zeros(len(here) // unit, np.bool_)
        for start, end in spans:
            picked[start // unit : -(-end // unit)] = True
        rows = np.flatnonzero(picked)
        if not len(rows):
            return
        pair = [content.reshape(-1, unit)[rows].reshape(-1) for content in (here, other)]
        dtype, result = nearest(buffer.dtype, pair[0], pair[1])
        self.found.bytes += len(pair[0])
        if dtype is not None:
            byte = result.element * dtype.bytes
            result = replace(
                result, element=(int(rows[byte // unit]) * unit + byte % unit) // dtype.bytes
            )
        name = step_name(self.model.traces[self.trace].program, step)
        kind = "bytes" if dtype is None else dtype.value
        label = f"#{step.id} `{name}`, `{buffer.name}` as {kind}, {result.text()}"
        if not result.is_within:
            raise TesseraError(
                error(
                    "TSR5054",
                    f"a launch differs from {self.against} by more than the tolerance",
                    notes=(label,),
                ),
                ExitCode.MISMATCH,
            )
        if self.found.worst is None or result.error > self.found.worst[0]:
            self.found.worst = result.error, label


def in_oldest_variant(model: Model) -> OtherWay:
    """Launches in the variant for the oldest architecture, where the plan takes another."""
    devices: dict[int, OneDevice] = {}

    def run(trace: int, step: ir.Work, before: Mapping[str, Bytes]) -> Mapping[str, Bytes] | None:
        served = model.traces[trace]
        program = served.program
        if not isinstance(step, ir.Launch):
            return None
        if served.arches[step.id] == oldest(program.modules[step.module]).arch:
            return None
        if trace not in devices:
            devices[trace] = OneDevice(
                program,
                Device(64 + trace),
                lambda launch: oldest(program.modules[launch.module]).arch,
            )
        machine = devices[trace]
        machine.poison()
        machine.fill(before)
        machine.step(step)
        return {
            buffer.name: machine.buffers[buffer.id].numpy().reshape(-1).view(np.uint8)
            for buffer in program.buffers
        }

    return run
