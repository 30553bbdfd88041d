"""The host loop that every backend shares: slots, lanes, back-pressure, handles, a watchdog.

In: a `Backend`, and requests from any thread. Out: a handle per request. A slot takes as many
requests at a time as the backend's `depth`; a request holds one of `slots * depth` tickets from
`submit` to its end. While there is none, those who submit stand in line; who ends a request hands
its ticket to the first of them. Requests of one lane run one after the other, in the order of
their submission; those of different lanes pass each other. A fault ends everything: handles of
requests that had finished keep their results, all others get the fault.

Who waits for anything collects what is done, if nobody else does: the thread that would otherwise
be woken up. A thread in the background collects while anybody relies on it: who waits while
another thread collects, handles that call something at their end, and backends that have only
one thread collect. It also looks now and then whether something has ended that nobody waits for,
or nothing happens any more. What is called when a handle is done runs in the thread that collects:
if it waits for another request, it collects meanwhile.

Four locks. `_books` guards what is known of requests, `_counting` how many rely on the background
thread: both for moments. `_beginning` is held while requests begin, in the order of the books, and
by whoever wants that none begins; `_collecting` by whoever collects. Who needs several takes
`_collecting` first, then `_beginning`. No handle ends while `_books` or `_beginning` is held.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tessera.backend.host_loop.collector import closed, keep_collecting
from tessera.backend.host_loop.request_handle import Outcome, RequestHandle, fail_all
from tessera.backend.host_loop.slot_book import SlotBook
from tessera.backend.host_loop.watchdog import LOOK_S, Watchdog
from tessera.backend.service import (
    DEFAULT_LIMIT_S,
    Backend,
    Bytes,
    Completion,
    InPlace,
    PatientBackend,
    Request,
)

SomeHandle = RequestHandle[Any]
NOTHING: InPlace = MappingProxyType({})


class Dispatcher:
    """Requests to one backend. Usable from threads."""

    def __init__(
        self, backend: Backend, *, slots: int, lanes: int, limit_s: float = DEFAULT_LIMIT_S
    ) -> None:
        self.backend = backend
        self.capacity = slots * backend.depth
        self._watchdog = Watchdog(limit_s)
        self._books = threading.Lock()
        self._beginning = threading.Lock()
        self._collecting = threading.Lock()
        self._ended = threading.Condition(self._books)
        self._asleep = 0
        self._slots = SlotBook(slots=slots, lanes=lanes, depth=backend.depth)
        self._line: deque[SomeHandle] = deque()
        self._waiting: deque[SomeHandle] = deque()
        self._running: dict[int, SomeHandle] = {}
        self._found: deque[tuple[SomeHandle, Completion]] = deque()
        self._closing = False
        self._ending: BaseException | None = None
        self._next = 0
        self._patient = backend if isinstance(backend, PatientBackend) else None
        self._collects_here = 0
        self._counting = threading.Lock()
        self._relying = 0 if self._patient else 1
        self._called = threading.Event()
        self._collector = threading.Thread(
            target=keep_collecting, args=(weakref.ref(self),), name="tessera-collect", daemon=True
        )
        self._collector.start()

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
        """Give a request to the backend; stands in line while every ticket is taken.

        `number` is what the request is called in results and errors. `in_place` are inputs that
        the backend has located. The handle has the completion, or what `finish` makes of it.
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
            with self._books:
                if not self._is_shut():
                    self._line.append(handle)
                    self._admit()
            if not handle.has_ticket:
                self._wait_until(lambda: handle.has_ticket or self._is_shut())
        except BaseException:
            self._give_up(handle)
            raise
        if not handle.has_ticket:
            # Not with the tracebacks of all who were told the same.
            raise (self._ending or closed()).with_traceback(None)
        self._begin_all()
        return handle

    def _is_shut(self) -> bool:
        return self._closing or self._ending is not None

    def _admit(self) -> None:
        """Tickets to those who stand in line first; who calls this holds `_books`."""
        while self._line and self._held < self.capacity:
            handle = self._line[0]
            request = handle.request
            if request.number < 0:
                request.number = self._next
            self._next = max(self._next, request.number + 1)
            # In one of the two at any time: an interrupt must not lose it.
            self._waiting.append(handle)
            handle.has_ticket = True
            del self._line[0]

    def _give_up(self, handle: SomeHandle) -> None:
        """Whoever submitted it has been interrupted: nobody will have the handle."""
        with self._books:
            if handle in self._line:
                self._line.remove(handle)
        handle.cancel()

    def _begin_all(self) -> None:
        """Begin every request that can."""
        try:
            with self._beginning:
                while self._waiting:
                    with self._books:
                        request = self._next_request()
                    if request is None:
                        return
                    self.backend.begin(request)
                    if self._relying:
                        self._called.set()
        except BaseException as problem:
            self._end_here(problem)

    def _next_request(self) -> Request | None:
        """The first request whose lane has come to it and has a slot."""
        full, place = set[int](), 0
        while self._ending is None and place < len(self._waiting):
            handle = self._waiting[place]
            request, lane = handle.request, handle.request.lane
            slot = None if lane in full else self._slots.take(lane)
            if slot is None:
                full.add(lane)
                place += 1
                continue
            # In one of the two at any time: an interrupt must not lose it.
            request.slot = slot
            self._running[request.number] = handle
            del self._waiting[place]
            if handle.begin():
                return request
            del self._running[request.number]
            self._slots.give_back(slot, lane)
            self._pass_on()
        return None

    @property
    def _held(self) -> int:
        """How many tickets are taken."""
        return len(self._waiting) + len(self._running)

    def _pass_on(self) -> None:
        """Tickets are free again; who calls this holds `_books`."""
        self._admit()
        if self._asleep:
            self._ended.notify_all()

    def _done(self, completions: Sequence[Completion]) -> None:
        """End the handles of what is done; what they call may get here again."""
        current: SomeHandle | None = None
        try:
            with self._books:
                for completion in completions:
                    handle = self._running[completion.request]
                    self._found.append((handle, completion))
                    del self._running[completion.request]
                    self._slots.give_back(handle.request.slot, handle.request.lane)
                self._pass_on()
            if self._waiting:
                self._begin_all()
            while self._found:
                current, completion = self._found[0]
                del self._found[0]
                current.finish(completion)
        except BaseException as problem:
            fail_all(() if current is None else (current,), problem)
            self._finish_rest(problem)
            raise

    def _finish_rest(self, problem: BaseException) -> None:
        """Everything ends, but what had finished before keeps its results."""
        while self._found:
            handle, completion = self._found[0]
            del self._found[0]
            try:
                handle.finish(completion)
            except BaseException:
                fail_all((handle,), problem)

    def _end(self, problem: BaseException) -> BaseException | None:
        """No request starts or finishes from here on; what somebody who was told of it raised."""
        with self._books:
            if self._ending is not None:
                return None
            self._ending = problem
            running = list(self._running.values())
            waiting = [handle for handle in self._waiting if handle not in running]
            self._running.clear()
            self._waiting.clear()
            self._line.clear()
            self._ended.notify_all()
        self._called.set()
        return fail_all([*running, *(handle for handle in waiting if handle.begin())], problem)

    # --- who collects -------------------------------------------------------------------------

    def collect_until(self, is_so: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Collect in this thread until something is so, or the time is over.

        False where others collect, and where the end has come.
        """
        if self._collects_here == threading.get_ident():
            return self._collect_until(is_so, timeout_s)
        if self._patient is None or self._relying or not self._collecting.acquire(blocking=False):
            return False
        try:
            self._collects_here = threading.get_ident()
            return self._collect_until(is_so, timeout_s)
        finally:
            self._collects_here = 0
            self._collecting.release()

    def _collect_until(self, is_so: Callable[[], bool], timeout_s: float | None) -> bool:
        """Who calls this holds `_collecting`."""
        limit = None if timeout_s is None else time.monotonic() + timeout_s
        # It may be so by now, by who has collected before: looked at first.
        while not is_so():
            if self._ending is not None:
                return False
            left = LOOK_S if limit is None else max(min(LOOK_S, limit - time.monotonic()), 0.0)
            if self._patient is None:
                self._collect(left)
            else:
                # An interrupt ends a wait and leaves everything as it is.
                if left and not self._found:
                    self._patient.wait(left)
                self._collect(0.0)
            if not left:
                break
        return True

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
                self._asleep += 1
                try:
                    self._ended.wait_for(is_so)
                finally:
                    self._asleep -= 1
        finally:
            self.rely(-1)

    def _collect(self, timeout_s: float) -> None:
        """Take what is done; who calls this holds `_collecting`."""
        try:
            # Something is found already where this is called at the end of a handle.
            completions = () if self._found else self.backend.collect(timeout_s)
            if completions or self._found:
                self._done(completions)
            if self._watchdog.is_due():
                self._look_after()
        except BaseException as problem:
            self._end_here(problem)

    def _look_after(self) -> None:
        """Raise if some request does not get on."""
        marks = self.backend.progress()
        with self._books:
            stalled = self._watchdog.look({number: marks.get(number) for number in self._running})
        if stalled is not None:
            raise self.backend.stalled(stalled.request, stalled.seconds)

    def _end_here(self, problem: BaseException) -> None:
        """End, for a problem in this thread; an interrupt is for whoever waits or submits here."""
        raised = self._end(problem)
        if threading.current_thread() is self._collector:
            return
        if raised is not None:
            raise raised
        if not isinstance(problem, Exception):
            raise problem

    def step(self) -> bool:
        """Collect if it has to be here; False at the end. For the collector's thread."""
        if not (self._relying and self._running):
            self._called.wait(LOOK_S)
            self._called.clear()
        if self._waiting and not self._running:
            self._begin_all()  # an interrupt has kept who submitted from it
        if self._ending is None and self._running:
            patience_s = LOOK_S if self._relying else 0.0
            if self._collecting.acquire(timeout=patience_s):
                try:
                    self._collects_here = threading.get_ident()
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
        return self._between(lane, lambda: self.backend.read_states(lane))

    def write_states(self, lane: int, states: Mapping[str, Bytes]) -> None:
        """Set some states of a lane, in the same way."""
        self._between(lane, lambda: self.backend.write_states(lane, states))

    def _between(self, lane: int, call: Callable[[], Outcome]) -> Outcome:
        while True:
            if not self._is_idle(lane) and self._ending is None:
                self._wait_until(lambda: self._ending is not None or self._is_idle(lane))
            with self._beginning:
                if self._ending is not None:
                    raise self._ending.with_traceback(None)
                if self._is_idle(lane):
                    return call()

    def _is_idle(self, lane: int) -> bool:
        waiting = any(handle.request.lane == lane for handle in tuple(self._waiting))
        return self._slots.is_idle(lane) and not waiting

    def refuse(self) -> None:
        """Take no request from here on, nor those that stand in line."""
        with self._books:
            self._closing = True
            self._line.clear()
            self._ended.notify_all()

    def close(self, *, wait: bool = True) -> None:
        """Stop: after what was submitted is done, or at once; handles then have an error."""
        if wait and self._ending is None:
            self.refuse()
            if self._held:
                self._wait_until(lambda: self._ending is not None or not self._held)
        raised = self._end(closed())
        # Called at the end of a handle: the collector's thread closes the backend.
        if self._collects_here != threading.get_ident():
            self._collector.join()
            self._close_backend()
        if raised is not None:
            raise raised

    def _close_backend(self) -> None:
        with self._collecting, self._beginning:
            self.backend.close()
