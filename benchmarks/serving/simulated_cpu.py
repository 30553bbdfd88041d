"""Requests for text, simulated against run: `tessc simulate --steps` and `tessc bench` alike.

    python -m benchmarks.serving.simulated_cpu -o RESULT.json [--requests 40] [--scale 1]

Ten settings of a model whose kernels sleep (`timed_model`), on the CPU backend: rows, batches,
replicas, stages, lengths and rates of requests differ. For each the medians and 99th percentiles of
end-to-end times and the rate, by the launch programs followed exactly and as measured by the
engine, and how far these are apart. Settings that are in the file are not measured again. `--scale`
makes all times longer: on a busy machine the host takes long for every step.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from benchmarks.common import arguments, kept, machine, write
from benchmarks.serving.timed_model import TimedModel
from tessera.driver.serve.bench_text import bench_text
from tessera.driver.serve.engine import Engine
from tessera.driver.serve.measures import ServingReport
from tessera.driver.serve.options import ArrivingText, TextSimulationOptions
from tessera.driver.serve.simulate_text import simulate_text
from tessera.ir.arrivals import Arrival, Arrivals

# Name, model, requests per second, most tokens of a prompt, most tokens of an answer.
SETTINGS: tuple[tuple[str, TimedModel, float, int, int], ...] = (
    ("one batch", TimedModel(batches=1, slots=1), 2.0, 40, 12),
    ("two batches", TimedModel(), 2.0, 40, 12),
    ("three batches", TimedModel(batches=3, slots=3), 2.5, 40, 12),
    ("two stages", TimedModel(stages=2), 2.0, 40, 12),
    ("three stages", TimedModel(stages=3, batches=3, slots=3), 2.0, 40, 12),
    ("two replicas", TimedModel(replicas=2, batches=1, slots=1), 3.0, 40, 12),
    ("two replicas of two stages", TimedModel(replicas=2, stages=2), 3.0, 40, 12),
    ("few rows, overloaded", TimedModel(rows=2, batches=1, slots=1), 4.0, 30, 12),
    ("long prompts", TimedModel(), 1.0, 200, 8),
    ("long answers", TimedModel(rows=16), 2.0, 10, 40),
)


def arrivals(rate: float, count: int, prompt: int, answer: int) -> Arrivals:
    draw = random.Random(7)
    at, rows = 0.0, []
    for _ in range(count):
        rows.append(Arrival(int(at), draw.randint(1, prompt), draw.randint(1, answer)))
        at += draw.expovariate(rate) * 1e9
    return Arrivals(name="random", form="poisson", requests=tuple(rows))


def figures(report: ServingReport) -> dict[str, float]:
    times = report.figures()["end_to_end_ns"]
    return {
        "p50_s": times["p50"] / 1e9,
        "p99_s": times["p99"] / 1e9,
        "tokens_per_s": report.rates()["answer_tokens_per_s"],
    }


def main() -> None:
    parser = arguments(__doc__, "serving_simulated_cpu.json")
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", default="", help="settings with this in their name")
    given = parser.parse_args()
    result: dict[str, Any] = {
        "what": "requests for text on the CPU backend with kernels that sleep, simulated and run",
        **machine(),
        "settings": kept(given.output).get("settings", {}),
    }
    for name, model, rate, prompt, answer in SETTINGS:
        if name in result["settings"] or given.only not in name:
            continue
        scale = given.scale
        timed = replace(
            model, decode_ms=model.decode_ms * scale, prefill_ms=model.prefill_ms * scale
        )
        plan = timed.plan()
        arriving = ArrivingText(arrivals=arrivals(rate / scale, given.requests, prompt, answer))
        options = TextSimulationOptions(backend="cpu", clock="exact")
        simulated = simulate_text(plan, arriving, options)
        with Engine(plan, backend="cpu") as engine:
            engine.generate([[1, 2, 3]] * engine.sizes.batches, max_tokens=2)  # once before
            measured = bench_text(engine, name, arriving)
        rows = {"simulated": figures(simulated), "measured": figures(measured)}
        off = {
            key: round(rows["simulated"][key] / rows["measured"][key] - 1, 4)
            for key in rows["simulated"]
        }
        steps = {"simulated": dict(simulated.steps), "measured": dict(measured.steps)}
        result["settings"][name] = {"scale": scale, **rows, "off": off, "steps": steps}
        print(name, off, flush=True)
        worst = {
            key: max(abs(row["off"][key]) for row in result["settings"].values()) for key in off
        }
        result["worst"] = worst
        write(result, given.output)


if __name__ == "__main__":
    main()
