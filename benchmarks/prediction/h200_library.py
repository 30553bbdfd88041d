"""PyTorch's operators at the sizes of real models, for `h200_rows`. Needs a GPU."""

# torch has no types here.
# mypy: ignore-errors

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as functional

from benchmarks.prediction.h200_rows import (
    FILE,
    MOST_SETS,
    REPEATS,
    ROTATED_BYTES,
    SLICES,
    WHOLE,
    Clock,
    Job,
    Rows,
    in_order,
    launches_of,
    run_jobs,
    summary,
)
from benchmarks.prediction.h200_shapes import LINEAR, ROWS, VOCABULARY

POOL_BYTES = 12 << 30
TYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True)
class Operator:
    """A call; `shapes` are those of its operands, whole numbers have a limit behind them."""

    family: str
    name: str
    shape: dict[str, int]
    shapes: tuple[tuple[int, ...], ...]
    call: Callable[..., Any]
    kind: str = "bf16"
    moved: int = 0  # elements that are read and written, where that is not what there is
    index: tuple[int, ...] = ()  # of an operand of whole numbers: its shape and the limit
    shared: int = -1  # an operand that all sets share


def products() -> Iterator[Operator]:
    for rows in ROWS:
        for name, (columns, depth) in LINEAR.items():
            if rows * columns * depth <= 4096 * 57344 * 8192:
                yield Operator(
                    "gemm",
                    f"mm {name} m={rows}",
                    {"m": rows, "n": columns, "k": depth},
                    ((rows, depth), (columns, depth)),
                    lambda a, b: torch.mm(a, b.t()),
                )
    for rows, columns, depth in ((512, 4096, 4096), (4096, 4096, 4096)):
        yield Operator(
            "gemm",
            f"mm fp32 m={rows} n={columns} k={depth}",
            {"m": rows, "n": columns, "k": depth},
            ((rows, depth), (columns, depth)),
            lambda a, b: torch.mm(a, b.t()),
            kind="fp32",
        )


def attentions() -> Iterator[Operator]:
    def attend(causal: bool) -> Callable[..., Any]:
        return lambda q, k, v: functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
        )

    for length in (1024, 2048, 4096, 8192, 16384):
        for heads, group, width, causal in ((32, 4, 128, 1), (32, 1, 128, 1), (24, 1, 128, 0)):
            for batch in (1, 4) if length <= 4096 else (1,):
                few = (batch, heads // group, length, width)
                yield Operator(
                    "prefill",
                    f"sdpa b={batch} h={heads}/{group} {length} {'causal' if causal else 'full'}",
                    {
                        "batch": batch,
                        "heads": heads,
                        "group": group,
                        "length": length,
                        "width": width,
                        "causal": causal,
                    },
                    ((batch, heads, length, width), few, few),
                    attend(bool(causal)),
                )
    for batch in (1, 4, 16, 64):
        for context in (1024, 4096, 8192, 32768):
            if batch * context > 32 * 32768:
                continue
            for group in (1, 4):
                few = (batch, 8, context, 128)
                yield Operator(
                    "decode",
                    f"sdpa b={batch} h=8*{group} {context}",
                    {"batch": batch, "heads": 8, "group": group, "context": context, "parts": 0},
                    ((batch, 8 * group, 1, 128), few, few),
                    attend(False),
                )


def rest() -> Iterator[Operator]:
    for rows in (1, 16, 128, 1024, 4096, 16384):
        for width in (4096, 8192):
            sizes, one = {"rows": rows, "width": width}, (rows, width)
            flat = ((width,),)
            yield Operator(
                "norm",
                f"rms_norm {rows}x{width}",
                sizes,
                (one, *flat),
                lambda x, w: functional.rms_norm(x, (x.shape[1],), w, 1e-5),
            )
            yield Operator(
                "norm",
                f"layer_norm {rows}x{width}",
                sizes,
                (one, *flat, *flat),
                lambda x, w, b: functional.layer_norm(x, (x.shape[1],), w, b),
            )
            yield Operator(
                "softmax",
                f"softmax {rows}x{width}",
                sizes,
                (one,),
                lambda x: torch.softmax(x, -1),
            )
            yield Operator(
                "gather",
                f"embedding {rows}x{width}",
                sizes,
                ((VOCABULARY, width),),
                lambda table, index: functional.embedding(index, table),
                moved=2 * rows * width,
                index=(rows, VOCABULARY),
                shared=0,
            )
            yield Operator("elementwise", f"add {rows}x{width}", sizes, (one, one), torch.add)
            yield Operator("elementwise", f"gelu {rows}x{width}", sizes, (one,), functional.gelu)
            yield Operator(
                "scan", f"cumsum {rows}x{width}", sizes, (one,), lambda x: torch.cumsum(x, -1)
            )
    for batch, side, channels, features in (
        (1, 128, 320, 320),
        (2, 64, 640, 640),
        (1, 32, 1280, 1280),
        (4, 16, 1280, 1280),
        (1, 256, 128, 128),
        (1, 512, 128, 128),
    ):
        yield Operator(
            "convolution",
            f"conv2d {batch}x{side}x{side} {channels}->{features}",
            {
                "batch": batch,
                "height": side,
                "width": side,
                "channels": channels,
                "features": features,
            },
            ((batch, side, side, channels), (features, 3, 3, channels)),
            lambda x, w: functional.conv2d(x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), padding=1),
        )


def describe(one: Operator) -> tuple[str, dict[str, object]]:
    about = {
        "source": "library",
        "family": one.family,
        "name": one.name,
        "kind": one.kind,
        "shape": one.shape,
        "operands": [list(shape) for shape in one.shapes],
    }
    return f"library {one.family} {one.name}", about


class Pool:
    """Random numbers of which operands are views."""

    def __init__(self, device: str, size: int) -> None:
        self.device = device
        self.values = torch.empty(size // 2, dtype=torch.bfloat16, device=device)
        block = torch.randn(min(size // 2, 1 << 24), device=device).to(torch.bfloat16)
        for first in range(0, size // 2, block.numel()):
            part = self.values[first : first + block.numel()]
            part.copy_(block[: part.numel()])

    def sets(self, one: Operator) -> tuple[list[list[torch.Tensor]], int]:
        """Operands of as many calls as make L2 cold, and their bytes in all."""
        kind = TYPES[one.kind]
        width = 2 if kind is torch.bfloat16 else 4
        sizes = [width * prod(shape) for shape in one.shapes]
        apart = [size for number, size in enumerate(sizes) if number != one.shared]
        touched = width * one.moved or sum(sizes)
        room = 2 * self.values.numel() - (sizes[one.shared] if one.shared >= 0 else 0)
        most = min(MOST_SETS, room // (sum(-(-s // 256) * 256 for s in apart) + 256))
        if most < 1:
            raise MemoryError(f"{sum(sizes)} bytes of operands")
        count = int(min(max(ROTATED_BYTES // touched + 1, 2), most))
        at = 0
        common = None
        if one.shared >= 0:
            common = self._view(0, one.shapes[one.shared], kind)
            at = -(-sizes[one.shared] // 256) * 256
        made = []
        for _ in range(count):
            operands = []
            for number, shape in enumerate(one.shapes):
                if number == one.shared:
                    operands.append(common)
                    continue
                operands.append(self._view(at, shape, kind))
                at += -(-sizes[number] // 256) * 256
            if one.index:
                *shape, limit = one.index
                operands.append(torch.randint(0, limit, tuple(shape), device=self.device))
            made.append(operands)
        return made, count * touched

    def _view(self, at: int, shape: tuple[int, ...], kind: torch.dtype) -> torch.Tensor:
        width = 2 if kind is torch.bfloat16 else 4
        part = self.values[at // 2 : at // 2 + prod(shape) * width // 2]
        return part.view(kind).view(shape)


class Bench:
    """PyTorch on streams of the GPU and its slices."""

    def __init__(self) -> None:
        from tessera.backend.cuda.slices import split_gpu
        from tessera.backend.cuda.targets import open_driver

        torch.zeros(1, device="cuda")
        torch.backends.cuda.matmul.allow_tf32 = True
        driver = open_driver(None)
        driver.use(driver.retain(0))
        lowest, _ = driver.priorities()
        self.streams = {WHOLE: torch.cuda.Stream()}
        for green, sms in split_gpu(driver, 0, list(SLICES), [0, 1]):
            self.streams[sms] = torch.cuda.ExternalStream(int(driver.stream(lowest, green)))
        self.pool = Pool("cuda", POOL_BYTES)
        self.clock = Clock()
        self.count = 0
        torch.cuda.synchronize()

    def measure(self, job: Job) -> dict[str, object]:
        one, stream = job.case, self.streams[job.sms]
        self.count += 1
        if self.count % 16 == 0:
            torch.cuda.empty_cache()
        sets, rotated = self.pool.sets(one)
        torch.cuda.synchronize()
        with torch.inference_mode(), torch.cuda.stream(stream):
            for _ in range(2):
                one.call(*sets[0])
            stream.synchronize()
            once = min(self._time(lambda: one.call(*sets[-1]), stream) for _ in range(3))
        cold, spread, launches = self._graph(one, sets, once, stream)
        mhz = self.clock.mhz()
        warm, warm_spread, _ = self._graph(one, sets[:1], once, stream)
        return {
            "ns": cold,
            "spread": spread,
            "warm_ns": warm,
            "warm_spread": warm_spread,
            "sets": len(sets),
            "rotated_bytes": rotated,
            "launches": launches,
            "mhz": mhz,
        }

    def _time(self, work: Callable[[], object], stream: Any) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(stream)
        work()
        end.record(stream)
        end.synchronize()
        return begin.elapsed_time(end) * 1e6

    def _graph(
        self, one: Operator, sets: list[list[torch.Tensor]], once: float, stream: Any
    ) -> tuple[float, float, int]:
        launches = launches_of(once, len(sets))
        graph = torch.cuda.CUDAGraph()
        # `torch.cuda.graph` would collect garbage and empty the cache each time.
        with torch.inference_mode(), torch.cuda.stream(stream):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                for number in range(launches):
                    one.call(*sets[number % len(sets)])
            finally:
                graph.capture_end()
            times = [self._time(graph.replay, stream) for _ in range(REPEATS + 1)][1:]
        graph.reset()
        return (*summary(times, launches), launches)


def main() -> None:
    """All operators, as many as there is time for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=300.0)
    options = parser.parse_args()
    until = time.monotonic() + options.seconds
    bench = Bench()
    operators = [*products(), *attentions(), *rest()]
    print(len(operators), "operators", file=sys.stderr, flush=True)
    rows = Rows(options.out / FILE)
    sys.exit(run_jobs(in_order(operators, describe), rows, until, bench.measure))


if __name__ == "__main__":
    main()
