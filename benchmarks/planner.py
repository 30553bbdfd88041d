"""How fast and how near the optimum the planner is, on model graphs of growing size.

    python benchmarks/planner.py [--sizes 60,200,1000] [--many] [-o results.json]

For each family and size, two GPUs over 100 Gb/s: CPU seconds of one relaxation, and CPU seconds and
proven gap of a solve that stops at 1% and of one that stops at 0.1%. `--many` adds 16 GPUs of two
types. Seconds are those of one core of the machine at hand; the ratio to the relaxation travels.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.model_graphs import FAMILIES, model_graph
from tessera.passes.partition_plans import choose
from tessera.passes.partition_problem import Problem
from tessera.passes.partition_solve import SolveOptions, lower_bound, solve


def timed_solve(problem: Problem, gap: float) -> dict[str, object]:
    started = time.process_time()
    found = solve(problem, SolveOptions(gap=gap))
    return {
        "cpu_seconds": round(time.process_time() - started, 3),
        "gap": round(found.gap, 6),
        "gap_to_relaxation": round(found.period_ns / found.relaxation_ns - 1, 6),
        "ended": found.ended,
    }


def measure_pair(family: str, kernels: int) -> dict[str, object]:
    problem = model_graph(family, kernels)
    started = time.process_time()
    lower_bound(problem)
    relaxation = time.process_time() - started
    return {
        "family": family,
        "kernels": len(problem.tasks),
        "gpus": "a100,l40s",
        "relaxation_cpu_seconds": round(relaxation, 3),
        "to_1_percent": timed_solve(problem, 0.01),
        "to_0.1_percent": timed_solve(problem, 0.001),
    }


def measure_many(family: str, kernels: int) -> dict[str, object]:
    problem = model_graph(family, kernels, "8xa100,8xl40s")
    started = time.process_time()
    choice = choose(problem, "throughput", SolveOptions(gap=0.01))
    assert choice is not None
    return {
        "family": family,
        "kernels": len(problem.tasks),
        "gpus": "8xa100,8xl40s",
        "cpu_seconds": round(time.process_time() - started, 3),
        "gap": round(choice.gap, 6),
        "plan": choice.best.name,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="60,200,1000,2000,5000")
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--many", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    families = options.families.split(",")
    rows = []
    for size in map(int, options.sizes.split(",")):
        for family in families:
            rows.append(measure_pair(family, size))
            print(json.dumps(rows[-1]), flush=True)
    if options.many:
        for family in families:
            rows.append(measure_many(family, 500))
            print(json.dumps(rows[-1]), flush=True)
    if options.output:
        document = {"schema": "tessera-planner-benchmark/1", "threads": 1, "rows": rows}
        options.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
