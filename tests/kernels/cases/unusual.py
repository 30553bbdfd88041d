"""Corners that a blind test of the backend looked at; not recorded on a GPU, so not in CASES."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.kernels.case import Case, Launch, Run
from tests.kernels.rng import Rng

I32 = np.int32


def divide128(rng: Rng) -> Run:
    n = 70
    a, b = rng.words(4 * n).copy().reshape(2, n, 2)
    b[::3, 0] = 0
    b[1::5] >>= np.uint64(37)
    b[:4] = [[0, 1], [2**64 - 1, 2**64 - 1], [1, 0], [0, 2**64 - 1]]
    rows = []
    for (ah, al), (bh, bl) in zip(a.tolist(), b.tolist(), strict=True):
        quotient, rest = divmod(ah << 64 | al, bh << 64 | bl)
        rows.append([quotient >> 64, quotient % 2**64, rest >> 64, rest % 2**64])
    launch = Launch("divide128", 2, 64, ["out", "a", "b", I32(n)])
    buffers = {"out": np.zeros((n, 4), np.uint64), "a": a, "b": b}
    return Run(buffers, [launch], {"out": np.array(rows, np.uint64)})


def walk(v: int) -> int:
    """`irreducible` as a machine with three states."""
    c, state = 0, 2 if v & 1 else 1
    while True:
        if state == 1:
            c += 3
            if c > 40:
                break
            state = 3 if v >> 1 & 1 else 2
        elif state == 2:
            c, v = c + 5, v >> 1
            if c > 30:
                break
            state = 1
        else:
            c, v = (c ^ 1) + 2, v >> 2 | 1
            state = 2 if c & 4 else 1
    return c * 1000 + (v & 255)


def irreducible(rng: Rng) -> Run:
    n = 100
    x = rng.integers(-(2**31), 2**31, n)
    launch = Launch("irreducible", 2, 64, ["out", "x", I32(n)])
    expected = np.array([walk(v) for v in x.tolist()], I32)
    return Run({"out": np.zeros(n, I32), "x": x}, [launch], {"out": expected})


def append_positive(rng: Rng) -> Run:
    n = 300
    x = rng.integers(-9, 9, n)
    kept = x[x > 0]
    expected = np.full(n, -77, I32)
    expected[: len(kept)] = kept
    launch = Launch("append_positive", 3, 128, ["out", "count", "x", I32(n)])
    buffers = {"out": np.full(n, -77, I32), "count": np.zeros(1, I32), "x": x}
    return Run(buffers, [launch], {"out": expected, "count": np.array([len(kept)], I32)})


def label_sums(rng: Rng) -> Run:
    n = 150
    x = rng.integers(-9, 9, n)
    warps = x[np.minimum(np.arange(192), n - 1)].reshape(-1, 32)
    same = (warps[:, :, None] & 7) == (warps[:, None, :] & 7)
    sums = (same * warps[:, None, :]).sum(2) * 100 + same.sum(2)
    launch = Launch("label_sums", 2, 96, ["out", "x", I32(n)])
    return Run({"out": np.zeros(n, I32), "x": x}, [launch], {"out": sums.ravel()[:n].astype(I32)})


def half_maximum(rng: Rng) -> Run:
    n = 120
    x = rng.f32(n).astype(np.float16)
    launch = Launch("half_maximum", 2, 64, ["out", "x", I32(n)])
    expected = x.reshape(-1, 3).max(0)
    return Run({"out": np.full(3, -100, np.float16), "x": x}, [launch], {"out": expected})


def leave_barrier(rng: Rng) -> Run:
    launch = Launch("leave_barrier", 2, 96, ["out"])
    return Run({"out": np.zeros(192, I32)}, [launch], {"out": np.full(192, 24 * 10, I32)})


def pipeline_roles(rng: Rng) -> Run:
    tiles = 7
    x = rng.integers(-9, 9, tiles, 64)
    weights = np.arange(1, tiles + 1)[:, None]
    expected = (x * weights + x[:, ::-1]).sum(0).astype(I32)
    launch = Launch("pipeline_roles", 1, 96, ["out", "x", I32(tiles)])
    return Run({"out": np.zeros(64, I32), "x": x}, [launch], {"out": expected})


def grid_rounds(rng: Rng) -> Run:
    blocks, threads, rounds = 7, 96, 3
    size = blocks * threads
    value = np.arange(size)
    for _ in range(rounds):
        value = value[(np.arange(size) + size // 2 + 1) % size] + 1
    launch = Launch("grid_rounds", blocks, threads, ["out", I32(rounds)], cooperative=True)
    return Run({"out": np.zeros(size, I32)}, [launch, launch], {"out": value.astype(I32)})


def virtual_call(rng: Rng) -> Run:
    n = 100
    x = rng.f32(n)
    expected = np.where(np.arange(n) % 3, x * x * np.float32(2), x * np.float32(3))
    launch = Launch("virtual_call", 2, 64, ["out", "x", I32(n)])
    return Run({"out": np.zeros(n, np.float32), "x": x}, [launch], {"out": expected})


def cluster_ring(rng: Rng) -> Run:
    x = rng.integers(-99, 99, 2, 4, 64)
    expected = np.roll(x, -1, axis=1)[:, :, ::-1] * 10 + np.arange(4)[None, :, None]
    launch = Launch("cluster_ring", 8, 64, ["out", "x"])
    return Run({"out": np.zeros_like(x), "x": x}, [launch], {"out": expected.astype(I32)})


def cluster_histogram(rng: Rng) -> Run:
    n = 777
    x = rng.integers(0, 999, n)
    launch = Launch("cluster_histogram", (4, 2), 96, ["out", "x", I32(n)])
    expected = np.bincount(x & 127, minlength=128).astype(I32)
    return Run({"out": np.zeros(128, I32), "x": x}, [launch], {"out": expected})


def store_async(rng: Rng) -> Run:
    x = rng.integers(-99, 99, 4, 32)
    launch = Launch("store_async", 4, 32, ["out", "x"])
    swapped: NDArray = x[[1, 0, 3, 2], ::-1].copy()
    return Run({"out": np.zeros_like(x), "x": x}, [launch], {"out": swapped})


def bulk_reduce(rng: Rng) -> Run:
    x = rng.integers(-99, 99, 5, 64)
    launch = Launch("bulk_reduce", 5, 64, ["out", "x"])
    expected = np.stack([x.sum(0), np.maximum(x.max(0), 0)]).astype(I32)
    return Run({"out": np.zeros((2, 64), I32), "x": x}, [launch], {"out": expected})


CASES = [
    *(
        Case(build.__name__, "unusual", build)
        for build in (
            divide128,
            irreducible,
            append_positive,
            label_sums,
            half_maximum,
            leave_barrier,
            pipeline_roles,
            grid_rounds,
            virtual_call,
        )
    ),
    *(
        Case(build.__name__, "unusual_90", build)
        for build in (cluster_ring, cluster_histogram, store_async, bulk_reduce)
    ),
]
