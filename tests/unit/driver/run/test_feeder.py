"""Requests of several replicas: one that fails ends the run, and all are given back."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from tessera.backend.service import Completion, ServiceFault
from tessera.diagnostics import error
from tessera.driver.run.feeder import Feeder
from tessera.driver.run.schedule import Turn
from tessera.driver.run.serving import Serving


class TwoReplicas:
    """The first one fails with its second request; the other one waits until it is told."""

    sequences = ((0, 0), (1, 0))
    opened = SimpleNamespace(replicas=[None, None])

    def __init__(self, *, refuse: bool) -> None:
        self.fault = ServiceFault(error("TSR5051", "gone"), device="a")
        self.begun, self.over = threading.Event(), threading.Event()
        self.refuse = refuse
        self.submitted = [0, 0]

    def submit(
        self, inputs: object, *, sequence: int, trace: int, number: int
    ) -> Future[Completion]:
        future: Future[Completion] = Future()
        self.submitted[sequence] += 1
        if sequence == 1:
            self.begun.set()
            self.over.wait(60)
        if sequence == 0 and self.submitted[0] >= 2:
            self.begun.wait(60)
            if self.refuse:
                raise self.fault
            future.set_exception(self.fault)
        else:
            future.set_result(Completion(request=number, outputs={}, started_ns=0, ended_ns=1))
        return future


def fed(serving: Any, *, each_alone: bool = False) -> tuple[Feeder, threading.Thread]:
    """Eight requests, in turns to both replicas, and somebody who waits for them."""
    turns = [Turn(n, 0, n % 2, n) for n in range(8)]
    materials: Any = SimpleNamespace(inputs=lambda *_: {})
    feeder = Feeder(serving, turns, materials, each_alone=each_alone)
    feeder.start()
    waiting = threading.Thread(target=feeder.wait, args=(lambda _: None,), daemon=True)
    waiting.start()
    return feeder, waiting


def test_one_replica_that_fails_ends_the_run() -> None:
    serving = TwoReplicas(refuse=False)
    feeder, waiting = fed(serving)
    try:
        waiting.join(30)
        assert not waiting.is_alive()
        assert feeder.fault() is serving.fault
        assert list(feeder.completions()) == [0]
    finally:
        serving.over.set()


def test_where_one_cannot_submit_what_runs_is_waited_for() -> None:
    serving = TwoReplicas(refuse=True)
    feeder, waiting = fed(serving)
    feeder._threads[0].join(30)
    assert waiting.is_alive()
    serving.over.set()
    waiting.join(30)
    assert not waiting.is_alive()
    assert feeder.fault() is serving.fault
    assert list(feeder.completions()) == [0, 1]
    assert serving.submitted == [2, 1]


def test_all_replicas_are_closed_whatever_one_says() -> None:
    done: list[str] = []

    class One:
        def __init__(self, name: str) -> None:
            self.name = name

        def refuse(self) -> None:
            done.append(f"{self.name} refuses")

        def close(self, *, wait: bool) -> None:
            done.append(f"{self.name} closed")
            if self.name == "first":
                raise KeyboardInterrupt

    serving = Serving.__new__(Serving)
    serving._dispatchers = {0: One("first"), 1: One("second")}  # type: ignore[dict-item]
    with pytest.raises(KeyboardInterrupt):
        serving.close()
    assert done == ["first refuses", "second refuses", "first closed", "second closed"]


@pytest.mark.parametrize("refuse", [True, False])
def test_on_hosts_the_other_replicas_go_on(refuse: bool) -> None:
    serving = TwoReplicas(refuse=refuse)
    feeder, waiting = fed(serving, each_alone=True)
    serving.over.set()
    waiting.join(60)
    assert not waiting.is_alive()
    assert sorted(feeder.completions()) == [0, 1, 3, 5, 7]
    assert feeder.fault() is serving.fault
