"""The host loop with a backend that does what the test says."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from tessera.backend.dispatch import Dispatcher
from tessera.backend.service import Bytes, Completion, DeviceBytes, Request, ServiceFault
from tessera.diagnostics import TesseraError, error


class Scripted:
    """Requests are done when the test says so; breaks of the protocol are kept."""

    def __init__(self, depth: int = 2) -> None:
        self.depth = depth
        self.begun: list[Request] = []
        self.under_way: list[Request] = []
        self.wrong: list[str] = []
        self.closed = 0
        self.idle = 0.0
        self.refuse: Exception | None = None
        self._done: list[Completion] = []
        self._changed = threading.Condition()
        self._beginning = threading.Lock()

    def begin(self, request: Request) -> None:
        if not self._beginning.acquire(blocking=False):
            self.wrong.append("two threads begin at once")
            return
        with self._changed:
            if self.refuse is not None:
                self._beginning.release()
                raise self.refuse
            same = [one for one in self.under_way if one.lane == request.lane]
            if any(one.slot != request.slot for one in same):
                self.wrong.append("a lane is in two slots")
            if sum(one.slot == request.slot for one in self.under_way) >= self.depth:
                self.wrong.append("a slot has too many")
            if self.closed:
                self.wrong.append("begun after the end")
            self.begun.append(request)
            self.under_way.append(request)
        self._beginning.release()

    def finish(self, number: int) -> None:
        with self._changed:
            (request,) = [one for one in self.under_way if one.number == number]
            self.under_way.remove(request)
            self._done.append(Completion(request=number, outputs={}, started_ns=0, ended_ns=1))
            self._changed.notify_all()

    def finish_one(self, rng: random.Random) -> bool:
        """The first of some slot."""
        with self._changed:
            heads = {one.slot: one.number for one in reversed(self.under_way)}
        if heads:
            self.finish(rng.choice(list(heads.values())))
        return bool(heads)

    def collect(self, timeout_s: float) -> tuple[Completion, ...]:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._done), min(timeout_s, 0.01))
            found, self._done = tuple(self._done), []
            return found

    def idle_s(self) -> float:
        return self.idle

    def stalled(self) -> ServiceFault:
        return ServiceFault(error("TSR5052", "nothing happens"))

    def locate(self, given: object, size: int) -> DeviceBytes | None:
        return None

    def read_states(self, lane: int) -> Mapping[str, Bytes]:
        if any(one.lane == lane for one in self.under_way):
            self.wrong.append("states of a lane that is busy")
        return {}

    def close(self) -> None:
        self.closed += 1


@contextmanager
def loop(backend: Scripted, slots: int = 2, lanes: int = 3) -> Iterator[Dispatcher]:
    dispatcher = Dispatcher(backend, slots=slots, lanes=lanes, limit_s=5.0)
    try:
        yield dispatcher
    finally:
        dispatcher.close(wait=False)
    assert backend.closed
    assert not backend.wrong


def until(condition: object, what: str = "") -> None:
    limit = time.monotonic() + 10
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < limit, what
        time.sleep(1e-3)


def test_requests_of_a_lane_queue_up_in_its_slot() -> None:
    backend = Scripted(depth=3)
    with loop(backend) as dispatcher:
        futures = [dispatcher.submit({}, trace=0, lane=1) for _ in range(4)]
        assert [one.number for one in backend.begun] == [0, 1, 2]
        assert len({one.slot for one in backend.begun}) == 1
        backend.finish(0)
        assert futures[0].result(10).request == 0
        until(lambda: len(backend.begun) == 4)
        for number in (1, 2, 3):
            backend.finish(number)
            assert futures[number].result(10).request == number


def test_submit_waits_when_all_tickets_are_taken() -> None:
    backend = Scripted(depth=2)
    with loop(backend, slots=1) as dispatcher:
        for _ in range(2):
            dispatcher.submit({}, trace=0, lane=0)
        later: list[object] = []
        thread = threading.Thread(
            target=lambda: later.append(dispatcher.submit({}, trace=0, lane=0))
        )
        thread.start()
        thread.join(0.1)
        assert not later
        backend.finish(0)
        thread.join(10)
        assert len(later) == 1


@pytest.mark.parametrize("seed", range(4))
def test_threads_keep_the_rules(seed: int) -> None:
    """Requests from several threads, ends in any order: every lane is in order, none is lost."""
    rng = random.Random(seed)
    backend = Scripted(depth=1 + seed % 3)
    with loop(backend, slots=1 + seed, lanes=4) as dispatcher:
        futures: dict[int, list[object]] = {lane: [] for lane in range(4)}

        def send(lane: int) -> None:
            for _ in range(15):
                futures[lane].append(dispatcher.submit({}, trace=0, lane=lane))

        threads = [threading.Thread(target=send, args=(lane,)) for lane in futures]
        for thread in threads:
            thread.start()
        done = 0
        limit = time.monotonic() + 20
        while done < 60:
            done += backend.finish_one(rng)
            assert time.monotonic() < limit
        for thread in threads:
            thread.join()
        for lane, mine in futures.items():
            numbers = [future.result(10).request for future in mine]  # type: ignore[attr-defined]
            assert numbers == [one.number for one in backend.begun if one.lane == lane]
            assert numbers == sorted(numbers)


def test_a_request_that_is_cancelled_while_it_waits() -> None:
    backend = Scripted(depth=1)
    with loop(backend, slots=2, lanes=1) as dispatcher:
        first, second = (dispatcher.submit({}, trace=0, lane=0) for _ in range(2))
        assert second.cancel()
        assert not first.cancel()
        backend.finish(0)
        first.result(10)
        third = dispatcher.submit({}, trace=0, lane=0)
        until(lambda: len(backend.begun) == 2)
        backend.finish(2)
        assert third.result(10).request == 2


def test_results_are_made_by_the_caller() -> None:
    backend = Scripted()
    with loop(backend) as dispatcher:
        future = dispatcher.submit({}, trace=0, lane=0, number=7, finish=lambda c: c.request + 1)
        backend.finish(7)
        assert future.result(10) == 8


def test_a_backend_that_refuses_a_request() -> None:
    backend = Scripted()
    with loop(backend) as dispatcher:
        first = dispatcher.submit({}, trace=0, lane=0)
        backend.refuse = ServiceFault(error("TSR5107", "no"))
        second = dispatcher.submit({}, trace=0, lane=1)
        for future in (first, second):
            with pytest.raises(ServiceFault, match="TSR5107"):
                future.result(10)
        with pytest.raises(ServiceFault, match="TSR5107"):
            dispatcher.submit({}, trace=0, lane=0)


def test_nothing_happens() -> None:
    backend = Scripted()
    with loop(backend) as dispatcher:
        future = dispatcher.submit({}, trace=0, lane=0)
        backend.idle = 6.0
        with pytest.raises(ServiceFault, match="TSR5052"):
            future.result(10)


def test_states_wait_for_the_lane() -> None:
    backend = Scripted()
    with loop(backend) as dispatcher:
        dispatcher.submit({}, trace=0, lane=0)
        dispatcher.submit({}, trace=0, lane=0)
        assert dispatcher.read_states(1) == {}
        found: list[object] = []
        thread = threading.Thread(target=lambda: found.append(dispatcher.read_states(0)))
        thread.start()
        backend.finish(0)
        thread.join(0.1)
        assert not found
        backend.finish(1)
        thread.join(10)
        assert found == [{}]


def test_closing_waits_or_does_not() -> None:
    backend = Scripted()
    dispatcher = Dispatcher(backend, slots=1, lanes=1)
    future = dispatcher.submit({}, trace=0, lane=0)
    threading.Timer(0.05, backend.finish, (0,)).start()
    dispatcher.close()
    assert future.result(0).request == 0
    backend = Scripted()
    dispatcher = Dispatcher(backend, slots=1, lanes=1)
    futures = [dispatcher.submit({}, trace=0, lane=0) for _ in range(2)]
    dispatcher.close(wait=False)
    for future in futures:
        with pytest.raises(TesseraError, match="TSR5050"):
            future.result(0)
