"""Plans on slices of an H200: what the simulator says, and what the GPU does.

    python -m benchmarks.prediction.simulated_h200 profile --work WORK    # on the GPU
    python -m benchmarks.prediction.simulated_h200 plan    --work WORK    # anywhere
    python -m benchmarks.prediction.simulated_h200 run     --work WORK    # on the GPU
    python -m benchmarks.prediction.simulated_h200 report  --work WORK -o FILE

The models are those of `h200_models`, on 84 and 48 SMs and on the whole GPU. WORK gets a profile
per model, a plan per model and strategy with its report, and a line per plan that ran
(rows.jsonl); every stage goes on from what is there. Requests come back to back: rates are
slopes, latencies medians (`benchmarks.gain.run`). `off` is how much longer a request took than
simulated, `rate_over_load` the measured rate as a part of what the busiest device allows. With
`--both`, plans over slices also run as one graph (`graph_ns`) and as rows of graphs (`rows_ns`).
Cards of one kind differ by some percent: run plans on the card that was profiled.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.common import Row, add_row, arguments, read_rows, tessc, write
from benchmarks.prediction.h200_models import MODELS, unpack
from tessera.diagnostics import Source
from tessera.frontend.plan.tsp import read_plan
from tessera.ir.plan.launch_program import meets_often

SLICES, WHOLE = "h200:84sm,h200:48sm", "h200"
LEAST_S = 2.0  # seconds of a measured run, at least


@dataclass(frozen=True)
class Wanted:
    """A plan to make: its label, and the arguments of `tessc plan`."""

    label: str
    gpus: str = SLICES
    strategy: str | None = None
    slots: int | None = None
    placement: str | None = None

    def words(self) -> list[str]:
        words = ["--gpus", self.gpus, "--gap", "0.005", "--time-limit", "40"]
        words += ["--strategy", self.strategy] if self.strategy else []
        words += ["--placement", self.placement] if self.placement else []
        slots = str(self.slots)
        return words + (["--slots", slots, "--sequences", slots] if self.slots else [])


# How many requests a slice has at a time makes a difference: one, two, and more than two.
WANTED = (
    Wanted("kernel", strategy="kernel"),
    Wanted("dp", strategy="dp"),
    Wanted("layers", strategy="layers"),
    Wanted("whole", gpus=WHOLE, strategy="single"),
    Wanted("random:1@4", placement="random:1", slots=4),
    Wanted("whole@1", gpus=WHOLE, strategy="single", slots=1),
    Wanted("free"),
    Wanted("random:2@6", placement="random:2", slots=6),
    Wanted("attention", strategy="attention"),
    *(Wanted(f"kernel@{slots}", strategy="kernel", slots=slots) for slots in (2, 4, 8)),
    *(Wanted(f"layers@{slots}", strategy="layers", slots=slots) for slots in (2, 4, 6)),
    *(Wanted(f"dp@{slots}", strategy="dp", slots=slots) for slots in (1, 4)),
)


def traces(work: Path) -> dict[str, Path]:
    """The traces: those of the archive, or files that are in the folder already."""
    made = {name: work / f"{name}.ptx" for name in MODELS}
    return made if all(path.exists() for path in made.values()) else unpack(work)


def profile(options: argparse.Namespace) -> None:
    """Profiles that are not there yet."""
    for name, path in traces(options.work).items():
        target = options.work / f"{name}.profile.json"
        if not target.exists():
            devices = ("--devices", f"{SLICES},{WHOLE}", "--repeats", "5")
            tessc("profile", str(path), *devices, "-o", str(target))
            print("profiled", name, flush=True)


def plan_path(work: Path, model: str, label: str) -> Path:
    return work / f"{model}.{label.replace(':', '')}.tsp"


def plan(options: argparse.Namespace) -> None:
    """Plans that are not there yet, with what the simulator says of each."""
    jobs = [(path, w) for path in traces(options.work).values() for w in wanted_of(options)]
    with ThreadPoolExecutor(options.workers) as pool:
        list(pool.map(partial(plan_one, options.work), *zip(*jobs, strict=True)))


def wanted_of(options: argparse.Namespace) -> list[Wanted]:
    """The plans that are asked for."""
    return [wanted for wanted in WANTED if wanted.label in (options.labels or wanted.label)]


def plan_one(work: Path, path: Path, wanted: Wanted) -> None:
    """Make one plan. A failure is printed, and the other plans are still made."""
    model, measured_times = path.stem, work / f"{path.stem}.profile.json"
    target = plan_path(work, model, wanted.label)
    if target.with_suffix(".json").exists():
        return
    profiles = ["--profile", str(measured_times)] if measured_times.exists() else []
    try:
        words = (*wanted.words(), *profiles, "--json", "-o", str(target))
        report = json.loads(tessc("plan", str(path), *words))
        followed = json.loads(tessc("simulate", str(target), "--json"))["back_to_back"]
    except RuntimeError as problem:
        print(model, wanted.label, str(problem)[:300], flush=True)
        return
    row = {
        "model": model,
        "label": wanted.label,
        "strategy": report["strategy"],
        "slots": [replica["slots"] for replica in report["replicas"]],
        "devices": {device["name"]: device["sms"] for device in report["devices"]},
        "simulated_ns": round(followed["period_ns"], 1),
        "simulated_latency_ns": round(followed["latency_ns"]["p50"], 1),
        "load_ns": round(max(device["busy_ns"] for device in report["devices"]), 1),
    }
    write(row, target.with_suffix(".json"))
    print(model, wanted.label, f"{row['simulated_ns'] / 1e3:.0f} us", flush=True)


def run(options: argparse.Namespace) -> None:
    """Every plan that has not run yet, in a process of its own."""
    kept = options.work / "rows.jsonl"
    known = {(row["model"], row["label"]) for row in read_rows(kept)}
    until = time.monotonic() + options.seconds
    for model in MODELS:
        for one in wanted_of(options):
            path = plan_path(options.work, model, one.label)
            about = path.with_suffix(".json")
            if (model, one.label) in known or not about.exists() or time.monotonic() > until:
                continue
            row = json.loads(about.read_text())
            row |= measured(path, row)
            if options.both and len(row["slots"]) == 1 and len(row["devices"]) > 1:
                (replica,) = read_plan(Source(path.name, path.read_text())).plan.replicas
                is_graph = meets_often(replica.lowered.traces[0], replica.slots)
                other = measured(path, row, "--spanning", "no" if is_graph else "yes")
                both = row.get("measured_ns"), other.get("measured_ns")
                row["graph_ns"], row["rows_ns"] = both if is_graph else both[::-1]
                row["is_graph"] = is_graph
            add_row(kept, row)
            print(model, one.label, row.get("error", row.get("measured_ns")), flush=True)


def measured(path: Path, row: Row, *more: str) -> Row:
    """What a plan does, or how it failed."""
    # A slope needs some requests however long each takes, and an end however short.
    count = max(40, round(LEAST_S * 1e9 / max(row["simulated_ns"], 1)))
    # Slices of one card are `cuda:0:84sm`; a plan for the whole GPU has one device, `cuda:0`.
    is_cut = len(row["devices"]) > 1
    targets = (f"{n}=cuda:0{f':{sms}sm' * is_cut}" for n, sms in row["devices"].items())
    command = [sys.executable, "-m", "benchmarks.gain.run", str(path), "--map", ",".join(targets)]
    command += ["--requests", str(min(count, 4000)), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": done.stderr[-300:]}
    found = json.loads(done.stdout.splitlines()[-1])
    return {
        "measured_ns": round(found["us"] * 1e3, 1),
        "measured_latency_ns": round(found["latency_us"] * 1e3, 1),
        "requests": found["requests"],
    }


def accuracy(rows: list[Row]) -> Row:
    """How near the simulation is to these rows, and whether it has them in order."""
    away = sorted(abs(row["off"]) for row in rows)
    pairs = [
        (a, b)
        for a in rows
        for b in rows
        if a["model"] == b["model"] and a["measured_ns"] < 0.95 * b["measured_ns"]
    ]
    return {
        "plans": len(rows),
        "within_7_percent": round(sum(one <= 0.07 for one in away) / max(len(away), 1), 3),
        "within_15_percent": round(sum(one <= 0.15 for one in away) / max(len(away), 1), 3),
        "most_off": away[-1] if away else None,
        "median_off": away[len(away) // 2] if away else None,
        "pairs_that_differ_by_5_percent": len(pairs),
        "in_the_right_order": sum(a["simulated_ns"] < b["simulated_ns"] for a, b in pairs),
    }


def report(options: argparse.Namespace) -> None:
    """All rows, and how near the simulation is."""
    every = read_rows(options.work / "rows.jsonl")
    rows = [row for row in every if "error" not in row]
    for row in rows:
        row["off"] = round(row["measured_ns"] / row["simulated_ns"] - 1, 4)
        row["latency_off"] = round(row["measured_latency_ns"] / row["simulated_latency_ns"] - 1, 4)
        row["rate_over_load"] = round(row["load_ns"] / row["measured_ns"], 4)
    document = {
        "schema": "tessera-simulated-h200/3",
        "searched": accuracy([row for row in rows if "random" not in row["label"]]),
        "with_random_placements": accuracy(rows),
    }
    print(json.dumps(document, indent=1))
    write({**document, "rows": rows, "failed": [r for r in every if "error" in r]}, options.output)


def main() -> None:
    parser = arguments(__doc__)
    stages = {"profile": profile, "plan": plan, "run": run, "report": report}
    parser.add_argument("stage", choices=stages)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=540.0, help="no run begins after that")
    parser.add_argument("--workers", type=int, default=1, help="plans to make at a time")
    parser.add_argument("--labels", type=lambda text: text.split(","), help="these plans alone")
    parser.add_argument("--both", action="store_true", help="both ways to span slices, too")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    stages[options.stage](options)


if __name__ == "__main__":
    main()
