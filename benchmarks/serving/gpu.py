"""An 8B model served on one GPU: speed, tokens, `generate`, faults, clients, simulated and real.

    python -m benchmarks.serving.gpu --out FOLDER [--work FOLDER] [--checkpoint FOLDER]
        [--layers 32] [--rows 64] [--seconds 500] [--only weights,capture,plan,speed,...] [--tiny]
    python -m benchmarks.serving.gpu --collect LOG... --out RESULT.json

Needs a GPU, torch, transformers and safetensors; `clients` also what `tessc serve` needs, and takes
the `openai` package where it is installed. Steps of `examples/models/generation.py` (Llama, bf16,
`greedy`: tokens are chosen in the step) with random weights of a checkpoint in `--work`, where all
large files go. `--tiny` tries all parts without a GPU, with a small model on the CPU backend. Each
part is a process of its own, a line of JSON and a file in `--out`; what is there is not made again,
and a part that fails is a line with the reason. `--collect` puts what runs have printed into one
file. Parts:

- `weights`, `capture`, `plan`: a checkpoint; a decode step and a prefill step; a plan of both.
- `speed`: as many prompts as there are rows. Tokens per second while all rows decode, against the
  same decode graph launched back to back, with one batch and with two in flight; `idle` is the part
  of the time between two decode steps in which the graph does not run.
- `tokens`: the answers, against the same steps driven by a plain loop, token for token.
- `generate`: prompts and answers through a model of the transformers library with these weights,
  every token with the right ones before it. Where its most likely token is another one: how far its
  two logits are apart, against how far its bf16 logits are from those in f32.
- `faults`: two replicas, each a process of its own, take turns on the GPU. One is ended from
  outside while both answer, then one gets a token far outside the embedding: those answers end, the
  others go on, both replicas are there again.
- `clients`: requests over HTTP to `tessc serve`, 64 at once; equal prompts get equal answers.
- `profile`, `simulated`: measured steps, a plan by them, and requests at random times: `tessc
  simulate` against `tessc bench`.
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
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serving import gpu_clients as serving_gpu_clients
from benchmarks.serving import watch as serving_watch

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "examples" / "models"
LARGE = {"vocabulary": 128256, "hidden": 4096, "heads": 32, "kv_heads": 8, "inner": 14336}
TINY = {"vocabulary": 64, "hidden": 16, "heads": 2, "kv_heads": 1, "inner": 32}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is measured, and where its files are."""

    out: Path
    work: Path
    checkpoint: Path | None
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
        """A plan, and how an engine or a runtime opens it; without a checkpoint by a seed."""
        named = {} if self.checkpoint is None else {"weights": self.checkpoint}
        return self.work / plan, {"backend": self.backend, **named, **more}

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


# --- what is served -------------------------------------------------------------------------------


def weights(setting: Setting) -> dict[str, Any]:
    """Random weights as a checkpoint, by the names that the steps have."""
    import torch
    from safetensors.torch import save_file

    begun = time.monotonic()
    place = "cpu" if setting.tiny else "cuda"
    model = our_model(setting, place)
    named = {
        name: tensor.contiguous()
        for name, tensor in model.state_dict().items()
        if not name.endswith("_cache")
    }
    assert setting.checkpoint is not None
    setting.checkpoint.mkdir(exist_ok=True)
    save_file(named, setting.checkpoint / "model.safetensors")
    size = sum(tensor.numel() * tensor.element_size() for tensor in named.values())
    took = round(time.monotonic() - begun, 1)
    return {"seconds": took, "gigabytes": round(size / 1e9, 2), "torch": torch.__version__}


def our_model(setting: Setting, place: str) -> Any:
    sys.path.insert(0, str(MODELS))
    import generation

    sizes = setting.sizes | {"rows": 1}
    return generation.llama_decode(**sizes, device=place, made_on=place)[0]


def capture(setting: Setting) -> dict[str, Any]:
    """Both steps at once: compilers have cores enough."""
    begun = time.monotonic()
    running = []
    for kind in ("decode", "prefill"):
        path = setting.work / f"{kind}.ptx"
        if path.exists():
            continue
        sizes = setting.sizes | {"greedy": "true"}
        sizes |= {"chunk": setting.chunk} if kind == "prefill" else {}
        sizes |= {} if setting.tiny else {"made_on": "cuda"}
        words = [word for name, value in sizes.items() for word in ("--set", f"{name}={value}")]
        words += ["--device", "none", "--for", "h200"] if setting.tiny else []
        model = f"{MODELS / 'generation.py'}:llama_{kind}"
        log = (setting.out / f"{kind}.log").open("wb")
        command = tessc("trace", model, "--no-data", "-o", str(path), *words)
        running.append((kind, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)))
        if setting.tiny:
            running[-1][1].wait()
    failed = [kind for kind, process in running if process.wait(setting.left())]
    if failed:
        raise RuntimeError(f"{failed}: {(setting.out / f'{failed[0]}.log').read_text()[-700:]}")
    return {"seconds": round(time.monotonic() - begun, 1)}


def make_plan(setting: Setting, name: str, gpus: str, *rest: str) -> float:
    begun = time.monotonic()
    traces = [str(setting.work / word) for word in ("prefill.ptx:1", f"decode.ptx:{setting.rows}")]
    words = ["--gpus", gpus, "--sequences", "1", "--slots", "1", *rest]
    done(tessc("plan", *traces, *words, "-o", str(setting.work / name)), setting)
    return round(time.monotonic() - begun, 1)


def plan(setting: Setting) -> dict[str, Any]:
    return {"seconds": make_plan(setting, "text.tsp", "h200", "--strategy", "single")}


# --- speed ----------------------------------------------------------------------------------------


def speed(setting: Setting) -> dict[str, Any]:
    """Tokens of an engine with one batch and with two, and what the decode graph alone gives."""
    row: dict[str, Any] = {"rows": setting.rows, "layers": setting.layers}
    for batches in (1, 2):
        row[f"batches {batches}"] = speed_with(setting, batches)
        print(json.dumps({"so far": row}), flush=True)
    return row


def speed_with(setting: Setting, batches: int, look_ahead: bool = True) -> dict[str, Any]:
    import tessera

    begun = time.monotonic()
    path, options = setting.runs(sequences=batches, slots=batches, isolated=False)
    options["look_ahead"] = look_ahead
    with tessera.Engine(path, **options) as engine:
        started = time.monotonic()
        engine.generate([[1, 2, 3]] * batches, max_tokens=4)
        watched = serving_watch.Watched(engine)
        count = setting.rows * batches
        times: list[int] = []
        answers = [
            engine.submit(p, max_tokens=setting.tokens, ignore_end=True)
            for p in setting.prompts(count)
        ]
        answers[0].listen(lambda _: times.append(time.monotonic_ns()))
        given = [answer.result(setting.left()) for answer in answers]
        all_in = max(answer.first_ns for answer in answers)
        over = min(answer.ended_ns for answer in answers)
        during = [at for at in times if all_in < at <= over]
        gaps = [right - left for left, right in pairwise(during)]
        places = [len(p) + setting.tokens // 2 for p in setting.prompts()]
        bare_ns = 0.0 if setting.tiny else bare(engine.runtime, places)
    if batches == 1:
        (setting.work / "answers.json").write_text(json.dumps(given), encoding="utf-8")
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
        "longest: step, us": sorted(
            ([number, gap // 1000] for number, gap in enumerate(gaps)), key=lambda own: -own[1]
        )[:12],
        "watched": watched.summary(),
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


# --- tokens ---------------------------------------------------------------------------------------


def tokens(setting: Setting) -> dict[str, Any]:
    """The same steps by a plain loop over a runtime, all rows in step."""
    import tessera

    given = json.loads((setting.work / "answers.json").read_text(encoding="utf-8"))
    rows = setting.prompts()
    made: list[list[int]] = [[] for _ in rows]
    path, options = setting.runs()
    with tessera.Runtime(path, **options) as runtime:
        for row, prompt in enumerate(rows):
            for start in range(0, len(prompt), setting.chunk):
                part = prompt[start : start + setting.chunk]
                arrays = {
                    "tokens": np.zeros((1, setting.chunk), np.int64),
                    "positions": np.array([start]),
                    "rows": np.array([row]),
                    "lengths": np.array([len(part)]),
                }
                arrays["tokens"][0, : len(part)] = part
                last = runtime.submit(arrays, trace="prefill").result()
            made[row].append(int(only(last)[0]))
        while len(made[0]) < setting.tokens:
            places = [len(prompt) + len(own) - 1 for prompt, own in zip(rows, made, strict=True)]
            arrays = decode_of([own[-1] for own in made], places)
            chosen = only(runtime.submit(arrays, trace="decode").result())
            for own, token in zip(made, chosen, strict=True):
                own.append(int(token))
    firsts = [
        next((n for n, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), -1)
        for a, b in zip(given, made, strict=True)
    ]
    same = sum(a == b for a, b in zip(given, made, strict=True))
    distinct = len({token for own in made for token in own})
    return {"answers": len(made), "same": same, "first_other": firsts, "distinct": distinct}


def only(result: Any) -> Any:
    """The one output of a step."""
    (name,) = result
    return np.asarray(result[name]).reshape(-1)


def decode_of(chosen: list[int], places: list[int]) -> dict[str, Any]:
    return {"tokens": np.array(chosen, np.int64)[:, None], "positions": np.array(places, np.int64)}


def generate(setting: Setting) -> dict[str, Any]:
    """What transformers would choose after the same tokens, in the type of the step and in f32."""
    import torch
    from safetensors.torch import load_file

    place = "cpu" if setting.tiny else "cuda"
    given = json.loads((setting.work / "answers.json").read_text(encoding="utf-8"))
    own = our_model(setting, place)
    assert setting.checkpoint is not None
    own.load_state_dict(load_file(setting.checkpoint / "model.safetensors"), strict=False)
    kind = next(own.parameters()).dtype
    from generation_reference import as_llama

    with torch.device(place):
        wide, plain = as_llama(own), as_llama(own)
    del own
    for parameter in plain.parameters():  # not the frequencies of its positions
        parameter.data = parameter.data.to(kind)
    rows = list(zip(setting.prompts(), given, strict=True))
    columns = torch.cat(list(judged(plain, wide, rows, place)), 1)
    ours, theirs, exact, gap, error = columns
    gaps = gap[ours != theirs]
    errors = error.sort().values
    count = len(errors)
    limit = 2 * float(errors[min(int(count * 0.999), count - 1)])
    return {
        "positions": count,
        "others": len(gaps),
        "share_of_others": round(len(gaps) / count, 4),
        "share_of_ours_other_than_in_f32": round(float((ours != exact).double().mean()), 4),
        "share_of_theirs_other_than_in_f32": round(float((theirs != exact).double().mean()), 4),
        "largest_gap": round(max(gaps.tolist(), default=0.0), 5),
        "error_of_bf16_median": round(float(errors.median()), 5),
        "error_of_bf16_p999": round(limit / 2, 5),
        "gaps_beyond_twice_that": int((gaps > limit).sum()),
        "largest_gap_over_that": round(max(gaps.tolist(), default=0.0) / (limit / 2 or 1.0), 2),
    }


def judged(plain: Any, wide: Any, rows: list[Any], place: str, at_once: int = 4) -> Iterator[Any]:
    """Of every token of the answers: ours, theirs, theirs in f32, how far their logits of the first
    two are apart, and how far that of their choice is from the one in f32."""
    import torch

    for start in range(0, len(rows), at_once):
        part = rows[start : start + at_once]
        longest = max(len(prompt) + len(answer) for prompt, answer in part)
        ids = torch.zeros(len(part), longest, dtype=torch.int64, device=place)
        for number, (prompt, answer) in enumerate(part):
            ids[number, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
        with torch.no_grad():
            pair = [model(ids, use_cache=False).logits for model in (plain, wide)]
        for number, (prompt, answer) in enumerate(part):
            first = len(prompt) - 1
            logits, exact = (own[number, first : first + len(answer)].float() for own in pair)
            ours = torch.tensor(answer, device=place)
            top, theirs = logits.max(-1)
            gap = top - logits.gather(1, ours[:, None])[:, 0]
            error = (top - exact.gather(1, theirs[:, None])[:, 0]).abs()
            yield torch.stack([x.double() for x in (ours, theirs, exact.argmax(-1), gap, error)])


# --- faults ---------------------------------------------------------------------------------------


def faults(setting: Setting) -> dict[str, Any]:
    """Two processes on one GPU; one is ended, then one gets a token that is not there."""
    import tessera

    if not (setting.work / "two.tsp").exists():
        make_plan(setting, "two.tsp", "h200,h200", "--strategy", "dp")
    begun = time.monotonic()
    more = {} if setting.tiny else {"targets": {"h200-0": "cuda:0", "h200-1": "cuda:0"}}
    path, options = setting.runs("two.tsp", check_ranges=False, **more)
    row: dict[str, Any] = {}
    with tessera.Engine(path, **options) as engine:
        row["start_s"] = round(time.monotonic() - begun, 1)
        processes = engine.runtime.processes()
        row["processes"] = len(processes)
        for name in ("ended from outside", "a token that is not there"):
            begun = time.monotonic()
            answers = [
                engine.submit(p, max_tokens=setting.tokens, ignore_end=True)
                for p in setting.prompts()[: setting.rows]
            ]
            while sum(len(answer.tokens) > 2 for answer in answers) < len(answers):
                time.sleep(0.005)
            before = engine.runtime.processes()
            if name.startswith("ended") and before:
                os.kill(before[0], signal.SIGKILL)
            else:
                answers.append(engine.submit([1 << 30], max_tokens=2))
            for answer in answers:
                with suppress(tessera.TesseraError):
                    answer.result(setting.left())
            while len(engine.runtime.processes()) < len(before):
                time.sleep(0.05)
            healed = round(time.monotonic() - begun, 1)
            again = engine.generate([[1, 2, 3]] * 8, max_tokens=4)
            row[name] = {
                "answers": dict(Counter(answer.ended for answer in answers)),
                "all_there_again_s": healed,
                "restarts": engine.restarts,
                "kept": len(set(before) & set(engine.runtime.processes())),
                "answers_after": len({tuple(answer) for answer in again}) == 1,
            }
            print(json.dumps({"so far": row}), flush=True)
    return row


# --- over HTTP, and against the simulation --------------------------------------------------------


def clients(setting: Setting) -> dict[str, Any]:
    words = ["serve", str(setting.work / "text.tsp"), "--backend", setting.backend, "--port", "0"]
    command = tessc(*words, "--weights", str(setting.checkpoint), "--max-waiting", "1000")
    return serving_gpu_clients.measure(
        command, setting.prompts(50), setting.requests, min(setting.tokens, 32), setting.left
    )


def profile(setting: Setting) -> dict[str, Any]:
    begun = time.monotonic()
    if not setting.tiny:
        for kind in ("decode", "prefill"):
            words = ["--devices", "h200", "--repeats", "5"]
            words += ["--weights", str(setting.checkpoint)] if setting.checkpoint else []
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
        watched = serving_watch.Watched(engine)
        for share in (0.5, 0.8):
            count = int(min(setting.requests, max(most * share * setting.load_s, 40)))
            arrivals = f"poisson:{most * share:.6g}/s:{count}"
            arriving = ArrivingText(arrivals=arrivals, tokens=sizes)
            watched.clear()
            reports = simulate_text(path, arriving, how), bench_text(engine, "bench", arriving)
            (setting.out / f"simulated.steps.{share}.json").write_text(
                json.dumps(watched.series(simulated=reports[0], measured=reports[1])),
                encoding="utf-8",
            )
            rows = [figures(report) for report in reports]
            off = {key: round(rows[0][key] / rows[1][key] - 1, 4) for key in rows[0]}
            row[f"load {share}"] = {
                "arrivals": arrivals,
                "simulated": rows[0],
                "measured": rows[1],
                "off": off,
                "watched": watched.summary(),
            }
            row[f"load {share}"]["drifts"] = len(engine.drifts)
            print(json.dumps({"so far": {f"load {share}": row[f"load {share}"]}}), flush=True)
    return {"tokens": sizes, "requests_per_s_at_most": most, **row}


def figures(report: Any) -> dict[str, float]:
    named = report.figures()
    times = {
        f"{name}_{part}_ms": named[f"{name}_ns"][part] / 1e6
        for name in ("end_to_end", "ttft", "tpot")
        for part in ("p50", "p99")
    }
    return times | {"tokens_per_s": report.rates()["answer_tokens_per_s"]}


PARTS = {
    call.__name__: call
    for call in (
        weights,
        capture,
        plan,
        speed,
        tokens,
        generate,
        faults,
        clients,
        profile,
        simulated,
    )
}


def collect(logs: list[Path], out: Path) -> None:
    """What runs have printed, by the name of the log and the part."""
    runs: dict[str, Any] = {}
    for log in logs:
        for line in log.read_text(encoding="utf-8").splitlines():
            if line.startswith('{"part"'):
                row = json.loads(line)
                if "ended" not in row or not isinstance(row["ended"], bool):
                    runs.setdefault(log.stem, {})[row.pop("part")] = row
    value = {"what": "a language model served on one H200", "runs": runs}
    out.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, help="for large files; --out unless given")
    parser.add_argument("--checkpoint", type=Path, help="of `weights`; in --work unless given")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--chunk", type=int, default=128)
    parser.add_argument("--prompt", type=int, default=120)
    parser.add_argument("--tokens", type=int, default=192, help="of an answer: more than rows")
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=500.0)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--tiny", action="store_true", help="a small model, without a GPU")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--collect", type=Path, nargs="+", metavar="LOG")
    given = parser.parse_args()
    if given.collect:
        collect(given.collect, given.out)
        return
    given.work = given.work or given.out
    given.checkpoint = given.checkpoint or given.work / "weights"
    if given.tiny:
        for name, value in (("layers", 1), ("rows", 3), ("context", 32), ("chunk", 4)):
            setattr(given, name, value)
        given.prompt, given.tokens, given.requests = 12, 18, 40
    until = time.monotonic() + given.seconds
    known = {field.name for field in fields(Setting)} - {"until", "load_s"}
    setting = Setting(until=until, **{name: getattr(given, name) for name in known})
    setting.out.mkdir(parents=True, exist_ok=True)
    setting.work.mkdir(parents=True, exist_ok=True)
    for part in given.only.split(","):
        path = setting.out / f"{part}.json"
        if path.exists() or time.monotonic() > until:
            continue
        if given.inside:
            text = json.dumps({"part": part, **PARTS[part](setting)})
            path.write_text(text + "\n", encoding="utf-8")
            print(text, flush=True)
            continue
        begun = time.monotonic()
        again = [sys.executable, "-m", "benchmarks.serving.gpu", *sys.argv[1:], "--inside"]
        again += ["--only", part, "--seconds", str(setting.left())]
        log = setting.out / f"{part}.part.log"
        with log.open("wb") as stream, suppress(subprocess.TimeoutExpired):
            subprocess.run(again, cwd=ROOT, stderr=stream, timeout=setting.left() + 5)
        took = round(time.monotonic() - begun, 1)
        is_there = path.exists()
        said = "" if is_there else log.read_text(encoding="utf-8", errors="replace")[-900:]
        print(json.dumps({"part": part, "ended": is_there, "took_s": took, "said": said}))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
