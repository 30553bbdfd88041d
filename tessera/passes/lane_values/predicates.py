"""Predicates over `Lanes`: true, false, or unknown per thread.

In: predicates. Out: what boolean instructions make of them. Predicates have no slopes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import U64, Lanes

Values = Sequence[Lanes]


def _both(values: Values) -> Lanes:
    a, b = values
    low = a.lo & b.lo
    high = (a.lo + lanes.spans(a)) & (b.lo + lanes.spans(b))
    return lanes.settle(low, high - low, 1, lanes.reason(a, b))


def _either(values: Values) -> Lanes:
    a, b = values
    low = a.lo | b.lo
    high = (a.lo + lanes.spans(a)) | (b.lo + lanes.spans(b))
    return lanes.settle(low, high - low, 1, lanes.reason(a, b))


def _differ(values: Values) -> Lanes:
    a, b = values
    open_ = lanes.spans(a) | lanes.spans(b)
    return lanes.settle((a.lo ^ b.lo) & ~open_, open_, 1, lanes.reason(a, b))


def invert(value: Lanes) -> Lanes:
    """The opposite of a predicate."""
    span = lanes.spans(value)
    return lanes.settle((U64(1) - value.lo) & ~span, span, 1, value.why)


PREDICATES: dict[str, Callable[[Values], Lanes]] = {
    "mov": lambda values: values[0],
    "and": _both,
    "or": _either,
    "xor": _differ,
    "not": lambda values: invert(values[0]),
}
