"""Launch programs: the operations of every device of a replica for one request.

In: nothing. Out: frozen records that `planning.lower` makes, `passes.checker.check_plan` proves
and the backends run.

A request runs in a slot and a lane. Every device has three queues per slot (compute, in, out); a
queue does its operations in order, one after the other, and different queues at the same time.
Events order the queues of one device; nothing but a transfer orders two devices. A transfer is a
`Send` on the out queue of its source and a `Receive` on the in queue of its target. Bytes are read
after all operations before the send are done, and written after all operations before the receive
are done. A backend may end the send as soon as the bytes are buffered, or only when they have
arrived. Transfers from and to `HOST` carry inputs and outputs: the host reads its copy of the
inputs, and has every output byte when all programs of the request are done.

Between hosts a transfer is a `Put` on the out queue of its source, an `AwaitPut` and a `Credit` on
the in queue of its target. A put writes into a landing: memory of the target's host, a copy per
slot, that only its source writes. It begins when the landing is free, and may end as soon as the
bytes have left. The wait ends when the bytes have landed and are in place; the credit gives the
landing back to its source. All landings are free when a request begins, and again when it ends.

Requests follow each other by two rules, which are not written out: a slot holds one request at a
time, and so does a lane. A program therefore begins when the request before it in its slot and the
one before it in its lane are done on every device.

Memory: each device has one area of each kind. Weights exist once, a lane's state once per lane, and
buffers that are private to a request once per slot. Addresses are fixed when the program is made.
Buffers of a slot may share bytes if every access to one is ordered before every access to the
other. A module variable is where its module was loaded, once per device, so a request that may
write one runs alone (`LoweredReplica.slots` is 1).

What a buffer holds when a request begins: a weight, its contents, on each device that has a place
for it. An input: on the host, its contents. An output or temp: its contents where the user gives
some, else poison; on the host, and wherever a `Fill` puts it. A state: what the lane's previous
request left, on the devices that `Home` records name for the bytes, and nowhere else; at the end
it is there again; bytes without a home, which no step may write, are wherever a place holds them.
A module variable is like a state, but of all lanes.
The words of a `pointers` record hold the device's own addresses wherever the buffer has a place;
no transfer and no fill touches them.

Source: decision records 0005 and 0010.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NewType

from tessera.ir.program.program import BufferId, LaunchId

TransferId = NewType("TransferId", int)
DeviceEventId = NewType("DeviceEventId", int)
LandingId = NewType("LandingId", int)

HOST = "host"
"""The name of the host as source or target of a transfer; no device may have it."""

POISON = 0xCB
"""The value of every byte of memory that has not been written."""

PLACE_ALIGNMENT = 256
"""Every place begins at a multiple of this, as allocations do on a GPU."""

_MOST_NAMES = 4

Bytes = tuple[tuple[int, int], ...]
"""Byte ranges of one buffer: starts and ends (exclusive), sorted, disjoint, never touching."""


class Queue(enum.Enum):
    """A queue of a device; queues run concurrently."""

    __hash__ = object.__hash__  # faster than the hash of enums, which hashes the name

    COMPUTE = "compute"
    IN = "in"
    OUT = "out"


class AreaKind(enum.Enum):
    """How often an area exists on its device: once, per lane, per slot, or inside a module."""

    __hash__ = object.__hash__

    WEIGHTS = "weights"
    LANE = "lane"
    SLOT = "slot"
    MODULE = "module"


@dataclass(frozen=True, slots=True)
class Run:
    """Do a step of the trace. On the compute queue."""

    step: LaunchId


@dataclass(frozen=True, slots=True)
class Fill:
    """Write the initial contents of an output or temp. On the compute queue."""

    buffer: BufferId
    bytes: Bytes


@dataclass(frozen=True, slots=True)
class Free:
    """No later operation touches this place of the buffer; others may reuse its bytes.

    On the queue of the next user. It counts as a write of the whole place.
    """

    buffer: BufferId


@dataclass(frozen=True, slots=True)
class Send:
    """Read the bytes of a transfer. On the out queue of its source."""

    transfer: TransferId


@dataclass(frozen=True, slots=True)
class Receive:
    """Write the bytes of a transfer. On the in queue of its target."""

    transfer: TransferId


@dataclass(frozen=True, slots=True)
class Put:
    """Read the bytes of a transfer to another host, into a landing. On the out queue."""

    transfer: TransferId
    landing: LandingId


@dataclass(frozen=True, slots=True)
class AwaitPut:
    """Write the bytes of a transfer from another host, once they have landed. On the in queue."""

    transfer: TransferId
    landing: LandingId


@dataclass(frozen=True, slots=True)
class Credit:
    """The next put may use the landing. On the in queue of its target, after the wait."""

    landing: LandingId


@dataclass(frozen=True, slots=True)
class Record:
    """Record an event once all earlier operations of the queue are done; each event once."""

    event: DeviceEventId


@dataclass(frozen=True, slots=True)
class Await:
    """Later operations of this queue begin after an event of the same device."""

    event: DeviceEventId


Operation = Run | Fill | Free | Send | Receive | Put | AwaitPut | Credit | Record | Await


@dataclass(frozen=True, slots=True)
class Queued:
    """An operation on its queue."""

    queue: Queue
    operation: Operation


@dataclass(frozen=True, slots=True)
class Portion:
    """What a transfer carries of one buffer."""

    buffer: BufferId
    bytes: Bytes

    @property
    def size(self) -> int:
        """The number of bytes."""
        return sum(end - start for start, end in self.bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Bytes that go together from one device to another, or from or to the host.

    It has at least one portion, by ascending buffers, each buffer once; from and to the host it has
    exactly one. Where a backend packs the bytes, portions follow one another without gaps.
    """

    id: TransferId
    source: str
    target: str
    portions: tuple[Portion, ...]

    @property
    def size(self) -> int:
        """The number of bytes that move."""
        return sum(portion.size for portion in self.portions)

    def names(self, name: Callable[[BufferId], str]) -> str:
        """The names of its buffers, for people: `q, k, v`."""
        more = len(self.portions) - _MOST_NAMES
        known = ", ".join(name(portion.buffer) for portion in self.portions[:_MOST_NAMES])
        return f"{known} and {more} more" if more > 0 else known


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """Memory of the target's host for bytes of one source; it exists once per slot."""

    id: LandingId
    source: str
    target: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProgram:
    """One request on one device: its operations; each queue does its own in this order."""

    device: str
    operations: tuple[Queued, ...]

    def on(self, queue: Queue) -> Iterator[Operation]:
        """The operations of one queue."""
        return (queued.operation for queued in self.operations if queued.queue is queue)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredTrace:
    """One request of one trace: a program per device. `trace` indexes the traces of the plan.

    `gate` keeps requests apart: the next one of the trace begins when this step is done, not
    before. Requests that begin together go from device to device together, and leave the others
    idle. It is advice: results do not depend on it, and nothing but a later request waits for it.
    """

    trace: int
    transfers: tuple[Transfer, ...]
    programs: tuple[DeviceProgram, ...]
    gate: int | None = None


MANY_TRANSFERS, SMALL_BYTES = 12, 4 << 20
"""Transfers of a request, and the most bytes of one on average, by which slices meet often."""


def meets_often(trace: LoweredTrace, slots: int) -> bool:
    """Whether slices of one GPU do a request as one graph, and not as rows of launches.

    In the graph an exchange takes no host calls, but a slice cannot copy while it computes, and
    requests of several slots hold each other up a little (decision record 0017).
    """
    sizes = [moved.size for moved in trace.transfers if HOST not in (moved.source, moved.target)]
    is_small = bool(sizes) and sum(sizes) <= SMALL_BYTES * len(sizes)
    return is_small and (slots == 1 or len(sizes) >= MANY_TRANSFERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """Memory of a device: `count` copies of `bytes`, the copy of slot or lane i at i * bytes."""

    device: str
    kind: AreaKind
    bytes: int
    count: int


def with_area_counts(areas: Iterable[Area], slots: int, lanes: int) -> tuple[Area, ...]:
    """The areas with other numbers of slots and lanes."""
    counts = {AreaKind.SLOT: slots, AreaKind.LANE: lanes}
    return tuple(replace(area, count=counts.get(area.kind, area.count)) for area in areas)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a buffer of a trace is on a device: `offset` into each copy of the area.

    In a module area, offsets only distinguish variables: loading the module decides the address.
    A place may hold only the bytes from `first` to `end` of its buffer (None: to its end): byte
    `first` is then at `offset`, and nothing on the device touches the others.
    """

    trace: int
    buffer: BufferId
    device: str
    kind: AreaKind
    offset: int
    first: int = 0
    end: int | None = None

    @property
    def base(self) -> int:
        """Where byte 0 of the buffer is, or would be: its address is the one that kernels get."""
        return self.offset - self.first

    def held(self, size: int) -> tuple[int, int]:
        """The bytes that the place holds of a buffer of `size` bytes: first and end (exclusive)."""
        return self.first, size if self.end is None else self.end

    def taken(self, size: int) -> tuple[int, int]:
        """The bytes of the area that the place takes, for a buffer of `size` bytes."""
        return self.offset, self.base + self.held(size)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Bytes of a state (or variable) that are current on a device between requests."""

    trace: int
    buffer: BufferId
    device: str
    bytes: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredReplica:
    """The launch programs and memory of one copy of the model: everything a backend needs."""

    devices: tuple[str, ...]
    slots: int
    lanes: int
    areas: tuple[Area, ...]
    places: tuple[Place, ...]
    homes: tuple[Home, ...]
    traces: tuple[LoweredTrace, ...]
    landings: tuple[Landing, ...] = ()

    def memory_bytes(self, device: str) -> int:
        """The bytes of all areas on a device."""
        return sum(area.bytes * area.count for area in self.areas if area.device == device)

    def current_bytes(self, place: Place, size: int) -> Bytes:
        """The bytes of a state of `size` bytes that are current at a place between requests: those
        whose home is there, and those without a home that the place holds."""
        first, end = place.held(size)
        here: list[tuple[int, int]] = []
        elsewhere = [(0, first), (end, size)]
        for home in self.homes:
            if (home.trace, home.buffer) == (place.trace, place.buffer):
                (here if home.device == place.device else elsewhere).extend(home.bytes)
        # The complement of a complement merges ranges that touch or overlap.
        both = [*_complement(elsewhere, size), *here]
        return tuple(_complement(_complement(both, size), size))


def _complement(ranges: Iterable[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """The ranges within `size` bytes that are not covered; ranges may overlap."""
    gaps, at = [], 0
    for start, end in [*sorted(ranges), (size, size)]:
        if start > at:
            gaps.append((at, start))
        at = max(at, end)
    return gaps
