"""How captures are compared: by roles and pins, and by results beside those of PyTorch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Row
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
        # An output may be all zeros.
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
    from tessera.driver.load import load
    from tessera.driver.run.run_trace import RunOptions, run_trace
    from tessera.driver.run.tolerance import approximations, distance

    begun = time.process_time()
    report = run_trace(path, RunOptions())
    row: Row = {"run_cpu_s": round(time.process_time() - begun, 1)}
    allowed = approximations(load(path)).widened
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
