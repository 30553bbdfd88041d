"""Fleets: from config file to answer, and against brute force over counts and strategies.

    python -m benchmarks.planning.fleets -o fleets.json

In: traces of `examples/large`, and `examples/configs` where torch and transformers are installed.
Out: JSON: what `tessc fleet` takes (seconds of the clock and of the processor, memory) and answers,
each in a process of its own; how the integer program compares with all mixes of random fleets.
Cases that are in the file already are not run again; `--seconds` ends the run before the next case.
Each case has what a million calls of an empty function took before it: how slow the cores were.
"""

from __future__ import annotations

import itertools
import json
import random
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from benchmarks.common import (
    LARGE,
    ROOT,
    TESSC,
    arguments,
    cost_of,
    kept,
    machine,
    million_calls_s,
    write,
)
from tessera.driver.fleet.mix import Mix, Offer, cheapest_mix

FLEETS = 200


def _files(model: str) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in sorted(LARGE.glob(f"{model}-*.ptx"))]


_KINDS = "8xh100,8xa100,8xl40s,8xrtx-pro-6000"


def _planned(model: str, gpus: str, batch: int) -> list[list[str]]:
    """From a config file to a page: what a user types for one decode step."""
    return [
        ["trace", f"hf:examples/configs/{model}.json", *("--phase", "decode", "--batch"),
         *(f"{batch}", "--context", "2048", "-o", "{out}/decode.ptx")],
        ["plan", "{out}/decode.ptx", "--gpus", gpus, "--json", "-o", "{out}/plan.tsp"],
        ["report", "{out}/plan.tsp", "-o", "{out}/plan.html"],
    ]  # fmt: skip


CASES: dict[str, list[list[str]]] = {
    "70b config to fleet, 4xa100+4xl40s": [
        ["fleet", "hf:examples/configs/llama-3-70b.json",
         *("--gpus", "4xa100,4xl40s", "--tokens", "1024:256", "--json")],
    ],
    "70b config to plan and page, 4xa100+4xl40s": _planned("llama-3-70b", "4xa100,4xl40s", 64),
    "405b config to fleet, 32 GPUs of 4 kinds": [
        ["fleet", "hf:examples/configs/llama-3.1-405b.json",
         *("--gpus", _KINDS, "--tokens", "1024:256", "--json")],
    ],
    "405b config to plan and page, batch 8, 32 GPUs of 4 kinds": _planned(
        "llama-3.1-405b", _KINDS, 8
    ),
    "405b config to plan and page, 32 GPUs of 4 kinds": _planned(
        "llama-3.1-405b", _KINDS, 16
    ),
    "405b config to plan and page, 32 GPUs of 4 kinds, memory full of caches": _planned(
        "llama-3.1-405b", _KINDS, 64
    ),
    "405b config to plan and page, batch 4, 32 GPUs of 4 kinds": _planned(
        "llama-3.1-405b", _KINDS, 4
    ),
    "405b config to plan and page, batch 32, 32 GPUs of 4 kinds": _planned(
        "llama-3.1-405b", _KINDS, 32
    ),
    "405b config to plan and page, batch 16, 32 GPUs of 4 faster kinds": _planned(
        "llama-3.1-405b", "8xb200,8xh200,8xa100,8xrtx-pro-6000", 16
    ),
    "405b config to plan and page, batch 8, 32 GPUs of 4 kinds, more of some": _planned(
        "llama-3.1-405b", "4xh200,12xh100,10xa100,6xl40s", 8
    ),
    "70b traces, 4xa100+4xl40s": [
        ["fleet", *_files("llama-70b"),
         *("--gpus", "4xa100,4xl40s", "--tokens", "1024:256", "--json")],
    ],
    "8b, 20 requests/s, a100 and l40s": [
        ["fleet", *_files("llama-8b"),
         *("--gpus", "a100,l40s", "--tokens", "1024:256", "--demand", "20/s", "--json")],
    ],
    "8b, 20 requests/s, limits": [
        ["fleet", *_files("llama-8b"),
         *("--gpus", "a100,l40s", "--tokens", "1024:256", "--demand", "20/s"),
         *("--slo", "ttft=2s,tpot=60ms", "--json")],
    ],
    "gpt-oss, 4xh100+4xrtx-pro-6000": [
        ["fleet", *_files("gpt-oss-20b"),
         *("--gpus", "4xh100,4xrtx-pro-6000", "--tokens", "1024:256", "--json")],
    ],
}  # fmt: skip


def run_case(commands: list[list[str]]) -> dict[str, object]:
    """Commands, each in a process of its own, one after the other."""
    rows = []
    with tempfile.TemporaryDirectory() as out:
        for command in commands:
            rows.append(_run([part.replace("{out}", out) for part in command], out))
            if rows[-1]["exit_code"]:
                break
    merged = {key: value for row in rows for key, value in row.items()}
    for key in ("seconds", "processor_seconds"):
        merged[key] = round(sum(float(str(row[key])) for row in rows), 1)
    merged["most_memory_gb"] = max(float(str(row["most_memory_gb"])) for row in rows)
    merged["commands"] = [row["command"] for row in rows]
    del merged["command"]
    return merged


def _run(arguments: list[str], out: str) -> dict[str, object]:
    """One command, with what it takes; the memory is the most of it alone."""
    files = [Path(out, name) for name in ("stdout", "stderr")]
    with files[0].open("w") as stdout, files[1].open("w") as stderr:
        cost = cost_of([*TESSC, *arguments], stdout=stdout, stderr=stderr)
    printed, said = (file.read_text() for file in files)
    shown = " ".join(arguments).replace(f"{out}/", "")
    row: dict[str, object] = {
        "command": f"tessc {shown}",
        "seconds": round(cost.seconds, 1),
        "processor_seconds": round(cost.processor_s, 1),
        "most_memory_gb": round(cost.peak_mb * 1024 / 1e6, 2),
        "exit_code": cost.code,
    }
    if cost.code:
        return row | {"error": said[-400:]}
    if arguments[0] == "plan":
        plan = json.loads(printed)
        return row | {key: plan[key] for key in ("strategy", "period_ns", "gap", "ended")}
    if arguments[0] != "fleet":
        return row
    report = json.loads(printed)
    answer = report["answer"]
    return row | {
        "verdict": answer["verdict"],
        "requests_per_s": answer["requests_per_s"],
        "usd_per_hour": answer["usd_per_hour"],
        "units": answer["units"],
        "beside": {row["name"]: row["requests_per_s"] or row["why"] for row in report["beside"]},
    }


def brute_force(count: int) -> dict[str, object]:
    """The integer program against all counts of all units."""
    equal, without = 0, 0
    for seed in range(count):
        draw = random.Random(seed)
        kinds = draw.choice((1, 2, 3))
        prices = [draw.choice((0.44, 0.99, 1.59, 2.09, 3.29)) for _ in range(kinds)]
        offers = []
        for _ in range(draw.randint(2, 6)):
            gpus = [0] * kinds
            for _ in range(draw.choice((1, 1, 2, 3))):
                gpus[draw.randrange(kinds)] += 1
            usd = sum(n * price for n, price in zip(gpus, prices, strict=True))
            offers.append(Offer(draw.uniform(0.5, 9.0), usd, tuple(gpus)))
        most = [float(draw.randint(0, 4)) for _ in range(kinds)]
        demand = draw.uniform(0.1, 25.0)
        ranges = [range(int(max(most)) + 1) for _ in offers]
        mixes = (Mix(counts) for counts in itertools.product(*ranges))
        enough = [
            mix.usd_per_hour(offers)
            for mix in mixes
            if mix.is_within(offers, most) and mix.rate(offers) >= demand
        ]
        found = cheapest_mix(offers, most, demand)
        without += not enough
        if found is None:
            equal += not enough
        else:
            equal += bool(enough) and abs(found.usd_per_hour(offers) - min(enough)) < 1e-9
    return {"fleets": count, "equal_in_cost": equal, "of_them_without_a_mix": without}


def main() -> None:
    parser = arguments(__doc__, "fleets.json")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--case", choices=tuple(CASES), help="this one alone, again")
    given = parser.parse_args()
    begun = time.perf_counter()
    data = kept(given.output)
    data["machine"] = machine()
    data["with_extra_tables"] = find_spec("aiconfigurator_core") is not None
    rows = data.setdefault("cases", {})
    if given.case:
        rows.pop(given.case, None)
    if "brute_force" not in data:
        data["brute_force"] = brute_force(FLEETS)
    for name, commands in CASES.items():
        if name in rows or (given.case and name != given.case):
            continue
        if time.perf_counter() - begun > given.seconds:
            break
        if (
            any(part.startswith("hf:") for part in commands[0])
            and find_spec("transformers") is None
        ):
            print(f"{name}: not run, transformers is not installed")
            continue
        rows[name] = {"million_calls_s": million_calls_s(), **run_case(commands)}
        print(name, rows[name]["seconds"], rows[name].get("verdict") or rows[name].get("error"))
        write(data, given.output)
    write(data, given.output)


if __name__ == "__main__":
    main()
