"""Captures without a GPU against captures on one, of the same small models: the same kernels?

    python -m benchmarks.laptop.no_gpu_against_gpu -o out/gpu/no_gpu_against_gpu.json --work FOLDER

Needs a GPU. Each model of `CASES` is captured twice by the route `ptx`, at the same time: on the
GPU, and for the same kind of GPU by a process that does not see it (`CUDA_VISIBLE_DEVICES=""`).
Compared, in order: kernels by the names that the compiler gives them (tiles are tuning and may
differ, and so may the split of an attention over programs, with its `combine`; whether an epilogue
is fused is measured on a GPU, and is not left to that here), the roles of named
buffers, and the bytes that each step reads and writes of buffers that both captures name. Then the
trace that was made without the GPU runs on it, from its own contents, and its results are compared
with those of PyTorch on the host, within the tolerance of `tessc run`; where they are beyond it,
the row says how many rows of the result are.

A line per model as soon as it is there. A model that is in the file is not done again; `--seconds`
ends the run early.
"""

from __future__ import annotations

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.cases import parser_of, run_cases
from benchmarks.common import MODELS as FILES
from benchmarks.common import tessc
from benchmarks.laptop.compare import HIDDEN, STEPS, roles
from tessera.driver.load import load
from tessera.driver.trace.capture_trace import TraceOptions, trace_call, write_trace
from tessera.frontend.capture import routes
from tessera.frontend.capture.model_file import find_model, load_model
from tessera.frontend.capture.tensors import torch_type
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets.regions import regions_bytes
from tessera.passes.dependences.dependences import Dependences

# Small ones first.
FIRST = (
    "llama.py:decode",
    "llama.py:prefill",
    "huggingface.py:vit",
    "huggingface.py:llama",
    "huggingface.py:qwen",
)
CASES = (*FIRST, *(step for step in STEPS if step not in FIRST))
_NUMBER = re.compile(r"_[0-9]+$")
_TUNING = ("combine",)
# In names of kernels: how a constant has come to the GPU.
_CONSTANTS = re.compile(r"_(lift_fresh|_to_copy)(?=_|$)")


def kernels(program: ir.Program) -> list[str]:
    """The kernels in order, without the numbers that count them and without what is tuning.

    Their names list the operators that they compute: conversions are left out, because a constant
    of the model is converted on the host by one capture and in the kernel by the other.
    """
    names = [_CONSTANTS.sub("", _NUMBER.sub("", launch.kernel)) for launch in program.launches()]
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


def seen_capture(case: str, path: Path) -> float:
    """A capture on the GPU; its seconds. Whether a product and what follows it are one kernel is
    measured there, and is tuning: here they always are, as without a GPU."""
    begun = time.perf_counter()
    with mock.patch.dict(routes._TUNED, {"benchmark_epilogue_fusion": False}):
        place = find_model(str(FILES / case))
        write_trace(trace_call(*load_model(place, {}), TraceOptions(route="ptx")), path)
    return round(time.perf_counter() - begun, 1)


def hidden_capture(case: str, path: Path, gpu: str) -> float:
    """A capture by a process that sees no GPU; its seconds."""
    begun = time.perf_counter()
    given = ("--device", "none", "--for", gpu, "-o", str(path))
    tessc("trace", str(FILES / case), *given, settings=HIDDEN)
    return round(time.perf_counter() - begun, 1)


def rows_beyond(plan: Path, trace: Path, seen: Path, results: Path) -> list[str]:
    """For each result the rows that are off by more than a tenth of their norm: a token that goes
    to another expert, where two are as good, is one row. Against what PyTorch computed on the host,
    and against what it computed on the GPU from the same contents."""
    tessc("run", str(plan), "--backend", "cuda", "--outputs", str(results))
    buffers = {b.name: b for b in load(trace).declared_buffers()}
    with np.load(trace.with_suffix(".npz")) as ours, np.load(seen.with_suffix(".npz")) as theirs:
        both = set(ours.files) & set(theirs.files)
        same = all(np.array_equal(ours[name], theirs[name]) for name in both)
    said = [] if same else ["the contents of the two captures differ"]
    for where, path in (("host", trace), ("GPU", seen)):
        with np.load(results) as ours, np.load(path.with_suffix(".ref.npz")) as theirs:
            for name in sorted(set(ours.files) & set(theirs.files) & set(buffers)):
                apart, whole = distances(ours[name], theirs[name], buffers[name])
                off = f"{int((apart > 0.1).sum())} of {len(apart)} rows are off"
                said.append(f"{name} against the {where}: {off}, by norm {whole:.4f}")
    return said


def distances(ours: Any, theirs: Any, buffer: ir.Buffer) -> tuple[Any, float]:
    """How far the rows of the first request are from others, by their norms; and the whole."""
    import torch

    flat = [
        torch.from_numpy(np.asarray(part).reshape(-1).view(np.uint8).copy())
        .view(torch_type(buffer.dtype))
        .double()
        .reshape(-1, buffer.shape[-1])
        for part in (ours, theirs)
    ]
    apart = flat[0][: len(flat[1])] - flat[1]
    return apart.norm(dim=-1) / flat[1].norm(dim=-1), float(apart.norm() / flat[1].norm())


def compare(case: str, folder: Path, gpu: str) -> dict[str, Any]:
    """Capture one model with and without the GPU, and compare."""
    stem = case.replace(".py:", "_")
    seen, unseen = folder / f"{stem}_gpu.ptx", folder / f"{stem}_none.ptx"
    plan = folder / f"{stem}.tsp"
    row: dict[str, Any] = {}
    with ThreadPoolExecutor(1) as pool:
        without = pool.submit(hidden_capture, case, unseen, gpu)
        row["gpu_s"] = seen_capture(case, seen)
        row["none_s"] = without.result()
    first, second = load(seen), load(unseen)
    row["launches"] = [len(kernels(first)), len(kernels(second))]
    row["same_kernels"] = kernels(first) == kernels(second)
    row["other_kernels"] = sorted(set(kernels(first)) ^ set(kernels(second)))[:6]
    row["same_roles"] = roles(first) == roles(second)
    row["same_regions"] = regions(first) == regions(second)
    tessc("plan", str(unseen), "--gpus", gpu, "-o", str(plan))
    try:
        said = json.loads(tessc("run", str(plan), "--backend", "cuda", "--verify", "--json"))
        row["run"] = said["verified"]["notes"]
    except RuntimeError as problem:
        row["beyond"] = str(problem)[:300]
        row["rows"] = rows_beyond(plan, unseen, seen, folder / f"{stem}_out.npz")
    return row


def main() -> None:
    parser = parser_of(__doc__, seconds=240.0, jobs=7)
    parser.add_argument("--gpu", default="h200", help="the kind of GPU that is here")
    options = parser.parse_args()
    run_cases(
        "benchmarks.laptop.no_gpu_against_gpu",
        CASES,
        options,
        lambda case: compare(case, options.work, options.gpu),
        more=("--gpu", options.gpu),
    )


if __name__ == "__main__":
    main()
