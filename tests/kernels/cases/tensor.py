"""Matrix products on tensor cores: wmma and mma.sync, every type that nvcc emits.

Integer products are exact. Float products are compared with the f64 product of the same inputs;
the tolerance covers f32 accumulation in any order, with truncation.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tests.kernels.case import Case, Expect, Launch, Run
from tests.kernels.formats import from_bf16, from_e4m3, from_e5m2, to_tf32
from tests.kernels.rng import Rng

I32 = np.int32
Maker = Callable[[Rng, int, int], NDArray]
Decoder = Callable[[NDArray], NDArray]


def f16(rng: Rng, rows: int, cols: int) -> NDArray:
    return rng.f16(rows, cols)


def bf16(rng: Rng, rows: int, cols: int) -> NDArray:
    return rng.bf16(rows, cols)


def tf32(rng: Rng, rows: int, cols: int) -> NDArray:
    return to_tf32(rng.f32(rows, cols))


def f64(rng: Rng, rows: int, cols: int) -> NDArray:
    return rng.f64(rows, cols)


def s8(rng: Rng, rows: int, cols: int) -> NDArray:
    return rng.bits(np.int8, rows, cols)


def u8(rng: Rng, rows: int, cols: int) -> NDArray:
    return rng.bits(np.uint8, rows, cols)


def e4m3(rng: Rng, rows: int, cols: int) -> NDArray:
    return rng.e4m3(rows, cols)


def e5m2(rng: Rng, rows: int, cols: int) -> NDArray:
    return rng.e5m2(rows, cols)


def plain(values: NDArray) -> NDArray:
    return values


DECODERS: dict[Maker, Decoder] = {bf16: from_bf16, e4m3: from_e4m3, e5m2: from_e5m2}


def wmma(kernel: str, make: Maker, out: type, tile: tuple[int, int], rows_b: bool) -> Case:
    """C += A B with a tile of C per block; B is given by rows or by columns."""

    def build(rng: Rng) -> Run:
        m, n, k = 2 * tile[0], 3 * tile[1], 48
        a, b = make(rng, m, k), make(rng, k, n)
        start = rng.integers(-9, 9, m, n).astype(out)
        decode = DECODERS.get(make, plain)
        exact = start + decode(a).astype(np.float64) @ decode(b).astype(np.float64)
        args = ["c", "a", "b", I32(n), I32(k)]
        stored = b if rows_b else np.ascontiguousarray(b.T)
        return Run(
            {"c": start, "a": a, "b": stored},
            [Launch(kernel, (3, 2), 32, args)],
            {"c": tolerant(exact, out)},
        )

    return Case(kernel, "wmma", build)


def tolerant(exact: NDArray, out: type) -> Expect | NDArray:
    """Exact for integers, and what the accumulator's width allows for floats."""
    if out is np.int32:
        return exact.astype(np.int32)
    atol = {np.float16: 2e-2, np.float32: 2e-5, np.float64: 1e-13}[out]
    return Expect(exact, rtol=atol, atol=atol)


def mma(kernel: str, module: str, make_a: Maker, make_b: Maker, out: type, k: int = 64) -> Case:
    """C = A B^T with a 16x8 tile per warp."""

    def build(rng: Rng) -> Run:
        m, n = 32, 24
        a, b = make_a(rng, m, k), make_b(rng, n, k)
        left = DECODERS.get(make_a, plain)(a).astype(np.float64)
        right = DECODERS.get(make_b, plain)(b).astype(np.float64)
        buffers = {"c": np.zeros((m, n), out), "a": a, "b": b}
        launch = Launch(kernel, (3, 2), 32, ["c", "a", "b", I32(n), I32(k)])
        return Run(buffers, [launch], {"c": tolerant(left @ right.T, out)})

    return Case(kernel, module, build)


def gemm_pipelined(rng: Rng) -> Run:
    m, n, k = 128, 64, 96
    a, b = rng.f16(m, k), rng.f16(n, k)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    buffers = {"c": np.zeros((m, n), np.float16), "a": a, "b": b}
    launch = Launch("gemm_pipelined", (1, 2), 128, ["c", "a", "b", I32(m), I32(n), I32(k)])
    return Run(buffers, [launch], {"c": Expect(exact, rtol=2e-3, atol=1e-3)})


def ldmatrix_trans(rng: Rng) -> Run:
    x = rng.bits(np.uint16, 4, 8, 8)
    turned = np.ascontiguousarray(x.transpose(0, 2, 1))
    launch = Launch("ldmatrix_trans", 1, 32, ["out", "x"])
    return Run({"out": np.zeros_like(x), "x": x}, [launch], {"out": turned})


CASES = (
    wmma("wmma_f16_f32", f16, np.float32, (16, 16), True),
    wmma("wmma_f16_f16", f16, np.float16, (16, 16), False),
    wmma("wmma_f16_32x8", f16, np.float32, (32, 8), True),
    wmma("wmma_bf16", bf16, np.float32, (16, 16), True),
    wmma("wmma_bf16_8x32", bf16, np.float32, (8, 32), False),
    wmma("wmma_tf32", tf32, np.float32, (16, 16), False),
    wmma("wmma_s8", s8, np.int32, (16, 16), False),
    wmma("wmma_u8", u8, np.int32, (16, 16), True),
    wmma("wmma_f64", f64, np.float64, (8, 8), True),
    mma("mma_f16", "mma_sm80", f16, f16, np.float32),
    mma("mma_bf16", "mma_sm80", bf16, bf16, np.float32),
    mma("mma_tf32", "mma_sm80", tf32, tf32, np.float32),
    mma("mma_s8", "mma_sm80", s8, u8, np.int32),
    mma("mma_e4m3", "mma_sm89", e4m3, e4m3, np.float32),
    mma("mma_e5m2", "mma_sm89", e5m2, e4m3, np.float32),
    Case("gemm_pipelined", "mma_sm80", gemm_pipelined),
    Case("ldmatrix_trans", "mma_sm80", ldmatrix_trans),
)
