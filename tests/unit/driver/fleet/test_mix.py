"""The integer program behind a fleet, against all counts of all units."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from tessera.driver.fleet.engines import EngineRole
from tessera.driver.fleet.mix import Mix, Offer, Roads, cheapest_mix, fastest_mix
from tests.helpers.share import least, share

FLEETS = 200
BOTH, PROMPTS, ANSWERS = EngineRole.BOTH, EngineRole.PROMPTS, EngineRole.ANSWERS


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


def test_the_cheapest_mix_costs_what_brute_force_finds() -> None:
    served = 0
    for seed in share(range(FLEETS)):
        offers, most, demand = _fleet(seed)
        enough = [m for m in _all_mixes(offers, most) if m.rate(offers) >= demand]
        mix = cheapest_mix(offers, most, demand)
        assert (mix is not None) == bool(enough), seed
        if mix is None:
            continue
        served += 1
        assert mix.is_within(offers, most), seed
        assert mix.rate(offers) >= demand * (1 - 1e-9), seed
        lowest = min(other.usd_per_hour(offers) for other in enough)
        assert mix.usd_per_hour(offers) == pytest.approx(lowest, abs=1e-9), seed
    assert served > least(50, 2)


def test_the_fastest_mix_serves_what_brute_force_finds_and_is_the_cheapest_such() -> None:
    for seed in share(range(60)):
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


# --- pools ----------------------------------------------------------------------------------------


def _pools(seed: int) -> tuple[list[Offer], list[float], float, Roads]:
    """Units that serve both phases or one, at up to three sites with some roads between them."""
    draw = random.Random(seed)
    kinds = draw.choice((1, 2, 2))
    prices = [draw.choice((0.5, 0.99, 1.59, 3.29)) for _ in range(kinds)]
    sites = draw.choice((1, 1, 2, 3))
    offers = []
    for number in range(draw.randint(3, 5)):
        gpus = [0] * kinds
        for _ in range(draw.choice((1, 1, 2))):
            gpus[draw.randrange(kinds)] += 1
        role = (PROMPTS, ANSWERS, draw.choice((BOTH, PROMPTS, ANSWERS)))[min(number, 2)]
        offers.append(
            Offer(
                rate=round(draw.uniform(0.5, 5.0 if role is BOTH else 15.0), 2),
                usd_per_hour=sum(n * price for n, price in zip(gpus, prices, strict=True)),
                gpus=tuple(gpus),
                role=role,
                site=draw.randrange(sites),
            )
        )
    every = list(itertools.product(range(sites), repeat=2))
    pairs = tuple(pair for pair in every if draw.random() < 0.8)
    # A limit on all roads together: what a min cut gives is then limited by it alone.
    limits = ((round(draw.uniform(1, 20), 2), tuple(range(len(pairs)))),) * draw.choice((0, 1))
    most = [float(draw.randint(1, 4)) for _ in range(kinds)]
    return offers, most, round(draw.uniform(0.1, 20.0), 2), Roads(pairs, limits)


def _most_handed(offers: list[Offer], counts: tuple[int, ...], roads: Roads) -> float:
    """The most hand-overs that pools and roads allow: the least cut between the two."""
    able = {
        role: [
            sum(n * o.rate for n, o in zip(counts, offers, strict=True)
                if o.role is role and o.site == site)
            for site in range(3)
        ]
        for role in (PROMPTS, ANSWERS)
    }  # fmt: skip
    cuts = []
    for kept in itertools.product((False, True), repeat=3):
        reached = {b for a, b in roads.pairs if kept[a]}
        cut = sum(r for r, stays in zip(able[PROMPTS], kept, strict=True) if not stays)
        cuts.append(cut + sum(able[ANSWERS][site] for site in reached))
    return min(*cuts, *(limit for limit, _ in roads.limits))


def test_pools_cost_and_serve_what_brute_force_over_all_counts_finds() -> None:
    pooled = 0
    for seed in share(range(240)):
        offers, most, demand, roads = _pools(seed)
        rates = {}
        for counts in itertools.product(range(int(max(most)) + 1), repeat=len(offers)):
            mix = Mix(counts)
            if all(n <= limit for n, limit in zip(mix.gpus(offers), most, strict=True)):
                rates[mix] = mix.rate(offers) + _most_handed(offers, counts, roads)
        fastest = fastest_mix(offers, most, roads)
        assert fastest is not None or max(rates.values()) == 0, seed
        if fastest is not None:
            assert fastest.is_within(offers, most, roads), seed
            assert fastest.rate(offers) == pytest.approx(max(rates.values()), rel=1e-6), seed
        enough = [m.usd_per_hour(offers) for m, rate in rates.items() if rate >= demand]
        mix = cheapest_mix(offers, most, demand, roads)
        assert (mix is not None) == bool(enough), seed
        if mix is not None:
            assert mix.is_within(offers, most, roads), seed
            assert mix.rate(offers) >= demand * (1 - 1e-9), seed
            assert mix.usd_per_hour(offers) == pytest.approx(min(enough), abs=1e-9), seed
            pooled += sum(mix.handed) > 0
    assert pooled > least(50, 4)


def _roles(seed: int) -> tuple[list[Offer], list[float], float]:
    """One to three sorts of units, each of which may divide its time between three roles."""
    draw = random.Random(seed)
    kinds = draw.choice((1, 2))
    prices = [draw.choice((0.5, 0.99, 1.59, 3.29)) for _ in range(kinds)]
    offers = []
    for unit in range(draw.choice((1, 2, 3))):
        gpus = [0] * kinds
        gpus[draw.randrange(kinds)] += draw.choice((1, 1, 2))
        usd = sum(n * price for n, price in zip(gpus, prices, strict=True))
        reads, makes = draw.uniform(2, 12), draw.uniform(2, 12)
        both = draw.uniform(0.5, 1.1) / (1 / reads + 1 / makes)
        for role, rate in ((BOTH, both), (PROMPTS, reads), (ANSWERS, makes)):
            offers.append(Offer(round(rate, 3), usd, tuple(gpus), role, 0, unit))
    most = [float(draw.randint(1, 4)) for _ in range(kinds)]
    return offers, most, round(draw.uniform(0.1, 15.0), 2)


def _shared_rate(offers: list[Offer], counts: tuple[int, ...]) -> float:
    """The most that so many units of each sort serve: by the prices of a prompt and an answer."""
    rows = [tuple(o.rate for o in offers[n : n + 3]) for n in range(0, len(offers), 3)]
    prices = {0.0, 1.0}
    for both, reads, makes in rows:
        prices |= {makes / (reads + makes), both / reads, 1 - both / makes}
    return min(
        sum(n * max(b, price * r, (1 - price) * m)
            for n, (b, r, m) in zip(counts, rows, strict=True))
        for price in prices if 0 <= price <= 1
    )  # fmt: skip


def test_roles_with_separate_shares_serve_what_the_dual_over_all_counts_says() -> None:
    roads = Roads(((0, 0),))
    for seed in share(range(120)):
        offers, most, demand = _roles(seed)
        firsts = [replace(o, unit=-1) for o in offers[::3]]
        rates = {
            m: _shared_rate(offers, tuple(map(int, m.counts))) for m in _all_mixes(firsts, most)
        }
        fastest = fastest_mix(offers, most, roads)
        assert fastest is not None or not max(rates.values()), seed
        if fastest is not None:
            assert fastest.is_within(offers, most, roads), seed
            assert fastest.rate(offers) == pytest.approx(max(rates.values()), rel=1e-6), seed
        enough = [m.usd_per_hour(firsts) for m, rate in rates.items() if rate >= demand]
        mix = cheapest_mix(offers, most, demand, roads)
        assert (mix is not None) == bool(enough), seed
        if mix is not None:
            assert mix.is_within(offers, most, roads), seed
            assert mix.usd_per_hour(offers) == pytest.approx(min(enough), abs=1e-9), seed


def test_of_equally_cheap_mixes_the_one_with_fewer_gpus_is_taken() -> None:
    offers = [Offer(5.0, 2.0, (1,)), Offer(5.0, 2.0, (2,))]
    mix = cheapest_mix(offers, [8.0], 5.0)
    assert mix is not None
    assert mix.counts == (1, 0)


def test_of_equally_cheap_mixes_the_one_without_pools_is_taken() -> None:
    pools = [Offer(10.0, 2.0, (1,), PROMPTS), Offer(10.0, 2.0, (1,), ANSWERS)]
    mix = cheapest_mix([*pools, Offer(5.0, 2.0, (1,))], [8.0], 10.0, Roads(((0, 0),)))
    assert mix is not None
    assert mix.counts == (0, 0, 2)


def test_fleets_of_thousands() -> None:
    offers = [Offer(8.9, 1.59, (1, 0)), Offer(6.3, 0.99, (0, 1)), Offer(16.0, 2.58, (1, 1))]
    mix = cheapest_mix(offers, [20_000.0, 5_000.0], 50_000.0)
    assert mix is not None
    assert mix.rate(offers) >= 50_000.0 * (1 - 1e-9)
    assert mix.gpus(offers)[1] >= 4_990  # the cheaper per request, about all of it
    assert cheapest_mix(offers, [100.0, 100.0], 50_000.0) is None
    pools = [Offer(20.0, 1.59, (1, 0), ANSWERS), Offer(15.0, 0.99, (0, 1), PROMPTS)]
    mix = cheapest_mix([*offers, *pools], [20_000.0, 5_000.0], 50_000.0, Roads(((0, 0),)))
    assert mix is not None
    assert mix.usd_per_hour([*offers, *pools]) == pytest.approx(
        50_000 * (1.59 / 20 + 0.99 / 15), 1e-4
    )


def test_no_demand_needs_nothing() -> None:
    assert cheapest_mix([Offer(1.0, 1.0, (1,))], [3.0], 0.0) == Mix((0,))
