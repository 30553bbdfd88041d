"""Capture a step of `gain_model` without its contents, which would be gigabytes."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np

from tessera import tracing
from tessera.frontend.capture.memory import Memory
from tessera.frontend.capture.model_file import find_model, load_model
from tessera.frontend.capture.raw import RawBuffer
from tessera.frontend.contents import Bytes

MODEL = Path(__file__).resolve().parent / "gain_model.py"


_MOST_READ = 1 << 20
_read = Memory.read


def _read_small(memory: Memory, buffer: RawBuffer) -> Bytes:
    return _read(memory, buffer) if buffer.bytes <= _MOST_READ else np.zeros(0, np.uint8)


def capture_step(path: Path, **sizes: int | str) -> None:
    """Write the trace of one step. What is large is not read: the trace keeps sizes only."""
    function, inputs = load_model(find_model(f"{MODEL}:mixed"), dict(sizes))
    options = tracing.TraceOptions(route="as-is", warm_ups=2)
    with mock.patch.object(Memory, "read", _read_small):
        found = tracing.trace(function, *inputs.plain, options=options)
    for problem in found.diagnostics:
        print(path.name, problem.code, problem.headline, flush=True)
    tracing.write_trace(found, path, data=False)
