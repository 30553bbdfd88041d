"""Times of work on a stream, with an end to all waiting, and memory put back in between.

In: something that hands work to a stream. Out: nanoseconds between two events around it. No call
here waits in the driver: the host asks again and again, and gives up with TSR5052 when nothing has
ended for the time limit. What a GPU never finishes is then left to the process's end (`Stalled`):
to free memory would wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tessera.backend.cuda.api import Driver, DriverError, Handle
from tessera.backend.service import ServiceFault
from tessera.diagnostics import error

_EAGER_S = 2e-3
_PAUSE_S = 50e-6
_LOOK_S = 5e-3


class Stalled(ServiceFault):
    """Work that did not end within the limit; nothing may be freed after it."""


class Stopwatch:
    """Two events of the current context.

    `what` says what is being timed, for the error. `is_stuck`: something may not have ended.
    """

    def __init__(self, driver: Driver, limit_s: float) -> None:
        self._driver = driver
        self._limit_s = limit_s
        self._start = driver.event(timed=True)
        self._end = driver.event(timed=True)
        self.what = "the trace"
        self.is_stuck = False

    def close(self) -> None:
        """Give the events back."""
        for event in (self._start, self._end):
            self._driver.destroy_event(event)

    def time(self, work: Callable[[], object], stream: Handle) -> float:
        """Nanoseconds that the work takes the stream."""
        self._driver.record(self._start, stream)
        work()
        self.finish(stream)
        return float(self._driver.elapsed_ns(self._start, self._end))

    def finish(self, stream: Handle) -> None:
        """Wait until the stream has come here."""
        self._driver.record(self._end, stream)
        self.wait(self._end)

    def wait(self, *events: Handle) -> None:
        """Wait until all before one of the events is done.

        After an exception, also Ctrl-C, work may be left that never ends. One poll counts for
        `_LOOK_S` seconds at most: a host that was busy elsewhere has not waited for the GPU.
        """
        begun = last = time.perf_counter()
        waited = 0.0
        was_stuck, self.is_stuck = self.is_stuck, True
        while not any(map(self._driver.is_done, events)):
            now = time.perf_counter()
            waited += min(now - last, _LOOK_S)
            last = now
            if waited > self._limit_s:
                raise Stalled(
                    error(
                        "TSR5052",
                        f"{self.what} has not ended after {now - begun:.1f} s",
                        hint="a kernel that never ends when it runs alone and again and again, "
                        "or a limit that is too short (`--time-limit`)",
                    )
                )
            if waited > _EAGER_S:
                time.sleep(_PAUSE_S)
        self.is_stuck = was_stuck


class Held:
    """Copies of memory as it is now, to be put back; none if there is no room for them."""

    def __init__(self, driver: Driver, stream: Handle, ranges: Sequence[tuple[int, int]]) -> None:
        self._driver = driver
        self._stream = stream
        self._copies: list[tuple[int, int, int]] = []
        for address, size in ranges:
            if not size:
                continue
            try:
                self._copies.append((address, driver.allocate(size), size))
            except DriverError:
                break
            self._copy(self._copies[-1][1], address, size)

    def restore(self) -> None:
        """Put the memory back, in the order of the stream."""
        for address, copy, size in self._copies:
            self._copy(address, copy, size)

    def close(self) -> None:
        """Give the copies back."""
        for _, copy, _ in self._copies:
            self._driver.free(copy)

    def _copy(self, target: int, source: int, size: int) -> None:
        self._driver.call("cuMemcpyAsync", target, source, size, self._stream)
