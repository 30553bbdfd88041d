"""The versions of bytes that a single device would produce, and that each step needs.

In: a program, its graph and a `TraceShape`. Out: `Effects`, per step its effects on buffers and
the weights that it touches (from the analysis of the trace, never from the plan), and
`ExpectedVersions`: per step and buffer the bytes that must be current and their current version,
the bytes that the step may write, and the versions at the end.

The version of a byte is the number of the last step that may have written it, or FIRST for its
value when a request begins. A step needs the bytes that it may read, and those that it may write
but does not certainly write, because later steps see the bytes that it leaves alone. After the
step, all bytes that it may have written are at its own version. Twins are one step: all of them
need what was there before the first, and what they write has the number of the first.

Steps of a model repeat: the sums over regions are cached, and steps with equal regions get the
same arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tessera.ir.graph.access import Access, AccessKind, Certainty
from tessera.ir.graph.graph import KernelGraph, Node
from tessera.ir.graph.region import Affine, Region
from tessera.ir.plan.launch_program import Bytes, Fill, Home
from tessera.ir.program.program import POINTER_BYTES, Program, Role, grouped
from tessera.passes.checker.bytes import (
    Array,
    Index,
    boundaries,
    join,
    minus,
    places,
    ranges_of,
    region_hull,
    region_ranges,
)
from tessera.passes.checker.shape import TraceShape

Versions = npt.NDArray[np.int32]
FIRST = -1


@dataclass(frozen=True, slots=True)
class StepTouch:
    """The effect of a step on one buffer. `version` of the needed bytes: one, or one per atom."""

    buffer: int
    bytes: Bytes3
    version: int | Versions

    @property
    def needed(self) -> Array:
        """The bytes that must be current."""
        return self.bytes.needed

    @property
    def written(self) -> Array:
        """The bytes that the step may write."""
        return self.bytes.written

    @property
    def certain(self) -> Array:
        """The bytes that the step certainly writes."""
        return self.bytes.certain


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedVersions:
    """The versions on a single device. `bounds` cuts buffers into atoms; `words` are pointers.

    `versions` has, per step, the version that it writes.
    """

    versions: tuple[int, ...]
    touches: tuple[tuple[StepTouch, ...], ...]
    weights: tuple[tuple[WeightTouch, ...], ...]
    bounds: dict[int, Array]
    words: dict[int, Array]
    final: dict[int, Versions]


def find_expected(
    shape: TraceShape, effects: tuple[Effects, ...], homes: tuple[Home, ...]
) -> ExpectedVersions:
    """The expected versions, found by one walk over the steps in order."""
    words = pointer_words(shape.program)
    bounds = _bounds(shape, effects, homes, words)
    current = {b: np.full(len(cuts) - 1, FIRST, dtype=np.int32) for b, cuts in bounds.items()}
    known: dict[tuple[int, int], Index] = {}

    def index_of(buffer: int, ranges: Array) -> Index:
        key = buffer, id(ranges)
        index = known.get(key)
        if index is None:
            index = known[key] = places(bounds[buffer], ranges)
        return index

    touches: list[tuple[StepTouch, ...]] = []
    versions: list[int] = []
    for group in grouped(len(effects), shape.program.twins):
        done = [
            tuple(
                StepTouch(b, touched, _packed(current[b][index_of(b, touched.needed)]))
                for b, touched in effects[step].touched
            )
            for step in group
        ]
        for touch in (touch for member in done for touch in member):
            current[touch.buffer][index_of(touch.buffer, touch.written)] = group[0]
        touches += done
        versions += [int(group[0])] * len(group)
    return ExpectedVersions(
        versions=tuple(versions),
        touches=tuple(touches),
        weights=tuple(effect.weights for effect in effects),
        bounds=bounds,
        words=words,
        final=current,
    )


def _bounds(
    shape: TraceShape,
    effects: tuple[Effects, ...],
    homes: tuple[Home, ...],
    words: dict[int, Array],
) -> dict[int, Array]:
    """The offsets at which the walked buffers are cut."""
    parts: dict[int, dict[int, Array]] = {b: {id(where): where} for b, where in words.items()}
    for effect in effects:
        for buffer, touched in effect.touched:
            own = parts.setdefault(buffer, {})
            for where in (touched.needed, touched.written, touched.certain):
                own[id(where)] = where
    for number, ranges in _plan_ranges(shape, homes):
        where = ranges_of(ranges)
        parts.setdefault(number, {})[id(where)] = where
    return {
        int(held.id): boundaries(held.bytes, parts.get(int(held.id), {}).values())
        for held in shape.graph.buffers
        if held.bytes and (held.role is not Role.WEIGHT or int(held.id) in words)
    }


def _packed(versions: Versions) -> int | Versions:
    """A single number if all versions are equal: the common case, and much smaller."""
    if len(versions) == 0:
        return FIRST
    first = int(versions[0])
    return first if (versions == first).all() else versions.copy()


def _plan_ranges(shape: TraceShape, homes: tuple[Home, ...]) -> Iterator[tuple[int, Bytes]]:
    """The ranges that the plan names; they also cut buffers."""
    for transfer in shape.transfers.values():
        yield from ((portion.buffer, portion.bytes) for portion in transfer.portions)
    for home in homes:
        yield home.buffer, home.bytes
    for ops in shape.queues.values():
        for op in ops:
            if isinstance(op.operation, Fill):
                yield op.operation.buffer, op.operation.bytes


_FEW_PIECES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Bytes3:
    """Bytes of one buffer that must be current, may be written, and are certainly written."""

    needed: Array
    written: Array
    certain: Array


@dataclass(frozen=True, slots=True)
class WeightTouch:
    """A weight that a step touches, from its first byte to the end of its last; is it written?"""

    buffer: int
    hull: tuple[int, int]
    written: bool


@dataclass(frozen=True, slots=True)
class Effects:
    """One step: its effects on the walked buffers, and its weights.

    Weights never change and are not walked, except those with words of a `pointers` record, which
    may be in a slot.
    """

    touched: tuple[tuple[int, Bytes3], ...]
    weights: tuple[WeightTouch, ...]


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
            written = any(access.kind.writes for access in those)
            weights.append(WeightTouch(buffer, _hull(those, held.bytes), written))
            if buffer not in tables:
                continue
        touched_bytes = memo.bytes_of(those, held.bytes)
        if len(touched_bytes.needed) or len(touched_bytes.written):
            touched.append((buffer, touched_bytes))
    return Effects(tuple(touched), tuple(weights))


def _hull(accesses: list[Access], length: int) -> tuple[int, int]:
    """All accesses of a step to one buffer: the first byte, and the end of the last."""
    hulls = [region_hull(access.region, length) for access in accesses]
    real = [hull for hull in hulls if hull[0] < hull[1]]
    return min((h[0] for h in real), default=0), max((h[1] for h in real), default=0)


class _EffectMemo:
    """A cache of results, keyed by the value of a region, or by its identity if the region is long;
    the graph keeps regions alive."""

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
    """The cache key of a region."""
    is_long = isinstance(region, Affine) and len(region.pieces) > _FEW_PIECES
    return id(region) if is_long else region


def pointer_words(program: Program) -> dict[int, Array]:
    """The bytes of each buffer that hold addresses when a request begins."""
    spans_of: dict[int, list[tuple[int, int]]] = {}
    for table in program.pointer_tables:
        spans = [(word.offset, word.offset + POINTER_BYTES) for word in table.words]
        spans_of.setdefault(int(table.buffer), []).extend(spans)
    return {buffer: ranges_of(spans) for buffer, spans in spans_of.items() if spans}
