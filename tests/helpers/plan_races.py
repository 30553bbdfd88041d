"""Whether every order of a request's operations gives the same bytes, found by brute force.

For the tests of the judge of plans, without a line of its code: what comes before what is a set of
operations per operation, and memory is cut at every end of anything that is touched. A change to a
plan that the judge accepts makes no difference if nothing here is unordered and one order gives the
right bytes (`plan_simulator`): operations that touch the same byte, one of them to write, then come
in the same order always, so every byte goes through the same values.

Requests under way together have other slots and other lanes, so one request of each trace will do.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.launch_program import (
    AreaKind,
    Await,
    AwaitPut,
    Credit,
    Fill,
    Free,
    LoweredReplica,
    LoweredTrace,
    Operation,
    Put,
    Receive,
    Record,
    Run,
    Send,
)
from tessera.ir.program.program import Program
from tests.helpers.regions import region_intervals

Where = tuple[str, object]
"""A device, and an area of it or a variable."""
Span = tuple[Where, int, int, bool]
"""Bytes from here to there, and whether they are written."""


def races(
    replica: LoweredReplica, programs: Sequence[Program], graphs: Sequence[KernelGraph]
) -> str:
    """Two operations that no order keeps apart, or a circle of waits, in words; or nothing."""
    for trace in replica.traces:
        found = _Request(replica, trace, programs[trace.trace], graphs[trace.trace]).problem()
        if found:
            return f"trace {trace.trace}: {found}"
    return ""


class _Request:
    """The operations of one request as numbers; a transfer's end has a number for its end too."""

    def __init__(
        self, replica: LoweredReplica, trace: LoweredTrace, program: Program, graph: KernelGraph
    ) -> None:
        self.replica, self.trace, self.program, self.graph = replica, trace, program, graph
        self.transfers = {one.id: one for one in trace.transfers}
        self.ops = [
            (one.device, queued.queue, queued.operation)
            for one in trace.programs
            for queued in one.operations
        ]
        self.after: dict[int, set[int]] = {}
        self._link()

    def _end(self, number: int) -> int:
        """An operation's end, where that is apart from its beginning."""
        if number >= len(self.ops):
            return number
        moves = isinstance(self.ops[number][2], Send | Receive | Put | AwaitPut)
        return number + len(self.ops) if moves else number

    def _link(self) -> None:
        last: dict[object, int] = {}
        records, ends = {}, {}
        for number, (device, queue, operation) in enumerate(self.ops):
            if (device, queue) in last:
                self._edge(self._end(last[device, queue]), number)
            last[device, queue] = number
            self._edge(number, self._end(number))
            match operation:
                case Record(event):
                    records[device, event] = number
                case Send(transfer) | Put(transfer):
                    ends["send", transfer] = number
                case Receive(transfer) | AwaitPut(transfer):
                    ends["receive", transfer] = number
                case _:
                    pass
        for number, (device, _, operation) in enumerate(self.ops):
            if isinstance(operation, Await):
                self._edge(records[device, operation.event], number)
        for landing in self.replica.landings:
            puts = [n for n, op in enumerate(self.ops) if _lands(op[2], landing.id)]
            credits = [n for n, op in enumerate(self.ops) if op[2] == Credit(landing.id)]
            for credit, put in zip(credits, puts[1:], strict=False):
                self._edge(credit, put)
        self.meetings = []
        for (kind, transfer), number in ends.items():
            if kind == "send" and ("receive", transfer) in ends:
                other = ends["receive", transfer]
                self._edge(self._end(number), self._end(other))
                self.meetings.append((other, self._end(number)))

    def _edge(self, source: int, target: int) -> None:
        if source != target:
            self.after.setdefault(source, set()).add(target)

    def problem(self) -> str:
        strict = {number: set(found) for number, found in self.after.items()}
        for source, target in self.meetings:  # a send that ends only when its receive takes over
            strict.setdefault(source, set()).add(target)
        if _order(strict, 2 * len(self.ops)) is None:
            return "operations wait for each other"
        order = _order(self.after, 2 * len(self.ops))
        assert order is not None
        later: dict[int, set[int]] = {}
        for number in reversed(order):
            later[number] = set().union(*({one} | later[one] for one in self.after.get(number, ())))
        users: dict[tuple[Where, int], list[tuple[int, bool]]] = {}
        for number, (where, start, _, writes) in self._pieces():
            users.setdefault((where, start), []).append((number, writes))
        seen: set[tuple[int, int]] = set()
        for byte, found in users.items():
            for (one, writes), (other, also) in combinations(found, 2):
                if one != other and (writes or also) and (one, other) not in seen:
                    seen.add((one, other))
                    if other not in later[self._end(one)] and one not in later[self._end(other)]:
                        pair = [self.ops[n % len(self.ops)] for n in (one, other)]
                        return f"{pair[0]} and {pair[1]} meet at {byte}"
        return ""

    def _pieces(self) -> Iterator[tuple[int, Span]]:
        """What operations touch, cut at every end of any of it."""
        spans = [(n, span) for n in range(len(self.ops)) for span in self._touched(n)]
        for number, (_, _, operation) in enumerate(self.ops):
            if isinstance(operation, Put | AwaitPut):
                size = self.transfers[operation.transfer].size
                where = ("landing", int(operation.landing))
                is_put = isinstance(operation, Put)  # a wait reads when the bytes have landed
                at = number if is_put else self._end(number)
                spans.append((at, (where, 0, size, is_put)))
        cuts: dict[Where, set[int]] = {}
        for _, (where, start, end, _) in spans:
            cuts.setdefault(where, set()).update((start, end))
        rows = {where: sorted(found) for where, found in cuts.items()}
        for number, (where, start, end, writes) in spans:
            row = rows[where]
            for at in range(bisect_left(row, start), bisect_left(row, end)):
                yield number, (where, row[at], row[at + 1], writes)

    def _touched(self, number: int) -> Iterator[Span]:
        device, _, operation = self.ops[number]
        match operation:
            case Run(step):
                for access in self.graph.nodes[step].accesses:
                    size = self.program.buffers[access.buffer].bytes
                    found = region_intervals(access.region, size)
                    yield from self._spans(device, access.buffer, found, access.kind.writes)
            case Fill(buffer, found):
                yield from self._spans(device, buffer, found, True)
            case Free(buffer):
                size = self.program.buffers[buffer].bytes
                yield from self._spans(device, buffer, [(0, size)], True)
            case Send(transfer) | Receive(transfer) | Put(transfer) | AwaitPut(transfer):
                one = self.transfers[transfer]
                writes = isinstance(operation, Receive | AwaitPut)
                for portion in one.portions:
                    yield from self._spans(device, portion.buffer, portion.bytes, writes)
            case _:
                return

    def _spans(
        self, device: str, buffer: int, found: Iterable[tuple[int, int]], writes: bool
    ) -> Iterator[Span]:
        size = self.program.buffers[buffer].bytes
        if size == 0:
            return
        place = next(
            one
            for one in self.replica.places
            if (one.trace, one.buffer, one.device) == (self.trace.trace, buffer, device)
        )
        is_variable = place.kind is AreaKind.MODULE
        where = (device, int(buffer) if is_variable else place.kind)
        base = 0 if is_variable else place.base
        for start, end in found:
            if max(start, 0) < min(end, size):
                yield where, base + max(start, 0), base + min(end, size), writes


def _lands(operation: Operation, landing: int) -> bool:
    return isinstance(operation, Put) and operation.landing == landing


def _order(after: dict[int, set[int]], count: int) -> list[int] | None:
    """Operations in an order that their edges allow, or None where they go in a circle."""
    pending = dict.fromkeys(range(count), 0)
    for found in after.values():
        for one in found:
            pending[one] += 1
    ready = [number for number, left in pending.items() if left == 0]
    order = []
    while ready:
        number = ready.pop()
        order.append(number)
        for one in after.get(number, ()):
            pending[one] -= 1
            if pending[one] == 0:
                ready.append(one)
    return order if len(order) == count else None
