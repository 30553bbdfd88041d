"""What serving on one H200 comes to: speed, tokens, simulated against real, a burst.

    python -m benchmarks.serving.h200 prepare --work FOLDER --arrivals azure_code.csv.gz   # no GPU
    python -m benchmarks.serving.h200 run --work FOLDER -o FILE [--seconds 3000] [--only PARTS]

`prepare` captures steps of `examples/models/generation.py` (8B, bf16, 8 of its layers and all 32)
without a GPU and plans them, so that the GPU is not held for that; it needs torch. `run` needs a
GPU. Weights are random by a seed, made on the GPU. Each part is a process of its own and a row of
the file; what is there is not done again. `--tiny` does the same with a small model on the CPU
backend.

- `tokens`: 64 sequences of mixed lengths that join, leave, stop and are given up, by an engine with
  one batch and with two, looking ahead and not, against a plain loop over the same steps, token for
  token (`serving_tokens`): 32 layers with 64 rows and with 8, greedy; 4 layers of a GPT that draws
  tokens in its steps, every second sequence sampled by a seed.
- `profile`: `tessc profile` of both steps, and a plan by it.
- `simulated`: requests at random times, `tessc simulate` against `tessc bench`.
- `burst`: three minutes of an Azure trace around its largest burst (those requests that fit the
  context, of which one in `EVERY` comes; time goes `SPEED` times as fast), by the plan that
  switches and by each of its two.
- `speed`: tokens per second of an engine with one batch and with two, against the bare graph.
- `speed32`, `speed32r8`: the same with all 32 layers; with 8 rows.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.cases import parser_of, run_cases
from benchmarks.common import MODELS, Row
from benchmarks.serving import engines
from benchmarks.serving import tokens as serving_tokens
from benchmarks.serving.engines import LARGE, TINY, Setting, done, profile, simulated, tessc

CUT_S, SPEED, EVERY = 180.0, 4.0, 2
# Chosen by simulation of seconds 1330 to 1510 of the trace, which hold another burst.
RULE = {"window_ns": 1e9, "high": 0.15, "low": 0.05, "dwell_ns": 5e8}
SLO_MS = {"ttft_ms": 1000.0, "tpot_ms": 50.0}
SLICES = "h200:84sm,h200:48sm"
TARGETS = {"h200-0.0": "cuda:0:84sm", "h200-0.1": "cuda:0:48sm"}
GPT = {"vocabulary": 32000, "hidden": 2048, "layers": 4, "heads": 16, "blocks": 2049}
GPT |= {"block": 16, "context": 512}


def setting_of(given: argparse.Namespace) -> Setting:
    tiny = given.tiny
    return Setting(
        out=given.work,
        work=given.work,
        layers=1 if tiny else 8,
        rows=3 if tiny else 64,
        context=32 if tiny else 1024,
        chunk=4 if tiny else 128,
        prompt=12 if tiny else 120,
        tokens=18 if tiny else 192,
        requests=40 if tiny else 1500,
        tiny=tiny,
        until=time.monotonic() + (given.limit if given.one else given.seconds),
        load_s=given.load_s,
    )


# --- without a GPU --------------------------------------------------------------------------------


def prepare(given: argparse.Namespace) -> None:
    """Traces, plans and the cut of the arrivals; what is there stays."""
    setting = setting_of(given)
    long = {"rows": 3, "context": 32} if given.tiny else {"rows": 32, "context": 4096}
    for folder in ("", "long", "l32", "l32r8", "gpt"):
        (given.work / folder).mkdir(parents=True, exist_ok=True)
    wanted: list[tuple[str, str, dict[str, Any]]] = [
        ("prefill", "prefill", {"chunk": setting.chunk}),
        ("decode", "decode", {}),
    ]
    wanted += [("long/prefill", "prefill", long | {"chunk": 16 if given.tiny else 512})]
    wanted += [("long/decode", "decode", long)]
    for folder, rows in (("l32", setting.rows), ("l32r8", 3 if given.tiny else 8)):
        more = {"layers": 1 if given.tiny else 32, "rows": rows}
        wanted += [(f"{folder}/decode", "decode", more)]
        wanted += [(f"{folder}/prefill", "prefill", more | {"chunk": setting.chunk})]
    for name, kind, sizes in wanted:
        capture(setting, given.work / f"{name}.ptx", f"llama_{kind}", sized(setting) | sizes)
    for kind, sizes in (("decode", {"rows": 64}), ("prefill", {"chunk": 64})):
        own = {} if given.tiny else GPT | sizes | {"dtype": "bfloat16"}
        capture(setting, given.work / "gpt" / f"{kind}.ptx", f"gpt_{kind}", own)
    # One set of states and one slot: engines ask for more when they open the plan.
    one = ["--gpus", "h200", "--sequences", "1", "--slots", "1", "--strategy", "single"]
    for folder, share in (("", setting.rows), ("l32/", 64), ("l32r8/", 64), ("gpt/", 16)):
        text = [f"{folder}prefill.ptx:1", f"{folder}decode.ptx:{share}"]
        plan(setting, f"{folder}text.tsp", text, one)
    pair = ["--gpus", SLICES, "--objective", "latency+throughput", "--sequences", "2"]
    pair += ["--slots", "2", "--time-limit", "120"]
    plan(setting, "pair.tsp", ["long/prefill.ptx:4", "long/decode.ptx:3"], pair)
    target = given.work / "cut.csv"
    if not target.exists():
        target.write_text(cut(given.arrivals, int(long["context"]), given.tiny), encoding="utf-8")


def sized(setting: Setting) -> dict[str, Any]:
    sizes = (TINY if setting.tiny else LARGE) | {"layers": setting.layers, "rows": setting.rows}
    sizes |= {"context": setting.context, "greedy": "true"}
    return sizes | {"dtype": "float32" if setting.tiny else "bfloat16"}


def capture(setting: Setting, path: Path, step: str, sizes: dict[str, Any]) -> None:
    if path.exists():
        return
    words = [word for name, value in sizes.items() for word in ("--set", f"{name}={value}")]
    model = f"{MODELS / 'generation.py'}:{step}"
    begun = time.monotonic()
    where = ["--device", "none", "--for", "h200"]
    done(tessc("trace", model, "--no-data", "-o", str(path), *where, *words), setting)
    print(path.name, "captured in", round(time.monotonic() - begun), "s", flush=True)


def plan(setting: Setting, name: str, traces: list[str], words: list[str]) -> None:
    path = setting.work / name
    if path.exists():
        return
    named = [str(setting.work / trace) for trace in traces]
    done(tessc("plan", *named, *words, "-o", str(path)), setting)
    print(name, "planned", flush=True)


def cut(path: Path, context: int, tiny: bool) -> str:
    """The rows of three minutes around the densest second, those that fit."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    rows = list(csv.DictReader(text.splitlines()))
    times = [datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp() for row in rows]
    per_second: dict[int, int] = {}
    for at in times:
        per_second[int(at)] = per_second.get(int(at), 0) + 1
    busiest = max(per_second, key=lambda second: per_second[second])
    begin = max(busiest - 60.0, times[0])
    inside = [row for at, row in zip(times, rows, strict=True) if begin <= at < begin + CUT_S]
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    for row in inside:
        prompt, answer = int(row["ContextTokens"]), int(row["GeneratedTokens"])
        if tiny:
            prompt, answer = prompt // 400 + 1, answer // 40 + 1
        if prompt + answer - 1 <= context:
            lines.append(f"{row['TIMESTAMP']},{prompt},{answer}")
    print(f"cut: {len(lines) - 1} of {len(inside)} requests, {per_second[busiest]} in a second")
    kept = [lines[0], *lines[1::EVERY][: 20 if tiny else None]]
    return "\n".join(kept) + "\n"


# --- on the GPU -----------------------------------------------------------------------------------


def tokens(setting: Setting) -> dict[str, Any]:
    """Plan by plan: a plain loop, then engines; what a run before has written is not done again."""
    import tessera

    kept = setting.out / "tokens.so_far.json"
    row: dict[str, Any] = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
    missing: list[str] = []
    for folder, settings in TOKENS.items():
        wide = folder == "gpt"
        vocabulary = (GPT if wide else LARGE)["vocabulary"]
        prompts, answers = (1, 200), (8, 72)
        if setting.tiny:
            vocabulary, prompts, answers = 64, (1, 9), (1, 12)
        count = 8 if setting.tiny else 64
        asked = serving_tokens.mixed(count, vocabulary, prompts, answers, wide)
        path, options = setting.runs(f"{folder}/text.tsp")
        right: list[list[int]] = []
        for batches, ahead, isolated in settings:
            name = f"{folder}, batches {batches}, {'' if ahead else 'not '}looking ahead"
            name += ", a process of its own" if isolated else ""
            if name in row:
                continue
            if setting.left() < 10:
                missing.append(name)
                continue
            if not right:
                with tessera.Runtime(path, **options) as runtime:
                    loop = serving_tokens.Loop(runtime=runtime, limit_s=setting.left())
                    right = loop.answers(asked)
            more = {"sequences": batches, "slots": batches, "isolated": isolated}
            with tessera.Engine(path, **options, **more, look_ahead=ahead) as engine:
                own = serving_tokens.by_engine(engine, asked, right, setting.left())
            tell(row, name, own)
            kept.write_text(json.dumps(row), encoding="utf-8")
    return row | ({"not reached": missing} if missing else {})


TOKENS = {
    "gpt": ((1, True, False), (2, True, False), (1, False, False), (1, True, True)),
    "l32r8": ((1, True, False), (2, True, False), (2, False, False)),
    "l32": ((1, True, False), (2, True, False), (1, False, False), (1, True, True)),
}
"""By the folder of the plan: batches, whether it looks ahead, whether in a process of its own."""


def speed(setting: Setting) -> dict[str, Any]:
    """One batch, looking ahead and not; two."""
    row: dict[str, Any] = {"rows": setting.rows, "layers": setting.layers}
    tell(row, "batches 1", engines.speed_with(setting, 1))
    tell(row, "batches 1, not looking ahead", engines.speed_with(setting, 1, False))
    if setting.left() > 20:
        tell(row, "batches 2", engines.speed_with(setting, 2))
    return row


def speed32(setting: Setting) -> dict[str, Any]:
    return speed(replace(setting, layers=32, work=setting.work / "l32"))


def speed32r8(setting: Setting) -> dict[str, Any]:
    rows = 3 if setting.tiny else 8
    return speed(replace(setting, layers=32, rows=rows, work=setting.work / "l32r8"))


def tell(row: dict[str, Any], name: str, value: Any) -> Any:
    """Put a figure into a row, and say it at once."""
    row[name] = value
    print(json.dumps({"so far": {name: value}}), flush=True)
    return value


def burst(setting: Setting) -> dict[str, Any]:
    """The cut by the plan that switches, then by each of its two policies."""
    import tessera
    from tessera.driver.serve.bench_text import bench_text
    from tessera.driver.serve.measures import Slo
    from tessera.driver.serve.options import ArrivingText
    from tessera.driver.serve.policies import SwitchRule

    slo = Slo(ttft_ns=SLO_MS["ttft_ms"] * 1e6, tpot_ns=SLO_MS["tpot_ms"] * 1e6)
    arriving = ArrivingText(arrivals=setting.work / "cut.csv", speed=SPEED, slo=slo)
    row: dict[str, Any] = {"speed": SPEED, "one in": EVERY, "slo": SLO_MS, "rule": RULE}
    more = {} if setting.tiny else {"targets": TARGETS}
    for policy in ("adaptive", "throughput", "latency"):
        named = None if policy == "adaptive" else policy
        if setting.left() < 10 + CUT_S / SPEED / 2 and named is not None:
            row[policy] = "not reached"
            continue
        begun = time.monotonic()
        path, options = setting.runs("pair.tsp", isolated=False, policy=named, **more)
        options["switch"] = SwitchRule(**RULE) if named is None else None
        with tessera.Engine(path, **options) as engine:
            started = time.monotonic() - begun
            engine.generate([[1, 2, 3]] * 2, max_tokens=4)
            report = bench_text(engine, "burst", arriving)
            drifts = len(engine.counts.drifts)
        own = {name: round(value, 3) for name, value in engines.figures(report).items()}
        own |= {name: round(value, 3) for name, value in report.rates().items()}
        times = sorted(s.ended_ns - s.came_ns for s in report.whole)
        own["end_to_end_mean_ms"] = round(sum(times) / max(len(times), 1) / 1e6, 3)
        own |= {"start_s": round(started, 1), "endings": report.endings()}
        own |= {"switches": len(report.switches), "policies": report.policies()}
        tell(row, policy, own | {"drifts": drifts})
    return row


PARTS = {
    call.__name__: call for call in (tokens, profile, simulated, burst, speed, speed32, speed32r8)
}


def part(name: str, given: argparse.Namespace) -> Row:
    """A part; one that was not done whole has to be repeated."""
    row = PARTS[name](setting_of(given))
    return row | ({"failed": "not all was reached"} if "not reached" in row else {})


def main() -> None:
    parser = parser_of(__doc__, seconds=3000.0, jobs=1)
    parser.set_defaults(limit=1200.0)
    parser.add_argument("stage", choices=("prepare", "run"))
    parser.add_argument("--arrivals", type=Path)
    parser.add_argument("--load-s", type=float, default=12.0, help="of each load of `simulated`")
    parser.add_argument("--tiny", action="store_true", help="a small model, without a GPU")
    given = parser.parse_args()
    if given.stage == "prepare":
        prepare(given)
        return
    run_cases(
        "benchmarks.serving.h200",
        tuple(PARTS),
        given,
        lambda name: part(name, given),
        more=("run", "--load-s", str(given.load_s), *(["--tiny"] if given.tiny else [])),
        sums=lambda rows: {"what": "Llama 3 8B (8 layers unless a part says 32), bf16, one GPU"},
    )


if __name__ == "__main__":
    main()
