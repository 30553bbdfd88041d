"""From actions in order to the queues of each device, with the events that keep them in order.

In: the actions of one trace and the places of its buffers. Out: a `DeviceProgram` per device.

Two operations on different queues of a device that touch the same memory, one of them to write,
are ordered by an event; memory is compared by address, so that buffers that share bytes are ordered
too. A clock per operation (how much of each queue is done when it is) leaves out events that others
imply. A buffer is freed when the first operation comes that touches a later user of its bytes.

Only bytes that a transfer touches, and buffers that share bytes with them, are watched: all else is
done on one queue, in order.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tessera.ir.plan.launch_program import (
    AreaKind,
    Await,
    DeviceEventId,
    DeviceProgram,
    Fill,
    Free,
    Operation,
    Place,
    Queue,
    Queued,
    Receive,
    Record,
    Run,
    Send,
    Transfer,
)
from tessera.ir.program import program as ir
from tessera.passes.lowering.cells import Cells
from tessera.passes.lowering.moves import Action
from tessera.passes.lowering.parts import Parts
from tessera.passes.lowering.places import TraceUse

_QUEUES = (Queue.COMPUTE, Queue.IN, Queue.OUT)
_Clock = tuple[int, int, int]
_NONE: _Clock = (-1, -1, -1)


@dataclass(frozen=True, slots=True)
class _Use:
    """Who wrote a byte last and who read it since: the latest operation of each queue, or -1."""

    writes: _Clock = _NONE
    reads: _Clock = _NONE


_UNUSED = _Use()


@dataclass(frozen=True, slots=True)
class _Touch:
    """Cells that an operation reads or writes."""

    cells: tuple[int, ...]
    writes: bool


def find_queues(
    use: TraceUse, places: Sequence[Place], devices: Sequence[str]
) -> Iterator[DeviceProgram]:
    """The programs of all devices."""
    actions: dict[str, list[Action]] = {device: [] for device in devices}
    for action in use.actions:
        ends = {action.device}
        if isinstance(action.what, Transfer):
            ends = {action.what.source, action.what.target}
        for device in ends & actions.keys():
            actions[device].append(action)
    for device in devices:
        mine = {int(place.buffer): place for place in places if place.device == device}
        watched = _watched(use, device, mine)
        builder = _QueueBuilder(use, device, mine, watched, Cells(use.trace, mine, watched))
        for action in actions[device]:
            builder.add(action)
        yield builder.program()


def _watched(use: TraceUse, device: str, places: Mapping[int, Place]) -> frozenset[int]:
    """The buffers that transfers of a device touch, and those that have bytes of them."""
    watched = {
        int(action.what.buffer)
        for action in use.actions
        if isinstance(action.what, Transfer) and device in (action.what.source, action.what.target)
    }
    spans = {
        buffer: (place.offset, place.offset + use.program.buffers[buffer].bytes)
        for buffer, place in places.items()
        if place.kind is AreaKind.SLOT
    }
    moved: list[tuple[int, int]] = []
    for start, end in sorted(spans[buffer] for buffer in watched if buffer in spans):
        if moved and start <= moved[-1][1]:
            moved[-1] = (moved[-1][0], max(end, moved[-1][1]))
        else:
            moved.append((start, end))
    starts = [start for start, _ in moved]
    for buffer, (start, end) in spans.items():
        before = bisect_right(starts, start) - 1
        is_behind = before >= 0 and moved[before][1] > start
        if is_behind or (before + 1 < len(starts) and starts[before + 1] < end):
            watched.add(buffer)
    return frozenset(watched)


@dataclass(slots=True)
class _Entry:
    """An operation, its number on its queue, what it waits for, and whether others wait for it."""

    queue: Queue
    operation: Operation
    awaits: list[tuple[int, int]]
    event: DeviceEventId | None = None


@dataclass(slots=True)
class _QueueBuilder:
    """One device."""

    use: TraceUse
    device: str
    places: dict[int, Place]
    watched: frozenset[int]
    cells: Cells
    entries: list[_Entry] = field(default_factory=list)
    queues: tuple[list[_Entry], ...] = field(default_factory=lambda: ([], [], []))
    clocks: tuple[list[_Clock], ...] = field(default_factory=lambda: ([], [], []))
    memory: dict[int, _Use] = field(default_factory=dict)
    present: dict[int, int] = field(default_factory=dict)
    spans: list[tuple[int, int, int]] = field(default_factory=list)
    claims: int = 0

    def add(self, action: Action) -> None:
        """Do this device's part of an action."""
        match action.what:
            case Run(step) if action.device == self.device:
                touches = []
                for buffer, use in self.use.trace.steps[step].items():
                    self._claim(buffer, Queue.COMPUTE)
                    touches += self._touch(buffer, use.only_read, writes=False)
                    touches += self._touch(buffer, use.written, writes=True)
                self._emit(Queue.COMPUTE, action.what, touches)
            case Fill(buffer, _) if action.device == self.device:
                self._claim(buffer, Queue.COMPUTE)
                touches = self._touch(buffer, action.parts, writes=True)
                self._emit(Queue.COMPUTE, action.what, touches)
            case Transfer() as transfer:
                if transfer.source == self.device:
                    self._claim(transfer.buffer, Queue.OUT)
                    touches = self._touch(transfer.buffer, action.parts, writes=False)
                    self._emit(Queue.OUT, Send(transfer.id), touches)
                if transfer.target == self.device:
                    self._claim(transfer.buffer, Queue.IN)
                    touches = self._touch(transfer.buffer, action.parts, writes=True)
                    self._emit(Queue.IN, Receive(transfer.id), touches)
            case _:
                pass

    def program(self) -> DeviceProgram:
        """The operations, with records and waits written out."""
        number = 0
        for entry in self.entries:
            for queue, index in entry.awaits:
                self.queues[queue][index].event = DeviceEventId(-1)
        for entry in self.entries:
            if entry.event is not None:
                entry.event = DeviceEventId(number)
                number += 1
        return DeviceProgram(device=self.device, operations=tuple(self._operations()))

    def _operations(self) -> Iterator[Queued]:
        for entry in self.entries:
            for queue, index in entry.awaits:
                event = self.queues[queue][index].event
                assert event is not None
                yield Queued(entry.queue, Await(event))
            yield Queued(entry.queue, entry.operation)
            if entry.event is not None:
                yield Queued(entry.queue, Record(entry.event))

    def _claim(self, buffer: int, queue: Queue) -> None:
        """Free the buffers whose bytes this one takes over."""
        place = self.places.get(int(buffer))
        if place is None or place.kind is not AreaKind.SLOT or int(buffer) in self.present:
            return
        offset = place.offset
        end = offset + self.use.program.buffers[buffer].bytes
        # Those that are present lie apart: of those that begin before, one may reach to here.
        low = high = bisect_left(self.spans, (offset, offset, -1))
        if low and self.spans[low - 1][1] > offset and self.spans[low - 1][0] < end:
            low -= 1
        while high < len(self.spans) and self.spans[high][0] < end:
            high += 1
        taken = [span for span in self.spans[low:high] if span[0] < end and offset < span[1]]
        for start, stop, other in sorted(taken, key=lambda span: self.present[span[2]]):
            del self.present[other]
            is_watched = start < stop and other in self.watched
            whole = [_Touch(self.cells.whole(other), writes=True)] if is_watched else []
            self._emit(queue, Free(ir.BufferId(other)), whole)
        if taken:
            self.spans[low:high] = [span for span in self.spans[low:high] if span not in taken]
        insort(self.spans, (offset, end, int(buffer)))
        self.claims += 1
        self.present[int(buffer)] = self.claims

    def _touch(self, buffer: int, touched: Parts, *, writes: bool) -> list[_Touch]:
        if not touched or int(buffer) not in self.watched:
            return []
        if self.places[int(buffer)].kind is AreaKind.WEIGHTS:
            return []
        return [_Touch(self.cells.of(int(buffer), touched), writes)]

    def _emit(self, queue: Queue, operation: Operation, touches: list[_Touch]) -> None:
        own = _QUEUES.index(queue)
        number = len(self.queues[own])
        clock = self.clocks[own][-1] if self.clocks[own] else _NONE
        awaits = self._awaits(own, clock, self._conflicts(touches))
        for other, index in awaits:
            clock = _later(clock, self.clocks[other][index])
        clock = _with(clock, own, number)
        entry = _Entry(queue, operation, awaits)
        self.entries.append(entry)
        self.queues[own].append(entry)
        self.clocks[own].append(clock)
        for touch in touches:
            self._note(touch, own, number)

    def _awaits(self, own: int, clock: _Clock, wanted: _Clock) -> list[tuple[int, int]]:
        """The operations of other queues to wait for, but those that others among them imply."""
        awaited = [
            (other, index)
            for other, index in enumerate(wanted)
            if other != own and index > clock[other]
        ]
        if len(awaited) == 2:
            for (queue, index), (other, after) in (awaited, reversed(awaited)):
                if self.clocks[other][after][queue] >= index:
                    return [(other, after)]
        return awaited

    def _conflicts(self, touches: list[_Touch]) -> _Clock:
        clock = _NONE
        for touch in touches:
            for cell in touch.cells:
                use = self.memory.get(cell)
                if use is not None:
                    clock = _later(clock, use.writes)
                    if touch.writes:
                        clock = _later(clock, use.reads)
        return clock

    def _note(self, touch: _Touch, queue: int, number: int) -> None:
        written = _Use(writes=_with(_NONE, queue, number))
        for cell in touch.cells:
            old = self.memory.get(cell, _UNUSED)
            self.memory[cell] = (
                written if touch.writes else _Use(old.writes, _with(old.reads, queue, number))
            )


def _later(left: _Clock, right: _Clock) -> _Clock:
    return (max(left[0], right[0]), max(left[1], right[1]), max(left[2], right[2]))


def _with(clock: _Clock, queue: int, number: int) -> _Clock:
    return (*clock[:queue], number, *clock[queue + 1 :])  # type: ignore[return-value]
