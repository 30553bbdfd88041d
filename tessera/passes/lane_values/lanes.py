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

`kind` says what numbers a value is made of (see `lane_kinds`), `options` that it is one of some
values far from each other (see `one_of`): it is anything then, to whoever does not ask.

Every function errs towards larger intervals. `why` is the index of the instruction that first
brought the unknown part in, for messages; it plays no part in the meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product, zip_longest
from math import prod

import numpy as np

from tessera.ir.arrays import Flags, Words
from tessera.passes.lane_values.lane_bounds import (
    biased_bounds,
    from_biased,
    from_bounds,
    unsigned_bounds,
    wraps,
)
from tessera.passes.lane_values.lane_values import (
    FAR,
    FAR_APART,
    HARD,
    LOW,
    MASK,
    MASKS,
    MIXED,
    MOST_OPTIONS,
    NO_SLOPES,
    NUMBER,
    POINTER,
    U64,
    WIDE,
    WIDE_SPAN,
    ElectedValue,
    LaneBase,
    Lanes,
    between,
    copied,
    distinct,
    exact_in,
    of_kind,
    only_in,
    reason,
    scalar,
    settle,
    spans,
    sum_kind,
    unknown,
)
from tessera.passes.lane_values.sloped_ops import (
    sloped_extension,
    sloped_join,
    sloped_product,
)
from tessera.passes.lane_values.slopes import added, chosen, flat, minus, same, sloped

__all__ = [
    "FAR",
    "HARD",
    "LOW",
    "MASK",
    "MIXED",
    "MOST_OPTIONS",
    "NUMBER",
    "POINTER",
    "U64",
    "WIDE",
    "ElectedValue",
    "LaneBase",
    "Lanes",
    "add",
    "between",
    "biased_bounds",
    "copied",
    "differ",
    "distinct",
    "each",
    "equal",
    "exact_in",
    "from_biased",
    "from_bounds",
    "hull",
    "is_near",
    "join",
    "merge",
    "merge_options",
    "mul",
    "negate",
    "of_kind",
    "one_of",
    "only_in",
    "reason",
    "scalar",
    "settle",
    "sign_extend",
    "spans",
    "sub",
    "sum_kind",
    "truncate",
    "unknown",
    "unsigned_bounds",
    "widened",
    "wraps",
    "zero_extend",
]


def add(a: Lanes, b: Lanes, bits: int) -> Lanes:
    """a + b modulo 2**bits; the anchor of an unknown one is kept."""
    if bits == 64 and (a.options or b.options):
        return each(lambda given: add(given[0], given[1], 64), (a, b))
    if a.slopes or b.slopes:
        return sloped(add(flat(a), flat(b), bits), added(a.slopes, b.slopes), bits)
    if a.span is not None or b.span is not None:
        lo = a.lo + b.lo
        result = settle(lo, _sum_spans(a, b, bits), bits, reason(a, b), keeps_anchor=True)
    elif bits < 64:
        result = Lanes((a.lo + b.lo) & MASKS[bits])
    else:
        result = _exact_sum(a, b)
    if a.kind or b.kind:
        result.kind = sum_kind(a.kind, b.kind)
    return result


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
    result.kind, result.options, result.slopes = NUMBER, (), NO_SLOPES
    return result


def negate(a: Lanes, bits: int) -> Lanes:
    """-a modulo 2**bits."""
    if bits == 64 and a.options:
        return each(lambda given: negate(given[0], 64), (a,))
    if a.slopes:
        return sloped(negate(flat(a), bits), minus(a.slopes), bits)
    if a.span is None:
        result = Lanes((U64(0) - a.lo) & MASKS[bits])
    else:
        full = a.span >= MASKS[bits]
        lo = np.where(full, U64(0) - a.lo, U64(0) - a.lo - a.span)
        result = settle(lo, a.span, bits, a.why, keeps_anchor=True)
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
        return sloped_product(a, b, bits)
    if a.span is None and b.span is None:
        return Lanes((a.lo * b.lo) & MASKS[bits])
    if a.span is None:
        a, b = b, a
    if b.span is None:
        return _scale(a, b.lo, bits)
    alow, ahigh = unsigned_bounds(a, bits)
    blow, bhigh = unsigned_bounds(b, bits)
    fits = ahigh <= MASKS[bits] // np.maximum(bhigh, U64(1))
    low = np.where(fits, alow * blow, U64(0))
    high = np.where(fits, ahigh * bhigh, MASKS[bits])
    return from_bounds(low, high, bits, reason(a, b))


def _scale(a: Lanes, factor: Words, bits: int) -> Lanes:
    """An unknown value times an exact one, which counts as signed."""
    span = spans(a)
    negative = factor > U64(MASK[bits] >> 1)
    size = np.where(negative, (U64(0) - factor) & MASKS[bits], factor)
    fits = span <= MASKS[bits] // np.maximum(size, U64(1))
    start = np.where(negative, a.lo + span, a.lo) * factor
    wide = np.where(fits, span * size, MASKS[bits])
    return settle(np.where(fits, start, U64(0)), wide, bits, a.why)


def truncate(a: Lanes, bits: int) -> Lanes:
    """The low bits of a wider value."""
    if bits == 64:
        return a
    if a.slopes:
        return sloped(truncate(flat(a), bits), a.slopes, bits)
    if a.span is None:
        result = Lanes(a.lo & MASKS[bits])
    else:
        result = settle(a.lo, np.minimum(a.span, MASKS[bits]), bits, a.why)
    result.kind = LOW if a.kind in (POINTER, MIXED) else a.kind
    return result


def zero_extend(a: Lanes, bits: int) -> Lanes:
    """A value of `bits` bits as an unsigned 64-bit one."""
    if a.slopes and bits < 64:
        return of_kind(sloped_extension(a, bits, signed=False), a.kind)
    if a.span is None or bits == 64:
        return a
    low, high = unsigned_bounds(a, bits)
    return of_kind(settle(low, high - low, 64, a.why), a.kind)


def sign_extend(a: Lanes, bits: int) -> Lanes:
    """A value of `bits` bits as a signed 64-bit one."""
    if bits == 64:
        return a
    if a.slopes:
        return of_kind(sloped_extension(a, bits, signed=True), a.kind)
    half = U64(1 << (bits - 1))
    if a.span is None:
        return Lanes((a.lo ^ half) - half, kind=a.kind)
    low, high = biased_bounds(a, bits)
    return of_kind(settle(low - half, high - low, 64, a.why), a.kind)


def join(a: Lanes, b: Lanes, bits: int) -> Lanes:
    """A value that holds both."""
    if a is b:
        return a
    if a.slopes or b.slopes:
        a, b, slopes = sloped_join(a, b)
        return sloped(join(a, b, bits), slopes, bits)
    kind = max(a.kind, b.kind)
    if kind and bits == 64 and (_is_anything(a) or _is_anything(b)):
        return of_kind(unknown(64, reason(a, b)), kind)
    if kind and bits == 64 and (a.options or b.options or not is_near(a, b)):
        return one_of((a, b), reason(a, b))
    return of_kind(hull(a, b, bits), kind)


def hull(a: Lanes, b: Lanes, bits: int) -> Lanes:
    """The shortest interval that holds both."""
    aspan, bspan = spans(a), spans(b)
    from_a = _reach(a.lo, aspan, b.lo, bspan, bits)
    from_b = _reach(b.lo, bspan, a.lo, aspan, bits)
    first = from_a <= from_b
    lo = np.where(first, a.lo, b.lo)
    span = np.where(first, from_a, from_b)
    if bits == 64:
        # Two objects apart: no anchor may stand for both.
        lo = np.where((span >= WIDE_SPAN) & _apart(a, b), U64(0), lo)
    return settle(lo, span, bits, reason(a, b), keeps_anchor=True)


def _is_anything(value: Lanes) -> bool:
    """Whether a 64-bit value is unknown in every thread, and in no object."""
    if value.span is None or value.options:
        return False
    return bool((value.span == MASKS[64]).all()) and not value.lo.any()


def _apart(a: Lanes, b: Lanes) -> Flags:
    return (b.lo - a.lo + FAR_APART) >= FAR_APART + FAR_APART


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
    lo = np.where(mask, new.lo, old.lo)
    if new.span is None and old.span is None:
        return Lanes(lo, kind=kind)
    span = np.where(mask, spans(new), spans(old))
    return Lanes(lo, span, reason(new, old), kind) if span.any() else Lanes(lo, kind=kind)


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
    if prod(map(len, choices)) > MOST_OPTIONS**2:
        return of_kind(unknown(64, reason(*values)), HARD)
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
