"""Records which requests stand in line, wait for a slot, or run.

In: handles of requests, and completions. Out: the next request to begin, and the handles that end.
A request holds one of `capacity` tickets from when it is admitted to its end. While no ticket is
free, handles stand in line. Requests of one lane begin in the order of their submission; requests
of different lanes may overtake each other. After `end`, no request begins.

The lock is held only briefly, and no handle ends while it is held.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tessera.backend.host_loop.request_handle import RequestHandle
from tessera.backend.host_loop.slot_book import SlotBook
from tessera.backend.service import Completion, Request
from tessera.diagnostics import TesseraError, error

SomeHandle = RequestHandle[Any]


def closed() -> TesseraError:
    """The error of a request to a runtime that has been closed."""
    return TesseraError(error("TSR5050", "the runtime has been closed"))


class LaneHold:
    """A turn in a lane without a request: while it lasts, the lane has no request under way.

    It comes after the requests submitted before it, and before those submitted after it. `reached`
    is called when its turn comes, `failed` if it never comes; either must return at once.
    """

    def __init__(
        self, lane: int, reached: Callable[[], None], failed: Callable[[BaseException], None]
    ) -> None:
        self.lane = lane
        self.has_turn = False
        self._reached = reached
        self.failed = failed

    def reach(self) -> None:
        """Note that its turn has come."""
        if not self.has_turn:
            self.has_turn = True
            self._reached()


Entry = SomeHandle | LaneHold


def _lane(entry: Entry) -> int:
    return entry.lane if isinstance(entry, LaneHold) else entry.request.lane


class RequestBook:
    """The requests of one backend. Thread-safe."""

    def __init__(self, *, slots: int, lanes: int, depth: int) -> None:
        self.capacity = slots * depth
        self.line: deque[Entry] = deque()
        self.waiting: deque[Entry] = deque()
        self.holds = 0
        self.running: dict[int, SomeHandle] = {}
        self.ending: BaseException | None = None
        self._is_closing = False
        self._slots = SlotBook(slots=slots, lanes=lanes, depth=depth)
        self._next = 0
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._sleepers = 0

    @property
    def held(self) -> int:
        """The number of tickets that are taken."""
        return len(self.waiting) - self.holds + len(self.running)

    @property
    def is_shut(self) -> bool:
        """Whether new requests are refused."""
        return self._is_closing or self.ending is not None

    def is_idle(self, lane: int) -> bool:
        """Whether a lane has no request."""
        waiting = any(_lane(entry) == lane for entry in tuple(self.waiting))
        return self._slots.is_idle(lane) and not waiting

    def enter(self, entry: Entry) -> bool:
        """Put a handle or a hold in line; False if requests are refused."""
        with self._lock:
            if not self.is_shut:
                self.line.append(entry)
                self._admit()
            return not self.is_shut

    def _admit(self) -> None:
        """Give free tickets to the first handles in line; the caller holds the lock."""
        while self.line:
            handle = self.line[0]
            if isinstance(handle, LaneHold):
                self.holds += 1  # it takes no ticket
                self.waiting.append(handle)
                del self.line[0]
                continue
            if self.held >= self.capacity:
                return
            request = handle.request
            if request.number < 0:
                request.number = self._next
            self._next = max(self._next, request.number + 1)
            # The handle is in at least one of the two at any time, so an interrupt does not lose
            # it.
            self.waiting.append(handle)
            handle.has_ticket = True
            del self.line[0]

    def leave(self, handle: SomeHandle) -> None:
        """Take a handle out of the line, because its submitter has given up."""
        with self._lock:
            if handle in self.line:
                self.line.remove(handle)

    def next_request(self) -> Request | None:
        """The first request that is next in its lane and gets a slot."""
        full, place = set[int](), 0
        with self._lock:
            while self.ending is None and place < len(self.waiting):
                handle = self.waiting[place]
                lane = _lane(handle)
                if isinstance(handle, LaneHold):
                    if lane not in full and self._slots.is_idle(lane):
                        handle.reach()
                    full.add(lane)
                    place += 1
                    continue
                request = handle.request
                slot = None if lane in full else self._slots.take(lane)
                if slot is None:
                    full.add(lane)
                    place += 1
                    continue
                # The request is in at least one of the two at any time, so an interrupt does not
                # lose it.
                request.slot = slot
                self.running[request.number] = handle
                del self.waiting[place]
                if handle.begin():
                    return request
                del self.running[request.number]
                self._slots.give_back(slot, lane)
                self._pass_on()
        return None

    def finish(
        self, completions: Sequence[Completion], to: deque[tuple[SomeHandle, Completion]]
    ) -> None:
        """Move the handles of done requests to `to`, and free their slots and tickets."""
        with self._lock:
            for completion in completions:
                handle = self.running[completion.request]
                to.append((handle, completion))
                del self.running[completion.request]
                self._slots.give_back(handle.request.slot, handle.request.lane)
            self._pass_on()

    def _pass_on(self) -> None:
        """Give free tickets to waiting handles; the caller holds the lock."""
        self._admit()
        if self._sleepers:
            self._changed.notify_all()

    def release(self, hold: LaneHold) -> None:
        """End the turn of a hold, which may have ended with everything."""
        with self._lock:
            if hold in self.waiting:
                self.holds -= 1
                self.waiting.remove(hold)
            elif hold in self.line:
                self.line.remove(hold)
            self._pass_on()

    def numbers(self) -> list[int]:
        """The numbers of running requests, in the order in which they began."""
        with self._lock:
            return list(self.running)

    def refuse(self) -> None:
        """Refuse new requests from now on, and those that stand in line."""
        with self._lock:
            self._is_closing = True
            holds = [entry for entry in self.line if isinstance(entry, LaneHold)]
            self.line.clear()
            self._changed.notify_all()
        for hold in holds:
            hold.failed(closed())

    def end(self, problem: BaseException) -> list[SomeHandle] | None:
        """Begin nothing from now on; returns handles without a result, None if already ended."""
        with self._lock:
            if self.ending is not None:
                return None
            self.ending = problem
            running = list(self.running.values())
            entries = [*self.waiting, *self.line]
            waiting = [
                entry
                for entry in self.waiting
                if not isinstance(entry, LaneHold) and entry not in running
            ]
            self.holds = 0
            self.running.clear()
            self.waiting.clear()
            self.line.clear()
            self._changed.notify_all()
        for entry in entries:
            if isinstance(entry, LaneHold):
                entry.failed(problem)
        return [*running, *(handle for handle in waiting if handle.begin())]

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        """Sleep until a condition holds that the end of a request brings about."""
        with self._lock:
            self._sleepers += 1
            try:
                self._changed.wait_for(is_so)
            finally:
                self._sleepers -= 1
