"""Faults stay where they are: replicas in processes of their own on the stand-in driver, and on the
CPU backend."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.run import serving
from tessera.driver.run.isolated import sharing_cards
from tessera.driver.run.runtime import Runtime
from tessera.driver.serve.engine import Engine
from tests.helpers.fake_cuda import FakeCuda
from tests.helpers.tiny_model import fault_in_one_replica, tiny_plan

TARGETS = {"a": "cuda:0", "b": "cuda:0"}  # two processes take turns on one GPU
LIMIT_S = 300


@pytest.fixture(params=["cpu", "cuda"])
def opened(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Engine]]:
    engines: list[Engine] = []
    monkeypatch.setattr("tessera.backend.cuda.targets.bindings", FakeCuda)
    monkeypatch.setattr(serving, "CHILD_BOOT", "tests.helpers.boot_fake_cuda")

    def make(**options: Any) -> Engine:
        targets = TARGETS if request.param == "cuda" else None
        engines.append(Engine(tiny_plan(), backend=request.param, targets=targets, **options))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close(wait=False)


def test_a_fault_takes_its_replica_alone(opened: Callable[..., Engine]) -> None:
    engine = opened()
    on_gpus = engine.runtime.backend == "cuda"
    assert engine.runtime.groups == ((0,), (1,))
    before = engine.runtime.processes()
    assert len(before) == (2 if on_gpus else 0)
    fault_in_one_replica(engine)
    if on_gpus:
        # The prompt that is why was tried again, in the same replica or in the other one.
        assert not set(before) <= set(_all_processes(engine))
        _is_killed(engine)


def _all_processes(engine: Engine) -> list[int]:
    """The processes of both replicas, once those that have ended are started again."""
    until = time.monotonic() + LIMIT_S
    while len(processes := engine.runtime.processes()) < 2:
        assert time.monotonic() < until
        time.sleep(0.05)
    return processes


def _is_killed(engine: Engine) -> None:
    """A process that is ended from outside is started again."""
    expected = engine.generate([[7, 8]], max_tokens=4)
    os.kill(_all_processes(engine)[0], signal.SIGKILL)
    answers = [engine.submit([7, 8], max_tokens=4) for _ in range(6)]
    assert [answer.result(LIMIT_S) for answer in answers] == expected * 6
    assert engine.counts.restarts == 3
    assert engine.generate([[7, 8]] * 4, max_tokens=4) == expected * 4


@pytest.mark.slow
def test_states_pass_through_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tessera.backend.cuda.targets.bindings", FakeCuda)
    monkeypatch.setattr(serving, "CHILD_BOOT", "tests.helpers.boot_fake_cuda")
    with Runtime(tiny_plan(1), backend="cuda", targets={"a": "cuda:0"}, isolated=True) as runtime:
        runtime.set_states({"carried": np.array([5, 6])})
        inputs = {"tokens": np.array([[1], [2]]), "lengths": np.array([1, 0])}
        result = runtime.submit(inputs).result(LIMIT_S)
        assert runtime.states()["carried"].tolist() == [5 * 31 + 1 + 3, 6]
        assert result["next"].tolist() == [159 % 47, 6]


@pytest.mark.slow
def test_a_process_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tessera.backend.cuda.targets.bindings", FakeCuda)
    monkeypatch.setattr(serving, "CHILD_BOOT", "tests.helpers.boot_fake_cuda")
    with pytest.raises(TesseraError, match="cuda:7"):
        Runtime(tiny_plan(1), backend="cuda", targets={"a": "cuda:7"}, isolated=True)


def test_replicas_that_share_a_card_share_a_process() -> None:
    cards = [frozenset("a"), frozenset("b"), frozenset("ac"), frozenset("d"), frozenset("cb")]
    assert sharing_cards(cards) == [[0, 1, 2, 4], [3]]
