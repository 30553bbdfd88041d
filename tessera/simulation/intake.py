"""Admission of requests to a replica: the waiting line, slots, sequences and gates.

In: arriving requests, in order. Out: the requests that may begin, oldest first. The rules are in
`docs/concepts/simulation.md`. The trace, sequence and replica of a request follow the rules of
`tessc run` (`driver.run.schedule`), implemented here independently.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tessera.simulation.work import COMPUTE, RequestWork


def always(shares: Sequence[float], sequences: int) -> Iterator[Coming]:
    """An endless stream of requests, as `tessc run` generates them."""
    for trace, sequence in sequence_turns(shares, sequences):
        yield Coming(-1.0, trace, sequence)


def sequence_turns(shares: Sequence[float], sequences: int) -> Iterator[tuple[int, int]]:
    """Trace and sequence of successive requests: sequences take turns, traces by share."""
    counts = [[0] * len(shares) for _ in range(sequences)]
    number = 0
    while True:
        sequence = number % sequences
        trace = most_behind(counts[sequence], shares)
        counts[sequence][trace] += 1
        yield trace, sequence
        number += 1


def most_behind(counts: Sequence[int], shares: Sequence[float]) -> int:
    """The replica that is furthest behind its share; the first one on a tie."""
    if len(counts) == 1:
        return 0
    due = sum(counts) + 1
    whole = sum(shares)
    return max(range(len(counts)), key=lambda i: (shares[i] / whole * due - counts[i], -i))


@dataclass(frozen=True, slots=True)
class Coming:
    """An arriving request: its time, its trace and its sequence in the replica.

    A negative time marks a back-to-back request, which arrives as soon as there is room. `age` is
    its position in the order of arrival over all replicas, if that is known; a back-to-back request
    gets its age when it is handed over.
    """

    at_ns: float
    trace: int
    sequence: int
    age: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedReplica:
    """One copy of the model: its work by trace, and the requests that arrive at it, in order."""

    work: Mapping[int, RequestWork]
    slots: int
    sequences: int
    depth: int
    coming: Iterator[Coming]


def places_of(works: Sequence[Mapping[int, RequestWork]]) -> list[str]:
    """The devices and capacities of replicas, in the order in which their work names them."""
    nodes = (node for work in works for own in work.values() for node in own.nodes)
    return list(dict.fromkeys(name for node in nodes for name in node.place))


RowPlace = tuple[tuple[int, ...], tuple[float, ...], int]
"""The nodes of a row, the time of each, and the position of a node in the row."""


class WorkColumns:
    """The work of a request as columns, with numbered places. `rows` may be empty: see `rows.py`.

    `device` is the place of a compute node, -1 for other nodes.
    """

    __slots__ = (
        "after",
        "alone_ns",
        "before",
        "delay_ns",
        "device",
        "first",
        "gate",
        "handed",
        "host_ns",
        "is_split",
        "kind",
        "ns",
        "operations",
        "place",
        "quiet_ns",
        "rate",
        "rows",
    )

    def __init__(self, work: RequestWork, numbers: dict[str, int]) -> None:
        self.kind = [node.kind for node in work.nodes]
        self.ns = [node.ns for node in work.nodes]
        self.alone_ns = [node.alone_ns for node in work.nodes]
        self.quiet_ns = [node.quiet_ns for node in work.nodes]
        self.after = [node.after for node in work.nodes]
        self.before = [node.before for node in work.nodes]
        self.place = [tuple(numbers[name] for name in node.place) for node in work.nodes]
        self.device = [
            places[0] if kind == COMPUTE else -1
            for kind, places in zip(self.kind, self.place, strict=True)
        ]
        self.rate = [node.rate for node in work.nodes]
        self.delay_ns = [node.delay_ns for node in work.nodes]
        self.first = [index for index, node in enumerate(work.nodes) if not node.before]
        self.gate = -1 if work.gate is None else work.gate
        self.operations = work.operations
        self.host_ns = work.host_ns
        self.is_split = work.is_split
        self.handed = work.handed
        self.rows: Sequence[RowPlace | None] = ()


class MovingRequest:
    """A request in the system. `ahead` is the request whose gate it waits for."""

    __slots__ = (
        "age",
        "ahead",
        "began_ns",
        "came_ns",
        "columns",
        "is_past_gate",
        "left",
        "missing",
        "replica",
        "sequence",
        "slot",
        "trace",
    )

    def __init__(self, replica: Intake, coming: Coming, age: int) -> None:
        self.replica = replica
        self.trace = coming.trace
        self.sequence = coming.sequence
        self.came_ns = coming.at_ns
        self.columns = replica.columns[coming.trace]
        self.age = age
        self.slot = -1
        self.began_ns = -1.0
        self.ahead: MovingRequest | None = None
        self.is_past_gate = self.columns.gate < 0
        self.missing: list[int] = []
        self.left = 0


class Intake:
    """The requests of a replica that have not begun, and the slots of those that have."""

    def __init__(self, index: int, replica: SimulatedReplica, numbers: dict[str, int]) -> None:
        self.index = index
        self.columns = {trace: WorkColumns(work, numbers) for trace, work in replica.work.items()}
        self.coming = replica.coming
        self.next = next(self.coming, None)
        self.is_expected = False
        self.capacity = replica.slots * replica.depth
        self.depth = replica.depth
        self.queue: deque[MovingRequest] = deque()
        self.handed: list[MovingRequest] = []
        self.in_slot: list[deque[MovingRequest]] = [deque() for _ in range(replica.slots)]
        self.in_sequence = [0] * replica.sequences
        self.slot_of = [sequence % replica.slots for sequence in range(replica.sequences)]
        self.last_taken = [0] * replica.slots
        self.taken = 0
        self.under_way = 0
        self.ends: list[float] = []
        self.last_of_trace: dict[int, MovingRequest] = {}
        self.host_free_ns = 0.0

    def hand_over(self) -> None:
        """Assign slots to waiting requests in the order of arrival."""
        while self.queue and len(self.handed) + self.under_way < self.capacity:
            self.handed.append(self.queue.popleft())
        full: set[int] = set()
        kept = []
        for request in self.handed:
            sequence = request.sequence
            slot = None if sequence in full else self._slot_for(sequence)
            if slot is None:
                full.add(sequence)
                kept.append(request)
                continue
            self._place(request, slot)
        self.handed = kept

    def _slot_for(self, sequence: int) -> int | None:
        slot = self.slot_of[sequence]
        if self.in_sequence[sequence]:
            return slot if len(self.in_slot[slot]) < self.depth else None
        if self.in_slot[slot]:
            slots = range(len(self.in_slot))
            slot = min(slots, key=lambda s: (len(self.in_slot[s]), self.last_taken[s]))
            if len(self.in_slot[slot]) >= self.depth:
                return None
        return slot

    def _place(self, request: MovingRequest, slot: int) -> None:
        self.taken += 1
        self.last_taken[slot] = self.taken
        self.slot_of[request.sequence] = slot
        self.in_slot[slot].append(request)
        self.in_sequence[request.sequence] += 1
        self.under_way += 1
        request.slot = slot
        if not request.is_past_gate:
            request.ahead = self.last_of_trace.get(request.trace)
            self.last_of_trace[request.trace] = request

    def waiting(self) -> int:
        """Number of requests that have arrived and not begun."""
        begun = sum(1 for line in self.in_slot if line and line[0].began_ns >= 0)
        return len(self.queue) + len(self.handed) + self.under_way - begun

    def ready(self) -> list[MovingRequest]:
        """The requests that may begin now, oldest first."""
        heads = [
            line[0]
            for line in self.in_slot
            if line
            and line[0].began_ns < 0
            and (line[0].ahead is None or line[0].ahead.is_past_gate)
        ]
        return sorted(heads, key=lambda request: request.age)

    def end(self, request: MovingRequest) -> None:
        """Release the slot and sequence of a request that has ended on every device."""
        self.in_slot[request.slot].popleft()
        self.in_sequence[request.sequence] -= 1
        self.under_way -= 1
