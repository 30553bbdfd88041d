"""Floors and the order of GPUs: how often the model is out of order, and measured times below.

    python -m benchmarks.prediction.floors [-o FILE]

`pairs`: random products, attention, rows, elementwise calls and experts on all GPUs of the table.
Of the pairs in which one GPU is at least as good in bandwidth and arithmetic, those that the model
puts in the wrong order before `in_order`, and after it. `h200`: times of libraries on an H200
(`h200_rows.jsonl.xz`) that are below the floor.
"""

from __future__ import annotations

import json
import lzma
from itertools import permutations
from random import Random
from typing import Any

from benchmarks.common import RESULTS, arguments, write
from benchmarks.prediction.fit_durations import library_shape
from tessera.frontend.machine.gpu_table import find_gpu, gpu_table
from tessera.ir.plan.costs import StepNeeds
from tessera.ir.program.program import Memset, Pointer
from tessera.planning.prices.call_shapes import operations_of
from tessera.planning.prices.device_model import Traffic
from tessera.planning.prices.floors import floor_ns, in_order, order_of
from tessera.planning.prices.library_calls import (
    Attention,
    CallShape,
    Experts,
    Grouped,
    Plain,
    Product,
    RowCall,
    RowKind,
)
from tessera.planning.prices.library_launches import call_ns

CASES = 100
ROWS = RESULTS / "h200_rows.jsonl.xz"
NO_CALL = Memset(id=0, target=Pointer(0), bytes=0, value=0)  # type: ignore[arg-type]


def drawn(rng: Random) -> tuple[CallShape, float, float]:
    """A call, and its bytes of weights and states, and others."""

    def size(low: int, high: int) -> int:
        return 1 << rng.randint(low, high)

    rows, wide, deep = size(0, 12), size(6, 13), size(6, 13)
    match rng.randrange(5):
        case 0:
            moved = 2.0 * rows * (wide + deep)
            return Product(m=rows, n=wide, k=deep), 2.0 * wide * deep, moved
        case 1:
            batch, keys, few = size(0, 6), size(7, 13), rng.choice((1, 8, 32))
            queries = rng.choice((1, keys))
            shape = Attention(
                batch=batch, heads=32, kv_heads=few, queries=queries, keys=keys, size=128,
                causal=queries == keys,
            )  # fmt: skip
            return shape, 512.0 * batch * few * keys, 512.0 * batch * 32 * queries
        case 2:
            return RowCall(rng.choice(list(RowKind)), rows, 4096, 2), 8192.0, 4.0 * rows * 4096
        case 3:
            elements = float(size(8, 27))
            return Plain(elements, elements, 4 * elements), 0.0, 4 * elements
    up = Grouped(tokens=rows, chosen=8, experts=128, n=1536, k=2048)
    both = Experts(up, Grouped(tokens=rows, chosen=8, experts=128, n=2048, k=768))
    return both, both.moved, 8192.0 * rows


def pairs() -> dict[str, Any]:
    """Pairs of GPUs of which one is better, and those in the wrong order."""
    rng, gpus = Random(1), list(gpu_table().values())
    compared = wrong = after = moved = 0
    for _ in range(CASES):
        shape, cold, warm = drawn(rng)
        needs = StepNeeds(cold=cold, warm=warm, operations=operations_of(shape, NO_CALL), kept=1e10)
        times = [call_ns(shape, Traffic(cold=cold, warm=warm), gpu, gpu.sms) for gpu in gpus]
        ordered, rate = in_order(times, gpus, needs), order_of(needs, gpus)
        moved += sum(max(a / b, b / a) > 1.2 for a, b in zip(times, ordered, strict=True))
        for one, other in permutations(range(len(gpus)), 2):
            rates = zip(rate(gpus[one]), rate(gpus[other]), strict=True)
            if all(mine >= its for mine, its in rates):
                compared += 1
                wrong += times[one] > times[other] * 1.0001
                after += ordered[one] > ordered[other] * 1.0001
    return {
        "pairs": compared,
        "in_the_wrong_order": round(wrong / compared, 3),
        "in_the_wrong_order_after": after,
        "times_moved_by_more_than_20_percent": round(moved / (CASES * len(gpus)), 3),
    }


def below() -> dict[str, int]:
    """Measured times of libraries below the floor."""
    gpu = find_gpu("h200")
    measured = low = 0
    for line in lzma.decompress(ROWS.read_bytes()).decode().splitlines():
        row = json.loads(line)
        if "error" in row or row["source"] != "library":
            continue
        shape, moved = library_shape(row)
        is_cold = row["rotated_bytes"] > 1.4 * gpu.l2_bytes
        operations = operations_of(shape, NO_CALL)
        needs = StepNeeds(cold=moved * is_cold, operations=operations, kept=1e10)
        measured += 1
        low += row["ns"] < floor_ns(needs, gpu, row["sms"])
    return {"rows": measured, "below": low}


def main() -> None:
    options = arguments(__doc__, "floors.json").parse_args()
    document = {"schema": "tessera-floors/1", "pairs": pairs(), "h200": below()}
    print(json.dumps(document, indent=1))
    write(document, options.output)


if __name__ == "__main__":
    main()
