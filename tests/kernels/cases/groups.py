"""Cooperative groups."""

from __future__ import annotations

import numpy as np

from tests.kernels.case import Case, Launch, Run
from tests.kernels.rng import Rng

I32 = np.int32


def tiles(rng: Rng) -> Run:
    x = rng.integers(0, 100, 64)
    tile = x.reshape(-1, 8)
    rotated = np.roll(tile, -3, axis=1)
    most = np.repeat(x.reshape(2, 32).max(1), 32).reshape(-1, 8)
    ballot = ((tile & 1) << np.arange(8)).sum(1, keepdims=True)
    any_big = (tile > 90).any(1, keepdims=True)
    value = tile.sum(1, keepdims=True) + 1000 * most + 100000 * rotated + any_big * 7 + ballot * 3
    launch = Launch("tiles", 1, 64, ["out", "x"])
    return Run({"out": np.zeros(64, I32), "x": x}, [launch], {"out": value.astype(I32).ravel()})


def coalesced(rng: Rng) -> Run:
    n = 150
    x = rng.integers(0, 1000, n)
    out = np.full(n, -1, I32)
    expected = out.copy()
    for warp in range(0, n, 32):
        active = [i for i in range(warp, min(warp + 32, n)) if x[i] % 3 == 0]
        for rank, i in enumerate(active):
            expected[i] = rank + 100 * len(active) + 10000 * active[0]
    launch = Launch("coalesced", 3, 64, ["out", "x", I32(n)])
    return Run({"out": out, "x": x}, [launch], {"out": expected})


CASES = tuple(Case(build.__name__, "groups", build) for build in (tiles, coalesced))
