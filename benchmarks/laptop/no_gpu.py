"""Models captured without a GPU and run on the CPU backend, against PyTorch on the host.

    python -m benchmarks.laptop.no_gpu -o rows.jsonl --work FOLDER [--seconds 3000]
    python -m benchmarks.laptop.no_gpu -o rows.jsonl --report no_gpu.json

Needs torch, Triton and transformers, and no GPU. Each model of `examples/models`, of
`unprepared_models`, `unseen_models` and `unseen_modules` is captured as `tessc trace --device none
--for a100` does it, a few in a process. The trace is analysed (pins), and runs on the CPU backend
from the contents that were written with it. Its results are compared with those of PyTorch on the
host: against fp32, by the error of the trace by norm and by its worst element beside that of eager
PyTorch in the model's own type. Right: at most twice the norm, four times the worst. Where results
are no floats, where the model computes in fp32 itself, and for states, the tolerance of `tessc run`
counts; `beyond` says what is outside. Then, for unseen ones, a plan on two GPUs by a random
placement runs on the CPU backend and is compared with one device. `llama@8` is `llama` with eight
layers, most of them equal; steps of real size (`LARGE`) are compiled, and not run.

A row per model; one that failed says why. The same command again goes on with what has no row;
`--again` repeats those that failed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.laptop.captured import FILES, STEPS, tessc
from benchmarks.laptop.unprepared import errors, read_rows, why
from benchmarks.laptop.unprepared_models import MODELS, build, build_row
from benchmarks.laptop.unseen_models import UNSEEN
from benchmarks.laptop.unseen_modules import MODULES
from tessera.frontend.capture.inputs import Inputs
from tessera.settings import overridden

ROOT = Path(__file__).resolve().parents[2]
ZOO = (
    *STEPS,
    "generation.py:llama_decode",
    "generation.py:llama_prefill",
    "generation.py:gpt_decode",
    "generation.py:gpt_prefill",
    "generation.py:recurrent_decode",
    "generation.py:recurrent_prefill",
)
# Steps of real size, from their config files: compiled, and not run.
LARGE = ("hf:llama-3-70b",)
CONFIGS = ROOT / "examples" / "configs"
GPU = "a100"
BATCH = 5  # models in a process
PART = "none"
_LEAST_LEFT = 20.0


def maker(name: str) -> Any:
    """What makes a model and its inputs; those of a GPU where there seems to be one."""
    from tessera.frontend.capture.model_file import find_model, load_model

    if name in ZOO:
        place = find_model(str(FILES / name))
        return lambda: load_model(place, {})

    if name in LARGE:
        from tessera.frontend.capture.meta import hf

        config = hf.read_config(CONFIGS / f"{name.removeprefix('hf:')}.json")
        step = hf.HfStep(phase="decode", batch=16, context=1024)
        return lambda: hf.make_step(config, step)

    def make() -> Any:
        if name in MODULES:
            model, inputs = MODULES[name]()
        elif name in UNSEEN:
            model, inputs = build_row(UNSEEN[name], name, "cuda")
        else:
            model, inputs = build(name, "cuda")
        return model, Inputs(named=inputs)

    return make


def one(name: str, folder: Path) -> dict[str, Any]:
    """Capture, analyse, run and compare one model; the row says how far it came."""
    import torch
    import triton

    row: dict[str, Any] = {"stage": "capture"}
    row["machine"] = f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}"
    row["machine"] += f", triton {triton.__version__}"
    make = maker(name)
    gc.set_threshold(200_000, 20)  # as the command has it
    with ExitStack() as stack:
        if name in LARGE:  # nothing of it is compiled yet
            empty = stack.enter_context(tempfile.TemporaryDirectory())
            stack.enter_context(overridden({"TESSERA_CACHE_DIR": empty}))
        return captured_row(name, make, folder, row)


def captured_row(name: str, make: Any, folder: Path, row: dict[str, Any]) -> dict[str, Any]:
    """The rest of `one`."""
    from tessera.driver import analyze as driver
    from tessera.driver.run.approximations import approximations
    from tessera.driver.run.tolerance import distance
    from tessera.driver.trace.capture_trace import write_trace
    from tessera.driver.trace.no_gpu_trace import NoGpuOptions, trace_no_gpu
    from tessera.frontend.machine.gpu_table import find_gpu
    from tessera.ir.program.program import LibraryCall
    from tessera.passes.base import AnalysisManager
    from tessera.passes.dependences.dependences import Dependences

    try:
        begun = time.process_time()
        options = NoGpuOptions(gpus=(find_gpu(GPU),), data=name not in LARGE)
        made = trace_no_gpu(make, options)
        row["capture_cpu_s"] = round(time.process_time() - begun, 1)
        row["peak_bytes"] = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        captured = made.trace
        steps = list(captured.program.work())
        calls = {step.operator for step in steps if isinstance(step, LibraryCall)}
        row["launches"] = sum(not isinstance(step, LibraryCall) for step in steps)
        row["kernels"] = len(captured.program.modules)
        row["library_calls"] = sorted(calls)
        row["notes"] = sorted({f"{d.code} {d.headline}"[:160] for d in captured.diagnostics})
        if name in LARGE:
            row["stage"] = "compiled"
            return row
        if made.problem:
            raise RuntimeError(made.problem)
        path = folder / f"{name.replace(':', '_').replace('.py', '').replace('@', '_')}.ptx"
        write_trace(captured, path)
        row["stage"] = "analyse"
        facts = AnalysisManager(captured.program).get(Dependences)
        row["pins"] = [f"{n.name}: {pin.reason}"[:200] for n in facts.graph.nodes for pin in n.pins]
        row["stage"] = "run"
        begun = time.process_time()
        report = driver.run(path, driver.RunOptions())
        row["run_cpu_s"] = round(time.process_time() - begun, 1)
        row["stage"] = "compare"
        widened = approximations(driver.load(path)).widened
        results = {}
        for buffer, data in report.kept():
            flat = np.asarray(data).reshape(-1).view(np.uint8)
            results[buffer.name] = flat
            wanted = captured.reference.get(buffer.name)
            if wanted is not None and not np.array_equal(wanted, flat):
                apart = distance(buffer.dtype, wanted, flat, widened)
                row.setdefault("apart", {})[buffer.name] = apart.text()[:160]
                if not apart.is_within:
                    row["beyond"] = f"`{buffer.name}`, {apart.text()}"[:200]
        row["compared"] = sorted(set(results) & set(captured.reference))
        if alone := sorted(set(results) - set(captured.reference)):
            raise RuntimeError(f"nothing to compare with: {alone}")
        if row["pins"]:
            raise RuntimeError(f"pinned: {row['pins'][0]}")
        row["against_fp32"] = against_fp32(make, captured, results)
        # PyTorch itself is no nearer to fp32 than rounding, unless that is what it computes in.
        rounded = [p for p in row["against_fp32"] if p["compared"] and p["eager_norm"]]
        wrong = [part["output"] for part in rounded if not part["right"]]
        if wrong or ("beyond" in row and not rounded):
            row["failed"] = f"not within rounding: {wrong or row['beyond']}"
        if name in UNSEEN or name in MODULES:
            row["stage"] = "plan"
            row["planned"] = on_two(path)
        row["stage"] = "done"
    except BaseException as problem:
        row["failed"] = why(problem)
    return row


def on_two(path: Path) -> str:
    """Plan a trace on two GPUs by a random placement, run that on the CPU backend, and compare with
    one device. What PyTorch gave was compared before, by another rule."""
    path.with_suffix(".ref.npz").unlink(missing_ok=True)
    plan = path.with_suffix(".tsp")
    split = ("--gpus", f"{GPU},{GPU}", "--placement", "random:1", "--slots", "1")
    tessc("plan", str(path), *split, "-o", str(plan))
    told = ("--backend", "cpu", "--requests", "1", "--verify", "--json")
    return str(json.loads(tessc("run", str(plan), *told))["verified"]["how"])


def against_fp32(make: Any, captured: Any, results: Any) -> list[dict[str, Any]]:
    """Our error against fp32 beside eager's, for every result that has floats."""
    import torch

    from tessera.frontend.capture.dry_run import without_gpu
    from tessera.frontend.capture.watch import tensors_in

    def called(exact: bool) -> list[Any]:
        torch.manual_seed(0)
        model, inputs = make()
        if exact:
            model = model.float()
            inputs = Inputs(plain=widened(inputs.plain), named=widened(dict(inputs.named)))
        return [t.float().numpy() for t in tensors_in(inputs.call(model))]

    def widened(thing: Any) -> Any:
        if torch.is_tensor(thing):
            return thing.float() if thing.is_floating_point() else thing
        if isinstance(thing, dict):
            return {key: widened(value) for key, value in thing.items()}
        return type(thing)(map(widened, thing)) if isinstance(thing, list | tuple) else thing

    with without_gpu(on_gpu=False), torch.no_grad():
        usual, exact = called(False), called(True)
    ran = SimpleNamespace(program=captured.program, reference=results)
    return errors(ran, exact, usual)


def run_all(options: argparse.Namespace) -> None:
    """A process per model until there is no time."""
    until = time.monotonic() + options.seconds
    have = read_rows(options.output)
    wanted = [name for name in options.models.split(",") if name] or [
        *ZOO,
        *LARGE,
        *MODELS,
        *UNSEEN,
        *MODULES,
    ]
    todo = [
        name
        for name in wanted
        if (name, PART) not in have or (options.again and "failed" in have[name, PART])
    ]
    options.work.mkdir(parents=True, exist_ok=True)

    def note(name: str, row: dict[str, Any]) -> None:
        with options.output.open("a") as file:
            file.write(json.dumps({"name": name, "part": PART, **row}) + "\n")
        short = row.get("failed", "ok")[:200]
        print(f"{name} {row['seconds']} s, {row.get('stage')}: {short}", flush=True)

    while todo and until - time.monotonic() > _LEAST_LEFT:
        some, todo = todo[:BATCH], todo[BATCH:]
        command = [sys.executable, "-m", "benchmarks.laptop.no_gpu", "--one", ",".join(some)]
        command += ["--work", str(options.work)]
        log = options.work / "last.log"
        with log.open("w") as told:
            running = subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=told, text=True
            )
            timer = threading.Timer(
                min(until - time.monotonic(), options.limit * len(some)), running.kill
            )
            timer.start()
            assert running.stdout is not None
            for line in running.stdout:
                if line.startswith("{"):
                    row = json.loads(line)
                    note(row.pop("name"), row)
                    some = some[1:]
            running.wait()
            timer.cancel()
        if some and until - time.monotonic() > _LEAST_LEFT:
            end = log.read_text()[-500:]
            failed = f"exit code {running.returncode}: {end}"
            note(some[0], {"failed": failed, "stage": "process", "seconds": 0})
            todo = [*some[1:], *todo]
    have = read_rows(options.output)
    missed = [name for name in wanted if (name, PART) not in have]
    print("not reached:", ", ".join(missed) or "none", flush=True)


def is_right(row: dict[str, Any]) -> bool:
    """Whether a model came to PyTorch's results."""
    return row.get("stage") == "done" and "failed" not in row


def report(options: argparse.Namespace) -> None:
    """All rows as one document with sums."""
    rows = {name: row for (name, _), row in read_rows(options.output).items()}
    right = [name for name, row in rows.items() if is_right(row)]

    def tried(names: Iterable[str]) -> int:
        return sum(name in rows for name in names)

    document = {
        "schema": "tessera-no-gpu/1",
        "machine": next((row["machine"] for row in rows.values() if "machine" in row), "unknown"),
        "compiled_for": GPU,
        "tried": len(rows),
        "right": len(right),
        "zoo_right": f"{sum(name in ZOO for name in right)} of {len(ZOO)}",
        "unprepared_right": sum(name in MODELS for name in right),
        "mixtures_of_experts_right": sum(
            name in MODELS and "moe" in MODELS[name].kinds for name in right
        ),
        "unseen_right": f"{sum(name in UNSEEN for name in right)} of {tried(UNSEEN)}",
        "written_by_hand_right": f"{sum(name in MODULES for name in right)} of {tried(MODULES)}",
        "with_equal_layers_right": [name for name in right if "@" in name],
        "compiled": {
            name: {key: rows[name][key] for key in ("launches", "capture_cpu_s", "peak_bytes")}
            for name in LARGE
            if "launches" in rows.get(name, {})
        },
        "not_right": {
            name: row.get("failed", "")
            for name, row in rows.items()
            if name not in right and name not in LARGE
        },
        "not_tried": [name for name in (*ZOO, *MODELS, *UNSEEN, *MODULES) if name not in rows],
        "rows": [rows[name] for name in sorted(rows)],
    }
    options.report.write_text(json.dumps(document, indent=1) + "\n")
    print({key: value for key, value in document.items() if key not in ("rows", "schema")})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("no_gpu.jsonl"))
    parser.add_argument("--work", type=Path, default=Path("no_gpu"))
    parser.add_argument("--models", default="", help="names, with commas; all of them if not given")
    parser.add_argument("--seconds", type=float, default=3000.0, help="for all of them")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for one model")
    parser.add_argument("--again", action="store_true", help="repeat models that failed")
    parser.add_argument("--report", type=Path, help="write all rows as one document")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        options.work.mkdir(parents=True, exist_ok=True)
        for name in options.one.split(","):
            begun = time.perf_counter()
            row = one(name, options.work)
            row["seconds"] = round(time.perf_counter() - begun, 1)
            print(json.dumps({"name": name, **row}), flush=True)
    elif options.report:
        report(options)
    else:
        run_all(options)


if __name__ == "__main__":
    main()
