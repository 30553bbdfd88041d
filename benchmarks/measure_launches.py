"""Times of the launches of traces on the GPU at hand, and of Triton kernels of many sizes.

    python benchmarks/measure_launches.py -o FOLDER trace.ptx...

Writes `launches.json` (nanoseconds per launch of each trace) and `triton.json` (PTX, arguments and
nanoseconds of kernels that are compiled here). Every launch runs many times in one CUDA graph.
Buffers are zero. Needs a GPU, cuda-python and, for the second part, torch and Triton.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

REPEATS = 5


class Gpu:
    """The driver calls that are needed, on one context."""

    def __init__(self) -> None:
        from cuda.bindings import driver

        self.cu: Any = driver
        self.ask("cuInit", 0)
        device = self.ask("cuDeviceGet", 0)
        self.ask("cuCtxSetCurrent", self.ask("cuDevicePrimaryCtxRetain", device))
        self.stream = self.ask("cuStreamCreate", 1)
        self.begin, self.end = (self.ask("cuEventCreate", 0) for _ in range(2))

    def ask(self, name: str, *args: Any) -> Any:
        status, *found = getattr(self.cu, name)(*args)
        if int(status) != 0:
            raise RuntimeError(f"{name}: {status}")
        return found[0] if len(found) == 1 else found

    def time(self, launch: Any) -> tuple[float, float]:
        """Nanoseconds of a launch, and the mean distance from the median as a fraction."""
        launch()
        self.ask("cuStreamSynchronize", self.stream)
        once = self.timed(launch)
        count = int(min(max(1e6 / max(once, 1000.0), 3), 100))
        mode = self.cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
        self.ask("cuStreamBeginCapture", self.stream, mode)
        for _ in range(count):
            launch()
        graph = self.ask("cuGraphInstantiate", self.ask("cuStreamEndCapture", self.stream), 0)
        times = [
            self.timed(lambda: self.ask("cuGraphLaunch", graph, self.stream)) / count
            for _ in range(REPEATS + 1)
        ][1:]
        self.ask("cuGraphExecDestroy", graph)
        middle = statistics.median(times)
        return middle, statistics.mean(abs(t - middle) for t in times) / middle

    def timed(self, call: Any) -> float:
        self.ask("cuEventRecord", self.begin, self.stream)
        call()
        self.ask("cuEventRecord", self.end, self.stream)
        self.ask("cuEventSynchronize", self.end)
        return float(self.ask("cuEventElapsedTime", self.begin, self.end)) * 1e6


def measure_trace(gpu: Gpu, path: str) -> list[dict[str, object]]:
    from tessera.backend.cuda.parameters import pack_parameters
    from tessera.driver.analyze import load
    from tessera.ir.program.program import Launch, for_arch
    from tessera.ir.ptx.print_ptx import print_module
    from tessera.passes.costs.estimate_costs import best_variant

    program = load(path)
    addresses = [gpu.ask("cuMemAlloc", max(b.bytes, 16)) for b in program.buffers]
    for address, buffer in zip(addresses, program.buffers, strict=True):
        gpu.ask("cuMemsetD8", address, 0, max(buffer.bytes, 16))
    functions: dict[tuple[int, str, str], Any] = {}
    rows: list[dict[str, object]] = []
    for work in program.work():
        if not isinstance(work, Launch) or work.cluster or work.cooperative:
            continue
        variant = best_variant(program, work, "sm_90a")
        if variant is None:
            continue
        launch = for_arch(work, variant.arch)
        key = (int(work.module), variant.arch, launch.kernel)
        try:
            if key not in functions:
                module = gpu.ask("cuModuleLoadData", print_module(variant.ptx).encode() + b"\0")
                functions[key] = gpu.ask("cuModuleGetFunction", module, launch.kernel.encode())
                limit = gpu.cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                gpu.ask("cuFuncSetAttribute", functions[key], limit, launch.shared_bytes)
            packed = pack_parameters(
                launch.arguments, lambda p: int(addresses[p.buffer]) + p.offset
            )

            def go(f: Any = functions[key], one: Launch = launch, at: int = packed.address) -> None:
                gpu.ask(
                    "cuLaunchKernel", f, *one.grid, *one.block, one.shared_bytes, gpu.stream, at, 0
                )

            ns, spread = gpu.time(go)
        except RuntimeError as failure:
            print(path, work.kernel, failure, flush=True)
            if "LAUNCH" in str(failure) or "ILLEGAL" in str(failure):
                return rows
            continue
        rows.append(
            {
                "trace": Path(path).name,
                "step": int(work.id),
                "kernel": work.kernel,
                "ns": round(ns, 1),
                "spread": round(spread, 4),
            }
        )
    for address in addresses:
        gpu.ask("cuMemFree", address)
    return rows


def triton_rows() -> list[dict[str, object]]:
    import torch
    import triton

    from benchmarks.kernels import triton_sizes as kernels

    rows: list[dict[str, object]] = []
    for kernel, grid, arguments, constants, warps in kernels.cases():
        given = [
            torch.zeros(size, dtype=getattr(torch, kind), device="cuda") if tensor else size
            for tensor, kind, size in arguments
        ]
        compiled = kernel[grid](*given, **constants, num_warps=warps)
        torch.cuda.synchronize()

        def go(
            k: Any = kernel, g: Any = grid, a: Any = given, c: Any = constants, w: int = warps
        ) -> None:
            k[g](*a, **c, num_warps=w)

        ns = triton.testing.do_bench_cudagraph(go, rep=10) * 1e6
        rows.append(
            {
                "kernel": compiled.metadata.name,
                "ptx": compiled.asm["ptx"],
                "grid": list(grid),
                "block": warps * 32,
                "shared": compiled.metadata.shared,
                "arguments": [list(one) for one in arguments],
                "constants": constants,
                "ns": round(ns, 1),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("traces", nargs="*")
    options = parser.parse_args()
    try:
        found = triton_rows()
        (options.output / "triton.json").write_text(json.dumps(found) + "\n")
        print(len(found), "triton kernels", flush=True)
    except Exception:
        traceback.print_exc()
    gpu = Gpu()
    rows: list[dict[str, object]] = []
    for path in options.traces:
        try:
            rows += measure_trace(gpu, path)
        except Exception:
            traceback.print_exc()
        print(path, len(rows), flush=True)
        (options.output / "launches.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
