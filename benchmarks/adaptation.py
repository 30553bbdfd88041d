"""Two plans that requests are switched between, on real arrivals: against each alone and an oracle.

    python -m benchmarks.adaptation conv.csv.gz code.csv.gz -o adaptation.json
    python -m benchmarks.adaptation conv.csv.gz code.csv.gz --sweep -o adaptation_sweep.json

The plan is one for `latency+throughput` of the small steps in examples/traces on an A100 and an
L40S. Times are scaled so that on the faster replica a decode step of 64 rows takes 12 ms and a
prefill step of 512 tokens 40 ms, about what a model with 8 billion parameters takes. Arrivals come
at 0.3 to 1.2 times the rate at which the policy for throughput answers the same requests when all
are there at once. The oracle is the rule with knowledge of all that comes, with the best window and
marks of a grid, and no worse than either policy alone: for every figure by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import tessera
from benchmarks.serving_simulation import NAMES, STEPS, TIMES_NS, TRACES
from tessera.driver.serve.measures import ServingReport, Slo
from tessera.driver.serve.options import ArrivingText, TextSimulationOptions
from tessera.driver.serve.policies import SwitchRule
from tessera.driver.serve.simulate_text import simulate_text
from tessera.frontend.arrivals.read_arrivals import read_arrivals
from tessera.ir.arrivals import Arrivals
from tessera.ir.plan.plan import Plan

SCALES = (0.3, 0.6, 0.9, 1.2)
SLO = Slo(ttft_ns=10e9, tpot_ns=250e6)
FORESEEN = tuple(
    SwitchRule(window_ns=window * 1e9, high=0.6, low=0.4, dwell_ns=0.0) for window in (1, 5)
)
WINDOWS_S = (0.03, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
MARKS = (0.2, 0.35, 0.5, 0.7, 0.9, 1.2, 1.5, 3.0)


def pair() -> Plan:
    """The plan, with the times of a large model."""
    options = tessera.PlanOptions(gpus="a100,l40s", objective="latency+throughput", sequences=2)
    plan = tessera.plan([f"{TRACES}/{name}.ptx" for name in NAMES], options, compare=False).plan
    factors = []
    for number, wanted in enumerate(TIMES_NS):
        sums = [sum(s.predicted_ns for s in r.traces[number].steps) for r in plan.replicas]
        factors.append(wanted / min(sums))
    replicas = []
    for replica in plan.replicas:
        traces = tuple(
            replace(
                placed,
                steps=tuple(replace(s, predicted_ns=s.predicted_ns * factor) for s in placed.steps),
            )
            for placed, factor in zip(replica.traces, factors, strict=True)
        )
        replicas.append(replace(replica, traces=traces))
    return replace(plan, replicas=tuple(replicas))


def figures(report: ServingReport) -> dict[str, float]:
    times = sorted(served.ended_ns - served.came_ns for served in report.whole)
    return {
        "goodput_per_s": report.rates()["goodput_per_s"],
        "mean_s": sum(times) / len(times) / 1e9,
        "p99_s": report.figures()["end_to_end_ns"]["p99"] / 1e9,
        "answered": len(times),
        "switches": len(report.switches),
    }


class Setting:
    """A plan and arrivals, simulated by one policy or another."""

    def __init__(self, plan: Plan, arrivals: Arrivals, steps: str) -> None:
        self.plan, self.steps = plan, steps
        self.arrivals = arrivals
        span_s = (arrivals.requests[-1].at_ns - arrivals.requests[0].at_ns) / 1e9
        self.mean_rate = len(arrivals.requests) / span_s
        at_once = replace(
            arrivals, requests=tuple(replace(r, at_ns=0) for r in arrivals.requests[:2000])
        )
        self.full_rate = self.run(at_once, 1.0, policy="throughput").rates()["requests_per_s"]

    def run(self, arrivals: Arrivals, speed: float, **options: Any) -> ServingReport:
        arriving = ArrivingText(arrivals=arrivals, speed=speed, slo=SLO)
        wanted = TextSimulationOptions(steps=self.steps, clock="rates", **options)
        return simulate_text(self.plan, arriving, wanted)

    def scaled(self, scale: float, **options: Any) -> ServingReport:
        return self.run(self.arrivals, scale * self.full_rate / self.mean_rate, **options)


def judge(rows: dict[str, dict[str, float]]) -> dict[str, float]:
    """How far the rule is from the better policy alone, and from the oracle; above 1 is worse."""
    made = {}
    for name, larger in (("goodput_per_s", True), ("mean_s", False), ("p99_s", False)):
        best = max if larger else min
        alone = best(rows["latency"][name], rows["throughput"][name])
        oracle = best(alone, rows["adaptive"][name], rows["oracle"][name])
        own = rows["adaptive"][name]
        for which, other in (("alone", alone), ("oracle", oracle)):
            made[f"{name} against {which}"] = round(other / own if larger else own / other, 4)
    return made


def compare(setting: Setting, scale: float) -> dict[str, Any]:
    rows = {
        policy: figures(setting.scaled(scale, policy=policy))
        for policy in ("latency", "throughput")
    }
    rows["adaptive"] = figures(setting.scaled(scale))
    seen = [figures(setting.scaled(scale, foresees=True, switch=rule)) for rule in FORESEEN]
    rows["oracle"] = {
        "goodput_per_s": max(row["goodput_per_s"] for row in seen),
        "mean_s": min(row["mean_s"] for row in seen),
        "p99_s": min(row["p99_s"] for row in seen),
    }
    return {"scale": scale, **rows, "factors": judge(rows)}


def sweep(setting: Setting, scale: float) -> Iterator[dict[str, Any]]:
    for window in WINDOWS_S:
        rule = SwitchRule(window_ns=window * 1e9)
        yield {"window_s": window, "high": rule.high, **figures(setting.scaled(scale, switch=rule))}
    for mark in MARKS:
        rule = SwitchRule(high=mark, low=mark * 0.7)
        yield {
            "window_s": rule.window_ns / 1e9,
            "high": mark,
            **figures(setting.scaled(scale, switch=rule)),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arrivals", nargs="+")
    parser.add_argument("--requests", type=int, help="take the first so many of each file")
    parser.add_argument("--scales", type=float, nargs="+", default=SCALES)
    parser.add_argument("--sweep", action="store_true", help="windows and marks, at one scale")
    parser.add_argument("-o", "--output", required=True)
    given = parser.parse_args()
    plan = pair()
    rule = SwitchRule()
    result: dict[str, Any] = {
        "what": "requests switched between two plans, simulated by rates",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "slo": {"ttft_s": 10.0, "tpot_s": 0.25},
        "rule": {
            "window_s": rule.window_ns / 1e9,
            "high": rule.high,
            "low": rule.low,
            "dwell_s": rule.dwell_ns / 1e9,
        },
        "files": {},
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as stream:
        stream.write(json.dumps(STEPS))
        stream.flush()
        for path in given.arrivals:
            began = time.process_time()
            setting = Setting(plan, read_arrivals(path, most=given.requests), stream.name)
            own: dict[str, Any] = {
                "requests": len(setting.arrivals.requests),
                "throughput_rate_per_s": setting.full_rate,
            }
            result["files"][Path(path).name] = own
            for scale in given.scales:
                if given.sweep:
                    own[f"sweep at {scale}"] = list(sweep(setting, scale))
                else:
                    own.setdefault("scales", []).append(compare(setting, scale))
                    print(Path(path).name, scale, own["scales"][-1]["factors"], flush=True)
                own["processor_s"] = round(time.process_time() - began, 1)
                Path(given.output).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
