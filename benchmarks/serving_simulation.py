"""How fast requests for text are simulated: the Azure conversation trace, 24 times over.

    python -m benchmarks.serving_simulation azure_2023_conv.csv.gz -o RESULT.json
        [--traces PREFILL DECODE] [--gpu a100]

The plan has 16 devices with a copy of the model each and two batches on every device. With
`--traces`, those are planned: steps of an 8B model as `tessc trace --device meta` makes them of
examples/models/generation.py. Without, its programs are those of the small steps in examples/traces
with times scaled so that a decode step of 64 rows takes 12 ms and a prefill step of 512 tokens
40 ms. Steps go by rates (`--clock rates`), so the number of launches does not matter. The requests
of the file come 24 times as often: each 24 times, at the same time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import time
from dataclasses import replace
from pathlib import Path

import tessera
from tessera.driver.serve.measures import Slo
from tessera.driver.serve.options import ArrivingText, TextSimulationOptions
from tessera.driver.serve.simulate_text import simulate_text
from tessera.frontend.arrivals.read_arrivals import read_arrivals
from tessera.ir.plan.plan import Plan
from tessera.report.serving import serving_value

TRACES = Path(__file__).parents[1] / "examples" / "traces"
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


def scaled(plan: Plan) -> Plan:
    """The plan with steps that take as long as a large model's."""
    replicas = []
    for replica in plan.replicas:
        traces = []
        for placed, wanted in zip(replica.traces, TIMES_NS, strict=True):
            factor = wanted / sum(step.predicted_ns for step in placed.steps)
            steps = tuple(
                replace(step, predicted_ns=step.predicted_ns * factor) for step in placed.steps
            )
            traces.append(replace(placed, steps=steps))
        replicas.append(replace(replica, traces=tuple(traces)))
    return replace(plan, replicas=tuple(replicas))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arrivals")
    parser.add_argument("--times", type=int, default=24)
    parser.add_argument("--devices", type=int, default=16)
    parser.add_argument("--requests", type=int)
    parser.add_argument("--traces", nargs=2, metavar=("PREFILL", "DECODE"))
    parser.add_argument("--gpu", default="l40s")
    parser.add_argument("-o", "--output")
    given = parser.parse_args()
    options = tessera.PlanOptions(
        gpus=",".join([given.gpu] * given.devices), strategy="dp", slots=2, sequences=2
    )
    begun = time.process_time()
    if given.traces:
        plan = tessera.plan(given.traces, options, compare=False).plan
    else:
        paths = [f"{TRACES}/{name}.ptx" for name in NAMES]
        plan = scaled(tessera.plan(paths, options, compare=False).plan)
    planned_s = time.process_time() - begun
    arrivals = read_arrivals(given.arrivals, most=given.requests)
    repeated = tuple(request for request in arrivals.requests for _ in range(given.times))
    arriving = ArrivingText(
        arrivals=replace(arrivals, requests=repeated), slo=Slo(ttft_ns=2e9, tpot_ns=50e6)
    )
    path = "steps.json"
    began, cpu = time.monotonic(), time.process_time()
    steps = "names" if given.traces else write_steps(path)
    report = simulate_text(plan, arriving, TextSimulationOptions(steps=steps, clock="rates"))
    if not given.traces:
        os.unlink(path)
    took_s, cpu_s = time.monotonic() - began, time.process_time() - cpu
    value = dict(serving_value(report))
    del value["queue"]
    result = {
        "what": "requests for text simulated by rates",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "devices": given.devices,
        "times": given.times,
        "requests": len(repeated),
        "launches": [len(placed.steps) for placed in plan.replicas[0].traces],
        "planned_s": round(planned_s, 1),
        "processor_s": round(cpu_s, 1),
        "wall_s": round(took_s, 1),
        "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
        "steps": sum(report.steps.values()),
        "report": value,
    }
    text = json.dumps(result, indent=2) + "\n"
    if given.output:
        Path(given.output).write_text(text, encoding="utf-8")
    print(text)


def write_steps(path: str) -> str:
    Path(path).write_text(json.dumps(STEPS), encoding="utf-8")
    return path


if __name__ == "__main__":
    main()
