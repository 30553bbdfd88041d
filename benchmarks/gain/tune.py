"""Which tiles the kernels of `benchmarks.gain.model` are fastest with, on so many SMs of the GPU.

    python -m benchmarks.gain.tune JOBS.json OUTPUT.json

In: jobs `{"name": ..., "rows": 1024, "prefill": 896, "decode": 128, "sms": 100, "small": 32}`:
products and the attention of prompts are tuned for `sms`, attention over caches for `small`. Out:
per job the text for the model's `tiles`, and all times in microseconds. Weights come from several
copies, so that no product finds its weights in L2.
"""

# torch and Triton have no types here.
# mypy: ignore-errors

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from cuda.bindings import driver

from benchmarks.gain import kernels, model

PRODUCT_TILES = (
    "128x128x64x4x3",
    "128x128x64x4x4",
    "128x128x64x8x4",
    "256x128x64x8x3",
    "128x256x64x8x3",
    "128x256x64x8x4",
    "64x256x64x4x4",
    "128x64x64x4x4",
    "128x128x128x8x3",
    "64x128x64x4x4",
)
DECODE_TILES = (
    "128x4x2",
    "64x2x4",
    "64x4x2",
    "64x2x3",
    "128x2x2",
    "32x2x4",
    "128x4x3",
    "64x1x3",
    "64x4x3",
)
PREFILL_TILES = ("64x8x3", "128x8x2", "64x4x2", "64x4x3", "64x8x2")
COPIES = 4


def main() -> None:
    jobs = json.loads(Path(sys.argv[1]).read_text())
    started = time.perf_counter()
    bench = Bench()
    found = {}
    for job in jobs:
        found[job["name"]] = bench.tune(job)
        Path(sys.argv[2]).write_text(json.dumps(found, indent=1) + "\n")
        print(
            job["name"],
            found[job["name"]]["tiles"],
            f"{time.perf_counter() - started:.1f} s",
            flush=True,
        )


class Bench:
    """Kernels, their operands, and streams of slices."""

    def __init__(self) -> None:
        torch.zeros(1, device="cuda")
        self.whole = torch.cuda.get_device_properties(0).multi_processor_count
        self.streams = {self.whole: torch.cuda.Stream()}
        self.weights = {
            name: [_random(shape) for _ in range(COPIES if shape[0] * shape[1] < 1 << 26 else 1)]
            for name, shape in model.PRODUCTS.items()
        }
        self.known: dict[tuple[object, ...], float] = {}

    def tune(self, job: dict[str, object]) -> dict[str, object]:
        rows, sms = job["rows"], job["sms"]
        times: dict[str, dict[str, float]] = {}
        for name in model.PRODUCTS:
            height = rows if name != "head" else job["decode"] or 128
            times[name] = {
                tile: self.time(("product", name, height, tile), sms, self.product)
                for tile in PRODUCT_TILES
                if height % model.tile_of(tile)[0] == 0
            }
        if job["decode"]:
            times["decode"] = {
                tile: self.time(("decode", job["decode"], tile), job["small"], self.decode)
                for tile in DECODE_TILES
            }
        if job["prefill"]:
            times["prefill"] = {
                tile: self.time(("prefill", job["prefill"], tile), sms, self.prefill)
                for tile in PREFILL_TILES
            }
        chosen = {name: min(row, key=row.__getitem__) for name, row in times.items()}
        tiles = ",".join(f"{name}={tile}" for name, tile in chosen.items())
        return {"tiles": tiles, "us": times, **job}

    def time(self, key: tuple[object, ...], sms: int, make: Callable[..., object]) -> float:
        """Microseconds of one launch, the median of some; infinite where it cannot be built."""
        if (*key, sms) not in self.known:
            try:
                self.known[*key, sms] = self._time(make(*key[1:]), self.stream(sms))
            except Exception as problem:  # too much shared memory, say
                print(key, repr(problem)[:120])
                self.known[*key, sms] = 1e9
        return self.known[*key, sms]

    def _time(self, launches: list[Callable[[], None]], stream: object) -> float:
        found = []
        with torch.cuda.stream(stream):
            for launch in launches:
                launch()
            for _ in range(3):
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record(stream)
                for launch in itertools.islice(itertools.cycle(launches), 4):
                    launch()
                end.record(stream)
                end.synchronize()
                found.append(start.elapsed_time(end) / 4 * 1e3)
        return sorted(found)[1]

    def product(self, name: str, rows: int, tile: str) -> list[Callable[[], None]]:
        columns, depth = model.PRODUCTS[name]
        bm, bn, bk, warps, stages = model.tile_of(tile)
        x, out = _random((rows, depth)), _random((rows, columns))

        def launch(weight: torch.Tensor) -> None:
            kernels.gemm[(rows // bm * (columns // bn),)](
                x,
                weight,
                x,
                out,
                rows,
                columns,
                depth,
                ADD=False,
                BM=bm,
                BN=bn,
                BK=bk,
                DEEP=model.DEEP,
                num_warps=warps,
                num_stages=stages,
            )

        return [lambda weight=weight: launch(weight) for weight in self.weights[name]]

    def decode(self, count: int, tile: str) -> list[Callable[[], None]]:
        block, warps, stages = model.tile_of(tile)
        keys, values = self._caches((count, model.KV_HEADS, 4096, kernels.HEAD))
        queries, out = (_random((count, model.HIDDEN)) for _ in range(2))
        return [
            lambda: kernels.attention_decode[(count, model.KV_HEADS)](
                queries,
                keys,
                values,
                out,
                0,
                CONTEXT=4096,
                HEADS=model.KV_HEADS,
                BLOCK=block,
                num_warps=warps,
                num_stages=stages,
            )
        ]

    def prefill(self, count: int, tile: str) -> list[Callable[[], None]]:
        block, warps, stages = model.tile_of(tile)
        keys, values = self._caches((model.KV_HEADS, 4096, kernels.HEAD))
        queries, out = (_random((count, model.HIDDEN)) for _ in range(2))
        return [
            lambda: kernels.attention_prefill[(count // 128, model.HEADS)](
                queries,
                keys,
                values,
                out,
                0,
                4096 - count,
                CONTEXT=4096,
                HEADS=model.KV_HEADS,
                BM=128,
                BLOCK=block,
                num_warps=warps,
                num_stages=stages,
            )
        ]

    def _caches(self, shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        if shape not in self.weights:
            self.weights[shape] = [_random(shape), _random(shape)]
        return tuple(self.weights[shape])

    def stream(self, sms: int) -> object:
        """A stream with so many SMs, a multiple of 8 or what such a slice leaves."""
        if sms not in self.streams:
            size = sms if sms % 8 == 0 else self.whole - sms
            device = _call(driver.cuDeviceGet(0))
            kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
            every = _call(driver.cuDeviceGetDevResource(device, kind))
            groups, _, left = _call(driver.cuDevSmResourceSplitByCount(1, every, 0, size))
            for resource in (groups[0], left):
                description = _call(driver.cuDevResourceGenerateDesc([resource], 1))
                flag = driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
                context = _call(driver.cuGreenCtxCreate(description, device, flag))
                free = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
                stream = _call(driver.cuGreenCtxStreamCreate(context, free, 0))
                count = int(resource.sm.smCount)
                self.streams.setdefault(count, torch.cuda.ExternalStream(int(stream)))
        return self.streams[sms]


def _random(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16) * 0.02


def _call(found: tuple[object, ...]) -> object:
    if int(found[0]):
        raise RuntimeError(str(found[0]))
    return found[1] if len(found) == 2 else found[1:]


if __name__ == "__main__":
    main()
