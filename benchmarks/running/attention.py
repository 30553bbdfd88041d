"""Attention kernels of the capture against `scaled_dot_product_attention`, on a GPU.

Decode: one token per sequence, 32 heads of queries and 8 of keys, size 128, over caches of 1k and
8k. Prefill: a prompt of 512 and 4096 tokens, causal. Every call is timed inside a CUDA graph, over
copies of the caches that together do not fit into L2 (a model reads other caches in between).

    python -m benchmarks.running.attention -o attention.json --limit 110

It goes on from what the file has. `--tiles` tries every way to cut; without it those that the
capture would try.
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.common import arguments, write
from tessera.frontend.capture.attention.choose import AttentionSize, candidates
from tessera.frontend.capture.attention.launch import Seen, Tiles, launch

HEADS, KV_HEADS, SIZE = 32, 8, 128
CASES = [
    ("decode", 8, 1, 1024),
    ("prefill", 1, 4096, 4096),
    ("decode", 1, 1, 8192),
    ("prefill", 1, 512, 512),
    ("decode", 64, 1, 8192),
    ("decode", 1, 1, 1024),
    ("decode", 8, 1, 8192),
    ("decode", 64, 1, 1024),
]
LIBRARIES = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def tiles_of(kind: str, batch: int, tokens: int, keys: int, every: bool) -> Iterator[Tiles]:
    """The ways to cut that the capture would try, or every one."""
    made = torch.cuda.get_device_properties(0)
    if not every:
        yield from candidates(
            AttentionSize(
                batch=batch,
                heads=HEADS,
                kv_heads=KV_HEADS,
                tokens=tokens,
                keys=keys,
                size=SIZE,
                v_size=SIZE,
                bytes=2,
                causal=kind == "prefill",
                window=0,
                plain=True,
                paged=False,
                sms=made.multi_processor_count,
                shared=made.shared_memory_per_block_optin,
            )
        )
        return
    if kind == "prefill":
        for rows, block, stages in itertools.product((64, 128), (32, 64, 128), (2, 3, 4)):
            yield Tiles(rows=rows, keys=block, warps=rows // 16, stages=stages)
        return
    for block, warps, stages in itertools.product((32, 64, 128), (2, 4, 8), (2, 3, 4)):
        for splits in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48):
            programs = batch * KV_HEADS * splits
            if splits == 1 or (
                programs <= 10 * made.multi_processor_count and splits * block <= keys
            ):
                yield Tiles(
                    rows=16, keys=block, warps=warps, stages=stages, packed=True, splits=splits
                )


class Timer:
    """Times calls inside a CUDA graph."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()

    def __call__(self, calls: list[Callable[[], object]]) -> float:
        """Microseconds of one call; the calls take turns."""
        with torch.cuda.stream(self.stream):
            for call in calls:
                call()
        self.stream.synchronize()
        once = self._graph(calls, len(calls))
        count = max(len(calls), min(400, int(2000 / max(self._replay(once, 2) / len(calls), 1))))
        graph = self._graph(calls, count)
        return self._replay(graph, 7) / count

    def _graph(self, calls: list[Callable[[], object]], count: int) -> Any:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            for call in itertools.islice(itertools.cycle(calls), count):
                call()
        return graph

    def _replay(self, graph: Any, times: int) -> float:
        found = []
        graph.replay()
        for _ in range(times):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            found.append(start.elapsed_time(end) * 1e3)
        return statistics.median(found)


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.float() - exact).norm() / exact.norm())


def measure(
    case: tuple[str, int, int, int],
    into: dict[str, Any],
    until: float,
    every: bool,
    save: Callable[[], None],
) -> bool:
    """Fill in what a case lacks; whether there was time for all of it."""
    kind, batch, tokens, keys = case
    causal = kind == "prefill"
    generator = torch.Generator("cuda").manual_seed(1)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16)

    q = random(batch, tokens, HEADS, SIZE).transpose(1, 2)
    each = batch * KV_HEADS * keys * SIZE * 4
    copies = max(1, min(16, -(-160_000_000 // each)))
    caches = [
        (random(batch, KV_HEADS, keys, SIZE), random(batch, KV_HEADS, keys, SIZE))
        for _ in range(copies)
    ]
    timer = Timer()
    wide = [x[:1].float().repeat_interleave(HEADS // KV_HEADS, 1) for x in caches[0]]
    exact = scaled_dot_product_attention(q[:1].float(), *wide, is_causal=causal)
    del wide
    for name, backend in LIBRARIES.items():
        if name in into.setdefault("library", {}):
            continue

        def call(k: torch.Tensor, v: torch.Tensor, backend: Any = backend) -> torch.Tensor:
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)

        try:
            into["library"][name] = {
                "us": round(timer([lambda c=c: call(*c) for c in caches]), 2),
                "error": error(call(*caches[0])[:1], exact),
            }
        except RuntimeError as problem:
            into["library"][name] = {"problem": str(problem).splitlines()[0]}
        save()
    for tiles in tiles_of(kind, batch, tokens, keys, every):
        name = _name(tiles)
        if name in into.setdefault("ours", {}):
            continue
        if time.monotonic() > until:
            return False

        def ours(k: torch.Tensor, v: torch.Tensor, tiles: Tiles = tiles) -> torch.Tensor:
            seen = Seen(causal=causal)
            return launch(q, k, v, seen=seen, scale=SIZE**-0.5, tiles=tiles)

        try:
            off = error(ours(*caches[0])[:1], exact)
            into["ours"][name] = {
                "us": round(timer([lambda c=c: ours(*c) for c in caches]), 2),
                "error": off,
                **asdict(tiles),
            }
        except Exception as problem:  # the compiler's errors are of many kinds
            into["ours"][name] = {"problem": (str(problem).splitlines() or ["?"])[-1][:200]}
        save()
    return True


def _name(tiles: Tiles) -> str:
    text = f"{tiles.rows}x{tiles.keys} w{tiles.warps} s{tiles.stages}"
    return text + (f" /{tiles.splits}" if tiles.packed else "")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--limit", type=float, default=110.0, help="seconds")
    parser.add_argument("--tiles", action="store_true", help="try every way to cut")
    given = parser.parse_args()
    until = time.monotonic() + given.limit
    results: dict[str, Any] = json.loads(given.output.read_text()) if given.output.exists() else {}
    results["machine"] = torch.cuda.get_device_name()
    rows = results.setdefault("cases", {})

    def save() -> None:
        write(results, given.output)

    done = True
    for number, case in enumerate(CASES):
        kind, batch, tokens, keys = case
        into = rows.setdefault(f"{kind} batch {batch} tokens {tokens} keys {keys}", {})
        left = until - time.monotonic()
        share = time.monotonic() + left / (len(CASES) - number) * (2.5 if number < 4 else 1.2)
        done &= measure(case, into, min(until, share), given.tiles, save)
        torch.cuda.empty_cache()
    for name, row in rows.items():
        best = min((r["us"], n) for n, r in row["ours"].items() if "us" in r)
        library = min((r["us"], n) for n, r in row["library"].items() if "us" in r)
        print(f"{name}: {best[0]} us ({best[1]}), {library[0]} us ({library[1]}):", end=" ")
        print(f"{best[0] / library[0]:.2f}")
    print("complete" if done else "not all was measured: run it again")


if __name__ == "__main__":
    main()
