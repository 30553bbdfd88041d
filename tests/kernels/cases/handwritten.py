"""PTX written by hand: what compilers rarely write, but PTX allows."""

from __future__ import annotations

import numpy as np

from tests.kernels.case import Case, Launch, Run
from tests.kernels.rng import Rng

I32, U32 = np.int32, np.uint32


def jump_table(rng: Rng) -> Run:
    x = rng.integers(0, 7, 150, dtype=U32)
    targets = {0: 3003, 1: 3000, 2: 4000, 3: 3000}
    expected = np.array([targets.get(v, v - 1000) % 2**32 for v in x.tolist()], U32)
    launch = Launch("jump_table", 3, 64, ["out", "x", U32(150)])
    return Run({"out": np.zeros(150, U32), "x": x}, [launch], {"out": expected})


def two_entries(value: int) -> int:
    total, first = 0, value & 1 == 0
    while True:
        if first:
            total += 7
            value >>= 1
        total = (total * 3 + value) % 2**32
        if value == 0:
            return total
        first = value & 2 != 0
        value >>= 1


def irreducible(rng: Rng) -> Run:
    x = rng.bits(U32, 60) >> rng.integers(0, 32, 60, dtype=U32)
    launch = Launch("irreducible", 1, 64, ["out", "x", U32(60)])
    expected = np.array([two_entries(v) for v in x.tolist()], U32)
    return Run({"out": np.zeros(60, U32), "x": x}, [launch], {"out": expected})


def functions(rng: Rng) -> Run:
    x = rng.bits(U32, 50)
    divisor = np.arange(50, dtype=U32) + U32(3)
    expected = np.stack([x % divisor, x // divisor], 1).astype(np.uint64)
    launch = Launch("functions", 1, 64, ["out", "x", U32(50)])
    return Run({"out": np.zeros((50, 2), np.uint64), "x": x}, [launch], {"out": expected})


def pieces(rng: Rng) -> Run:
    x = rng.bits(np.uint64, 32)
    x[4], x[9] = 0, 0x0000_1234_0000_0000
    lo, hi = x.astype(U32), (x >> np.uint64(32)).astype(U32)
    packed = (hi >> U32(16)) | (lo << U32(16))
    less = lo.view(I32) < hi.view(I32)
    p5 = less & ((lo > hi) | (packed == 0))
    p6 = ~less ^ (packed != 0)
    r7 = p5 * 5 + p6 * 2
    r8 = np.where(p5, hi, lo)
    t = np.arange(32)
    swapped = r8[t ^ 1]
    columns = [
        packed,
        r7,
        r8,
        swapped,
        swapped,
        np.full(32, 40),
        r8,
        np.full(32, 20),
        1 + t % 2,
        t % 2,
    ]
    expected = np.zeros((32, 12), U32)
    expected[:, :10] = np.stack([np.asarray(column, U32) for column in columns], 1)
    launch = Launch("pieces", 1, 32, ["out", "x", U32(32)])
    return Run({"out": np.zeros((32, 12), U32), "x": x}, [launch], {"out": expected})


def synchronise(rng: Rng) -> Run:
    x = np.concatenate([rng.integers(-100, 100, 96), rng.integers(-100, 1, 96)])
    mixed, negative = np.zeros(99, I32), np.zeros(99, I32)
    mixed[:96], mixed[96], mixed[97] = (x[:96] > 0).sum(), x[:96].sum(), x[:96].max()
    negative[:96], negative[96], negative[97] = 1000, x[96:].sum(), 0
    mixed[98] = negative[98] = 96 % 51
    launches = [
        Launch("synchronise", 1, 96, ["mixed", "x"]),
        Launch("synchronise", 1, 96, ["negative", "x+384"]),
    ]
    buffers = {"mixed": np.zeros(99, I32), "negative": np.zeros(99, I32), "x": x}
    return Run(buffers, launches, {"mixed": mixed, "negative": negative})


def remote(rng: Rng) -> Run:
    x = rng.integers(0, 1000, 4, 32, dtype=U32)
    other = x[[1, 0, 3, 2]]
    rank = np.array([1, 0, 1, 0], U32)[:, None] + np.zeros((4, 32), U32)
    expected = np.stack([other, other + U32(5), np.full((4, 32), 5, U32), rank], -1)
    launch = Launch("remote", 4, 32, ["out", "x"])
    return Run({"out": np.zeros((4, 32, 4), U32), "x": x}, [launch], {"out": expected})


def reductions(rng: Rng) -> Run:
    x = rng.integers(-100, 100, 32)
    start = rng.integers(-100, 100, 66)
    start[64:] = 0
    expected = start.copy()
    expected[:32] += x
    expected[32:64] = np.maximum(start[32:64], x)
    total = np.float32(x.sum())
    expected[64:] = np.array([total, -total], np.float32).view(I32)
    return Run(
        {"out": start, "x": x}, [Launch("reductions", 1, 32, ["out", "x"])], {"out": expected}
    )


OLD = (jump_table, irreducible, functions, pieces, synchronise)
NEW = (remote, reductions)
CASES = tuple(
    Case(build.__name__, module, build)
    for module, builders in (("handwritten_80", OLD), ("handwritten_90", NEW))
    for build in builders
)
