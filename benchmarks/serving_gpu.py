"""An 8B model served on one GPU: tokens, speed against the bare decode graph, a fault that heals.

    python -m benchmarks.serving_gpu --out FOLDER [--layers 32] [--rows 64] [--seconds 500]
        [--only capture,plan,speed,tokens,faults]

Needs a GPU and torch. Steps of `examples/models/generation.py` (Llama, bf16, `greedy`: tokens are
chosen in the step) are captured without contents, so weights are seeded. What is there is not made
again, and a part that fails is a line with the reason. Parts, each a line of JSON and a file:

- `capture`, `plan`: a decode step, a prefill step, a plan that has both on the whole GPU.
- `speed`: as many prompts as there are rows. Tokens per second while all rows decode, against the
  same decode graph launched back to back; `idle` is the part of the time between two decode steps
  in which the graph does not run.
- `tokens`: the answers, against the same steps driven by a plain loop, token for token.
- `faults`: two replicas, each a process of its own, take turns on the GPU. One is ended from
  outside while both answer: its answers go on after it was started again, the other's are not
  disturbed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "examples" / "models" / "generation.py"
PARTS = ("capture", "plan", "speed", "tokens", "faults")
VOCABULARY = 128256
SIZES = {
    "vocabulary": VOCABULARY,
    "hidden": 4096,
    "heads": 32,
    "kv_heads": 8,
    "inner": 14336,
    "dtype": "bfloat16",
    "greedy": "true",
}


def tell(out: Path, part: str, row: dict[str, Any]) -> None:
    text = json.dumps({"part": part, **row})
    (out / f"{part}.json").write_text(text + "\n", encoding="utf-8")
    print(text, flush=True)


def tessc(*words: str) -> list[str]:
    return [sys.executable, "-m", "tessera", *words]


def capture(options: argparse.Namespace) -> dict[str, Any]:
    """Both steps at once: compilers have cores enough."""
    begun = time.monotonic()
    running = []
    for kind in ("decode", "prefill"):
        path = options.out / f"{kind}.ptx"
        if path.exists():
            continue
        sizes = SIZES | {
            "layers": options.layers,
            "rows": options.rows,
            "context": options.context,
        }
        sizes |= {"chunk": options.chunk} if kind == "prefill" else {}
        words = [word for name, value in sizes.items() for word in ("--set", f"{name}={value}")]
        command = tessc("trace", f"{MODEL}:llama_{kind}", "--no-data", "-o", str(path), *words)
        log = (options.out / f"{kind}.log").open("wb")
        running.append((kind, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)))
    failed = [kind for kind, process in running if process.wait(options.left())]
    return {"seconds": round(time.monotonic() - begun, 1), "failed": failed}


def plan(options: argparse.Namespace) -> dict[str, Any]:
    begun = time.monotonic()
    traces = [str(options.out / name) for name in ("prefill.ptx:1", f"decode.ptx:{options.rows}")]
    rest = ["--sequences", "1", "--slots", "1", "--strategy", "single"]
    command = tessc("plan", *traces, "--gpus", "h200", *rest, "-o", str(options.out / "text.tsp"))
    made = subprocess.run(command, capture_output=True, text=True, timeout=options.left())
    row = {"seconds": round(time.monotonic() - begun, 1), "code": made.returncode}
    return row | ({"said": made.stderr[-500:]} if made.returncode else {})


def prompts(options: argparse.Namespace) -> list[list[int]]:
    draw = random.Random(0)
    return [
        [draw.randrange(VOCABULARY) for _ in range(draw.randint(8, options.prompt))]
        for _ in range(options.rows)
    ]


def speed(options: argparse.Namespace) -> dict[str, Any]:
    """Tokens of an engine, and what the decode graph alone would give."""
    import tessera

    begun = time.monotonic()
    with tessera.Engine(options.out / "text.tsp", backend="cuda", isolated=False) as engine:
        started = time.monotonic()
        answers = [engine.submit(p, max_tokens=options.tokens) for p in prompts(options)]
        times: list[int] = []
        answers[0].listen(lambda _: times.append(time.monotonic_ns()))
        given = [answer.result(options.left()) for answer in answers]
        all_in = max(answer.first_ns for answer in answers)
        over = min(answer.ended_ns for answer in answers)
        during = [at for at in times if all_in < at <= over]
        gaps = [right - left for left, right in pairwise(during)]
        step_ns = statistics.median(gaps)
        bare_ns = bare(engine.runtime, options.rows)
    (options.out / "answers.json").write_text(json.dumps(given), encoding="utf-8")
    return {
        "rows": options.rows,
        "layers": options.layers,
        "start_s": round(started - begun, 1),
        "tokens_per_s": round(options.rows * 1e9 / step_ns, 1),
        "bare_tokens_per_s": round(options.rows * 1e9 / bare_ns, 1),
        "share_of_bare": round(bare_ns / step_ns, 4),
        "idle": round(1 - bare_ns / step_ns, 4),
        "decode_steps": len(gaps),
        "step_us": round(step_ns / 1e3, 1),
        "bare_us": round(bare_ns / 1e3, 1),
    }


def bare(runtime: Any, rows: int, count: int = 30) -> float:
    """The decode graph back to back, per launch."""
    trace = list(runtime.traces).index("decode")
    backend = runtime._serving._dispatchers[0].backend
    ready = next(r for key, r in backend.replica.ready.items() if key[0] == trace)
    root = backend.replica.roots[0]
    arrays = {"tokens": np.zeros((rows, 1), np.int64), "positions": np.full(rows, 64, np.int64)}
    runtime.submit(arrays, sequence=0, trace=trace).result()
    rounds = []
    with backend.driver.using(root.context):
        for _ in range(5):
            begun = time.perf_counter_ns()
            for _ in range(count):
                backend.driver.launch_graph(ready.graph, root.stream)
            backend.driver.finish()
            rounds.append((time.perf_counter_ns() - begun) / count)
    return statistics.median(rounds)


def tokens(options: argparse.Namespace) -> dict[str, Any]:
    """The same steps by a plain loop over a runtime, all rows in step."""
    import tessera

    given = json.loads((options.out / "answers.json").read_text(encoding="utf-8"))
    rows = prompts(options)
    made: list[list[int]] = [[] for _ in rows]
    with tessera.Runtime(options.out / "text.tsp", backend="cuda") as runtime:
        output = next(
            iter(
                runtime.submit(decode_of([0] * len(rows), [0] * len(rows)), trace="decode").result()
            )
        )
        for row, prompt in enumerate(rows):
            for start in range(0, len(prompt), options.chunk):
                part = prompt[start : start + options.chunk]
                arrays = {
                    "tokens": np.zeros((1, options.chunk), np.int64),
                    "positions": np.array([start]),
                    "rows": np.array([row]),
                    "lengths": np.array([len(part)]),
                }
                arrays["tokens"][0, : len(part)] = part
                last = runtime.submit(arrays, trace="prefill").result()
            made[row].append(int(np.asarray(last[output]).reshape(-1)[0]))
        while len(made[0]) < options.tokens:
            places = [len(prompt) + len(own) - 1 for prompt, own in zip(rows, made, strict=True)]
            arrays = decode_of([own[-1] for own in made], places)
            result = runtime.submit(arrays, trace="decode").result()
            for own, token in zip(made, np.asarray(result[output]).reshape(-1), strict=True):
                own.append(int(token))
    same = sum(a == b for a, b in zip(given, made, strict=True))
    firsts = [
        next((n for n, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), -1)
        for a, b in zip(given, made, strict=True)
    ]
    distinct = len({token for own in made for token in own})
    return {"answers": len(made), "same": same, "first_other": firsts, "distinct": distinct}


def decode_of(chosen: list[int], places: list[int]) -> dict[str, Any]:
    return {"tokens": np.array(chosen, np.int64)[:, None], "positions": np.array(places, np.int64)}


def faults(options: argparse.Namespace) -> dict[str, Any]:
    """Two processes on one GPU; one is ended while both answer."""
    import tessera

    path = options.out / "two.tsp"
    if not path.exists():
        traces = [
            str(options.out / name) for name in ("prefill.ptx:1", f"decode.ptx:{options.rows}")
        ]
        rest = ["--sequences", "1", "--slots", "1", "--strategy", "dp", "-o", str(path)]
        subprocess.run(tessc("plan", *traces, "--gpus", "h200,h200", *rest), check=True)
    begun = time.monotonic()
    targets = {"h200-0": "cuda:0", "h200-1": "cuda:0"}
    with tessera.Engine(path, backend="cuda", targets=targets) as engine:
        started = time.monotonic()
        answers = [engine.submit(p, max_tokens=options.tokens) for p in prompts(options)]
        while sum(len(answer.tokens) > 4 for answer in answers) < len(answers):
            time.sleep(0.01)
        processes = engine.runtime.processes()
        os.kill(processes[0], signal.SIGKILL)
        results: dict[str, int] = {}
        for answer in answers:
            with suppress(tessera.TesseraError):
                answer.result(options.left())
            results[answer.ended] = results.get(answer.ended, 0) + 1
        again = engine.submit([1, 2, 3], max_tokens=4).result(options.left())
        while len(engine.runtime.processes()) < len(processes):
            time.sleep(0.1)
        return {
            "start_s": round(started - begun, 1),
            "ended": results,
            "restarts": engine.restarts,
            "after": len(again),
            "kept": processes[1] in engine.runtime.processes(),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--chunk", type=int, default=128)
    parser.add_argument("--prompt", type=int, default=120)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=500.0)
    parser.add_argument("--only", default=",".join(PARTS))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + options.seconds
    options.left = lambda: max(until - time.monotonic(), 1.0)
    for part in options.only.split(","):
        if (options.out / f"{part}.json").exists() or time.monotonic() > until:
            continue
        try:
            tell(options.out, part, globals()[part](options))
        except Exception as problem:
            print(
                json.dumps({"part": part, "failed": f"{type(problem).__name__}: {problem}"[:800]}),
                flush=True,
            )


if __name__ == "__main__":
    main()
