"""What predicates tell of the symbols in what was compared (`symbols`).

In: a comparison, or a boolean instruction on predicates, with its operands. Out: `PredicateFacts`:
bounds that hold if the predicate is true, and if it is false.

A comparison of whole numbers `a < b` says `a < max(b)` and `b > min(a)`. It says something of the
symbols in `a` only where `a`'s form is a sum of whole numbers that does not leave the range of its
type. An unsigned comparison is one of whole numbers where its answer leaves one half of the type.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tessera.ir.arrays import Flags, Signed
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import U64, Lanes, single
from tessera.passes.lane_values.symbols import (
    Bounds,
    PredicateFacts,
    SumBound,
    SymbolForm,
    all_of,
    joined,
    only_where,
    total,
)

_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}
_SWAPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}
_BOTTOM, _TOP = -(1 << 63), (1 << 63) - 1


def comparison_facts(
    operator: str, a: Lanes, b: Lanes, bits: int, *, signed: bool
) -> PredicateFacts | None:
    """What a comparison tells of its operands, which have no slopes."""
    if operator in {"eq", "ne"} and a.facts is not None and single(b) == 0:
        return a.facts if operator == "ne" else inverted(a.facts)
    if (a.form is None and b.form is None) or operator not in _OPPOSITE:
        return None
    if a.kind or b.kind:
        return None
    sides = []
    for name in (operator, _OPPOSITE[operator]):
        bounds = _told(name, a, b, bits, signed), _told(_SWAPPED[name], b, a, bits, signed)
        sides.append(tuple(bound for bound in bounds if bound is not None))
    return PredicateFacts(*sides) if any(sides) else None


def _told(operator: str, a: Lanes, b: Lanes, bits: int, signed: bool) -> SumBound | None:
    """What `a operator b` tells of `a`."""
    if a.form is None or operator == "ne":
        return None
    half = 1 << (bits - 1)
    others = (lanes.biased_bounds if signed else lanes.unsigned_bounds)(b, bits)
    least, most = int(others[0].min()), int(others[1].max())
    # Whole numbers in the order of the comparison, from 0 on.
    low, high = 0, 2 * half - 1
    if operator in {"lt", "le"}:
        high = most - (operator == "lt")
    elif operator in {"gt", "ge"}:
        low = least + (operator == "gt")
    else:
        low, high = least, most
    if low > high:
        return None
    if signed:
        return _within(a, low - half, high - half, bits, -half)
    if low >= half:
        return _within(a, low - 2 * half, high - 2 * half, bits, -half)
    # Numbers of both halves of the type are two ranges of signed numbers.
    return _within(a, low, min(high, half - 1), bits, 0 if high >= half else -half)


def _within(a: Lanes, low: int, high: int, bits: int, floor: int) -> SumBound | None:
    """The bound of the symbols of `a`, whose signed number is from `low` to `high`; None if it may
    be below `floor`."""
    assert a.form is not None
    sums = total(a.form.terms)
    if sums is None:
        return None
    half = 1 << (bits - 1)
    at = _as_signed(a.form, bits)
    least, most = int(sums[0].min()) + int(at.min()), int(sums[1].max()) + int(at.max())
    if not _is_whole(least, most, floor, half - 1):
        return None
    first = max(low, least) - at
    last = min(high, most) - at
    first, last = np.maximum(first, sums[0]), np.minimum(last, sums[1])
    bound = SumBound(a.form.terms, first, last)
    where = a.form.where
    return bound if where.all() else next(iter(only_where([bound], where)), None)


def _is_whole(least: int, most: int, first: int, last: int) -> bool:
    """Whether a sum over whole numbers stays in the range that its value has."""
    return first <= least and most <= last


def _as_signed(form: SymbolForm, bits: int) -> Signed:
    if bits == 64:
        whole: Signed = form.at.view(np.int64)
        return whole
    half = 1 << (bits - 1)
    turned: Signed = ((form.at + U64(half)) & U64(2 * half - 1)).astype(np.int64)
    return turned - half


def inverted(facts: PredicateFacts | None) -> PredicateFacts | None:
    """The facts of the negation."""
    return None if facts is None else PredicateFacts(facts.false, facts.true)


def combined_facts(name: str, values: Sequence[Lanes]) -> PredicateFacts | None:
    """The facts of `and` or `or` of two predicates."""
    if all(value.facts is None for value in values):
        return None
    a, b = values[0], values[1]
    sides = []
    for side in (True, False):
        if side == (name == "and"):
            # Both are so.
            sides.append(all_of((*_of(a, side), *_of(b, side))))
            continue
        # One of them is so: that of which it is open, where the other one surely is not.
        alone = (
            *only_where(_of(a, side), _surely(b, not side)),
            *only_where(_of(b, side), _surely(a, not side)),
        )
        sides.append(all_of((*alone, *joined(_of(a, side), _of(b, side)))))
    return PredicateFacts(*sides) if any(sides) else None


def _of(value: Lanes, side: bool) -> Bounds:
    facts = value.facts or PredicateFacts()
    return facts.true if side else facts.false


def _surely(value: Lanes, side: bool) -> Flags:
    known: Flags = (value.low() == U64(side)) & (lanes.spans(value) == U64(0))
    return known


def selected_facts(values: Sequence[Lanes]) -> PredicateFacts | None:
    """What a selected number tells if it is not 0: `selp` of a number and 0."""
    first, second, condition = values
    true: Bounds
    if second.span is None and not second.slopes and not second.start.any():
        true = all_of((*_of(condition, True), *_of(first, True)))
    elif first.span is None and not first.slopes and not first.start.any():
        true = all_of((*_of(condition, False), *_of(second, True)))
    else:
        return None
    return PredicateFacts(true) if true else None
