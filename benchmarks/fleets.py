"""Fleets: from config file to answer, and against brute force over counts and strategies.

    python -m benchmarks.fleets -o fleets.json

In: traces of `examples/large`, and `examples/configs` where torch and transformers are installed.
Out: JSON: what `tessc fleet` takes (seconds of the clock and of the processor, memory) and answers,
each in a process of its own; how the integer program compares with all mixes of random fleets.
Cases that are in the file already are not run again; `--seconds` ends the run before the next case.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import random
import resource
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from tessera.driver.fleet.mix import Mix, Offer, cheapest_mix

ROOT = Path(__file__).parents[1]
LARGE = ROOT / "examples" / "large"
FLEETS = 200


def _files(model: str) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in sorted(LARGE.glob(f"{model}-*.ptx"))]


CASES: dict[str, list[str]] = {
    "70b config, 4xa100+4xl40s": [
        "hf:examples/configs/llama-3-70b.json",
        *("--gpus", "4xa100,4xl40s", "--tokens", "1024:256"),
    ],
    "70b traces, 4xa100+4xl40s": [
        *_files("llama-70b"),
        *("--gpus", "4xa100,4xl40s", "--tokens", "1024:256"),
    ],
    "8b, 20 requests/s, a100 and l40s": [
        *_files("llama-8b"),
        *("--gpus", "a100,l40s", "--tokens", "1024:256", "--demand", "20/s"),
    ],
    "8b, 20 requests/s, limits": [
        *_files("llama-8b"),
        *("--gpus", "a100,l40s", "--tokens", "1024:256", "--demand", "20/s"),
        *("--slo", "ttft=2s,tpot=60ms"),
    ],
    "gpt-oss, 4xh100+4xrtx-pro-6000": [
        *_files("gpt-oss-20b"),
        *("--gpus", "4xh100,4xrtx-pro-6000", "--tokens", "1024:256"),
    ],
}


def run_case(arguments: list[str]) -> dict[str, object]:
    """One command in a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "tessera", "fleet", *arguments, "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT) + os.pathsep + os.environ.get("PYTHONPATH", "")},
        check=False,
    )
    seconds = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    row: dict[str, object] = {
        "command": "tessc fleet " + " ".join(arguments),
        "seconds": round(seconds, 1),
        "processor_seconds": round(
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1
        ),
        "most_memory_of_cases_so_far_gb": round(after.ru_maxrss / 1e6, 2),
        "exit_code": done.returncode,
    }
    if done.returncode:
        return row | {"error": done.stderr[-400:]}
    report = json.loads(done.stdout)
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
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--case", choices=tuple(CASES), help="this one alone, again")
    given = parser.parse_args()
    begun = time.perf_counter()
    data = json.loads(given.output.read_text()) if given.output.exists() else {}
    data["machine"] = {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }
    data["with_extra_tables"] = find_spec("aiconfigurator_core") is not None
    rows = data.setdefault("cases", {})
    if given.case:
        rows.pop(given.case, None)
    if "brute_force" not in data:
        data["brute_force"] = brute_force(FLEETS)
    for name, arguments in CASES.items():
        if name in rows or (given.case and name != given.case):
            continue
        if time.perf_counter() - begun > given.seconds:
            break
        if arguments[0].startswith("hf:") and find_spec("transformers") is None:
            print(f"{name}: not run, transformers is not installed")
            continue
        rows[name] = run_case(arguments)
        print(name, rows[name]["seconds"], rows[name].get("verdict") or rows[name].get("error"))
        given.output.write_text(json.dumps(data, indent=1) + "\n")
    given.output.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
