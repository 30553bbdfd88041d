"""An engine on one GPU, for `benchmarks.serving.h200`: its speed, and simulated against real.

Steps of `examples/models/generation.py` with random weights by a seed, captured and planned before.
With `tiny` all of it is a small model on the CPU backend.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

LARGE = {"vocabulary": 128256, "hidden": 4096, "heads": 32, "kv_heads": 8, "inner": 14336}
TINY = {"vocabulary": 64, "hidden": 16, "heads": 2, "kv_heads": 1, "inner": 32}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is measured, and where its files are."""

    out: Path
    work: Path
    layers: int
    rows: int
    context: int
    chunk: int
    prompt: int
    tokens: int
    requests: int
    tiny: bool
    until: float
    load_s: float = 15.0

    @property
    def sizes(self) -> dict[str, Any]:
        own = {"layers": self.layers, "rows": self.rows, "context": self.context}
        kind = {"dtype": "float32" if self.tiny else "bfloat16"}
        return (TINY if self.tiny else LARGE) | own | kind

    @property
    def backend(self) -> str:
        return "cpu" if self.tiny else "cuda"

    def left(self) -> float:
        return max(self.until - time.monotonic(), 1.0)

    def runs(self, plan: str = "text.tsp", **more: Any) -> tuple[Path, dict[str, Any]]:
        """A plan, and how an engine or a runtime opens it."""
        return self.work / plan, {"backend": self.backend, **more}

    def prompts(self, count: int | None = None) -> list[list[int]]:
        draw = random.Random(0)
        return [
            [draw.randrange(self.sizes["vocabulary"]) for _ in range(draw.randint(8, self.prompt))]
            for _ in range(count or self.rows)
        ]


def tessc(*words: str) -> list[str]:
    return [sys.executable, "-m", "tessera", *words]


def done(command: list[str], setting: Setting) -> str:
    made = subprocess.run(command, capture_output=True, text=True, timeout=setting.left())
    if made.returncode:
        raise RuntimeError(f"{' '.join(command[3:5])}: {(made.stderr or made.stdout)[-700:]}")
    return made.stdout


def make_plan(setting: Setting, name: str, gpus: str, *rest: str) -> float:
    begun = time.monotonic()
    traces = [str(setting.work / word) for word in ("prefill.ptx:1", f"decode.ptx:{setting.rows}")]
    words = ["--gpus", gpus, "--sequences", "1", "--slots", "1", *rest]
    done(tessc("plan", *traces, *words, "-o", str(setting.work / name)), setting)
    return round(time.monotonic() - begun, 1)


def speed_with(setting: Setting, batches: int, look_ahead: bool = True) -> dict[str, Any]:
    import tessera

    begun = time.monotonic()
    path, options = setting.runs(sequences=batches, slots=batches, isolated=False)
    options["look_ahead"] = look_ahead
    with tessera.Engine(path, **options) as engine:
        started = time.monotonic()
        engine.generate([[1, 2, 3]] * batches, max_tokens=4)
        count = setting.rows * batches
        times: list[int] = []
        answers = [
            engine.submit(p, max_tokens=setting.tokens, ignore_end=True)
            for p in setting.prompts(count)
        ]
        answers[0].listen(lambda _: times.append(time.monotonic_ns()))
        for answer in answers:
            answer.result(setting.left())
        all_in = max(answer.first_ns for answer in answers)
        over = min(answer.ended_ns for answer in answers)
        during = [at for at in times if all_in < at <= over]
        gaps = [right - left for left, right in pairwise(during)]
        places = [len(p) + setting.tokens // 2 for p in setting.prompts()]
        bare_ns = 0.0 if setting.tiny else bare(engine.runtime, places)
    # All batches take a step in the time between two tokens of one answer.
    step_ns = statistics.mean(gaps) / batches
    return {
        "start_s": round(started - begun, 1),
        "tokens_per_s": round(setting.rows * 1e9 / step_ns, 1),
        "bare_tokens_per_s": round(setting.rows * 1e9 / bare_ns, 1) if bare_ns else None,
        "share_of_bare": round(bare_ns / step_ns, 4),
        "idle": round(1 - bare_ns / step_ns, 4),
        "decode_steps": len(gaps),
        "step_us": round(step_ns / 1e3, 1),
        "step_us_median": round(statistics.median(gaps) / batches / 1e3, 1),
        "bare_us": round(bare_ns / 1e3, 1),
    }


def bare(runtime: Any, places: list[int], count: int = 40) -> float:
    """The decode graph back to back, per launch."""
    trace = list(runtime.traces).index("decode")
    backend = runtime._serving._dispatchers[0].backend
    runtime.submit(decode_of([7] * len(places), places), sequence=0, trace=trace).result()
    ready = next(r for key, r in backend.replica.ready.items() if key[0] == trace)
    root = backend.replica.roots[0]
    rounds = []
    with backend.driver.using(root.context):
        for _ in range(5):
            begun = time.perf_counter_ns()
            for _ in range(count):
                if ready.graph is not None:
                    backend.driver.launch_graph(ready.graph, root.stream)
                else:
                    ready.tape.play(backend.driver)
            backend.driver.finish()
            rounds.append((time.perf_counter_ns() - begun) / count)
    return statistics.median(rounds)


def decode_of(chosen: list[int], places: list[int]) -> dict[str, Any]:
    return {"tokens": np.array(chosen, np.int64)[:, None], "positions": np.array(places, np.int64)}


def profile(setting: Setting) -> dict[str, Any]:
    begun = time.monotonic()
    if not setting.tiny:
        for kind in ("decode", "prefill"):
            words = ["--devices", "h200", "--repeats", "5"]
            path = setting.work / f"{kind}.profile.json"
            trace = str(setting.work / f"{kind}.ptx")
            done(tessc("profile", trace, *words, "-o", str(path)), setting)
    measured = round(time.monotonic() - begun, 1)
    words = ["--strategy", "single"]
    for kind in () if setting.tiny else ("decode", "prefill"):
        words += ["--profile", str(setting.work / f"{kind}.profile.json")]
    return {"seconds": measured, "plan_s": make_plan(setting, "profiled.tsp", "h200", *words)}


def simulated(setting: Setting) -> dict[str, Any]:
    """The same arrivals, at 0.5 and 0.8 of what two batches can take by the simulation."""
    import tessera
    from tessera.driver.serve.bench_text import bench_text
    from tessera.driver.serve.options import ArrivingText, TextSimulationOptions
    from tessera.driver.serve.simulate_text import simulate_text

    path, options = setting.runs("profiled.tsp", isolated=False, sequences=2, slots=2)
    how = TextSimulationOptions(backend=setting.backend, clock="exact", sequences=2, slots=2)
    sizes = setting.prompt // 2, min(setting.tokens, 64)
    row: dict[str, Any] = {}
    flood = ArrivingText(arrivals=f"poisson:1000000/s:{4 * setting.rows}", tokens=sizes)
    most = simulate_text(path, flood, how).rates()["requests_per_s"]
    with tessera.Engine(path, **options) as engine:
        engine.generate([[1, 2, 3]], max_tokens=4)
        for share in (0.5, 0.8):
            count = int(min(setting.requests, max(most * share * setting.load_s, 40)))
            arrivals = f"poisson:{most * share:.6g}/s:{count}"
            arriving = ArrivingText(arrivals=arrivals, tokens=sizes)
            reports = simulate_text(path, arriving, how), bench_text(engine, "bench", arriving)
            rows = [figures(report) for report in reports]
            off = {key: round(rows[0][key] / rows[1][key] - 1, 4) for key in rows[0]}
            row[f"load {share}"] = {
                "arrivals": arrivals,
                "simulated": rows[0],
                "measured": rows[1],
                "off": off,
                "drifts": len(engine.counts.drifts),
            }
    return {"tokens": sizes, "requests_per_s_at_most": most, **row}


def figures(report: Any) -> dict[str, float]:
    named = report.figures()
    times = {
        f"{name}_{part}_ms": named[f"{name}_ns"][part] / 1e6
        for name in ("end_to_end", "ttft", "tpot")
        for part in ("p50", "p99")
    }
    return times | {"tokens_per_s": report.rates()["answer_tokens_per_s"]}
