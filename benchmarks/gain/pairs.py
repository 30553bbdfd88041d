"""Products of a layer on one slice beside attention over caches on the other, for every split.

    python -m benchmarks.gain.pairs pairs.json

Nothing waits for anything: this is what a kernel-level plan could reach at best, with the real
neighbours that `benchmarks.gain.report` holds the planner's rule against. `each` are microseconds
per round of both while they run together, `alone` by themselves, `sum` one after the other on the
whole GPU.
"""

# torch and Triton have no types here.
# mypy: ignore-errors

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.gain.tune import DECODE_TILES, PRODUCT_TILES, Bench

LAYER = ("qkv", "o", "gate_up", "down")
SPLITS = ((116, 16), (108, 24), (100, 32), (84, 48), (76, 56), (68, 64))
ROWS = (256, 512, 1024, 2048)
DECODE, ROUNDS = 128, 8


def main() -> None:
    bench = Bench()
    found: dict[str, dict[str, object]] = {}
    for rows in ROWS:
        found[str(rows)] = measure(bench, rows)
        Path(sys.argv[1]).write_text(json.dumps({"pairs": found}, indent=1) + "\n")
        print(rows, found[str(rows)], flush=True)


def measure(bench: Bench, rows: int) -> dict[str, object]:
    """All splits for products of so many rows, each with its fastest tiles."""
    whole = bench.stream(bench.whole)
    products = captured(whole, chain(bench, rows, bench.whole))
    attention = captured(whole, caches(bench, bench.whole))
    (gemm_us,), (attention_us,) = timed([(products, whole)]), timed([(attention, whole)])
    found: dict[str, object] = {
        "gemm": gemm_us,
        "attn": attention_us,
        "sum": gemm_us + attention_us,
    }
    for big, small in SPLITS:
        one, other = bench.stream(big), bench.stream(small)
        pair = [
            (captured(one, chain(bench, rows, big)), one),
            (captured(other, caches(bench, small)), other),
        ]
        alone = [timed([way])[0] for way in pair]
        found[f"{big}+{small}"] = {"alone": alone, "each": timed(pair)}
    return found


def chain(bench: Bench, rows: int, sms: int) -> list[Callable[[], None]]:
    """The products of a layer, with the tiles that are fastest on so many SMs."""

    def fastest(name: str) -> str:
        fitting = [tile for tile in PRODUCT_TILES if rows % int(tile.split("x")[0]) == 0]
        key = ("product", name, rows)
        return min(fitting, key=lambda tile: bench.time((*key, tile), sms, bench.product))

    return [bench.product(name, rows, fastest(name))[0] for name in LAYER]


def caches(bench: Bench, sms: int) -> list[Callable[[], None]]:
    """Attention over caches, with the tiles that are fastest on so many SMs."""
    key = ("decode", DECODE)
    tile = min(DECODE_TILES, key=lambda one: bench.time((*key, one), sms, bench.decode))
    return bench.decode(DECODE, tile)


def captured(stream: object, launches: list[Callable[[], None]]) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        for launch in launches:
            launch()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        for launch in launches:
            launch()
    return graph


def timed(ways: list[tuple[torch.cuda.CUDAGraph, object]]) -> list[float]:
    """Microseconds per round of graphs that run side by side, each on its stream."""
    for _ in range(2):
        torch.cuda.synchronize()
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in ways]
        for (_, stream), (start, _) in zip(ways, events, strict=True):
            start.record(stream)
        for _ in range(ROUNDS):
            for graph, stream in ways:
                with torch.cuda.stream(stream):
                    graph.replay()
        for (_, stream), (_, end) in zip(ways, events, strict=True):
            end.record(stream)
        torch.cuda.synchronize()
    return [start.elapsed_time(end) / ROUNDS * 1e3 for start, end in events]


if __name__ == "__main__":
    main()
