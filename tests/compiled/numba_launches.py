"""Numba kernels and their launches: `python tests/compiled/numba_launches.py OUT [ARCH...]`."""

from __future__ import annotations

import math
import os
import sys

from launch_files import BYTES, Array, Launches, cdiv

os.environ.setdefault("NUMBA_CUDA_USE_NVIDIA_BINDING", "1")
import numba
from numba import cuda, float32, int32, types

NAMES = {"fp32": "float32", "fp64": "float64", "i32": "int32", "i64": "int64", "i16": "int16", "u8": "uint8", "u32": "uint32"}  # fmt: skip  # noqa: E501


def axpy(y, x, a):
    for i in range(cuda.grid(1), y.size, cuda.gridsize(1)):
        y[i] += a * x[i]


def tiled(c, a, b):
    ta, tb = cuda.shared.array((8, 8), float32), cuda.shared.array((8, 8), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    acc = float32(0)
    for i in range((a.shape[1] + 7) // 8):
        ta[ty, tx] = a[y, tx + i * 8] if y < a.shape[0] and tx + i * 8 < a.shape[1] else 0
        tb[ty, tx] = b[ty + i * 8, x] if x < b.shape[1] and ty + i * 8 < b.shape[0] else 0
        cuda.syncthreads()
        for j in range(8):
            acc += ta[ty, j] * tb[j, tx]
        cuda.syncthreads()
    if y < c.shape[0] and x < c.shape[1]:
        c[y, x] = acc


def transpose(out, x):
    tile = cuda.shared.array((16, 17), float32)
    i, j = cuda.blockIdx.y * 16 + cuda.threadIdx.y, cuda.blockIdx.x * 16 + cuda.threadIdx.x
    for k in range(0, 16, 4):
        if i + k < x.shape[0] and j < x.shape[1]:
            tile[cuda.threadIdx.y + k, cuda.threadIdx.x] = x[i + k, j]
    cuda.syncthreads()
    i, j = cuda.blockIdx.x * 16 + cuda.threadIdx.y, cuda.blockIdx.y * 16 + cuda.threadIdx.x
    for k in range(0, 16, 4):
        if i + k < out.shape[0] and j < out.shape[1]:
            out[i + k, j] = tile[cuda.threadIdx.x, cuda.threadIdx.y + k]


def backwards(out, x):
    i = cuda.grid(1)
    if i < out.size:
        out[-1 - i] = x[i - x.size]


def block_scan(out, x, sums):
    kept = cuda.shared.array(64, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    kept[t] = x[i] if i < x.size else 0
    cuda.syncthreads()
    d = 1
    while d < cuda.blockDim.x:
        v = kept[t - d] if t >= d else 0
        cuda.syncthreads()
        kept[t] += v
        cuda.syncthreads()
        d *= 2
    if i < out.size:
        out[i] = kept[t]
    if t == cuda.blockDim.x - 1:
        sums[cuda.blockIdx.x] = kept[t]


def counted(bins, x, low, high):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        k = int((x[i] - low) / (high - low) * bins.size)
        if 0 <= k < bins.size:
            cuda.atomic.add(bins, k, 1)


def warp_top(out, x):
    i = cuda.grid(1)
    v = x[i] if i < x.size else x[0]
    for d in (16, 8, 4, 2, 1):
        v = max(v, cuda.shfl_xor_sync(0xFFFFFFFF, v, d))
    if cuda.laneid == 0:
        cuda.atomic.max(out, i // 32, v)


def compact(out, count, x):
    i = cuda.grid(1)
    keep = i < x.size and x[i] > 0
    votes = cuda.ballot_sync(0xFFFFFFFF, keep)
    before = cuda.popc(votes & ((1 << cuda.laneid) - 1))
    base = 0
    if cuda.laneid == 0:
        base = cuda.atomic.add(count, 0, cuda.popc(votes))
    base = cuda.shfl_sync(0xFFFFFFFF, base, 0)
    if keep:
        out[base + before] = x[i]


def bitonic(x, n):
    kept = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    kept[t] = x[t] if t < n else math.inf
    cuda.syncthreads()
    k = 2
    while k <= 64:
        j = k // 2
        while j > 0:
            other = t ^ j
            if other > t and ((t & k == 0) == (kept[t] > kept[other])):
                kept[t], kept[other] = kept[other], kept[t]
            cuda.syncthreads()
            j //= 2
        k *= 2
    if t < n:
        x[t] = kept[t]


def stencil(out, x):
    i, j, k = cuda.grid(3)
    if 0 < i < x.shape[0] - 1 and 0 < j < x.shape[1] - 1 and 0 < k < x.shape[2] - 1:
        out[i, j, k] = (x[i - 1, j, k] + x[i + 1, j, k] + x[i, j - 1, k] + x[i, j + 1, k]) / 4


def search(out, keys, x):
    i = cuda.grid(1)
    if i < x.size:
        low, high = 0, keys.size
        while low < high:
            middle = (low + high) // 2
            if keys[middle] < x[i]:
                low = middle + 1
            else:
                high = middle
        out[i] = low


def local_rows(out, x, n):
    kept = cuda.local.array(16, float32)
    i = cuda.grid(1)
    if i < x.shape[0]:
        for j in range(n):
            kept[(j * 5) % 16] = x[i, j]
        for j in range(n):
            out[i, n - 1 - j] = kept[(j * 5) % 16]


def odd_even(x):
    i = cuda.grid(1)
    j = 2 * i + 1
    if j < x.size:
        a, b = x[2 * i], x[j]
        if a > b:
            x[2 * i], x[j] = b, a


def strided_sum(out, x, step):
    acc = 0
    i = cuda.grid(1)
    for j in range(i, x.size, step):
        acc += x[j]
    if i < out.size:
        out[i] = acc


def launches(run):
    for kind in NAMES:
        for n in (1, 31, 64, 100, 130):
            grid = [cdiv(n, 32)]
            run(axpy, grid, [32], (kind, n), (kind, n), 3)
            run(axpy, [2], [32], (kind, n), (kind, n), 3)
            run(backwards, grid, [32], (kind, n), (kind, n))
            run(odd_even, grid, [32], (kind, n))
            run(strided_sum, [1], [32], (kind, 32), (kind, n), 32)
            run(counted, grid, [32], ("i32", 8), (kind, n), -1.0, 5.0)
            run(search, grid, [32], ("i32", n), (kind, 20), (kind, n))
            if kind in ("i32", "i64", "fp32", "fp64"):
                run(compact, grid, [32], (kind, n), ("i32", 1, [0]), (kind, n))
                run(warp_top, grid, [32], (kind, grid[0]), (kind, n))
            for m in (3, 17):
                if n <= 64:
                    run(local_rows, [1], [32], (kind, m, 11), (kind, m, 11), 11)
                    run(transpose, [cdiv(n, 16), cdiv(m, 16)], [16, 4], (kind, n, m), (kind, m, n))
                    run(
                        tiled,
                        [cdiv(n, 8), cdiv(m, 8)],
                        [8, 8],
                        (kind, m, n),
                        (kind, m, 9),
                        (kind, 9, n),
                    )
        run(stencil, [1, 2, 2], [4, 2, 4], (kind, 4, 4, 6), (kind, 4, 4, 6))
    for n in (1, 40, 64):
        run(block_scan, [cdiv(n, 64)], [64], ("i32", n), ("i32", n), ("i32", cdiv(n, 64)))
        run(bitonic, [1], [64], ("fp32", n), n)


def main(out, *architectures):
    for arch in [int(a) for a in architectures] or [75, 90]:
        made = Launches(out, f"numba_{numba.__version__.replace('.', '_')}_{arch}")

        def run(function, grid, block, *values, made=made, arch=arch):
            for layout in ("C", "A"):
                kinds, sent = [], []
                for value in values:
                    if not isinstance(value, tuple):
                        kinds.append(types.int64 if isinstance(value, int) else types.float64)
                        sent.append(("i64" if isinstance(value, int) else "fp64", value))
                        continue
                    kind, *shape = value
                    content = shape.pop() if isinstance(shape[-1], list) else None
                    kinds.append(types.Array(getattr(types, NAMES[kind]), len(shape), layout))
                    count, width = math.prod(shape), BYTES[kind]
                    steps = [width * math.prod(shape[i + 1 :]) for i in range(len(shape))]
                    words = [0, 0, count, width, Array(kind, count, content), *shape, *steps]
                    sent += [word if isinstance(word, Array) else ("i64", word) for word in words]

                def make(function=function, kinds=kinds):
                    text, _ = cuda.compile_ptx(function, tuple(kinds), cc=divmod(arch, 10))
                    name = text.split(".visible .entry ")[1].split("(")[0]
                    return text, {"kernel": name}

                if facts := made.module((function.__name__, *map(str, kinds)), make):
                    made.add(facts["ptx"], facts["kernel"], grid, block, sent)

        launches(run)
        made.write()


if __name__ == "__main__":
    main(*sys.argv[1:])
