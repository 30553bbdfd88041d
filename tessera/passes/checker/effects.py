"""What each step of a trace depends on and changes, as bytes.

In: a program and its graph. Out: per step its effects on buffers, and the weights that it touches.

Steps of a model repeat: what was added up once for some regions is kept, and steps with equal
regions get the same arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

from tessera.ir.graph.access import Access, AccessKind, Certainty
from tessera.ir.graph.graph import KernelGraph, Node
from tessera.ir.graph.region import Affine, Region
from tessera.ir.program.program import POINTER_BYTES, Program, Role
from tessera.passes.checker.bytes import Array, join, minus, ranges_of, region_ranges

_FEW_PIECES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Bytes3:
    """Bytes of one buffer that must be current, that may be and that certainly are written."""

    needed: Array
    written: Array
    certain: Array


@dataclass(frozen=True, slots=True)
class Effects:
    """One step: what it does to the buffers that are walked; weights, and whether it writes them.

    Weights never change and are not walked, but for those with words of a `pointers` record, which
    may be in a slot.
    """

    touched: tuple[tuple[int, Bytes3], ...]
    weights: tuple[tuple[int, bool], ...]


def find_effects(program: Program, graph: KernelGraph) -> tuple[Effects, ...]:
    """The effects of all steps."""
    tables = pointer_words(program)
    memo = _EffectMemo()
    return tuple(_effects(node, graph, tables, memo) for node in graph.nodes)


def _effects(
    node: Node, graph: KernelGraph, tables: dict[int, Array], memo: _EffectMemo
) -> Effects:
    accesses: dict[int, list[Access]] = {}
    for access in node.accesses:
        accesses.setdefault(int(access.buffer), []).append(access)
    touched, weights = [], []
    for buffer, those in accesses.items():
        held = graph.buffers[buffer]
        if held.bytes == 0:
            continue
        if held.role is Role.WEIGHT:
            weights.append((buffer, any(access.kind.writes for access in those)))
            if buffer not in tables:
                continue
        touched_bytes = memo.bytes_of(those, held.bytes)
        if len(touched_bytes.needed) or len(touched_bytes.written):
            touched.append((buffer, touched_bytes))
    return Effects(tuple(touched), tuple(weights))


class _EffectMemo:
    """What was found for regions, by what they are, or by their identity where they are long; the
    graph keeps them alive."""

    def __init__(self) -> None:
        self.ranges: dict[tuple[object, int], Array] = {}
        self.sums: dict[tuple[object, ...], Bytes3] = {}

    def bytes_of(self, accesses: list[Access], length: int) -> Bytes3:
        """All accesses of a step to one buffer, added up."""
        key = (length, *((id(a.kind), id(a.certainty), _name(a.region)) for a in accesses))
        total = self.sums.get(key)
        if total is None:
            total = self.sums[key] = self._add_up(accesses, length)
        return total

    def _add_up(self, accesses: list[Access], length: int) -> Bytes3:
        reads = [a.region for a in accesses if a.kind.reads]
        writes = [a.region for a in accesses if a.kind.writes]
        sure = [
            a.region
            for a in accesses
            if a.kind is AccessKind.WRITE and a.certainty is Certainty.MUST
        ]
        written, certain = self._join(writes, length), self._join(sure, length)
        needed = join([self._join(reads, length), minus(written, certain)])
        return Bytes3(needed=needed, written=written, certain=certain)

    def _join(self, regions: list[Region], length: int) -> Array:
        return join(
            [self._region(region, length) for region in {id(r): r for r in regions}.values()]
        )

    def _region(self, region: Region, length: int) -> Array:
        key = (_name(region), length)
        if key not in self.ranges:
            self.ranges[key] = region_ranges(region, length)
        return self.ranges[key]


def _name(region: Region) -> object:
    """What tells a region from others."""
    is_long = isinstance(region, Affine) and len(region.pieces) > _FEW_PIECES
    return id(region) if is_long else region


def pointer_words(program: Program) -> dict[int, Array]:
    """The bytes of each buffer that hold addresses when a request begins."""
    spans_of: dict[int, list[tuple[int, int]]] = {}
    for table in program.pointer_tables:
        spans = [(word.offset, word.offset + POINTER_BYTES) for word in table.words]
        spans_of.setdefault(int(table.buffer), []).extend(spans)
    return {buffer: ranges_of(spans) for buffer, spans in spans_of.items() if spans}
