"""The exact bytes that a launch reads and writes, as merged ranges per allocation.

Runs of consecutive words add an interval. Scattered accesses set flags in a map with one flag per
word of the access's width, over the whole address space (the map is committed lazily, so only
touched pages cost memory). At the end of a launch the flags become intervals and are cleared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tessera.backend.ptx_executor.memory.memory import AddressSpace, Allocation, Array, reserve
from tessera.diagnostics import ExitCode, TesseraError
from tessera.ir.arrays import Ranges

_MERGE_ABOVE = 1 << 16


@dataclass(frozen=True, slots=True)
class BufferAccess:
    """Bytes of one buffer that a launch touched: sorted, disjoint `(start, end)` offsets."""

    buffer: str
    address: int
    size: int
    reads: tuple[tuple[int, int], ...]
    writes: tuple[tuple[int, int], ...]


class Direction:
    """The reads, or the writes."""

    def __init__(self, space: AddressSpace) -> None:
        self.space = space
        self.maps: dict[int, Array] = {}
        self.touched: dict[int, set[int]] = {}
        self.ranges: list[tuple[int, int]] = []
        self.rows: list[tuple[int, int, int, int]] = []

    def map_for(self, width: int) -> Array:
        """The flags for words of a width, over the whole space."""
        flags = self.maps.get(width)
        if flags is None:
            wanted = self.space.capacity // width
            flags = np.frombuffer(reserve(wanted), dtype=np.bool_)
            if len(flags) < wanted:
                raise TesseraError.of(
                    "TSR5020",
                    "not enough address space to log what a launch touches",
                    hint="give the device less memory: `Device(memory_bytes=...)`",
                    exit_code=ExitCode.FAULT,
                )
            self.maps[width] = flags
        return flags

    def add_range(self, start: int, end: int) -> None:
        """Add bytes `start` to `end` of the space."""
        ranges = self.ranges
        if ranges and ranges[-1][1] == start:
            ranges[-1] = (ranges[-1][0], end)
            return
        ranges.append((start, end))
        if len(ranges) > _MERGE_ABOVE:
            self.ranges = merge(np.array(ranges, dtype=np.int64))

    def add_ranges(self, ranges: Array) -> None:
        """Add rows of `(start, end)` in the space, in any order."""
        self.ranges.extend(merge(ranges))

    def add_rows(self, start: int, pitch: int, count: int, length: int) -> None:
        """Add `count` ranges of `length` bytes, `pitch` bytes apart."""
        self.rows.append((start, pitch, count, length))
        if len(self.rows) > _MERGE_ABOVE:
            merged = merge(self._row_ranges())
            self.rows = []
            self.ranges.extend(merged)

    def _row_ranges(self) -> Array:
        """The ranges of all rows, one per line."""
        kinds: dict[tuple[int, int, int], list[int]] = {}
        for start, pitch, count, length in self.rows:
            kinds.setdefault((pitch, count, length), []).append(start)
        parts = [np.zeros((0, 2), dtype=np.int64)]
        for (pitch, count, length), starts in kinds.items():
            firsts = np.unique(np.array(starts, dtype=np.int64))
            all_starts = (firsts[:, None] + np.arange(count) * pitch).reshape(-1)
            parts.append(np.stack([all_starts, all_starts + length], axis=1))
        return np.concatenate(parts)

    def touch(self, offset: int, width: int) -> None:
        """Note that flags of this width have been set in the allocation at `offset`."""
        allocation = self.space.find(self.space.base + offset)
        assert allocation is not None, "accesses are checked against the table first"
        self.touched.setdefault(width, set()).add(allocation.address)

    def add_words(self, indices: Array, width: int, allocations: tuple[int, ...]) -> None:
        """Add words of `width` bytes by index, inside allocations given by their start address."""
        self.map_for(width)[indices] = True
        self.touched.setdefault(width, set()).update(allocations)

    def forget(self, allocation: Allocation) -> None:
        """Clear the flags of an allocation that is being freed."""
        for width, starts in self.touched.items():
            self._collect(width, allocation.address)
            starts.discard(allocation.address)

    def finish(self) -> list[tuple[int, int]]:
        """Return all ranges, merged, and clear them."""
        parts: list[Ranges] = [np.array(self.ranges, dtype=np.int64).reshape(-1, 2)]
        parts.append(self._row_ranges())
        self.rows = []
        for width, starts in self.touched.items():
            parts.extend(self._collect(width, start) for start in starts)
        self.ranges = []
        self.touched = {}
        return merge(np.concatenate(parts))

    def _collect(self, width: int, start: int) -> Array:
        """Return the flagged words of one allocation as ranges, and clear the flags."""
        offset = start - self.space.base
        allocation = self.space.find(start)
        size = allocation.size if allocation is not None else 0
        first = offset // width
        flags = self.maps[width][first : first + -(-size // width)]
        if flags.all():
            flags[:] = False
            return np.array([[first, first + len(flags)]], dtype=np.int64) * width
        padded = np.zeros(len(flags) + 2, dtype=np.int8)
        padded[1:-1] = flags
        flags[:] = False
        edges = np.diff(padded)
        runs = np.stack([np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)], axis=1)
        return (runs + first) * width


class AccessLog:
    """Reads and writes of the launch in progress."""

    def __init__(self, space: AddressSpace) -> None:
        self.space = space
        self.reads = Direction(space)
        self.writes = Direction(space)

    def finish(self) -> tuple[BufferAccess, ...]:
        """The bytes touched since the last call, by allocation, in address order."""
        reads = self._by_allocation(self.reads.finish())
        writes = self._by_allocation(self.writes.finish())
        return tuple(
            BufferAccess(
                a.name, a.address, a.size, reads.get(a.address, ()), writes.get(a.address, ())
            )
            for a in self.space.table
            if a.address in reads or a.address in writes
        )

    def _by_allocation(
        self, ranges: list[tuple[int, int]]
    ) -> dict[int, tuple[tuple[int, int], ...]]:
        by_allocation: dict[int, list[tuple[int, int]]] = {}
        for start, end in ranges:
            allocation = self.space.find(self.space.base + start)
            if allocation is None:
                continue  # the kernel has freed it
            offset = allocation.address - self.space.base - allocation.first
            by_allocation.setdefault(allocation.address, []).append((start - offset, end - offset))
        return {address: tuple(parts) for address, parts in by_allocation.items()}

    def forget(self, allocation: Allocation) -> None:
        """Drop an allocation that the kernel frees; its accesses are not reported."""
        self.reads.forget(allocation)
        self.writes.forget(allocation)


def merge(ranges: Array) -> list[tuple[int, int]]:
    """Sorted, disjoint ranges that cover the same bytes; ranges that touch become one."""
    if len(ranges) == 0:
        return []
    ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
    reach = np.maximum.accumulate(ranges[:, 1])
    first = np.ones(len(ranges), dtype=np.bool_)
    first[1:] = ranges[1:, 0] > reach[:-1]
    starts = ranges[first, 0]
    last = np.append(np.flatnonzero(first)[1:] - 1, len(ranges) - 1)
    return [(int(s), int(e)) for s, e in zip(starts, reach[last], strict=True)]
