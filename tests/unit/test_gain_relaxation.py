"""The linear program of `benchmarks/gain/relaxation.py` against all plans of small cases."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from math import inf

import pytest

from benchmarks.gain.bars import _balanced
from benchmarks.gain.enumerated import best_plan, random_case
from benchmarks.gain.relaxation import Allowed, Kind, Part, Served, most
from tests.helpers.share import share


@pytest.mark.slow
def test_no_plan_beats_the_program_and_half_of_them_are_near() -> None:
    near, plans = 0, 0
    for seed in (330, *share(range(18))):  # `benchmarks.gain.program small` takes 500
        served = random_case(seed)
        best, bound = best_plan(served), most(served)
        assert best <= (0.0 if bound is None else bound.rate * (1 + 1e-6)), seed
        plans += best > 0
        near += bound is not None and 0 < bound.rate <= 1.1 * best
    assert near >= plans / 2


def _one(batch: int, **changes: object) -> Served:
    """A GPU that is limited by one thing: 10 ms for a step in any batch, 1 GB per sequence."""
    part = Part(decode=((1e7, 1e7),), prompt=(0.0,), weights=4e9, kept=1e9)
    kind = Kind(count=1, memory=(4.0 + batch) * 1e9)
    made = Served(kinds=(kind,), parts=(part,), passed=(), prompted=(), batches=(1, 100), steps=1.0)
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("batch", [1, 7, 100])
def test_memory_decides_the_batch(batch: int) -> None:
    bound = most(_one(batch))
    assert bound is not None
    assert bound.rate == pytest.approx(batch * 1e2, rel=3e-3)


@pytest.mark.parametrize("batch", [1, 7])
def test_states_are_where_attention_runs(batch: int) -> None:
    served = _one(batch)
    part = replace(served.parts[0], decode=((1e7, 1e7), (inf, inf)), prompt=(0.0, 0.0), weights=1.0)
    kinds = Kind(count=1, memory=batch * 1e9 + 1), Kind(count=1, memory=1e12)
    bound = most(replace(served, kinds=kinds, parts=(part,)))
    assert bound is not None
    assert batch <= bound.rate / 1e2 < 1.4 * batch  # a quarter of the states may be anywhere


def test_what_does_not_fit_has_no_bound() -> None:
    assert most(_one(0)) is None
    assert most(_one(-1)) is None


def test_limits_and_batches_are_kept() -> None:
    assert most(_one(8, tpot=9e6)) is None
    bound = most(_one(8), Allowed(batch=2.0))
    assert bound is not None
    assert bound.rate == pytest.approx(2e2, rel=3e-3)


def test_a_demand_has_the_least_price() -> None:
    served = _one(10)
    dear, cheap = (replace(served.kinds[0], usd=usd, wire=inf) for usd in (3.0, 2.0))
    part = replace(served.parts[0], decode=((1e7, 1e7), (2e7, 2e7)), prompt=(0.0, 0.0))
    both = replace(served, kinds=(dear, cheap), parts=(part,), demand=2e3)
    bound = most(both, Allowed(spread=False))
    assert bound is not None
    assert bound.usd == pytest.approx(6.0, rel=3e-3)  # two of the dear, or four of the cheap


def test_units_divide_their_time_as_well_as_any_grid_does() -> None:
    draw = random.Random(0)
    for _ in range(20):
        roles = [(draw.uniform(0.0, 9.0), draw.uniform(0.0, 9.0)) for _ in range(2)]
        grid = [n / 40 for n in range(41)]
        tried = [
            min(
                sum(part * reads for part, (reads, _) in zip(parts, roles, strict=True)),
                sum((1 - part) * makes for part, (_, makes) in zip(parts, roles, strict=True)),
            )
            for parts in product(grid, repeat=2)
        ]
        assert max(tried) <= _balanced(roles) * (1 + 1e-9)
        assert _balanced(roles) <= max(tried) + 0.25
