"""The bounds of a fleet, against all numbers of GPUs, and against all ways to deal steps."""

from __future__ import annotations

import itertools
import random
from math import inf

import pytest

from tessera.driver.fleet.bounds import RequestLoad
from tests.helpers.share import least, share


def _load(seed: int) -> tuple[RequestLoad, list[float], list[float], float]:
    """One or two kinds, batches of some steps each, and units that take a phase as a whole."""
    draw = random.Random(seed)
    kinds = draw.choice((1, 2, 2, 2))
    prices = [draw.choice((0.5, 0.99, 1.59, 3.29)) for _ in range(kinds)]

    def time() -> float:
        return inf if draw.random() < 0.1 else round(draw.uniform(0.01, 0.3), 3)

    def batch() -> tuple[tuple[float, tuple[float, ...]], ...]:
        rows = draw.randint(1, 3)
        return tuple(
            (float(draw.randint(1, 4)), (round(draw.uniform(0.01, 0.3), 3),
                                         *(time() for _ in range(kinds - 1))))
            for _ in range(rows)
        )  # fmt: skip

    phases = tuple(tuple(batch() for _ in range(draw.randint(1, 2))) for _ in range(2))
    cut = tuple(
        tuple(tuple(round(draw.uniform(0.05, 0.5), 3) * (kind == own) for kind in range(kinds))
              for own in range(kinds) if draw.random() < 0.3)
        for _ in range(2)
    )  # fmt: skip
    most = [float(draw.randint(1, 5)) for _ in range(kinds)]
    return RequestLoad(phases, cut), most, prices, round(draw.uniform(0.2, 6.0), 2)


def _served(load: RequestLoad, counts: tuple[int, ...]) -> float:
    """The most requests per second of so many GPUs: the least over weights of the kinds.

    For weights of the kinds that add up to 1 with the counts, a request takes no less than the sum
    of the least weighted times.
    """

    def takes(weights: tuple[float, ...]) -> float:
        total = 0.0
        for batches, cuts in zip(load.phases, load.cut, strict=True):
            tried = [
                sum(n * min(t * w for t, w in zip(times, weights, strict=True) if t < inf)
                    for n, times in batch)
                for batch in batches
            ]  # fmt: skip
            tried += [sum(t * w for t, w in zip(cut, weights, strict=True)) for cut in cuts]
            total += min(tried)
        return total

    def weighed(part: float) -> float:
        # What is not there costs too much for any step.
        pairs = zip((part, 1 - part)[: len(counts)], counts, strict=True)
        return takes(tuple(w / n if n else 1e3 for w, n in pairs))

    if len(counts) == 1 or not counts[1]:
        return 1 / weighed(1.0)
    low, high = (0.0, 1.0) if counts[0] else (0.0, 0.0)
    for _ in range(40):  # the sum of least weighted times has one top
        first, second = low + (high - low) / 3, high - (high - low) / 3
        low, high = (first, high) if weighed(first) < weighed(second) else (low, second)
    return 1 / weighed((low + high) / 2)


def test_whole_gpus_cost_what_all_numbers_of_gpus_say_and_no_less_than_parts() -> None:
    seen = 0
    for seed in share(range(120)):
        load, most, prices, demand = _load(seed)
        fluid, whole = (load.least(most, prices, demand, whole=w) for w in (False, True))
        every = list(itertools.product(*(range(int(n) + 1) for n in most)))
        costs = {n: sum(a * b for a, b in zip(n, prices, strict=True)) for n in every if any(n)}
        rates = {n: _served(load, n) for n in costs}
        sure = [costs[n] for n, rate in rates.items() if rate >= demand * 1.00001]
        may_be = [costs[n] for n, rate in rates.items() if rate >= demand * 0.99999]
        assert (whole is not None) or not sure, seed
        if whole is None or not may_be:
            continue
        seen += 1
        assert fluid is not None
        assert fluid <= whole * (1 + 1e-9), seed
        assert min(may_be) <= whole * (1 + 1e-6), seed
        if sure:
            assert whole <= min(sure) * (1 + 1e-6), seed
        rate = load.least(most, None, 1.0, whole=False)
        assert rate == pytest.approx(_served(load, tuple(map(int, most))), rel=1e-5), seed
    assert seen > least(60, 5)
