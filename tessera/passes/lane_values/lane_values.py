"""The records of `lanes`: a value per thread, and how values are made.

What they mean, and what can be computed with them, stands in `lanes`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tessera.ir.arrays import Flags, Words
from tessera.passes.lane_values.digits import Digit, Split

Slopes = dict[Digit, Words]
"""By how much a value grows with each digit, modulo 2**64; no digit: not at all."""
NO_SLOPES: Slopes = {}
U64 = np.uint64
WIDE = 1 << 38
MOST_OPTIONS = 16
WIDE_SPAN = U64(WIDE)
FAR = 1 << 39
"""Further apart than this, no two 64-bit numbers are addresses in one object."""
FAR_APART = U64(FAR)
NUMBER, POINTER, MIXED, LOW, HARD = range(5)
"""Kinds of values, see `lane_kinds`."""
MASK = {1: 1, 8: 0xFF, 16: 0xFFFF, 32: 0xFFFFFFFF, 64: 0xFFFFFFFFFFFFFFFF}
MASKS = {bits: U64(mask) for bits, mask in MASK.items()}


class LaneBase:
    """The numbers that some values share up to a distance; `sum` is the last one made of it."""

    __slots__ = ("array", "bounds", "sum")

    def __init__(self, array: Words) -> None:
        self.array = array
        self.bounds: tuple[int, int] | None = None
        self.sum: tuple[LaneBase, LaneBase] | None = None

    def plus(self, other: LaneBase) -> LaneBase:
        """The sums, modulo 2**64, of the numbers of two bases; loops ask for the same again."""
        for left, right in ((self, other), (other, self)):
            if left.sum is not None and left.sum[0] is right:
                return left.sum[1]
        total = LaneBase(self.array + other.array)
        self.sum, other.sum = (other, total), (self, total)
        return total


class ElectedValue(NamedTuple):
    """A value that hangs on an election (`elections`): exact for a thread that was elected, and
    for one that was not. It says nothing of the threads outside `valid`. `election` is equal for
    values of one election."""

    election: int
    hit: Words
    miss: Words
    valid: Flags


class Lanes:
    """A value per thread; see the module's text.

    `lo` is kept as a base and a shift, so that moving every thread's 64-bit address by one
    distance, as loops do, costs nothing until somebody looks at the numbers. `slopes` says by how
    much `lo` grows with digits of the CTA's number (`digits`). Whoever asks for `lo` of such a
    value does not know of digits, so these have to be spelled out (`Split`); `start` is `lo` where
    all of them are 0.
    """

    __slots__ = ("_lo", "base", "choice", "kind", "options", "shift", "slopes", "span", "why")

    def __init__(
        self, lo: Words, span: Words | None = None, why: int = -1, kind: int = NUMBER
    ) -> None:
        self._lo: Words | None = lo
        self.base = LaneBase(lo)
        self.shift = 0
        self.span = span
        self.why = why
        self.choice: ElectedValue | None = None
        self.kind = kind
        self.options: tuple[Lanes, ...] = ()
        self.slopes = NO_SLOPES

    @property
    def lo(self) -> Words:
        """The least value of each thread."""
        if self.slopes:
            raise Split(tuple(self.slopes))
        return self.start

    @property
    def start(self) -> Words:
        """The least value of each thread of the CTA whose digits are 0."""
        if self._lo is None:
            self._lo = self.base.array + U64(self.shift)
        return self._lo

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return self.base.array.size

    def bounds(self) -> tuple[int, int]:
        """The least and the greatest `lo` of any thread, of any CTA."""
        if self.base.bounds is None:
            self.base.bounds = int(self.base.array.min()), int(self.base.array.max())
        low, high = ((bound + self.shift) & MASK[64] for bound in self.base.bounds)
        if low > high:
            # Moved past the end of the numbers, but not by all threads: their order is another one.
            low, high = int(self.start.min()), int(self.start.max())
        for digit, slope in self.slopes.items():
            moved = slope.view(np.int64)
            low += min(0, int(moved.min())) * digit.most
            high += max(0, int(moved.max())) * digit.most
        if low < 0 or high > MASK[64]:
            raise Split(tuple(self.slopes))
        return low, high

    @property
    def exact(self) -> bool:
        """Whether every lane is one value."""
        return self.span is None


def scalar(value: int, bits: int = 64) -> Lanes:
    """The same exact value in every thread."""
    return Lanes(np.array([[value & MASK[bits]]], dtype=U64))


def single(value: Lanes) -> int | None:
    """The one number that all threads have, for all values of digits; None where there is none."""
    if value.slopes or value.span is not None:
        return None
    first = int(value.lo.flat[0])
    return first if value.lo.size == 1 or bool((value.lo == U64(first)).all()) else None


def unknown(bits: int, why: int, anchor: int = 0) -> Lanes:
    """Any value in every thread."""
    lo = np.array([[anchor & MASK[bits]]], dtype=U64)
    kind = POINTER if anchor else NUMBER
    return Lanes(lo, np.array([[MASK[bits]]], dtype=U64), why, kind)


def between(low: int, high: int, bits: int, why: int) -> Lanes:
    """Any of `low` to `high`, both included, in every thread."""
    if high - low >= MASK[bits]:
        return unknown(bits, why)
    lo = np.array([[low & MASK[bits]]], dtype=U64)
    return Lanes(lo, np.array([[high - low]], dtype=U64), why)


def distinct(value: Lanes) -> list[int]:
    """The different `lo` of all threads, in order."""
    low, high = value.bounds()
    lo = value.lo
    if low == high:
        return [low]
    ends = (lo == U64(low)) | (lo == U64(high))
    return [low, high] if ends.all() else [int(number) for number in np.unique(lo)]


def spans(value: Lanes) -> Words:
    """The unknown part, zeros where exact."""
    return np.zeros((1, 1), dtype=U64) if value.span is None else value.span


def exact_in(value: Lanes, mask: Flags) -> Lanes:
    """The value without its unknown part, where the threads of a mask have none."""
    if value.span is None or (value.span.astype(np.bool_) & mask).any():
        return value
    exact = Lanes(value.start, kind=value.kind)
    exact.slopes = value.slopes
    return exact


def only_in(value: Lanes, mask: Flags) -> Lanes:
    """The value of the threads of a mask; the others get the value of one of them."""
    if value.options or not mask.any() or bool(mask.all()):
        return value
    shape = np.broadcast_shapes(value.start.shape, mask.shape)
    place = int(np.argmax(np.broadcast_to(mask, shape)))

    def kept(numbers: Words) -> Words:
        return np.where(mask, numbers, np.broadcast_to(numbers, shape).flat[place])

    span = None if value.span is None else kept(value.span)
    span = span if span is not None and span.any() else None
    result = Lanes(kept(value.start), span, value.why, value.kind)
    if value.slopes:
        result.slopes = {
            digit: slope if slope.size == 1 else kept(slope)
            for digit, slope in value.slopes.items()
        }
    return result


def of_kind(value: Lanes, kind: int) -> Lanes:
    """The same value of another kind."""
    if value.kind == kind:
        return value
    copy = copied(value)
    copy.kind = kind
    return copy


def copied(value: Lanes) -> Lanes:
    """The same value, another object."""
    copy = Lanes.__new__(Lanes)
    copy._lo, copy.base, copy.shift = value._lo, value.base, value.shift
    copy.span, copy.why, copy.kind = value.span, value.why, value.kind
    copy.choice, copy.options, copy.slopes = value.choice, value.options, value.slopes
    return copy


def sum_kind(first: int, second: int) -> int:
    """What a sum is made of."""
    if not first or not second:
        return first or second
    return MIXED if max(first, second) <= MIXED else max(first, second)


def reason(*values: Lanes) -> int:
    """The first reason among values."""
    return next((v.why for v in values if v.why >= 0), -1)


def settle(lo: Words, span: Words, bits: int, why: int, *, keeps_anchor: bool = False) -> Lanes:
    """A value from its parts; exact where nothing is unknown."""
    if not span.any():
        return Lanes(lo & MASKS[bits])
    if bits == 64:
        wide = span >= WIDE_SPAN
        if wide.any():
            span = np.where(wide, MASKS[64], span)
            lo = lo if keeps_anchor else np.where(wide, U64(0), lo)
    return Lanes(lo & MASKS[bits], np.minimum(span, MASKS[bits]), why)
