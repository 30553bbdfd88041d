"""The accesses of a step added up: per buffer the bytes read, updated, maybe and surely written.

In: a step's accesses. Out: `BufferTotal`s, each with its bytes and the accesses behind it. A
kernel's unrolled loop can make a hundred accesses that add up to one interval, so code that walks
over many steps walks over totals.

Steps of one `pattern` differ only in their buffers, so their totals are added up once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tessera.ir.arrays import Ranges
from tessera.ir.graph.access import Access, AccessKind, Certainty
from tessera.ir.graph.region import Affine, Interval
from tessera.ir.program import program as ir
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import region_bytes, regions_bytes
from tessera.passes.dependences.launch_report import StepAccesses


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferTotal:
    """All bytes of one buffer that accesses of one kind touch; `places` are these accesses.

    `ends` says that the bytes are written whatever the data, so that no earlier contents remain.
    """

    buffer: ir.BufferId
    kind: AccessKind
    ends: bool
    ranges: Ranges
    places: tuple[int, ...]

    def behind(self, step: StepAccesses, ranges: Ranges) -> int:
        """The first access that touches some of these bytes."""
        if len(self.places) > 1:
            for place in self.places:
                if _touches(step.accesses[place], ranges):
                    return place
        return self.places[0]


class StepTotals:
    """The totals of the steps of a program, cached by pattern."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self._known: dict[int, tuple[BufferTotal, ...]] = {}

    def of(self, step: StepAccesses) -> tuple[BufferTotal, ...]:
        """The totals of one step; empty ones are left out."""
        if step.pattern is None:
            return self._add_up(step)
        known = self._known.get(step.pattern)
        if known is None:
            known = self._known[step.pattern] = self._add_up(step)
            return known
        return tuple(_for_buffer(total, step.accesses[total.places[0]].buffer) for total in known)

    def _add_up(self, step: StepAccesses) -> tuple[BufferTotal, ...]:
        groups: dict[tuple[ir.BufferId, AccessKind, bool], list[int]] = {}
        for place, access in enumerate(step.accesses):
            ends = access.kind is AccessKind.WRITE and access.certainty is Certainty.MUST
            groups.setdefault((access.buffer, access.kind, ends), []).append(place)
        totals: list[BufferTotal] = []
        for (buffer, kind, ends), places in groups.items():
            size = self.program.buffers[buffer].bytes
            regions = {id(a.region): a.region for a in (step.accesses[place] for place in places)}
            ranges = intervals.clip(regions_bytes(regions.values(), size), 0, size)
            if len(ranges):
                totals.append(
                    BufferTotal(
                        buffer=buffer, kind=kind, ends=ends, ranges=ranges, places=tuple(places)
                    )
                )
        return tuple(totals)


def _for_buffer(total: BufferTotal, buffer: ir.BufferId) -> BufferTotal:
    return total if total.buffer == buffer else replace(total, buffer=buffer)


def _touches(access: Access, ranges: Ranges) -> bool:
    """Whether an access touches some of these bytes."""
    match access.region:
        case Interval(start, end):
            return _overlaps(start, end, ranges)
        case Affine(pieces):
            first = pieces[0]
            if _overlaps(first.offset, first.offset + first.width, ranges):
                return True
            # The size does not matter: all bytes of the region are inside the buffer.
            return len(intervals.intersect(region_bytes(access.region, 0), ranges)) > 0
        case _:
            return True


def _overlaps(start: int, end: int, ranges: Ranges) -> bool:
    place = int(ranges[:, 1].searchsorted(start, side="right"))
    return place < len(ranges) and bool(ranges[place, 0] < end)
