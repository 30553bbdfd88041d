"""The bytes that parts of a launch touch, and where they would be in each other's way.

In: the accesses of all parts of a launch. Out: a `Conflict`, or None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tessera.ir.arrays import Ranges
from tessera.ir.graph.access import AddressClass
from tessera.ir.graph.region import Region
from tessera.ir.program import program as ir
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import regions_bytes
from tessera.passes.dependences.launch_report import StepAccesses
from tessera.wording import Wording

Written = Mapping[ir.BufferId, Ranges]


class PartBytes:
    """The bytes that a part may read and may write, by buffer."""

    def __init__(self, program: ir.Program, part: StepAccesses) -> None:
        reads: dict[ir.BufferId, list[Region]] = {}
        writes: dict[ir.BufferId, list[Region]] = {}
        for access in part.accesses:
            if access.kind.reads:
                reads.setdefault(access.buffer, []).append(access.region)
            if access.kind.writes:
                writes.setdefault(access.buffer, []).append(access.region)
        self.part = part
        # Only what parts write can be in their way.
        self.writes = {b: regions_bytes(r, program.buffers[b].bytes) for b, r in writes.items()}
        self.read_regions = reads

    def reads(self, program: ir.Program, buffer: ir.BufferId) -> Ranges:
        """The bytes of a buffer that it may read."""
        return regions_bytes(self.read_regions.get(buffer, ()), program.buffers[buffer].bytes)

    def is_indexed(self, buffer: ir.BufferId) -> bool:
        """Whether memory decides where it writes in a buffer."""
        return any(
            access.buffer == buffer
            and access.kind.writes
            and access.address is not AddressClass.DIRECT
            for access in self.part.accesses
        )


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why parts of one launch must not run apart; `is_everywhere`: at other edges neither."""

    reason: Wording
    is_everywhere: bool = False


def find_conflict(program: ir.Program, parts: Sequence[StepAccesses]) -> Conflict | None:
    """Where parts of one launch are in each other's way."""
    pin = next((pin for part in parts for pin in part.pins), None)
    if pin is not None:
        return Conflict(Wording(f"a part of it is pinned: {pin.reason}"), is_everywhere=True)
    touched = [PartBytes(program, part) for part in parts]
    shared = _shared_write(program, touched)
    return _foreign_read(program, touched) if shared is None else shared


def _shared_write(program: ir.Program, parts: Sequence[PartBytes]) -> Conflict | None:
    """Why two parts may write the same byte."""
    for buffer in dict.fromkeys(b for part in parts for b in part.writes):
        before = intervals.EMPTY
        for number, part in enumerate(parts):
            mine = part.writes.get(buffer, intervals.EMPTY)
            common = intervals.intersect(before, mine)
            if len(common):
                name = program.buffers[buffer].name
                if part.is_indexed(buffer):
                    text = f"values from memory decide where it writes in `{name}`"
                    return Conflict(Wording(text), is_everywhere=True)
                text = f"part {number} and one before it may both write {_bytes(common)}"
                return Conflict(Wording(f"{text} of `{name}`"))
            before = intervals.union([before, mine])
    return None


def _foreign_read(program: ir.Program, parts: Sequence[PartBytes]) -> Conflict | None:
    """Why a part may read what another writes; no two parts write the same byte."""
    for buffer in dict.fromkeys(b for part in parts for b in part.writes):
        written = intervals.union([part.writes[buffer] for part in parts if buffer in part.writes])
        for number, part in enumerate(parts):
            others = intervals.subtract(written, part.writes.get(buffer, intervals.EMPTY))
            common = intervals.intersect(part.reads(program, buffer), others)
            if len(common):
                name = program.buffers[buffer].name
                text = f"part {number} may read {_bytes(common)} of `{name}`"
                return Conflict(Wording(f"{text}, which another part may write"))
    return None


def _bytes(ranges: Ranges) -> str:
    return f"bytes {int(ranges[0, 0])}:{int(ranges[0, 1])}"


def written_size(written: Written) -> int:
    """The number of bytes."""
    return sum(intervals.size(ranges) for ranges in written.values())


def writes_equal(left: Written, right: Written) -> bool:
    """Whether two parts write the same bytes."""
    return left.keys() == right.keys() and all(
        np.array_equal(left[buffer], right[buffer]) for buffer in left
    )
