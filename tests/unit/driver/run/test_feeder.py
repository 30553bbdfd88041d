"""Requests of several replicas: one that fails ends the run, and all are given back."""

from __future__ import annotations

import gc
import hashlib
import threading
import weakref
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tessera.backend.service import Completion, ServiceFault
from tessera.diagnostics import error
from tessera.driver.run.digests import digests_of_all
from tessera.driver.run.feeder import Feeder
from tessera.driver.run.run_plan import _without_sweeps
from tessera.driver.run.schedule import Turn
from tessera.driver.run.serving import Serving
from tessera.ir.program.program import Role


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
        self, inputs: object, *, sequence: int, trace: int, number: int, finish: object
    ) -> Future[Completion]:
        future: Future[Completion] = Future()
        self.submitted[sequence] += 1
        if sequence == 1:
            self.begun.set()
            self.over.wait(300)
        if sequence == 0 and self.submitted[0] >= 2:
            self.begun.wait(300)
            if self.refuse:
                raise self.fault
            future.set_exception(self.fault)
        else:
            future.set_result(Completion(request=number, outputs={}, started_ns=0, ended_ns=1))
        return future


def fed(serving: Any, *, each_alone: bool = False) -> tuple[Feeder, threading.Thread]:
    """Eight requests, in turns to both replicas, and somebody who waits for them."""
    turns = [Turn(n, 0, n % 2, n) for n in range(8)]
    materials: Any = SimpleNamespace(inputs=lambda *_: {}, made_bytes=lambda _: 0)
    feeder = Feeder(serving, turns, materials, each_alone=each_alone)
    feeder.start()
    waiting = threading.Thread(target=feeder.wait, args=(lambda _: None,), daemon=True)
    waiting.start()
    return feeder, waiting


def test_one_replica_that_fails_ends_the_run() -> None:
    serving = TwoReplicas(refuse=False)
    feeder, waiting = fed(serving)
    try:
        waiting.join(300)
        assert not waiting.is_alive()
        assert feeder.fault() is serving.fault
        assert list(feeder.completions()) == [0]
    finally:
        serving.over.set()


def test_where_one_cannot_submit_what_runs_is_waited_for() -> None:
    serving = TwoReplicas(refuse=True)
    feeder, waiting = fed(serving)
    feeder._threads[0].join(300)
    assert waiting.is_alive()
    serving.over.set()
    waiting.join(300)
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
    waiting.join(300)
    assert not waiting.is_alive()
    assert sorted(feeder.completions()) == [0, 1, 3, 5, 7]
    assert feeder.fault() is serving.fault


class LostReplica:
    """One replica with two sequences, lost at a request of the first; it can be started again."""

    sequences = ((0, 0), (0, 1))

    def __init__(self, role: Role | None, *, starts: int = 9) -> None:
        buffers = () if role is None else (SimpleNamespace(role=role),)
        self.opened = SimpleNamespace(
            replicas=[None], programs=[SimpleNamespace(buffers=buffers)] * 2
        )
        self.opened.programs[1] = SimpleNamespace(buffers=())
        self.is_lost = False
        self.starts = starts
        self.lose_at = [2]

    def submit(self, inputs: object, *, number: int, **_: object) -> Future[Completion]:
        fault = ServiceFault(error("TSR5072", "gone"), device="a")
        future: Future[Completion] = Future()
        if self.is_lost:
            raise fault
        if number in self.lose_at:
            self.lose_at.remove(number)
            self.is_lost = True
            future.set_exception(fault)
        else:
            future.set_result(Completion(request=number, outputs={}, started_ns=0, ended_ns=1))
        return future

    def restart(self, sequence: int) -> None:
        if not self.starts:
            raise ServiceFault(error("TSR5071", "no host"), device="a")
        self.starts -= 1
        self.is_lost = False


def retried(serving: Any) -> Feeder:
    """Six requests of a trace with states, if the replica has any, and two of one without."""
    turns = [Turn(n, int(n >= 6), n % 2, n) for n in range(8)]
    materials: Any = SimpleNamespace(inputs=lambda *_: {}, made_bytes=lambda _: 0)
    feeder = Feeder(serving, turns, materials, each_alone=True, retry=True)
    feeder.start()
    feeder.wait(lambda _: None)
    return feeder


def test_what_was_lost_is_replayed() -> None:
    serving = LostReplica(None)
    serving.lose_at = [2, 5]
    feeder = retried(serving)
    assert feeder.fault() is None
    assert list(feeder.completions()) == list(range(8))
    (said,) = feeder.warnings()
    assert str(said.headline) == "replayed from their inputs: requests 2, 5"
    assert said.code == "TSR5073"
    assert said.notes == ("gone",)


def test_what_has_states_is_not_replayed_and_is_named() -> None:
    feeder = retried(LostReplica(Role.STATE))
    assert list(feeder.completions()) == [0, 1, 6, 7]
    fault = feeder.fault()
    assert fault is not None
    assert fault.diagnostics[0].code == "TSR5072"
    wanted = "not run: requests 2 to 5: the states of their sequences are lost"
    assert wanted in fault.diagnostics[0].notes
    assert feeder.warnings() == ()  # 6 and 7 had not begun


@pytest.mark.parametrize("starts", [0, 9])
def test_a_replica_that_stays_lost_is_given_up(starts: int) -> None:
    serving = LostReplica(None, starts=starts)
    serving.lose_at = [2] * 9
    feeder = retried(serving)
    assert list(feeder.completions()) == [0, 1]
    fault = feeder.fault()
    assert fault is not None
    why = "its replica was started 3 times" if starts else "cannot be started again: no host"
    assert any("requests 2 to 7" in n and why in n for n in fault.diagnostics[0].notes)
    assert feeder.warnings() == ()


class Counted:
    """One replica that ends what is submitted at once, and notes when."""

    sequences = ((0, 0),)
    opened = SimpleNamespace(replicas=[None])

    def __init__(self) -> None:
        self.log: list[tuple[str, int]] = []
        self.held: list[weakref.ref[Any]] = []

    def inputs(self, request: int, trace: int, turn: int) -> dict[str, Any]:
        self.log.append(("made", request))
        made = np.full(8, request, np.uint8)
        self.held.append(weakref.ref(made))
        return {"x": made}

    def submit(
        self, inputs: dict[str, Any], *, number: int, finish: Any, **_: object
    ) -> Future[Completion]:
        self.log.append(("submitted", number))
        future: Future[Completion] = Future()
        outputs = {"y": inputs["x"] + 1}
        done = Completion(request=number, outputs=outputs, started_ns=number, ended_ns=number + 1)
        future.set_result(finish(done))
        return future


def test_inputs_are_made_before_the_requests_of_their_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the command does is no part of the time in which a plan runs, and takes little."""
    monkeypatch.setattr("tessera.driver.run.feeder._BATCH_BYTES", 32)
    program = SimpleNamespace(buffers=[SimpleNamespace(role=Role.OUTPUT, bytes=8)])
    for keep, size in ((True, 4), (False, 2)):
        serving: Any = Counted()
        materials: Any = SimpleNamespace(
            inputs=serving.inputs, made_bytes=lambda _: 8, programs=[program]
        )
        turns = [Turn(n, 0, 0, n) for n in range(10)]
        feeder = Feeder(serving, turns, materials, keep_outputs=keep)
        feeder.start()
        feeder.wait(lambda _: None)
        assert feeder.begins == list(range(0, 10, size))
        wanted = []
        for first in feeder.begins:
            batch = range(first, min(first + size, 10))
            wanted += [("made", n) for n in batch] + [("submitted", n) for n in batch]
        assert serving.log == wanted
        assert not any(reference() is not None for reference in serving.held)
        done = feeder.completions()
        assert list(done) == list(range(10))
        kept = digests_of_all(done) if keep else feeder.digests()
        assert [*kept] == [*done]
        assert kept[3]["y"] == hashlib.sha256(bytes([4] * 8)).hexdigest()
        assert all(bool(each.outputs) == keep for each in done.values())
        feeder.close()


def test_no_garbage_is_looked_for_among_what_a_plan_left() -> None:
    seen = []
    gc.unfreeze()

    class Waited(Counted):
        def submit(self, inputs: dict[str, Any], **more: Any) -> Future[Completion]:
            seen.append(gc.get_freeze_count())
            return super().submit(inputs, **more)

    with _without_sweeps():
        serving: Any = Waited()
        materials: Any = SimpleNamespace(inputs=serving.inputs, made_bytes=lambda _: 8)
        feeder = Feeder(serving, [Turn(0, 0, 0, 0)], materials)
        feeder.start()
        feeder.wait(lambda _: None)
    assert seen[0] > 1000
    assert gc.get_freeze_count() == 0
    gc.freeze()
    try:
        held = gc.get_freeze_count()
        with _without_sweeps():
            assert gc.get_freeze_count() == held
        assert gc.get_freeze_count() == held
    finally:
        gc.unfreeze()
