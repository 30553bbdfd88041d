"""`tessc profile` on a GPU: two profiles of one trace side by side, plans from them, timelines.

    python -m benchmarks.prediction.profile_repeat OUTPUT_FOLDER [--repeats 9]

Traces: a captured model, and stacks from `cuda_models` with kernels above 10 us. Each is profiled
twice, each time from the start, on the whole GPU and two slices. For kernels above 10 us the times
must agree within 5%. `tessc plan` must read the profiles, also in two files, and find every
duration in them. Then requests run with a timeline on the whole GPU, and the duration of each step
above 10 us is held against the profile's.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.running.cuda_bench import WHOLE, facts, on_one, requests, served, start, write
from benchmarks.running.cuda_models import CudaModel, Sizes, build
from benchmarks.running.replay_zoo import TRACES, tessc
from tessera.ir.plan.launch_program import Queue
from tessera.ir.program.print_trace import print_program

DEVICES = "h200,h200:84sm,h200:48sm"
STACKS = {
    "prefill": Sizes(tokens=512, hidden=2048, inner=8192, layers=2, length=1024),
    "decode": Sizes(hidden=2048, inner=8192, layers=2, length=8192),
}
LEAST_NS = 10_000
ALLOWED = 0.05
TIMES = ("ns", "warm_ns", "cold_ns", "beside_compute_ns", "beside_memory_ns")

Profile = Mapping[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    result: dict[str, Any] = {"machine": facts(), "repeats": given.repeats, "traces": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = {stack: build(stack, sizes) for stack, sizes in STACKS.items()}
        paths = {"llama_prefill": TRACES / "llama_prefill.ptx"}
        for stack, model in models.items():
            paths[stack] = folder / f"{stack}.ptx"
            paths[stack].write_text(print_program(model.programs[0]))
        for trace, path in paths.items():
            pair, seconds = profiles(trace, path, folder, given.repeats)
            found = compare(*pair)
            found["seconds_each"] = seconds
            found["wholes"] = [one["wholes"] for one in pair]
            found["plan"] = plan(trace, path, folder, pair)
            if trace in models:
                found["timeline"] = timeline(models[trace], pair[0])
            result["traces"][trace] = found
            print(trace, json.dumps(found), flush=True)
            write(given.folder, "profile_repeat.json", result)
            (Path(given.folder) / f"profile_{trace}.json").write_text(
                (folder / f"{trace}.0.json").read_text()
            )
    sys.exit(not all(one["agree"] for one in result["traces"].values()))


def profiles(
    trace: str, path: Path, folder: Path, repeats: int
) -> tuple[tuple[Profile, Profile], list[float]]:
    """Two profiles, and the seconds that each took."""
    found, seconds = [], []
    for number in range(2):
        begun = time.perf_counter()
        output = folder / f"{trace}.{number}.json"
        tessc(
            folder,
            "profile",
            str(path),
            "--devices",
            DEVICES,
            "--repeats",
            str(repeats),
            "--time-limit",
            "20",
            "-o",
            str(output),
        )
        seconds.append(round(time.perf_counter() - begun, 1))
        found.append(json.loads(output.read_text()))
    return (found[0], found[1]), seconds


def compare(one: Profile, other: Profile) -> dict[str, Any]:
    """The largest difference of every kind of time, for kernels above 10 us and for all."""
    pairs = list(zip(one["rows"], other["rows"], strict=True))
    long = [pair for pair in pairs if min(row["ns"] for row in pair) > LEAST_NS]
    worst = {"above_10us": _worst(long), "all": _worst(pairs)}
    apart = {
        f"#{left['step']} {left['name']} {left['sms']} SMs": round(_apart(left, right, "ns"), 4)
        for left, right in long
        if _apart(left, right, "ns") > ALLOWED
    }
    return {
        "rows": len(pairs),
        "rows_above_10us": len(long),
        "worst": worst,
        "agree": not apart,
        "apart": apart,
    }


def _worst(pairs: list[tuple[Profile, Profile]]) -> dict[str, float]:
    return {
        key: round(
            max(_apart(*pair, key) for pair in pairs if key in pair[0] and key in pair[1]), 4
        )
        for key in TIMES
        if any(key in pair[0] and key in pair[1] for pair in pairs)
    }


def _apart(left: Profile, right: Profile, key: str) -> float:
    return float(abs(left[key] - right[key]) / min(left[key], right[key]))


def plan(trace: str, path: Path, folder: Path, pair: tuple[Profile, Profile]) -> dict[str, object]:
    """A plan from one profile, and one from two that hold a slice each."""
    halves = []
    for data, sms in zip(pair, (84, 48), strict=True):
        halves.append(folder / f"{trace}.{sms}.json")
        rows = [row for row in data["rows"] if row["sms"] == sms]
        halves[-1].write_text(json.dumps({**data, "rows": rows}))
    found: dict[str, object] = {}
    for label, files in (("one", [folder / f"{trace}.0.json"]), ("merged", halves)):
        options = [part for file in files for part in ("--profile", str(file))]
        begun = time.perf_counter()
        said = tessc(
            folder,
            "plan",
            str(path),
            "--gpus",
            "h200:84sm,h200:48sm",
            *options,
            "--time-limit",
            "5",
            "--json",
            "-o",
            str(folder / f"{trace}.tsp"),
        )
        found[label] = {
            "all_measured": "TSR3014" not in said.err,
            "seconds": round(time.perf_counter() - begun, 1),
        }
    return found


def timeline(model: CudaModel, profile: Profile) -> dict[str, object]:
    """Durations by time stamps against the profile's, on the whole GPU."""
    backend = start(served(model, on_one(model), 1, 1), WHOLE, timeline=True)
    done, _ = requests(backend, model, [(0, 0)] * 12, 1, 1)
    times: dict[int, list[int]] = {}
    for one in done[2:]:
        events = [e for e in one.events if e.queue is Queue.COMPUTE]
        assert all(e.end_ns >= e.start_ns for e in events)
        steps = [e.step for e in events if e.step is not None]
        assert steps == sorted(steps), "steps of one device in their order"
        assert all(b.start_ns >= a.end_ns for a, b in itertools.pairwise(events))
        for event in events:
            if event.step is not None:
                times.setdefault(int(event.step), []).append(event.end_ns - event.start_ns)
    ratios = {}
    for row in profile["rows"]:
        if row["sms"] == facts()["sms"] and row["ns"] > LEAST_NS:
            ratios[row["step"]] = round(statistics.median(times[row["step"]]) / row["ns"], 3)
    found = sorted(ratios.values())
    return {
        "steps_above_10us": len(found),
        "least": found[0],
        "most": found[-1],
        "median": statistics.median(found),
    }


if __name__ == "__main__":
    main()
