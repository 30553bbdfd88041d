"""Sets of threads at a place (`Mask`), against the same thread by thread."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tessera.passes.lane_values.lanes import U64, Lanes
from tessera.passes.lane_values.masks import ALL, Mask, same_threads, selected

SETS = ("may", "strong", "sure")


def some_mask(draw, shape):
    """All threads, or some: those that are surely here are strong, and those may be here."""
    if draw.random() < 0.2:
        return Mask(ALL, ALL, ALL)
    flags = np.array([draw.random() for _ in range(np.prod(shape))]).reshape(shape)
    may, strong = flags < draw.choice((0.9, 2.0)), flags < draw.choice((0.5, 0.9, 2.0))
    strong = strong & may
    return draw.choice((Mask(may, may, may), Mask(may, strong, strong & (flags < 0.4))))


def some_predicate(draw, shape):
    """What is known of a predicate, and its numbers in one run."""
    numbers = np.array([draw.randrange(2) for _ in range(np.prod(shape))]).reshape(shape)
    is_open = np.array([draw.random() < 0.3 for _ in range(np.prod(shape))]).reshape(shape)
    if draw.random() < 0.4:
        return Lanes(numbers.astype(U64)), numbers.astype(np.bool_)
    low = np.where(is_open, 0, numbers).astype(U64)
    return Lanes(low, is_open.astype(U64)), numbers.astype(np.bool_)


def threads_of(mask, shape):
    if mask is None:
        return {name: np.zeros(shape, dtype=np.bool_) for name in SETS}
    return {name: np.broadcast_to(getattr(mask, name), shape) for name in SETS}


@pytest.mark.parametrize("shape", [(1, 5), (3, 4)])
def test_sets_of_threads(shape):
    draw = random.Random(str(shape))
    for _ in range(400):
        mask, other = some_mask(draw, shape), some_mask(draw, shape)
        first, second = threads_of(mask, shape), threads_of(other, shape)
        both = threads_of(mask.union(other), shape)
        condition, holds = some_predicate(draw, shape)
        known = condition.span is None or ~condition.span.astype(np.bool_)
        narrow, rest = (
            threads_of(mask.narrow(condition), shape),
            threads_of(mask.without(holds), shape),
        )
        passed = threads_of(mask.unless(condition), shape)
        for name in SETS:
            assert (both[name] == first[name] | second[name]).all()
            expected = first[name] & ((holds & known) | (~known if name == "may" else False))
            assert (narrow[name] == expected).all()
            assert (rest[name] == first[name] & ~holds).all()
            assert (passed[name] == first[name] & ~(holds & known)).all()
        assert mask.any() == first["may"].any()
        assert mask.everybody == first["strong"].all()
        assert same_threads(mask.may, other.may) == (
            mask.may.shape == other.may.shape and (first["may"] == second["may"]).all()
        )
        (chosen,) = selected(mask.may, np.arange(shape[1])[None, :])
        assert chosen.tolist() == np.broadcast_to(np.arange(shape[1]), shape)[
            first["may"]
        ].tolist() or (mask.may is ALL)
