"""Removal of waits that other waits imply, also through another device.

In: the programs of one trace, as `lowering.queues` makes them device by device, and its transfers.
Out: the same programs with fewer waits and records.

A walk over all queues keeps, per queue, how much of every queue is known to be done (its clock). A
wait for an event whose clock is already known is redundant. A receive that has ended passes on
everything that its source knew when it sent; the beginning of a receive passes on nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tessera.ir.plan.launch_program import (
    HOST,
    Await,
    DeviceEventId,
    DeviceProgram,
    Queue,
    Queued,
    Receive,
    Record,
    Send,
    Transfer,
)

_QueueKey = tuple[str, Queue]
_Clock = dict[_QueueKey, int]


def prune_waits(
    programs: Sequence[DeviceProgram], transfers: Sequence[Transfer]
) -> Iterator[DeviceProgram]:
    """The programs without the waits that others imply, and without records of unused events."""
    walk = _WaitWalk(programs, transfers)
    walk.run()
    for program in programs:
        kept = [
            queued
            for number, queued in enumerate(program.operations)
            if (program.device, number) not in walk.needless
        ]
        wanted = {queued.operation.event for queued in kept if isinstance(queued.operation, Await)}
        yield replace(program, operations=tuple(_renumbered(kept, wanted)))


def _renumbered(operations: list[Queued], wanted: set[DeviceEventId]) -> Iterator[Queued]:
    """The operations without records of unused events; events are renumbered from 0."""
    recorded = [
        queued.operation.event for queued in operations if isinstance(queued.operation, Record)
    ]
    kept = [event for event in recorded if event in wanted]
    numbers = {event: DeviceEventId(number) for number, event in enumerate(kept)}
    for queued in operations:
        match queued.operation:
            case Record(event):
                if event in numbers:
                    yield Queued(queued.queue, Record(numbers[event]))
            case Await(event):
                yield Queued(queued.queue, Await(numbers[event]))
            case _:
                yield queued


class _WaitWalk:
    """The queues, with the progress and the clock of each."""

    def __init__(self, programs: Sequence[DeviceProgram], transfers: Sequence[Transfer]) -> None:
        self.queues: dict[_QueueKey, list[tuple[int, Queued]]] = {}
        for program in programs:
            for number, queued in enumerate(program.operations):
                self.queues.setdefault((program.device, queued.queue), []).append((number, queued))
        self.transfers = {transfer.id: transfer for transfer in transfers}
        self.next = dict.fromkeys(self.queues, 0)
        self.clocks: dict[_QueueKey, _Clock] = {key: {} for key in self.queues}
        self.events: dict[tuple[str, int], _Clock] = {}
        self.sent: dict[int, _Clock] = {}
        self.needless: set[tuple[str, int]] = set()

    def run(self) -> None:
        """Advance every queue as far as possible, in rounds."""
        going = True
        while going:
            going = False
            for key in self.queues:
                while self._step(key):
                    going = True
        assert all(self.next[key] == len(ops) for key, ops in self.queues.items())

    def _step(self, key: _QueueKey) -> bool:
        """Do the next operation of a queue with the waits before it; False if it is blocked."""
        ops, at = self.queues[key], self.next[key]
        waits: list[int] = []
        events: list[_Clock | None] = []
        while at < len(ops) and isinstance(wait := ops[at][1].operation, Await):
            waits.append(ops[at][0])
            events.append(self.events.get((key[0], wait.event)))
            at += 1
        if at == len(ops):
            self.next[key] = at
            return False
        operation = ops[at][1].operation
        if any(event is None for event in events):
            return False
        if isinstance(operation, Receive) and not self._is_sent(operation):
            return False
        self._wait(key, waits, [event for event in events if event is not None])
        self.next[key] = at + 1
        clock = self.clocks[key]
        if not isinstance(operation, Record):
            clock[key] = ops[at][0] + 1
        match operation:
            case Record(event):
                self.events[key[0], event] = dict(clock)
            case Send(transfer):
                self.sent[transfer] = dict(clock)
            case Receive(transfer) if self.transfers[transfer].source != HOST:
                _learn(clock, self.sent[transfer])
            case _:
                pass
        return True

    def _is_sent(self, operation: Receive) -> bool:
        source = self.transfers[operation.transfer].source
        return source == HOST or operation.transfer in self.sent

    def _wait(self, key: _QueueKey, waits: list[int], events: list[_Clock]) -> None:
        """Learn from events; a wait is redundant if the clock and the other waits imply it."""
        left = list(range(len(waits)))
        for wait in range(len(waits)):
            known = dict(self.clocks[key])
            for other in left:
                if other != wait:
                    _learn(known, events[other])
            if all(known.get(queue, 0) >= count for queue, count in events[wait].items()):
                left.remove(wait)
                self.needless.add((key[0], waits[wait]))
        for wait in left:
            _learn(self.clocks[key], events[wait])


def _learn(clock: _Clock, other: _Clock) -> None:
    for key, count in other.items():
        if clock.get(key, 0) < count:
            clock[key] = count
