"""Pinned steps, pointers and weights: checks that they are on the devices that use them.

In: the shape and the expected versions of each trace. Out: findings.

A pinned step may follow addresses that it loads from memory, and an address is only valid on its
own device. So a pinned step must be on the device of every step whose bytes it may load, and of
every step that may load its bytes. For bytes that persist, this holds across requests and traces.
Bytes of twins are of all their devices, so no pinned step may use them.
Every device has its own words of `pointers` records: nothing moves or fills them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tessera.ir.plan.launch_program import Fill
from tessera.ir.program.program import Role, grouped
from tessera.passes.checker.bytes import Array, common, distinct, places, text
from tessera.passes.checker.expected import ExpectedVersions, StepTouch
from tessera.passes.checker.findings import Findings
from tessera.passes.checker.shape import LASTING, TraceShape

Masks = npt.NDArray[Any]
"""A set of devices per atom, with one bit per device."""
Key = tuple[int, int | str]


def check_words(shape: TraceShape, expected: ExpectedVersions, findings: Findings) -> None:
    """Check that no transfer and no fill touches a word that holds an address."""
    for number, transfer in shape.transfers.items():
        for portion in transfer.portions:
            words = expected.words.get(int(portion.buffer))
            if words is not None:
                _check_apart(shape.names.transfer(number), portion.bytes, words, findings)
    for ops in shape.queues.values():
        for op in ops:
            if isinstance(op.operation, Fill):
                words = expected.words.get(int(op.operation.buffer))
                if words is not None:
                    _check_apart(str(shape.names.op(op)), op.operation.bytes, words, findings)


def _check_apart(
    what: str, spans: tuple[tuple[int, int], ...], words: Array, findings: Findings
) -> None:
    hit = common(words, np.array(spans, dtype=np.int64))
    if len(hit):
        findings.add(
            "TSR4011",
            f"{what} touches addresses, at bytes {text(hit)}",
            "they are words of a `pointers` record, which every device has its own values for",
        )


def check_pins(
    traces: Mapping[int, tuple[TraceShape, ExpectedVersions]],
    devices: tuple[str, ...],
    findings: Findings,
) -> None:
    """Check that every pinned step is on the device of the steps that it exchanges bytes with."""
    if not any(node.pins for shape, _ in traces.values() for node in shape.graph.nodes):
        return
    bounds = _bounds(traces)
    left: dict[Key, tuple[Masks, Masks]] = {}
    for trace in traces:
        walk = _WordFlow(trace, traces, devices, bounds, {}, None)
        for key, (all_makers, pinned) in walk.run().items():
            known = left.setdefault(key, (all_makers.copy(), pinned.copy()))
            known[0][:] |= all_makers
            known[1][:] |= pinned
    for trace in traces:
        _WordFlow(trace, traces, devices, bounds, left, findings).run()


def _key(shape: TraceShape, trace: int, buffer: int) -> Key:
    held = shape.graph.buffers[buffer]
    return (-1, held.name) if held.role is Role.STATE else (trace, buffer)


def _bounds(traces: Mapping[int, tuple[TraceShape, ExpectedVersions]]) -> dict[Key, Array]:
    """The boundaries of each buffer; a shared buffer has the boundaries of all traces."""
    cuts_of: dict[Key, list[Array]] = {}
    for trace, (shape, expected) in traces.items():
        for buffer, cuts in expected.bounds.items():
            cuts_of.setdefault(_key(shape, trace, buffer), []).append(cuts)
    return {key: distinct(cuts) for key, cuts in cuts_of.items()}


class _WordFlow:
    """Per byte, the devices of steps that may have made it, and of the pinned ones among them."""

    def __init__(
        self,
        trace: int,
        traces: Mapping[int, tuple[TraceShape, ExpectedVersions]],
        devices: tuple[str, ...],
        bounds: dict[Key, Array],
        first: Mapping[Key, tuple[Masks, Masks]],
        findings: Findings | None,
    ) -> None:
        self.trace = trace
        self.traces = traces
        self.shape, self.expected = traces[trace]
        self.bit = {device: 1 << number for number, device in enumerate(devices)}
        self.bounds = bounds
        self.findings = findings
        self.made: dict[int, tuple[Masks, Masks]] = {}
        for buffer in self.expected.bounds:
            key = _key(self.shape, trace, buffer)
            count = len(bounds[key]) - 1
            none: Masks = np.zeros(count, dtype=np.int64 if len(devices) < 63 else np.object_)
            known = first.get(key, (none, none))
            self.made[buffer] = (known[0].copy(), known[1].copy())

    def run(self) -> dict[Key, tuple[Masks, Masks]]:
        """Walk the steps and return the device sets of the bytes that outlive the request."""
        touches = self.expected.touches
        for group in grouped(len(touches), self.shape.program.twins):
            bits = [self.bit[self.shape.runs[step].device] for step in group]
            for step, own in zip(group, bits, strict=True):
                for touch in touches[step]:
                    self._check(step, touch, own)
            for step in group:
                for touch in touches[step]:
                    self._leave(step, touch, sum(bits))
        buffers = self.shape.graph.buffers
        return {
            _key(self.shape, self.trace, buffer): made
            for buffer, made in self.made.items()
            if buffers[buffer].role in LASTING
        }

    def _index(self, touch: StepTouch, ranges: Array) -> slice | Array:
        return places(self.bounds[_key(self.shape, self.trace, touch.buffer)], ranges)

    def _leave(self, step: int, touch: StepTouch, own: int) -> None:
        makers, pinned = self.made[touch.buffer]
        sure, may = self._index(touch, touch.certain), self._index(touch, touch.written)
        makers[sure] = 0
        pinned[sure] = 0
        makers[may] |= own
        if self.shape.graph.nodes[step].pins:
            pinned[may] |= own

    def _check(self, step: int, touch: StepTouch, own: int) -> None:
        if self.findings is None or len(touch.needed) == 0:
            return
        makers, pinned = self.made[touch.buffer]
        node = self.shape.graph.nodes[step]
        foreign = (makers if node.pins else pinned)[self._index(touch, touch.needed)] & ~own
        if not foreign.any():
            return
        here = self.shape.runs[step].device
        shape, maker = next(self._makers(touch, here, pinned=not node.pins))
        pins = node.pins or shape.graph.nodes[maker].pins
        self.findings.add(
            "TSR4010",
            f"step {self.shape.names.step(step)} on `{here}` may find in "
            f"{self.shape.names.buffer(touch.buffer)} what step {shape.names.step(maker)} on "
            f"`{shape.runs[maker].device}` left, and one of them is pinned",
            f"it is pinned because {pins[0].reason}",
            hint="both have to be on one device",
        )

    def _makers(
        self, touch: StepTouch, here: str, *, pinned: bool
    ) -> Iterator[tuple[TraceShape, int]]:
        """Steps on other devices that write bytes which a step needs; those of its trace first."""
        key = _key(self.shape, self.trace, touch.buffer)
        for trace in sorted(self.traces, key=lambda trace: trace != self.trace):
            shape, expected = self.traces[trace]
            for step, touches in enumerate(expected.touches):
                if shape.runs[step].device == here or (pinned and not shape.graph.nodes[step].pins):
                    continue
                for other in touches:
                    same = _key(shape, trace, other.buffer) == key
                    if same and len(common(other.written, touch.needed)):
                        yield shape, step
