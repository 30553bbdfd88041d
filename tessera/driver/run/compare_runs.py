"""Requests of a run against the same requests on one device, to the byte.

In: the outcome of a run, its inputs, and a way to run requests on one device. Out: a `Verdict`; a
difference raises TSR5054 with exit code 5. Every request runs on one device too, in the order of
its sequence and with the states that the request before it left. Outputs and states are compared to
the byte, NaN included.

If unwritten memory held patterns (`backend.unwritten`), an output byte that holds its pattern, or
the poison of a `Fill`, on both sides was written by no step. Such bytes are left out of the
comparison, counted, and set to poison.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from tessera.backend.processes.reference import Expected
from tessera.backend.processes.visits import step_name
from tessera.backend.service import Bytes, Model
from tessera.backend.unwritten import ComparedSide, buffer_key, device_key, unwritten_bytes
from tessera.diagnostics import ExitCode, TesseraError
from tessera.driver.run.compare_steps import depends_on_unwritten, find_divergence
from tessera.driver.run.materials import Materials
from tessera.driver.run.outcome import Outcome
from tessera.driver.run.run_plan import Prepared
from tessera.driver.run.schedule import Turn
from tessera.ir.graph.access import NeedKind
from tessera.ir.plan.launch_program import POISON
from tessera.ir.program import program as ir
from tessera.ir.progress import OnProgress, counter


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was compared, and how. `notes` say why bytes need not be equal, if so.

    `unwritten_bytes` counts the bytes of outputs that no step wrote and that were left out.
    """

    requests: int
    lanes: int
    bytes: int
    how: str
    unwritten_bytes: int = 0
    notes: tuple[str, ...] = ()


class OneDeviceRun(Protocol):
    """Runs requests on one device, and keeps the states of sequences."""

    @property
    def device(self) -> str:
        """The name of the device in patterns of unwritten memory."""

    def run(self, inputs: Mapping[str, Bytes], *, trace: int, lane: int, request: int) -> Expected:
        """The next request of a sequence."""


def variants_used(prepared: Prepared) -> dict[str, dict[str, list[str]]]:
    """The variants that run, by module, with the devices that run them."""
    used: dict[str, dict[str, list[str]]] = {}
    for replica in prepared.opened.replicas:
        for placed in replica.traces:
            program = prepared.opened.programs[placed.trace]
            for work, step in zip(program.work(), placed.steps, strict=True):
                if isinstance(work, ir.Launch):
                    arches = used.setdefault(program.modules[work.module].name, {})
                    names = arches.setdefault(step.arch, [])
                    names += [step.device] if step.device not in names else []
    return used


def compare_runs(
    outcome: Outcome,
    materials: Materials,
    models: list[Model],
    references: Sequence[OneDeviceRun],
    on_progress: OnProgress | None = None,
) -> Verdict:
    """Compare requests in their order, then the states of every sequence."""
    report = counter(on_progress, "verifying", "requests")
    judge = _Judge(outcome, materials, models)
    last: dict[int, tuple[Turn, Mapping[str, Bytes]]] = {}
    compared = 0
    for count, turn in enumerate(outcome.turns):
        report(count, len(outcome.turns))
        if turn.request not in outcome.done:
            continue
        replica, lane = judge.sequences[turn.sequence]
        inputs = materials.inputs(turn.request, turn.trace, turn.turn)
        reference = references[replica]
        expected = reference.run(inputs, trace=turn.trace, lane=lane, request=turn.request)
        last[turn.sequence] = turn, expected.states
        compared += judge.compare_outputs(turn, expected, reference.device)
    report(len(outcome.turns), len(outcome.turns))
    if outcome.states is not None:
        for turn, states in last.values():
            compared += judge.compare_states(turn, states, outcome.states[turn.sequence])
    return Verdict(
        requests=len(outcome.done),
        lanes=len(last) if any(outcome.states or ()) else 0,
        bytes=compared,
        how="to the byte",
        unwritten_bytes=judge.unwritten_bytes,
    )


class _Judge:
    """Compares results, and explains where a difference comes from."""

    def __init__(self, outcome: Outcome, materials: Materials, models: list[Model]) -> None:
        self.outcome = outcome
        self.materials = materials
        self.models = models
        self.unwritten_bytes = 0
        self.sequences = [
            (i, lane) for i, model in enumerate(models) for lane in range(model.lowered.lanes)
        ]

    def compare_outputs(self, turn: Turn, expected: Expected, device: str) -> int:
        """Compare the outputs of a request: the number of bytes compared; a difference raises.

        `device` is the single device that ran the request again.
        """
        model = self.models[self.sequences[turn.sequence][0]]
        program = model.traces[turn.trace].program
        skipped = _pointer_words(program)
        compared = 0
        for name, content in expected.outputs.items():
            actual = self.outcome.done[turn.request].outputs[name]
            differs = content != actual
            for offset in skipped.get(name, ()):
                differs[offset : offset + ir.POINTER_BYTES] = False
            unwritten = self._find_unwritten(model, turn, name, content, device)
            # A byte that is equal on both sides may hold its pattern by chance: it counts as
            # unwritten only if its neighbours are unwritten too.
            unwritten &= differs | _groups(unwritten)
            differs &= ~unwritten
            if differs.any():
                self._fail(f"request {turn.request}", f"output `{name}`", turn, name, differs)
            actual[unwritten] = POISON
            left_out = int(unwritten.sum())
            self.unwritten_bytes += left_out
            compared += len(content) - left_out
        return compared

    def _find_unwritten(
        self, model: Model, turn: Turn, name: str, content: Bytes, device: str
    ) -> npt.NDArray[np.bool_]:
        """Which bytes of an output hold their initial pattern, in the run and on the one device.

        Bytes that no device sends are poison on the host.
        """
        if not self.outcome.has_patterns or name in model.fillings[turn.trace]:
            return np.zeros(len(content), np.bool_)
        buffers = model.traces[turn.trace].program.buffers
        buffer = next(buffer for buffer in buffers if buffer.name == name)
        key = buffer_key(turn.trace, buffer.id)
        actual = self.outcome.done[turn.request].outputs[name]

        def holds(side: ComparedSide, found: Bytes, where: str) -> npt.NDArray[np.bool_]:
            pattern = unwritten_bytes(side, turn.request, device_key(where), key, 0, len(found))
            return np.equal(found, pattern)

        held = np.equal(actual, POISON)
        for own in model.lowered.devices:
            held |= holds(ComparedSide.RUN, actual, own)
        held &= holds(ComparedSide.ONE_DEVICE, content, device) | np.equal(content, POISON)
        return held

    def compare_states(
        self, turn: Turn, expected: Mapping[str, Bytes], actual: Mapping[str, Bytes]
    ) -> int:
        """Compare the states of a sequence after its last request: the number of bytes."""
        compared = 0
        for name, content in expected.items():
            differs = content != actual[name]
            if differs.any():
                self._fail(f"sequence {turn.sequence}", f"state `{name}`", turn, name, differs)
            compared += len(content)
        return compared

    def _fail(self, who: str, what: str, turn: Turn, name: str, differs: Bytes) -> NoReturn:
        count, byte = int(differs.sum()), int(np.argmax(differs))
        raise TesseraError.of(
            "TSR5054",
            f"{who} differs from the run on one device in {what}: {count} of {len(differs)} bytes",
            notes=(
                f"the first of them is byte {byte}",
                *self._causes(turn, name, byte),
                *self._excuses(turn),
            ),
            hint="`tessc check` on the plan, and the warnings of `tessc analyze` on its "
            "trace, are where to look",
            exit_code=ExitCode.MISMATCH,
        )

    def _excuses(self, turn: Turn) -> Iterator[str]:
        """Reasons why results differ from run to run, whatever the plan."""
        opened = self.outcome.opened
        for warning in opened.stored_addresses():
            yield f"{warning.headline}: bytes need not be equal there"
        for node in opened.graphs[turn.trace].nodes:
            if any(need.kind is NeedKind.MACHINE for need in node.needs):
                yield f"`{node.name}` has results that the machine decides: they need not be equal"

    def _causes(self, turn: Turn, name: str, byte: int) -> Iterator[str]:
        """The first launch that diverges from one device, and what it may read."""
        replica, lane = self.sequences[turn.sequence]
        model = self.models[replica]
        turns = [
            earlier
            for earlier in self.outcome.turns
            if self.sequences[earlier.sequence][0] == replica and earlier.request <= turn.request
        ]
        first = turn.sequence - lane
        has_patterns = self.outcome.has_patterns
        divergence = find_divergence(
            turns, self.materials, model, first, name, byte, has_patterns=has_patterns
        )
        if has_patterns and depends_on_unwritten(turns, self.materials, model, first, name, byte):
            yield (
                "it depends on memory that nothing has written, though by the analysis no step "
                "reads such bytes: on one device, too, it changes with what is there"
            )
        if divergence is None:
            yield "no launch diverges when the requests run again: the difference comes and goes"
            return
        trace = next(earlier.trace for earlier in turns if earlier.request == divergence.request)
        label = f"#{divergence.step.id} `{step_name(model.traces[trace].program, divergence.step)}`"
        if divergence.device is None:
            yield f"no launch diverges on the CPU; the last one to write that byte is {label}"
            return
        yield (
            f"the first launch that diverges is {label} of request {divergence.request} on device "
            f"`{divergence.device}`: `{divergence.buffer}` differs from byte {divergence.byte} on"
        )


def _groups(held: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """For each byte, whether all four bytes of its aligned word are set."""
    padded = np.append(held, np.ones(-len(held) % 4, np.bool_)).reshape(-1, 4)
    return np.repeat(padded.all(axis=1), 4)[: len(held)]


def _pointer_words(program: ir.Program) -> dict[str, list[int]]:
    """Words that hold addresses, which differ between devices."""
    return {
        program.buffers[table.buffer].name: [word.offset for word in table.words]
        for table in program.pointer_tables
    }
