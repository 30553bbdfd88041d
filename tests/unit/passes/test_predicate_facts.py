"""What predicates tell of numbers: merged again and again, it stays as much and stays true."""

from __future__ import annotations

import numpy as np

from tessera.passes.lane_values.facts import combined_facts, inverted
from tessera.passes.lane_values.lanes import U64, Lanes
from tessera.passes.lane_values.symbols import (
    Assumptions,
    PredicateFacts,
    SumBound,
    all_of,
    merged_facts,
)

ROUNDS = 12
MASK = np.array([[True, False, True]])


def bound(symbol: object, low: int, high: int) -> SumBound:
    return SumBound(((symbol, 1),), np.array([[low]]), np.array([[high]]))  # type: ignore[arg-type]


def test_a_loop_that_merges_what_it_negates_has_no_more_facts() -> None:
    symbol = Assumptions().fresh(np.array([[0]]), np.array([[99]]))
    facts = PredicateFacts((bound(symbol, 5, 20),), (bound(symbol, 0, 4),))
    for _ in range(ROUNDS):
        made = merged_facts(MASK, inverted(facts), facts)
        assert [len(side) for side in made] == [1, 1]
        # Of each thread, what the predicate told that it has.
        (true,) = made.true
        before = np.broadcast_to(facts.true[0].low, MASK.shape)
        other = np.broadcast_to(facts.false[0].low, MASK.shape)
        assert (true.low == np.where(MASK, other, before)).all()
        facts = made


def test_a_predicate_and_itself_has_no_more_facts() -> None:
    symbol = Assumptions().fresh(np.array([[0]]), np.array([[99]]))
    value = Lanes(np.zeros((1, 1), U64), np.ones((1, 1), U64), 0)
    value.facts = PredicateFacts((bound(symbol, 5, 20),), (bound(symbol, 0, 4),))
    for name in ("and", "or") * ROUNDS:
        value.facts = combined_facts(name, [value, value])
        assert value.facts is not None
        assert max(map(len, value.facts)) <= 1


def test_bounds_that_all_hold_are_one_of_each_sum() -> None:
    first, second = (Assumptions().fresh(np.array([[0]]), np.array([[9]])) for _ in range(2))
    both = all_of([bound(first, 1, 8), bound(second, 2, 3), bound(first, 0, 5)])
    assert [(b.terms[0][0], int(b.low[0, 0]), int(b.high[0, 0])) for b in both] == [
        (first, 1, 5),
        (second, 2, 3),
    ]
