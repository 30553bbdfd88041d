"""How well durations are predicted: our model and a plain roofline against measurements.

    python benchmarks/durations.py [--fit] [-o results.json]

Times of an H200: Triton kernels and library operators of many sizes, recorded in
`results/durations_h200.json`. Half of the rows fit the constants (`--fit` prints new ones), the
other half is predicted. Ranking: of two GPUs, which runs a kernel faster? Medians of published
tables, by kind of kernel, for three pairs of GPUs; no constant was fitted to them. The roofline is
max(bytes / bandwidth, operations / rate) from the data sheet.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from math import ceil, exp, log
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tessera.frontend.machine.gpus import machine_of
from tessera.ir.plan.costs import LaunchWork
from tessera.ir.plan.machine import Gpu
from tessera.passes.costs.device_model import (
    FITTED,
    CallWork,
    Constants,
    Traffic,
    call_ns,
    launch_ns,
)

DATA = Path(__file__).parent / "results" / "durations_h200.json"
# Times of the second GPU over the first: medians of published measurements in BF16.
PUBLISHED = (
    ("l40s", "a100", (1.88, 1.03, 0.71, 0.67, 1.76)),
    ("rtx-pro-6000", "h100", (1.59, 2.01, 1.01, 0.73, 1.45)),
    ("b200", "h100", (0.55, 0.51, 0.80, 0.65, 0.46)),
)
PARTS = (  # of the data sheet: at most 0.95
    "memory",
    "matrix",
    "plain",
    "call_memory",
    "call_matrix",
    "call_plain",
    "reduce_memory",
)
STEPS = (0.5, 0.7, 0.85, 0.95, 1.05, 1.2, 1.5, 2.0)


@dataclass(frozen=True)
class Row:
    """A measured time, and what was measured."""

    kind: str
    ns: float
    traffic: Traffic
    work: LaunchWork | CallWork

    def model(self, gpu: Gpu, constants: Constants) -> float:
        if isinstance(self.work, LaunchWork):
            return launch_ns(self.work, self.traffic, gpu, gpu.sms, constants)
        return call_ns(self.work, self.traffic, gpu, gpu.sms, constants)

    def roofline(self, gpu: Gpu) -> float:
        units: tuple[tuple[str, float], ...]
        if isinstance(self.work, LaunchWork):
            units = self.work.units
        else:
            units = ((self.work.unit, self.work.operations),)
        rates = [
            operations / (gpu.flops(unit) or gpu.flops("fp32") or 1e12)
            for unit, operations in units
        ]
        moved = self.traffic.warm + self.traffic.cold
        return max([moved / gpu.memory_bandwidth, *rates]) * 1e9


def product(rows: int, inner: int, columns: int, width: int) -> tuple[CallWork, float]:
    """A matrix product, and its bytes."""
    unit = "bf16" if width == 2 else "fp32"
    moved = float(rows * inner + inner * columns + rows * columns) * width
    tiles = ceil(rows / 128) * ceil(columns / 128)
    return CallWork(operations=2.0 * rows * inner * columns, unit=unit, tiles=tiles), moved


def attention(
    batch: int, heads: int, queries: int, keys: int, width: int = 128
) -> tuple[CallWork, float]:
    """Attention, and its bytes."""
    moved = 2.0 * batch * heads * width * (2 * queries + 2 * keys)
    operations = 4.0 * batch * heads * queries * keys * width
    tiles = batch * heads * ceil(queries / 128) * ceil(keys / 512)
    return CallWork(operations=operations, unit="bf16", tiles=tiles), moved


def operator_row(row: dict[str, Any]) -> Row:
    width = 4 if row.get("dtype") == "float32" else 2
    if row["op"] == "mm":
        work, moved = product(row["m"], row["k"], row["n"], width)
        turns = 3.0
    elif row["op"] == "attention":
        work, moved = attention(*(row[k] for k in ("batch", "heads", "queries", "keys", "width")))
        turns = 2.0
    else:
        elements = float(row["rows"] * row["width"])
        moved = {"add": 3.0, "sum": 1.0}.get(row["op"], 2.0) * elements * width
        reduces = row["op"] in ("softmax", "layer_norm")
        hard = 10.0 if row["op"] in ("gelu", "softmax", "layer_norm") else 1.0
        work = CallWork(operations=hard * elements, tiles=elements / 4096, reduces=reduces)
        turns = 3.0
    return Row(f"library {row['op']}", row["ns"], Traffic(warm=moved, working=turns * moved), work)


def load_rows() -> list[Row]:
    data = json.loads(DATA.read_text())
    rows = []
    for one in data["triton"]:
        work = dict(one["work"], units=tuple((u, v) for u, v in one["work"]["units"]))
        kind = f"triton {one['kernel'].removesuffix('_kernel')}"
        traffic = Traffic(warm=one["distinct_bytes"])
        rows.append(Row(kind, one["ns"], traffic, LaunchWork(**work)))
    return rows + [operator_row(one) for one in data["operators"]]


def halves(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """Rows to fit and rows to predict: every kind in both, drawn once."""
    order = list(range(len(rows)))
    random.Random(1).shuffle(order)
    middle = len(order) // 2
    return [rows[n] for n in sorted(order[:middle])], [rows[n] for n in sorted(order[middle:])]


def errors(rows: list[Row], predict: Callable[[Row], float]) -> list[float]:
    """How far off in the logarithm; log(2) is a factor of two."""
    return [abs(log(max(predict(row), 1.0) / row.ns)) for row in rows]


def fit(rows: list[Row], gpu: Gpu, start: Constants) -> Constants:
    """Coordinate descent on the mean of the errors, squared below a factor of two."""

    def loss(constants: Constants) -> float:
        found = errors(rows, lambda row: row.model(gpu, constants))
        return sum(min(e, 1.0) ** 2 + 0.1 * e for e in found) / len(found)

    best, least = start, loss(start)
    for _ in range(12):
        before = least
        for name, value in asdict(best).items():
            for step in STEPS:
                trial = replace(best, **{name: value * step})
                if name in PARTS and getattr(trial, name) > 0.95:
                    continue
                if name.endswith("sharpness") and not 1.0 <= getattr(trial, name) <= 20.0:
                    continue
                if name == "shared_per_cycle":  # no row hangs on it: what the hardware can, nearly
                    continue
                if (found := loss(trial)) < least - 1e-9:
                    best, least = trial, found
        if before - least < 1e-5:
            break
    return best


def summary(found: list[float]) -> dict[str, float]:
    ordered = sorted(found)
    return {
        "rows": len(ordered),
        "median_factor": round(exp(median(ordered)), 3),
        "p90_factor": round(exp(ordered[int(0.9 * (len(ordered) - 1))]), 3),
        "within_25_percent": round(sum(e < log(1.25) for e in ordered) / len(ordered), 3),
        "within_a_factor_of_2": round(sum(e < log(2) for e in ordered) / len(ordered), 3),
    }


def predictions(rows: list[Row], gpu: Gpu) -> dict[str, object]:
    result: dict[str, object] = {}
    for kind in ("all", *dict.fromkeys(row.kind for row in rows)):
        chosen = [row for row in rows if kind in ("all", row.kind)]
        result[kind] = {
            "model": summary(errors(chosen, lambda row: row.model(gpu, FITTED))),
            "roofline": summary(errors(chosen, lambda row: row.roofline(gpu))),
        }
    return result


def ranking() -> dict[str, object]:
    """Predicted and published ratios by kind; a side is right if both are on one side of 1."""
    kinds: dict[str, list[tuple[CallWork, float]]] = {
        "GEMM, 1 row": [product(1, k, n, 2) for k in (2048, 4096, 8192) for n in (2048, 8192)],
        "GEMM, over 1024 rows": [
            product(m, 4096, n, 2) for m in (2048, 8192) for n in (4096, 8192)
        ],
        "prefill attention, up to 512": [attention(1, 32, q, q) for q in (64, 128, 256, 512)],
        "decode attention, middle KV": [
            attention(b, 8, 1, k) for b in (1, 4, 16) for k in (512, 2048)
        ],
        "decode attention, large KV": [
            attention(b, 8, 1, k) for b in (32, 128) for k in (8192, 32768)
        ],
    }
    rows: list[dict[str, object]] = []
    for second, first, published in PUBLISHED:
        one, other = (machine_of(name, "100Gb/s").cards[0].gpu for name in (second, first))
        for (kind, calls), truth in zip(kinds.items(), published, strict=True):
            # Weights of a product are not in a cache; the rest is where it fits.
            cold = kind.startswith("GEMM")
            shapes = [
                Row(kind, 1.0, Traffic(cold=moved) if cold else Traffic(warm=moved), work)
                for work, moved in calls
            ]
            ours = median(r.model(one, FITTED) / r.model(other, FITTED) for r in shapes)
            sheet = median(r.roofline(one) / r.roofline(other) for r in shapes)
            rows.append(
                {
                    "pair": f"{second}/{first}",
                    "kernel": kind,
                    "published": truth,
                    "model": round(ours, 2),
                    "roofline": round(sheet, 2),
                }
            )

    def right(name: str) -> int:
        return sum((float(str(r[name])) < 1) == (float(str(r["published"])) < 1) for r in rows)

    def off(name: str) -> float:
        found = [abs(log(float(str(r[name])) / float(str(r["published"])))) for r in rows]
        return round(exp(median(found)), 3)

    return {
        "of": len(rows),
        "model_right": right("model"),
        "roofline_right": right("roofline"),
        "model_median_factor": off("model"),
        "roofline_median_factor": off("roofline"),
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit", action="store_true", help="print new constants")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    gpu = machine_of("h200", "100Gb/s").cards[0].gpu
    fitted, held_out = halves(load_rows())
    if options.fit:
        print(fit(fitted, gpu, FITTED))
        return
    document = {
        "schema": "tessera-durations-benchmark/1",
        "device": "h200",
        "held_out": predictions(held_out, gpu),
        "fitted_on": predictions(fitted, gpu)["all"],
        "ranking": ranking(),
    }
    print(json.dumps(document, indent=1))
    if options.output:
        options.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
