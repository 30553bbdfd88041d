"""Capture a step of `benchmarks.gain.model` without its contents, which would be gigabytes."""

from __future__ import annotations

from pathlib import Path

from tessera.driver.trace import capture_trace as tracing
from tessera.frontend.capture.model_file import find_model, load_model

MODEL = Path(__file__).resolve().parent / "model.py"


def capture_step(path: Path, **sizes: int | str) -> None:
    """Write the trace of one step, sizes only."""
    function, inputs = load_model(find_model(f"{MODEL}:mixed"), dict(sizes))
    options = tracing.TraceOptions(route="as-is", warm_ups=2, data=False)
    found = tracing.trace(function, *inputs.plain, options=options)
    for problem in found.diagnostics:
        print(path.name, problem.code, str(problem.headline), flush=True)
    tracing.write_trace(found, path, data=False)
