"""Capture the model zoo on a GPU, and say what came of it.

    python -m benchmarks.capture FOLDER [MODEL...]

Writes one trace per model into FOLDER, with contents and reference, and `capture.json`: launches,
library calls, pins, unmapped pointers, and seconds. Needs a GPU, torch and cuda-bindings.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from tessera import tracing
from tessera.diagnostics import TesseraError
from tessera.frontend.capture.model_file import find_model, load_model
from tessera.ir.program import LibraryCall
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences import Dependences

MODELS = Path(__file__).resolve().parents[1] / "examples" / "models"
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
    wanted = sys.argv[2:] or list(ZOO)
    rows: dict[str, Any] = {"machine": machine(), "models": {}}
    for name in wanted:
        for route in ("ptx", "library") if name == "llama_decode" else ("ptx",):
            label = name if route == "ptx" else f"{name}_{route}"
            try:
                rows["models"][label] = capture(name, route, folder / f"{label}.ptx")
            except TesseraError as problem:
                (found, *_) = problem.diagnostics
                rows["models"][label] = {"failed": f"{found.code} {found.headline} {found.notes}"}
            except Exception as problem:  # the others shall still be captured
                where = traceback.format_tb(problem.__traceback__)[-1].strip()
                text = f"{type(problem).__name__}: {str(problem)[:300]}; {where}"
                rows["models"][label] = {"failed": text}
            print(label, rows["models"][label], flush=True)
            (folder / "capture.json").write_text(json.dumps(rows, indent=2) + "\n")


def capture(name: str, route: str, target: Path) -> dict[str, Any]:
    function, inputs = load_model(find_model(str(MODELS / ZOO[name])), {})
    options = tracing.TraceOptions(route=route, archs=("sm_80",))
    started = time.perf_counter()
    found = tracing.trace(function, *inputs, options=options)
    seconds = time.perf_counter() - started
    tracing.write_trace(found, target)
    steps = list(found.program.work())
    row: dict[str, Any] = {
        "seconds": round(seconds, 1),
        "steps": len(steps),
        "library_calls": sum(isinstance(step, LibraryCall) for step in steps),
        "modules": len(found.program.modules),
        "variants": sum(len(m.variants) for m in found.program.modules),
        "diagnostics": [f"{d.code} {d.headline}" for d in found.diagnostics],
    }
    facts = AnalysisManager(found.program).get(Dependences)
    row["pins"] = [
        f"#{node.id} {node.name}: {pin.reason}" for node in facts.graph.nodes for pin in node.pins
    ]
    row["findings"] = sorted({f"{d.code} {d.headline}" for d in facts.diagnostics})[:8]
    return row


def machine() -> str:
    import torch

    return f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}"


if __name__ == "__main__":
    main()
