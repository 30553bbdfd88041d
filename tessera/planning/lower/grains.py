"""The bytes of buffers in grains: bytes that all steps treat alike.

In: the programs and graphs of a replica's traces. Out: per step and buffer the grains that it
reads, writes and needs. Two bytes that the same steps read and write are in one grain: every move
or wait for one of them also applies to the other. So a view of thousands of rows costs lowering no
more than a whole buffer. States of the same name are one state in all traces, with the same grains.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tessera.ir.arrays import Flags, Ranges
from tessera.ir.graph.access import Access, AccessKind, Certainty
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.graph.region import Affine, Region
from tessera.ir.plan.launch_program import AreaKind, Bytes
from tessera.ir.program import program as ir
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import regions_bytes
from tessera.passes.dependences.pointer_words import moved_words

Grains = tuple[int, ...]
"""Grains of a buffer by number; numbers are in the order of the first bytes."""

Hull = tuple[int, int]
"""A range of bytes: its start and its end (exclusive)."""

_KINDS = {
    ir.Role.WEIGHT: AreaKind.WEIGHTS,
    ir.Role.STATE: AreaKind.LANE,
    ir.Role.VARIABLE: AreaKind.MODULE,
    ir.Role.INPUT: AreaKind.SLOT,
    ir.Role.OUTPUT: AreaKind.SLOT,
    ir.Role.TEMP: AreaKind.SLOT,
}
_ONCE = (ir.Role.WEIGHT, ir.Role.VARIABLE)
_LASTING = (AreaKind.WEIGHTS, AreaKind.LANE)
_FEW_PIECES = 8


class BufferGrains:
    """The grains of one buffer: bytes that belong to the same sets are one grain."""

    def __init__(self, size: int, sets: Iterable[Ranges]) -> None:
        self.bytes: list[Ranges] = []
        self._numbers: dict[bytes, Grains] = {b"": ()}
        self._pairs: dict[Grains, Bytes] = {(): ()}
        self._hulls: dict[Grains, Hull] = {}
        distinct = {ranges.tobytes(): ranges for ranges in sets if len(ranges)}
        whole = intervals.interval(0, size)
        if distinct.keys() <= {whole.tobytes()}:
            self.bytes = [whole] if distinct else []
            self._numbers |= dict.fromkeys(distinct, (0,))
        else:
            self._cut(distinct)

    def _cut(self, distinct: dict[bytes, Ranges]) -> None:
        edges = intervals.distinct(np.concatenate([r.ravel() for r in distinct.values()]))
        inside = np.stack([_inside(edges, ranges) for ranges in distinct.values()])
        # Each row holds, as bits, the sets that contain the bytes between two edges.
        columns = np.packbits(inside, axis=0).T
        _, kinds = np.unique(columns, axis=0, return_inverse=True)
        kinds = kinds.ravel()  # the least is that of bytes in no set: the last edge begins some
        by_first_byte = dict.fromkeys(kinds[kinds > 0].tolist())
        order = {kind: grain for grain, kind in enumerate(by_first_byte)}
        ends = np.append(edges[1:], edges[-1])
        for kind in order:
            here = kinds == kind
            self.bytes.append(intervals.union([np.stack([edges[here], ends[here]], axis=1)]))
        for key, own in zip(distinct, inside, strict=True):
            self._numbers[key] = tuple(sorted(order[kind] for kind in set(kinds[own].tolist())))

    def of(self, ranges: Ranges) -> Grains:
        """The grains of one of the sets."""
        return self._numbers[ranges.tobytes()]

    def pairs(self, grains: Grains) -> Bytes:
        """The bytes of grains."""
        if grains not in self._pairs:
            self._pairs[grains] = intervals.pairs(intervals.union([self.bytes[p] for p in grains]))
        return self._pairs[grains]

    def hull(self, grains: Grains) -> Hull:
        """The first byte of some grains and the end of their last; there is at least one grain."""
        if grains not in self._hulls:
            ends = [(int(self.bytes[p][0, 0]), int(self.bytes[p][-1, 1])) for p in grains]
            self._hulls[grains] = min(ends)[0], max(end for _, end in ends)
        return self._hulls[grains]


def _inside(edges: Ranges, ranges: Ranges) -> Flags:
    """Whether the bytes between each pair of edges are in a set."""
    first, last = np.searchsorted(edges, ranges).T
    change = np.bincount(first, minlength=len(edges)) - np.bincount(last, minlength=len(edges))
    return np.cumsum(change) > 0


@dataclass(frozen=True, slots=True)
class GrainUse:
    """The grains of one buffer that a step touches, only reads, may write, and depends on.

    A step does not depend on addresses: every device has its own.
    """

    touched: Grains
    only_read: Grains
    written: Grains
    needed: Grains


@dataclass(frozen=True, slots=True)
class BufferUse:
    """The bytes of one buffer that a step may read, may write, and writes in any case."""

    reads: Ranges
    writes: Ranges
    certain: Ranges

    @property
    def needed(self) -> Ranges:
        """The bytes on which the step depends, addresses included."""
        return intervals.union([self.reads, intervals.subtract(self.writes, self.certain)])


class TraceBytes:
    """The effects of each step of a trace and the kind of each buffer, for all placements.

    `tracked_steps` has the effects of steps on buffers whose bytes may change. `groups` has all
    steps in order, twins together. `partial` are weights and states of which some step touches only
    a part, so that a device may hold a part; `addressed` are buffers with words of a `pointers`
    record or the targets of such words, which a device always holds whole.
    """

    def __init__(self, program: ir.Program, graph: KernelGraph) -> None:
        self.program = program
        self.graph = graph
        self.groups = tuple(ir.grouped(len(graph.nodes), program.twins))
        self.grains: list[BufferGrains] = []
        self.steps: list[dict[int, GrainUse]] = []
        self.partial: set[int] = set()
        self.tracked_steps: list[list[tuple[int, GrainUse]]] = []
        self.words = {
            int(table.buffer): intervals.from_pairs(
                (word.offset, word.offset + ir.POINTER_BYTES) for word in table.words
            )
            for table in program.pointer_tables
            if table.words
        }
        self.addressed = {
            int(buffer)
            for table in program.pointer_tables
            for word in table.words
            for buffer in (table.buffer, word.target.buffer)
        }
        apart = {
            int(table.buffer)
            for table in program.pointer_tables
            if any(program.buffers[w.target.buffer].role not in _ONCE for w in table.words)
        }
        # A weight whose words point to buffers with several copies on a device has one copy per
        # slot.
        self.kinds = [
            AreaKind.SLOT
            if buffer.role is ir.Role.WEIGHT and int(buffer.id) in apart
            else _KINDS[buffer.role]
            for buffer in program.buffers
        ]
        self._uses = list(buffer_uses(graph))

    def sets(self) -> Iterator[tuple[int, Ranges]]:
        """All byte sets that the steps distinguish, with their buffers."""
        for uses in self._uses:
            for buffer, use in uses.items():
                yield from ((buffer, ranges) for ranges in (use.reads, use.writes, use.certain))
        yield from self.words.items()

    def cut(self, grains: list[BufferGrains]) -> None:
        """Express the effects of steps in grains."""
        self.grains = grains
        known: dict[tuple[int, int], GrainUse] = {}
        for uses in self._uses:
            step = {}
            for buffer, use in uses.items():
                key = buffer, id(use)
                if key not in known:
                    known[key] = self._grain_use(buffer, use)
                    if self._is_part(buffer, known[key].touched):
                        self.partial.add(buffer)
                step[buffer] = known[key]
            self.steps.append(step)
            self.tracked_steps.append([use for use in step.items() if self.is_tracked(use[0])])

    def _grain_use(self, buffer: int, use: BufferUse) -> GrainUse:
        grains = self.grains[buffer]
        reads, writes = set(grains.of(use.reads)), set(grains.of(use.writes))
        needed = (reads | writes - set(grains.of(use.certain))) - set(self.words_in(buffer))
        groups = (reads | writes, reads - writes, writes, needed)
        return GrainUse(*(tuple(sorted(group)) for group in groups))

    def _is_part(self, buffer: int, touched: Grains) -> bool:
        if self.kinds[buffer] not in _LASTING or buffer in self.addressed or not touched:
            return False
        return self.grains[buffer].hull(touched) != (0, self.program.buffers[buffer].bytes)

    def words_in(self, buffer: int) -> Grains:
        """The grains that contain addresses."""
        return self.grains[buffer].of(self.words.get(buffer, intervals.EMPTY))

    def is_tracked(self, buffer: int) -> bool:
        """Whether bytes of a buffer ever change; a weight is wherever it is used."""
        kept = self.program.buffers[buffer]
        return kept.role is not ir.Role.WEIGHT and kept.bytes > 0

    def runs_alone(self) -> bool:
        """Whether requests run one after the other: a launch may write bytes that exist once."""
        buffers = self.program.buffers
        return any(
            buffers[buffer].role is ir.Role.VARIABLE and use.written
            for step in self.steps
            for buffer, use in step.items()
        ) or any(moved_words(self.program, self.graph))


def trace_bytes(
    programs: Sequence[ir.Program], graphs: Sequence[KernelGraph]
) -> tuple[TraceBytes, ...]:
    """The traces of a replica; states of one name have the same grains in all of them."""
    traces = tuple(TraceBytes(*pair) for pair in zip(programs, graphs, strict=True))
    sets: dict[object, list[Ranges]] = {}
    sizes: dict[object, int] = {}
    for number, trace in enumerate(traces):
        for buffer in trace.program.buffers:
            key = _key(number, buffer)
            sizes[key] = max(sizes.get(key, 0), buffer.bytes)
        for index, ranges in trace.sets():
            sets.setdefault(_key(number, trace.program.buffers[index]), []).append(ranges)
    alike: dict[object, BufferGrains] = {}  # layers of a model have buffers with equal sets
    made = {}
    for key, size in sizes.items():
        distinct = {ranges.tobytes(): ranges for ranges in sets.get(key, ())}
        own = size, frozenset(distinct)
        if own not in alike:
            alike[own] = BufferGrains(size, distinct.values())
        made[key] = alike[own]
    for number, trace in enumerate(traces):
        trace.cut([made[_key(number, buffer)] for buffer in trace.program.buffers])
    return traces


def _key(trace: int, buffer: ir.Buffer) -> object:
    return buffer.name if buffer.role is ir.Role.STATE else (trace, int(buffer.id))


def buffer_uses(graph: KernelGraph) -> Iterator[dict[int, BufferUse]]:
    """The use of each buffer by each step; results for regions are cached."""
    known: dict[tuple[object, ...], BufferUse] = {}
    for node in graph.nodes:
        groups: dict[int, list[Access]] = {}
        for access in node.accesses:
            groups.setdefault(int(access.buffer), []).append(access)
        uses = {}
        for buffer, accesses in groups.items():
            size = graph.buffers[buffer].bytes
            key = (size, *((a.kind, a.certainty, _name(a.region)) for a in accesses))
            if key not in known:
                known[key] = _use(accesses, size)
            uses[buffer] = known[key]
        yield uses


def _name(region: Region) -> object:
    """A key for a region; the graph keeps the region alive, so its identity stays unique."""
    is_long = isinstance(region, Affine) and len(region.pieces) > _FEW_PIECES
    return id(region) if is_long else region


def _use(accesses: list[Access], size: int) -> BufferUse:
    reads = [a.region for a in accesses if a.kind.reads]
    writes = [a.region for a in accesses if a.kind.writes]
    certain = [
        a.region for a in accesses if a.kind is AccessKind.WRITE and a.certainty is Certainty.MUST
    ]
    return BufferUse(*(_bytes(some, size) for some in (reads, writes, certain)))


def _bytes(regions: list[Region], size: int) -> Ranges:
    return intervals.clip(regions_bytes(dict.fromkeys(regions), size), 0, size)
