"""The order of operations in a request, and whether the request ends.

In: a `TraceShape`. Out: an `Order`: the operations in a possible order, each with a clock; or None
if operations wait for each other in a cycle, which is reported.

The order follows from these rules: a queue does its operations in sequence; operations behind a
wait come after the event; a receive ends after its send has read the bytes, and the transfer owns
the memory of the receive from the moment that the receive begins. The clock of an operation has,
for each queue of its device, the number of operations that are over before it begins. A send may
end long before its receive begins, so clocks draw no conclusion from the end of a send. A send may
also end only when its receive takes the bytes, so an order must stay possible if both ends of a
transfer are done as one operation.

Between hosts a put begins when its landing is free: after the credit of the previous put
(`checker.landings` has checked that they take turns). Clocks draw no conclusion from a credit
either, so that a backend may implement puts and their waits as sends and receives.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from tessera.ir.plan.launch_program import (
    HOST,
    Await,
    AwaitPut,
    Credit,
    Fill,
    Free,
    LandingId,
    Put,
    Queue,
    Receive,
    Record,
    Run,
    Send,
)
from tessera.passes.checker import limits
from tessera.passes.checker.findings import Findings, Op, Said
from tessera.passes.checker.limits import give_up
from tessera.passes.checker.shape import QueueKey, TraceShape

Clock = npt.NDArray[np.int32]
_AT_ONCE = -1


Order = tuple[tuple[Op, Clock], ...]
"""Operations with their clocks: how many are over on each queue of the device, in `Queue` order."""


def find_order(shape: TraceShape, findings: Findings) -> Order | None:
    """An order in which all operations can be done."""
    if len(shape.records) * len(shape.queues) > limits.MOST_CLOCKS:
        give_up(shape.trace.trace, "have too many events on too many devices", findings)
        return None
    walk = _OrderWalk(shape)
    walk.run()
    stuck = [key for key, ops in shape.queues.items() if walk.next[key] < len(ops)]
    if stuck:
        _report_circle(walk, stuck[0], findings)
        return None
    return tuple(walk.steps)


class _OrderWalk:
    """The queues, with the position and the clock of each."""

    def __init__(self, shape: TraceShape) -> None:
        self.shape = shape
        self.column = {key: place for place, key in enumerate(shape.queues)}
        self.own = {
            device: [self.column[device, queue] for queue in Queue] for device, _ in shape.queues
        }
        self.next = dict.fromkeys(shape.queues, 0)
        self.clocks = {key: np.zeros(len(self.column), dtype=np.int32) for key in shape.queues}
        self.ranks = {key: _ranks(ops) for key, ops in shape.queues.items()}
        self.events: dict[tuple[str, int], Clock] = {}
        self.held: set[int] = set()
        self.waiting: dict[tuple[str, int], list[QueueKey]] = {}
        self.steps: list[tuple[Op, Clock]] = []

    def run(self) -> None:
        """Do operations until none can be done, steps in the order of the trace if possible.

        Any order proves the same; the order of the trace gives the clearest message about a missing
        wait. A queue that has to wait is tried again after an operation that may unblock it.
        """
        keys = list(self.shape.queues)
        place = {key: number for number, key in enumerate(keys)}
        ready: list[tuple[int, int, int]] = []

        def look_at(key: QueueKey) -> None:
            at = self.next[key]
            if at < len(self.shape.queues[key]):
                heappush(ready, (self.ranks[key][at], at, place[key]))

        for key in keys:
            look_at(key)
        while ready:
            _, at, number = heappop(ready)
            key = keys[number]
            if at != self.next[key]:
                continue  # an earlier entry for this queue has moved it on
            woken = self._try(key, self.shape.queues[key][at])
            if woken is not None:
                for woken_key in (key, *woken):
                    look_at(woken_key)

    def head(self, key: QueueKey) -> Op | None:
        """The next operation of a queue."""
        ops, place = self.shape.queues[key], self.next[key]
        return ops[place] if place < len(ops) else None

    def _try(self, key: QueueKey, op: Op) -> list[QueueKey] | None:
        """Do an operation and return the queues that it may unblock; None if it has to wait."""
        match op.operation:
            case Await(event):
                happened = self.events.get((op.device, event))
                if happened is None:
                    self.waiting.setdefault((op.device, event), []).append(key)
                    return None
                np.maximum(self.clocks[key], happened, out=self.clocks[key])
                self._done(key, op)
                return []
            case Record(event):
                self._done(key, op)
                self.events[op.device, event] = self.clocks[key].copy()
                return self.waiting.pop((op.device, event), [])
            case Send() | Receive() | Put() | AwaitPut():
                return self._transfer(key, op)
            case Credit(landing):
                self._done(key, op)
                self.held.discard(landing)
                source = self.shape.landings[landing].source
                return [(source, Queue.OUT)]
            case _:
                self._done(key, op)
                return []

    def _transfer(self, key: QueueKey, op: Op) -> list[QueueKey] | None:
        other = self.partner(op)
        if other is None:
            self._done(key, op)
            return []
        other_key = (other.device, other.queue)
        if self.head(other_key) is not other:
            return None
        source, target = (op, other) if isinstance(op.operation, Send | Put) else (other, op)
        if isinstance(source.operation, Put):
            if source.operation.landing in self.held:
                return None
            self.held.add(source.operation.landing)
        source_key, target_key = (source.device, source.queue), (target.device, target.queue)
        self._done(source_key, source)
        # The clock of the receive itself: the transfer owns its memory as soon as it begins.
        self._done(target_key, target)
        clock = self.clocks[target_key]
        np.maximum(clock, self.clocks[source_key], out=clock)
        return [other_key]

    def partner(self, op: Op) -> Op | None:
        """The other end of a transfer, or None if the other end is the host."""
        assert isinstance(op.operation, Send | Receive | Put | AwaitPut)
        number = op.operation.transfer
        transfer = self.shape.transfers[number]
        if HOST in (transfer.source, transfer.target):
            return None
        is_source = isinstance(op.operation, Send | Put)
        ends = self.shape.receives if is_source else self.shape.sends
        return ends[number]

    def _done(self, key: QueueKey, op: Op) -> None:
        clock = self.clocks[key]
        self.steps.append((op, clock[self.own[op.device]]))
        clock[self.column[key]] = op.position + 1
        self.next[key] += 1


def _ranks(ops: list[Op]) -> list[int]:
    """The priority of each operation: the number of the step that it is, or that it prepares."""
    step, ranks = _AT_ONCE, []
    for op in reversed(ops):
        match op.operation:
            case Run(number):
                step = int(number)
                ranks.append(step)
            case Fill() | Free():
                ranks.append(step)
            case _:
                ranks.append(_AT_ONCE)
    return ranks[::-1]


def _report_circle(walk: _OrderWalk, start: QueueKey, findings: Findings) -> None:
    """Report a cycle: follow what the head of each queue waits for until a queue repeats."""
    names = walk.shape.names
    path: list[QueueKey] = []
    waits: list[Said] = []
    key = start
    while key not in path:
        path.append(key)
        head = walk.head(key)
        assert head is not None
        wanted = _waits_for(walk, head)
        waits.append(Said(f"{names.op(head).what} waits for {names.op(wanted).what}", head))
        key = (wanted.device, wanted.queue)
    circle = waits[path.index(key) :]
    findings.add(
        "TSR4008",
        f"the programs wait for each other in a circle of {len(circle)}",
        *circle[:8],
        "what each waits for comes behind the next on its queue",
    )


def _waits_for(walk: _OrderWalk, op: Op) -> Op:
    """The operation that a stuck operation waits for."""
    if isinstance(op.operation, Await):
        return walk.shape.records[op.device, op.operation.event]
    other = walk.partner(op)
    assert other is not None
    if isinstance(op.operation, Put) and op.operation.landing in walk.held:
        return _next_credit(walk, op.operation.landing)
    return other


def _next_credit(walk: _OrderWalk, landing: int) -> Op:
    """The operation that frees a landing in use."""
    key = (walk.shape.landings[landing].target, Queue.IN)
    ops = walk.shape.queues[key][walk.next[key] :]
    return next(op for op in ops if op.operation == Credit(LandingId(landing)))
