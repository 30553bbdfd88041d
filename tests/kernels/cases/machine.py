"""Barriers, asynchronous copies, clusters, and what a kernel asks of the machine."""

from __future__ import annotations

import numpy as np

from tests.kernels.case import Case, Launch, Run
from tests.kernels.rng import Rng

I32 = np.int32


def named_barriers(rng: Rng) -> Run:
    rounds = 7
    x = rng.integers(-50, 50, rounds, 32)
    total = np.zeros(32, np.int64)
    for r in range(rounds):
        total = total * 3 + x[r, ::-1] + r
    launch = Launch("named_barriers", 1, 64, ["out", "x", I32(rounds)])
    return Run({"out": np.zeros(32, I32), "x": x}, [launch], {"out": total.astype(I32)})


def barrier_reduce(rng: Rng) -> Run:
    x = rng.integers(-99, 100, 96)
    value = (x > 0).sum() + 1000 * (x > -100).all() + 10000 * (x > 98).any()
    launch = Launch("barrier_reduce", 1, 96, ["out", "x"])
    return Run({"out": np.zeros(96, I32), "x": x}, [launch], {"out": np.full(96, value, I32)})


def mbarrier_ring(rng: Rng) -> Run:
    rounds = 11
    x = rng.integers(-50, 50, rounds, 32)
    out = np.zeros((3, 32), np.int64)
    for warp in (1, 2, 3):
        for r in range(rounds):
            out[warp - 1] += np.roll(x[r], -warp) * (r + warp)
    launch = Launch("mbarrier_ring", 1, 128, ["out", "x", I32(rounds)])
    return Run({"out": np.zeros((3, 32), I32), "x": x}, [launch], {"out": out.astype(I32)})


def cuda_barrier(rng: Rng) -> Run:
    x = rng.integers(-99, 100, 64)
    expected = x * 2 + np.roll(x[::-1], -1) * 1000
    launch = Launch("cuda_barrier", 1, 64, ["out", "x"])
    return Run({"out": np.zeros(64, I32), "x": x}, [launch], {"out": expected.astype(I32)})


def cp_async_mbarrier(rng: Rng) -> Run:
    x = rng.f32(256)
    launch = Launch("cp_async_mbarrier", 1, 64, ["out", "x", I32(256)])
    expected = x[::-1] + np.float32(1)
    return Run({"out": np.zeros(256, np.float32), "x": x}, [launch], {"out": expected})


def cluster_exchange(rng: Rng) -> Run:
    x = rng.integers(-99, 100, 4, 64)
    expected = x[[1, 0, 3, 2], ::-1] * 2 + np.array([0, 1, 0, 1])[:, None] + 200
    launch = Launch("cluster_exchange", 4, 64, ["out", "x"])
    return Run({"out": np.zeros((4, 64), I32), "x": x}, [launch], {"out": expected.astype(I32)})


def cluster_histogram(rng: Rng) -> Run:
    x = (rng.bits(np.uint8, 1500) | rng.bits(np.uint8, 1500)).astype(np.uint8)
    launch = Launch("cluster_histogram", 8, 64, ["bins", "x", I32(x.size)])
    expected = np.bincount(x, minlength=256).astype(np.uint32)
    return Run({"bins": np.zeros(256, np.uint32), "x": x}, [launch], {"bins": expected})


def bulk_copy(rng: Rng) -> Run:
    x = rng.f32(3, 400)
    launch = Launch("bulk_copy", 3, 64, ["out", "x", I32(400)])
    expected = x * np.float32(2) + np.float32(1)
    return Run({"out": np.zeros_like(x), "x": x}, [launch], {"out": expected})


def stmatrix(rng: Rng) -> Run:
    x = rng.bits(np.uint32, 4, 32)
    halves = x.view(np.uint16).reshape(4, 8, 8)
    turned = np.ascontiguousarray(halves[:2].transpose(0, 2, 1)).view(np.uint32).ravel()
    expected = np.concatenate([x.ravel(), turned, np.zeros(64, np.uint32)])
    launch = Launch("stmatrix", 1, 32, ["out", "x"])
    return Run({"out": np.zeros(256, np.uint32), "x": x}, [launch], {"out": expected})


def elect(rng: Rng) -> Run:
    """One leader per member mask; hardware picks the lowest lane, the ISA leaves it open."""
    expected = np.zeros(64, np.uint32)
    expected[5:32] = 10
    expected[5] = 11
    expected[32] = 1
    launch = Launch("elect", 1, 64, ["out"])
    return Run({"out": np.full(64, 99, np.uint32)}, [launch], {"out": expected})


def dependent(rng: Rng) -> Run:
    x = rng.integers(-99, 100, 32)
    launches = [Launch("dependent", 1, 32, ["y", "x"]), Launch("dependent", 1, 32, ["z", "y"])]
    buffers = {"x": x, "y": np.zeros(32, I32), "z": np.zeros(32, I32)}
    return Run(buffers, launches, {"z": (x + 2).astype(I32)})


def hello(rng: Rng) -> Run:
    x = np.arange(8, dtype=np.float32) / 4
    text = "thread 3 of 8: x=0.750 hex=0xff str=text z -1234567890123 4000000000%\nplain\n"
    return Run({"x": x}, [Launch("hello", 2, 4, ["x", I32(8)])], {}, printed=text)


def checked(rng: Rng) -> Run:
    x = rng.integers(0, 100, 50)
    launch = Launch("checked", 1, 64, ["out", "x", I32(50)])
    return Run({"out": np.zeros(50, I32), "x": x}, [launch], {"out": (x * 2).astype(I32)})


def clocks(rng: Rng) -> Run:
    launch = Launch("clocks", 1, 32, ["out"])
    return Run({"out": np.zeros(32, I32)}, [launch], {"out": np.full(32, 7, I32)})


ASYNC = (named_barriers, barrier_reduce, mbarrier_ring, cuda_barrier, cp_async_mbarrier)
HOPPER = (cluster_exchange, cluster_histogram, bulk_copy, stmatrix, elect, dependent)
SYSTEM = (hello, checked, clocks)
CASES = tuple(
    Case(build.__name__, module, build)
    for module, builders in (("async", ASYNC), ("hopper", HOPPER), ("system", SYSTEM))
    for build in builders
)
