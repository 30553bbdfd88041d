"""The host loop that every backend shares: slots, lanes, back-pressure, futures, a watchdog.

In: a `Backend`, and requests from any thread. Out: a future per request. A request holds one of
`slots` tickets from `submit` to its end; `submit` waits while there is none. Requests of one lane
run one after the other, in the order of their submission; those of different lanes pass each
other. One thread of its own collects what is done. A fault ends everything: futures of requests
that had finished keep their results, all others get the fault.

Invariant: what waits or runs is at most `slots` requests, so one that may start finds a slot.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from tessera.backend.service import (
    DEFAULT_LIMIT_S,
    Backend,
    Bytes,
    Completion,
    Request,
)
from tessera.diagnostics import TesseraError, error

_LOOK_S = 0.2


@dataclass(slots=True)
class _Entry:
    """A request between `submit` and its end."""

    number: int
    trace: int
    lane: int
    inputs: Mapping[str, Bytes]
    future: Future[Completion]


class Dispatcher:
    """Requests to one backend. Usable from threads."""

    def __init__(
        self, backend: Backend, *, slots: int, lanes: int, limit_s: float = DEFAULT_LIMIT_S
    ) -> None:
        self.backend = backend
        self.slots = slots
        self._limit_s = limit_s
        self._changed = threading.Condition()
        self._free_slots = list(reversed(range(slots)))
        self._waiting: list[deque[_Entry]] = [deque() for _ in range(lanes)]
        self._busy_lanes: set[int] = set()
        self._running: dict[int, tuple[_Entry, int]] = {}
        self._held = 0
        self._ending: BaseException | None = None
        self._next = 0
        self._collector = threading.Thread(
            target=_collect, args=(weakref.ref(self),), name="tessera-collect", daemon=True
        )
        self._collector.start()

    def submit(
        self, inputs: Mapping[str, Bytes], *, trace: int, lane: int, number: int | None = None
    ) -> Future[Completion]:
        """Give a request to the backend; waits while every slot is taken.

        `number` is what the request is called in results and errors.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._held < self.slots or self._ending is not None)
            if self._ending is not None:
                raise self._ending
            number = self._next if number is None else number
            self._next = max(self._next, number + 1)
            entry = _Entry(number, trace, lane, inputs, Future())
            self._held += 1
            self._waiting[lane].append(entry)
            self._start(lane)
            return entry.future

    def _start(self, lane: int) -> None:
        """Start the next request of a lane if there is one and the lane is free."""
        while self._ending is None and lane not in self._busy_lanes and self._waiting[lane]:
            entry = self._waiting[lane].popleft()
            if not entry.future.set_running_or_notify_cancel():
                self._held -= 1
                self._changed.notify_all()
                continue
            slot = self._free_slots.pop()
            self._busy_lanes.add(lane)
            self._running[entry.number] = entry, slot
            request = Request(
                number=entry.number, trace=entry.trace, slot=slot, lane=lane, inputs=entry.inputs
            )
            try:
                self.backend.begin(request)
            except BaseException as problem:
                self._end(problem)
            self._changed.notify_all()

    def _done(self, completion: Completion) -> None:
        with self._changed:
            entry, slot = self._running.pop(completion.request)
            self._free_slots.append(slot)
            self._busy_lanes.discard(entry.lane)
            self._held -= 1
            self._start(entry.lane)
            self._changed.notify_all()
        entry.future.set_result(completion)

    def _end(self, problem: BaseException) -> None:
        """No request starts or finishes from here on."""
        with self._changed:
            if self._ending is not None:
                return
            self._ending = problem
            lost = [entry for entry, _ in self._running.values()]
            waiting = [entry for lane in self._waiting for entry in lane]
            self._running.clear()
            self._changed.notify_all()
        for entry in waiting:
            if entry.future.set_running_or_notify_cancel():
                lost.append(entry)
        for entry in lost:
            entry.future.set_exception(problem)

    def step(self) -> bool:
        """Collect once; False when there is nothing more to do. For the collector's thread."""
        with self._changed:
            if not self._running and self._ending is None:
                self._changed.wait(_LOOK_S)
                return True
        try:
            completions = self.backend.collect(_LOOK_S) if self._ending is None else ()
            for completion in completions:
                self._done(completion)
            if not completions and self._running and self.backend.idle_s() > self._limit_s:
                raise self.backend.stalled()
        except BaseException as problem:
            self._end(problem)
        if self._ending is None:
            return True
        with self._changed:
            self.backend.close()
        return False

    def read_states(self, lane: int) -> Mapping[str, Bytes]:
        """The states of a lane; waits until no request is in it."""
        with self._changed:
            self._changed.wait_for(lambda: self._ending is not None or self._is_idle(lane))
            if self._ending is not None:
                raise self._ending
            return self.backend.read_states(lane)

    def _is_idle(self, lane: int) -> bool:
        return lane not in self._busy_lanes and not self._waiting[lane]

    def close(self, *, wait: bool = True) -> None:
        """Stop: after what was submitted is done, or at once; futures then have an error."""
        if wait:
            with self._changed:
                self._changed.wait_for(lambda: self._ending is not None or not self._held)
        self._end(closed())
        if threading.current_thread() is not self._collector:
            self._collector.join()
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
