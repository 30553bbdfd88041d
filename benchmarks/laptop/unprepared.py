"""Models as they come: captured, analysed, planned on two slices, run, and compared twice.

    python -m benchmarks.laptop.unprepared -o rows.jsonl --work FOLDER [--seconds 420] [--jobs 14]
    python -m benchmarks.laptop.unprepared -o rows.jsonl --work FOLDER --cpu [--seconds 300] \
        [--jobs 14]
    python -m benchmarks.laptop.unprepared -o rows.jsonl --known unprepared.json --report \
        unprepared.json

Needs an H200, torch, transformers and cuda-bindings. Each model of `unprepared_models` is a process
of its own: it is captured by the default route, analysed (which steps are pinned, and why), planned
on two slices by a random placement and run there. Then results are compared, twice: with the
captured call as PyTorch runs it (to the byte, and with one device), and with the model as its
author wrote it: against fp32, the error of the captured call by norm and by its worst element,
beside that of eager PyTorch in the model's own type. Right: at most twice the norm, four times the
worst element. `--cpu` runs the traces that FOLDER holds on the CPU backend, too.

A row per model and stage; one that failed says why. The same command again goes on with what has
no row, or ran out of time; `--known` names a report whose rows count, `--again` repeats those that
failed, or those that `--models` names. Models that were not reached are named.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.laptop.captured import tessc
from benchmarks.laptop.unprepared_models import MODELS, build

ROOT = Path(__file__).resolve().parents[2]
TWO = "h200:84sm,h200:48sm"
REQUESTS = 2
NORM, WORST = 2.0, 4.0
_LEAST_LEFT = 20.0  # seconds: with less no model is begun


# --- one model -----------------------------------------------------------------------------------


def on_gpu(name: str, folder: Path, route: str) -> dict[str, Any]:
    """Capture, analyse, plan, run and compare one model; the row says how far it came."""
    import torch

    from tessera.driver.trace.capture_trace import TraceOptions, trace, write_trace
    from tessera.ir.program.program import Launch, LibraryCall
    from tessera.passes.base import AnalysisManager
    from tessera.passes.dependences.dependences import Dependences

    row: dict[str, Any] = {"kinds": list(MODELS[name].kinds), "stage": "build"}
    row["machine"] = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    try:
        model, inputs = build(name, "cuda")
        row["parameters"] = sum(p.numel() for p in model.parameters())
        row["stage"] = "eager"
        exact, usual = references(model, inputs)
        model, inputs = build(name, "cuda")
        row["stage"] = "capture"
        begun = time.perf_counter()
        found = trace(model, options=TraceOptions(route=route), **inputs)
        row["capture_s"] = round(time.perf_counter() - begun, 1)
        path = folder / f"{name}.ptx"
        write_trace(found, path)
        steps = list(found.program.work())
        row["launches"] = sum(isinstance(step, Launch) for step in steps)
        row["library_calls"] = sorted(
            {step.operator for step in steps if isinstance(step, LibraryCall)}
        )
        row["stage"] = "analyse"
        facts = AnalysisManager(found.program).get(Dependences)
        row["pins"] = [f"{n.name}: {pin.reason}"[:200] for n in facts.graph.nodes for pin in n.pins]
        row["findings"] = sorted({f"{d.code} {d.headline}"[:160] for d in facts.diagnostics})[:6]
        row["stage"] = "author"
        row["against_fp32"] = errors(found, exact, usual)
        del model, inputs, exact, usual
        torch.cuda.empty_cache()
        row["stage"] = "plan"
        plan = folder / f"{name}.tsp"
        split = ("--gpus", TWO, "--placement", "random:1", "--slots", "2", "--lanes", "1")
        tessc("plan", str(path), *split, "-o", str(plan))
        row["stage"] = "run"
        told = ("--backend", "cuda", "--requests", str(REQUESTS), "--verify", "--json")
        said = json.loads(tessc("run", str(plan), *told))
        row["verified"] = said["verified"]["how"]
        row["notes"] = said["verified"]["notes"]
        row["devices"] = len(said["busy"])
        row["to_the_byte"] = any("recorded to the byte" in note for note in row["notes"])
        row["stage"] = "done"
    except BaseException as problem:
        row["failed"] = why(problem)
    return row


def references(model: Any, inputs: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """What the model gives in fp32, and in its own type, as its author wrote it."""
    import torch

    from tessera.frontend.capture.watch import tensors_in

    with torch.no_grad():
        usual = [t.float().cpu().numpy() for t in tensors_in(model(**inputs))]
        wide = {
            key: value.float() if torch.is_tensor(value) and value.is_floating_point() else value
            for key, value in inputs.items()
        }
        exact = [t.float().cpu().numpy() for t in tensors_in(model.float()(**wide))]
    return exact, usual


def errors(found: Any, exact: list[Any], usual: list[Any]) -> list[dict[str, Any]]:
    """By output: our error against fp32 and eager's, by norm and by the worst element."""
    import torch

    kinds = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
    buffers = {buffer.name: buffer for buffer in found.program.declared_buffers()}
    rows = []
    for number, (wanted, theirs) in enumerate(zip(exact, usual, strict=True)):
        name = "out" if number == 0 else f"out{number}"
        content, buffer = found.reference.get(name), buffers.get(name)
        kind = kinds.get(buffer.dtype.value) if buffer is not None and buffer.dtype else None
        if content is None or kind is None or buffer is None or buffer.shape != wanted.shape:
            rows.append({"output": name, "compared": False})
            continue
        ours = torch.from_numpy(content.copy()).view(kind).reshape(wanted.shape).float().numpy()
        size = max(float(np.linalg.norm(wanted)), 1e-30)
        row = {"output": name, "compared": True}
        for who, values in (("ours", ours), ("eager", theirs)):
            apart = np.abs(values - wanted)
            row[f"{who}_norm"] = float(np.linalg.norm(apart)) / size
            row[f"{who}_worst"] = float(apart.max())
        row["right"] = bool(
            row["ours_norm"] <= NORM * row["eager_norm"] + 1e-7
            and row["ours_worst"] <= WORST * row["eager_worst"] + 1e-7
        )
        rows.append(row)
    return rows


def on_cpu(name: str, folder: Path) -> dict[str, Any]:
    """Run a captured trace on the CPU backend, and compare with what PyTorch recorded."""
    from tessera.driver import analyze as driver
    from tessera.driver.run.approximations import approximations
    from tessera.driver.run.tolerance import distance

    row: dict[str, Any] = {"stage": "cpu"}
    try:
        begun = time.perf_counter()
        report = driver.run(folder / f"{name}.ptx", driver.RunOptions())
        row["cpu_s"] = round(time.perf_counter() - begun, 1)
        steps = approximations(driver.load(folder / f"{name}.ptx"))
        row["approximate"] = steps.text(most=8)
        worst, equal = "", True
        with np.load(folder / f"{name}.ref.npz", allow_pickle=False) as recorded:
            for buffer, data in report.kept():
                wanted = recorded[buffer.name].reshape(-1).view(np.uint8)
                data = np.asarray(data).reshape(-1).view(np.uint8)
                if np.array_equal(wanted, data):
                    continue
                equal = False
                apart = distance(buffer.dtype, wanted, data, steps.widened)
                worst = f"`{buffer.name}`, {apart.text()}"
                if not apart.is_within:
                    row["failed"] = worst
        row["cpu"] = "equal to the byte" if equal else worst
    except BaseException as problem:
        row["failed"] = why(problem)
    return row


def why(problem: BaseException) -> str:
    """What went wrong, in a line or two."""
    diagnostics = getattr(problem, "diagnostics", None)
    if diagnostics:
        first = diagnostics[0]
        return f"{first.code} {first.headline} {first.notes} {first.hint or ''}"[:900]
    where = traceback.format_tb(problem.__traceback__)[-1].strip()
    return f"{type(problem).__name__}: {str(problem)[:700]}; {where}"[:1100]


# --- all of them ---------------------------------------------------------------------------------


def read_rows(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The latest row of each model and part; a line that is cut off counts as absent."""
    rows = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        rows[row["name"], row["part"]] = row
    return rows


def known_rows(options: argparse.Namespace) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows of the report that is known, and those that came after."""
    known = json.loads(options.known.read_text())["rows"] if options.known else []
    rows = {(row["name"], row["part"]): row for row in known}
    for key, row in read_rows(options.output).items():
        if row["stage"] != "time" or key not in rows:  # that says less than what was there
            rows[key] = row
    return rows


def run_all(options: argparse.Namespace) -> None:
    """A process per model, several at a time, until there is no time."""
    until = time.monotonic() + options.seconds
    part = "cpu" if options.cpu else "gpu" if options.route == "auto" else f"gpu:{options.route}"
    have = known_rows(options)
    wanted = [name for name in options.models.split(",") if name] or list(MODELS)
    todo = [
        name
        for name in wanted
        if (name, part) not in have
        or have[name, part]["stage"] == "time"
        or (options.again and ("failed" in have[name, part] or options.models))
    ]
    if options.cpu:
        todo = [name for name in todo if (options.work / f"{name}.ref.npz").exists()]
    options.work.mkdir(parents=True, exist_ok=True)

    def work(name: str) -> None:
        left = until - time.monotonic()
        if left < _LEAST_LEFT:
            return
        row = in_a_process(name, part, options, left)
        with options.output.open("a") as file:
            file.write(json.dumps({"name": name, "part": part, **row}) + "\n")
        short = row.get("failed", "ok")[:160]
        print(f"{name} {part} {row['seconds']} s, {row.get('stage')}: {short}", flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(work, todo))
    have = known_rows(options)
    missed = [name for name in wanted if (name, part) not in have]
    print("not reached:", ", ".join(missed) or "none", flush=True)


def in_a_process(name: str, part: str, options: argparse.Namespace, left: float) -> dict[str, Any]:
    """One model in a process of its own: a fault costs it its context."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.laptop.unprepared", "--one", name]
    command += ["--work", str(options.work), "--route", options.route]
    command += ["--cpu"] if options.cpu else []
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    processes = max(1, (os.cpu_count() or 1) // options.jobs)
    environment.setdefault("TESSERA_COMPILE_PROCESSES", str(processes))
    log = options.work / f"{name}.{part.replace(':', '_')}.log"
    row: dict[str, Any] = {}
    with log.open("w") as told:
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=told,
                text=True,
                timeout=min(left, options.limit),
                check=False,
            )
            row = json.loads(done.stdout.splitlines()[-1])
        except subprocess.TimeoutExpired:
            row = {"failed": f"not within {min(left, options.limit):.0f} s", "stage": "time"}
        except (IndexError, ValueError):
            end = log.read_text()[-600:]
            row = {"failed": f"exit code {done.returncode}: {end}", "stage": "process"}
    return row | {"seconds": round(time.perf_counter() - begun, 1)}


def report(options: argparse.Namespace) -> None:
    """All rows as one document with sums."""
    rows = known_rows(options)
    gpu = {name: row for (name, part), row in rows.items() if part == "gpu"}
    cpu = {name: row for (name, part), row in rows.items() if part == "cpu"}
    done = [name for name, row in gpu.items() if row.get("stage") == "done"]
    right = [
        name
        for name in done
        if gpu[name]["to_the_byte"]
        and not gpu[name]["pins"]
        and all(out.get("right", True) for out in gpu[name]["against_fp32"])
    ]
    document = {
        "schema": "tessera-unprepared/1",
        "machine": options.machine
        or next((row["machine"] for row in gpu.values() if "machine" in row), "unknown"),
        "models": len(MODELS),
        "tried": len(gpu),
        "captured_planned_and_run": len(done),
        "right_twice_without_a_pin": len(right),
        "mixtures_of_experts_right": sum("moe" in gpu[name]["kinds"] for name in right),
        "vision_right": sum("vision" in gpu[name]["kinds"] for name in right),
        "on_the_cpu_backend": sum("failed" not in row for row in cpu.values()),
        "not_right": {
            name: row.get("failed", "see its row") for name, row in gpu.items() if name not in right
        },
        "not_tried": [name for name in MODELS if name not in gpu],
        "rows": [rows[key] for key in sorted(rows)],
    }
    options.report.write_text(json.dumps(document, indent=1) + "\n")
    print({key: value for key, value in document.items() if key not in ("rows", "schema")})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("unprepared.jsonl"))
    parser.add_argument("--work", type=Path, default=Path("unprepared"))
    parser.add_argument("--models", default="", help="names, with commas; all of them if not given")
    parser.add_argument("--route", default="auto")
    parser.add_argument("--seconds", type=float, default=420.0, help="for all of them")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds for one model")
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--cpu", action="store_true", help="run captured traces on the CPU backend")
    parser.add_argument("--again", action="store_true", help="repeat models that failed")
    parser.add_argument("--known", type=Path, help="a report whose rows count")
    parser.add_argument("--report", type=Path, help="write all rows as one document")
    parser.add_argument("--machine", default="", help="of rows that do not say it")
    parser.add_argument("--one", choices=tuple(MODELS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        options.work.mkdir(parents=True, exist_ok=True)
        given = (options.one, options.work)
        row = on_cpu(*given) if options.cpu else on_gpu(*given, options.route)
        print(json.dumps(row), flush=True)
    elif options.report:
        report(options)
    else:
        run_all(options)


if __name__ == "__main__":
    main()
