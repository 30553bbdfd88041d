"""Reductions and scans."""

from __future__ import annotations

import numpy as np

from tests.kernels.case import Case, Expect, Launch, Run
from tests.kernels.rng import Rng

I32 = np.int32


def sum_tree(rng: Rng) -> Run:
    n, blocks = 1500, 6
    x = rng.f32(n)
    part = np.zeros(blocks * 256, np.float32)
    part[:n] = x
    part = part.reshape(blocks, 256)
    while part.shape[1] > 1:
        half = part.shape[1] // 2
        part = part[:, :half] + part[:, half:]
    launch = Launch("sum_tree", blocks, 256, ["out", "x", I32(n)])
    return Run({"out": np.zeros(blocks, np.float32), "x": x}, [launch], {"out": part[:, 0]})


def sum_shuffle(rng: Rng) -> Run:
    x = rng.bits(np.int32, 5001)
    launch = Launch("sum_shuffle", 5, 160, ["out", "x", I32(x.size)])
    expected = np.array([7 + x.astype(np.int64).sum()])
    return Run({"out": np.array([7], np.int64), "x": x}, [launch], {"out": expected})


def minmax_atomic(rng: Rng) -> Run:
    x = rng.bits(np.int32, 600)
    word = x.view(np.uint32)
    bits = np.array([0, 0, 0xFFFFFFFF], np.uint32)
    masks = [np.bitwise_or.reduce(word), np.bitwise_xor.reduce(word)]
    masks.append(np.bitwise_and.reduce(word | np.uint32(0xF0F0)))
    buffers = {
        "lo": np.array([2**31 - 1], I32),
        "hi": np.array([-(2**31)], I32),
        "bits": bits,
        "x": x,
    }
    launch = Launch("minmax_atomic", 3, 256, ["lo", "hi", "bits", "x", I32(x.size)])
    expected = {"lo": x.min(keepdims=True), "hi": x.max(keepdims=True), "bits": np.array(masks)}
    return Run(buffers, [launch], expected)


def argmax_row(rng: Rng) -> Run:
    rows, cols = 7, 75
    x = np.round(rng.f32(rows, cols) * 20).astype(np.float32)
    buffers = {"where": np.zeros(rows, I32), "top": np.zeros(rows, np.float32), "x": x}
    launch = Launch("argmax_row", rows, 32, ["where", "top", "x", I32(cols)])
    return Run(buffers, [launch], {"where": x.argmax(1).astype(I32), "top": x.max(1)})


def scan_two_level(rng: Rng) -> Run:
    x = rng.integers(-50, 50, 700)
    buffers = {"out": np.zeros(700, I32), "sums": np.zeros(6, I32), "x": x}
    launches = [
        Launch("scan_block", 6, 128, ["out", "sums", "x", I32(700)]),
        Launch("add_offsets", 6, 128, ["out", "sums", I32(700)]),
    ]
    return Run(buffers, launches, {"out": np.cumsum(x).astype(I32)})


def scan_warp(rng: Rng) -> Run:
    x = rng.f32(300)
    padded = np.zeros(320, np.float32)
    padded[:300] = x
    v = padded.reshape(-1, 32)
    for step in (1, 2, 4, 8, 16):
        shifted = np.zeros_like(v)
        shifted[:, step:] = v[:, :-step]
        v = np.where(np.arange(32) >= step, v + shifted, v)
    launch = Launch("scan_warp", 5, 64, ["out", "x", I32(300)])
    return Run(
        {"out": np.zeros(300, np.float32), "x": x}, [launch], {"out": v.ravel()[:300].copy()}
    )


def sum_f32_atomic_free(rng: Rng) -> Run:
    """Two levels of the tree, the second over the first one's output."""
    x = rng.f32(65536)
    buffers = {"part": np.zeros(256, np.float32), "out": np.zeros(1, np.float32), "x": x}
    launches = [
        Launch("sum_tree", 256, 256, ["part", "x", I32(65536)]),
        Launch("sum_tree", 1, 256, ["out", "part", I32(256)]),
    ]
    total = np.array([x.astype(np.float64).sum()])
    return Run(buffers, launches, {"out": Expect(total, rtol=1e-5, atol=1e-3)})


BUILDERS = (
    sum_tree,
    sum_shuffle,
    minmax_atomic,
    argmax_row,
    scan_two_level,
    scan_warp,
    sum_f32_atomic_free,
)
CASES = tuple(Case(build.__name__, "reduce", build) for build in BUILDERS)
