"""What a case touches when the CPU backend runs it, beside what the analysis says.

In: the log of a launch and the accesses that were found. Out: the bytes logged and the bytes of the
regions, so that tests and benchmarks can hold them against each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tessera.backend.ptx_executor.memory.access_log import BufferAccess
from tessera.ir.graph.access import Access, AccessKind, Certainty
from tessera.ir.program import program as ir
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import region_bytes
from tessera.passes.dependences.launch_report import StepAccesses

Log = tuple[BufferAccess, ...]
LOOSE = np.zeros(3, np.int64)
"""Bytes beyond the log since a test began: read and written too many, and writes not proven."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One buffer in one launch: bytes logged, and bytes of the regions."""

    buffer: ir.Buffer
    accesses: tuple[Access, ...]
    read: NDArray
    written: NDArray
    may_read: NDArray
    may_write: NDArray
    must_write: NDArray


def compare(program: ir.Program, step: StepAccesses, log: Log) -> Iterator[Comparison]:
    """Every buffer that a launch touched or may touch."""
    logged = {entry.buffer: entry for entry in log}
    for buffer in program.buffers:
        entry = logged.get(buffer.name.removeprefix("m."))
        mine = tuple(a for a in step.accesses if a.buffer == buffer.id)
        if entry is None and not mine:
            continue

        def total(*kinds: AccessKind, must: bool = False) -> NDArray:
            chosen = [
                region_bytes(access.region, buffer.bytes)  # noqa: B023
                for access in mine  # noqa: B023
                if access.kind in kinds and (not must or access.certainty is Certainty.MUST)
            ]
            return intervals.union(chosen)

        found = Comparison(
            buffer,
            mine,
            intervals.from_pairs(entry.reads if entry else ()),
            intervals.from_pairs(entry.writes if entry else ()),
            total(AccessKind.READ, AccessKind.ATOMIC),
            total(AccessKind.WRITE, AccessKind.ATOMIC),
            total(AccessKind.WRITE, must=True),
        )
        pairs = (
            (found.may_read, found.read),
            (found.may_write, found.written),
            (found.written, found.must_write),
        )
        LOOSE[:] += [intervals.size(intervals.subtract(*pair)) for pair in pairs]
        yield found
