"""Which steps depend on which, through which bytes.

In: the accesses of every step. Out: the `KernelGraph` and findings: reads of temporary bytes that
nothing wrote, and conflicts that the streams leave unordered (a race; file order is used).

Steps are taken in file order. `last_touch` knows for every byte who may have written it since the
last certain write and who read it since. A buffer that persists from request to request is then
walked once more, as the next request would: what that finds between the two is loop-carried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from tessera.diagnostics import Diagnostic
from tessera.ir import program as ir
from tessera.ir.access import Access, AccessKind, Certainty
from tessera.ir.graph import Edge, EdgeKind, GraphBuffer, KernelGraph, Node
from tessera.passes import findings, intervals
from tessera.passes.access_regions import AccessRegions
from tessera.passes.base import Facts
from tessera.passes.happens_before import find_order
from tessera.passes.lanes import Array
from tessera.passes.last_touch import LastTouch, Touch
from tessera.passes.launch_report import StepAccesses
from tessera.passes.regions import may_region, region_bytes

_PERSISTENT = frozenset({ir.Role.STATE, ir.Role.VARIABLE})


@dataclass(frozen=True, slots=True)
class Dependences:
    """The kernel graph of a program.

    Example: `AnalysisManager(program).get(Dependences).graph.edges`.
    """

    name: ClassVar[str] = "dependences"
    needs: ClassVar[tuple[type[Any], ...]] = (AccessRegions,)

    graph: KernelGraph
    diagnostics: tuple[Diagnostic, ...]

    @classmethod
    def compute(cls, program: ir.Program, facts: Facts) -> Self:
        """Walk the steps once, and persistent buffers twice."""
        steps = facts.get(AccessRegions).steps
        tracker = _Tracker(program, steps)
        for step in steps:
            tracker.visit(step, 0)
        for step in steps:
            tracker.visit(step, len(steps))
        graph = KernelGraph(
            buffers=tuple(
                GraphBuffer(id=b.id, name=b.name, bytes=b.bytes, role=b.role)
                for b in program.buffers
            ),
            nodes=tuple(_nodes(program, steps)),
            edges=tuple(sorted(tracker.edges.values(), key=_edge_order)),
        )
        own = [d for step in steps for d in step.diagnostics]
        races = _races(program, graph)
        found = dict.fromkeys((*own, *tracker.diagnostics, *races))
        return cls(graph, tuple(found))


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


_EdgeKey = tuple[bool, int, int, EdgeKind, int]


class _Tracker:
    """The maps of all buffers, and the edges found so far."""

    def __init__(self, program: ir.Program, steps: tuple[StepAccesses, ...]) -> None:
        self.program = program
        self.count = len(steps)
        self.maps: dict[int, LastTouch] = {}
        self.edges: dict[_EdgeKey, Edge] = {}
        self.diagnostics: list[Diagnostic] = []
        self.spans = [work.span for work in program.work()]

    def visit(self, step: StepAccesses, offset: int) -> None:
        """Find the edges into a step, then note what it touches."""
        touched = list(self._distinct(step, carried=offset > 0))
        number = int(step.id) + offset
        for index, access, found in touched:
            self._edges_into(step, number, index, access, found)
        for index, access, found in touched:
            if access.kind.reads:
                self._map(access).add_read(found, (number, index))
        for certainty in (Certainty.MAY, Certainty.MUST):
            for index, access, found in touched:
                if access.kind.writes and access.certainty is certainty:
                    self._map(access).add_write(found, (number, index), certain=_ends(access))

    def _distinct(
        self, step: StepAccesses, *, carried: bool
    ) -> Iterator[tuple[int, Access, Array]]:
        """Accesses of buffers of some size, those that say the same once."""
        seen: set[object] = set()
        for index, access in enumerate(step.accesses):
            buffer = self.program.buffers[access.buffer]
            if carried and buffer.role not in _PERSISTENT:
                continue
            key = (access.buffer, access.kind, access.certainty, access.region)
            if key in seen or buffer.bytes == 0:
                continue
            seen.add(key)
            found = intervals.clip(region_bytes(access.region, buffer.bytes), 0, buffer.bytes)
            if len(found):
                yield index, access, found

    def _map(self, access: Access) -> LastTouch:
        known = self.maps.get(access.buffer)
        if known is None:
            size = self.program.buffers[access.buffer].bytes
            known = self.maps[access.buffer] = LastTouch(size)
        return known

    def _edges_into(
        self, step: StepAccesses, number: int, index: int, access: Access, found: Array
    ) -> None:
        known = self._map(access)
        if access.kind.reads:
            self._add(EdgeKind.RAW, known.writers(found), number, index, access, moves=True)
            self._check_written(step, number, access, known, found)
        if access.kind.writes:
            moves = not _ends(access)
            self._add(EdgeKind.WAW, known.writers(found), number, index, access, moves=moves)
            self._add(EdgeKind.WAR, known.readers(found), number, index, access, moves=False)

    def _check_written(
        self, step: StepAccesses, number: int, access: Access, known: LastTouch, found: Array
    ) -> None:
        buffer = self.program.buffers[access.buffer]
        if buffer.role is not ir.Role.TEMP or number >= self.count or step.pins:
            return
        if known.unwritten(found):
            span = self.spans[step.id]
            self.diagnostics.append(findings.never_written(step.name, buffer, access, span))

    def _add(
        self,
        kind: EdgeKind,
        sources: dict[Touch, list[tuple[int, int]]],
        number: int,
        index: int,
        access: Access,
        *,
        moves: bool,
    ) -> None:
        for (source, source_access), where in sources.items():
            carried = number >= self.count and source < self.count
            if source == number or (number >= self.count) != carried:
                continue
            found = intervals.from_pairs(where)
            target = number - self.count if carried else number
            key = (carried, source, target, kind, int(access.buffer))
            old = self.edges.get(key)
            size = self.program.buffers[access.buffer].bytes
            if old is not None:
                found = intervals.union([found, region_bytes(old.region, size)])
                if intervals.size(found) == old.bytes and (old.moves_bytes or not moves):
                    continue
            region = may_region(found, size)
            self.edges[key] = Edge(
                kind=kind,
                source=ir.LaunchId(source),
                target=ir.LaunchId(target),
                buffer=access.buffer,
                region=region,
                bytes=intervals.size(region_bytes(region, size)),
                source_access=source_access if old is None else old.source_access,
                target_access=index if old is None else old.target_access,
                moves_bytes=moves or (old is not None and old.moves_bytes),
                carried=carried,
            )


def _ends(access: Access) -> bool:
    """Whether a write leaves nothing of what was there."""
    return access.kind is AccessKind.WRITE and access.certainty is Certainty.MUST


def _races(program: ir.Program, graph: KernelGraph) -> Iterator[Diagnostic]:
    order = find_order(program)
    if len(set(order.streams)) < 2:
        return
    for edge in graph.edges:
        if edge.carried or order.ordered(edge.source, edge.target):
            continue
        yield findings.race(graph, edge)
