"""From actions in order to the queues of each device, with the events that keep them in order.

In: the actions of one trace and the places of its buffers. Out: a `DeviceProgram` per device.

Two operations on different queues of a device that touch the same memory, one of them to write, are
ordered by an event; memory is compared by address, so that buffers that share bytes are ordered
too. A clock per operation (the progress of each queue when it is done) leaves out events that
others imply. A buffer is freed before the first operation that touches a later user of its bytes.
Only buffers that a transfer touches, those that share bytes with them (its queue may free them) and
those that share bytes with the latter are watched: everything else runs on one queue, in order.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

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
from tessera.planning.lower.cells import Cells
from tessera.planning.lower.grains import Grains
from tessera.planning.lower.moves import Action
from tessera.planning.lower.places import TraceUse

_QUEUES = (Queue.COMPUTE, Queue.IN, Queue.OUT)
_COMPUTE, _IN, _OUT = range(len(_QUEUES))
_Clock = tuple[int, int, int]
_NONE: _Clock = (-1, -1, -1)

_Use = tuple[_Clock, _Clock]
"""The last writers of a byte and its readers since: the latest operation of each queue, or -1."""

_UNUSED: _Use = (_NONE, _NONE)

_Touch = tuple[tuple[int, ...], bool]
"""Cells that an operation touches, and whether it writes them."""


def find_queues(
    use: TraceUse, places: Sequence[Place], devices: Sequence[str]
) -> Iterator[DeviceProgram]:
    """The programs of all devices."""
    actions: dict[str, list[Action]] = {device: [] for device in devices}
    for action in use.actions:
        if not isinstance(action.what, Transfer):
            actions[action.device].append(action)
            continue
        for device in dict.fromkeys((action.what.source, action.what.target)):
            if device in actions:
                actions[device].append(action)
    for device in devices:
        mine = {int(place.buffer): place for place in places if place.device == device}
        watched = _watched(use, device, mine)
        builder = _QueueBuilder(use, device, mine, watched, Cells(use.trace, mine, watched))
        for action in actions[device]:
            builder.add(action)
        yield builder.program()


def _watched(use: TraceUse, device: str, places: Mapping[int, Place]) -> frozenset[int]:
    """The buffers on whose bytes queues of transfers of a device act: they move some and free
    others; and those that share bytes with either."""
    moved = {
        buffer
        for action in use.actions
        if isinstance(action.what, Transfer) and device in (action.what.source, action.what.target)
        for buffer, _ in action.covered
    }
    spans = {
        buffer: place.taken(use.program.buffers[buffer].bytes)
        for buffer, place in places.items()
        if place.kind is AreaKind.SLOT
    }
    freed = moved | _sharing(spans, moved)
    return frozenset(freed | _sharing(spans, freed))


def _sharing(spans: Mapping[int, tuple[int, int]], buffers: Collection[int]) -> set[int]:
    """The buffers that share bytes with some."""
    taken: list[tuple[int, int]] = []
    for start, end in sorted(spans[buffer] for buffer in buffers if buffer in spans):
        if taken and start <= taken[-1][1]:
            taken[-1] = (taken[-1][0], max(end, taken[-1][1]))
        else:
            taken.append((start, end))
    starts = [start for start, _ in taken]
    sharing = set()
    for buffer, (start, end) in spans.items():
        before = bisect_right(starts, start) - 1
        is_behind = before >= 0 and taken[before][1] > start
        if is_behind or (before + 1 < len(starts) and starts[before + 1] < end):
            sharing.add(buffer)
    return sharing


class _Entry:
    """An operation, its queue, the operations it waits for, and its event if others wait for it."""

    __slots__ = ("awaits", "event", "operation", "queue")

    def __init__(self, queue: Queue, operation: Operation, awaits: list[tuple[int, int]]) -> None:
        self.queue = queue
        self.operation = operation
        self.awaits = awaits
        self.event: DeviceEventId | None = None


class _QueueBuilder:
    """Builds the queues of one device."""

    def __init__(
        self,
        use: TraceUse,
        device: str,
        places: Mapping[int, Place],
        watched: frozenset[int],
        cells: Cells,
    ) -> None:
        self.device = device
        self.steps = use.trace.steps
        self.cells = cells
        self.watched = watched
        # Buffers without a place in a slot are never freed.
        self.absent = {
            buffer: place.taken(use.program.buffers[buffer].bytes)
            for buffer, place in places.items()
            if place.kind is AreaKind.SLOT
        }
        self.slots = dict(self.absent)
        self.present: dict[int, int] = {}
        self.spans: list[tuple[int, int, int]] = []
        self.claims = 0
        self.entries: list[_Entry] = []
        self.queues: tuple[list[_Entry], ...] = ([], [], [])
        self.clocks: tuple[list[_Clock], ...] = ([], [], [])
        self.memory: dict[int, _Use] = {}
        # The last operations on the place of a buffer before it moved in.
        self.moved_in: dict[int, _Clock] = {}

    def add(self, action: Action) -> None:
        """Add this device's part of an action."""
        match action.what:
            case Run(step):
                touches = []
                for buffer, use in self.steps[step].items():
                    self._claim(buffer, _COMPUTE)
                    if buffer in self.watched:
                        touches += self._touch(buffer, use.only_read, writes=False)
                        touches += self._touch(buffer, use.written, writes=True)
                self._emit(_COMPUTE, action.what, touches, self.steps[step])
            case Fill():
                self._cover(_COMPUTE, action.what, action, writes=True)
            case Transfer() as transfer:
                if transfer.source == self.device:
                    self._cover(_OUT, Send(transfer.id), action, writes=False)
                if transfer.target == self.device:
                    self._cover(_IN, Receive(transfer.id), action, writes=True)

    def _cover(self, queue: int, operation: Operation, action: Action, *, writes: bool) -> None:
        """Add an operation on all that an action covers."""
        touches: list[_Touch] = []
        for buffer, grains in action.covered:
            self._claim(buffer, queue)
            touches += self._touch(buffer, grains, writes=writes)
        self._emit(queue, operation, touches, [buffer for buffer, _ in action.covered])

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

    def _claim(self, buffer: int, queue: int) -> None:
        """Free the buffers whose bytes this buffer reuses."""
        span = self.absent.pop(buffer, None)
        if span is None:
            return
        offset, end = span
        spans = self.spans
        # Present buffers do not overlap, so only one that begins earlier can reach this offset.
        low = high = bisect_left(spans, (offset, offset, -1))
        if low and spans[low - 1][1] > offset:
            low -= 1
        while high < len(spans) and spans[high][0] < end:
            high += 1
        taken = [span for span in spans[low:high] if offset < span[1]]
        for start, stop, other in sorted(taken, key=lambda span: self.present[span[2]]):
            del self.present[other]
            self.absent[other] = self.slots[other]
            is_watched = start < stop and other in self.watched
            self._emit(
                queue,
                Free(ir.BufferId(other)),
                [(self.cells.whole(other), True)] if is_watched else [],
            )
        if taken:
            spans[low:high] = [span for span in spans[low:high] if span not in taken]
        insort(spans, (offset, end, buffer))
        self.claims += 1
        self.present[buffer] = self.claims
        if buffer in self.watched and offset < end:
            self.moved_in[buffer] = self._conflicts([(self.cells.whole(buffer), True)])

    def _touch(self, buffer: int, touched: Grains, *, writes: bool) -> list[_Touch]:
        if not touched or buffer not in self.watched:
            return []
        return [(self.cells.of(buffer, touched), writes)]

    def _emit(
        self,
        own: int,
        operation: Operation,
        touches: list[_Touch],
        buffers: Iterable[int] = (),
    ) -> None:
        """Add an operation that touches cells of buffers, after all that it must not overtake."""
        number = len(self.queues[own])
        clock = self.clocks[own][-1] if number else _NONE
        awaits: list[tuple[int, int]] = []
        if touches:
            wanted = self._conflicts(touches)
            for buffer in buffers:
                # Whatever operation of a buffer comes first, its whole place is free by then.
                wanted = _later(wanted, self.moved_in.get(buffer, _NONE))
            awaits = self._awaits(own, clock, wanted)
            for other, index in awaits:
                clock = _later(clock, self.clocks[other][index])
        entry = _Entry(_QUEUES[own], operation, awaits)
        self.entries.append(entry)
        self.queues[own].append(entry)
        self.clocks[own].append(_with(clock, own, number))
        for touch in touches:
            self._note(touch, own, number)

    def _awaits(self, own: int, clock: _Clock, wanted: _Clock) -> list[tuple[int, int]]:
        """The operations of other queues to wait for."""
        return [(other, index) for other, index in enumerate(wanted) if index > clock[other]]

    def _conflicts(self, touches: list[_Touch]) -> _Clock:
        """The last operations that must precede the touches."""
        clocks: dict[_Clock, None] = {}
        memory = self.memory
        for cells, writes in touches:
            for cell in cells:
                use = memory.get(cell)
                if use is not None:
                    clocks[use[0]] = None
                    if writes:
                        clocks[use[1]] = None
        clock = _NONE
        for other in clocks:
            clock = _later(clock, other)
        return clock

    def _note(self, touch: _Touch, queue: int, number: int) -> None:
        cells, writes = touch
        if writes:
            self.memory.update(dict.fromkeys(cells, (_with(_NONE, queue, number), _NONE)))
            return
        memory = self.memory
        for cell in cells:
            writers, readers = memory.get(cell, _UNUSED)
            memory[cell] = writers, _with(readers, queue, number)


def _later(left: _Clock, right: _Clock) -> _Clock:
    return (max(left[0], right[0]), max(left[1], right[1]), max(left[2], right[2]))


def _with(clock: _Clock, queue: int, number: int) -> _Clock:
    compute, into, out = clock
    if queue == _COMPUTE:
        return number, into, out
    return (compute, number, out) if queue == _IN else (compute, into, number)
