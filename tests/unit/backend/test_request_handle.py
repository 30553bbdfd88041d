"""Handles of requests: what may be asked of one while it ends, and who relies on whom then."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from typing import Any

import pytest

from tessera.backend.host_loop.request_handle import RequestHandle
from tests.unit.backend.test_dispatch import Patient, Scripted, both, loop, until


@both
def test_a_callback_asks_its_own_future(kind: type[Scripted]) -> None:
    """The most common one: it is over by then, though its callbacks are not."""
    backend = kind()
    with loop(backend) as dispatcher:
        found: list[Any] = []
        future = dispatcher.submit({}, trace=0, lane=0)
        future.add_done_callback(lambda one: found.append(one.result().request))
        future.add_done_callback(lambda one: found.append(one.exception()))
        future.add_done_callback(lambda one: found.append(one.done()))
        backend.finish(0)
        until(lambda: len(found) == 3)
        assert found == [0, None, True]


def test_a_callback_in_the_thread_that_waits() -> None:
    """It was asked for while that thread had begun to collect."""
    backend = Patient()
    with loop(backend) as dispatcher:
        found: list[Any] = []
        first, second = (dispatcher.submit({}, trace=0, lane=lane) for lane in (0, 1))

        def ask() -> None:
            first.add_done_callback(lambda one: found.append(one.result().request))
            backend.finish(0)
            until(lambda: found)
            backend.finish(1)

        asking = threading.Timer(0.05, ask)
        asking.start()
        assert second.result(300).request == 1
        asking.join()
        assert found == [0]


def test_it_ends_while_somebody_asks_to_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody relies on the collector's thread afterwards."""
    backend = Patient()
    real = RequestHandle.watch

    def watch_late(future: RequestHandle) -> None:
        real(future)
        backend.finish(0)
        until(lambda: future._is_over())

    with loop(backend) as dispatcher:
        future = dispatcher.submit({}, trace=0, lane=0)
        monkeypatch.setattr(RequestHandle, "watch", watch_late)
        told = threading.Event()
        future.add_done_callback(lambda _: told.set())
        assert told.wait(300)
        monkeypatch.undo()
        until(lambda: not dispatcher.collector.relying)


@both
def test_nobody_relies_on_what_is_over(kind: type[Scripted]) -> None:
    """Whatever was asked before: to be told, to wait for a while, to take it back."""
    backend = kind()
    with loop(backend) as dispatcher:
        before = dispatcher.collector.relying
        for number in range(3):
            future = dispatcher.submit({}, trace=0, lane=0)
            future.add_done_callback(lambda _: None)
            concurrent.futures.wait([future.future()], 0)
            assert not future.cancel()
            with pytest.raises(TimeoutError):
                future.result(1e-3)
            backend.finish(number)
            assert len(list(concurrent.futures.as_completed([future.future()], 600))) == 1
        limit = time.monotonic() + 600  # a hang, not a busy machine
        while dispatcher.collector.relying != before:
            assert time.monotonic() < limit
            time.sleep(1e-3)


@both
@pytest.mark.parametrize("end", ["fault", "closed"])
def test_a_callback_asks_another_at_the_end(kind: type[Scripted], end: str) -> None:
    """All have failed before one is told: it does not wait for the thread it is in."""
    backend = kind()
    with loop(backend, limit_s=0.3) as dispatcher:
        futures = [dispatcher.submit({}, trace=0, lane=lane) for lane in range(3)]
        found: list[Any] = []
        for future in futures:
            others = [one for one in futures if one is not future]
            future.add_done_callback(
                lambda _, others=others: found.extend(one.exception(300) for one in others)
            )
        if end == "fault":
            backend.stuck = set(range(9))
        else:
            dispatcher.close(wait=False)
        until(lambda: len(found) == 6)
        code = "TSR5052" if end == "fault" else "TSR5050"
        assert all(code in str(one) for one in found)
        assert all(future.exception(0) is found[0] for future in futures)


@both
@pytest.mark.parametrize("end", ["handle", "future"])
def test_those_who_wait_for_a_future_hear_that_it_was_cancelled(
    kind: type[Scripted], end: str
) -> None:
    backend = kind(depth=1)
    with loop(backend, slots=2, lanes=1) as dispatcher:
        first, second = (dispatcher.submit({}, trace=0, lane=0) for _ in range(2))
        future = second.future()
        assert (second if end == "handle" else future).cancel()
        assert second.cancelled()
        assert concurrent.futures.wait([future], 300).done == {future}
        assert future.cancelled()
        backend.finish(0)
        assert first.result(300).request == 0
