"""Devices on GPUs, a process each, that share memory: with stand-ins for the driver."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from tessera.backend.processes.reference import Reference
from tessera.driver.run.runtime import Runtime
from tessera.ir.program.program import Role
from tests.helpers.command import tessc
from tests.helpers.host_runs import backends_of, fault_of, hosts_file, random_plan
from tests.helpers.served import contents

LIMIT_S = 60.0
TARGETS = {"a": "cuda:0:84sm", "b": "cuda:0:48sm"}
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


@pytest.fixture
def hosts(tmp_path: Path) -> str:
    """One host with both devices, whose processes have a stand-in for the driver."""
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    row = f'name = "here"\ndevices = ["a", "b"]\npython = "{python}"'
    return hosts_file(tmp_path, row, head='silent = "5s"\n')


@pytest.mark.slow
def test_bytes_and_a_process_that_is_killed(tmp_path: Path, hosts: str) -> None:
    plan = random_plan(tmp_path, 12, {"a": "", "b": ""}, steps=8)
    runtime = Runtime(plan, hosts=hosts, backend="cuda", targets=TARGETS)
    (backend,) = backends_of(runtime)
    model = backend.model
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
    # One is killed: the other waits for a word that nobody sets, and the run ends all the same.
    processes = {device: link.process for device, link in backend._links.items()}
    problem = fault_of(runtime, lambda: os.kill(processes["b"].pid, signal.SIGKILL))
    runtime.close(wait=False)
    assert "device `b` on host `here` was ended by signal 9" in str(problem)
    assert all(process.poll() is not None for process in processes.values())


def test_gpus_of_several_hosts_are_refused(tmp_path: Path) -> None:
    plan = random_plan(tmp_path, 12, {"a": "left", "b": "right"}, steps=4)
    hosts = hosts_file(tmp_path, 'name = "left"', 'name = "right"')
    done = tessc("run", plan, "--hosts", hosts, "--backend", "cuda")
    assert done.code == 4
    assert "TSR5055" in done.err
