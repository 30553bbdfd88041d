"""Times of PyTorch operators of many sizes on the GPU at hand, for `benchmarks/durations.py`.

    python benchmarks/measure_operators.py -o results.json [--seconds 60]

Each operator runs many times in one CUDA graph, on operands that take turns so that what is larger
than L2 is not found there; the time is the median of five graphs over their launches. Needs torch
and a GPU. What it writes is kept in `benchmarks/results/durations_h200.json`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

Case = tuple[str, dict[str, object], Callable[[], Any]]


def tensors(count: int, *shape: int, dtype: torch.dtype) -> list[torch.Tensor]:
    return [torch.randn(*shape, device="cuda", dtype=dtype) for _ in range(count)]


def in_turn(made: list[Any], call: Callable[[Any], Any]) -> Callable[[], Any]:
    state = [0]

    def run() -> Any:
        state[0] = (state[0] + 1) % len(made)
        return call(made[state[0]])

    return run


def products() -> Iterator[Case]:
    for dtype in (torch.bfloat16, torch.float32):
        for rows in (1, 16, 64, 256, 1024, 4096):
            for inner, width in ((1024, 1024), (4096, 4096), (4096, 14336), (8192, 8192)):
                pairs = [
                    (a, b)
                    for a, b in zip(
                        tensors(3, rows, inner, dtype=dtype),
                        tensors(3, inner, width, dtype=dtype),
                        strict=True,
                    )
                ]
                info = {"m": rows, "k": inner, "n": width, "dtype": str(dtype)[6:]}
                yield "mm", info, in_turn(pairs, lambda pair: pair[0] @ pair[1])


def attentions() -> Iterator[Case]:
    for batch, heads, queries, keys in (
        (1, 32, 512, 512),
        (1, 32, 2048, 2048),
        (4, 32, 1024, 1024),
        (1, 16, 4096, 4096),
        (1, 32, 1, 4096),
        (16, 32, 1, 2048),
        (64, 32, 1, 4096),
        (64, 8, 1, 1024),
    ):
        made = [
            (
                torch.randn(batch, heads, queries, 128, device="cuda", dtype=torch.bfloat16),
                torch.randn(batch, heads, keys, 128, device="cuda", dtype=torch.bfloat16),
                torch.randn(batch, heads, keys, 128, device="cuda", dtype=torch.bfloat16),
            )
            for _ in range(2)
        ]
        info = {"batch": batch, "heads": heads, "queries": queries, "keys": keys, "width": 128}
        yield "attention", info, in_turn(made, lambda q: F.scaled_dot_product_attention(*q))


def elementwise() -> Iterator[Case]:
    for dtype in (torch.bfloat16, torch.float32):
        for rows in (1, 16, 256, 2048, 16384):
            made = tensors(4, rows, 4096, dtype=dtype)
            pairs = [(made[n], made[(n + 1) % 4]) for n in range(4)]
            info = {"rows": rows, "width": 4096, "dtype": str(dtype)[6:]}
            weight = torch.randn(4096, device="cuda", dtype=dtype)
            yield "add", info, in_turn(pairs, lambda pair: pair[0] + pair[1])
            yield "gelu", info, in_turn(made, F.gelu)
            yield "softmax", info, in_turn(made, lambda x: torch.softmax(x, -1))
            yield (
                "layer_norm",
                info,
                in_turn(made, lambda x, w=weight: F.layer_norm(x, (4096,), w, w)),
            )
            yield "sum", info, in_turn(made, lambda x: x.sum(-1))
            yield "copy", info, in_turn(made, lambda x: x.clone())


def measure(call: Callable[[], Any]) -> tuple[float, float]:
    """Nanoseconds of one call, and the mean distance from the median as a fraction."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    started = time.perf_counter()
    call()
    torch.cuda.synchronize()
    once = time.perf_counter() - started
    launches = int(min(max(2e-3 / max(once, 1e-6), 3), 60))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            call()
    times = []
    for _ in range(6):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e6 / launches)
    middle = statistics.median(times[1:])
    return middle, statistics.mean(abs(t - middle) for t in times[1:]) / middle


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    started = time.perf_counter()
    rows = []
    for cases in (products(), attentions(), elementwise()):
        for operator, info, call in cases:
            if time.perf_counter() - started > options.seconds:
                break
            ns, spread = measure(call)
            rows.append({"op": operator, **info, "ns": round(ns, 1), "spread": round(spread, 4)})
    found = torch.cuda.get_device_properties(0)
    document = {
        "schema": "tessera-operator-times/1",
        "device": found.name,
        "sms": found.multi_processor_count,
        "torch": torch.__version__,
        "rows": rows,
    }
    options.output.write_text(json.dumps(document, indent=1) + "\n")
    print(len(rows), "operators in", round(time.perf_counter() - started, 1), "s")


if __name__ == "__main__":
    main()
