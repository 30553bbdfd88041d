"""Devices on GPUs, a process each, that share memory: with stand-ins for the driver."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from tessera.backend.cuda.api import Driver
from tessera.backend.cuda.process_part import GpuPart
from tessera.backend.hosts.gpu_worker import GpuWorker
from tessera.backend.hosts.messages import HostFault, Listening, MeasureWay, Release
from tessera.backend.processes.messages import Begin, Message
from tessera.backend.service import BackendOptions
from tessera.diagnostics import TesseraError
from tessera.driver.run.backends import _by_number
from tessera.driver.run.runtime import Runtime
from tests.gpu.test_deaths import checked
from tests.helpers.fake_cuda import FakeCuda
from tests.helpers.fake_gpu_python import assert_bytes_of_one_device, fake_gpu_python
from tests.helpers.host_runs import backends_of, fault_of, hosts_file, random_plan
from tests.helpers.plan_files import plan_of
from tests.helpers.random_traces import random_program
from tests.helpers.served import model_of

HOSTS = {"left": "a", "right": "b"}
TARGETS = {"a": "cuda:0:84sm", "b": "cuda:0:48sm"}


@pytest.fixture(params=["one host", "two hosts"])
def hosts(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A host with both devices, or one for each."""
    path = fake_gpu_python(tmp_path)
    if request.param == "two hosts":
        rows = [f'name = "{n}"\ndevices = ["{d}"]\npython = "{path}"' for n, d in HOSTS.items()]
        return hosts_file(tmp_path, *rows, head='silent = "5s"\n')
    row = f'name = "here"\ndevices = ["a", "b"]\npython = "{path}"'
    return hosts_file(tmp_path, row, head='silent = "5s"\n')


@pytest.mark.slow
def test_bytes_and_a_process_that_is_killed(tmp_path: Path, hosts: str) -> None:
    plan = random_plan(tmp_path, 12, {"a": "", "b": ""}, steps=8)
    runtime = Runtime(plan, hosts=hosts, backend="cuda", targets=TARGETS)
    (backend,) = backends_of(runtime)
    assert_bytes_of_one_device(runtime, backend.model)
    # One is killed: the other waits for a word that nobody sets, and the run ends all the same.
    processes = {device: link.process for device, link in backend._links.items()}
    problem = fault_of(runtime, lambda: os.kill(processes["b"].pid, signal.SIGKILL))
    assert "device `b` on host" in str(problem)
    assert "was ended by signal 9" in str(problem)
    runtime.restart(0)
    (again,) = backends_of(runtime)
    assert_bytes_of_one_device(runtime, again.model)
    processes |= {f"new {device}": link.process for device, link in again._links.items()}
    runtime.close(wait=False)
    assert all(process.poll() is not None for process in processes.values())


@pytest.mark.slow
@pytest.mark.parametrize("way", [(), ("--far",)])
def test_what_is_tried_on_a_gpu(way: tuple[str, ...]) -> None:
    """`tests/gpu/test_deaths.py` on a stand-in: processes die and are started again."""
    seen = checked("deaths", "--count", "4", "--stand-in", *way, limit_s=900)
    assert sum(seen.values()) == 4
    assert seen["fault, fault"] == 1


def test_a_gpu_that_is_not_there_is_named() -> None:
    program = random_program(3, steps=4)
    model = model_of([program], [["a"] * len(program.steps)])
    options = BackendOptions(targets={"a": "cuda:7"})
    with pytest.raises(TesseraError, match="device `a` of the plan needs cuda:7, which is not"):
        GpuPart(model, "a", options, Driver(FakeCuda()))


class _Said:
    """A channel with what the driver says, and what it hears."""

    def __init__(self, *messages: Message) -> None:
        self.coming, self.heard = list(messages), []

    def receive(self) -> tuple[Message, list[object]]:
        return self.coming.pop(0), []

    def send(self, message: Message, parts: object = ()) -> None:
        self.heard.append(type(message))


@pytest.mark.parametrize("fails", [False, True])
def test_a_process_whose_gpu_had_a_fault_is_not_kept(fails: bool) -> None:
    def begin(*given: object) -> None:
        if fails:
            raise MemoryError

    ended: list[bool] = []
    part = SimpleNamespace(address="", begin=begin, close=lambda: True)
    channel = _Said(Begin(0, 0, 0, 0), Release())
    worker = GpuWorker(channel, part, beat_s=9.0, orphan=lambda: ended.append(True))  # type: ignore[arg-type]
    worker.serve()
    assert ended == [True] * fails
    assert channel.heard == [Listening, *[HostFault] * fails]


def test_a_message_that_a_gpu_is_never_told_is_a_fault() -> None:
    ended: list[bool] = []
    part = SimpleNamespace(address="", close=lambda: True)
    channel = _Said(MeasureWay("b"), Release())
    worker = GpuWorker(channel, part, beat_s=9.0, orphan=lambda: ended.append(True))  # type: ignore[arg-type]
    worker.serve()
    assert channel.heard == [Listening, HostFault]
    assert ended


def test_every_host_counts_its_gpus_by_itself() -> None:
    program = random_program(3, steps=6)
    steps = ["abc"[n % 3] for n in range(len(program.steps))]
    plan = plan_of([program], [steps])
    names = {"a": "left", "b": "left", "c": "right"}
    assert _by_number(plan, names, {}) == {"a": "cuda:0", "b": "cuda:1", "c": "cuda:0"}
    assert _by_number(plan, names, {"b": "cuda:0:84sm"}) == {
        "a": "cuda:1",
        "b": "cuda:0:84sm",
        "c": "cuda:0",
    }
