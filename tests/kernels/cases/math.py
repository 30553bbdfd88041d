"""The mathematical library against Python's own, and exactly rounded division and roots."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tests.kernels.case import Case, Expect, Launch, Run
from tests.kernels.rng import Rng

I32 = np.int32


def unary(
    kernel: str,
    function: Callable[[float], float],
    low: float,
    high: float,
    rtol: float,
    atol: float = 0,
) -> Case:
    """`function` over [low, high)."""

    def build(rng: Rng) -> Run:
        n = 150
        wide = kernel.endswith("f64")
        x = rng.f64(n, low=low, high=high) if wide else rng.f32(n, low=low, high=high)
        expected = np.array([function(v) for v in x.tolist()])
        launch = Launch(kernel, 2, 96, ["out", "x", I32(n)])
        return Run(
            {"out": np.zeros_like(x), "x": x}, [launch], {"out": Expect(expected, rtol, atol)}
        )

    return Case(kernel, "math", build)


def binary(
    kernel: str,
    function: Callable[[float, float], float],
    first: tuple[float, float],
    second: tuple[float, float],
    rtol: float,
) -> Case:
    """`function` over two ranges."""

    def build(rng: Rng) -> Run:
        n = 150
        make = rng.f64 if kernel.endswith("f64") else rng.f32
        x, y = make(n, low=first[0], high=first[1]), make(n, low=second[0], high=second[1])
        expected = np.array([function(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)])
        launch = Launch(kernel, 2, 96, ["out", "x", "y", I32(n)])
        buffers = {"out": np.zeros_like(x), "x": x, "y": y}
        return Run(buffers, [launch], {"out": Expect(expected, rtol, 1e-300)})

    return Case(kernel, "math", build)


def fast(x: float) -> float:
    return math.exp(x) + math.log(x) + math.sin(x) * math.cos(x) + x / 3 + 1 / math.sqrt(x)


def sqrt_f64(rng: Rng) -> Run:
    x = np.abs(rng.bits(np.float64, 150))
    x = x[np.isfinite(x) & (x > 1e-300)]
    launch = Launch("sqrt_f64", 2, 96, ["out", "x", I32(x.size)])
    return Run({"out": np.zeros_like(x), "x": x}, [launch], {"out": np.sqrt(x) + 1.0 / x})


def quotients(kernel: str, dtype: type) -> Case:
    """Division, exact to the bit, over random bit patterns with subnormals and infinities."""

    def build(rng: Rng) -> Run:
        n = 400
        x, y = rng.bits(dtype, n), rng.bits(dtype, n)
        tiny = np.finfo(dtype).smallest_subnormal
        x[:6], y[:6] = [1, 0, -tiny, np.inf, 3 * tiny, 1], [3, -2, 2, -1, 0.5, np.inf]
        with np.errstate(all="ignore"):
            keep = ~(np.isnan(x) | np.isnan(y) | np.isnan(x / y))
            x, y = x[keep], y[keep]
            expected = x / y
        launch = Launch(kernel, 5, 96, ["out", "x", "y", I32(x.size)])
        return Run({"out": np.zeros_like(x), "x": x, "y": y}, [launch], {"out": expected})

    return Case(kernel, "math", build)


def round_f32(rng: Rng) -> Run:
    x = (rng.integers(-200, 200, 150) / 8).astype(np.float32)
    half_away = np.trunc(x + np.copysign(np.float32(0.5), x))
    expected = half_away + 100 * np.rint(x) + 10000 * np.floor(x) + np.ceil(x) + np.trunc(x)
    launch = Launch("round_f32", 2, 96, ["out", "x", I32(150)])
    return Run({"out": np.zeros_like(x), "x": x}, [launch], {"out": Expect(expected, atol=1e-9)})


def fdim(x: float, y: float) -> float:
    return max(x - y, 0.0) + math.copysign(1.0, x) + min(x, y)


CASES = (
    unary("sin_f64", math.sin, -1000, 1000, 1e-15, 1e-16),
    unary("exp_f64", math.exp, -700, 700, 5e-16),
    unary("log_f64", math.log, 1e-3, 1e6, 5e-16, 1e-17),
    unary("erf_f64", math.erf, -4, 4, 1e-15),
    unary("tanh_f32", math.tanh, -6, 6, 4e-7),
    unary("sin_f32", math.sin, -5000, 5000, 4e-7, 1e-9),
    unary("exp_f32", math.exp, -80, 80, 4e-7),
    unary("log_f32", math.log, 1e-3, 1e6, 3e-7, 1e-7),
    unary("lgamma_f32", math.lgamma, 0.1, 50, 1e-6, 1e-6),
    unary("cbrt_f32", lambda v: math.copysign(abs(v) ** (1 / 3), v), -1e4, 1e4, 4e-7),
    unary("fast_f32", fast, 0.1, 3, 2e-6, 2e-6),
    Case("sqrt_f64", "math", sqrt_f64),
    Case("round_f32", "math", round_f32),
    binary("pow_f64", math.pow, (0, 50), (-20, 20), 1e-15),
    binary("fmod_f64", math.fmod, (-1e9, 1e9), (-3, 3), 0),
    binary("pow_f32", math.pow, (0, 50), (-10, 10), 1e-6),
    binary("atan2_f32", math.atan2, (-5, 5), (-5, 5), 5e-7),
    binary("hypot_f32", math.hypot, (-9, 9), (-9, 9), 5e-7),
    binary("fdim_f32", fdim, (-9, 9), (-9, 9), 1e-5),
    quotients("div_f32", np.float32),
    quotients("div_f64", np.float64),
)
