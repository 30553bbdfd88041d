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
anchor; after anything else it is 0, which is not an object.

`form` gives unknown parts names (see `symbols`), and `facts` says what a predicate tells of them.

`kind` says what numbers a value is made of (see `lane_kinds`), `options` that it is one of some
values far from each other (see `one_of`): it is anything then, to whoever does not ask.

Every function errs towards larger intervals. `why` is the index of the instruction that first
brought the unknown part in, for messages; it plays no part in the meaning.

A value may also grow with digits of the CTA's number (`slopes`, see `digits`): it is then `start +
sum(slope * digit)` modulo 2**w, so sums and products by numbers are exact as they are. What asks
for the number itself is in `slopes` and `sloped_ops`.

Longer than 400 lines because the record and the arithmetic that keeps its invariants (anchors,
kinds, options, slopes) have to be read together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product, zip_longest
from typing import NamedTuple

import numpy as np

from tessera.ir.arrays import Flags, Words
from tessera.passes.lane_values import symbols
from tessera.passes.lane_values.digits import Digit, Split
from tessera.passes.lane_values.symbols import DataSymbol, PredicateFacts, SymbolForm

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
    """A value that depends on an election (`warps`): exact for a thread that was elected, and
    for one that was not. It says nothing of the threads outside `valid`. `election` is equal for
    values of one election."""

    election: int
    hit: Words
    miss: Words
    valid: Flags


class BySign(NamedTuple):
    """A value computed from a number of unknown sign: if that is negative, and if not. `key` has
    the number's symbols in either case, and is the same for all values computed from it."""

    key: tuple[DataSymbol, DataSymbol]
    negative: Lanes
    other: Lanes


class Lanes:
    """A value per thread; see the module docstring.

    `lo` is kept as a base and a shift, so that moving every thread's 64-bit address by one
    distance, as loops do, costs nothing until the numbers are asked for. `slopes` says by how
    much `lo` grows with digits of the CTA's number (`digits`); `start` is `lo` where all of them
    are 0.
    """

    # fmt: off
    __slots__ = ("_lo", "base", "choice", "facts", "form", "kind",
                 "options", "shift", "signs", "slopes", "span", "why")
    # fmt: on

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
        self.form: SymbolForm | None = None
        self.facts: PredicateFacts | None = None
        self.signs: BySign | None = None

    def low(self) -> Words:
        """The least value of each thread, for code that knows nothing of digits: where the value
        grows with some, they have to be spelled out (`Split`)."""
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
        """The number of array elements."""
        return self.base.array.size

    def bounds(self) -> tuple[int, int]:
        """The least and the greatest `lo` of any thread, of any CTA."""
        if self.base.bounds is None:
            self.base.bounds = int(self.base.array.min()), int(self.base.array.max())
        low, high = ((bound + self.shift) & MASK[64] for bound in self.base.bounds)
        if low > high:
            # Only some threads wrapped past the end of the numbers, so their order has changed.
            low, high = int(self.start.min()), int(self.start.max())
        for digit, slope in self.slopes.items():
            moved = slope.view(np.int64)
            low += min(0, int(moved.min())) * digit.most
            high += max(0, int(moved.max())) * digit.most
        if low < 0 or high > MASK[64]:
            raise Split(tuple(self.slopes))
        return low, high


def scalar(value: int, bits: int = 64) -> Lanes:
    """The same exact value in every thread."""
    return Lanes(np.array([[value & MASK[bits]]], dtype=U64))


def single(value: Lanes) -> int | None:
    """The one number that all threads have, for all values of digits; None if there is none."""
    if value.slopes or value.span is not None:
        return None
    first = int(value.low().flat[0])
    return first if value.low().size == 1 or bool((value.low() == U64(first)).all()) else None


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
    lo = value.low()
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
    """The same value as a new object."""
    copy = Lanes.__new__(Lanes)
    copy._lo, copy.base, copy.shift = value._lo, value.base, value.shift
    copy.span, copy.why, copy.kind = value.span, value.why, value.kind
    copy.choice, copy.options, copy.slopes = value.choice, value.options, value.slopes
    copy.form, copy.facts, copy.signs = value.form, value.facts, value.signs
    return copy


def sum_kind(first: int, second: int) -> int:
    """The kind of a sum of two values."""
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


# --- bounds --------------------------------------------------------------------------------


def unsigned_bounds(value: Lanes, bits: int) -> tuple[Words, Words]:
    """The least and greatest unsigned number that a thread may hold."""
    if value.span is None:
        return value.low(), value.low()
    # Past 2**bits - 1 it is not an interval of unsigned numbers.
    wrap = value.span > MASKS[bits] - value.low()
    low = np.where(wrap, U64(0), value.low())
    high = np.where(
        wrap, MASKS[bits], value.low() + np.minimum(value.span, MASKS[bits] - value.low())
    )
    return low, high


def biased_bounds(value: Lanes, bits: int) -> tuple[Words, Words]:
    """Bounds of the signed number plus 2**(bits-1), so that unsigned order is signed order."""
    half = U64(1 << (bits - 1))
    return unsigned_bounds(Lanes((value.low() + half) & MASKS[bits], value.span, value.why), bits)


def from_bounds(low: Words, high: Words, bits: int, why: int) -> Lanes:
    """The value with these unsigned bounds."""
    return settle(low, high - low, bits, why)


def from_biased(low: Words, high: Words, bits: int, why: int) -> Lanes:
    """The value with these biased bounds."""
    half = U64(1 << (bits - 1))
    return settle(low - half, high - low, bits, why)


# --- forms ---------------------------------------------------------------------------------


def form_of(value: Lanes) -> SymbolForm | None:
    """The form of a value without slopes; that of an exact one has no symbols."""
    is_open = value.form is not None or value.span is not None
    return value.form if is_open else SymbolForm(value.start, ())


# --- slopes --------------------------------------------------------------------------------


def digits_of(*values: Lanes) -> tuple[Digit, ...]:
    """All digits that values grow with."""
    return tuple(dict.fromkeys(digit for value in values for digit in value.slopes))


def flat(value: Lanes) -> Lanes:
    """The value in the CTA whose digits are 0."""
    if not value.slopes:
        return value
    copy = copied(value)
    copy.slopes = NO_SLOPES
    return copy


def sloped(value: Lanes, slopes: Slopes, bits: int) -> Lanes:
    """A value with slopes; of a number that can be anything they say nothing.

    An address that can be anything in an object is not any number: slopes may lead to another one.
    One of several values has no slopes: code that looks at `options` does not ask for them.
    """
    kept: Slopes = {}
    full = None
    if value.span is not None and (bits < 64 or value.kind == NUMBER):
        full = value.span >= MASKS[bits]
    for digit, slope in slopes.items():
        slope = slope & MASKS[bits]
        if full is not None:
            slope = np.where(full, U64(0), slope)
        if slope.any():
            kept[digit] = slope
    if not kept:
        return value
    if value.options:
        raise Split(tuple(kept))
    result = copied(value)
    result.slopes = kept
    if full is not None and value.form is not None:
        result.form = value.form._replace(where=value.form.where & ~full)
    return result


def added(a: Slopes, b: Slopes) -> Slopes:
    """The slopes of a sum."""
    if not a or not b:
        return a or b
    total = dict(a)
    for digit, slope in b.items():
        total[digit] = total[digit] + slope if digit in total else slope
    return total


def minus(slopes: Slopes) -> Slopes:
    """The slopes of the negated value."""
    return {digit: U64(0) - slope for digit, slope in slopes.items()}


def chosen(mask: Flags, new: Slopes, old: Slopes) -> Slopes:
    """The slopes of `new` where a mask holds, of `old` elsewhere."""
    if new is old or same(new, old):
        return new
    zero = np.zeros((1, 1), dtype=U64)
    return {
        digit: np.where(mask, new.get(digit, zero), old.get(digit, zero))
        for digit in dict.fromkeys((*new, *old))
    }


def same(a: Slopes, b: Slopes) -> bool:
    """Whether two values grow alike."""
    if a is b:
        return True
    return a.keys() == b.keys() and all(bool((a[digit] == b[digit]).all()) for digit in a)


# --- arithmetic ----------------------------------------------------------------------------


def add(a: Lanes, b: Lanes, bits: int) -> Lanes:
    """a + b modulo 2**bits; the anchor of an unknown one is kept."""
    if bits == 64 and (a.options or b.options):
        return each(lambda given: add(given[0], given[1], 64), (a, b))
    if a.slopes or b.slopes:
        return sloped(add(flat(a), flat(b), bits), added(a.slopes, b.slopes), bits)
    if a.span is not None or b.span is not None:
        lo = a.low() + b.low()
        result = settle(lo, _sum_spans(a, b, bits), bits, reason(a, b), keeps_anchor=True)
        first, second = form_of(a), form_of(b)
        if first is not None and second is not None:
            result.form = symbols.plus(first, second, bits)
    elif bits < 64:
        result = Lanes((a.low() + b.low()) & MASKS[bits])
    else:
        result = _exact_sum(a, b)
    if a.kind or b.kind:
        result.kind = sum_kind(a.kind, b.kind)
    return result


def _exact_sum(a: Lanes, b: Lanes) -> Lanes:
    """The sum of exact 64-bit values; a number that is the same in all threads is a shift."""
    if a.size == b.size == 1:
        return Lanes(a.low() + b.low())
    result = Lanes.__new__(Lanes)
    if a.size > 1 and b.size > 1:
        result.base, result.shift = a.base.plus(b.base), a.shift + b.shift
    elif a.size > 1:
        result.base, result.shift = a.base, a.shift + int(b.low().flat[0])
    else:
        result.base, result.shift = b.base, b.shift + int(a.low().flat[0])
    result.shift &= MASK[64]
    result.span, result.why, result._lo, result.choice = None, -1, None, None
    result.kind, result.options, result.slopes = NUMBER, (), NO_SLOPES
    result.form = result.facts = result.signs = None
    return result


def negate(a: Lanes, bits: int) -> Lanes:
    """-a modulo 2**bits."""
    if bits == 64 and a.options:
        return each(lambda given: negate(given[0], 64), (a,))
    if a.slopes:
        return sloped(negate(flat(a), bits), minus(a.slopes), bits)
    if a.span is None:
        result = Lanes((U64(0) - a.low()) & MASKS[bits])
    else:
        full = a.span >= MASKS[bits]
        lo = np.where(full, U64(0) - a.low(), U64(0) - a.low() - a.span)
        result = settle(lo, a.span, bits, a.why, keeps_anchor=True)
        if a.form is not None:
            result.form = symbols.times(a.form, -1, bits)
    result.kind = MIXED if a.kind == POINTER else a.kind
    return result


def sub(a: Lanes, b: Lanes, bits: int) -> Lanes:
    """a - b modulo 2**bits."""
    return add(a, negate(b, bits), bits)


def _sum_spans(a: Lanes, b: Lanes, bits: int) -> Words:
    first, second = spans(a), spans(b)
    room = MASKS[bits] - first
    return np.where(second > room, MASKS[bits], first + np.minimum(second, room))


def mul(a: Lanes, b: Lanes, bits: int) -> Lanes:
    """The low bits of a * b."""
    if a.slopes or b.slopes:
        return _sloped_product(a, b, bits)
    if a.span is None and b.span is None:
        return Lanes((a.low() * b.low()) & MASKS[bits])
    if a.span is None:
        a, b = b, a
    if b.span is None:
        return _scale(a, b.low(), bits)
    alow, ahigh = unsigned_bounds(a, bits)
    blow, bhigh = unsigned_bounds(b, bits)
    fits = ahigh <= MASKS[bits] // np.maximum(bhigh, U64(1))
    low = np.where(fits, alow * blow, U64(0))
    high = np.where(fits, ahigh * bhigh, MASKS[bits])
    return from_bounds(low, high, bits, reason(a, b))


def _sloped_product(a: Lanes, b: Lanes, bits: int) -> Lanes:
    """The low bits of a product of which one factor has slopes, the other none."""
    if a.slopes and b.slopes:
        raise Split(digits_of(a, b))
    if b.slopes:
        a, b = b, a
    if a.span is not None or b.span is not None:
        raise Split(digits_of(a))
    product = Lanes(a.start * b.low() & U64(MASK[bits]))
    slopes = {digit: slope * b.low() for digit, slope in a.slopes.items()}
    return sloped(product, slopes, bits)


def _scale(a: Lanes, factor: Words, bits: int) -> Lanes:
    """An unknown value times an exact one, which counts as signed."""
    span = spans(a)
    # As a negative number a large factor makes a short interval of a short one.
    negative = factor > U64(MASK[bits] >> 1)
    size = np.where(negative, (U64(0) - factor) & MASKS[bits], factor)
    fits = span <= MASKS[bits] // np.maximum(size, U64(1))
    start = np.where(negative, a.low() + span, a.low()) * factor
    wide = np.where(fits, span * size, MASKS[bits])
    result = settle(np.where(fits, start, U64(0)), wide, bits, a.why)
    if a.form is not None and factor.size == 1:
        result.form = symbols.times(a.form, int(factor.flat[0]), bits)
    return result


def truncate(a: Lanes, bits: int) -> Lanes:
    """The low bits of a wider value."""
    if bits == 64:
        return a
    if a.slopes:
        return sloped(truncate(flat(a), bits), a.slopes, bits)
    if a.span is None:
        result = Lanes(a.low() & MASKS[bits])
    else:
        result = settle(a.low(), np.minimum(a.span, MASKS[bits]), bits, a.why)
        if a.form is not None:
            result.form = symbols.low_bits(a.form, bits)
        if a.facts is not None:  # If some bits are not 0, the number is not 0.
            result.facts = a.facts if bits == 1 else PredicateFacts(a.facts.true)
        if a.signs is not None:
            key, negative, other = a.signs
            result.signs = BySign(key, truncate(negative, bits), truncate(other, bits))
    result.kind = LOW if a.kind in (POINTER, MIXED) else a.kind
    return result


def join(a: Lanes, b: Lanes, bits: int) -> Lanes:
    """A value that holds both."""
    if a is b:
        return a
    if a.slopes or b.slopes:
        if not same(a.slopes, b.slopes):
            raise Split(digits_of(a, b))
        return sloped(join(flat(a), flat(b), bits), a.slopes, bits)
    kind = max(a.kind, b.kind)
    if kind and bits == 64 and (_is_anything(a) or _is_anything(b)):
        return of_kind(unknown(64, reason(a, b)), kind)
    if kind and bits == 64 and (a.options or b.options or not is_near(a, b)):
        return one_of((a, b), reason(a, b))
    return of_kind(hull(a, b, bits), kind)


def hull(a: Lanes, b: Lanes, bits: int) -> Lanes:
    """The shortest interval that holds both."""
    aspan, bspan = spans(a), spans(b)
    # On a circle there are two intervals that hold both: one starts at `a`, the other at `b`.
    from_a = _reach(a.low(), aspan, b.low(), bspan, bits)
    from_b = _reach(b.low(), bspan, a.low(), aspan, bits)
    first = from_a <= from_b
    lo = np.where(first, a.low(), b.low())
    span = np.where(first, from_a, from_b)
    if bits == 64:
        # Two objects apart: no anchor may stand for both.
        lo = np.where(_apart(a, b), U64(0), lo)
    return settle(lo, span, bits, reason(a, b), keeps_anchor=True)


def _is_anything(value: Lanes) -> bool:
    """Whether a 64-bit value is unknown in every thread, and in no object."""
    if value.span is None or value.options:
        return False
    return bool((value.span == MASKS[64]).all()) and not value.low().any()


def _apart(a: Lanes, b: Lanes) -> Flags:
    return (b.low() - a.low() + FAR_APART) >= FAR_APART + FAR_APART


def is_near(a: Lanes, b: Lanes) -> bool:
    """Whether no thread's two numbers are too far apart for one object."""
    return not _apart(a, b).any()


def _reach(start: Words, span: Words, other: Words, other_span: Words, bits: int) -> Words:
    """The span from `start` that holds its own interval and the other one."""
    gap = (other - start) & MASKS[bits]
    room = MASKS[bits] - gap
    end = np.where(other_span > room, MASKS[bits], gap + np.minimum(other_span, room))
    return np.maximum(span, end)


def merge(mask: Flags, new: Lanes, old: Lanes) -> Lanes:
    """`new` where the mask holds, `old` elsewhere."""
    if new.options or old.options:
        return merge_options(mask, new, old)
    if new.slopes or old.slopes:
        slopes = chosen(mask, new.slopes, old.slopes)
        return sloped(merge(mask, flat(new), flat(old)), slopes, 64)
    kind = max(new.kind, old.kind)
    lo = np.where(mask, new.low(), old.low())
    if new.span is None and old.span is None:
        return Lanes(lo, kind=kind)
    span = np.where(mask, spans(new), spans(old))
    if not span.any():
        return Lanes(lo, kind=kind)
    return _keep_names(Lanes(lo, span, reason(new, old), kind), mask, new, old)


def _keep_names(result: Lanes, mask: Flags, new: Lanes, old: Lanes) -> Lanes:
    """A merged value with what is known of the symbols in either."""
    if new.form is not None and (old.form is None or mask.any()):
        result.form = new.form._replace(where=new.form.where & mask)
    elif old.form is not None:
        result.form = old.form._replace(where=old.form.where & ~mask)
    if new.facts is not None or old.facts is not None:
        result.facts = symbols.merged_facts(mask, new.facts, old.facts)
    if new.signs is not None:
        key, negative, other = new.signs
        result.signs = BySign(key, merge(mask, negative, old), merge(mask, other, old))
    return result


def equal(a: Lanes, b: Lanes) -> bool:
    """Whether the two describe the same sets."""
    if a is b:
        return True
    if not same(a.slopes, b.slopes):
        return False
    if (a.span is None) != (b.span is None) or len(a.options) != len(b.options):
        return False
    if not all(map(equal, a.options, b.options)):
        return False
    return bool((a.start == b.start).all()) and bool((spans(a) == spans(b)).all())


def differ(a: Lanes, b: Lanes, mask: Flags) -> bool:
    """Whether the two describe different sets for threads of a mask."""
    if len(a.options) != len(b.options) or a.kind != b.kind or not same(a.slopes, b.slopes):
        return True
    if any(differ(first, second, mask) for first, second in zip(a.options, b.options, strict=True)):
        return True
    return bool((((a.start != b.start) | (spans(a) != spans(b))) & mask).any())


def widened(value: Lanes, bits: int, why: int) -> Lanes:
    """Anything, in the object that each value is in."""
    if value.options:
        return one_of([widened(option, bits, why) for option in value.options], why)
    full = np.full((1, 1), MASK[bits], dtype=U64)
    return sloped(Lanes(value.start, full, why, value.kind), value.slopes, bits)


# --- one of several values -----------------------------------------------------------------


def each(function: Callable[[Sequence[Lanes]], Lanes], values: Sequence[Lanes]) -> Lanes:
    """A 64-bit function of values some of which are one of several."""
    choices = [value.options or (value,) for value in values]
    return one_of([function(given) for given in product(*choices)], reason(*values))


def one_of(values: Sequence[Lanes], why: int) -> Lanes:
    """One of some 64-bit values, in every thread; those in the same objects are put together."""
    if any(_is_anything(value) for value in values):
        return of_kind(unknown(64, why), max(value.kind for value in values))
    kept: list[Lanes] = []
    for value in (option for given in values for option in given.options or (given,)):
        for place, other in enumerate(kept):
            if is_near(other, value):
                kept[place] = of_kind(hull(other, value, 64), max(other.kind, value.kind))
                break
        else:
            kept.append(value)
    if len(kept) == 1:
        return kept[0]
    result = unknown(64, why)
    # Too many are anything, and no distance within an object.
    result.kind = max((HARD if len(kept) > MOST_OPTIONS else NUMBER, *(v.kind for v in kept)))
    result.options = tuple(kept) if len(kept) <= MOST_OPTIONS else ()
    return result


def merge_options(mask: Flags, new: Lanes, old: Lanes) -> Lanes:
    """As `merge`, option by option; the last of the shorter list stands for the rest of it."""
    first, second = new.options or (new,), old.options or (old,)
    pairs = zip_longest(first, second)
    merged = [merge(mask, a or first[-1], b or second[-1]) for a, b in pairs]
    return one_of(merged, reason(new, old))
