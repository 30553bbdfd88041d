"""Requests step by step: the first launch that diverges, and launches run two ways.

In: the requests up to one whose results differ. Out: a `Divergence`. The requests run again, with
all devices in one process and one request at a time, beside a run on one device; after each step
the bytes that it wrote are compared. A race may not show that way; then the step that last writes
the byte on one device is named.

`compare_launches` runs the first request of each trace on one device of the CPU backend, and runs
every step also another way from the same bytes; the results are compared as numbers (`tolerance`).
This is the check for cases where bytes need not be equal: another GPU, another variant, floats
added atomically.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from tessera.backend.processes.inline import InlineBackend
from tessera.backend.processes.reference import Reference
from tessera.backend.processes.visits import step_name
from tessera.backend.ptx_executor.device import Device
from tessera.backend.ptx_executor.memory.memory import Array
from tessera.backend.ptx_executor.run import OneDevice, oldest
from tessera.backend.ptx_executor.simt.launch import LaunchResult
from tessera.backend.service import BackendOptions, Bytes, Model, Request
from tessera.backend.unwritten import ComparedSide, filled_ranges
from tessera.diagnostics import ExitCode, TesseraError
from tessera.driver.run.materials import Materials
from tessera.driver.run.run_plan import Prepared
from tessera.driver.run.schedule import Turn
from tessera.driver.run.tolerance import nearest
from tessera.ir.program import program as ir
from tessera.ir.progress import OnProgress, counter


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """A step that diverges on a device; without a device, the last step that wrote the byte."""

    request: int
    step: ir.Work
    device: str | None
    buffer: str
    byte: int


@dataclass(slots=True)
class _Written:
    """The bytes that a step left in a buffer on one device."""

    step: ir.Work
    buffer: ir.BufferId
    spans: tuple[tuple[int, int], ...]
    content: Bytes


def find_divergence(
    turns: Sequence[Turn],
    materials: Materials,
    model: Model,
    first: int,
    name: str,
    byte: int,
    *,
    has_patterns: bool = False,
) -> Divergence | None:
    """Run a replica's requests again, and compare them step by step.

    `first` is the number of the replica's first sequence. If no step diverges, the result is the
    step that last wrote a byte of buffer `name` in the last request. `has_patterns`: whether
    unwritten memory held patterns in the run.
    """
    log: list[_Written] = []
    divergences: dict[int, Divergence] = {}
    reference = _alone(model, ComparedSide.ONE_DEVICE if has_patterns else None)
    options = BackendOptions(unwritten=ComparedSide.RUN if has_patterns else None)
    backend = InlineBackend(model, options, observer=_comparer(log, model, turns, divergences))
    try:
        for turn in turns:
            log.clear()
            inputs = materials.inputs(turn.request, turn.trace, turn.turn)
            lane = turn.sequence - first
            recorder = _recorder(log, model.traces[turn.trace].program)
            reference.run(
                inputs, trace=turn.trace, lane=lane, request=turn.request, on_step=recorder
            )
            _replay(
                backend,
                Request(number=turn.request, trace=turn.trace, slot=0, lane=lane, inputs=inputs),
            )
            if divergences:
                return divergences[min(divergences)]
    finally:
        backend.close()
    return _last_writer(log, model, turns[-1], name, byte)


def depends_on_unwritten(
    turns: Sequence[Turn], materials: Materials, model: Model, first: int, name: str, byte: int
) -> bool:
    """Whether a byte of the last request depends on unwritten memory.

    The requests run on one device twice, with different patterns in unwritten memory.
    """
    values = []
    for side in ComparedSide:
        reference = _alone(model, side)
        for turn in turns:
            inputs = materials.inputs(turn.request, turn.trace, turn.turn)
            lane = turn.sequence - first
            expected = reference.run(inputs, trace=turn.trace, lane=lane, request=turn.request)
        values.append({**expected.states, **expected.outputs}[name][byte])
    return bool(values[0] != values[1])


def _alone(model: Model, side: ComparedSide | None) -> Reference:
    filled = filled_ranges(model.lowered)
    contents = model.weights, model.states, model.fillings
    return Reference(model.traces, *contents, unwritten=side, filled=filled)


def _replay(backend: InlineBackend, request: Request) -> None:
    backend.begin(request)
    # A launch that faults here has been compared up to that point.
    with suppress(TesseraError):
        backend.collect(0.0)


def _recorder(
    log: list[_Written], program: ir.Program
) -> Callable[[ir.Work, LaunchResult | None, OneDevice], None]:
    def record(step: ir.Work, result: LaunchResult | None, machine: OneDevice) -> None:
        for buffer, spans in written(program, step, result):
            content = machine.buffers[buffer].numpy().reshape(-1).view(np.uint8)
            log.append(_Written(step, buffer, spans, content))

    return record


def written(
    program: ir.Program, step: ir.Work, result: LaunchResult | None
) -> list[tuple[ir.BufferId, tuple[tuple[int, int], ...]]]:
    """The bytes of declared buffers that a step has written."""
    match step:
        case ir.Memset() | ir.Memcpy():
            start = step.target.offset
            return [(step.target.buffer, ((start, start + step.bytes),))]
        case _:
            ids = {b.name: b.id for b in program.buffers}
            accesses = () if result is None else result.accesses
            return [(ids[a.buffer], a.writes) for a in accesses if a.writes and a.buffer in ids]


def _comparer(
    log: list[_Written], model: Model, turns: Sequence[Turn], divergences: dict[int, Divergence]
) -> Callable[..., None]:
    trace_of = {turn.request: turn.trace for turn in turns}

    def compare(
        device: str,
        request: int,
        step: ir.Work,
        result: LaunchResult | None,
        view: Callable[[ir.BufferId], Array],
    ) -> None:
        program = model.traces[trace_of[request]].program
        same = next((twins[0] for twins in program.twins if step.id in twins), step.id)
        expected = {write.buffer: write for write in log if write.step.id == same}
        here = dict(written(program, step, result))
        for buffer in sorted({*expected, *here}):
            byte = _first_difference(expected.get(buffer), here.get(buffer, ()), view(buffer))
            if byte is not None:
                divergences[int(step.id)] = Divergence(
                    request=request,
                    step=step,
                    device=device,
                    byte=byte,
                    buffer=program.buffers[buffer].name,
                )
                return

    return compare


def _first_difference(
    expected: _Written | None, spans: tuple[tuple[int, int], ...], content: Array
) -> int | None:
    if expected is None:
        return spans[0][0]
    for start, end in expected.spans:
        differs = expected.content[start:end] != content[start:end]
        if differs.any():
            return start + int(np.argmax(differs))
    return None


def _last_writer(
    log: list[_Written], model: Model, turn: Turn, name: str, byte: int
) -> Divergence | None:
    program = model.traces[turn.trace].program
    for write in reversed(log):
        is_it = program.buffers[write.buffer].name == name
        if is_it and any(start <= byte < end for start, end in write.spans):
            return Divergence(
                request=turn.request, step=write.step, device=None, buffer=name, byte=byte
            )
    return None


# --- launches one by one -------------------------------------------------------------------------


OtherWay = Callable[[int, ir.Work, Mapping[str, Bytes]], Mapping[str, Bytes] | None]
"""The buffers after a step of a trace, from those before it; None if there is no other way."""


@dataclass(slots=True)
class Compared:
    """What was compared, and the worst element."""

    requests: int = 0
    bytes: int = 0
    launches: int = 0
    worst: tuple[float, str] | None = None

    def notes(self) -> tuple[str, ...]:
        """What was compared, in words."""
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
        """Keep the bytes from which the step starts."""
        self.held = {
            buffer.name: machine.buffers[buffer.id].numpy().reshape(-1).view(np.uint8)
            for buffer in machine.program.buffers
            if buffer.role is not ir.Role.VARIABLE
        }

    def after(self, step: ir.Work, result: LaunchResult | None, machine: OneDevice) -> None:
        """Run the step the other way too, and compare the bytes that it wrote."""
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
            raise TesseraError.of(
                "TSR5054",
                f"a launch differs from {self.against} by more than the tolerance",
                notes=(label,),
                exit_code=ExitCode.MISMATCH,
            )
        if self.found.worst is None or result.error > self.found.worst[0]:
            self.found.worst = result.error, label


def in_oldest_variant(model: Model) -> OtherWay:
    """Runs launches in the variant for the oldest architecture, if the plan takes another."""
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
