"""When to look whether a request is done: a nap until it should be, then short ones.

In: how long requests of a kind took, and when they were looked at. Out: when to look next. A GPU
tells that a request is done by a word in memory; to be woken up by it takes three more calls of
the driver and two threads. A nap that ends when the request does costs less than either. How long
a request takes is learned from those before: when they ended, and each time a little earlier, so
that most are found done at the first look, and late ones only until their pace is known.
"""

from __future__ import annotations

import threading
import time

_LEAST_NS = 20_000
_FIRST_STEP_NS = 2_000
# Naps end late by what the system adds to every one; more than this is not its habit.
_MOST_LATE_NS = 200_000
_FAR_NS = 1 << 62


class Pace:
    """What is known of how long requests of one kind take."""

    __slots__ = ("_step_ns", "aim_ns")

    def __init__(self) -> None:
        self.aim_ns = 0
        self._step_ns = _FIRST_STEP_NS

    def next_look(self, start_ns: int, now_ns: int) -> int:
        """When to look at a request that started then and is not done now.

        Late by an eighth of its time at most, whatever was expected.
        """
        over_ns = now_ns - start_ns - self.aim_ns
        if over_ns < 0:
            return now_ns - over_ns
        return now_ns + max(_LEAST_NS, min(over_ns >> 2, (now_ns - start_ns) >> 3))

    def learn(self, start_ns: int, looked_ns: int, found_ns: int) -> None:
        """A request was not done yet when it was looked at, and was when it was found."""
        lasted_ns, took_ns = looked_ns - start_ns, found_ns - start_ns
        if took_ns < self.aim_ns:
            self.aim_ns = took_ns
        elif lasted_ns >= self.aim_ns:
            # Too early costs short naps, too late is latency: up in small steps, down in large.
            most_ns = self.aim_ns + max(self.aim_ns >> 3, _LEAST_NS) if self.aim_ns else lasted_ns
            self.aim_ns = min((lasted_ns + took_ns) >> 1, most_ns)
            self._step_ns = _FIRST_STEP_NS
        elif lasted_ns >= 0:
            self.aim_ns -= min(self._step_ns, self.aim_ns >> 2)
            self._step_ns *= 2


class Nap:
    """Sleep of one thread that others can cut short."""

    def __init__(self) -> None:
        self._bell = threading.Lock()
        self._bell.acquire()
        self._late_ns = 0
        self._until_ns = 0

    def until(self, now_ns: int, until_ns: int) -> int:
        """Sleep until then; the time it is after that."""
        asked_ns = max(until_ns - now_ns - self._late_ns, 1_000)
        self._until_ns = until_ns
        rung = self._bell.acquire(timeout=asked_ns * 1e-9)
        self._until_ns = 0
        woken_ns = time.perf_counter_ns()
        if not rung:
            late_ns = min(woken_ns - now_ns - asked_ns, _MOST_LATE_NS)
            self._late_ns += (late_ns - self._late_ns) >> 3
        return woken_ns

    def end_by(self, until_ns: int) -> None:
        """Whoever sleeps longer than that wakes up now."""
        if self._until_ns > until_ns:
            try:
                self._bell.release()
            except RuntimeError:
                return  # rung already
