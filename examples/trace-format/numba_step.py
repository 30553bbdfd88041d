"""A trace of Numba kernels, written without Tessera and without a GPU.

`pip install "numba-cuda[cu13]"`, then `python numba_step.py OUT.ptx`. Numba compiles the kernels to
PTX; the launches, buffers and contents of a small two-layer network are written by `trace_writer`.
"""

from __future__ import annotations

import sys

import numba
import numpy as np
from numba import cuda, float32, int32, types
from trace_writer import Address, Scalar, TraceWriter

TILE = 16
POINTER = types.CPointer(float32)


def linear(y, x, w, rows, inner, columns):  # type: ignore[no-untyped-def]
    """y = x @ w, in tiles through shared memory."""
    left = cuda.shared.array((TILE, TILE), float32)
    right = cuda.shared.array((TILE, TILE), float32)
    column, row = cuda.grid(2)
    i, j = cuda.threadIdx.y, cuda.threadIdx.x
    total = float32(0.0)
    for start in range(0, inner, TILE):
        left[i, j] = x[row * inner + start + j] if row < rows else float32(0.0)
        right[i, j] = w[(start + i) * columns + column] if column < columns else float32(0.0)
        cuda.syncthreads()
        for k in range(TILE):
            total += left[i, k] * right[k, j]
        cuda.syncthreads()
    if row < rows and column < columns:
        y[row * columns + column] = total


def bias_relu(y, bias, count, columns):  # type: ignore[no-untyped-def]
    """y = max(y + bias, 0), in place."""
    place = cuda.grid(1)
    if place < count:
        y[place] = max(y[place] + bias[place % columns], float32(0.0))


def main(path: str, capability: tuple[int, int] = (8, 0)) -> None:
    """Write the trace to `path`, and the contents of its buffers beside it."""
    trace = TraceWriter("numba", {"version": numba.__version__})
    kernels = {}
    for kernel, parameters in (
        (linear, (POINTER, POINTER, POINTER, int32, int32, int32)),
        (bias_relu, (POINTER, POINTER, int32, int32)),
    ):
        ptx, _ = cuda.compile_ptx(kernel, parameters, cc=capability, device=False)
        entry = ptx.partition(".entry")[2].partition("(")[0].strip()
        trace.module(kernel.__name__, ptx, {"function": kernel.__name__})
        kernels[kernel.__name__] = f"{kernel.__name__}.{entry}"

    random = np.random.default_rng(0)

    def filled(name: str, *shape: int, role: str = "weight") -> Address:
        values = random.standard_normal(shape, dtype=np.float32)
        return trace.buffer(name, "f32", shape, role, values.tobytes())

    rows, width, hidden = 40, 64, 96
    x = filled("x", rows, width, role="input")
    up, down = filled("up", width, hidden), filled("down", hidden, width)
    bias = filled("bias", hidden)
    middle = trace.buffer("middle", "f32", (rows, hidden), "temp")
    y = trace.buffer("y", "f32", (rows, width), "output")

    def product(result: Address, left: Address, right: Address, inner: int, columns: int) -> None:
        grid = (-(-columns // TILE), -(-rows // TILE), 1)
        sizes = [Scalar("u32", size) for size in (rows, inner, columns)]
        trace.launch(kernels["linear"], grid, (TILE, TILE, 1), [result, left, right, *sizes])

    product(middle, x, up, width, hidden)
    count = Scalar("u32", rows * hidden), Scalar("u32", hidden)
    blocks = (-(-rows * hidden // 128), 1, 1)
    trace.launch(kernels["bias_relu"], blocks, (128, 1, 1), [middle, bias, *count])
    product(y, middle, down, hidden, width)
    trace.save(path)


if __name__ == "__main__":
    main(*sys.argv[1:2])
