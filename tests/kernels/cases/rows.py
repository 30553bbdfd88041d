"""Row kernels of neural networks."""

from __future__ import annotations

import numpy as np

from tests.kernels.case import Case, Expect, Launch, Run
from tests.kernels.rng import Rng

I32 = np.int32


def softmax(rng: Rng) -> Run:
    rows, cols = 5, 333
    x = rng.f32(rows, cols, low=-9, high=9)
    x[2, 7] = -np.inf
    exp = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    expected = Expect(exp / exp.sum(1, keepdims=True), rtol=5e-6, atol=1e-12)
    launch = Launch("softmax", rows, 128, ["out", "x", I32(cols)])
    return Run({"out": np.zeros_like(x), "x": x}, [launch], {"out": expected})


def layernorm(rng: Rng) -> Run:
    rows, cols = 4, 257
    x, weight, bias = rng.f32(rows, cols, low=-3, high=5), rng.f32(cols), rng.f32(cols)
    wide = x.astype(np.float64)
    mean = wide.mean(1, keepdims=True)
    scale = 1 / np.sqrt(((wide - mean) ** 2).mean(1, keepdims=True) + 1e-5)
    expected = Expect((wide - mean) * scale * weight + bias, rtol=1e-5, atol=1e-5)
    args = ["out", "x", "weight", "bias", I32(cols), np.float32(1e-5)]
    buffers = {"out": np.zeros_like(x), "x": x, "weight": weight, "bias": bias}
    return Run(buffers, [Launch("layernorm", rows, 96, args)], {"out": expected})


def rmsnorm(rng: Rng) -> Run:
    rows, cols = 6, 130
    x, weight = rng.f16(rows, cols), rng.f16(cols)
    wide = x.astype(np.float64)
    scale = 1 / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-6)
    expected = Expect(wide * scale * weight, rtol=2**-10, atol=1e-6)
    args = ["out", "x", "weight", I32(cols), np.float32(1e-6)]
    buffers = {"out": np.zeros_like(x), "x": x, "weight": weight}
    return Run(buffers, [Launch("rmsnorm", rows, 64, args)], {"out": expected})


def rope(rng: Rng) -> Run:
    tokens, heads, half = 9, 3, 16
    q = rng.f32(tokens, heads, 2 * half)
    positions = rng.integers(0, 3000, tokens)
    angle = positions[:, None] * np.power(10000.0, -np.arange(half) / half)
    s, c = np.sin(angle)[:, None], np.cos(angle)[:, None]
    x, y = q[..., :half].astype(np.float64), q[..., half:].astype(np.float64)
    expected = np.concatenate([x * c - y * s, y * c + x * s], -1)
    args = ["q", "positions", I32(heads), I32(half), np.float32(10000)]
    launch = Launch("rope", (tokens, heads), half, args)
    # The angle is a rounded f32 of up to 3000, so its error alone is 3000 * 2**-22.
    return Run({"q": q, "positions": positions}, [launch], {"q": Expect(expected, atol=2e-3)})


BUILDERS = (softmax, layernorm, rmsnorm, rope)
CASES = (
    *(Case(build.__name__, "rows", build) for build in BUILDERS),
    *(Case(f"{build.__name__}_strict", "rows_strict", build) for build in BUILDERS),
)
