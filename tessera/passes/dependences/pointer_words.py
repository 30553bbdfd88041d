"""The words of memory that are known to be pointers, at each point of a walk over the steps.

In: the `pointers` records of a program, the pointers in initialisers of module variables, and the
bytes that each step may write. Out: per buffer the words that still hold their initial pointers,
and the bytes that may have been overwritten.

A word is trusted only if nothing may have overwritten it: no earlier step of the request, not the
current step (its threads run in any order, and a table may be an output as well), and, in buffers
that outlive requests (states, module variables), no step at all, because the next request finds the
bytes that this one leaves. Bytes of a table that nothing writes and that are not words hold no
address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from tessera.ir.arrays import Ranges
from tessera.ir.graph.access import Access
from tessera.ir.graph.graph import KernelGraph, Node
from tessera.ir.program import program as ir
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import region_bytes

Words = dict[int, ir.Pointer]
Written = dict[ir.BufferId, Ranges]

_LASTING = (ir.Role.STATE, ir.Role.VARIABLE)
# A walk that finds more writes makes more words unknown, which may lead to more writes. After this
# many walks every persistent buffer counts as written, so that the walks end.
_MOST_WALKS = 8


class PointerWords:
    """The words that are pointers, at the current step of a walk."""

    def __init__(self, program: ir.Program, initial: Mapping[ir.BufferId, Words]) -> None:
        self.program = program
        self._first = {buffer: dict(words) for buffer, words in initial.items() if words}
        self._recorded: dict[ir.BufferId, set[int]] = {}
        for table in program.pointer_tables:
            words = {word.offset: word.target for word in table.words}
            if words:
                self._first.setdefault(table.buffer, {}).update(words)
                self._recorded.setdefault(table.buffer, set()).update(words)
        self._left: Written = {}
        self._walks = 0
        self._begin()

    def _begin(self) -> None:
        self._written: Written = dict(self._left)
        self._intact = {b: self._without(words, b, {}) for b, words in self._first.items()}
        self._untold = {buffer: set(words) for buffer, words in self._recorded.items()}

    def intact(self, also: Written) -> dict[ir.BufferId, Words]:
        """The words of each buffer that hold their pointers, even if `also` is written."""
        if not also:
            return self._intact
        changed = {b: self._without(self._intact[b], b, also) for b in also if b in self._intact}
        return self._intact | changed

    def spoiled(self, also: Written) -> Written:
        """The bytes of buffers with pointers that may have been written, or are in `also`."""
        return merged(self._written, also)

    def _spoiled(self, buffer: ir.BufferId, also: Written) -> Ranges:
        known = [written[buffer] for written in (self._written, also) if buffer in written]
        return intervals.union(known)

    def _without(self, words: Words, buffer: ir.BufferId, also: Written) -> Words:
        hit = _hits(self._spoiled(buffer, also), words)
        return {o: pointer for o, pointer in words.items() if o not in hit} if hit else words

    def written_by(self, accesses: Iterable[Access]) -> Written:
        """The bytes that accesses may write in buffers with pointers."""
        parts: dict[ir.BufferId, list[Ranges]] = {}
        for access in accesses:
            if access.kind.writes and access.buffer in self._first:
                size = self.program.buffers[access.buffer].bytes
                parts.setdefault(access.buffer, []).append(region_bytes(access.region, size))
        return {buffer: intervals.union(ranges) for buffer, ranges in parts.items()}

    def overwrite(self, accesses: Iterable[Access]) -> list[Access]:
        """Record the bytes that a step may write; return the accesses that are the first to touch
        words of records."""
        lost: list[Access] = []
        for access in accesses:
            if not access.kind.writes or access.buffer not in self._first:
                continue
            new = self.written_by([access])
            self._intact = self.intact(new)
            self._written = self._written | {access.buffer: self._spoiled(access.buffer, new)}
            untold = self._untold.get(access.buffer, set())
            hit = _hits(new[access.buffer], untold)
            if hit:
                self._untold[access.buffer] = untold - hit
                lost.append(access)
        return lost

    def restart(self) -> bool:
        """Whether the next request finds overwritten bytes that this walk took for intact.

        Another walk then begins, in which these bytes are unknown.
        """
        left = {
            buffer: ranges
            for buffer, ranges in self._written.items()
            if self.program.buffers[buffer].role in _LASTING and len(ranges)
        }
        grown = grows(self._left, left)
        self._walks += 1
        if self._walks >= _MOST_WALKS:
            for buffer in left:
                left[buffer] = intervals.interval(0, self.program.buffers[buffer].bytes)
        self._left = left
        self._begin()
        return grown


def moved_words(program: ir.Program, graph: KernelGraph) -> Iterator[tuple[Node, ir.Buffer]]:
    """The steps that may overwrite addresses which a `pointers` record puts into a state.

    The bytes that they leave there are carried to the next request.
    """
    states = {
        table.buffer: [word.offset for word in table.words]
        for table in program.pointer_tables
        if program.buffers[table.buffer].role is ir.Role.STATE
    }
    for node in graph.nodes if states else ():
        for access in node.accesses:
            if access.kind.writes and access.buffer in states:
                buffer = program.buffers[access.buffer]
                if _hits(region_bytes(access.region, buffer.bytes), states[access.buffer]):
                    yield node, buffer


def merged(first: Written, second: Written) -> Written:
    """The bytes of both."""
    both = first.keys() | second.keys()
    return {
        buffer: intervals.union(
            [written[buffer] for written in (first, second) if buffer in written]
        )
        for buffer in sorted(both)
    }


def grows(old: Written, new: Written) -> bool:
    """Whether some of the new bytes are not among the old."""
    return any(
        not intervals.covers(old.get(buffer, intervals.EMPTY), ranges)
        for buffer, ranges in new.items()
    )


def _hits(ranges: Ranges, offsets: Iterable[int]) -> set[int]:
    """The offsets of words that some of the bytes lie in."""
    starts = np.array(sorted(offsets), dtype=np.int64)
    if len(ranges) == 0 or len(starts) == 0:
        return set()
    place = np.searchsorted(ranges[:, 1], starts, side="right")
    near = np.minimum(place, len(ranges) - 1)
    hit = (place < len(ranges)) & (ranges[near, 0] < starts + ir.POINTER_BYTES)
    return set(starts[hit].tolist())
