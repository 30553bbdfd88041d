"""Writes that happen whichever way a branch goes that depends on data.

In: what each thread surely writes on one side of a branch, and what it surely writes on the other
(or under a predicate, and under its opposite). Out: what it writes on both, thread by thread: one
thread may take one side and its neighbour the other, so bytes of two threads never add up.

Pairs are looked for among writes whose lowest addresses are near; a pair that is missed is a
write that stays uncertain, nothing worse.
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

    `lo` is the address of the CTA whose digits are 0, `slopes` how it grows with them.
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
    """The sure writes of one side; past a limit, later ones are left out."""

    writes: list[SureWrite] = field(default_factory=list)
    elements: int = 0

    def add(self, write: SureWrite) -> None:
        """Note a write of this side."""
        if len(self.writes) < _MOST and self.elements < _MOST_ELEMENTS:
            self.writes.append(write)
            self.elements += write.lo.size + write.sure.size


@dataclass(slots=True)
class Guarded:
    """Writes under a predicate and under its opposite, while the predicate keeps its value."""

    value: Lanes
    sides: tuple[Side, Side] = field(default_factory=lambda: (Side(), Side()))

    def copy(self) -> Guarded:
        """The same, to be added to on one side of a branch."""
        first, second = (Side(list(side.writes), side.elements) for side in self.sides)
        return Guarded(self.value, (first, second))


def common_writes(first: Side, second: Side) -> Iterator[SureWrite]:
    """What every thread writes on both sides, as writes of the first."""
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
    """The bytes that a thread writes with both, one write per length."""
    if not same(write.slopes, other.slopes):
        return
    sure = write.sure & other.sure
    start = np.maximum(write.lo, other.lo)
    end = np.minimum(write.lo + U64(write.width), other.lo + U64(other.width))
    some = sure & (start < end)
    if not some.any():
        return
    length = np.where(start < end, end - start, U64(0))
    for width in distinct(length):
        chosen = some & (length == width)
        if width > 0 and chosen.any():
            yield SureWrite(write.index, write.effect, start, int(width), chosen, write.slopes)
