"""The host loop that every backend shares: slots, lanes, back-pressure, futures, a watchdog.

In: a `Backend`, and requests from any thread. Out: a future per request. A slot takes as many
requests at a time as the backend's `depth`; a request holds one of `slots * depth` tickets from
`submit` to its end, and `submit` waits while there is none. Requests of one lane run one after the
other, in the order of their submission; those of different lanes pass each other. A fault ends
everything: futures of requests that had finished keep their results, all others get the fault.

Who waits for anything collects what is done, if nobody else does: the thread that would otherwise
be woken up. A thread in the background collects while anybody relies on it: who waits while
another thread collects, futures that call something at their end, and backends that have only
one thread collect. It also looks now and then whether something has ended that nobody waits for,
or nothing happens any more. What is called when a future is done must not submit.

Three locks. `_books` guards what is known of requests, and is held for moments. `_beginning` is
held while the backend begins requests, so that they begin in the order of the books; and by
whoever wants that none begins. `_collecting` is held by whoever collects. Who needs several takes
`_collecting` first, then `_beginning`.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tessera.backend.request_future import RequestFuture
from tessera.backend.service import (
    DEFAULT_LIMIT_S,
    Backend,
    Bytes,
    Completion,
    DeviceBytes,
    PatientBackend,
    Request,
)
from tessera.backend.slot_book import SlotBook
from tessera.diagnostics import TesseraError, error

_LOOK_S = 0.2
NOTHING: Mapping[str, DeviceBytes] = MappingProxyType({})


@dataclass(slots=True)
class _Entry:
    """A request between `submit` and its end; its number is -1 while it has none."""

    number: int
    trace: int
    lane: int
    inputs: Mapping[str, Bytes]
    in_place: Mapping[str, DeviceBytes]
    finish: Callable[[Completion], Any] | None
    future: RequestFuture


class Dispatcher:
    """Requests to one backend. Usable from threads."""

    def __init__(
        self, backend: Backend, *, slots: int, lanes: int, limit_s: float = DEFAULT_LIMIT_S
    ) -> None:
        self.backend = backend
        self.capacity = slots * backend.depth
        self._limit_s = limit_s
        self._books = threading.Lock()
        self._beginning = threading.Lock()
        self._collecting = threading.Lock()
        self._ended = threading.Condition(self._books)
        self._slots = SlotBook(slots=slots, lanes=lanes, depth=backend.depth)
        self._waiting: dict[int, deque[_Entry]] = {}
        self._running: dict[int, tuple[_Entry, int]] = {}
        self._held = 0
        self._ending: BaseException | None = None
        self._next = 0
        self._patient = backend if isinstance(backend, PatientBackend) else None
        self._collects_here = 0
        self._counting = threading.Lock()
        self._relying = 0 if self._patient else 1
        self._called = threading.Event()
        self._collector = threading.Thread(
            target=_collect, args=(weakref.ref(self),), name="tessera-collect", daemon=True
        )
        self._collector.start()

    # --- requests -----------------------------------------------------------------------------

    def submit(
        self, inputs: Mapping[str, Bytes], *, trace: int, lane: int, number: int | None = None,
        in_place: Mapping[str, DeviceBytes] = NOTHING,
        finish: Callable[[Completion], Any] | None = None,
    ) -> Future[Any]:  # fmt: skip
        """Give a request to the backend; waits while every ticket is taken.

        `number` is what the request is called in results and errors. `in_place` are inputs that
        the backend has located. The future has the completion, or what `finish` makes of it.
        """
        future = RequestFuture(self)
        known = -1 if number is None else number
        entry = _Entry(known, trace, lane, inputs, in_place, finish, future)
        while not self._enter(entry):
            self._wait_until(lambda: self._held < self.capacity or self._ending is not None)
        self._begin_all()
        return future

    def _enter(self, entry: _Entry) -> bool:
        """Put a request into the books; False while every ticket is taken."""
        with self._books:
            if self._ending is not None:
                raise self._ending
            if self._held >= self.capacity:
                return False
            if entry.number < 0:
                entry.number = self._next
            self._next = max(self._next, entry.number + 1)
            self._held += 1
            self._waiting.setdefault(entry.lane, deque()).append(entry)
        return True

    def _begin_all(self) -> None:
        """Begin every request that can."""
        with self._beginning:
            while self._waiting:
                with self._books:
                    request = self._next_request()
                if request is None:
                    return
                try:
                    self.backend.begin(request)
                except BaseException as problem:
                    self._end(problem)
                if self._relying:
                    self._called.set()

    def _next_request(self) -> Request | None:
        """A request whose lane has come to it and has a slot."""
        if self._ending is not None:
            return None
        for lane, queue in tuple(self._waiting.items()):
            slot = self._slots.take(lane)
            if slot is None:
                continue
            entry = queue.popleft()
            if not queue:
                del self._waiting[lane]
            if entry.future.set_running_or_notify_cancel():
                self._running[entry.number] = entry, slot
                return Request(
                    number=entry.number, trace=entry.trace, slot=slot, lane=lane,
                    inputs=entry.inputs, in_place=entry.in_place,
                )  # fmt: skip
            self._slots.give_back(slot, lane)
            self._held -= 1
            self._ended.notify_all()
            return self._next_request()
        return None

    def _done(self, completions: Sequence[Completion]) -> None:
        ended = []
        with self._books:
            for completion in completions:
                entry, slot = self._running.pop(completion.request)
                self._slots.give_back(slot, entry.lane)
                ended.append(entry)
            self._held -= len(ended)
            waiting = bool(self._waiting)
            self._ended.notify_all()
        if waiting:
            self._begin_all()
        left = deque(zip(ended, completions, strict=True))
        try:
            while left:
                entry, completion = left[0]
                finish = entry.finish
                entry.future.set_result(completion if finish is None else finish(completion))
                entry.future.settle()
                left.popleft()
        except BaseException as problem:
            for entry, _ in left:
                entry.future.fail(problem)
            raise

    def _end(self, problem: BaseException) -> None:
        """No request starts or finishes from here on."""
        with self._books:
            if self._ending is not None:
                return
            self._ending = problem
            lost = [entry for entry, _ in self._running.values()]
            waiting = [entry for queue in self._waiting.values() for entry in queue]
            self._running.clear()
            self._waiting.clear()
            self._ended.notify_all()
        self._called.set()
        for entry in waiting:
            if entry.future.set_running_or_notify_cancel():
                lost.append(entry)
        for entry in lost:
            entry.future.fail(problem)

    # --- who collects -------------------------------------------------------------------------

    def collect_until(self, is_so: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Collect in this thread until something is so, or the time is over.

        False where others collect, and where the end has come.
        """
        patient = self._patient
        if is_so():
            return True
        if patient is None or self._relying or not self._collecting.acquire(blocking=False):
            return False
        self._collects_here = threading.get_ident()
        try:
            limit = None if timeout_s is None else time.monotonic() + timeout_s
            while self._ending is None:
                left = _LOOK_S if limit is None else min(_LOOK_S, limit - time.monotonic())
                # An interrupt ends a wait and leaves everything as it is.
                if left > 0:
                    patient.wait(left)
                self._collect(0.0)
                if is_so() or left <= 0:
                    return True
            return False
        finally:
            self._collects_here = 0
            self._collecting.release()

    def rely(self, more: int) -> None:
        """So many more rely on the collector's thread; a negative number: fewer."""
        with self._counting:
            self._relying += more
        if more > 0:
            self._called.set()

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait for something that the end of a request brings about."""
        if self.collect_until(is_so):
            return
        self.rely(1)
        try:
            with self._books:
                self._ended.wait_for(is_so)
        finally:
            self.rely(-1)

    def _collect(self, timeout_s: float) -> None:
        """Take what is done; who calls this holds `_collecting`."""
        try:
            completions = self.backend.collect(timeout_s)
            if completions:
                self._done(completions)
            elif self._running and self.backend.idle_s() > self._limit_s:
                raise self.backend.stalled()
        except BaseException as problem:
            self._end(problem)
            if not isinstance(problem, Exception) and not self._is_collector():
                raise  # an interrupt is for whoever waits here

    def _is_collector(self) -> bool:
        return threading.current_thread() is self._collector

    def step(self) -> bool:
        """Collect if it has to be here; False at the end. For the collector's thread."""
        if not (self._relying and self._running):
            self._called.wait(_LOOK_S)
            self._called.clear()
        if self._ending is None and self._running:
            patience_s = _LOOK_S if self._relying else 0.0
            if self._collecting.acquire(timeout=patience_s):
                self._collects_here = threading.get_ident()
                try:
                    self._collect(patience_s)
                finally:
                    self._collects_here = 0
                    self._collecting.release()
        if self._ending is None:
            return True
        self._close_backend()
        return False

    # --- states and the end -------------------------------------------------------------------

    def read_states(self, lane: int) -> Mapping[str, Bytes]:
        """The states of a lane; waits until no request is in it."""
        while True:
            if not self._is_idle(lane) and self._ending is None:
                self._wait_until(lambda: self._ending is not None or self._is_idle(lane))
            with self._beginning:
                if self._ending is not None:
                    raise self._ending
                if self._is_idle(lane):
                    return self.backend.read_states(lane)

    def _is_idle(self, lane: int) -> bool:
        return self._slots.is_idle(lane) and lane not in self._waiting

    def close(self, *, wait: bool = True) -> None:
        """Stop: after what was submitted is done, or at once; futures then have an error."""
        if wait and self._held and self._ending is None:
            self._wait_until(lambda: self._ending is not None or not self._held)
        self._end(closed())
        if self._collects_here == threading.get_ident():
            return  # called at the end of a future: the collector's thread closes the backend
        self._collector.join()
        self._close_backend()

    def _close_backend(self) -> None:
        with self._collecting, self._beginning:
            self.backend.close()


def closed() -> TesseraError:
    """The error of a request to a runtime that has been closed."""
    return TesseraError(error("TSR5050", "the runtime has been closed"))


def _collect(dispatcher: weakref.ref[Dispatcher]) -> None:
    """The collector's loop; it ends with the dispatcher, also when nobody closes that."""
    while True:
        target = dispatcher()
        if target is None or not target.step():
            return
        del target
