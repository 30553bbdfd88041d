"""The host loop that every backend shares: slots, lanes, back-pressure, futures, a watchdog.

In: a `Backend`, and requests from any thread. Out: a future per request. A slot takes as many
requests at a time as the backend's `depth`; a request holds one of `slots * depth` tickets from
`submit` to its end, and `submit` waits while there is none. Requests of one lane run one after the
other, in the order of their submission; those of different lanes pass each other. One thread of
its own collects what is done, and calls what is to be called when a future is done: that must not
submit. A fault ends everything: futures of requests that had finished keep their results, all
others get the fault.

Two locks. `_books` guards what is known of requests, and is held for moments. `_beginning` is held
while the backend begins requests, so that they begin in the order of the books; and by whoever
wants that none begins. Who needs both takes `_beginning` first.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tessera.backend.service import (
    DEFAULT_LIMIT_S,
    Backend,
    Bytes,
    Completion,
    DeviceBytes,
    Request,
)
from tessera.backend.slot_book import SlotBook
from tessera.diagnostics import TesseraError, error

_LOOK_S = 0.2
NOTHING: Mapping[str, DeviceBytes] = MappingProxyType({})


@dataclass(slots=True)
class _Entry:
    """A request between `submit` and its end."""

    number: int
    trace: int
    lane: int
    inputs: Mapping[str, Bytes]
    in_place: Mapping[str, DeviceBytes]
    finish: Callable[[Completion], Any] | None
    future: Future[Any]


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
        self._ended = threading.Condition(self._books)
        self._begun = threading.Condition(self._books)
        self._slots = SlotBook(slots=slots, lanes=lanes, depth=backend.depth)
        self._waiting: dict[int, deque[_Entry]] = {}
        self._running: dict[int, tuple[_Entry, int]] = {}
        self._held = 0
        self._ending: BaseException | None = None
        self._next = 0
        self._collector = threading.Thread(
            target=_collect, args=(weakref.ref(self),), name="tessera-collect", daemon=True
        )
        self._collector.start()

    def submit(
        self, inputs: Mapping[str, Bytes], *, trace: int, lane: int, number: int | None = None,
        in_place: Mapping[str, DeviceBytes] = NOTHING,
        finish: Callable[[Completion], Any] | None = None,
    ) -> Future[Any]:  # fmt: skip
        """Give a request to the backend; waits while every ticket is taken.

        `number` is what the request is called in results and errors. `in_place` are inputs that
        the backend has located. The future has the completion, or what `finish` makes of it.
        """
        future: Future[Any] = Future()
        with self._books:
            while self._held >= self.capacity and self._ending is None:
                self._ended.wait()
            if self._ending is not None:
                raise self._ending
            number = self._next if number is None else number
            self._next = max(self._next, number + 1)
            entry = _Entry(number, trace, lane, inputs, in_place, finish, future)
            self._held += 1
            self._waiting.setdefault(lane, deque()).append(entry)
        self._begin_all()
        return future

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
                if len(self._running) == 1:
                    with self._books:
                        self._begun.notify_all()

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
        for entry, completion in zip(ended, completions, strict=True):
            finish = entry.finish
            entry.future.set_result(completion if finish is None else finish(completion))

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
            self._begun.notify_all()
        for entry in waiting:
            if entry.future.set_running_or_notify_cancel():
                lost.append(entry)
        for entry in lost:
            entry.future.set_exception(problem)

    def step(self) -> bool:
        """Collect once; False when there is nothing more to do. For the collector's thread."""
        with self._books:
            if not self._running and self._ending is None:
                self._begun.wait(_LOOK_S)
                return True
        try:
            completions = self.backend.collect(_LOOK_S) if self._ending is None else ()
            if completions:
                self._done(completions)
            elif self._running and self.backend.idle_s() > self._limit_s:
                raise self.backend.stalled()
        except BaseException as problem:
            self._end(problem)
        if self._ending is None:
            return True
        self._close_backend()
        return False

    def read_states(self, lane: int) -> Mapping[str, Bytes]:
        """The states of a lane; waits until no request is in it."""
        while True:
            with self._books:
                while self._ending is None and not self._is_idle(lane):
                    self._ended.wait()
            with self._beginning:
                if self._ending is not None:
                    raise self._ending
                if self._is_idle(lane):
                    return self.backend.read_states(lane)

    def _is_idle(self, lane: int) -> bool:
        return self._slots.is_idle(lane) and lane not in self._waiting

    def close(self, *, wait: bool = True) -> None:
        """Stop: after what was submitted is done, or at once; futures then have an error."""
        if wait:
            with self._books:
                self._ended.wait_for(lambda: self._ending is not None or not self._held)
        self._end(closed())
        if threading.current_thread() is not self._collector:
            self._collector.join()
        self._close_backend()

    def _close_backend(self) -> None:
        with self._beginning:
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
