"""How fast the CPU backend runs kernels, against NumPy doing the same work.

    python -m benchmarks.running.cpu [--repeats 5] [-o FILE]

Each case checks its result, then times launches (compiling done before) and NumPy in turn in
one process, and reports medians. Between the two there is a rest: the threads of NumPy's matrix
product spin for a while after their work, and would take time from what is measured next. The last
case runs vector addition at three sizes to show that cost grows linearly with threads.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import numpy as np

from benchmarks.common import ROOT, arguments, machine, write
from tessera.backend.ptx_executor.device import Device
from tessera.frontend.ptx.read_ptx import parse_module

PTX = ROOT / "tests" / "data" / "kernels" / "ptx"
_REST_S = 0.5


def kernel(device: Device, file: str, name: str):
    return device.load(parse_module((PTX / file).read_text(), file))[name]


def timed(work: Callable[[], object], repeats: int) -> list[float]:
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return found


def compare(name: str, goal: float, ours, numpy, repeats: int) -> dict:
    """Medians of both and how many times slower ours is."""
    ours()
    numpy()
    mine, theirs = [], []
    for _ in range(repeats):
        time.sleep(_REST_S)
        mine += timed(ours, 1)
        time.sleep(_REST_S)
        theirs += timed(numpy, 3)
    ratio = statistics.median(mine) / statistics.median(theirs)
    return {
        "name": name,
        "seconds": mine,
        "median_seconds": statistics.median(mine),
        "numpy_median_seconds": statistics.median(theirs),
        "ratio": ratio,
        "goal": goal,
        "met": ratio <= goal,
    }


def vector_add(repeats: int) -> dict:
    count = 1 << 24
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(count, dtype=np.float32) for _ in range(2))
    with Device() as device:
        add = kernel(device, "triton_add.ptx", "add")
        a, b = device.array(x), device.array(y)
        c = device.empty(count, np.float32)
        args = [c, a, b, np.int32(count), np.uint64(0), np.uint64(0)]

        def ours():
            add.launch(count // 256, 128, args)

        found = compare("vector add, 16M f32 (Triton)", 30, ours, lambda: x + y, repeats)
        assert (c.numpy() == x + y).all()
    return found


def softmax(repeats: int) -> dict:
    rows, cols = 4096, 1024
    x = np.random.default_rng(1).standard_normal((rows, cols), dtype=np.float32)
    with Device() as device:
        run = kernel(device, "rows.ptx", "softmax")
        source, target = device.array(x), device.empty((rows, cols), np.float32)

        def ours():
            run.launch(rows, 256, [target, source, np.int32(cols)])

        def numpy():
            e = np.exp(x - x.max(1, keepdims=True))
            return e / e.sum(1, keepdims=True)

        found = compare("row softmax, 4096x1024 f32 (NVRTC)", 60, ours, numpy, repeats)
        np.testing.assert_allclose(target.numpy(), numpy(), rtol=1e-5, atol=1e-8)
    return found


def bf16(values: np.ndarray) -> np.ndarray:
    return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def gemm(repeats: int) -> dict:
    size = 512
    facts = json.loads((PTX.parent / "triton.json").read_text())["triton_matmul_bf16_80"]
    rng = np.random.default_rng(2)
    whole = [rng.standard_normal((size, size), dtype=np.float32) for _ in range(2)]
    a, b = ((bf16(m).astype(np.uint32) << 16).view(np.float32) for m in whole)
    with Device() as device:
        run = kernel(device, "triton_matmul_bf16_80.ptx", facts["kernel"])
        left, right = device.array(bf16(a)), device.array(bf16(b))
        product = device.empty((size, size), np.uint16)
        tile = 64
        args = [product, left, right, *[np.int32(size)] * 3, np.uint64(0), np.uint64(0)]

        def ours():
            grid = (size // tile, size // tile)
            run.launch(grid, facts["threads"], args, shared=facts["smem"])

        found = compare("bf16 GEMM 512x512x512 (Triton, sm_80)", 200, ours, lambda: a @ b, repeats)
        got = (product.numpy().astype(np.uint32) << 16).view(np.float32)
        np.testing.assert_allclose(got, a @ b, rtol=1e-2, atol=0.3)
    return found


def linearity() -> list[dict]:
    found = []
    with Device() as device:
        add = kernel(device, "triton_add.ptx", "add")
        for count in (1 << 18, 1 << 20, 1 << 22):
            x = device.array(np.ones(count, np.float32))
            y = device.empty(count, np.float32)
            args = [y, x, x, np.int32(count), np.uint64(0), np.uint64(0)]
            seconds = statistics.median(
                timed(lambda a=args, n=count: add.launch(n // 256, 128, a), 3)
            )
            found.append({"elements": count, "ns_per_element": seconds / count * 1e9})
            x.close()
            y.close()
    return found


def main() -> None:
    parser = arguments(__doc__, "cpu.json")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    cases = [case(options.repeats) for case in (vector_add, softmax, gemm)]
    for case in cases:
        print(
            f"{case['name']}: {case['median_seconds']:.3f} s, {case['ratio']:.1f} times NumPy "
            f"(goal {case['goal']})"
        )
    growth = linearity()
    for row in growth:
        print(f"{row['elements']} elements: {row['ns_per_element']:.1f} ns each")
    report = {
        **machine(),
        "numpy": np.__version__,
        "cases": cases,
        "linearity": growth,
    }
    write(report, options.output)


if __name__ == "__main__":
    main()
