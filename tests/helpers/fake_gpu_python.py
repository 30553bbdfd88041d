"""An interpreter for processes of hosts that finds a stand-in for the CUDA driver."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from tessera.backend.processes.reference import Reference
from tessera.backend.service import Model
from tessera.driver.run.runtime import Runtime
from tessera.ir.program.program import Role
from tests.helpers.served import contents

LIMIT_S = 300.0
PYTHON = f"""#!{sys.executable}
import sys
sys.path[:0] = {[p for p in sys.path if p]!r}
from tessera.backend.cuda import backend, targets
from tests.helpers.fake_cuda import FakeCuda
fake = FakeCuda(shares=True)
targets.bindings = lambda: fake
backend._LOOK_S = 1e-4
from tessera.driver.hosts.device_process import main
main()
"""


def fake_gpu_python(folder: Path) -> Path:
    """An interpreter with a stand-in for the driver."""
    path = folder / "python"
    path.write_text(PYTHON)
    path.chmod(0o755)
    return path


def assert_bytes_of_one_device(runtime: Runtime, model: Model) -> None:
    """A few requests give what one device gives, to the byte; so do the states after them."""
    reference = Reference(model.traces, model.weights, model.states, model.fillings)
    given = [contents(runtime.programs[0], Role.INPUT, seed) for seed in range(4)]
    handles = [runtime.submit(inputs) for inputs in given]
    for inputs, handle in zip(given, handles, strict=True):
        wanted = reference.run(inputs)
        for name, content in dict(handle.result(LIMIT_S)).items():
            np.testing.assert_array_equal(
                np.array(content).view(np.uint8).reshape(-1), wanted.outputs[name]
            )
    for name, content in runtime.states().items():
        np.testing.assert_array_equal(
            np.array(content).view(np.uint8).reshape(-1), wanted.states[name]
        )
