"""What plans on slices bring for prompts and answers of Llama 3 8B, from default captures.

    python -m benchmarks.gain.real FOLDER [--layers 32] [--prefill 512] [--batch 8] [--context 1024]
                                   [--mixes 1:2,1:4] [--splits 84+48,100+32] [--seconds 540]
                                   [--modes default] [--plans 'serial|streams|84+48'] [--tune]
                                   [--inputs gain_real_inputs.tar.xz] [--timelines 'kernel|phase']
                                   [--trial] [-o gain_real.json]

Needs an H200, torch and transformers. Everything is done by the commands that a user has, on the
transformers library's own layers with random weights: both steps are captured by the default route
(with `--tune` kernels are tuned for every slice, too), profiled on the whole GPU and on all slices,
planned together, run. A mix `1:4` is a prompt and four decode steps. Its plans: the whole GPU with
one request after the other (`serial`) and with several side by side (`streams`), and for every pair
of slices each strategy and the one that `tessc plan` picks (`chosen`). The reference line is
PyTorch's own: the same steps by torch.compile (default and max-autotune, the faster), replayed as
graphs.

Stages, each written to FOLDER/gain_real.json when it is done; what is there is not done again, and
none begins after `--seconds`: `save`, `trace prefill`, `trace decode`, `profile prefill`, `profile
decode`, `plans` (side by side), `torch`, and one for each mix and plan, those that say most first
(`WORTH`). Checkpoint, traces and profiles that `benchmarks.running.full_size` left in the folder
are taken as they are. With `--inputs` traces, profiles and plans are those that an earlier run has
packed: nothing is captured, profiled or planned, weights are seeded where there is no checkpoint,
and only `torch` makes one. A plan that fails is a row with the reason. Rows have microseconds for
one mix, measured (`benchmarks.gain.run`) and predicted, what nine of ten draws of its error bars
lie between (`between_us`), what the planner proves that no plan beats (`bound_us`), and ratios:
above 1 is faster than serial, or than PyTorch. `--plans` measures those with one of these texts in
their names (`torch` are PyTorch's own steps), `--modes` takes fewer modes of torch.compile: the
same command without them goes on. Plans with a text of `--timelines` in their names are run once
more with stamps: what every device did when. Rows of tuned captures have `tuned` in their names.
Beside `-o` there is then `gain_real_inputs.tar.xz` (some MB) with traces, profiles, reports, plans
and timelines, from which `benchmarks.gain.bound` works out the bound, without a GPU. `--trial`: a
tiny model on the CPU backend, without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import run_stages
from benchmarks.common import kept, tessc, write
from benchmarks.running import full_size
from benchmarks.running.full_size import GPU, KINDS, Sizes

SPLITS = ("84+48", "100+32")
STRATEGIES = ("phase", "kernel", "dp", "layers", "attention")
LEAST_S = 2.0  # seconds of a measured run, at least
MODES = ("default", "max-autotune")
# What is measured first: without these rows the others say little.
WORTH = ("serial", "kernel", "chosen", "streams", "phase", "dp", "layers", "attention")
FIRST = 4  # of them, before PyTorch's own steps
ARCHIVE = "gain_real_inputs.tar.xz"
VOCABULARY = 128256


def torch_us(size: Sizes, modes: str) -> dict[str, dict[str, float]]:
    """PyTorch's own steps, in microseconds by kind and mode."""
    import torch

    from benchmarks.running.real_models import compiled
    from benchmarks.running.real_steps import RealStep

    torch.set_grad_enabled(False)
    if not size.checkpoint.exists():
        full_size.save(size)
    times: dict[str, dict[str, float]] = {}
    for kind in KINDS:
        made = RealStep(*full_size.step(**size.given(kind)))
        for mode in modes.split(","):
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


# --- stages ---------------------------------------------------------------------------------------


def unless_there(path: Path, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do the work unless `full_size` has left its file."""
    return {"kept": True} if path.exists() else work()


def in_a_process(options: argparse.Namespace) -> dict[str, Any]:
    """PyTorch's times; the process gives its memory back."""
    command = [sys.executable, "-m", "benchmarks.gain.real", str(options.folder), "--torch"]
    for name in ("layers", "prefill", "batch", "context", "modes"):
        command += [f"--{name}", str(getattr(options, name))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    times: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"us": times}


def slices(splits: str) -> str:
    """The slices of all splits, as commands take them."""
    sizes = dict.fromkeys(splits.replace("+", ",").split(","))
    return ",".join(f"{GPU}:{sms}sm" for sms in sizes)


def plans(splits: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Names of plans, and what `tessc plan` is told for each."""
    yield "serial", ("--gpus", GPU, "--strategy", "single", "--slots", "1")
    yield "streams", ("--gpus", GPU, "--strategy", "single", "--slots", "4")
    for split in splits.split(","):
        gpus = ("--gpus", ",".join(f"{GPU}:{sms}sm" for sms in split.split("+")))
        yield f"chosen {split}", gpus
        for strategy in STRATEGIES:
            yield f"{strategy} {split}", (*gpus, "--strategy", strategy)


def is_asked(options: argparse.Namespace, name: str) -> bool:
    """Whether `--plans` asks for this name."""
    return any(text in name for text in options.plans.split("|"))


def wanted(options: argparse.Namespace) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Mixes, and names of plans that are asked for, with what `tessc plan` is told, by worth."""
    tasks = [
        (mix, name, told)
        for name, told in plans(options.splits)
        for mix in options.mixes.split(",")
        if is_asked(options, f"{mix} {name}")
    ]
    splits = options.splits.split(",")

    def worth(task: tuple[str, str, tuple[str, ...]]) -> tuple[int, int]:
        strategy, _, split = task[1].partition(" ")
        return splits.index(split) if split else 0, WORTH.index(strategy)

    yield from sorted(tasks, key=worth)


def plan_place(folder: Path, name: str, mix: str) -> Path:
    """The path of a plan."""
    title = f"{name} {mix}".replace(" ", "_").replace(":", "_")
    return folder / f"{title}.tsp"


def make_plan(
    options: argparse.Namespace, size: Sizes, mix: str, name: str, told: tuple[str, ...]
) -> tuple[Path, dict[str, Any]]:
    """A plan for a mix, and its report; what is there is not made again."""
    place = plan_place(options.folder, name, f"{mix}{options.tail}")
    report = place.with_suffix(".report.json")
    if not report.exists():
        parts = zip(KINDS, mix.split(":"), strict=True)
        traces = [f"{size.trace(kind)}:{part}" for kind, part in parts]
        profiles = [size.trace(kind).with_suffix(".json") for kind in KINDS]
        measured = [word for path in profiles if path.exists() for word in ("--profile", str(path))]
        said = tessc("plan", *traces, *told, *measured, "--json", "-o", str(place))
        report.write_text(said)
    return place, json.loads(report.read_text())


def make_plans(options: argparse.Namespace, size: Sizes) -> dict[str, Any]:
    """All plans, side by side; one that fails is tried again when it is to run."""

    def seconds(task: tuple[str, str, tuple[str, ...]]) -> float | str:
        begun = time.perf_counter()
        try:
            make_plan(options, size, *task)
        except RuntimeError as problem:
            return str(problem)[:300]
        return round(time.perf_counter() - begun, 1)

    tasks = list(wanted(options))
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 2)) as pool:
        made = list(pool.map(seconds, tasks))
    return {"made": {f"{mix} {name}": s for (mix, name, _), s in zip(tasks, made, strict=True)}}


def run_plan(
    options: argparse.Namespace, size: Sizes, mix: str, name: str, told: tuple[str, ...]
) -> dict[str, Any]:
    """A plan for a mix, predicted and measured: microseconds for one mix."""
    requests = sum(int(part) for part in mix.split(":"))
    place, report = make_plan(options, size, mix, name, told)
    predicted_us = report["period_ns"] * requests / 1e3
    given = ["--backend", "cpu" if size.trial else "cuda"]
    if size.checkpoint.exists():  # otherwise weights are seeded
        given += ["--weights", str(size.checkpoint)]
    if not size.trial:
        ends = {d["name"]: d["sms"] for d in report["devices"]}
        whole = {name for name, sms in ends.items() if "." not in name}
        targets = (f"{n}=cuda:0" + ("" if n in whole else f":{sms}sm") for n, sms in ends.items())
        given += ["--map", ",".join(targets)]
    count = requests * max(8, min(400, round(LEAST_S * 1e6 / max(predicted_us, 1))))
    given += ["--requests", str(requests if size.trial else count), "--of-a-mix", str(requests)]
    if any(text and text in f"{mix} {name}" for text in options.timelines.split("|")):
        given += ["--timeline", str(place.with_suffix(".timeline.json.xz"))]
        given += ["--events", str(requests if size.trial else 8 * requests)]
    command = [sys.executable, "-m", "benchmarks.gain.run", str(place), *given]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"gain_run ended with {done.returncode}: {done.stderr[-900:]}")
    return {
        **json.loads(done.stdout.splitlines()[-1]),
        "predicted_us": round(predicted_us, 1),
        "between_us": [round(report[end] * requests / 1e3, 1) for end in ("low", "high")],
        "bound_us": round(report["bound"] * requests / 1e3, 1),
        "strategy": report["strategy"],
    }


def unpack(archive: Path, size: Sizes) -> dict[str, Any]:
    """Traces, profiles and plans of an earlier run, and the inputs of both steps.

    What was measured then is left in the archive: this run is another.
    """
    with tarfile.open(archive) as packed:
        members = [one for one in packed.getmembers() if one.name != "gain_real.json"]
        packed.extractall(size.work, members, filter="data")
    for kind in KINDS:
        given = size.given(kind)
        shape = (given["batch"], given["context"] if kind == "prefill" else 1)
        rng = np.random.default_rng(0)
        start = given["context"] - shape[1]
        arrays = {
            "tokens": rng.integers(0, VOCABULARY, shape),
            "start": np.array(start, np.int64),
            "model.rotary_emb.inv_freq": (1e4 ** -(np.arange(64) / 64)).astype(np.float32),
        }
        size.trace(kind).with_suffix(".safetensors").write_bytes(safetensors(arrays))
    return {"files": len(members)}


def safetensors(arrays: dict[str, Any]) -> bytes:
    """The bytes of a safetensors file with these arrays; `tessc run` seeds missing ones."""
    kinds = {"int64": "I64", "float32": "F32"}
    header, end = {}, 0
    for name, array in arrays.items():
        begin, end = end, end + array.nbytes
        about = {"dtype": kinds[str(array.dtype)], "shape": list(array.shape)}
        header[name] = about | {"data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    return b"".join(
        (struct.pack("<Q", len(text)), text, *(array.tobytes() for array in arrays.values()))
    )


def pack(folder: Path, place: Path) -> dict[str, Any]:
    """What the bound is worked out from, as one file; what it cannot do without first."""
    kinds = ("*.ptx", "prefill*.json", "decode*.json", "*.report.json", "*.timeline.json.xz")
    files = [path for kind in (*kinds, "gain_real.json") for path in sorted(folder.glob(kind))]
    files += sorted(folder.glob("*.tsp"))
    with tarfile.open(place, "w:xz") as archive:
        for path in dict.fromkeys(files):
            archive.add(path, path.name)
    return {"files": len(files), "bytes": place.stat().st_size}


def stages(
    options: argparse.Namespace, size: Sizes
) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """All stages in order, with their names."""
    if options.inputs is None:
        yield "save", lambda: unless_there(size.checkpoint, lambda: full_size.save(size))
    else:
        yield "unpack", lambda: unpack(options.inputs, size)
    every, tail = slices(options.splits), options.tail
    tuned = ("--tune", every) if options.tune else ()
    for kind in KINDS:
        yield (
            f"trace {kind}{tail}",
            lambda kind=kind: unless_there(
                size.trace(kind), lambda: full_size.trace(size, kind, *tuned)
            ),
        )
    for kind in () if size.trial else KINDS:
        yield (
            f"profile {kind}{tail}",
            lambda kind=kind: unless_there(
                size.trace(kind).with_suffix(".json"),
                lambda: full_size.profile(size, kind, f"{GPU},{every}"),
            ),
        )
    yield f"plans{tail}", lambda: make_plans(options, size)
    due = is_asked(options, "torch")
    for task in wanted(options):
        if due and task[1].partition(" ")[0] in WORTH[FIRST:]:
            yield "torch", lambda: in_a_process(options)
            due = False
        yield f"{task[0]} {task[1]}{tail}", lambda task=task: run_plan(options, size, *task)
    if due:
        yield "torch", lambda: in_a_process(options)


def ratios(document: dict[str, Any], mixes: list[str], splits: str) -> dict[str, Any]:
    """By mix all plans against serial and against PyTorch, and what was not measured."""
    done = document["stages"]
    own = {kind: min(times.values()) for kind, times in done.get("torch", {}).get("us", {}).items()}
    table: dict[str, Any] = {}
    for mix in mixes:
        parts = dict(zip(KINDS, map(int, mix.split(":")), strict=True))
        theirs = sum(parts[kind] * own[kind] for kind in KINDS) if len(own) == len(KINDS) else None
        names = [name for name, _ in plans(splits)]
        rows = {name: done.get(f"{mix} {name}", {}) for name in names}
        tuned = {f"{name} tuned": done.get(f"{mix} {name} tuned") for name in names}
        rows |= {name: row for name, row in tuned.items() if row is not None}
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
                    "between_us": row.get("between_us"),
                    "bound_us": row.get("bound_us"),
                    "of_serial": serial and round(serial / row["us"], 3),
                    "of_torch": theirs and round(theirs / row["us"], 3),
                }
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    for name, size in (("layers", 32), ("prefill", 512), ("batch", 8), ("context", 1024)):
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--mixes", default="1:2,1:4", help="prompts and decode steps")
    parser.add_argument("--splits", default=",".join(SPLITS), help="pairs of slices")
    parser.add_argument("--seconds", type=float, default=540.0)
    parser.add_argument("--modes", default=",".join(MODES), help="of torch.compile")
    parser.add_argument("--plans", default="", help="plans with this (or|this) in their name")
    parser.add_argument("--inputs", type=Path, help="what an earlier run has packed")
    parser.add_argument("--timelines", default="", help="plans with this (or|this) in their name")
    parser.add_argument("--tune", action="store_true", help="captures that are tuned for slices")
    parser.add_argument("--trial", action="store_true", help="a tiny model, without a GPU")
    parser.add_argument("--torch", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path, help="write the result here, too")
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    options.tail = " tuned" if options.tune else ""
    made = {n: getattr(options, n) for n in ("layers", "prefill", "batch", "context", "trial")}
    size = Sizes(options.folder, tuned=options.tune, **made)
    if options.torch:
        print(json.dumps(torch_us(size, options.modes)))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    size.claim()
    place = options.folder / "gain_real.json"
    document = kept(place) or {"schema": "tessera-gain-real/1", "sizes": made, "stages": {}}
    if not options.trial:
        from benchmarks.running.cuda_bench import facts

        document["machine"] = facts()

    def keep() -> None:
        document["mixes"] = ratios(document, options.mixes.split(","), options.splits)
        write(document, place)
        write(document, options.output)
        if options.output and f"plans{options.tail}" in document["stages"]:
            pack(options.folder, options.output.with_name(ARCHIVE))

    todo = ((n, w) for n, w in stages(options, size) if not (options.trial and n == "torch"))
    run_stages(document, todo, options.seconds, keep=keep, needed=("save", "trace"))
    if options.output:
        print("packed", pack(options.folder, options.output.with_name(ARCHIVE)), flush=True)
    print(json.dumps(document.get("mixes", {}), indent=1))


if __name__ == "__main__":
    main()
