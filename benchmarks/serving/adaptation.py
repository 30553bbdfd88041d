"""Two plans that requests are switched between, on real arrivals: against each alone and an oracle.

    python -m benchmarks.serving.adaptation FILE FILE --choose -o adaptation_choice.json
    python -m benchmarks.serving.adaptation conv.csv.gz code.csv.gz --rules adaptation_choice.json
        -o adaptation.json
    python -m benchmarks.serving.adaptation conv.csv.gz code.csv.gz --sweep -o adaptation_sweep.json

The plan is one for `latency+throughput` of the small steps in examples/traces on an A100 and an
L40S. Times are scaled so that on the faster replica a decode step of 64 rows takes 12 ms and a
prefill step of 512 tokens 40 ms, about what a model with 8 billion parameters takes. Arrivals come
at 0.3 to 1.2 times the rate at which the policy for throughput answers the same requests when all
are there at once.

`--choose` takes of a grid of windows and marks the rule that is nearest to the better policy alone,
in the worst of its figures and loads; loads are others than those that judge. With `--rules` each
file is judged by the rule that was chosen on the other files, and without by the usual rule. The
oracle is the rule with knowledge of all that comes, with the best window and marks of a grid, and
no worse than either policy alone: for every figure by itself. What is in the output is kept.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import tessera
from benchmarks.common import TRACES, arguments, kept, machine, write
from tessera.driver.serve.measures import ServingReport, Slo
from tessera.driver.serve.options import ArrivingText, TextSimulationOptions
from tessera.driver.serve.policies import SwitchRule
from tessera.driver.serve.simulate_text import simulate_text
from tessera.frontend.arrivals.read_arrivals import read_arrivals
from tessera.ir.arrivals import Arrivals
from tessera.ir.plan.plan import Plan

NAMES = ("llama_steps_prefill", "llama_steps_decode")
TIMES_NS = (40e6, 12e6)
STEPS = {
    "format": "tessera-steps/1",
    "context": 16384,
    "steps": {
        NAMES[0]: {"sizes": {"rows": 1, "tokens": 512}},
        NAMES[1]: {"sizes": {"rows": 64, "tokens": 1}},
    },
}
SCALES = (0.3, 0.6, 0.9, 1.2)
CHOOSING_SCALES = (0.45, 0.75, 1.05)
CHOSEN_FROM = tuple(
    SwitchRule(window_ns=window * 1e9, high=high, low=low)
    for window in (1, 3, 10)
    for high, low in ((0.4, 0.25), (0.6, 0.4), (0.9, 0.6))
)
# Set before any run with it: a first token within 2 s, and 10 tokens a second.
SLO = Slo(ttft_ns=2e9, tpot_ns=100e6)
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
        own = rows["adaptive"][name]
        others = {"alone": alone}
        if "oracle" in rows:
            others["oracle"] = best(alone, own, rows["oracle"][name])
        for which, other in others.items():
            made[f"{name} against {which}"] = round(other / own if larger else own / other, 4)
    return made


def alone(setting: Setting, scale: float) -> dict[str, dict[str, float]]:
    return {
        policy: figures(setting.scaled(scale, policy=policy))
        for policy in ("latency", "throughput")
    }


def choose(setting: Setting) -> dict[str, Any]:
    """The rule of the grid whose worst factor is the least."""
    worst = [0.0] * len(CHOSEN_FROM)
    for scale in CHOOSING_SCALES:
        rows = alone(setting, scale)
        for number, rule in enumerate(CHOSEN_FROM):
            own = rows | {"adaptive": figures(setting.scaled(scale, switch=rule))}
            worst[number] = max(worst[number], *judge(own).values())
    tried = [
        {**told(rule), "worst_factor": factor}
        for rule, factor in zip(CHOSEN_FROM, worst, strict=True)
    ]
    return {
        "chosen": told(CHOSEN_FROM[worst.index(min(worst))]),
        "scales": CHOOSING_SCALES,
        "tried": tried,
    }


def told(rule: SwitchRule) -> dict[str, float]:
    return {
        "window_s": rule.window_ns / 1e9,
        "high": rule.high,
        "low": rule.low,
        "dwell_s": rule.dwell_ns / 1e9,
    }


def rule_of(row: dict[str, float]) -> SwitchRule:
    return SwitchRule(
        window_ns=row["window_s"] * 1e9,
        high=row["high"],
        low=row["low"],
        dwell_ns=row["dwell_s"] * 1e9,
    )


def compare(setting: Setting, scale: float, rule: SwitchRule) -> dict[str, Any]:
    rows = alone(setting, scale)
    rows["adaptive"] = figures(setting.scaled(scale, switch=rule))
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
    parser = arguments(__doc__, "adaptation.json")
    parser.add_argument("arrivals", nargs="+")
    parser.add_argument("--requests", type=int, help="requests that are taken of each file")
    parser.add_argument("--scales", type=float, nargs="+")
    parser.add_argument("--sweep", action="store_true", help="windows and marks, at a load of 0.6")
    parser.add_argument("--choose", action="store_true", help="find a rule for each file")
    parser.add_argument("--rules", type=Path, help="what --choose has written")
    given = parser.parse_args()
    plan = pair()
    result: dict[str, Any] = {
        "what": "requests switched between two plans, simulated by rates",
        **machine(),
        "slo": {"ttft_s": SLO.ttft_ns / 1e9, "tpot_s": SLO.tpot_ns / 1e9},
        "rule": told(SwitchRule()),
        "files": kept(given.output).get("files", {}),
    }
    chosen = json.loads(given.rules.read_text("utf-8"))["files"] if given.rules else {}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as stream:
        stream.write(json.dumps(STEPS))
        stream.flush()
        for path in given.arrivals:
            name = Path(path).name
            setting = Setting(plan, read_arrivals(path, most=given.requests), stream.name)
            own = result["files"].setdefault(name, {"scales": []})
            own["requests"] = len(setting.arrivals.requests)
            own["throughput_rate_per_s"] = setting.full_rate
            others = [row["choice"]["chosen"] for other, row in chosen.items() if other != name]
            rule = rule_of(others[0]) if others else SwitchRule()
            own["rule"] = told(rule)
            for part, call in parts_of(setting, rule, given):
                began = time.process_time()
                if part in own or part in {str(row["scale"]) for row in own["scales"]}:
                    continue
                made = call()
                if isinstance(made, dict) and "factors" in made:
                    own["scales"] = sorted((*own["scales"], made), key=lambda row: row["scale"])
                    print(name, part, made["factors"], flush=True)
                else:
                    own[part] = made
                    print(name, part, made if given.choose else "", flush=True)
                took = time.process_time() - began
                own["processor_s"] = round(own.get("processor_s", 0.0) + took, 1)
                write(result, given.output)


def parts_of(
    setting: Setting, rule: SwitchRule, given: argparse.Namespace
) -> Iterator[tuple[str, Callable[[], Any]]]:
    if given.choose:
        yield "choice", partial(choose, setting)
        return
    for scale in given.scales or ((0.6,) if given.sweep else SCALES):
        if given.sweep:
            yield f"sweep at {scale}", lambda scale=scale: list(sweep(setting, scale))
        else:
            yield str(scale), partial(compare, setting, scale, rule)


if __name__ == "__main__":
    main()
