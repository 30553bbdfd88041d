"""Values that grow with digits of the CTA's number: sums, choices, and where they leave a range.

In: `Lanes` with slopes. A value of w bits is `start + sum(slope * digit)` modulo 2**w, so sums and
products by numbers are exact as they are. Whatever asks for the number itself (extensions,
comparisons, quotients) first needs a `WholeForm`: the same sum over whole numbers, which holds
where it stays in the range of the type for all values of the digits. Where it does not, or where a
question has different answers, `Split` is raised with the place to cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tessera.ir.arrays import Flags, Signed, Words
from tessera.passes.lane_values.digits import Digit, RoundDigit, RoundLimit, Split
from tessera.passes.lane_values.lanes import MASK, MASKS, U64, WIDE_SPAN, Lanes, Slopes, sloped

_MOST = 1 << 62
_MOST_APART = 1024
IntegerSlopes = dict[Digit, Signed]


class WholeForm(NamedTuple):
    """Whole numbers: a start and a slope per digit, plus up to `span` if data decides."""

    start: Signed
    slopes: IntegerSlopes
    span: Signed


def apart(slopes: Slopes, mask: Flags, start: Words) -> Iterator[tuple[Flags, Slopes]]:
    """The threads of a mask, apart where they grow differently, or for another number of rounds.

    `start` is what grows: of CTAs with the same, those with the most rounds stand for all.
    """
    plain = not any(isinstance(digit, RoundDigit) for digit in slopes)
    if plain and all(slope.size == 1 for slope in slopes.values()):
        yield mask, slopes
        return
    lasts = {d: d.last for d in slopes if isinstance(d, RoundDigit)}
    if len(lasts) == 1:
        mask, lasts = _longest(slopes, mask, start, lasts)
    arrays: list[Words] = [*slopes.values(), *(last.view(U64) for last in lasts.values())]
    shape = np.broadcast_shapes(mask.shape, *(array.shape for array in arrays))
    arrays = [np.broadcast_to(array, shape) for array in arrays]
    rest = np.broadcast_to(mask, shape).copy()
    for _ in range(_MOST_APART):
        if not rest.any():
            return
        place = int(np.argmax(rest))
        alike = rest.copy()
        for array in arrays:
            alike &= array == array.flat[place]
        rest &= ~alike
        yield alike, _plain_slopes(slopes, lasts, [int(array.flat[place]) for array in arrays])
    if rest.any():
        raise Split(tuple(slopes))


def collapsed(value: Lanes, mask: Flags) -> Lanes:
    """A value of the threads of a mask, with one CTA for those along an axis that have the same."""
    arrays = [value.start, *([] if value.span is None else [value.span]), *value.slopes.values()]
    shape = np.broadcast_shapes(mask.shape, *(array.shape for array in arrays))
    here = np.broadcast_to(mask, shape)
    for axis in range(len(shape) - 1):
        if shape[axis] == 1:
            continue
        some = np.asarray(here.any(axis=axis, keepdims=True))
        lows = [_masked(array, here, MASKS[64]).min(axis=axis, keepdims=True) for array in arrays]
        highs = [_masked(array, here, U64(0)).max(axis=axis, keepdims=True) for array in arrays]
        pairs = zip(lows, highs, strict=True)
        if all(bool(((low == high) | ~some).all()) for low, high in pairs):
            arrays, here = [np.where(some, low, U64(0)) for low in lows], some
    rest = iter(arrays)
    narrow = Lanes(next(rest), None if value.span is None else next(rest), value.why, value.kind)
    narrow.options = value.options
    narrow.slopes = dict(zip(value.slopes, rest, strict=True))
    return narrow


def _masked(array: Words, mask: Flags, other: np.uint64) -> Words:
    return np.where(mask, array, other)


def _longest(
    slopes: Slopes, mask: Flags, start: Words, lasts: dict[RoundDigit, Signed]
) -> tuple[Flags, dict[RoundDigit, Signed]]:
    """One CTA for those along an axis that nothing but the number of rounds depends on."""
    ((digit, last),) = lasts.items()
    grown = np.broadcast_shapes(start.shape, *(slope.shape for slope in slopes.values()))
    # All with the same axes, however many of the first ones are left out somewhere.
    shape = np.broadcast_shapes(mask.shape, last.shape, (1,) * len(grown))
    counts = np.where(mask, np.broadcast_to(last, shape), -1)
    grown = (1,) * (len(shape) - len(grown)) + grown
    for axis in range(len(shape)):
        if grown[axis] == 1:
            counts = counts.max(axis=axis, keepdims=True)
    return counts >= 0, {digit: counts}


def _plain_slopes(slopes: Slopes, lasts: dict[RoundDigit, Signed], numbers: list[int]) -> Slopes:
    """Slopes of threads that grow alike; rounds as any other digit."""
    plain: Slopes = {}
    for place, digit in enumerate(slopes):
        count = digit.count
        if digit in lasts:
            count = numbers[len(slopes) + list(lasts).index(digit)] + 1
        if numbers[place] and count > 1:
            known = digit if digit not in lasts else Digit(digit.axis, digit.stride, count)
            plain[known] = np.array([[numbers[place]]], dtype=U64)
    return plain


def steps_of(slopes: Slopes) -> tuple[tuple[int, int], ...]:
    """Distances and counts of slopes that are the same for all threads."""
    return tuple((int(s.view(np.int64).flat[0]), digit.count) for digit, s in slopes.items())


# --- whole numbers -------------------------------------------------------------------------


def form(value: Lanes, bits: int, digits: tuple[Digit, ...], *, signed: bool) -> WholeForm:
    """A value as whole numbers in the range of its type; `digits` are spelled out if need be."""
    slopes = {digit: _signed(slope, bits) for digit, slope in value.slopes.items()}
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, MASK[bits])
    span = np.zeros((1, 1), dtype=np.int64)
    start: Signed = value.start.view(np.int64)
    if value.span is not None:
        if (value.span >= (WIDE_SPAN if bits == 64 else MASKS[bits])).any():
            if bits == 64 or slopes:
                raise Split(digits)
            start = np.where(value.span >= MASKS[bits], least, start)
        span = value.span.astype(np.int64)
    check(start, slopes, digits, span)
    start, outside = _turned(start, slopes, span, (least, most), bits)
    if not outside.any():
        return WholeForm(start, slopes, span)
    if value.span is not None:
        if slopes or bits == 64:
            raise Split(digits)
        # Past the end of the range: anything in it.
        whole = np.where(outside, MASK[bits], span)
        return WholeForm(np.where(outside, least, start), slopes, whole)
    for limit in (least, most + 1):
        if -_MOST < limit < _MOST:
            nonnegative(start - limit, slopes, outside)
    raise Split(digits)


def low_form(value: Lanes, bits: int, digits: tuple[Digit, ...]) -> WholeForm:
    """Whole numbers that are equal to an exact value modulo 2**bits."""
    slopes = {digit: _signed(slope, bits) for digit, slope in value.slopes.items()}
    start: Signed = value.start.view(np.int64)
    check(start, slopes, digits)
    return WholeForm(start, slopes, np.zeros((1, 1), dtype=np.int64))


def _turned(
    start: Signed, slopes: IntegerSlopes, span: Signed, limits: tuple[int, int], bits: int
) -> tuple[Signed, Flags]:
    """The numbers, less 2**bits if that brings them into a range; and where it does not."""
    least, most = limits
    low, high = bounds(start, slopes)
    high = high + span
    if bits == 64:
        return start, low < least
    turn = 1 << bits
    outside: Flags = (low < least) | (high > most)
    inside = (low - turn >= least) & (high - turn <= most)
    return np.where(outside & inside, start - turn, start), outside & ~inside


def _signed(slope: Words, bits: int) -> Signed:
    if bits == 64:
        return slope.view(np.int64)
    numbers = slope.astype(np.int64)
    return np.where(numbers >= 1 << (bits - 1), numbers - (1 << bits), numbers)


def from_form(given: WholeForm, bits: int, why: int = -1) -> Lanes:
    """The value of `bits` bits with these numbers."""
    span = given.span.astype(U64) if given.span.any() else None
    value = Lanes(given.start.view(U64) & MASKS[bits], span, why if span is not None else -1)
    return sloped(value, {digit: s.view(U64) for digit, s in given.slopes.items()}, bits)


def bounds(start: Signed, slopes: IntegerSlopes) -> tuple[Signed, Signed]:
    """The least and the greatest number over all values of the digits."""
    low = high = start
    for digit, slope in slopes.items():
        reach = slope * digit.last
        low = low + np.minimum(reach, 0)
        high = high + np.maximum(reach, 0)
    return low, high


def check(
    start: Signed, slopes: IntegerSlopes, digits: tuple[Digit, ...], span: Signed | None = None
) -> None:
    """Raise `Split` if a number of a form is too large to count with: the digits are then spelled
    out."""
    total = max(abs(int(start.min())), abs(int(start.max())))
    for digit, slope in slopes.items():
        total += max(abs(int(slope.min())), abs(int(slope.max()))) * digit.most
    if span is not None:
        total += int(span.max())
    if total >= _MOST:
        raise Split(digits)


def nonnegative(start: Signed, slopes: IntegerSlopes, where: Flags | None = None) -> Flags:
    """Whether each thread's number is at least 0, the same for all values of the digits.

    `where` says for which threads the answer matters.
    """
    low, high = bounds(start, slopes)
    known: Flags = low >= 0
    open_ = ~known & (high >= 0)
    if where is not None:
        open_ = open_ & where
    if not open_.any():
        return known
    rounds = [digit for digit in slopes if isinstance(digit, RoundDigit)]
    if rounds:
        _limit(start, slopes, open_, rounds[-1])
    raise _cut(start, slopes, open_)


def _limit(start: Signed, slopes: IntegerSlopes, open_: Flags, digit: RoundDigit) -> None:
    """Raise `RoundLimit` with the number of rounds for which the answer of round 0 holds."""
    rest = {other: slope for other, slope in slopes.items() if other is not digit}
    nonnegative(start, rest, open_)
    low, high = bounds(start, rest)
    step = slopes[digit]
    size = np.maximum(np.abs(step), 1)
    held = np.where(low >= 0, low // size, (-high - 1) // size) + 1
    raise RoundLimit(digit, np.where(open_, held, -1))


def _cut(start: Signed, slopes: IntegerSlopes, open_: Flags) -> Split:
    """Where to cut the digit that moves the numbers most, so that fewer threads are open."""
    shape = np.broadcast_shapes(start.shape, open_.shape, *(s.shape for s in slopes.values()))
    places = np.broadcast_to(open_, shape)
    first = np.broadcast_to(start, shape)[places]
    steps = {digit: np.broadcast_to(s, shape)[places] for digit, s in slopes.items()}
    widest = max(steps, key=lambda digit: int(np.abs(steps[digit]).max()) * digit.most)
    step = steps.pop(widest)
    low, high = bounds(first, steps)
    size = np.maximum(np.abs(step), 1)
    # A thread's answer is one for all other digits before `begin`, and one from `end` on.
    up = step > 0
    begin = np.where(up, -(high // size), low // size + 1)
    end = np.where(up, -(low // size), high // size + 1)
    begin = np.where(step == 0, 0, np.clip(begin, 0, widest.count))
    end = np.where(step == 0, widest.count, np.clip(end, 0, widest.count))
    cuts = sorted({int(begin.min()), int(end.max())} - {0, widest.count})
    return Split((widest,), tuple(cuts))
