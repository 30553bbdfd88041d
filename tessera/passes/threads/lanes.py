"""Integer values of many threads at once, each exact or an interval.

A `Lanes` holds one w-bit value per thread, as `lo` plus an unknown part in `[0, span]`, all
modulo 2**w: a circular interval, so that an index in [-4, 4] needs no sign. `span` is None where
every value is exact. Arrays have up to four axes: z, y and x of the CTA, and the thread in the CTA;
an axis has length 1 where the value does not depend on it, and leading ones may be missing. NumPy
broadcasts the rest, so a value that depends on one row of tiles costs one row of tiles.

Order: smaller sets are lower. Join: the shorter of the two circular intervals that hold both.
A full span (2**w - 1) holds every value; its `lo` is then an *anchor*, which says nothing about
the value but keeps the pointer that an unknown index was added to (see `zones`). Of 64-bit values
a span is below `WIDE` or full: an interval so long could start in another object than the one it
was added to, which would make its `lo` a wrong anchor. Only addition, negation and join keep an
anchor; after anything else it is 0, which is no object.

Every function errs towards larger intervals. `why` is the index of the instruction that first
brought the unknown part in, for messages; it plays no part in the meaning.
"""

# NumPy's operators on arrays of unknown element type give Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
U64 = np.uint64
WIDE = 1 << 38
_WIDE = U64(WIDE)
MASK = {1: 1, 8: 0xFF, 16: 0xFFFF, 32: 0xFFFFFFFF, 64: 0xFFFFFFFFFFFFFFFF}
_MASKS = {bits: U64(mask) for bits, mask in MASK.items()}


class Base:
    """The numbers that some values share up to a distance; `sum` is the last one made of it."""

    __slots__ = ("array", "bounds", "sum")

    def __init__(self, array: Array) -> None:
        self.array = array
        self.bounds: tuple[int, int] | None = None
        self.sum: tuple[Base, Base] | None = None

    def plus(self, other: Base) -> Base:
        """The sums, modulo 2**64, of the numbers of two bases; loops ask for the same again."""
        for left, right in ((self, other), (other, self)):
            if left.sum is not None and left.sum[0] is right:
                return left.sum[1]
        found = Base(self.array + other.array)
        self.sum, other.sum = (other, found), (self, found)
        return found


class Choice(NamedTuple):
    """A value that hangs on an election (`elections`): exact for a thread that was elected, and
    for one that was not. It says nothing of the threads outside `valid`. `election` is equal for
    values of one election."""

    election: int
    hit: Array
    miss: Array
    valid: Array


class Lanes:
    """A value per thread; see the module's text.

    `lo` is kept as a base and a shift, so that moving every thread's 64-bit address by one
    distance, as loops do, costs nothing until somebody looks at the numbers.
    """

    __slots__ = ("_lo", "base", "choice", "shift", "span", "why")

    def __init__(self, lo: Array, span: Array | None = None, why: int = -1) -> None:
        self._lo: Array | None = lo
        self.base = Base(lo)
        self.shift = 0
        self.span = span
        self.why = why
        self.choice: Choice | None = None

    @property
    def lo(self) -> Array:
        """The least value of each thread."""
        if self._lo is None:
            self._lo = self.base.array + U64(self.shift)
        return self._lo

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return self.base.array.size

    def bounds(self) -> tuple[int, int]:
        """The least and the greatest `lo` of any thread."""
        if self.base.bounds is None:
            self.base.bounds = int(self.base.array.min()), int(self.base.array.max())
        low, high = ((bound + self.shift) & MASK[64] for bound in self.base.bounds)
        # Moved past the end of the numbers, but not by all threads: their order is another one.
        return (low, high) if low <= high else (int(self.lo.min()), int(self.lo.max()))

    @property
    def exact(self) -> bool:
        """Whether every lane is one value."""
        return self.span is None


def scalar(value: int, bits: int = 64) -> Lanes:
    """The same exact value in every thread."""
    return Lanes(np.array([[value & MASK[bits]]], dtype=U64))


def unknown(bits: int, why: int, anchor: int = 0) -> Lanes:
    """Any value in every thread."""
    lo = np.array([[anchor & MASK[bits]]], dtype=U64)
    return Lanes(lo, np.array([[MASK[bits]]], dtype=U64), why)


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


def spans(value: Lanes) -> Array:
    """The unknown part, zeros where exact."""
    return np.zeros((1, 1), dtype=U64) if value.span is None else value.span


def exact_in(value: Lanes, mask: Array) -> Lanes:
    """The value without its unknown part, where the threads of a mask have none."""
    if value.span is None or (value.span.astype(np.bool_) & mask).any():
        return value
    return Lanes(value.lo)


def reason(*values: Lanes) -> int:
    """The first reason among values."""
    return next((v.why for v in values if v.why >= 0), -1)


def settle(lo: Array, span: Array, bits: int, why: int, *, keeps_anchor: bool = False) -> Lanes:
    """A value from its parts; exact where nothing is unknown."""
    if not span.any():
        return Lanes(lo & _MASKS[bits])
    if bits == 64:
        wide = span >= _WIDE
        if wide.any():
            span = np.where(wide, _MASKS[64], span)
            lo = lo if keeps_anchor else np.where(wide, U64(0), lo)
    return Lanes(lo & _MASKS[bits], np.minimum(span, _MASKS[bits]), why)


def wraps(value: Lanes, bits: int) -> Array:
    """Where the interval passes 2**bits - 1, so that it is no interval of unsigned numbers."""
    if value.span is None:
        return np.zeros((1, 1), dtype=np.bool_)
    return value.span > (_MASKS[bits] - value.lo)


def unsigned_bounds(value: Lanes, bits: int) -> tuple[Array, Array]:
    """The least and greatest unsigned number that a lane may hold."""
    if value.span is None:
        return value.lo, value.lo
    wrap = wraps(value, bits)
    low = np.where(wrap, U64(0), value.lo)
    high = np.where(wrap, _MASKS[bits], value.lo + np.minimum(value.span, _MASKS[bits] - value.lo))
    return low, high


def biased_bounds(value: Lanes, bits: int) -> tuple[Array, Array]:
    """Bounds of the signed number plus 2**(bits-1), so that unsigned order is signed order."""
    half = U64(1 << (bits - 1))
    return unsigned_bounds(Lanes((value.lo + half) & _MASKS[bits], value.span, value.why), bits)


def from_bounds(low: Array, high: Array, bits: int, why: int) -> Lanes:
    """The value with these unsigned bounds."""
    return settle(low, high - low, bits, why)


def from_biased(low: Array, high: Array, bits: int, why: int) -> Lanes:
    """The value with these biased bounds."""
    half = U64(1 << (bits - 1))
    return settle(low - half, high - low, bits, why)


def add(a: Lanes, b: Lanes, bits: int) -> Lanes:
    """a + b modulo 2**bits; the anchor of an unknown one is kept."""
    if a.span is None and b.span is None:
        if bits < 64:
            return Lanes((a.lo + b.lo) & _MASKS[bits])
        return _exact_sum(a, b)
    lo = a.lo + b.lo
    return settle(lo, _sum_spans(a, b, bits), bits, reason(a, b), keeps_anchor=True)


def _exact_sum(a: Lanes, b: Lanes) -> Lanes:
    """The sum of exact 64-bit values; a number that is the same in all threads is a shift."""
    if a.size == b.size == 1:
        return Lanes(a.lo + b.lo)
    result = Lanes.__new__(Lanes)
    if a.size > 1 and b.size > 1:
        result.base, result.shift = a.base.plus(b.base), a.shift + b.shift
    elif a.size > 1:
        result.base, result.shift = a.base, a.shift + int(b.lo.flat[0])
    else:
        result.base, result.shift = b.base, b.shift + int(a.lo.flat[0])
    result.shift &= MASK[64]
    result.span, result.why, result._lo, result.choice = None, -1, None, None
    return result


def negate(a: Lanes, bits: int) -> Lanes:
    """-a modulo 2**bits."""
    if a.span is None:
        return Lanes((U64(0) - a.lo) & _MASKS[bits])
    full = a.span >= _MASKS[bits]
    lo = np.where(full, U64(0) - a.lo, U64(0) - a.lo - a.span)
    return settle(lo, a.span, bits, a.why, keeps_anchor=True)


def sub(a: Lanes, b: Lanes, bits: int) -> Lanes:
    """a - b modulo 2**bits."""
    return add(a, negate(b, bits), bits)


def _sum_spans(a: Lanes, b: Lanes, bits: int) -> Array:
    first, second = spans(a), spans(b)
    room = _MASKS[bits] - first
    return np.where(second > room, _MASKS[bits], first + np.minimum(second, room))


def mul(a: Lanes, b: Lanes, bits: int) -> Lanes:
    """The low bits of a * b."""
    if a.span is None and b.span is None:
        return Lanes((a.lo * b.lo) & _MASKS[bits])
    if a.span is None:
        a, b = b, a
    if b.span is None:
        return _scale(a, b.lo, bits)
    alow, ahigh = unsigned_bounds(a, bits)
    blow, bhigh = unsigned_bounds(b, bits)
    fits = ahigh <= _MASKS[bits] // np.maximum(bhigh, U64(1))
    low = np.where(fits, alow * blow, U64(0))
    high = np.where(fits, ahigh * bhigh, _MASKS[bits])
    return from_bounds(low, high, bits, reason(a, b))


def _scale(a: Lanes, factor: Array, bits: int) -> Lanes:
    """An unknown value times an exact one, which counts as signed."""
    span = spans(a)
    negative = factor > U64(MASK[bits] >> 1)
    size = np.where(negative, (U64(0) - factor) & _MASKS[bits], factor)
    fits = span <= _MASKS[bits] // np.maximum(size, U64(1))
    start = np.where(negative, a.lo + span, a.lo) * factor
    wide = np.where(fits, span * size, _MASKS[bits])
    return settle(np.where(fits, start, U64(0)), wide, bits, a.why)


def truncate(a: Lanes, bits: int) -> Lanes:
    """The low bits of a wider value."""
    if bits == 64:
        return a
    if a.span is None:
        return Lanes(a.lo & _MASKS[bits])
    return settle(a.lo, np.minimum(a.span, _MASKS[bits]), bits, a.why)


def zero_extend(a: Lanes, bits: int) -> Lanes:
    """A value of `bits` bits as an unsigned 64-bit one."""
    if a.span is None or bits == 64:
        return a
    low, high = unsigned_bounds(a, bits)
    return settle(low, high - low, 64, a.why)


def sign_extend(a: Lanes, bits: int) -> Lanes:
    """A value of `bits` bits as a signed 64-bit one."""
    if bits == 64:
        return a
    half = U64(1 << (bits - 1))
    if a.span is None:
        return Lanes((a.lo ^ half) - half)
    low, high = biased_bounds(a, bits)
    return settle(low - half, high - low, 64, a.why)


def join(a: Lanes, b: Lanes, bits: int) -> Lanes:
    """A value that holds both."""
    if a is b:
        return a
    aspan, bspan = spans(a), spans(b)
    from_a = _reach(a.lo, aspan, b.lo, bspan, bits)
    from_b = _reach(b.lo, bspan, a.lo, aspan, bits)
    first = from_a <= from_b
    lo = np.where(first, a.lo, b.lo)
    span = np.where(first, from_a, from_b)
    if bits == 64:
        # Two objects apart: no anchor may stand for both.
        half = U64(1 << 39)
        apart = (span >= _WIDE) & (((a.lo + half) ^ (b.lo + half)) >> U64(40) != U64(0))
        lo = np.where(apart, U64(0), lo)
    return settle(lo, span, bits, reason(a, b), keeps_anchor=True)


def _reach(start: Array, span: Array, other: Array, other_span: Array, bits: int) -> Array:
    """The span from `start` that holds its own interval and the other one."""
    gap = (other - start) & _MASKS[bits]
    room = _MASKS[bits] - gap
    end = np.where(other_span > room, _MASKS[bits], gap + np.minimum(other_span, room))
    return np.maximum(span, end)


def merge(mask: Array, new: Lanes, old: Lanes) -> Lanes:
    """`new` where the mask holds, `old` elsewhere."""
    lo = np.where(mask, new.lo, old.lo)
    if new.span is None and old.span is None:
        return Lanes(lo)
    span = np.where(mask, spans(new), spans(old))
    return Lanes(lo, span, reason(new, old)) if span.any() else Lanes(lo)


def equal(a: Lanes, b: Lanes) -> bool:
    """Whether the two describe the same sets."""
    if a is b:
        return True
    if (a.span is None) != (b.span is None):
        return False
    return bool((a.lo == b.lo).all()) and bool((spans(a) == spans(b)).all())
