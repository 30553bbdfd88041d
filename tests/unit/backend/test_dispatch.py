"""The host loop with a backend that does what the test says."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import random
import threading
import time
import traceback
import weakref
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager

import pytest

from tessera.backend.host_loop.dispatch import Dispatcher
from tessera.backend.host_loop.request_book import LaneHold
from tessera.backend.service import (
    Bytes,
    Completion,
    DeviceBytes,
    Request,
    ServiceFault,
    StateParts,
)
from tessera.diagnostics import TesseraError, error
from tests.helpers.share import share


class Scripted:
    """Requests are done when the test says so; breaks of the protocol are kept."""

    def __init__(self, depth: int = 2) -> None:
        self.depth = depth
        self.begun: list[Request] = []
        self.under_way: list[Request] = []
        self.wrong: list[str] = []
        self.closed = 0
        self.looks = 0
        self.stuck: set[int] = set()
        self.limit_s = 5.0
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
            self._changed.notify_all()
        self._beginning.release()

    def finish(self, number: int) -> None:
        """End a request, once it has begun."""
        with self._changed:
            self._changed.wait_for(lambda: number in [one.number for one in self.under_way], 300)
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
        else:
            time.sleep(0.001)  # or other threads would wait for this one
        return bool(heads)

    def collect(self, timeout_s: float) -> tuple[Completion, ...]:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._done), min(timeout_s, 0.01))
            found, self._done = tuple(self._done), []
            return found

    def progress(self) -> dict[int, object]:
        """Requests that the test says are stuck keep their mark."""
        self.looks += 1
        with self._changed:
            return {
                one.number: self.looks * (one.number not in self.stuck) for one in self.under_way
            }

    def stalled(self, request: int, seconds: float) -> ServiceFault:
        assert seconds > self.limit_s
        return ServiceFault(error("TSR5052", "nothing happens"), request=request)

    def locate(self, given: object, size: int) -> DeviceBytes | None:
        return None

    def read_states(self, lane: int) -> Mapping[str, Bytes]:
        if any(one.lane == lane for one in self.under_way):
            self.wrong.append("states of a lane that is busy")
        return {}

    def read_parts(self, lane: int, device: str, parts: StateParts) -> Bytes:
        raise NotImplementedError

    def write_parts(self, lane: int, device: str, parts: StateParts, content: Bytes) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.closed += 1


class Patient(Scripted):
    """One that any thread can wait for; keeps which threads have collected something."""

    def __init__(self, depth: int = 2) -> None:
        super().__init__(depth)
        self.collected_by: list[str] = []
        self.interrupt_waiting = False

    def wait(self, timeout_s: float) -> bool:
        if self.interrupt_waiting:
            self.interrupt_waiting = False
            raise KeyboardInterrupt
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._done), timeout_s)

    def collect(self, timeout_s: float) -> tuple[Completion, ...]:
        if timeout_s:
            self.wait(timeout_s)
        with self._changed:
            found, self._done = tuple(self._done), []
        self.collected_by += [threading.current_thread().name] * len(found)
        return found


both = pytest.mark.parametrize("kind", [Scripted, Patient])


@contextmanager
def loop(
    backend: Scripted, slots: int = 2, lanes: int = 3, limit_s: float = 300.0
) -> Iterator[Dispatcher]:
    backend.limit_s = limit_s
    dispatcher = Dispatcher(backend, slots=slots, lanes=lanes, limit_s=limit_s)
    try:
        yield dispatcher
    finally:
        dispatcher.close(wait=False)
    assert backend.closed
    assert not backend.wrong


def until(condition: object, what: str = "") -> None:
    limit = time.monotonic() + 600  # a hang, not a busy machine
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < limit, what
        time.sleep(1e-3)


@both
def test_requests_of_a_lane_queue_up_in_its_slot(kind: type[Scripted]) -> None:
    backend = kind(depth=3)
    with loop(backend) as dispatcher:
        futures = [dispatcher.submit({}, trace=0, lane=1) for _ in range(4)]
        assert [one.number for one in backend.begun] == [0, 1, 2]
        assert len({one.slot for one in backend.begun}) == 1
        backend.finish(0)
        assert futures[0].result(300).request == 0
        until(lambda: len(backend.begun) == 4)
        for number in (1, 2, 3):
            backend.finish(number)
            assert futures[number].result(300).request == number


@both
def test_submit_waits_when_all_tickets_are_taken(kind: type[Scripted]) -> None:
    backend = kind(depth=2)
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
        thread.join(300)
        assert len(later) == 1


@both
@pytest.mark.parametrize("seed", share(range(4)))
def test_threads_keep_the_rules(kind: type[Scripted], seed: int) -> None:
    """Requests from several threads, ends in any order: every lane is in order, none is lost."""
    rng = random.Random(seed)
    backend = kind(depth=1 + seed % 3)
    with loop(backend, slots=1 + seed, lanes=4) as dispatcher:
        futures: dict[int, list[object]] = {lane: [] for lane in range(4)}

        def send(lane: int) -> None:
            for _ in range(15):
                futures[lane].append(dispatcher.submit({}, trace=0, lane=lane))

        threads = [threading.Thread(target=send, args=(lane,)) for lane in futures]
        for thread in threads:
            thread.start()
        done = 0
        limit = time.monotonic() + 600  # a hang, not a busy machine
        while done < 60:
            done += backend.finish_one(rng)
            assert time.monotonic() < limit
        for thread in threads:
            thread.join()
        for lane, mine in futures.items():
            numbers = [future.result(300).request for future in mine]  # type: ignore[attr-defined]
            assert numbers == [one.number for one in backend.begun if one.lane == lane]
            assert numbers == sorted(numbers)


@both
def test_a_request_that_is_cancelled_while_it_waits(kind: type[Scripted]) -> None:
    backend = kind(depth=1)
    with loop(backend, slots=2, lanes=1) as dispatcher:
        first, second = (dispatcher.submit({}, trace=0, lane=0) for _ in range(2))
        assert second.cancel()
        assert not first.cancel()
        backend.finish(0)
        first.result(300)
        third = dispatcher.submit({}, trace=0, lane=0)
        until(lambda: len(backend.begun) == 2)
        backend.finish(2)
        assert third.result(300).request == 2


@both
def test_results_are_made_by_the_caller(kind: type[Scripted]) -> None:
    backend = kind()
    with loop(backend) as dispatcher:
        future = dispatcher.submit({}, trace=0, lane=0, number=7, finish=lambda c: c.request + 1)
        backend.finish(7)
        assert future.result(300) == 8


@both
def test_a_backend_that_refuses_a_request(kind: type[Scripted]) -> None:
    backend = kind()
    with loop(backend) as dispatcher:
        first = dispatcher.submit({}, trace=0, lane=0)
        backend.refuse = ServiceFault(error("TSR5107", "no"))
        second = dispatcher.submit({}, trace=0, lane=1)
        for future in (first, second):
            with pytest.raises(ServiceFault, match="TSR5107"):
                future.result(300)
        with pytest.raises(ServiceFault, match="TSR5107"):
            dispatcher.submit({}, trace=0, lane=0)


@both
def test_nothing_happens(kind: type[Scripted]) -> None:
    backend = kind()
    backend.stuck = {0}
    with loop(backend, limit_s=0.3) as dispatcher:
        future = dispatcher.submit({}, trace=0, lane=0)
        with pytest.raises(ServiceFault, match="TSR5052"):
            future.result(300)


@both
def test_a_request_that_hangs_while_others_go_on(kind: type[Scripted]) -> None:
    """The others end one after the other all the time, and later ones begin."""
    backend = kind(depth=1)
    backend.stuck = {0}
    with loop(backend, limit_s=0.3) as dispatcher:
        hung = dispatcher.submit({}, trace=0, lane=0)
        limit = time.monotonic() + 600  # a hang, not a busy machine

        def go_on() -> None:
            while time.monotonic() < limit:
                other = dispatcher.submit({}, trace=0, lane=1)
                until(lambda: len(backend.under_way) == 2 or hung.done())
                if not hung.done():
                    backend.finish(backend.under_way[-1].number)
                other.result(300)

        with pytest.raises(ServiceFault, match="TSR5052") as failure:
            go_on()
        assert failure.value.request == 0
        assert hung.exception(300) is failure.value


@both
def test_first_come_first_served(kind: type[Scripted]) -> None:
    """Threads that wait for a ticket get theirs in the order in which they came."""
    backend = kind(depth=1)
    with loop(backend, slots=1, lanes=1) as dispatcher:
        dispatcher.submit({}, trace=0, lane=0)

        def send(trace: int) -> None:
            dispatcher.submit({}, trace=trace, lane=0)

        threads = [threading.Thread(target=send, args=(n,)) for n in range(1, 17)]
        for count, thread in enumerate(threads, 1):
            thread.start()
            until(lambda want=count: len(dispatcher.book.line) == want)
        for number in range(17):
            until(lambda want=number: len(backend.begun) == want + 1)
            backend.finish(number)
        for thread in threads:
            thread.join(300)
        assert [one.trace for one in backend.begun] == list(range(17))


@both
def test_who_comes_later_does_not_overtake(kind: type[Scripted]) -> None:
    """A thread that is awake finds the ticket taken that one asleep has been given."""
    backend = kind(depth=1)
    with loop(backend, slots=1, lanes=1) as dispatcher:
        dispatcher.submit({}, trace=0, lane=0)
        asleep = threading.Thread(target=lambda: dispatcher.submit({}, trace=1, lane=0))
        asleep.start()
        until(lambda: dispatcher.book.line)
        finish_soon(backend, 0)
        finish_soon(backend, 1, 0.3)
        dispatcher.submit({}, trace=2, lane=0)
        asleep.join(300)
        assert [one.trace for one in backend.begun] == [0, 1, 2]


def test_an_interrupt_while_in_line_leaves_no_trace() -> None:
    backend = Patient(depth=1)
    with loop(backend, slots=1, lanes=1) as dispatcher:
        first = dispatcher.submit({}, trace=0, lane=0)
        backend.interrupt_waiting = True
        with pytest.raises(KeyboardInterrupt):
            dispatcher.submit({}, trace=1, lane=0)
        assert not dispatcher.book.line
        backend.finish(0)
        first.result(300)
        last = dispatcher.submit({}, trace=2, lane=0)
        backend.finish(backend.under_way[0].number)
        last.result(300)
        assert [one.trace for one in backend.begun] == [0, 2]


@both
def test_closing_turns_those_in_line_away(kind: type[Scripted]) -> None:
    backend = kind(depth=1)
    with loop(backend, slots=1, lanes=1) as dispatcher:
        first = dispatcher.submit({}, trace=0, lane=0)
        found: list[BaseException] = []

        def send() -> None:
            try:
                dispatcher.submit({}, trace=0, lane=0)
            except TesseraError as problem:
                found.append(problem)

        threads = [threading.Thread(target=send) for _ in range(3)]
        for thread in threads:
            thread.start()
        until(lambda: len(dispatcher.book.line) == 3)
        closing = threading.Thread(target=dispatcher.close)
        closing.start()
        until(lambda: len(found) == 3)
        backend.finish(0)
        assert first.result(300).request == 0
        for thread in (closing, *threads):
            thread.join(300)
            assert not thread.is_alive()
        assert all("TSR5050" in str(one) for one in found)


@both
def test_states_wait_for_the_lane(kind: type[Scripted]) -> None:
    backend = kind()
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
        thread.join(300)
        assert found == [{}]


@both
def test_closing_waits_or_does_not(kind: type[Scripted]) -> None:
    backend = kind()
    dispatcher = Dispatcher(backend, slots=1, lanes=1)
    future = dispatcher.submit({}, trace=0, lane=0)
    threading.Timer(0.05, backend.finish, (0,)).start()
    dispatcher.close()
    assert future.result(0).request == 0
    backend = kind()
    dispatcher = Dispatcher(backend, slots=1, lanes=1)
    futures = [dispatcher.submit({}, trace=0, lane=0) for _ in range(2)]
    dispatcher.close(wait=False)
    for future in futures:
        with pytest.raises(TesseraError, match="TSR5050"):
            future.result(0)


def finish_soon(backend: Scripted, number: int, delay_s: float = 0.03) -> None:
    threading.Timer(delay_s, backend.finish, (number,)).start()


def test_who_waits_collects() -> None:
    backend = Patient()
    with loop(backend) as dispatcher:
        for number in range(5):
            future = dispatcher.submit({}, trace=0, lane=0)
            finish_soon(backend, number)
            assert future.result(300).request == number
            assert future.result() is future.result(0)
        assert backend.collected_by == ["MainThread"] * 5


def test_who_is_told_does_not_collect() -> None:
    """Callbacks, `wait` and `as_completed` need nobody who waits for a result."""
    backend = Patient()
    with loop(backend) as dispatcher:
        called = threading.Event()
        future = dispatcher.submit({}, trace=0, lane=0)
        future.add_done_callback(lambda _: called.set())
        finish_soon(backend, 0)
        assert called.wait(300)
        future = dispatcher.submit({}, trace=0, lane=0)
        finish_soon(backend, 1)
        made = future.future()
        assert concurrent.futures.wait([made], 300).done == {made}
        futures = [dispatcher.submit({}, trace=0, lane=0) for _ in range(2)]
        finish_soon(backend, 2)
        finish_soon(backend, 3, 0.06)
        futures = [one.future() for one in futures]
        assert {*concurrent.futures.as_completed(futures, 600)} == {*futures}
        assert backend.collected_by == ["tessera-collect"] * 4
        future = dispatcher.submit({}, trace=0, lane=0)
        finish_soon(backend, 4)
        future.result(300)
        assert backend.collected_by[-1] == "MainThread"  # nobody relies on the other any more


def test_it_can_be_told_in_asyncio() -> None:
    backend = Patient()
    with loop(backend) as dispatcher:

        async def ask(lane: int) -> int:
            future = dispatcher.submit({}, trace=0, lane=lane)
            return (await future).request

        async def both() -> list[int]:
            finish_soon(backend, 1)
            finish_soon(backend, 0, 0.06)
            return await asyncio.gather(ask(0), ask(1))

        assert asyncio.run(both()) == [0, 1]


@pytest.mark.parametrize("seed", share(range(4)))
def test_many_threads_wait_and_are_told(seed: int) -> None:
    rng = random.Random(seed)
    backend = Patient(depth=2)
    with loop(backend, slots=2, lanes=4) as dispatcher:
        told: list[int] = []
        got: list[int] = []

        def use(lane: int) -> None:
            own = random.Random(10 * seed + lane)
            for _ in range(20):
                future = dispatcher.submit({}, trace=0, lane=lane)
                if own.random() < 0.3:
                    future.add_done_callback(lambda f: told.append(f.result(0).request))
                if own.random() < 0.2:
                    future.done()
                if own.random() < 0.7:
                    got.append(future.result(300).request)

        threads = [threading.Thread(target=use, args=(lane,)) for lane in range(4)]
        for thread in threads:
            thread.start()
        limit = time.monotonic() + 600  # a hang, not a busy machine
        done = 0
        while done < 80:
            done += backend.finish_one(rng)
            assert time.monotonic() < limit
        for thread in threads:
            thread.join(300)
            assert not thread.is_alive()
        dispatcher.close()
        assert len(set(got)) == len(got)
        assert dispatcher.collector.relying == 0


def test_a_result_that_does_not_come_in_time() -> None:
    backend = Patient()
    with loop(backend) as dispatcher:
        future = dispatcher.submit({}, trace=0, lane=0)
        assert not future.done()
        begun = time.monotonic()
        with pytest.raises(TimeoutError):
            future.result(0.05)
        with pytest.raises(TimeoutError):
            future.exception(0.0)
        assert time.monotonic() - begun > 0.04
        backend.finish(0)
        assert future.done()
        assert future.exception() is None


def test_an_interrupt_while_waiting_changes_nothing() -> None:
    backend = Patient()
    with loop(backend) as dispatcher:
        future = dispatcher.submit({}, trace=0, lane=0)
        backend.interrupt_waiting = True
        with pytest.raises(KeyboardInterrupt):
            future.result()
        backend.finish(0)
        assert future.result(300).request == 0


def test_an_interrupt_while_collecting_ends_the_run() -> None:
    def interrupted(completion: Completion) -> None:
        raise KeyboardInterrupt

    backend = Patient()
    with loop(backend) as dispatcher:
        future = dispatcher.submit({}, trace=0, lane=0, finish=interrupted)
        other = dispatcher.submit({}, trace=0, lane=1)
        backend.finish(0)
        with pytest.raises(KeyboardInterrupt):
            future.result(300)
        for one in (future, other):
            with pytest.raises(KeyboardInterrupt):
                one.result(300)
        until(lambda: backend.closed)


def test_closing_at_the_end_of_a_future() -> None:
    for kind in (Scripted, Patient):
        backend = kind()
        dispatcher = Dispatcher(backend, slots=1, lanes=1)
        future = dispatcher.submit({}, trace=0, lane=0)
        future.add_done_callback(lambda _, one=dispatcher: one.close(wait=False))
        backend.finish(0)
        assert future.result(300).request == 0
        until(lambda one=backend: one.closed)
        dispatcher.close()


def test_cancelling_wakes_who_waits() -> None:
    backend = Patient(depth=1)
    with loop(backend, slots=2, lanes=1) as dispatcher:
        dispatcher.submit({}, trace=0, lane=0)
        second = dispatcher.submit({}, trace=0, lane=0)
        threading.Timer(0.05, second.cancel).start()
        with pytest.raises(CancelledError):
            second.result(300)  # else: a TimeoutError


def test_what_nobody_waits_for_ends_too() -> None:
    """Futures that are dropped give their tickets back."""
    backend = Patient(depth=1)
    with loop(backend, slots=1, lanes=1) as dispatcher:
        for number in range(3):
            dispatcher.submit({}, trace=0, lane=0)
            finish_soon(backend, number)
        until(lambda: not dispatcher.book.held)


@both
def test_what_is_called_at_the_end_may_wait_for_another(kind: type[Scripted]) -> None:
    """Also for one that was found done in the same breath, or that it submits itself."""
    backend = kind()
    with loop(backend) as dispatcher:
        first, second = (dispatcher.submit({}, trace=0, lane=lane) for lane in (0, 1))
        found: list[int] = []
        first.add_done_callback(lambda _: found.append(second.result(300).request))

        def one_more(_: object) -> None:
            more = dispatcher.submit({}, trace=0, lane=2)
            backend.finish(2)
            found.append(more.result(300).request)

        first.add_done_callback(one_more)
        with backend._changed:  # nobody collects between the two
            backend.finish(0)
            backend.finish(1)
        first.result(300)
        until(lambda: found == [1, 2])


@both
def test_closing_at_the_end_of_a_future_waits_for_the_others(kind: type[Scripted]) -> None:
    backend = kind()
    with loop(backend) as dispatcher:
        first, second = (dispatcher.submit({}, trace=0, lane=lane) for lane in (0, 1))
        first.add_done_callback(lambda _: dispatcher.close())
        backend.finish(0)
        finish_soon(backend, 1, 0.05)
        assert second.result(300).request == 1
        until(lambda: backend.closed)


@both
def test_nobody_submits_while_it_closes(kind: type[Scripted]) -> None:
    backend = kind()
    with loop(backend) as dispatcher:
        last = dispatcher.submit({}, trace=0, lane=0)
        closing = threading.Thread(target=dispatcher.close)
        closing.start()

        def is_refused() -> bool:
            try:
                dispatcher.submit({}, trace=0, lane=1).cancel()
            except TesseraError:
                return True
            return False

        until(is_refused)
        assert not last.done()
        for request in list(backend.under_way):
            backend.finish(request.number)
        closing.join(300)
        assert not closing.is_alive()
        assert last.result(0).request == 0


@both
def test_the_end_reaches_every_future(kind: type[Scripted]) -> None:
    """Whatever somebody who is told of it does: raise, ask, close."""
    backend = kind()
    with loop(backend) as dispatcher:
        futures = [dispatcher.submit({}, trace=0, lane=lane) for lane in (0, 1)]

        def leave(_: object) -> None:
            raise SystemExit

        futures[0].add_done_callback(leave)
        futures[1].add_done_callback(lambda _: dispatcher.close(wait=False))
        backend.refuse = ServiceFault(error("TSR5107", "no"))
        with pytest.raises(SystemExit):
            dispatcher.submit({}, trace=0, lane=2)
        for future in futures:
            with pytest.raises(ServiceFault):
                future.result(300)


@both
def test_many_that_are_cancelled_in_a_row(kind: type[Scripted]) -> None:
    backend = kind(depth=1)
    with loop(backend, slots=1500, lanes=1) as dispatcher:
        futures = [dispatcher.submit({}, trace=0, lane=0) for _ in range(1400)]
        assert all(future.cancel() for future in futures[1:])
        backend.finish(0)
        assert futures[0].result(300).request == 0
        dispatcher.read_states(0)


@both
def test_a_result_is_freed_with_its_future(kind: type[Scripted]) -> None:
    """Without the garbage collector: results are large, and their memory is used again."""
    backend = kind()

    class Result:
        pass

    gc.disable()
    try:
        with loop(backend) as dispatcher:
            for number in range(4):
                future = dispatcher.submit({}, trace=0, lane=0, finish=lambda _: Result())
                if number % 2:
                    future.add_done_callback(lambda _: None)
                backend.finish(number)
                if number == 3:
                    concurrent.futures.wait([future.future()], 300)
                result = weakref.ref(future.result(300))
                assert result() is not None
                until(lambda one=future: one._collecting is None)
                del future
                until(lambda one=result: one() is None, "kept by a circle")
    finally:
        gc.enable()


def test_submitting_after_the_end_keeps_nothing() -> None:
    backend = Patient()
    dispatcher = Dispatcher(backend, slots=1, lanes=1)
    dispatcher.close()
    for _ in range(50):
        with pytest.raises(TesseraError) as caught:
            dispatcher.submit({}, trace=0, lane=0)
        depth = len(traceback.extract_tb(caught.value.__traceback__))
        assert depth < 10


@both
def test_what_is_called_at_the_end_may_submit_though_all_tickets_are_taken(
    kind: type[Scripted],
) -> None:
    backend = kind(depth=1)
    with loop(backend, slots=2, lanes=2) as dispatcher:
        first, second = (dispatcher.submit({}, trace=0, lane=lane) for lane in (0, 1))
        more: list[int] = []

        def two_more(_: object) -> None:
            finish_soon(backend, 1)
            futures = [dispatcher.submit({}, trace=0, lane=lane) for lane in (0, 1)]
            finish_soon(backend, 2)
            finish_soon(backend, 3)
            more.extend(future.result(300).request for future in futures)

        first.add_done_callback(two_more)
        backend.finish(0)
        until(lambda: more == [2, 3])
        assert second.result(300).request == 1


def test_nobody_sleeps_for_what_is_so_already() -> None:
    """Another thread may have brought it about just before this one came to collect."""
    backend = Patient()
    with loop(backend) as dispatcher:
        backend.interrupt_waiting = True
        assert dispatcher.collect_until(lambda: True)


class Turn:
    """A hold that keeps the calls it gets."""

    def __init__(self, lane: int) -> None:
        self.told: list[object] = []
        self.hold = LaneHold(lane, lambda: self.told.append("turn"), self.told.append)


@both
def test_a_hold_takes_its_turn_in_a_lane(kind: type[Scripted]) -> None:
    backend = kind(depth=1)
    with loop(backend, slots=1, lanes=2) as dispatcher:
        first = dispatcher.submit({}, trace=0, lane=0)
        held, free = Turn(0), Turn(1)
        dispatcher.hold(held.hold)
        dispatcher.hold(free.hold)
        assert free.told == ["turn"]  # a hold takes no slot
        dispatcher.release(free.hold)
        assert not held.told
        backend.finish(0)
        until(lambda: held.told == ["turn"])
        assert first.done()
        after = dispatcher.submit({}, trace=1, lane=0)
        assert not backend.under_way
        dispatcher.release(held.hold)
        until(lambda: any(one.trace == 1 for one in backend.under_way))
        backend.finish(after.request.number)
        after.result(300)
        assert [one.trace for one in backend.begun] == [0, 1]


@both
def test_holds_end_with_everything(kind: type[Scripted]) -> None:
    backend = kind(depth=1)
    with loop(backend, slots=1, lanes=2) as dispatcher:
        dispatcher.submit({}, trace=0, lane=0)
        waiting, held, late = Turn(0), Turn(1), Turn(1)
        dispatcher.hold(waiting.hold)
        dispatcher.hold(held.hold)
        # Whoever uses the backend delays its end, and may let its own lane go on meanwhile.
        with dispatcher.using():
            dispatcher.fail(ServiceFault(error("TSR5051", "gone")))
            assert [type(told) for told in waiting.told] == [ServiceFault]
            assert [str(type(told)) for told in held.told][1:] == [str(ServiceFault)]
            dispatcher.release(held.hold)
            assert not backend.closed
        until(lambda: bool(backend.closed))
        dispatcher.hold(late.hold)
        assert [type(told) for told in late.told] == [ServiceFault]
        for turn in (waiting, late):
            dispatcher.release(turn.hold)
        with pytest.raises(ServiceFault), dispatcher.using():
            pass
        assert not dispatcher.book.holds
