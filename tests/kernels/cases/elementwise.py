"""Elementwise kernels: every scalar type, sizes that leave a ragged last block."""

from __future__ import annotations

import math

import numpy as np

from tests.kernels.case import Case, Expect, Launch, Run
from tests.kernels.formats import from_bf16, to_bf16
from tests.kernels.rng import Rng

I32 = np.int32


def add_f32(rng: Rng) -> Run:
    n = 1003
    a, b = rng.f32(n), rng.bits(np.float32, n)
    b[np.isnan(b)] = 0
    buffers = {"out": np.zeros(n, np.float32), "a": a, "b": b}
    with np.errstate(over="ignore"):
        total = a + b
    return Run(buffers, [Launch("add_f32", 4, 256, ["out", "a", "b", I32(n)])], {"out": total})


def saxpy(rng: Rng) -> Run:
    n = 777
    x, y, alpha = rng.f32(n), rng.f32(n), np.float32(1.7)
    expected = (np.float64(alpha) * x + y).astype(np.float32)
    launch = Launch("saxpy", 2, 96, ["y", "x", alpha, I32(n)])
    return Run({"y": y, "x": x}, [launch], {"y": Expect(expected, rtol=1e-6, atol=1e-7)})


def axpb_f64(rng: Rng) -> Run:
    n = 301
    a, s, b = rng.f64(n, low=-5, high=5), np.float64(1 / 3), np.float64(0.1)
    launch = Launch("axpb_f64", 3, 128, ["out", "a", s, b, np.int64(n)])
    return Run({"out": np.zeros(n), "a": a}, [launch], {"out": a * s + b})


def mul_f16(rng: Rng) -> Run:
    n = 515
    a, b = rng.f16(n, low=-300, high=300), rng.f16(n, low=-300, high=300)
    with np.errstate(over="ignore"):
        product = a * b
    buffers = {"out": np.zeros(n, np.float16), "a": a, "b": b}
    return Run(buffers, [Launch("mul_f16", 5, 128, ["out", "a", "b", I32(n)])], {"out": product})


def relu_f16x2(rng: Rng) -> Run:
    n = 258
    a, b = rng.f16(n), rng.f16(n)
    exact = a.astype(np.float64) * b + 0.25
    expected = np.maximum(exact.astype(np.float16), np.float16(0))
    buffers = {"out": np.zeros(n, np.float16), "a": a, "b": b}
    launch = Launch("relu_f16x2", 2, 96, ["out", "a", "b", I32(n // 2)])
    return Run(buffers, [launch], {"out": expected})


def add_bf16(rng: Rng) -> Run:
    n = 391
    a, b = rng.bf16(n), rng.bf16(n, low=-100, high=100)
    buffers = {"out": np.zeros(n, np.uint16), "a": a, "b": b}
    expected = to_bf16(from_bf16(a) + from_bf16(b))
    return Run(buffers, [Launch("add_bf16", 4, 128, ["out", "a", "b", I32(n)])], {"out": expected})


def fma_bf16x2(rng: Rng) -> Run:
    n = 262
    a, b = rng.bf16(n), rng.bf16(n, low=-8, high=8)
    exact = from_bf16(a).astype(np.float64) * from_bf16(b) + from_bf16(a)
    buffers = {"out": np.zeros(n, np.uint16), "a": a, "b": b}
    launch = Launch("fma_bf16x2", 2, 96, ["out", "a", "b", I32(n // 2)])
    return Run(buffers, [launch], {"out": Expect(exact, rtol=2**-8, format="bf16")})


def ops_i8(rng: Rng) -> Run:
    n = 1001
    a, b = rng.bits(np.int8, n), rng.bits(np.int8, n)
    expected = (a.astype(np.int32) * 3 - (b.astype(np.int32) >> 1)).astype(np.int8)
    buffers = {"out": np.zeros(n, np.int8), "a": a, "b": b}
    return Run(buffers, [Launch("ops_i8", 8, 128, ["out", "a", "b", I32(n)])], {"out": expected})


def ops_u16(rng: Rng) -> Run:
    n = 333
    a, b = rng.bits(np.uint16, n), rng.bits(np.uint16, n)
    buffers = {"out": np.zeros(n, np.uint16), "a": a, "b": b}
    expected = (a ^ b) + (a >> 3)
    return Run(buffers, [Launch("ops_u16", 6, 64, ["out", "a", "b", I32(n)])], {"out": expected})


def ops_i32(rng: Rng) -> Run:
    n = 1025
    a, b = rng.bits(np.int32, n), rng.bits(np.int32, n)
    expected = np.maximum(a, b) - np.minimum(a * b, 12345) + np.abs(b)
    buffers = {"out": np.zeros(n, np.int32), "a": a, "b": b}
    launch = Launch("ops_i32", 3, 512, ["out", "a", "b", I32(n)])
    return Run(buffers, [launch], {"out": expected.astype(np.int32)})


def ops_i64(rng: Rng) -> Run:
    n = 259
    a, b = rng.bits(np.int64, n), rng.bits(np.int64, n)
    values = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        value = x * y + (x >> 7) - ((y % 2**64) >> 40) + (x * y >> 64)
        values.append(value % 2**64)
    expected = np.array(values, dtype=np.uint64).view(np.int64)
    buffers = {"out": np.zeros(n, np.int64), "a": a, "b": b}
    return Run(buffers, [Launch("ops_i64", 3, 128, ["out", "a", "b", I32(n)])], {"out": expected})


def gelu(rng: Rng) -> Run:
    n = 700
    x = rng.f32(n, low=-6, high=6)
    erf = np.array([math.erf(v / math.sqrt(2)) for v in x.astype(np.float64)])
    expected = Expect(0.5 * x * (1 + erf), rtol=4e-6, atol=1e-6)
    launch = Launch("gelu", 3, 256, ["out", "x", I32(n)])
    return Run({"out": np.zeros(n, np.float32), "x": x}, [launch], {"out": expected})


def silu_mul(rng: Rng) -> Run:
    n = 387
    gate, up = rng.f16(n, low=-8, high=8), rng.f16(n)
    wide = gate.astype(np.float64)
    expected = Expect(wide / (1 + np.exp(-wide)) * up, rtol=2**-10, atol=1e-6)
    buffers = {"out": np.zeros(n, np.float16), "gate": gate, "up": up}
    return Run(
        buffers, [Launch("silu_mul", 4, 128, ["out", "gate", "up", I32(n)])], {"out": expected}
    )


def cast_chain(rng: Rng) -> Run:
    n = 222
    v = rng.f64(n, low=-300, high=300)
    f = np.float32
    part = np.trunc(v).astype(f) + np.trunc(np.abs(v)).astype(f) * f(0.5)
    expected = (
        part + np.rint(v * 1000.0).astype(np.int64).astype(f) + v.astype(np.float16).astype(f)
    )
    launch = Launch("cast_chain", 2, 128, ["out", "v", I32(n)])
    # The compiler may contract the first product and sum; both orders round the same halves.
    return Run({"out": np.zeros(n, f), "v": v}, [launch], {"out": Expect(expected, rtol=3e-7)})


def threed(rng: Rng) -> Run:
    nx, ny, nz = 13, 7, 5
    z, y, x = np.meshgrid(np.arange(nz), np.arange(ny), np.arange(nx), indexing="ij")
    launch = Launch("threed", (4, 3, 3), (4, 3, 2), ["out", I32(nx), I32(ny), I32(nz)])
    expected = (x + 100 * y + 10000 * z).astype(np.int32)
    return Run({"out": np.zeros((nz, ny, nx), np.int32)}, [launch], {"out": expected})


BUILDERS = (
    add_f32,
    saxpy,
    axpb_f64,
    mul_f16,
    relu_f16x2,
    add_bf16,
    fma_bf16x2,
    ops_i8,
    ops_u16,
    ops_i32,
    ops_i64,
    gelu,
    silu_mul,
    cast_chain,
    threed,
)
CASES = tuple(Case(build.__name__, "elementwise", build) for build in BUILDERS)
