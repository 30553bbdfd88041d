"""Kernels that work through shared memory."""

from __future__ import annotations

import numpy as np

from tests.kernels.case import Case, Expect, Launch, Run
from tests.kernels.rng import Rng

I32 = np.int32


def transpose(rng: Rng) -> Run:
    rows, cols = 45, 70
    x = rng.f32(rows, cols)
    launch = Launch("transpose", (5, 3), (16, 16), ["out", "x", I32(rows), I32(cols)])
    buffers = {"out": np.zeros((cols, rows), np.float32), "x": x}
    return Run(buffers, [launch], {"out": np.ascontiguousarray(x.T)})


def histogram(rng: Rng) -> Run:
    x = (rng.bits(np.uint8, 5003) & rng.bits(np.uint8, 5003)).astype(np.uint8)
    launch = Launch("histogram", 3, 192, ["bins", "x", I32(x.size)])
    expected = np.bincount(x, minlength=256).astype(np.uint32) + np.uint32(5)
    return Run({"bins": np.full(256, 5, np.uint32), "x": x}, [launch], {"bins": expected})


def bitonic(rng: Rng) -> Run:
    blocks, n = 3, 256
    keys = rng.bits(np.uint32, blocks, n)
    values = np.arange(blocks * n, dtype=np.uint32).reshape(blocks, n)
    order = np.argsort(keys, axis=1)
    launch = Launch("bitonic", blocks, n // 2, ["keys", "values"], smem=8 * n)
    expected = {
        "keys": np.take_along_axis(keys, order, 1),
        "values": np.take_along_axis(values, order, 1),
    }
    return Run({"keys": keys, "values": values}, [launch], expected)


def sgemm(rng: Rng) -> Run:
    m, n, k = 37, 50, 41
    a, b = rng.f32(m, k), rng.f32(k, n)
    buffers = {"c": np.zeros((m, n), np.float32), "a": a, "b": b}
    launch = Launch("sgemm", (4, 3), (16, 16), ["c", "a", "b", I32(m), I32(n), I32(k)])
    expected = a.astype(np.float64) @ b.astype(np.float64)
    return Run(buffers, [launch], {"c": Expect(expected, rtol=1e-5, atol=1e-5)})


def reverse_dynamic(rng: Rng) -> Run:
    x = rng.f64(90)
    launch = Launch("reverse_dynamic", 1, 96, ["out", "x", I32(90)], smem=90 * 8)
    return Run({"out": np.zeros(90), "x": x}, [launch], {"out": x[::-1].copy()})


def radix_count(rng: Rng) -> Run:
    x = rng.bits(np.uint32, 256)
    set_ = (x >> 5) & 1
    ranks = np.empty(256, np.uint32)
    ranks[np.argsort(set_, kind="stable")] = np.arange(256, dtype=np.uint32)
    launch = Launch("radix_count", 1, 256, ["ranks", "x", np.uint32(5)])
    return Run({"ranks": np.zeros(256, np.uint32), "x": x}, [launch], {"ranks": ranks})


BUILDERS = (transpose, histogram, bitonic, sgemm, reverse_dynamic, radix_count)
CASES = tuple(Case(build.__name__, "shared", build) for build in BUILDERS)
