"""Capture models on a GPU, replay what was captured, and say what came of it.

    python -m benchmarks.running.capture FOLDER [MODEL...]

Writes one trace per model into FOLDER, with contents and reference, plans it for the whole GPU and
runs the plan there with `tessc run`: outputs and states must be PyTorch's to the byte.
`capture.json` says for each model how many nodes the graph has and where they are in the trace,
pins, pointers that belong to no buffer, the replay and seconds; rows that FOLDER has of other
models stay. Needs a GPU, torch and cuda-bindings.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import why
from benchmarks.common import MODELS, kept, tessc, write
from benchmarks.laptop.compare import pins_of
from tessera.driver.trace import capture_trace as tracing
from tessera.frontend.capture.model_file import find_model, load_model
from tessera.ir.program.program import Launch, LibraryCall, Memcpy, Memset

ZOO = {
    "llama_prefill": "llama.py:prefill",
    "llama_decode": "llama.py:decode",
    "moe": "moe.py:step",
    "mamba": "mamba.py:step",
    "vision_language": "vision_language.py:step",
    "mmdit": "mmdit.py:step",
    "hf_llama": "huggingface.py:llama",
    "hf_qwen": "huggingface.py:qwen",
    "hf_mamba": "huggingface.py:mamba",
    "hf_vit": "huggingface.py:vit",
}


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    wanted = sys.argv[2:] or list(ZOO)
    report = folder / "capture.json"
    rows = kept(report) or {"models": {}}
    rows["machine"] = machine()
    for name in wanted:
        for route in ("ptx", "library") if name == "llama_decode" else ("ptx",):
            label = name if route == "ptx" else f"{name}_{route}"
            try:
                rows["models"][label] = capture(name, route, folder / f"{label}.ptx")
            except Exception as problem:  # a row too, so that the others are captured
                rows["models"][label] = {"failed": why(problem)}
            print(label, rows["models"][label], flush=True)
            write(rows, report)


def capture(name: str, route: str, target: Path) -> dict[str, Any]:
    """Capture, write, analyse and replay one model."""
    function, inputs = load_model(find_model(str(MODELS / ZOO[name])), {})
    options = tracing.TraceOptions(route=route, archs=("sm_80",))
    started = time.perf_counter()
    found = tracing.trace(function, *inputs.plain, options=options, **inputs.named)
    seconds = time.perf_counter() - started
    tracing.write_trace(found, target)
    steps = list(found.program.work())
    row: dict[str, Any] = {
        "seconds": round(seconds, 1),
        "graph": asdict(found.nodes),
        "unmapped_pointers": sum(d.code == "TSR6005" for d in found.diagnostics),
        "steps": len(steps),
        "launches": sum(isinstance(step, Launch) for step in steps),
        "memsets": sum(isinstance(step, Memset) for step in steps),
        "copies": sum(isinstance(step, Memcpy) for step in steps),
        "library_calls": sum(isinstance(step, LibraryCall) for step in steps),
        "streams": len({step.stream for step in steps}),
        "modules": len(found.program.modules),
        "variants": sum(len(m.variants) for m in found.program.modules),
        "diagnostics": [f"{d.code} {d.headline}" for d in found.diagnostics],
    }
    row["pins"] = pins_of(found.program)
    row["replay"] = replay(target)
    return row


def replay(target: Path) -> dict[str, Any]:
    """Run the trace on the whole GPU by a plan, and count the bytes that are not PyTorch's."""
    plan, results = target.with_suffix(".tsp"), target.with_suffix(".out.npz")
    tessc("plan", str(target), "--gpus", "h200", "--slots", "1", "--lanes", "1", "-o", str(plan))
    tessc("run", str(plan), "--backend", "cuda", "--requests", "1", "--outputs", str(results))
    compared = different = 0
    with np.load(target.with_suffix(".ref.npz")) as wanted, np.load(results) as found:
        for name in wanted:
            one, other = (a.reshape(-1).view(np.uint8) for a in (wanted[name], found[name]))
            compared += one.size
            different += int(np.count_nonzero(one != other)) if one.size == other.size else one.size
    return {"bytes_compared": compared, "bytes_different": different}


def machine() -> str:
    import torch

    return f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}"


if __name__ == "__main__":
    main()
