"""Text over hosts: a lost replica is started again, and the other one goes on."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.run.runtime import Runtime
from tessera.driver.serve.engine import Engine
from tests.helpers.host_runs import LIMIT_S, backends_of, fault_of, hosts_file, inputs_of
from tests.helpers.plan_files import write_plan
from tests.helpers.tiny_model import tiny_plan

pytestmark = pytest.mark.slow
ROWS = ('name = "left"\ndevices = ["a"]', 'name = "right"\ndevices = ["b"]')


def test_a_replica_that_loses_its_host_is_started_again(tmp_path: Path) -> None:
    plan = write_plan(tmp_path, tiny_plan())
    prompts = [[1, 2, 3], [4], [5, 6], [7, 8, 9, 10]]
    with Engine(plan, backend="cpu", steps={"context": 64}) as engine:
        wanted = engine.generate(prompts, max_tokens=5)
    with Engine(plan, hosts=hosts_file(tmp_path, *ROWS), steps={"context": 64}) as engine:
        assert engine.generate(prompts, max_tokens=5) == wanted
        backend = backends_of(engine.runtime)[0]
        os.kill(backend._links["a"].process.pid, signal.SIGKILL)
        answers = [engine.submit(prompt, max_tokens=5) for prompt in prompts]
        good = []
        for answer in answers:
            with suppress(TesseraError):
                good.append(answer.result(LIMIT_S))
        assert good, "the other replica goes on"
        assert all(tokens in wanted for tokens in good)
        assert engine.generate(prompts, max_tokens=5) == wanted


def test_requests_of_another_replica_go_on(tmp_path: Path) -> None:
    plan = write_plan(tmp_path, tiny_plan())
    with Runtime(plan, hosts=hosts_file(tmp_path, *ROWS)) as runtime:
        inputs = inputs_of(runtime)
        lost = backends_of(runtime)[0]._links["a"].process.pid
        problem = fault_of(runtime, lambda: os.kill(lost, signal.SIGKILL))
        assert "device `a` on host `left`" in str(problem)
        for _ in range(20):
            runtime.submit(inputs, sequence=1).result(LIMIT_S)
        runtime.restart(0)
        runtime.submit(inputs, sequence=0).result(LIMIT_S)
