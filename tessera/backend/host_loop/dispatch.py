"""The host loop that every backend shares: slots, lanes, back-pressure, handles, a watchdog.

In: a `Backend`, and requests from any thread. Out: a handle per request. `RequestBook` records
which requests stand in line, wait or run; `Dispatcher` begins requests, collects completions, and
ends handles. A fault ends everything: handles of requests that had finished keep their results, all
others get the fault.

A waiting thread collects completions unless another thread already does, so no other thread has to
wake it. A background thread (`Collector`) collects while anything relies on it: threads that wait
while another thread collects, handles with callbacks, and backends that allow only one thread to
collect. Every `LOOK_S` seconds it also looks for requests that have ended without a waiting thread,
and for requests without progress. Callbacks of a handle run in the thread that collects; a callback
that waits for another request collects meanwhile.

The lock of the count in `Collector` is held only briefly, as is that of the book.
`_beginning` is held while requests begin, in the order of the book, or while no request may begin;
the turn to collect (`CollectingTurn`) while a thread collects. A thread that needs both takes the
turn first. No handle ends while `_beginning` is held. The backend is closed when nobody uses it
(`using`): what carries states between requests needs neither lock.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from tessera.backend.host_loop.collecting_turn import CollectingTurn
from tessera.backend.host_loop.request_book import LaneHold, RequestBook, SomeHandle, closed
from tessera.backend.host_loop.request_handle import Outcome, RequestHandle, fail_all
from tessera.backend.host_loop.watchdog import LOOK_S, Watchdog
from tessera.backend.service import (
    DEFAULT_LIMIT_S,
    Backend,
    Bytes,
    Completion,
    InPlace,
    PatientBackend,
    Request,
    StateParts,
)

NOTHING: InPlace = MappingProxyType({})


class Collector:
    """The background thread, and the number of threads and handles that rely on it."""

    def __init__(self, relying: int) -> None:
        self.relying = relying
        self.called = threading.Event()
        self._counting = threading.Lock()

    def start(self, dispatcher: Dispatcher) -> None:
        """Collect until the dispatcher ends, even if it is garbage collected without `close`."""
        target = weakref.ref(dispatcher)
        self.thread = threading.Thread(
            target=_keep_collecting, args=(target,), name="tessera-collect", daemon=True
        )
        self.thread.start()

    def rely(self, more: int) -> None:
        """Count `more` threads or handles that rely on it; a negative number counts down."""
        with self._counting:
            self.relying += more
        if more > 0:
            self.called.set()

    @property
    def is_here(self) -> bool:
        """Whether the current thread is the collector's."""
        return threading.current_thread() is self.thread


def _keep_collecting(dispatcher: weakref.ref[Dispatcher]) -> None:
    while True:
        target = dispatcher()
        if target is None or not target.step():
            return
        del target


class Dispatcher:
    """Hands requests to one backend. Thread-safe."""

    def __init__(
        self, backend: Backend, *, slots: int, lanes: int, limit_s: float = DEFAULT_LIMIT_S
    ) -> None:
        self.backend = backend
        self.book = RequestBook(slots=slots, lanes=lanes, depth=backend.depth)
        self._watchdog = Watchdog(limit_s)
        self._beginning = threading.Lock()
        self._turn = CollectingTurn()
        self._completed: deque[tuple[SomeHandle, Completion]] = deque()
        self._users = threading.Condition()
        self._using = 0
        self._patient = backend if isinstance(backend, PatientBackend) else None
        self.collector = Collector(relying=0 if self._patient else 1)
        self.collector.start(self)

    @property
    def capacity(self) -> int:
        """The number of requests that may be under way."""
        return self.book.capacity

    # --- requests -----------------------------------------------------------------------------

    def submit(
        self,
        inputs: Mapping[str, Bytes],
        *,
        trace: int,
        lane: int,
        number: int | None = None,
        in_place: InPlace = NOTHING,
        finish: Callable[[Completion], Any] | None = None,
    ) -> SomeHandle:
        """Submit a request; waits in line while all tickets are taken.

        `number` identifies the request in results and errors. `in_place` are inputs that the
        backend has located. The result of the handle is the completion, or what `finish` returns
        for it.
        """
        request = Request(
            number=-1 if number is None else number,
            trace=trace,
            slot=-1,
            lane=lane,
            inputs=inputs,
            in_place=in_place,
        )
        handle = RequestHandle(self, request, finish)
        try:
            self.book.enter(handle)
            if not handle.has_ticket:
                self._wait_until(lambda: handle.has_ticket or self.book.is_shut)
        except BaseException:  # an interrupt: the caller never gets the handle
            self.book.leave(handle)
            handle.cancel()
            raise
        if not handle.has_ticket:
            # Without the traceback of other callers that got the same error.
            raise (self.book.ending or closed()).with_traceback(None)
        self._begin_all()
        return handle

    def _begin_all(self) -> None:
        """Begin every request that can."""
        try:
            with self._beginning:
                while self.book.waiting:
                    request = self.book.next_request()
                    if request is None:
                        return
                    self.backend.begin(request)
                    if self.collector.relying:
                        self.collector.called.set()
        except BaseException as problem:
            self._end_here(problem)

    def _done(self, completions: Sequence[Completion]) -> None:
        """End the handles of completed requests; their callbacks may call this method again."""
        current: SomeHandle | None = None
        try:
            self.book.finish(completions, self._completed)
            if self.book.waiting:
                self._begin_all()
            while self._completed:
                current, completion = self._completed[0]
                del self._completed[0]
                current.finish(completion)
        except BaseException as problem:
            fail_all(() if current is None else (current,), problem)
            self._finish_rest(problem)
            raise

    def _finish_rest(self, problem: BaseException) -> None:
        """End everything; requests that had finished before keep their results."""
        while self._completed:
            handle, completion = self._completed[0]
            del self._completed[0]
            try:
                handle.finish(completion)
            except BaseException:
                fail_all((handle,), problem)

    def _end(self, problem: BaseException) -> BaseException | None:
        """Fail all requests; returns the first error that a callback raised."""
        handles = self.book.end(problem)
        if handles is None:
            return None
        self.collector.called.set()
        return fail_all(handles, problem)

    def _end_here(self, problem: BaseException) -> None:
        """End after a problem in this thread; an interrupt is raised again in the caller."""
        raised = self._end(problem)
        if self.collector.is_here:
            return
        if raised is not None:
            raise raised
        if not isinstance(problem, Exception):
            raise problem

    # --- collecting ---------------------------------------------------------------------------

    def collect_until(self, is_so: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Collect in this thread until `is_so` returns true, or the time is over.

        False if another thread collects, or everything has ended.
        """
        if self._turn.is_here:
            return self._collect_until(is_so, timeout_s)
        if self._patient is None or self.collector.relying:
            return False
        if not self._turn.lock.acquire(blocking=False):
            return False
        try:
            self._turn.begin()
            return self._collect_until(is_so, timeout_s)
        finally:
            self._turn.end()

    def _collect_until(self, is_so: Callable[[], bool], timeout_s: float | None) -> bool:
        """Do the work of `collect_until`; the caller has the turn."""
        limit = None if timeout_s is None else time.monotonic() + timeout_s
        # The previous collecting thread may have made it true.
        while not is_so():
            if self.book.ending is not None:
                return False
            left = LOOK_S if limit is None else max(min(LOOK_S, limit - time.monotonic()), 0.0)
            if self._patient is None:
                self._collect(left)
            else:
                # An interrupt ends a wait and leaves everything as it is.
                if left and not self._completed:
                    self._patient.wait(left)
                self._collect(0.0)
            if not left:
                break
        return True

    def rely(self, more: int) -> None:
        """Count `more` threads or handles that rely on the collector; negative counts down."""
        self.collector.rely(more)

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait for a condition that the end of a request brings about."""
        if self.collect_until(is_so):
            return
        self.rely(1)
        try:
            self.book.wait_for(is_so)
        finally:
            self.rely(-1)

    def _collect(self, timeout_s: float) -> None:
        """Collect completions; the caller has the turn."""
        try:
            # Completions are already there if this is called while a handle ends.
            completions = () if self._completed else self.backend.collect(timeout_s)
            if completions or self._completed:
                self._done(completions)
            if self._watchdog.is_due():
                self._look_after()
        except BaseException as problem:
            self._end_here(problem)

    def _look_after(self) -> None:
        """Raise if a request makes no progress."""
        marks = self.backend.progress()
        stalled = self._watchdog.look({number: marks.get(number) for number in self.book.numbers()})
        if stalled is not None:
            raise self.backend.stalled(stalled.request, stalled.seconds)

    def step(self) -> bool:
        """Collect if the collector's thread has to; returns False at the end."""
        book, collector = self.book, self.collector
        if not (collector.relying and book.running):
            collector.called.wait(LOOK_S)
            collector.called.clear()
        if book.waiting and not book.running:
            self._begin_all()  # an interrupt kept the submitter from doing it
        if book.ending is None and book.running:
            patience_s = LOOK_S if collector.relying else 0.0
            if self._turn.lock.acquire(timeout=patience_s):
                try:
                    self._turn.begin()
                    self._collect(patience_s)
                finally:
                    self._turn.end()
        if book.ending is None:
            return True
        self._close_backend()
        return False

    # --- states and the end -------------------------------------------------------------------

    def read_states(self, lane: int) -> Mapping[str, Bytes]:
        """The states of a lane; waits until the lane has no request."""
        return self._between(lane, lambda: self.backend.read_states(lane))

    def write_parts(self, lane: int, given: Iterable[tuple[str, StateParts, Bytes]]) -> None:
        """Set bytes of states on devices; waits until the lane has no request."""

        def write() -> None:
            for device, parts, content in given:
                self.backend.write_parts(lane, device, parts, content)

        self._between(lane, write)

    def hold(self, hold: LaneHold) -> None:
        """Let a hold take its turn in its lane; `release` must follow."""
        self.rely(1)  # requests before it have to be collected
        if self.book.enter(hold):
            self._begin_all()
        else:
            hold.failed(self.book.ending or closed())

    def release(self, hold: LaneHold) -> None:
        """End the turn of a hold."""
        self.book.release(hold)
        self.rely(-1)
        self._begin_all()

    def fail(self, problem: BaseException) -> None:
        """End everything: the backend has had a fault outside of requests."""
        self._end(problem)

    def _between(self, lane: int, call: Callable[[], Outcome]) -> Outcome:
        book = self.book
        while True:
            if not book.is_idle(lane) and book.ending is None:
                self._wait_until(lambda: book.ending is not None or book.is_idle(lane))
            with self._beginning:
                if book.ending is not None:
                    raise book.ending.with_traceback(None)
                if book.is_idle(lane):
                    return call()

    def refuse(self) -> None:
        """Refuse new requests from now on, and those that stand in line."""
        self.book.refuse()

    def close(self, *, wait: bool = True) -> None:
        """Stop, after all submitted requests or at once; in the second case their handles fail."""
        if wait and self.book.ending is None:
            self.refuse()
            if self._has_work():
                self._wait_until(lambda: self.book.ending is not None or not self._has_work())
        raised = self._end(closed())
        # In a callback of a handle, the collector's thread closes the backend.
        if not self._turn.is_here:
            self.collector.thread.join()
            self._close_backend()
        if raised is not None:
            raise raised

    def _has_work(self) -> bool:
        return bool(self.book.held or self.book.holds)

    @contextmanager
    def using(self) -> Iterator[Backend]:
        """The backend, which is not closed meanwhile; raises if it has ended."""
        with self._users:
            if self.book.ending is not None:
                raise self.book.ending.with_traceback(None)
            self._using += 1
        try:
            yield self.backend
        finally:
            with self._users:
                self._using -= 1
                self._users.notify_all()

    def _close_backend(self) -> None:
        with self._users:  # nobody begins to use it any more
            self._users.wait_for(lambda: not self._using)
        with self._turn.lock, self._beginning:
            self.backend.close()
