"""Dependences between steps, and the bytes that they go through.

In: the accesses of every step. Out: the `KernelGraph` and findings: reads of temporary bytes that
nothing wrote, and conflicts that the streams leave unordered (a race; file order is used).

Steps are walked in file order. `last_touch` has, for every byte, the steps that may have written it
since the last certain write, and the steps that have read it since. Twins find what was there
before the first of them: their edges are found first, then what they touch is recorded. Buffers
that persist between requests are walked a second time, as by the next request: a dependence of the
second walk on the first is loop-carried.

`find_order` finds the order that streams and events give to steps. Each step has a clock: per
stream, the last step that is over before it starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import ClassVar, Self

from tessera.diagnostics import Diagnostic
from tessera.ir.arrays import Ranges
from tessera.ir.gather_findings import Finding, gather_findings
from tessera.ir.graph.graph import Edge, EdgeKind, GraphBuffer, KernelGraph, Node
from tessera.ir.program import program as ir
from tessera.passes import findings
from tessera.passes.base import Analysis, Facts
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import may_region, region_bytes
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.last_touch import MOST_KEPT, LastTouch, Touch
from tessera.passes.dependences.launch_report import StepAccesses
from tessera.passes.dependences.read_back import without_read_back
from tessera.passes.dependences.step_totals import BufferTotal, StepTotals

_PERSISTENT = frozenset({ir.Role.STATE, ir.Role.VARIABLE})


@dataclass(frozen=True, slots=True)
class Dependences:
    """The kernel graph of a program.

    Example: `AnalysisManager(program).get(Dependences).graph.edges`.
    """

    name: ClassVar[str] = "dependences"
    needs: ClassVar[tuple[type[Analysis], ...]] = (AccessRegions,)

    graph: KernelGraph
    diagnostics: tuple[Diagnostic, ...]

    @classmethod
    def compute(cls, program: ir.Program, facts: Facts) -> Self:
        """Walk the steps once, and persistent buffers twice."""
        regions = facts.get(AccessRegions)
        steps = without_read_back(program, regions.steps)
        tracker = _Tracker(program, steps)
        numbers = ir.grouped(len(steps), program.twins)
        groups = [tuple(steps[member] for member in group) for group in numbers]
        for group in groups:
            tracker.visit(group)
        for group in groups:
            tracker.visit_again(group)
        graph = KernelGraph(
            buffers=tuple(
                GraphBuffer(id=b.id, name=b.name, bytes=b.bytes, role=b.role)
                for b in program.buffers
            ),
            nodes=tuple(_nodes(program, steps)),
            edges=tuple(sorted(tracker.edges, key=_edge_order)),
            contents=regions.contents,
            twins=program.twins,
        )
        told = gather_findings(
            chain(_own_findings(program, steps), tracker.findings, _races(program, graph))
        )
        return cls(graph, (*told, *findings.looked_up(program, regions.contents)))


def _own_findings(program: ir.Program, steps: tuple[StepAccesses, ...]) -> Iterator[Finding]:
    """The findings of each step by itself; pins with different reasons are different findings."""
    for work, step in zip(program.work(), steps, strict=True):
        for diagnostic in step.diagnostics:
            reason = (str(diagnostic.headline),) if diagnostic.code == findings.PINNED else ()
            yield Finding(diagnostic, (step.name, *reason), work.span)


def _nodes(program: ir.Program, steps: tuple[StepAccesses, ...]) -> Iterator[Node]:
    for work, step in zip(program.work(), steps, strict=True):
        yield Node(
            id=step.id,
            name=step.name,
            accesses=step.accesses,
            pins=step.pins,
            needs=step.needs,
            span=work.span,
        )


def _edge_order(edge: Edge) -> tuple[bool, int, int, str, int]:
    return edge.carried, edge.target, edge.source, edge.kind.value, edge.buffer


class _Tracker:
    """The maps of all buffers, and the edges found so far."""

    def __init__(self, program: ir.Program, steps: tuple[StepAccesses, ...]) -> None:
        self.program = program
        self.steps = steps
        self.count = len(steps)
        self.maps: dict[int, LastTouch] = {}
        self.totals = StepTotals(program)
        self.of_step: list[tuple[BufferTotal, ...]] = []
        self.edges: list[Edge] = []
        self.findings: list[Finding] = []
        self.spans = [work.span for work in program.work()]

    def visit(self, group: Sequence[StepAccesses]) -> None:
        """Find the edges into a step, or into twins, then record the bytes that they touch."""
        for step in group:
            self.of_step.append(self.totals.of(step))
        self._visit([_StepVisit(s, int(s.id), list(enumerate(self.of_step[s.id]))) for s in group])

    def visit_again(self, group: Sequence[StepAccesses]) -> None:
        """Visit steps of the next request; only persistent buffers count."""
        visits = []
        for step in group:
            touched = [
                (place, total)
                for place, total in enumerate(self.of_step[step.id])
                if self.program.buffers[total.buffer].role in _PERSISTENT
            ]
            if touched:
                visits.append(_StepVisit(step, int(step.id) + self.count, touched))
        self._visit(visits)

    def _visit(self, visits: Sequence[_StepVisit]) -> None:
        for visit in visits:
            pending: dict[tuple[EdgeKind, int, int], _Pending] = {}
            for place, total in visit.touched:
                self._edges_into(visit.step, visit.number, place, total, pending)
            self.edges.extend(self._finish(*entry, visit.number) for entry in pending.items())
        for visit in visits:
            for place, total in visit.touched:
                if total.kind.reads:
                    self._map(total).add_read(total.ranges, (visit.number, place))
        # Certain writes come last: they end the histories that the steps' other accesses recorded.
        for certain in (False, True):
            for twin, visit in enumerate(visits):
                # All later steps depend on a step that may touch anything: no earlier writer stays.
                kept = 0 if visit.step.pins else MOST_KEPT
                for place, total in visit.touched:
                    if total.kind.writes and total.ends is certain:
                        known, touch = self._map(total), (visit.number, place)
                        # What the first of twins has ended, the others write beside it.
                        ends = certain and not twin
                        known.add_write(total.ranges, touch, certain=ends, kept=kept)

    def _map(self, total: BufferTotal) -> LastTouch:
        known = self.maps.get(total.buffer)
        if known is None:
            size = self.program.buffers[total.buffer].bytes
            known = self.maps[total.buffer] = LastTouch(size)
        return known

    def _edges_into(
        self,
        step: StepAccesses,
        number: int,
        place: int,
        total: BufferTotal,
        pending: dict[tuple[EdgeKind, int, int], _Pending],
    ) -> None:
        def note(kind: EdgeKind, source: Touch, ranges: Ranges, moves: bool) -> None:
            # In the second walk only edges from the first walk are new.
            if (number >= self.count) != (source[0] < self.count <= number):
                return
            key = (kind, source[0], int(total.buffer))
            known = pending.setdefault(key, _Pending(source, place))
            known.parts.append(ranges)
            known.moves = known.moves or moves

        unwritten = False
        for history, ranges in self._map(total).look_up(total.ranges):
            unwritten = unwritten or not history.writers
            for writer in history.writers:
                if total.kind.reads:
                    note(EdgeKind.RAW, writer, ranges, True)
                if total.kind.writes:
                    note(EdgeKind.WAW, writer, ranges, not total.ends)
            if total.kind.writes:
                for reader in history.all_readers():
                    note(EdgeKind.WAR, reader, ranges, False)
        if unwritten and total.kind.reads and number < self.count:
            self._never_written(step, total)

    def _never_written(self, step: StepAccesses, total: BufferTotal) -> None:
        """Report the reads of a temporary's bytes that nothing may have written."""
        buffer = self.program.buffers[total.buffer]
        if buffer.role is not ir.Role.TEMP or step.pins:
            return
        known = self._map(total)
        own = intervals.union(
            [
                region_bytes(access.region, buffer.bytes)
                for access in step.accesses
                if access.buffer == total.buffer and access.kind.writes
            ]
        )
        seen: set[object] = set()
        for place in total.places:
            access = step.accesses[place]
            if (access.region, access.span) in seen:
                continue
            seen.add((access.region, access.span))
            ranges = intervals.clip(region_bytes(access.region, buffer.bytes), 0, buffer.bytes)
            if len(ranges) and any(not history.writers for history, _ in known.look_up(ranges)):
                span = self.spans[step.id]
                is_own = intervals.covers(own, ranges)
                told = findings.never_written(step.name, buffer, access, span, is_own=is_own)
                self.findings.append(Finding(told, (step.name,), span))

    def _finish(self, key: tuple[EdgeKind, int, int], pending: _Pending, number: int) -> Edge:
        kind, source, buffer = key
        carried = number >= self.count
        target = number - self.count if carried else number
        size = self.program.buffers[buffer].bytes
        ranges = intervals.union(pending.parts)
        region = may_region(ranges)
        source_total = self.of_step[source][pending.source[1]]
        target_total = self.of_step[target][pending.place]
        return Edge(
            kind=kind,
            source=ir.LaunchId(source),
            target=ir.LaunchId(target),
            buffer=ir.BufferId(buffer),
            region=region,
            bytes=intervals.size(region_bytes(region, size)),
            source_access=source_total.behind(self.steps[source], pending.parts[0]),
            target_access=target_total.behind(self.steps[target], pending.parts[0]),
            moves_bytes=pending.moves,
            carried=carried,
        )


@dataclass(frozen=True, slots=True)
class _StepVisit:
    """A step, its number in the walk, and what it touches."""

    step: StepAccesses
    number: int
    touched: list[tuple[int, BufferTotal]]


@dataclass(slots=True)
class _Pending:
    """An edge while its bytes are collected: the totals that its first bytes come from, and the
    bytes."""

    source: Touch
    place: int
    parts: list[Ranges] = field(default_factory=list)
    moves: bool = False


def _races(program: ir.Program, graph: KernelGraph) -> Iterator[Finding]:
    order = find_order(program)
    if len(set(order.streams)) < 2:
        return
    for edge in graph.edges:
        if edge.carried or order.ordered(edge.source, edge.target):
            continue
        first, second = graph.nodes[edge.source], graph.nodes[edge.target]
        yield Finding(findings.race(graph, edge), (first.name, second.name), second.span)


Clock = dict[str, int]


@dataclass(frozen=True, slots=True)
class HappensBefore:
    """Clocks and streams by step."""

    clocks: tuple[Clock, ...]
    streams: tuple[str, ...]

    def ordered(self, first: int, second: int) -> bool:
        """Whether `first` is over before `second` starts."""
        return self.clocks[second].get(self.streams[first], -1) >= first


def find_order(program: ir.Program) -> HappensBefore:
    """The order that streams and events give, found in one walk over the records."""
    current: dict[str, Clock] = {}
    events: dict[int, Clock] = {}
    clocks: list[Clock] = []
    streams: list[str] = []
    for step in program.steps:
        clock = current.setdefault(step.stream, {})
        if isinstance(step, ir.Event):
            events[step.id] = dict(clock)
        elif isinstance(step, ir.Wait):
            for stream, last in events.get(step.event, {}).items():
                clock[stream] = max(clock.get(stream, -1), last)
        else:
            clocks.append(dict(clock))
            streams.append(step.stream)
            clock[step.stream] = int(step.id)
    return HappensBefore(tuple(clocks), tuple(streams))
