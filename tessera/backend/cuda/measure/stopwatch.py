"""Times work on a stream, with a limit on every wait, and restores memory in between.

In: a function that hands work to a stream. Out: nanoseconds between two events around it. No call
here waits in the driver: the host polls, and gives up with TSR5052 if nothing has ended within the
time limit. Work that a GPU never finishes is then left until the process ends (`Stalled`), since
freeing memory would wait for it.
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
    """Work that did not end within the limit; no memory may be freed after it."""


class Stopwatch:
    """Two events of the current context.

    `what` names the timed work in errors. `is_stuck`: some work may not have ended.
    """

    def __init__(self, driver: Driver, limit_s: float) -> None:
        self._driver = driver
        self._limit_s = limit_s
        self._start = driver.event(timed=True)
        self._end = driver.event(timed=True)
        self.what = "the trace"
        self.is_stuck = False

    def close(self) -> None:
        """Release the events."""
        for event in (self._start, self._end):
            self._driver.destroy_event(event)

    def time(self, work: Callable[[], object], stream: Handle) -> float:
        """The nanoseconds that the work takes on the stream."""
        self._driver.record(self._start, stream)
        work()
        self.finish(stream)
        return float(self._driver.elapsed_ns(self._start, self._end))

    def finish(self, stream: Handle) -> None:
        """Wait until the stream has reached this point."""
        self._driver.record(self._end, stream)
        self.wait(self._end)

    def wait(self, *events: Handle) -> None:
        """Wait until all work before one of the events is done.

        After an exception, including Ctrl-C, work may remain that never ends. One poll counts as at
        most `_LOOK_S` seconds: a host that was busy elsewhere has not waited for the GPU.
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
    """Copies of memory as it is now, to be restored; none if there is no room for them."""

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
        """Restore the memory, in stream order."""
        for address, copy, size in self._copies:
            self._copy(address, copy, size)

    def close(self) -> None:
        """Free the copies."""
        for _, copy, _ in self._copies:
            self._driver.free(copy)

    def _copy(self, target: int, source: int, size: int) -> None:
        self._driver.call("cuMemcpyAsync", target, source, size, self._stream)
