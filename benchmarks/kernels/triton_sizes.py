"""Triton kernels of many sizes: copies, sums, norms, products. Needs Triton."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import triton
import triton.language as tl

Case = tuple[Any, tuple[int, ...], list[tuple[bool, str, int]], dict[str, int], int]


@triton.jit
def add_kernel(x, y, z, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(z + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


@triton.jit
def gelu_kernel(x, z, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    v = tl.load(x + at, mask=mask).to(tl.float32)
    out = 0.5 * v * (1.0 + tl.math.erf(v * 0.70710678))
    tl.store(z + at, out, mask=mask)


@triton.jit
def softmax_kernel(x, z, width, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < width
    v = tl.load(x + row * width + at, mask=mask, other=-1e30).to(tl.float32)
    v = tl.exp(v - tl.max(v, 0))
    tl.store(z + row * width + at, v / tl.sum(v, 0), mask=mask)


@triton.jit
def norm_kernel(x, w, z, width, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, width, BLOCK):
        at = first + tl.arange(0, BLOCK)
        v = tl.load(x + row * width + at, mask=at < width, other=0.0).to(tl.float32)
        total += v * v
    scale = tl.rsqrt(tl.sum(total, 0) / width + 1e-5)
    for first in range(0, width, BLOCK):
        at = first + tl.arange(0, BLOCK)
        v = tl.load(x + row * width + at, mask=at < width, other=0.0).to(tl.float32)
        tl.store(z + row * width + at, v * scale * tl.load(w + at, mask=at < width), at < width)


@triton.jit
def matmul_kernel(  # type: ignore[no-untyped-def]
    a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros([BM, BN], dtype=tl.float32)
    for first in range(0, k, BK):
        left = tl.load(a + rows[:, None] * k + (first + inner)[None, :])
        right = tl.load(b + (first + inner)[:, None] * n + cols[None, :])
        total += tl.dot(left, right)
    tl.store(c + rows[:, None] * n + cols[None, :], total.to(c.dtype.element_ty))


def cases() -> Iterator[Case]:
    for kind in ("float32", "float16"):
        for n in (1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 26):
            grid = (-(-n // 1024),)
            yield add_kernel, grid, [(True, kind, n)] * 3 + [(False, "i32", n)], {"BLOCK": 1024}, 4
            yield gelu_kernel, grid, [(True, kind, n)] * 2 + [(False, "i32", n)], {"BLOCK": 1024}, 4
    for rows in (1, 64, 1024, 8192):
        for width in (512, 4096):
            tensors = [(True, "float16", rows * width)] * 2
            yield softmax_kernel, (rows,), [*tensors, (False, "i32", width)], {"BLOCK": width}, 4
            weight = (True, "float16", width)
            size = (True, "float16", rows * width)
            arguments = [size, weight, size, (False, "i32", width)]
            yield norm_kernel, (rows,), arguments, {"BLOCK": 512}, 4
    for kind in ("float16", "float32"):
        for m, n, k in (
            (64, 1024, 1024),
            (64, 4096, 4096),
            (512, 1024, 1024),
            (512, 4096, 4096),
            (2048, 2048, 2048),
            (4096, 4096, 4096),
            (4096, 1024, 4096),
            (128, 8192, 2048),
        ):
            for bm, bn, bk, warps in ((64, 64, 32, 4), (128, 128, 32, 8)):
                if m % bm:
                    continue
                arguments = [(True, kind, m * k), (True, kind, k * n), (True, kind, m * n)]
                scalars = [(False, "i32", value) for value in (m, n, k)]
                constants = {"BM": bm, "BN": bn, "BK": bk}
                grid = (m // bm, n // bn)
                yield matmul_kernel, grid, [*arguments, *scalars], constants, warps
