"""Writes that happen on both sides of a branch that depends on data.

In: the bytes that each thread surely writes on one side of a branch, and those that it surely
writes on the other (or under a predicate, and under its negation). Out: the bytes that it writes on
both sides, thread by thread. One thread may take one side and its neighbour the other, so bytes of
two threads are never combined.

The search for pairs only compares writes whose lowest addresses are near. A missed pair is safe:
the write stays uncertain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tessera.ir.arrays import Flags, Words
from tessera.passes.byte_sets.intervals import distinct
from tessera.passes.lane_values.lanes import U64, Lanes, Slopes, same
from tessera.passes.lane_values.masks import selected

_MOST = 1024
_MOST_ELEMENTS = 1 << 22


@dataclass(frozen=True, slots=True)
class SureWrite:
    """`width` bytes at one exact address per thread, by the threads that surely write them.

    `lo` is the address in the CTA whose digits are 0; `slopes` says how it grows with the digits.
    """

    index: int
    effect: int
    lo: Words
    width: int
    sure: Flags
    slopes: Slopes = field(default_factory=dict)

    def lowest(self) -> int:
        """The lowest address of a thread that surely writes."""
        return int(selected(self.sure, self.lo)[0].min())


@dataclass(slots=True)
class Side:
    """The sure writes of one side; past a limit, later writes are left out."""

    writes: list[SureWrite] = field(default_factory=list)
    elements: int = 0

    def add(self, write: SureWrite) -> None:
        """Add a write of this side."""
        if len(self.writes) < _MOST and self.elements < _MOST_ELEMENTS:
            self.writes.append(write)
            self.elements += write.lo.size + write.sure.size


@dataclass(slots=True)
class Guarded:
    """Writes under a predicate and under its negation, while the predicate keeps its value."""

    value: Lanes
    sides: tuple[Side, Side] = field(default_factory=lambda: (Side(), Side()))

    def copy(self) -> Guarded:
        """A copy that one side of a branch may add to."""
        first, second = (Side(list(side.writes), side.elements) for side in self.sides)
        return Guarded(self.value, (first, second))


def common_writes(first: Side, second: Side) -> Iterator[SureWrite]:
    """The bytes that every thread writes on both sides, as writes of the first side."""
    if not first.writes or not second.writes:
        return
    others = sorted(((w.lowest(), w) for w in second.writes), key=lambda pair: pair[0])
    starts = np.array([start for start, _ in others], dtype=U64)
    widest = max(w.width for w in second.writes)
    for write in first.writes:
        low = write.lowest()
        begin = int(np.searchsorted(starts, U64(max(low - widest, 0)), side="right"))
        for start, other in others[begin:]:
            if start >= low + write.width:
                break
            yield from _overlap(write, other)


def _overlap(write: SureWrite, other: SureWrite) -> Iterator[SureWrite]:
    """The bytes that a thread writes with both writes, as one write per length."""
    if not same(write.slopes, other.slopes):
        return
    sure = write.sure & other.sure
    start = np.maximum(write.lo, other.lo)
    end = np.minimum(write.lo + U64(write.width), other.lo + U64(other.width))
    some, length = sure & (start < end), end - start
    for width in distinct(selected(some, length)[0]):
        chosen = some & (length == width)
        yield SureWrite(write.index, write.effect, start, int(width), chosen, write.slopes)
