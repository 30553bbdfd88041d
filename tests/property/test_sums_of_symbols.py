"""Bounds of sums of numbers that are not known, near the ends of what can be counted with."""

from __future__ import annotations

import random

import numpy as np

from tessera.passes.lane_values.symbols import DataSymbol, SumBound, total

THREADS = 3
BOTTOM, TOP = -(1 << 63), (1 << 63) - 1
SIZES = (1, 4, 40, 1 << 20, 1 << 40, 1 << 60, 1 << 61, 1 << 62)


def row(values: list[int]) -> np.ndarray:
    return np.array([values], dtype=np.int64)


def clipped(value: int) -> int:
    return min(max(value, BOTTOM), TOP)


def test_sums_stay_in_their_bounds() -> None:
    """Numbers are drawn first, then bounds of each and of the sum of two of them."""
    followed = sharper = 0
    for seed in range(1200):
        rng = random.Random(seed)
        count, small = rng.randint(2, 4), rng.random() < 0.5
        sizes = SIZES[:4] if small else SIZES
        numbers = [[rng.choice((-1, 1)) * rng.randrange(rng.choice(sizes)) for _ in range(THREADS)]
                   for _ in range(count)]  # fmt: skip
        symbols = []
        for at, own in enumerate(numbers):
            below, above = (rng.choice((0, 1, rng.randrange(rng.choice(sizes)))) for _ in range(2))
            low, high = ([clipped(n + d) for n in own] for d in (-below, above))
            symbols.append(DataSymbol(at, row(low), row(high)))
        factors = [rng.choice((1, 1, 2, -3)) for _ in range(2)]
        sums = [factors[0] * a + factors[1] * b for a, b in zip(*numbers[:2], strict=True)]
        wide = rng.choice((0, 5, 1 << 40))
        low, high = ([clipped(n + d) for n in sums] for d in (-wide, wide))
        if rng.random() < 0.2:
            high = [TOP] * THREADS
        if all(BOTTOM <= n <= TOP for n in sums):
            bound = SumBound(tuple(zip(symbols[:2], factors, strict=True)), row(low), row(high))
            symbols[0].sums = (bound,)
        times = rng.choice((1, 1, -1, 2, 3, 1 << 30))
        own = [factor * times for factor in factors]
        own += [rng.choice((1, -1, 5, 1 << 20)) for _ in symbols[2:]]
        terms = tuple(zip(symbols, own, strict=True))
        found = total(terms)
        if found is None:
            continue
        for thread in range(THREADS):
            exact = sum(f * n[thread] for f, n in zip(own, numbers, strict=True))
            least, most = (int(np.broadcast_to(end, (1, THREADS))[0, thread]) for end in found)
            assert least <= exact <= most, seed
        followed += 1
        sharper += int((found[1] - found[0]).max()) <= 2 * wide * abs(times)
    assert followed > 400
    assert sharper > 10
