"""Values with the intervals that their forms give, by what is assumed of symbols now (`symbols`).

In: a value. Out: the same value, with a shorter interval or without names.
"""

from __future__ import annotations

import numpy as np

from tessera.passes.lane_values import symbols
from tessera.passes.lane_values.lanes import WIDE_SPAN, BySign, Lanes, copied


def unnamed(value: Lanes) -> Lanes:
    """The same value without what is known of symbols."""
    if value.form is None and value.facts is None and value.signs is None:
        return value
    copy = copied(value)
    copy.form = copy.facts = copy.signs = None
    return copy


def narrowed(value: Lanes, bits: int, *, wide: bool = False) -> Lanes:
    """A value of `bits` bits with the interval that its form gives, where that is shorter.

    Of 64 bits an interval is not `WIDE`, unless the caller uses it as a number at once (`wide`).
    """
    if value.signs is not None:
        key, negative, other = value.signs
        sides = (narrowed(negative, bits, wide=wide), narrowed(other, bits, wide=wide))
        if sides != (negative, other):
            value = copied(value)
            value.signs = BySign(key, *sides)
    if value.form is None or value.span is None or value.options:
        return value
    reached = symbols.interval(value.form, bits)
    if reached is None:
        return value
    lo, span, where = reached
    better = where & (span < value.span)
    if bits == 64 and not wide:
        better = better & (span < WIDE_SPAN)
    if not better.any():
        return value
    span = np.where(better, span, value.span)
    start = np.where(better, lo, value.start)
    result = Lanes(start, span if span.any() else None, value.why, value.kind)
    result.choice, result.slopes = value.choice, value.slopes
    result.form, result.facts, result.signs = value.form, value.facts, value.signs
    return result
