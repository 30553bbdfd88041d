"""Memory for the simulator of launch programs: cells, and what steps do to them.

Without a line of the code that is tested. A byte of an area, of a landing or of the host is a
*cell* with all bytes behind it that the plan never tells apart: every buffer is cut where anything
that touches it begins or ends, and where a buffer that shares its memory is cut. A cell holds a
number. A step writes what it must, and some of what it may, all decided by a hash of what it reads.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from zlib import crc32

from tessera.ir.graph.access import AccessKind, Certainty
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.launch_program import AreaKind, Fill, LoweredReplica, Place
from tessera.ir.program.program import Buffer, Program, Role
from tests.helpers.regions import region_intervals

Key = tuple[object, ...]
OWN = (Role.INPUT, Role.OUTPUT, Role.TEMP)
LASTING = (Role.STATE, Role.VARIABLE)
WINDOW = 1 << 50
"""Areas are this far apart."""


@dataclass(frozen=True)
class Request:
    """One request: which trace, lane and slot."""

    trace: int
    lane: int
    slot: int


def number_of(*key: object) -> int:
    return crc32(repr(key).encode())


@dataclass(frozen=True)
class Touch:
    """What a step does to the cells of one buffer, by the offset of each cell."""

    buffer: int
    reads: tuple[int, ...]
    writes: tuple[tuple[int, bool], ...]


class Cells:
    """A replica whose buffers are cut into cells."""

    def __init__(
        self, replica: LoweredReplica, programs: Sequence[Program], graphs: Sequence[KernelGraph]
    ) -> None:
        self.replica, self.programs, self.graphs = replica, programs, graphs
        self.places = {(p.trace, p.device, int(p.buffer)): p for p in replica.places}
        self.areas = {(a.device, a.kind): (n, a) for n, a in enumerate(replica.areas)}
        self.lowered = {one.trace: one for one in replica.traces}
        self.words = [_words(program) for program in programs]
        self.salt = 0
        self.written: dict[Key, list[tuple[int, int]]] = defaultdict(list)
        cuts = self._first_cuts()
        self._share(cuts)
        self.cuts = {key: sorted(found) for key, found in cuts.items()}
        self.touches: dict[tuple[int, int], list[Touch]] = {}
        self.known: dict[tuple[int, int, tuple[tuple[int, int], ...]], tuple[int, ...]] = {}

    def owner(self, trace: int, buffer: int) -> Key:
        """Traces share weights and states by name."""
        one = self.programs[trace].buffers[buffer]
        return (one.name,) if one.role in (Role.WEIGHT, Role.STATE) else (trace, one.name)

    # --- cells -----------------------------------------------------------------------------

    def _first_cuts(self) -> dict[Key, set[int]]:
        cuts: dict[Key, set[int]] = defaultdict(set)

        def cut(trace: int, buffer: int, found: Iterable[tuple[int, int]]) -> None:
            size = self.programs[trace].buffers[buffer].bytes
            ends = itertools.chain.from_iterable(found)
            cuts[self.owner(trace, buffer)].update(min(max(at, 0), size) for at in ends)

        for trace, (program, graph) in enumerate(zip(self.programs, self.graphs, strict=True)):
            for one in program.buffers:
                cut(trace, int(one.id), [(0, one.bytes)])
                cut(trace, int(one.id), [(at, at + 8) for at in self.words[trace][int(one.id)]])
            for node in graph.nodes:
                for access in node.accesses:
                    buffer = int(access.buffer)
                    found = region_intervals(access.region, program.buffers[buffer].bytes)
                    cut(trace, buffer, found)
                    if access.kind.writes and program.buffers[buffer].role in LASTING:
                        self.written[self.owner(trace, buffer)] += found
        for lowered in self.replica.traces:
            for transfer in lowered.transfers:
                for portion in transfer.portions:
                    cut(lowered.trace, int(portion.buffer), portion.bytes)
            for own in lowered.programs:
                for queued in own.operations:
                    if isinstance(queued.operation, Fill):
                        cut(lowered.trace, int(queued.operation.buffer), queued.operation.bytes)
        for home in self.replica.homes:
            cut(home.trace, int(home.buffer), home.bytes)
        for place in self.replica.places:
            cut(place.trace, int(place.buffer), [self.held(place)])
        return cuts

    def held(self, place: Place) -> tuple[int, int]:
        return place.held(self.programs[place.trace].buffers[place.buffer].bytes)

    def _share(self, cuts: dict[Key, set[int]]) -> None:
        """Cut buffers where those are cut that share memory with them, until nothing changes."""
        spans = []
        for place in self.replica.places:
            if place.kind is AreaKind.MODULE or (place.device, place.kind) not in self.areas:
                continue
            number, area = self.areas[place.device, place.kind]
            first, end = self.held(place)
            key = self.owner(place.trace, int(place.buffer))
            for copy in range(min(area.count, 4)):
                base = number * WINDOW + copy * area.bytes + place.base
                spans.append((base + first, base + end, base, key))
        spans.sort(key=lambda span: span[:3])
        pairs = []
        for at, (_, end, base, key) in enumerate(spans):
            for start, other_end, other_base, other in itertools.islice(spans, at + 1, None):
                if start >= end:
                    break
                if (base, key) != (other_base, other):
                    pairs.append((key, base, other, other_base, start, min(end, other_end)))
        changed = True
        while changed:
            changed = False
            for key, base, other, other_base, start, end in pairs:
                both = {base + at for at in cuts[key]} | {other_base + at for at in cuts[other]}
                shared = {at for at in both if start <= at <= end}
                for one, its_base in ((key, base), (other, other_base)):
                    more = {at - its_base for at in shared} - cuts[one]
                    cuts[one] |= more
                    changed = changed or bool(more)

    def cells(self, trace: int, buffer: int, found: Iterable[tuple[int, int]]) -> tuple[int, ...]:
        """The offsets of the cells of ranges, as far as they are in the buffer."""
        found = tuple(found)
        key = (trace, buffer, found)
        if key not in self.known:
            row = self.cuts[self.owner(trace, buffer)]
            size = self.programs[trace].buffers[buffer].bytes
            self.known[key] = tuple(
                at
                for start, end in found
                for at in row[bisect_left(row, max(start, 0)) : bisect_left(row, min(end, size))]
            )
        return self.known[key]

    def step(self, trace: int, step: int) -> list[Touch]:
        """What a step touches, by buffer."""
        if (trace, step) not in self.touches:
            program, node = self.programs[trace], self.graphs[trace].nodes[step]
            rows: dict[int, tuple[set[int], set[int], set[int]]] = {}
            for access in node.accesses:
                buffer = int(access.buffer)
                found = region_intervals(access.region, program.buffers[buffer].bytes)
                cells = self.cells(trace, buffer, found)
                reads, may, must = rows.setdefault(buffer, (set(), set(), set()))
                if access.kind.reads:
                    reads.update(cells)
                if access.kind.writes:
                    may.update(cells)
                if access.kind is AccessKind.WRITE and access.certainty is Certainty.MUST:
                    must.update(cells)
            self.touches[trace, step] = [
                Touch(buffer, tuple(sorted(reads)), tuple((at, at in must) for at in sorted(may)))
                for buffer, (reads, may, must) in sorted(rows.items())
                if reads or may
            ]
        return self.touches[trace, step]

    def digest(self, trace: int, step: int, seen: Iterable[object]) -> int:
        """What a step decides by, given what it read; twins decide alike."""
        twins = self.graphs[trace].twins
        group = next((group for group in twins if step in group), (step,))
        return hash((self.salt, int(group[0]), *seen))

    # --- contents --------------------------------------------------------------------------

    def first(self, trace: int, buffer: int, lane: int, number: int) -> int:
        """A number for what a buffer holds before a request, or for ever if it is a weight."""
        one = self.programs[trace].buffers[buffer]
        if one.role in OWN:
            return number_of("own", one.name, number)
        lane = lane if one.role is Role.STATE else 0
        return number_of("lasting", *self.owner(trace, buffer), lane)

    def address(self, trace: int, buffer: int, *where: object) -> int:
        """A number for the addresses that a place has in the words of a table."""
        return number_of("address", self.programs[trace].buffers[buffer].name, *where)

    def whole(self, trace: int, buffer: int) -> tuple[int, ...]:
        """All cells of a buffer."""
        return self.cells(trace, buffer, ((0, self.programs[trace].buffers[buffer].bytes),))

    def word_cells(self, trace: int, buffer: int) -> tuple[int, ...]:
        """The cells of the words that hold addresses."""
        return self.cells(trace, buffer, [(at, at + 8) for at in self.words[trace][buffer]])

    def lasting(self, request: Request, one: Buffer) -> Key:
        lane = request.lane if one.role is Role.STATE else 0
        return (*self.owner(request.trace, int(one.id)), lane)


def _words(program: Program) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for table in program.pointer_tables:
        found[int(table.buffer)] += [word.offset for word in table.words]
    return found


def outcome(digest: int, touch: Touch) -> dict[int, int]:
    """What a step leaves in the cells of a buffer that it writes."""
    found = {}
    for at, must in touch.writes:
        value = hash((digest, touch.buffer, at))
        if must or value & 1:
            found[at] = value
    return found
