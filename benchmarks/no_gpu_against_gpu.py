"""Captures without a GPU against captures on one, of the same small models: the same kernels?

    python -m benchmarks.no_gpu_against_gpu -o out/gpu/no_gpu_against_gpu.json --work FOLDER

Needs a GPU. Each model of `CASES` is captured twice by the route `ptx`: on the GPU, and for the
same kind of GPU by a process that does not see it (`CUDA_VISIBLE_DEVICES=""`). Compared, in order:
kernels by the names that the compiler gives them (tiles are tuning and may differ, and so may the
split of an attention over programs, with its `combine`), the roles of named buffers, and the bytes
that each step reads and writes of buffers that both captures name. Then the trace that was made
without the GPU runs on it, from its own contents, and its results are compared with those of
PyTorch on the host, within the tolerance of `tessc run`.

A line per model. A model that is in the file is not done again; `--seconds` ends the run early.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from pathlib import Path
from typing import Any

from benchmarks.captured import FILES, roles, tessc
from tessera.driver import analyze as driver
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets.regions import regions_bytes
from tessera.passes.dependences.dependences import Dependences

CASES = ("llama.py:decode", "llama.py:prefill", "mmdit.py:step", "moe.py:step")
_NUMBER = re.compile(r"_[0-9]+$")
_TUNING = ("combine",)


def kernels(program: ir.Program) -> list[str]:
    """The kernels in order, without the numbers that count them and without what is tuning."""
    names = [_NUMBER.sub("", launch.kernel) for launch in program.launches()]
    return [name for name in names if name not in _TUNING]


def regions(program: ir.Program) -> list[dict[str, Any]]:
    """The bytes that each step reads and writes of named buffers, however it is cut."""
    graph = AnalysisManager(program).get(Dependences).graph
    named = {b.id: b for b in program.declared_buffers() if b.role is not ir.Role.TEMP}
    steps = []
    for node in graph.nodes:
        if node.name.rpartition(".")[2] in _TUNING:
            continue
        parts: dict[str, list[Any]] = {}
        for access in node.accesses:
            if access.buffer in named:
                key = f"{access.kind.value} {named[access.buffer].name}"
                parts.setdefault(key, [named[access.buffer].bytes]).append(access.region)
        steps.append(
            {key: regions_bytes(some, size).tolist() for key, (size, *some) in parts.items()}
        )
    return steps


def compare(case: str, folder: Path, gpu: str) -> dict[str, Any]:
    """One model, twice."""
    model = str(FILES / case)
    stem = case.replace(".py:", "_")
    seen, unseen = folder / f"{stem}_gpu.ptx", folder / f"{stem}_none.ptx"
    plan = folder / f"{stem}.tsp"
    row: dict[str, Any] = {"case": case}
    begun = time.perf_counter()
    tessc("trace", model, "-o", str(seen), "--route", "ptx")
    row["gpu_s"] = round(time.perf_counter() - begun, 1)
    begun = time.perf_counter()
    given = ("--device", "none", "--for", gpu, "-o", str(unseen))
    tessc("trace", model, *given, hidden=True)
    row["none_s"] = round(time.perf_counter() - begun, 1)
    first, second = driver.load(seen), driver.load(unseen)
    row["launches"] = [len(kernels(first)), len(kernels(second))]
    row["same_kernels"] = kernels(first) == kernels(second)
    row["same_roles"] = roles(first) == roles(second)
    row["same_regions"] = regions(first) == regions(second)
    tessc("plan", str(unseen), "--gpus", gpu, "-o", str(plan))
    said = json.loads(tessc("run", str(plan), "--backend", "cuda", "--verify", "--json"))
    row["run"] = said["verified"]["notes"]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--gpu", default="h200", help="the kind of GPU that is here")
    parser.add_argument("--seconds", type=float, default=240.0)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + options.seconds
    rows = json.loads(options.output.read_text()) if options.output.exists() else []
    for case in CASES:
        if any(row["case"] == case for row in rows) or time.monotonic() > until:
            continue
        try:
            row = compare(case, options.work, options.gpu)
        except Exception as problem:
            row = {"case": case, "failed": f"{type(problem).__name__}: {problem}"[:900]}
        rows.append(row)
        options.output.write_text(json.dumps(rows, indent=1) + "\n")
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
