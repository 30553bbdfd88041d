"""How fast and how near the optimum the planner is, on model graphs of growing size.

    python -m benchmarks.planning.planner [--sizes 60,200,1000] [--seeds 0] [--many] [-o FILE]

For each family and size, two GPUs over 100 Gb/s: CPU seconds of one relaxation, and CPU seconds and
proven gap of a solve that stops at 1% and of one that stops at 0.1%. `--many` adds 16 and 64 GPUs
of two types, and 16 with a model that no pair of GPUs holds. Seconds are those of one core of the
machine at hand; the ratio to the relaxation travels. At the end, the growth: the 90th percentile
over families and seeds by size, and where the time goes.
"""

from __future__ import annotations

import json
import time

from benchmarks.common import arguments, machine, write
from benchmarks.planning.model_graphs import FAMILIES, model_graph
from tessera.ir.objectives import THROUGHPUT
from tessera.planning.bound.model import build_model
from tessera.planning.bound.relax import relax
from tessera.planning.problem.problem import Problem
from tessera.planning.search.plans import choose
from tessera.planning.search.solve import SolveOptions, solve
from tessera.planning.search.strategies import KERNEL

TARGETS = {1000: (("0.01", 2.0), ("0.001", 10.0)), 2000: (("0.01", 5.0),), 5000: (("0.01", 20.0),)}


def timed_solve(problem: Problem, gap: float) -> dict[str, object]:
    started = time.process_time()
    found = solve(problem, SolveOptions(gap=gap))
    return {
        "cpu_seconds": round(time.process_time() - started, 3),
        "gap": round(found.gap, 6),
        "gap_to_relaxation": round(found.period_ns / found.relaxation_ns - 1, 6),
        "ended": found.ended,
    }


def measure_pair(family: str, kernels: int, seed: int) -> dict[str, object]:
    problem = model_graph(family, kernels, seed=seed)
    started = time.process_time()
    model = build_model(problem)
    built = time.process_time()
    relax(model)
    relaxed = time.process_time()
    return {
        "family": family,
        "kernels": len(problem.tasks),
        "size": kernels,
        "seed": seed,
        "gpus": "a100,l40s",
        "build_cpu_seconds": round(built - started, 3),
        "relaxation_cpu_seconds": round(relaxed - built, 3),
        "to": {gap: timed_solve(problem, float(gap)) for gap in ("0.01", "0.001")},
    }


def measure_many(
    family: str, kernels: int, gpus: str, memory_scale: float = 1.0
) -> dict[str, object]:
    problem = model_graph(family, kernels, gpus, memory_scale=memory_scale)
    started = time.process_time()
    choice = choose(problem, THROUGHPUT, SolveOptions(gap=0.01))
    assert choice is not None
    ours = (KERNEL, "replicas")
    baseline = min(
        (one.period_ns for one in choice.candidates if not one.name.endswith(ours)), default=None
    )
    return {
        "family": family,
        "kernels": len(problem.tasks),
        "gpus": gpus,
        "memory_scale": memory_scale,
        "cpu_seconds": round(time.process_time() - started, 3),
        "gap": round(choice.gap, 6),
        "plan": choice.best.name,
        "best_baseline": None if baseline is None else round(baseline / choice.bound - 1, 4),
    }


def growth(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Per size: the 90th percentile of seconds and of the ratio to a relaxation, and the worst."""
    found: list[dict[str, object]] = []
    for size in sorted({int(str(row["size"])) for row in rows}):
        chosen = [row for row in rows if row["size"] == size]
        entry: dict[str, object] = {"size": size, "instances": len(chosen)}
        for gap in ("0.01", "0.001"):
            runs = [row["to"][gap] for row in chosen]  # type: ignore[index]
            seconds = sorted(float(run["cpu_seconds"]) for run in runs)
            gaps = sorted(float(run["gap"]) for run in runs)
            ratios = sorted(
                float(run["cpu_seconds"]) / max(float(str(row["relaxation_cpu_seconds"])), 1e-3)
                for run, row in zip(runs, chosen, strict=True)
            )
            at = int(0.9 * (len(chosen) - 1) + 0.999)
            entry[gap] = {
                "p90_cpu_seconds": seconds[at],
                "worst_cpu_seconds": seconds[-1],
                "p90_gap": gaps[at],
                "p90_ratio_to_relaxation": round(ratios[at], 1),
            }
        entry["targets"] = [
            {
                "gap": gap,
                "seconds": limit,
                "met": entry[gap]["p90_cpu_seconds"] <= limit  # type: ignore[index]
                and entry[gap]["p90_gap"] <= float(gap),  # type: ignore[index]
            }
            for gap, limit in TARGETS.get(size, ())
        ]
        found.append(entry)
    return found


def main() -> None:
    parser = arguments(__doc__, "planner.json")
    parser.add_argument("--sizes", default="60,200,1000,2000,5000")
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--many", action="store_true")
    options = parser.parse_args()
    families = options.families.split(",")
    rows: list[dict[str, object]] = []
    many: list[dict[str, object]] = []
    for size in map(int, options.sizes.split(",")):
        for seed in map(int, options.seeds.split(",")):
            for family in families:
                rows.append(measure_pair(family, size, seed))
                print(json.dumps(rows[-1]), flush=True)
    if options.many:
        cases = (("8xa100,8xl40s", 1.0), ("32xa100,32xl40s", 1.0), ("8xa100,8xl40s", 0.3))
        for gpus, memory_scale in cases:
            for family in families:
                many.append(measure_many(family, 500, gpus, memory_scale))
                print(json.dumps(many[-1]), flush=True)
    grown = growth(rows)
    for entry in grown:
        print(json.dumps(entry))
    about = {"schema": "tessera-planner-benchmark/2", "threads": 1, **machine()}
    write({**about, "rows": rows, "growth": grown, "many": many}, options.output)


if __name__ == "__main__":
    main()
