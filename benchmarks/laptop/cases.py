"""Cases of captures, each in a process of its own, several at a time, within a time.

`Case` processes print their row as the last line, in JSON: `python -m MODULE --one NAME ...`. A row
is written as soon as it is there, and a case that has one is not done again, so the same command
goes on where the last one stopped. Also here: the steps of `examples/models`, and how results are
compared with those of PyTorch.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import ROOT, Row, arguments, write
from tessera.ir.program import program as ir

STEPS = (
    "llama.py:decode",
    "llama.py:prefill",
    "moe.py:step",
    "mamba.py:step",
    "vision_language.py:step",
    "mmdit.py:step",
    "huggingface.py:llama",
    "huggingface.py:qwen",
    "huggingface.py:mamba",
    "huggingface.py:vit",
)
HIDDEN = {"CUDA_VISIBLE_DEVICES": ""}  # the settings of a process that sees no GPU
NORM, WORST = 2.0, 4.0  # how much larger than eager PyTorch's the error of a capture may be
_LEAST_LEFT = 15.0  # seconds: with less no case is begun


# --- all cases -----------------------------------------------------------------------------------


def parser_of(doc: str | None, *, seconds: float, jobs: int) -> argparse.ArgumentParser:
    """What every such benchmark is told on its command line."""
    parser = arguments(doc)
    parser.add_argument("--work", type=Path, required=True, help="a folder for traces")
    parser.add_argument("--only", default="", help="names, with commas; all of them if not given")
    parser.add_argument("--seconds", type=float, default=seconds, help="for all of them")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds for one of them")
    parser.add_argument("--jobs", type=int, default=jobs, help="so many at a time")
    parser.add_argument("--again", action="store_true", help="repeat those that failed")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser


def run_cases(
    module: str,
    names: Sequence[str],
    options: argparse.Namespace,
    one: Callable[[str], Row],
    *,
    more: Sequence[str] = (),
    sums: Callable[[Mapping[str, Row]], Row] = lambda rows: {},
) -> None:
    """Do the case that `--one` names, or all that have no row yet; `sums` are written beside."""
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.one:
        try:
            row = one(options.one)
        except BaseException as problem:
            row = {"failed": why(problem)}
        print(json.dumps(row), flush=True)
        return
    if options.output is None:
        raise SystemExit("`-o FILE` says where rows go")
    path: Path = options.output
    rows: dict[str, Row] = json.loads(path.read_text())["rows"] if path.exists() else {}
    wanted = [name for name in options.only.split(",") if name] or list(names)
    todo = [n for n in wanted if n not in rows or (options.again and "failed" in rows[n])]
    until = time.monotonic() + options.seconds
    lock = threading.Lock()

    def work(name: str) -> None:
        left = until - time.monotonic()
        row = _row(module, name, options, more, left) if left > _LEAST_LEFT else None
        if row is not None:
            with lock:
                rows[name] = row
                write({**sums(rows), "rows": rows}, path)
                print(name, json.dumps(row), flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(work, todo))
    print("not reached:", ", ".join(n for n in wanted if n not in rows) or "none", flush=True)


def _row(
    module: str, name: str, options: argparse.Namespace, more: Sequence[str], left: float
) -> Row | None:
    """What a case says of itself; None if its time was over before the limit of one case."""
    begun = time.perf_counter()
    limit = min(left, options.limit)
    own = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    own["TESSERA_COMPILE_PROCESSES"] = str(max(1, (os.cpu_count() or 1) // options.jobs))
    process = subprocess.Popen(
        [sys.executable, "-m", module, "--one", name, "--work", str(options.work), *more],
        cwd=ROOT,
        env=own | os.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        told, log = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # and what it has started
        process.communicate()
        return None if limit < options.limit else {"failed": f"not within {limit:.0f} s"}
    try:
        row: Row = json.loads(told.splitlines()[-1])
    except (IndexError, ValueError):
        row = {"failed": f"exit code {process.returncode}: {log[-600:]}"}
    return row | {"seconds": round(time.perf_counter() - begun, 1)}


# --- one case ------------------------------------------------------------------------------------


def why(problem: BaseException) -> str:
    """What went wrong, in a line or two."""
    diagnostics = getattr(problem, "diagnostics", None)
    if diagnostics:
        first = diagnostics[0]
        return f"{first.code} {first.headline} {first.notes} {first.hint or ''}"[:900]
    where = traceback.format_tb(problem.__traceback__)[-1].strip()
    return f"{type(problem).__name__}: {str(problem)[:700]}; {where}"[:1100]


def roles(program: ir.Program) -> dict[str, str]:
    """The roles of buffers that the model names."""
    return {b.name: b.role.value for b in program.declared_buffers() if b.role is not ir.Role.TEMP}


def pins_of(program: ir.Program) -> list[str]:
    """The steps that are pinned, and why."""
    from tessera.passes.base import AnalysisManager
    from tessera.passes.dependences.dependences import Dependences

    graph = AnalysisManager(program).get(Dependences).graph
    return [f"{node.name}: {pin.reason}"[:200] for node in graph.nodes for pin in node.pins]


def widened(thing: Any) -> Any:
    """Inputs in fp32."""
    import torch

    if torch.is_tensor(thing):
        return thing.float() if thing.is_floating_point() else thing
    if isinstance(thing, dict):
        return {key: widened(value) for key, value in thing.items()}
    return type(thing)(map(widened, thing)) if isinstance(thing, list | tuple) else thing


def errors(
    program: ir.Program, results: Mapping[str, Any], exact: list[Any], usual: list[Any]
) -> list[Row]:
    """By output: our error against fp32 and eager's, by norm and by the worst element.

    Right: at most twice the norm of eager's error, four times its worst element.
    """
    import torch

    kinds = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
    buffers = {buffer.name: buffer for buffer in program.declared_buffers()}
    rows = []
    for number, (wanted, theirs) in enumerate(zip(exact, usual, strict=True)):
        name = "out" if number == 0 else f"out{number}"
        content, buffer = results.get(name), buffers.get(name)
        kind = kinds.get(buffer.dtype.value) if buffer is not None and buffer.dtype else None
        if content is None or kind is None or buffer is None or buffer.shape != wanted.shape:
            rows.append({"output": name, "compared": False})
            continue
        ours = torch.from_numpy(content.copy()).view(kind).reshape(wanted.shape).float().numpy()
        size = max(float(np.linalg.norm(wanted)), 1e-30)
        row: Row = {"output": name, "compared": True}
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


def compared(path: Path, reference: Mapping[str, Any]) -> tuple[Row, dict[str, Any]]:
    """A trace on the CPU backend beside what PyTorch recorded, and its results.

    The row says what is not equal to the byte (`apart`), and what of that is outside the tolerance
    of `tessc run` (`beyond`).
    """
    from tessera.driver import analyze as driver
    from tessera.driver.run.approximations import approximations
    from tessera.driver.run.tolerance import distance

    begun = time.process_time()
    report = driver.run(path, driver.RunOptions())
    row: Row = {"run_cpu_s": round(time.process_time() - begun, 1)}
    allowed = approximations(driver.load(path)).widened
    results = {}
    for buffer, data in report.kept():
        flat = np.asarray(data).reshape(-1).view(np.uint8)
        results[buffer.name] = flat
        wanted = reference.get(buffer.name)
        if wanted is None:
            continue
        wanted = np.asarray(wanted).reshape(-1).view(np.uint8)
        if not np.array_equal(wanted, flat):
            apart = distance(buffer.dtype, wanted, flat, allowed)
            row.setdefault("apart", {})[buffer.name] = apart.text()[:160]
            if not apart.is_within:
                row["beyond"] = f"`{buffer.name}`, {apart.text()}"[:200]
    return row, results
