"""The integer program behind a fleet, against all counts of all units."""

from __future__ import annotations

import itertools
import random

import pytest

from tessera.driver.fleet.mix import Mix, Offer, cheapest_mix, fastest_mix

FLEETS = 200


def _fleet(seed: int) -> tuple[list[Offer], list[float], float]:
    """Two or three kinds with up to four GPUs each, units of several strategies and sizes."""
    draw = random.Random(seed)
    kinds = draw.choice((1, 2, 2, 3))
    prices = [draw.choice((0.0, 0.5, 1.0, 1.59, 2.0, 3.29)) for _ in range(kinds)]
    offers = []
    for _ in range(draw.randint(1, 5)):
        gpus = [0] * kinds
        for _ in range(draw.choice((1, 1, 2, 3))):
            gpus[draw.randrange(kinds)] += 1
        rate = draw.choice((0.0, round(draw.uniform(0.5, 9.0), 2)))
        usd = sum(n * price for n, price in zip(gpus, prices, strict=True))
        offers.append(Offer(rate, usd, tuple(gpus)))
    most = [float(draw.randint(0, 4)) for _ in range(kinds)]
    return offers, most, round(draw.uniform(0.1, 25.0), 2)


def _all_mixes(offers: list[Offer], most: list[float]) -> list[Mix]:
    ranges = [range(int(max(most)) + 1) for _ in offers]
    mixes = (Mix(counts) for counts in itertools.product(*ranges))
    return [mix for mix in mixes if mix.is_within(offers, most)]


@pytest.mark.parametrize("part", range(4))
def test_the_cheapest_mix_costs_what_brute_force_finds(part: int) -> None:
    served = 0
    for seed in range(part * FLEETS // 4, (part + 1) * FLEETS // 4):
        offers, most, demand = _fleet(seed)
        enough = [m for m in _all_mixes(offers, most) if m.rate(offers) >= demand]
        mix = cheapest_mix(offers, most, demand)
        assert (mix is not None) == bool(enough), seed
        if mix is None:
            continue
        served += 1
        assert mix.is_within(offers, most), seed
        assert mix.rate(offers) >= demand * (1 - 1e-9), seed
        least = min(other.usd_per_hour(offers) for other in enough)
        assert mix.usd_per_hour(offers) == pytest.approx(least, abs=1e-9), seed
    assert served > 5


def test_the_fastest_mix_serves_what_brute_force_finds_and_is_the_cheapest_such() -> None:
    for seed in range(60):
        offers, most, _ = _fleet(seed)
        mixes = _all_mixes(offers, most)
        best = max(mix.rate(offers) for mix in mixes)
        mix = fastest_mix(offers, most)
        if best == 0:
            assert mix is None or mix.rate(offers) == 0
            continue
        assert mix is not None
        assert mix.rate(offers) == pytest.approx(best, rel=1e-6), seed
        near = [m.usd_per_hour(offers) for m in mixes if m.rate(offers) >= best * (1 - 1e-7)]
        assert mix.usd_per_hour(offers) == pytest.approx(min(near), abs=1e-9), seed


def test_of_equally_cheap_mixes_the_one_with_fewer_gpus_is_taken() -> None:
    offers = [Offer(5.0, 2.0, (1,)), Offer(5.0, 2.0, (2,))]
    mix = cheapest_mix(offers, [8.0], 5.0)
    assert mix is not None
    assert mix.counts == (1, 0)


def test_fleets_of_thousands() -> None:
    offers = [Offer(8.9, 1.59, (1, 0)), Offer(6.3, 0.99, (0, 1)), Offer(16.0, 2.58, (1, 1))]
    mix = cheapest_mix(offers, [20_000.0, 5_000.0], 50_000.0)
    assert mix is not None
    assert mix.rate(offers) >= 50_000.0 * (1 - 1e-9)
    assert mix.gpus(offers)[1] >= 4_990  # the cheaper per request, about all of it
    assert cheapest_mix(offers, [100.0, 100.0], 50_000.0) is None


def test_no_demand_needs_nothing() -> None:
    assert cheapest_mix([Offer(1.0, 1.0, (1,))], [3.0], 0.0) == Mix((0,))
