"""What one device would have produced: which version of its bytes each step needs.

In: a `Shape` (the accesses of every step come from the analysis of the trace, never from the plan).
Out: a `Sequence`: per step and buffer the bytes that must be current and the version that is, the
bytes that it may write, and the versions at the end.

The version of a byte is the number of the last step that may have written it, or FIRST for what it
holds when a request begins. A step needs what it may read, and what it may write but does not
certainly write: whatever it leaves alone is seen by later steps. After it, all that it may have
written is at its own version. Weights never change and are left out, but for those with words of a
`pointers` record, which may be in a slot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tessera.ir.access import AccessKind, Certainty
from tessera.ir.graph import Node
from tessera.ir.launch_program import Bytes, Fill, Home
from tessera.ir.program import POINTER_BYTES, Program, Role
from tessera.ir.region import Region
from tessera.passes.check_plan_bytes import (
    Array,
    boundaries,
    join,
    minus,
    places,
    ranges_of,
    region_ranges,
)
from tessera.passes.check_plan_shape import Shape

Versions = npt.NDArray[np.int32]
FIRST = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Touch:
    """What a step does to one buffer: bytes that must be current, that it may write, that it
    certainly writes. `version`: of the needed bytes, one for all or per atom."""

    buffer: int
    needed: Array
    written: Array
    certain: Array
    version: int | Versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """The run on one device. `bounds` cuts each buffer into atoms; `words` are its pointers.

    `weights` are those that each step touches, and whether it may write them.
    """

    touches: tuple[tuple[Touch, ...], ...]
    weights: tuple[tuple[tuple[int, bool], ...], ...]
    bounds: dict[int, Array]
    words: dict[int, Array]
    final: dict[int, Versions]


def find_sequence(shape: Shape, homes: tuple[Home, ...]) -> Sequence:
    """Walk the steps in their order."""
    words = pointer_words(shape.program)
    walked = {
        int(one.id)
        for one in shape.graph.buffers
        if one.bytes and (one.role is not Role.WEIGHT or int(one.id) in words)
    }
    effects = [tuple(_effects(shape, node, walked)) for node in shape.graph.nodes]
    parts: dict[int, list[Array]] = {buffer: [where] for buffer, where in words.items()}
    for effect in effects:
        for buffer, needed, written, certain in effect:
            parts.setdefault(buffer, []).extend((needed, written, certain))
    for number, ranges in _plan_ranges(shape, homes):
        parts.setdefault(number, []).append(ranges_of(ranges))
    bounds = {
        int(one.id): boundaries(one.bytes, parts.get(int(one.id), ()))
        for one in shape.graph.buffers
        if int(one.id) in walked
    }
    current = {b: np.full(len(cuts) - 1, FIRST, dtype=np.int32) for b, cuts in bounds.items()}
    touches = []
    for step, effect in enumerate(effects):
        done = tuple(
            Touch(
                buffer=buffer, needed=needed, written=written, certain=certain,
                version=_packed(current[buffer][places(bounds[buffer], needed)]),
            )
            for buffer, needed, written, certain in effect
        )  # fmt: skip
        for touch in done:
            current[touch.buffer][places(bounds[touch.buffer], touch.written)] = step
        touches.append(done)
    weights = tuple(tuple(_weights(shape, node)) for node in shape.graph.nodes)
    return Sequence(
        touches=tuple(touches), weights=weights, bounds=bounds, words=words, final=current
    )


def _weights(shape: Shape, node: Node) -> Iterator[tuple[int, bool]]:
    for buffer, accesses in accesses_by_buffer(node).items():
        one = shape.graph.buffers[buffer]
        if one.role is Role.WEIGHT and one.bytes:
            yield buffer, any(kind.writes for kind, _, _ in accesses)


def _packed(versions: Versions) -> int | Versions:
    """One number where all are equal: the common case, and much smaller."""
    if len(versions) == 0:
        return FIRST
    first = int(versions[0])
    return first if (versions == first).all() else versions.copy()


def _plan_ranges(shape: Shape, homes: tuple[Home, ...]) -> Iterator[tuple[int, Bytes]]:
    """The ranges that the plan names, which cut buffers too."""
    for transfer in shape.transfers.values():
        yield transfer.buffer, transfer.bytes
    for home in homes:
        yield home.buffer, home.bytes
    for ops in shape.queues.values():
        for op in ops:
            if isinstance(op.operation, Fill):
                yield op.operation.buffer, op.operation.bytes


def _effects(
    shape: Shape, node: Node, walked: set[int]
) -> Iterator[tuple[int, Array, Array, Array]]:
    """Per buffer that is walked: the bytes that must be current, may be and are written."""
    for buffer, accesses in accesses_by_buffer(node).items():
        one = shape.graph.buffers[buffer]
        if buffer not in walked:
            continue
        reads: list[Array] = []
        writes: list[Array] = []
        sure: list[Array] = []
        for kind, certainty, region in accesses:
            found = region_ranges(region, one.bytes)
            if kind.reads:
                reads.append(found)
            if kind.writes:
                writes.append(found)
            if kind is AccessKind.WRITE and certainty is Certainty.MUST:
                sure.append(found)
        written, certain = join(writes), join(sure)
        needed = join([*reads, minus(written, certain)])
        if len(needed) or len(written):
            yield buffer, needed, written, certain


def accesses_by_buffer(node: Node) -> dict[int, dict[tuple[AccessKind, Certainty, Region], None]]:
    """The accesses of a step per buffer, those that say the same once."""
    found: dict[int, dict[tuple[AccessKind, Certainty, Region], None]] = {}
    for access in node.accesses:
        key = (access.kind, access.certainty, access.region)
        found.setdefault(int(access.buffer), {})[key] = None
    return found


def pointer_words(program: Program) -> dict[int, Array]:
    """The bytes of each buffer that hold addresses when a request begins."""
    found: dict[int, list[tuple[int, int]]] = {}
    for table in program.pointer_tables:
        spans = [(word.offset, word.offset + POINTER_BYTES) for word in table.words]
        found.setdefault(int(table.buffer), []).extend(spans)
    return {buffer: ranges_of(spans) for buffer, spans in found.items() if spans}
