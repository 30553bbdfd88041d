"""Atomics, locks, barriers between blocks.

Float sums are over values whose partial sums are exact, so any order gives the same bits.
"""

from __future__ import annotations

import numpy as np

from tests.kernels.case import Case, Expect, Launch, Run
from tests.kernels.rng import Rng

I32 = np.int32


def atomic_ref_ops(rng: Rng) -> Run:
    words = rng.bits(np.uint32, 6)
    words[5] = 11
    wide = rng.bits(np.uint64, 1)
    t = np.arange(64, dtype=np.uint64)
    total = int(words[0]) + 64 * 65 // 2
    after = words.copy()
    after[0] = 9
    after[1] = (int(words[1]) - 64 * 63 // 2 + 1) % 2**32
    after[2] = 0
    after[3] = 2**32 - 1
    after[4] ^= np.bitwise_xor.reduce(t * 77).astype(np.uint32)
    after[5] = 43
    after_wide = (int(wide[0]) + (int(t.sum()) << 33)) % 2**64
    old = np.array([total % 2**32, 1, 0, 9, 9], np.uint32)
    launch = Launch("atomic_ref_ops", 1, 64, ["words", "wide", "old"])
    buffers = {"words": words, "wide": wide, "old": np.zeros(5, np.uint32)}
    expected = {"words": after, "wide": np.array([after_wide], np.uint64), "old": old}
    return Run(buffers, [launch], expected)


def shared_atomics(rng: Rng) -> Run:
    n = 50
    x = rng.integers(-64, 64, n).astype(np.float32)
    turns = 0
    for _ in range(n):
        turns = (turns * 3 + 1) % 2**32
    down = 3
    for _ in range(n):
        down = 10 if down == 0 or down > 10 else down - 1
    bits = np.zeros(9, np.uint32)
    as_int = x.view(I32)
    square = sum(t * t for t in range(n))
    bits[:] = [
        int(as_int.min()) % 2**32,
        int(as_int.max()) % 2**32,
        n % 7,
        down,
        turns,
        0,
        square,
        0,
        n * (n + 1) // 2,
    ]
    launch = Launch("shared_atomics", 1, 64, ["out", "bits", "x", I32(n)])
    buffers = {"out": np.zeros(1, np.float32), "bits": np.zeros(9, np.uint32), "x": x}
    return Run(buffers, [launch], {"out": x.sum(keepdims=True), "bits": bits})


def float_atomics(rng: Rng) -> Run:
    n = 200
    i = np.arange(n)
    expected = {
        "f": np.array([(i % 16).sum() + 0.5], np.float32),
        "d": np.array([i.sum() * 0.25]),
        "h": np.array([n, n // 2], np.float16),
    }
    buffers = {"f": np.array([0.5], np.float32), "d": np.zeros(1), "h": np.zeros(2, np.float16)}
    return Run(buffers, [Launch("float_atomics", 4, 64, ["f", "d", "h", I32(n)])], expected)


def spin_lock(rng: Rng) -> Run:
    blocks = 12
    buffers = {"lock": np.zeros(1, I32), "counter": np.zeros(1, I32), "log": np.zeros(blocks, I32)}
    launch = Launch("spin_lock", blocks, 32, ["lock", "counter", "log"])
    expected = {
        "lock": np.zeros(1, I32),
        "counter": np.array([78], I32),
        "log": np.ones(blocks, I32),
    }
    return Run(buffers, [launch], expected)


def spin_lock_lanes(rng: Rng) -> Run:
    launch = Launch("spin_lock_lanes", 2, 48, ["lock", "counter"])
    buffers = {"lock": np.zeros(1, I32), "counter": np.zeros(1, I32)}
    return Run(buffers, [launch], {"lock": np.zeros(1, I32), "counter": np.array([96], I32)})


def grid_barrier(rng: Rng) -> Run:
    blocks, rounds = 5, 4
    data = np.zeros((2, blocks, 32), np.int64)
    data[0] = rng.integers(0, 100, blocks, 32)
    start = data.astype(I32)
    for r in range(rounds):
        data[(r + 1) % 2] = np.roll(data[r % 2], 1, axis=0) * 3 + np.arange(32) + r
    launch = Launch("grid_barrier", blocks, 32, ["data", "arrived", I32(rounds)], cooperative=True)
    expected = {"data": data.astype(I32), "arrived": np.array([blocks * rounds], np.uint32)}
    return Run({"data": start, "arrived": np.zeros(1, np.uint32)}, [launch], expected)


def last_block(rng: Rng) -> Run:
    n, blocks = 400, 7
    x = rng.f32(n)
    buffers = {
        "out": np.zeros(1, np.float32),
        "part": np.zeros(blocks, np.float32),
        "done": np.zeros(1, np.uint32),
        "x": x,
    }
    launch = Launch("last_block", blocks, 64, ["out", "part", "done", "x", I32(n)])
    total = Expect(np.array([x.astype(np.float64).sum()]), rtol=1e-5, atol=1e-5)
    return Run(buffers, [launch, launch], {"out": total, "done": np.zeros(1, np.uint32)})


BUILDERS = (
    atomic_ref_ops,
    shared_atomics,
    float_atomics,
    spin_lock,
    spin_lock_lanes,
    grid_barrier,
    last_block,
)
CASES = tuple(Case(build.__name__, "atomics", build) for build in BUILDERS)
