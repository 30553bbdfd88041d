"""Follows launch programs through time, slowly: the second opinion on `tessera.driver.simulate`.

Written from `docs/concepts/simulation.md` alone, without a line of the code that it judges. Nothing
is compiled or remembered: every request has a position in each of its queues, and at every moment
all of them are looked at again. When nothing more can happen, time goes on to the next end.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tessera.ir.plan import launch_program as lp
from tessera.ir.plan.launch_program import HOST, Fill, Receive, Run, Send
from tessera.ir.plan.plan import Plan

NOTHING, PAYING, PAID, MOVING, LEFT, ARRIVED, TAKING, TAKEN = range(8)
"""How far a transfer is: its source spends its time, has spent it; its bytes move, ... A step or fill
is at nothing, being taken, or taken."""
STEP = NOTHING, TAKING, TAKEN


@dataclass(eq=False)
class Request:
    """One request: who it is, and how far it is."""

    replica: int
    number: int
    trace: int
    sequence: int
    lowered: lp.LoweredTrace
    step_ns: Mapping[int, float]
    came_ns: float = 0.0
    age: int = -1
    slot: int = -1
    before: Request | None = None
    began_ns: float | None = None
    ended_ns: float | None = None
    queues: dict[tuple[int, lp.Queue], list[tuple[int, lp.Operation]]] = field(default_factory=dict)
    stage: dict[Any, int] = field(default_factory=lambda: defaultdict(int))
    recorded: set[tuple[int, int]] = field(default_factory=set)
    awaited: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        for index, program in enumerate(self.lowered.programs):
            for position, queued in enumerate(program.operations):
                operations = self.queues.setdefault((index, queued.queue), [])
                operations.append((position, queued.operation))
        self.transfers = {int(transfer.id): transfer for transfer in self.lowered.transfers}

    def heads(self) -> list[tuple[int, int, lp.Operation]]:
        """Program, position and operation that every queue has come to; what stands first first."""
        heads = [(key[0], *operations[0]) for key, operations in self.queues.items() if operations]
        return sorted(heads, key=lambda head: head[:2])


class Line:
    """A replica: its requests in line, those that are handed over, and its slots."""

    def __init__(self, slots: int, depth: int, coming: Iterator[Request]) -> None:
        self.depth, self.coming = depth, coming
        self.following = next(coming, None)
        self.handed: list[Request] = []
        self.slots: list[list[Request]] = [[] for _ in range(slots)]
        self.given = [0] * slots
        self.last_slot: dict[int, int] = {}
        self.last_of_trace: dict[int, Request] = {}

    def hand_over(self, now: float, ages: Iterator[int]) -> None:
        """Those at the head of the line, as far as there is room for them."""
        while self.following is not None and self.following.came_ns <= now:
            inside = sum(len(requests) for requests in self.slots)
            if inside + len(self.handed) >= len(self.slots) * self.depth:
                return
            if self.following.age < 0:
                self.following.age = next(ages)
            self.handed.append(self.following)
            self.following = next(self.coming, None)

    def slot_for(self, request: Request) -> int | None:
        """The slot that a request goes into now, if there is one."""
        for number, requests in enumerate(self.slots):
            if any(other.sequence == request.sequence for other in requests):
                return number if len(requests) < self.depth else None
        wanted = self.last_slot.get(request.sequence, request.sequence % len(self.slots))
        if not self.slots[wanted]:
            return wanted
        order = [(len(self.slots[n]), self.given[n], n) for n in range(len(self.slots))]
        fewest, _, number = min(order)
        return number if fewest < self.depth else None

    def give_slots(self) -> None:
        """To those that are handed over, the oldest first."""
        waiting: set[int] = set()
        for request in list(self.handed):
            slot = None if request.sequence in waiting else self.slot_for(request)
            if slot is None:
                waiting.add(request.sequence)
                continue
            self.handed.remove(request)
            self.slots[slot].append(request)
            self.given[slot] = max(self.given) + 1
            self.last_slot[request.sequence] = request.slot = slot
            request.before = self.last_of_trace.get(request.trace)
            self.last_of_trace[request.trace] = request

    def may_begin(self) -> Iterator[Request]:
        """Those that are the first in their slots and past their gates."""
        for request in [slot[0] for slot in self.slots if slot and slot[0].began_ns is None]:
            before, gate = request.before, request.lowered.gate
            if gate is None or before is None or before.stage[Run(gate)] == TAKEN:
                yield request


class SlowSimulator:
    """All replicas of a plan on one machine, from time 0 on."""

    def __init__(self, plan: Plan, machine: Any) -> None:  # a `Hardware`
        self.plan, self.machine = plan, machine
        self.now = 0.0
        self.running: list[tuple[float, Callable[[], None]]] = []
        self.devices_at_work: set[str] = set()
        self.moving: list[Any] = []
        self.ages = itertools.count()
        self.lines: list[Line] = []
        self.active: list[Request] = []
        self.ended: list[Request] = []

    # --- who comes ------------------------------------------------------------------------------

    def requests(self, replica: int) -> Iterator[Request]:
        """The requests of a replica, without end."""
        placed = self.plan.replicas[replica]
        shares = [trace.share for trace in self.plan.traces]
        steps = {t.trace: {s.step: s.predicted_ns for s in t.steps} for t in placed.traces}
        lowered = {trace.trace: trace for trace in placed.lowered.traces}
        counts = [[0] * len(shares) for _ in range(placed.lanes)]
        for number in itertools.count():
            sequence = number % placed.lanes
            trace = furthest_behind(counts[sequence], shares)
            counts[sequence][trace] += 1
            yield Request(replica, number, trace, sequence, lowered[trace], steps[trace])

    def saturate(self, requests: int) -> list[Request]:
        """Back to back, until so many of every replica have ended."""
        numbers = range(len(self.plan.replicas))
        depth = self.machine.depth
        self.lines = [Line(self.plan.replicas[n].slots, depth, self.requests(n)) for n in numbers]
        while any(sum(r.replica == n for r in self.ended) < requests for n in numbers):
            self.moment()
        return self.ended

    def arrive(self, times_ns: Sequence[float]) -> list[Request]:
        """Requests that come at these times, until all have ended."""
        shares = [replica.share for replica in self.plan.replicas]
        endless = [self.requests(replica) for replica in range(len(shares))]
        dealt: list[list[Request]] = [[] for _ in shares]
        for age, time_ns in enumerate(times_ns):
            replica = furthest_behind([len(own) for own in dealt], shares)
            request = next(endless[replica])
            request.age, request.came_ns = age, time_ns
            dealt[replica].append(request)
        slots = [replica.slots for replica in self.plan.replicas]
        lines = zip(slots, dealt, strict=True)
        self.lines = [Line(count, self.machine.depth, iter(own)) for count, own in lines]
        while len(self.ended) < len(times_ns):
            self.moment()
        return self.ended

    # --- one moment after the other -------------------------------------------------------------

    def moment(self) -> None:
        """All that happens now; then the time of what happens next (now, if that takes no time)."""
        while ending := [entry for entry in self.running if entry[0] == self.now]:
            for entry in ending:
                self.running.remove(entry)
                entry[1]()
        self.settle()
        ended = len(self.ended)
        self.begin_requests()
        self.take_work()
        coming = [line.following.came_ns for line in self.lines if line.following is not None]
        times = [end for end, _ in self.running] + [time for time in coming if time > self.now]
        if not times and self.active:
            raise RuntimeError(f"every queue waits at {self.now} ns")
        if len(self.ended) == ended:  # one that had nothing to do makes room at once
            self.now = min(times, default=self.now)

    def begin_requests(self) -> None:
        for line in self.lines:
            line.hand_over(self.now, self.ages)
            line.give_slots()
            for request in list(line.may_begin()):
                request.began_ns = self.now
                self.active.append(request)
        self.settle()

    def settle(self) -> None:
        """Pass all that takes no time and waits for nothing; end requests that are done."""
        self.active.sort(key=lambda request: request.age)
        for request in list(self.active):
            while any(self.passes(request, *head) for head in request.heads()):
                pass
            if not request.heads():
                request.ended_ns = self.now
                self.active.remove(request)
                self.ended.append(request)
                self.lines[request.replica].slots[request.slot].remove(request)

    def passes(self, request: Request, index: int, position: int, operation: lp.Operation) -> bool:
        """Go on with a queue, if what it has come to is over."""
        over = isinstance(operation, lp.Free | lp.Record)
        match operation:
            case lp.Record(event):
                request.recorded.add((index, event))
            case lp.Await(event):
                over = (index, event) in request.recorded
            case Run():
                over = request.stage[operation] == TAKEN
            case Fill():
                over = request.stage[index, position] == TAKEN
            case Send(number):
                if not self.end_ns(request.transfers[number]):
                    request.stage[number] = max(request.stage[number], PAID)
                early = self.machine.buffered and request.transfers[number].target != HOST
                over = request.stage[number] >= (LEFT if early else ARRIVED)
            case Receive(number):
                request.awaited.add(number)
                if request.transfers[number].source == HOST:
                    request.stage[number] = max(request.stage[number], PAID)
                free = not self.end_ns(request.transfers[number])
                over = request.stage[number] >= (ARRIVED if free else TAKEN)
        if over:
            queue = request.lowered.programs[index].operations[position].queue
            request.queues[index, queue].pop(0)
        return over

    # --- what takes time ------------------------------------------------------------------------

    def take_work(self) -> None:
        """Devices and ways that are free take the oldest work that is ready."""
        kept: set[str] = set()
        for request in self.active:
            for index, position, operation in request.heads():
                device = request.lowered.programs[index].device
                match operation:
                    case Run(step):
                        self.compute(device, request, operation, request.step_ns[step])
                    case Fill():
                        ns = self.fill_ns(device, operation)
                        self.compute(device, request, (index, position), ns)
                    case Send(number) | Receive(number):
                        sends = isinstance(operation, Send)
                        self.take_transfer(device, request, request.transfers[number], sends, kept)

    def fill_ns(self, device: str, fill: Fill) -> float:
        size = sum(end - start for start, end in fill.bytes)
        return float(self.machine.fill_ns + size * self.machine.fill_ns_per_byte.get(device, 0.0))

    def take_transfer(
        self, device: str, request: Request, moved: lp.Transfer, sends: bool, kept: set[str]
    ) -> None:
        """Begin the next part of a transfer, if that can be."""
        at = request.stage[moved.id]
        if sends and at == NOTHING:
            self.compute(device, request, moved.id, self.end_ns(moved), (NOTHING, PAYING, PAID))
        elif not sends and at == ARRIVED:
            self.compute(device, request, moved.id, self.end_ns(moved), (ARRIVED, TAKING, TAKEN))
        elif at == PAID and (sends or moved.source == HOST):
            met = self.machine.buffered or moved.target == HOST or moved.id in request.awaited
            if met:
                self.move(request.stage, moved, kept)

    def compute(
        self,
        device: str,
        request: Request,
        key: Any,
        ns: float,
        stages: Any = STEP,
    ) -> None:
        """Work of a device, if it is free."""
        before, during, after = stages

        def end() -> None:
            self.devices_at_work.remove(device)
            request.stage[key] = after

        if request.stage[key] == before and device not in self.devices_at_work:
            request.stage[key] = during
            self.devices_at_work.add(device)
            self.running.append((self.now + ns, end))

    def move(self, stage: dict[int, int], transfer: lp.Transfer, kept: set[str]) -> None:
        """The bytes of a transfer begin to move, or keep younger ones from what they wait for."""
        way = self.machine.paths[transfer.source, transfer.target]
        rate = way.bytes_per_second
        for name in way.shares:
            used = sum(other.bytes_per_second for other in self.moving if name in other.shares)
            if used + rate > self.machine.capacities[name] * (1 + 1e-9):
                kept.add(name)
        if kept & set(way.shares):
            return

        def left() -> None:
            self.moving.remove(way)
            stage[transfer.id] = LEFT
            self.running.append((self.now + way.latency_ns, arrived))

        def arrived() -> None:
            stage[transfer.id] = ARRIVED

        stage[transfer.id] = MOVING
        self.moving.append(way)
        self.running.append((self.now + transfer.size * 1e9 / rate, left))

    def end_ns(self, transfer: lp.Transfer) -> float:
        """What a transfer takes from the compute of either end."""
        if HOST in (transfer.source, transfer.target):
            return 0.0
        way = self.machine.paths[transfer.source, transfer.target]
        return way.tax_ns + transfer.size * way.tax_ns_per_byte


def furthest_behind(counts: Sequence[int], shares: Sequence[float]) -> int:
    """Who is furthest behind its share of all, the next one counted; of several the first."""
    whole = sum(map(Fraction, shares))
    due = [Fraction(share) / whole * (sum(counts) + 1) for share in shares]
    behind = [owed - count for owed, count in zip(due, counts, strict=True)]
    return behind.index(max(behind))
