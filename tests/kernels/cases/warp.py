"""Warp-wide operations."""

from __future__ import annotations

import numpy as np

from tests.kernels.case import Case, Launch, Run
from tests.kernels.rng import Rng

I32 = np.int32
LANES = np.arange(32)


def ballot(flags: np.ndarray) -> int:
    return int((flags.astype(np.uint64) << LANES.astype(np.uint64)).sum())


def votes(rng: Rng) -> Run:
    x = rng.integers(-100, 100, 64)
    rows = []
    for warp in x.reshape(2, 32):
        odd = (warp & 1) == 1
        word = int((warp > -50).all()) | int((warp > 95).any()) << 1
        inner, mask = ballot(odd & (warp > 10)), ballot(odd)
        rows += [[ballot(warp > 0), word, inner * o, mask * o] for o in odd.tolist()]
    expected = np.array(rows, np.uint32)
    buffers = {"out": np.zeros((64, 4), np.uint32), "x": x}
    return Run(buffers, [Launch("votes", 1, 64, ["out", "x"])], {"out": expected})


def matches(rng: Rng) -> Run:
    x = rng.bits(I32, 64)
    rows = []
    for warp in x.reshape(2, 32):
        for v in warp.tolist():
            full_plus_one = 0
            wide = ballot((warp & 3) == (v & 3))
            rows.append([ballot((warp & 7) == (v & 7)), full_plus_one, wide])
    buffers = {"out": np.zeros((64, 3), np.uint32), "x": x}
    launch = Launch("matches", 1, 64, ["out", "x"])
    return Run(buffers, [launch], {"out": np.array(rows, np.uint32)})


def redux(rng: Rng) -> Run:
    x = rng.bits(I32, 64)
    u = x.view(np.uint32)
    out = np.zeros((64, 5), np.uint32)
    for first in (0, 32):
        for parity in (0, 1):
            at = slice(first + parity, first + 32, 2)
            s, w = x[at], u[at]
            total = int(w.astype(np.uint64).sum()) % 2**32
            xor = np.bitwise_xor.reduce(w)
            if parity:
                row = [total, int(s.min()) % 2**32, w.max(), np.bitwise_and.reduce(w), xor]
            else:
                row = [total, w.min(), int(s.max()) % 2**32, np.bitwise_or.reduce(w), xor]
            out[at] = np.array([int(v) for v in row], np.uint32)
    launch = Launch("redux", 1, 64, ["out", "x"])
    return Run({"out": np.zeros((64, 5), np.uint32), "x": x}, [launch], {"out": out})


def shuffles(rng: Rng) -> Run:
    x = rng.integers(-1000, 1000, 64)
    t = np.arange(64)
    base, lane = t & ~31, t & 31
    columns = [
        x[base + (t * 7) % 32],
        x[np.where(lane % 16 >= 3, t - 3, t)],
        x[np.where(lane % 8 < 3, t + 5, t)],
        x[base + (lane ^ 21)],
        x[base + (lane ^ 9)],
        x[(t & ~3) + (x & 3)],
    ]
    expected = np.ascontiguousarray(np.stack(columns, 1), I32)
    launch = Launch("shuffles", 1, 64, ["out", "x"])
    return Run({"out": np.zeros((64, 6), I32), "x": x}, [launch], {"out": expected})


def compact_one_warp(rng: Rng) -> Run:
    """One warp only: between warps the order of the atomics decides, which is not fixed."""
    x = rng.integers(-9, 9, 30)
    kept = x[x > 0]
    out = np.full(32, -1, I32)
    expected = out.copy()
    expected[: kept.size] = kept
    launch = Launch("compact", 1, 32, ["out", "count", "x", I32(30)])
    buffers = {"out": out, "count": np.zeros(1, I32), "x": x}
    return Run(buffers, [launch], {"out": expected, "count": np.array([kept.size], I32)})


def lane_registers(rng: Rng) -> Run:
    t = np.arange(40) % 32
    one = np.uint64(1) << t.astype(np.uint64)
    row = [t, one, 2 * one - 1, 2**32 - 2 * one, np.full(40, 3), np.full(40, 4)]
    table = np.stack([np.asarray(column, np.uint64) for column in row], 1).astype(np.uint32)
    launch = Launch("lanes", 3, (10, 4), ["out"])
    buffers = {"out": np.zeros((120, 6), np.uint32)}
    return Run(buffers, [launch], {"out": np.tile(table, (3, 1))})


BUILDERS = (votes, matches, redux, shuffles, compact_one_warp, lane_registers)
CASES = tuple(Case(build.__name__, "warp", build) for build in BUILDERS)
