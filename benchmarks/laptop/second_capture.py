"""How long a second capture of a model takes, without a GPU, and what bounds it.

    python -m benchmarks.laptop.second_capture [-o benchmarks/results/second_capture.json] \
        [--seconds 900]
                                        [MODEL...]

Each model of `examples/models` is captured with `--device none`, in processes of their own: once
with an empty cache, then twice from what was kept; the quicker of these two counts. Seconds of the
clock and of the processor are of the whole command; those of the clock mean little where the
machine had other work (`load`). `imports` is what it takes to import PyTorch, its compiler and what
the model file imports, without Tessera. The traces must be equal. A model that is in the output is
not done again, and none begins after `--seconds`. Needs torch and triton, and no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "second_capture.json"
MODELS = {
    "llama_decode": "llama.py:decode",
    "moe": "moe.py:step",
    "mamba": "mamba.py:step",
    "hf_llama": "huggingface.py:llama",
}
_IMPORTS = (
    "import runpy, sys, torch, torch._dynamo, torch._inductor.compile_fx;"
    "sys.path.insert(0, {folder!r}); runpy.run_path({file!r})"
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("models", nargs="*", choices=(*MODELS, []), default=[])
    options.add_argument("-o", "--output", type=Path, default=RESULTS)
    options.add_argument("--seconds", type=float, default=900)
    given = options.parse_args()
    started = time.monotonic()
    there: dict[str, Any] = (
        json.loads(given.output.read_text()) if given.output.exists() else {"models": {}}
    )
    there |= {"schema": "tessera-second-capture/1", "machine": machine()}
    for name in given.models or MODELS:
        if name in there["models"] or time.monotonic() - started > given.seconds:
            continue
        with tempfile.TemporaryDirectory() as folder:
            there["models"][name] = row(MODELS[name], Path(folder))
        print(name, json.dumps(there["models"][name]), flush=True)
        given.output.write_text(json.dumps(there, indent=1) + "\n")


def row(model: str, folder: Path) -> dict[str, Any]:
    """One model, captured three times."""
    file = ROOT / "examples" / "models" / model.partition(":")[0]
    captures = [capture(f"{file.parent}/{model}", folder, number) for number in range(3)]
    first, second = captures[0], min(captures[1:], key=lambda told: told["processor_s"])
    code = _IMPORTS.format(folder=str(file.parent), file=str(file))
    imports = timed([sys.executable, "-c", code], folder)
    traces = {(folder / f"{number}.ptx").read_bytes() for number in range(3)}
    load = round(os.getloadavg()[0], 1)
    return {
        "load": load,
        "first": first,
        "second": second,
        "share": round(second["processor_s"] / first["processor_s"], 3),
        "imports": imports,
        "same": len(traces) == 1,
    }


def capture(model: str, folder: Path, number: int) -> dict[str, float]:
    """One capture, from what the ones before have kept."""
    told = ("-o", str(folder / f"{number}.ptx"), "--device", "none", "--for", "h200", "--no-data")
    return timed([sys.executable, "-m", "tessera", "trace", model, *told], folder)


def timed(command: list[str], folder: Path) -> dict[str, float]:
    """Seconds of the clock and of the processor that a process takes."""
    before, began = _processor_s(), time.perf_counter()
    env = {**os.environ, "TESSERA_CACHE_DIR": str(folder / "cache"), "TESSERA_NO_CACHE": ""}
    subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    return {"seconds": round(seconds, 2), "processor_s": round(_processor_s() - before, 2)}


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def machine() -> dict[str, Any]:
    """What it ran on."""
    import torch
    import triton

    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "when": time.strftime("%Y-%m-%d"),
    }


if __name__ == "__main__":
    main()
