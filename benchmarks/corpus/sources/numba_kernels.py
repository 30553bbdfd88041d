"""Numba kernels for the corpus, compiled to PTX without a GPU: `python numba_kernels.py OUT`."""

# ruff: noqa: E501

import math
import os
import pathlib
import sys

os.environ.setdefault("NUMBA_CUDA_USE_NVIDIA_BINDING", "1")
from numba import complex64, cuda, float32, float64, int32, int64, uint8, uint32


def saxpy(y, x, a):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = a * x[i] + y[i]


def matmul(c, a, b):
    ta = cuda.shared.array((16, 16), float32)
    tb = cuda.shared.array((16, 16), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    acc = float32(0)
    for i in range((a.shape[1] + 15) // 16):
        ta[ty, tx] = a[y, tx + i * 16] if y < a.shape[0] and tx + i * 16 < a.shape[1] else 0
        tb[ty, tx] = b[ty + i * 16, x] if x < b.shape[1] and ty + i * 16 < b.shape[0] else 0
        cuda.syncthreads()
        for j in range(16):
            acc += ta[ty, j] * tb[j, tx]
        cuda.syncthreads()
    if y < c.shape[0] and x < c.shape[1]:
        c[y, x] = acc


def mandelbrot(image, x0, x1, y0, y1, limit):
    i, j = cuda.grid(2)
    if i < image.shape[0] and j < image.shape[1]:
        c = complex(x0 + (x1 - x0) * i / image.shape[0], y0 + (y1 - y0) * j / image.shape[1])
        z = 0j
        for n in range(limit):
            z = z * z + c
            if z.real * z.real + z.imag * z.imag >= 4:
                image[i, j] = n
                return
        image[i, j] = limit


def histogram(bins, x, low, high):
    step = cuda.gridsize(1)
    for i in range(cuda.grid(1), x.size, step):
        k = int((x[i] - low) / (high - low) * bins.size)
        if 0 <= k < bins.size:
            cuda.atomic.add(bins, k, 1)


def reduce_warp(out, x):
    v = x[cuda.grid(1)]
    for d in (16, 8, 4, 2, 1):
        v += cuda.shfl_down_sync(0xFFFFFFFF, v, d)
    if cuda.laneid == 0:
        cuda.atomic.max(out, 0, v)


def special(out, x):
    i = cuda.grid(1)
    if i < x.size:
        v = x[i]
        out[i] = (
            math.sin(v)
            + math.exp(v)
            + math.lgamma(v)
            + math.pow(v, 2.5)
            + math.atan2(v, 3.0)
            + math.erf(v)
            + v % 3.0
            + v // 2.0
        )


def locals_(out, x, n):
    a = cuda.local.array(32, float64)
    for i in range(32):
        a[i] = x[i] * i
    s = 0.0
    for i in range(n):
        s += a[(i * 7) % 32]
    out[cuda.grid(1)] = s


def stencil(out, x):
    i, j, k = cuda.grid(3)
    if 0 < i < x.shape[0] - 1 and 0 < j < x.shape[1] - 1 and 0 < k < x.shape[2] - 1:
        out[i, j, k] = (
            x[i - 1, j, k]
            + x[i + 1, j, k]
            + x[i, j - 1, k]
            + x[i, j + 1, k]
            + x[i, j, k - 1]
            + x[i, j, k + 1]
        ) / 6


def sha_like(state, data):
    a, b, c = state[0], state[1], state[2]
    for i in range(data.size):
        a = uint32((a << uint32(5)) ^ (a >> uint32(27)) ^ data[i] ^ b)
        b, c = c, a
    state[0], state[1], state[2] = a, b, c


def divide(out, a, b):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a[i] // b[i] + a[i] % b[i]


def device_add(a, b):
    return a * 2 + b


def swap_pairs(z):
    i = cuda.grid(1)
    z[i] = z[i] * z[i].conjugate() / (z[i] + 1)


JOBS = [
    (saxpy, (float32[:], float32[:], float32)),
    (saxpy, (float64[::1], float64[::1], float64)),
    (matmul, (float32[:, ::1], float32[:, ::1], float32[:, ::1])),
    (mandelbrot, (int32[:, :], float64, float64, float64, float64, int32)),
    (histogram, (int32[:], float32[:], float32, float32)),
    (reduce_warp, (float32[:], float32[:])),
    (special, (float64[:], float64[:])),
    (special, (float32[:], float32[:])),
    (locals_, (float64[:], float64[:], int64)),
    (stencil, (float32[:, :, ::1], float32[:, :, ::1])),
    (sha_like, (uint32[:], uint32[:])),
    (divide, (int64[:], int64[:], int64[:])),
    (divide, (int32[:], int32[:], int32[:])),
    (swap_pairs, (complex64[:],)),
    (histogram, (int64[:], uint8[:], float64, float64)),
]


def main(out):
    """Compile every job for two architectures, optimised and for debugging."""
    folder = pathlib.Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    for index, (function, types) in enumerate(JOBS):
        for major, minor in ((7, 5), (8, 0), (9, 0)):
            for debug in (False, True):
                if debug and (major, minor) != (8, 0):
                    continue
                path = (
                    folder
                    / f"{function.__name__.strip('_')}{index}.sm_{major}{minor}{'.debug' if debug else ''}.ptx"
                )
                try:
                    ptx, _ = cuda.compile_ptx(
                        function,
                        types,
                        cc=(major, minor),
                        debug=debug,
                        opt=not debug,
                        lineinfo=False,
                    )
                except Exception as failure:
                    print(
                        f"left out {path.name}: {str(failure).strip().splitlines()[-1:]}",
                        flush=True,
                    )
                    continue
                path.write_text(ptx)
    ptx, _ = cuda.compile_ptx(device_add, (float32, float32), device=True, cc=(8, 0))
    (folder / "device_add.sm_80.ptx").write_text(ptx)
    ptx, _ = cuda.compile_ptx(
        stencil, (float32[:, :, ::1], float32[:, :, ::1]), cc=(8, 0), lineinfo=True
    )
    (folder / "stencil.sm_80.lineinfo.ptx").write_text(ptx)


if __name__ == "__main__":
    main(sys.argv[1])
