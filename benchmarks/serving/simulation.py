"""How fast requests for text are simulated: the Azure conversation trace, 24 times over.

    python -m benchmarks.serving.simulation azure_2023_conv.csv.gz -o RESULT.json [--gpu h200]

The plan has 16 devices with a copy of Llama 3 8B each (examples/large: a decode step of 64 rows, a
prefill step of 1024 tokens) and two batches on every device. Both steps are of a context of 2048
tokens; requests that are longer take as long for a step as those. Steps go by rates (`--clock
rates`), so the number of launches does not matter. The requests of the file come 24 times as often:
each 24 times, at the same time.
"""

from __future__ import annotations

import json
import resource
import tempfile
import time
from dataclasses import replace
from typing import Any

import tessera
from benchmarks.common import LARGE, arguments, machine, write
from tessera.driver.serve.measures import Slo
from tessera.driver.serve.options import ArrivingText, TextSimulationOptions
from tessera.driver.serve.simulate_text import simulate_text
from tessera.frontend.arrivals.read_arrivals import read_arrivals
from tessera.report.serving import serving_value

STEPS: dict[str, Any] = {
    "format": "tessera-steps/1",
    "context": 16384,
    "steps": {
        "llama-8b-prefill-1024": {"sizes": {"rows": 1, "tokens": 1024}},
        "llama-8b-decode-b64": {"sizes": {"rows": 64, "tokens": 1}},
    },
}


def main() -> None:
    parser = arguments(__doc__, "serving_simulation.json")
    parser.add_argument("arrivals")
    parser.add_argument("--times", type=int, default=24)
    parser.add_argument("--devices", type=int, default=16)
    parser.add_argument("--requests", type=int)
    parser.add_argument("--gpu", default="h200")
    given = parser.parse_args()
    options = tessera.PlanOptions(
        gpus=",".join([given.gpu] * given.devices), strategy="dp", slots=2, sequences=2
    )
    begun = time.process_time()
    paths = [f"{LARGE / name}.ptx" for name in STEPS["steps"]]
    plan = tessera.plan(paths, options, compare=False).plan
    planned_s = time.process_time() - begun
    arrivals = read_arrivals(given.arrivals, most=given.requests)
    repeated = tuple(request for request in arrivals.requests for _ in range(given.times))
    arriving = ArrivingText(
        arrivals=replace(arrivals, requests=repeated), slo=Slo(ttft_ns=2e9, tpot_ns=50e6)
    )
    began, cpu = time.monotonic(), time.process_time()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as stream:
        stream.write(json.dumps(STEPS))
        stream.flush()
        wanted = TextSimulationOptions(steps=stream.name, clock="rates")
        report = simulate_text(plan, arriving, wanted)
    took_s, cpu_s = time.monotonic() - began, time.process_time() - cpu
    value = dict(serving_value(report))
    del value["queue"]
    result = {
        "what": "requests for text simulated by rates, Llama 3 8B",
        "gpu": given.gpu,
        **machine(),
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
    write(result, given.output)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
