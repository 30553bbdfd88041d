"""What plans on slices bring for prompts and answers of Llama 3 8B, from default captures.

    python -m benchmarks.gain_real FOLDER [--layers 8] [--prefill 512] [--batch 64] [--context 1024]
                                   [--mixes 1:1,1:8] [--seconds 540] [--no-tune] [-o gain_real.json]
                                   [--modes default] [--plans 'serial|streams|84+48']

Needs an H200, torch and transformers. Everything is done by the commands that a user has, on the
transformers library's own layers with random weights: both steps are captured by the default route
(kernels tuned for every slice, too), profiled on the whole GPU and on all slices, planned together,
run. A mix `1:8` is a prompt and eight decode steps. Its plans: the whole GPU with one request after
the other (`serial`) and with several side by side (`streams`), and for every pair of slices each
strategy and the one that `tessc plan` picks (`chosen`). The reference line is PyTorch's own: the
same steps by torch.compile (default and max-autotune, the faster), replayed as graphs.

Stages, each written to FOLDER/gain_real.json when it is done; what is there is not done again, and
none begins after `--seconds`: `save`, `torch`, `trace prefill`, `trace decode`, `profile prefill`,
`profile decode`, and one for each mix and plan. A plan that fails is a row with the reason. Rows
have microseconds for one mix, measured and predicted, and ratios: above 1 is faster than serial, or
than PyTorch. `--plans` measures those with one of these texts in their names, `--modes` takes
fewer modes of torch.compile: the same command without them goes on.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

GPU = "h200"
SPLITS = ("84+48", "100+32")
STRATEGIES = ("phase", "layers", "attention", "kernel", "dp")
KINDS = ("prefill", "decode")
LEAST_S = 0.8  # a run that is measured takes at least so long
MODES = ("default", "max-autotune")


# --- the steps, for `tessc trace` -----------------------------------------------------------------


def step(folder: str, kind: str, batch: int, context: int) -> tuple[Any, tuple[Any, ...]]:
    """A prompt of `context` tokens, or one token at the end of so long a cache.

    Weights have the names of the checkpoint; each kind has a cache of its own.
    """
    import torch
    import transformers

    from benchmarks.real_steps import cached

    model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    model = model.cuda().eval().requires_grad_(False)
    made = cached(model.model, model.config, batch, context, context if kind == "prefill" else 1)

    class Step(torch.nn.Module):
        """The step over a cache that is named after its kind."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model.model
            setattr(self, kind, made.module.cache)

        def forward(self, tokens: Any, start: Any) -> Any:
            """What the last token of every sequence is at the end."""
            cache = getattr(self, kind)
            for layer in cache.layers:
                layer.cumulative_length.copy_(start)
            out = self.model(input_ids=tokens, past_key_values=cache, use_cache=True)
            return out.last_hidden_state[:, -1].clone()

    return Step().eval(), made.inputs


def torch_us(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """PyTorch's own steps, in microseconds by kind and mode."""
    import torch

    from benchmarks.real_models import compiled
    from benchmarks.real_steps import RealStep

    torch.set_grad_enabled(False)
    times: dict[str, dict[str, float]] = {}
    for kind in KINDS:
        made = RealStep(*step(**sizes(options, kind)))
        for mode in options.modes.split(","):
            replay = compiled(made, mode)
            replay(3)
            rounds = []
            for _ in range(5):
                torch.cuda.synchronize()
                begun = time.perf_counter()
                replay(40)
                torch.cuda.synchronize()
                rounds.append(1e6 * (time.perf_counter() - begun) / 40)
            times.setdefault(kind, {})[mode] = round(statistics.median(rounds), 1)
    return times


def sizes(options: argparse.Namespace, kind: str) -> dict[str, Any]:
    """What `step` is called with."""
    is_prefill = kind == "prefill"
    return {
        "folder": str(options.folder / "checkpoint"),
        "kind": kind,
        "batch": 1 if is_prefill else options.batch,
        "context": options.prefill if is_prefill else options.context,
    }


# --- stages ---------------------------------------------------------------------------------------


def tessc(*arguments: str) -> str:
    """What a command of Tessera prints; what it says of its failure is the exception's text."""
    command = [sys.executable, "-m", "tessera", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"tessc {arguments[0]} ended with {done.returncode}: {done.stderr[:600]}"
        )
    return done.stdout


def save(options: argparse.Namespace) -> dict[str, Any]:
    from benchmarks import full_size

    return full_size.save(options.folder, options.layers)


def in_a_process(options: argparse.Namespace) -> dict[str, Any]:
    """PyTorch's times; the process gives its memory back."""
    command = [sys.executable, "-m", "benchmarks.gain_real", str(options.folder), "--torch"]
    for name in ("layers", "prefill", "batch", "context", "modes"):
        command += [f"--{name}", str(getattr(options, name))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    times: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"us": times}


def slices() -> str:
    return ",".join(f"{GPU}:{sms}sm" for sms in dict.fromkeys("+".join(SPLITS).split("+")))


def trace(options: argparse.Namespace, kind: str) -> dict[str, Any]:
    given = [
        part
        for item in sizes(options, kind).items()
        for part in ("--set", "=".join(map(str, item)))
    ]
    tuned = ("--tune", slices()) if options.tune else ()
    weights = ("--weights", str(options.folder / "checkpoint"), "--contents", "safetensors")
    place = str(options.folder / f"{kind}.ptx")
    said = tessc("trace", f"{__file__}:step", "-o", place, *given, *weights, *tuned)
    return {"said": [line for line in said.splitlines() if "code for" in line or "time:" in line]}


def profile(options: argparse.Namespace, kind: str) -> dict[str, Any]:
    place = options.folder / f"{kind}.ptx"
    weights = ("--weights", str(options.folder / "checkpoint"))
    devices = ("--devices", f"{GPU},{slices()}", "-o", str(place.with_suffix(".json")))
    tessc("profile", str(place), *devices, *weights)
    return {}


def plans() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Names of plans, and what `tessc plan` is told for each."""
    yield "serial", ("--gpus", GPU, "--strategy", "single", "--slots", "1")
    yield "streams", ("--gpus", GPU, "--strategy", "single", "--slots", "4")
    for split in SPLITS:
        gpus = ("--gpus", ",".join(f"{GPU}:{sms}sm" for sms in split.split("+")))
        yield f"chosen {split}", gpus
        for strategy in STRATEGIES:
            yield f"{strategy} {split}", (*gpus, "--strategy", strategy)


def run_plan(
    options: argparse.Namespace, mix: str, name: str, told: tuple[str, ...]
) -> dict[str, Any]:
    """A plan for a mix, predicted and measured: microseconds for one mix."""
    parts = [int(part) for part in mix.split(":")]
    place = options.folder / f"{name} {mix}.tsp".replace(" ", "_").replace(":", "_")
    traces = [
        f"{options.folder / kind}.ptx:{part}" for kind, part in zip(KINDS, parts, strict=True)
    ]
    profiles = [options.folder / f"{kind}.json" for kind in KINDS]
    measured = [word for path in profiles if path.exists() for word in ("--profile", str(path))]
    report = json.loads(tessc("plan", *traces, *told, *measured, "--json", "-o", str(place)))
    predicted_us = report["period_ns"] * sum(parts) / 1e3
    weights = options.folder / "checkpoint"
    given = [
        "--backend",
        options.backend,
        *(("--weights", str(weights)) if weights.exists() else ()),
    ]
    if options.backend == "cuda":
        ends = {d["name"]: d["sms"] for d in report["devices"]}
        whole = {name for name, sms in ends.items() if "." not in name}
        targets = (f"{n}=cuda:0" + ("" if n in whole else f":{sms}sm") for n, sms in ends.items())
        given += ["--map", ",".join(targets)]
    count = sum(parts) * max(8, min(400, round(LEAST_S * 1e6 / max(predicted_us, 1))))
    count = min(count, options.most)
    said = json.loads(tessc("run", str(place), *given, "--requests", str(count), "--json"))
    return {
        "us": round(1e6 * said["seconds"] * sum(parts) / count, 1),
        "predicted_us": round(predicted_us, 1),
        "strategy": report["strategy"],
        "requests": count,
        "busy": said["busy"],
    }


def stages(options: argparse.Namespace) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Everything in order, by name."""
    yield "save", lambda: save(options)
    yield "torch", lambda: in_a_process(options)
    for work in (trace, profile):
        for kind in KINDS:
            yield f"{work.__name__} {kind}", lambda work=work, kind=kind: work(options, kind)
    for mix in options.mixes.split(","):
        for name, told in plans():
            if not any(text in name for text in options.plans.split("|")):
                continue
            yield (
                f"{mix} {name}",
                lambda mix=mix, name=name, told=told: run_plan(options, mix, name, told),
            )


def ratios(document: dict[str, Any], mixes: list[str]) -> dict[str, Any]:
    """By mix all plans against serial and against PyTorch, and what was not measured."""
    done = document["stages"]
    own = {kind: min(times.values()) for kind, times in done.get("torch", {}).get("us", {}).items()}
    table: dict[str, Any] = {}
    for mix in mixes:
        parts = dict(zip(KINDS, map(int, mix.split(":")), strict=True))
        theirs = sum(parts[kind] * own[kind] for kind in KINDS) if len(own) == len(KINDS) else None
        rows = {name: done.get(f"{mix} {name}", {}) for name, _ in plans()}
        serial = rows["serial"].get("us")
        table[mix] = {
            "torch_us": theirs,
            "not_measured": [n for n, r in rows.items() if "us" not in r],
        }
        for name, row in rows.items():
            if "us" in row:
                table[mix][name] = {
                    "us": row["us"],
                    "predicted_us": row["predicted_us"],
                    "of_serial": serial and round(serial / row["us"], 3),
                    "of_torch": theirs and round(theirs / row["us"], 3),
                }
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    for name, size in (("layers", 8), ("prefill", 512), ("batch", 64), ("context", 1024)):
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--mixes", default="1:1,1:8", help="prompts and decode steps")
    parser.add_argument("--seconds", type=float, default=540.0)
    parser.add_argument("--modes", default=",".join(MODES), help="of torch.compile")
    parser.add_argument("--plans", default="", help="plans with this (or|this) in their name")
    parser.add_argument("--no-tune", dest="tune", action="store_false")
    parser.add_argument("--backend", choices=("cuda", "cpu"), default="cuda", help="cpu: a trial")
    parser.add_argument("--most", type=int, default=4000, help="requests of a run")
    parser.add_argument("--torch", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path, help="write the result here, too")
    options = parser.parse_args()
    if options.torch:
        print(json.dumps(torch_us(options)))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + options.seconds
    place = options.folder / "gain_real.json"
    asked = {n: getattr(options, n) for n in ("layers", "prefill", "batch", "context", "tune")}
    document: dict[str, Any] = {"schema": "tessera-gain-real/1", "sizes": asked, "stages": {}}
    if place.exists():
        document = json.loads(place.read_text())
        if document["sizes"] != asked:
            sys.exit(f"{place} is of other sizes: {document['sizes']}")
    for name, work in stages(options):
        known = document["stages"].get(name, {"failed": ""})
        if "failed" not in known:
            continue
        if time.monotonic() > until:
            print(f"no time for `{name}` and what follows", flush=True)
            break
        begun = time.perf_counter()
        try:
            row = work()
        except Exception as problem:
            row = {"failed": f"{type(problem).__name__}: {problem}"[:800]}
        row["seconds"] = round(time.perf_counter() - begun, 1)
        document["stages"][name] = row
        document["mixes"] = ratios(document, options.mixes.split(","))
        if options.backend == "cuda":
            from benchmarks.cuda_bench import facts

            document["machine"] = facts()
        for path in (place, *([options.output] if options.output else [])):
            path.write_text(json.dumps(document, indent=1) + "\n")
        print(name, json.dumps(row), flush=True)
        if "failed" in row and name.split()[0] in ("save", "trace"):
            break
    print(json.dumps(document.get("mixes", {}), indent=1))


if __name__ == "__main__":
    main()
