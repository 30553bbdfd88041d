"""The same requests on one virtual device, one after the other: the results a plan must have.

In: the traces of a model and the initial states of the lanes. Out: outputs per request, states per
lane. The reference runs the trace in file order, one of each group of twins, and knows nothing of
placements, transfers or arenas. The one exception: each launch runs in the module variant that the
plan chose, so that bytes are equal even if devices have different architectures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from tessera.backend.ptx_executor.device import Device
from tessera.backend.ptx_executor.run import OneDevice, oldest
from tessera.backend.ptx_executor.simt.chunk import DEFAULT_STEPS
from tessera.backend.ptx_executor.simt.launch import LaunchResult
from tessera.backend.service import Bytes, ServedTrace
from tessera.backend.unwritten import ComparedSide, buffer_key, device_key, unwritten_bytes
from tessera.ir.plan.launch_program import POISON
from tessera.ir.plan.launch_program import Bytes as Spans
from tessera.ir.program import program as ir

OnStep = Callable[[ir.Work, LaunchResult | None, OneDevice], None]


@dataclass(frozen=True, slots=True)
class Expected:
    """The results of one device for a request. States are those after the request.

    Address words read as `address_words` says; in outputs they are zero.
    """

    outputs: Mapping[str, Bytes]
    states: Mapping[str, Bytes]
    printed: str


class Reference:
    """One device, with the states of every lane."""

    def __init__(
        self,
        traces: Sequence[ServedTrace],
        weights: Mapping[str, Bytes],
        states: Sequence[Mapping[str, Bytes]],
        fillings: Sequence[Mapping[str, Bytes]],
        *,
        max_steps: int | None = None,
        unwritten: ComparedSide | None = None,
        filled: Mapping[tuple[int, ir.BufferId], Spans] = MappingProxyType({}),
    ) -> None:
        """With `unwritten`, unwritten bytes hold patterns; bytes that are `filled`, poison."""
        self.device = ""
        self._unwritten, self._filled = unwritten, filled
        self._traces = traces
        self._weights = weights
        self._states = [dict(lane) for lane in states]
        # Words of `pointers` records that requests of a lane have overwritten; states keep them.
        self._moved: list[Mapping[str, Set[int]]] = [{} for _ in states]
        self._fillings = fillings
        self._max_steps = DEFAULT_STEPS if max_steps is None else max_steps
        self._devices: dict[int, OneDevice] = {}

    def run(
        self,
        inputs: Mapping[str, Bytes],
        *,
        trace: int = 0,
        lane: int = 0,
        request: int = 0,
        on_step: OnStep | None = None,
        before_step: OnStep | None = None,
    ) -> Expected:
        """Run the next request of a lane; `on_step` is called after each step."""
        served = self._traces[trace]
        machine = self._device(trace)
        machine.poison(self._patterns(request, trace))
        given = {**self._weights, **self._fillings[trace], **self._states[lane], **inputs}
        machine.fill(given, self._moved[lane])
        printed = []
        again = {twin for twins in served.program.twins for twin in twins[1:]}
        for step in served.program.work():
            if step.id in again:
                continue
            if before_step is not None:
                before_step(step, None, machine)
            result = machine.step(step)
            if result is not None:
                printed.append(result.output)
            if on_step is not None:
                on_step(step, result, machine)
        kept = machine.kept()
        self._moved[lane] = {**self._moved[lane], **machine.moved_words()}
        machine.launches.clear()
        for name in self._states[lane]:
            if name in kept:
                self._states[lane][name] = kept[name]
        states = {name: np.array(content) for name, content in self._states[lane].items()}
        for name, words in machine.plain_words().items():
            for offset, plain in words.items() if name in states else ():
                states[name][offset : offset + len(plain)] = np.frombuffer(plain, np.uint8)
        roles = {buffer.name: buffer.role for buffer in served.program.buffers}
        outputs = {name: kept[name] for name in kept if roles[name] is ir.Role.OUTPUT}
        for table in served.program.pointer_tables:
            name = served.program.buffers[table.buffer].name
            for word in table.words if name in outputs else ():
                outputs[name][word.offset : word.offset + ir.POINTER_BYTES] = 0
        return Expected(outputs, states, "".join(printed))

    def _patterns(self, request: int, trace: int) -> Callable[[ir.Buffer], Bytes] | None:
        side = self._unwritten
        if side is None:
            return None

        def content_of(buffer: ir.Buffer) -> Bytes:
            key, own = buffer_key(trace, buffer.id), device_key(self.device)
            content = unwritten_bytes(side, request, own, key, 0, buffer.bytes)
            for start, end in self._filled.get((trace, buffer.id), ()):
                content[start:end] = POISON
            return content

        return content_of

    def _device(self, trace: int) -> OneDevice:
        """The device of a trace, made once: module variables keep their values."""
        if trace not in self._devices:
            served = self._traces[trace]

            def arch_of(step: ir.Launch) -> str:
                return served.arches[step.id] or oldest(served.program.modules[step.module]).arch

            device = Device(trace)
            self._devices[trace] = OneDevice(served.program, device, arch_of, self._max_steps)
        return self._devices[trace]
