"""An order in which a single thread hands a request's operations to all queues.

In: a lowered trace. Out: actions in an order in which every event is recorded before it is waited
for, and a transfer between devices comes after both its ends have been reached. Later, streams may
run ahead of each other as far as the events allow; the order only decides which stream gets work
first.

The priority of a kernel rises with the progress of its request on the device. Requests of one plan
that share a device go through the same steps, so the request that has come further is the older
one. If all kernels had one priority, kernels of several requests would share the device, and
requests that arrived together would go from device to device together while the other devices are
idle. The highest priority is reserved for transfers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tessera.ir.plan.launch_program import (
    HOST,
    Await,
    AwaitPut,
    Credit,
    DeviceEventId,
    Fill,
    Free,
    LoweredTrace,
    Operation,
    Put,
    Queue,
    Receive,
    Record,
    Run,
    Send,
    Transfer,
)


@dataclass(frozen=True, slots=True)
class Do:
    """A step or a fill, on the compute queue of a device."""

    device: str
    operation: Run | Fill


@dataclass(frozen=True, slots=True)
class Mark:
    """Record an event of a device."""

    device: str
    queue: Queue
    event: DeviceEventId


@dataclass(frozen=True, slots=True)
class Hold:
    """Wait for an event of a device."""

    device: str
    queue: Queue
    event: DeviceEventId


@dataclass(frozen=True, slots=True)
class Move:
    """A transfer, both ends of which have been reached."""

    transfer: Transfer


Action = Do | Mark | Hold | Move


def issue_order(trace: LoweredTrace) -> tuple[Action, ...]:
    """The actions of a request; raises `ValueError` if its queues wait for each other."""
    return _Issuing(trace).all()


def steps_of(actions: Sequence[Action], device: str) -> list[int]:
    """The numbers of the steps of a device, in order."""
    return [
        int(action.operation.step)
        for action in actions
        if isinstance(action, Do) and action.device == device and isinstance(action.operation, Run)
    ]


class _Issuing:
    """The queues of a request, with their remaining operations."""

    def __init__(self, trace: LoweredTrace) -> None:
        self.queues: dict[tuple[str, Queue], deque[Operation]] = {
            (program.device, queue): deque(program.on(queue))
            for program in trace.programs
            for queue in Queue
        }
        self.transfers = {transfer.id: transfer for transfer in trace.transfers}
        self.recorded: set[tuple[str, DeviceEventId]] = set()
        self.actions: list[Action] = []

    def all(self) -> tuple[Action, ...]:
        """Visit the queues in turn until no operation is left."""
        while any(self.queues.values()):
            before = sum(map(len, self.queues.values()))
            for place, queue in self.queues.items():
                while queue and self._take(place, queue):
                    pass
            if sum(map(len, self.queues.values())) == before:
                heads = [f"{d} {q.value}: {ops[0]}" for (d, q), ops in self.queues.items() if ops]
                raise ValueError("queues wait for each other: " + "; ".join(heads))
        return tuple(self.actions)

    def _take(self, place: tuple[str, Queue], queue: deque[Operation]) -> bool:
        """Issue the first operation of a queue, if that is possible; returns whether it was."""
        device, kind = place
        match queue[0]:
            case Run() | Fill() as operation:
                self.actions.append(Do(device, operation))
            case Record(event=event):
                self.recorded.add((device, event))
                self.actions.append(Mark(device, kind, event))
            case Await(event=event):
                if (device, event) not in self.recorded:
                    return False
                self.actions.append(Hold(device, kind, event))
            case Send(transfer=number) | Receive(transfer=number):
                return self._meet(self.transfers[number], queue)
            case Free():
                pass
            case Put() | AwaitPut() | Credit():
                raise AssertionError("a backend of one host has no landings")
        queue.popleft()
        return True

    def _meet(self, transfer: Transfer, queue: deque[Operation]) -> bool:
        """Issue a transfer: at once with the host, otherwise once both ends have been reached."""
        if HOST not in (transfer.source, transfer.target):
            source = self.queues[transfer.source, Queue.OUT]
            target = self.queues[transfer.target, Queue.IN]
            if not source or source[0] != Send(transfer.id):
                return False
            if not target or target[0] != Receive(transfer.id):
                return False
            (target if queue is source else source).popleft()
        self.actions.append(Move(transfer))
        queue.popleft()
        return True


def step_priorities(
    actions: Sequence[Action], devices: Collection[str], lowest: int, highest: int
) -> dict[int, int]:
    """The priority of every step; a smaller number is a higher priority."""
    levels = max(lowest - highest, 1)
    priorities = {}
    for device in devices:
        steps = steps_of(actions, device)
        for position, step in enumerate(steps):
            priorities[step] = lowest - position * levels // len(steps)
    return priorities
