"""What one device would have produced: which version of its bytes each step needs.

In: a `TraceShape` and the effects of its steps (they come from the analysis of the trace, never
from the plan). Out: `ExpectedVersions`: per step and buffer the bytes that must be current and the
version that is, the bytes that it may write, and the versions at the end.

The version of a byte is the number of the last step that may have written it, or FIRST for what it
holds when a request begins. A step needs what it may read, and what it may write but does not
certainly write: whatever it leaves alone is seen by later steps. After it, all that it may have
written is at its own version.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tessera.ir.plan.launch_program import Bytes, Fill, Home
from tessera.ir.program.program import Role
from tessera.passes.checker.bytes import Array, Index, boundaries, places, ranges_of
from tessera.passes.checker.effects import Bytes3, Effects, pointer_words
from tessera.passes.checker.shape import TraceShape

Versions = npt.NDArray[np.int32]
FIRST = -1


@dataclass(frozen=True, slots=True)
class StepTouch:
    """What a step does to one buffer. `version`: of the needed bytes, one for all or per atom."""

    buffer: int
    bytes: Bytes3
    version: int | Versions

    @property
    def needed(self) -> Array:
        """The bytes that must be current."""
        return self.bytes.needed

    @property
    def written(self) -> Array:
        """The bytes that it may write."""
        return self.bytes.written

    @property
    def certain(self) -> Array:
        """The bytes that it certainly writes."""
        return self.bytes.certain


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedVersions:
    """What one device does. `bounds` cuts each buffer into atoms; `words` are its pointers.

    `weights` are those that each step touches, and whether it may write them.
    """

    touches: tuple[tuple[StepTouch, ...], ...]
    weights: tuple[tuple[tuple[int, bool], ...], ...]
    bounds: dict[int, Array]
    words: dict[int, Array]
    final: dict[int, Versions]


def find_expected(
    shape: TraceShape, effects: tuple[Effects, ...], homes: tuple[Home, ...]
) -> ExpectedVersions:
    """Walk the steps in their order."""
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

    touches = []
    for step, effect in enumerate(effects):
        done = tuple(
            StepTouch(buffer, touched, _packed(current[buffer][index_of(buffer, touched.needed)]))
            for buffer, touched in effect.touched
        )
        for touch in done:
            current[touch.buffer][index_of(touch.buffer, touch.written)] = step
        touches.append(done)
    return ExpectedVersions(
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
    """Where the buffers that are walked are cut."""
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
    """One number where all are equal: the common case, and much smaller."""
    if len(versions) == 0:
        return FIRST
    first = int(versions[0])
    return first if (versions == first).all() else versions.copy()


def _plan_ranges(shape: TraceShape, homes: tuple[Home, ...]) -> Iterator[tuple[int, Bytes]]:
    """The ranges that the plan names, which cut buffers too."""
    for transfer in shape.transfers.values():
        yield transfer.buffer, transfer.bytes
    for home in homes:
        yield home.buffer, home.bytes
    for ops in shape.queues.values():
        for op in ops:
            if isinstance(op.operation, Fill):
                yield op.operation.buffer, op.operation.bytes
