"""When to poll for the end of a request: sleep until just before it is expected, then poll closely.

In: the times at which requests of a kind began, and were seen to end. Out: the time of the next
poll. A GPU marks the end of a request by a word in memory. To be woken by the GPU instead takes
three more driver calls and two threads; a sleep that ends with the request costs less. Sleeps are
not exact to the microsecond, so a thread wakes up early, polls for the short rest, and measures
exactly how long the request took. A request that is done at the first poll may have been done for
some time: the first poll of each following request is a little earlier, until a poll sees a request
end again.

A request that begins while no other slot is busy has the GPU for itself unless others follow, and
may take less time than the previous request. Polls then begin at the least time that it may take,
and are more frequent: the host has nothing else to do, and a thread waits for the result.
"""

from __future__ import annotations

import threading
import time

AWAKE_NS = 40_000
"""Nanoseconds of close polling, and how long before the expected end it begins."""

_LEAST_NS = 20_000
# How much earlier the next first poll is: at least this many nanoseconds, and at least the duration
# shifted right by this many bits.
_EARLIER_NS, _EARLIER_SHIFT = 2_000, 10
# After this many requests in a row that were done at the first poll, the step doubles each time.
_PATIENCE = 8
# Weight of earlier measurements, in requests.
_OLD_COUNT = 8
# Largest delay of a sleep, in nanoseconds, that counts as the usual delay of the system.
_MOST_LATE_NS = 200_000
FAR_NS = 1 << 62


class Pace:
    """Durations of requests of one kind in one slot.

    `is_alone`: no other slot is busy when they begin. `aim_ns` is the expected duration.
    """

    __slots__ = ("_count", "_ended_ns", "_in_a_row", "_least_ns", "_seen_ns", "aim_ns", "is_alone")

    def __init__(self, *, is_alone: bool = False) -> None:
        self.is_alone = is_alone
        self.aim_ns = 0
        # The least duration of a request alone; 0 if it takes the expected time.
        self._least_ns = 0
        self._in_a_row = 0
        self._ended_ns = 0
        # When a request was last seen to end, and the number of requests that followed it back to
        # back.
        self._seen_ns = 0
        self._count = 0

    def next_look(self, start_ns: int, now_ns: int) -> int:
        """When to poll again for a request that started at `start_ns` and is not done.

        The poll is late by at most an eighth of the request's duration, whatever was expected.
        """
        over_ns = now_ns - start_ns - self.aim_ns
        if over_ns < 0:
            if not self._least_ns:
                return now_ns - over_ns
            apart_ns = min((self.aim_ns - self._least_ns) >> 2, (now_ns - start_ns) >> 3)
            step_ns = max(_LEAST_NS, apart_ns)
            return min(max(start_ns + self._least_ns, now_ns + step_ns), now_ns - over_ns)
        return now_ns + max(_LEAST_NS, min(over_ns >> 2, (now_ns - start_ns) >> 3))

    def learn(self, start_ns: int, looked_ns: int, found_ns: int, *, queued: bool) -> int:
        """The time at which a request ended that was done at `found_ns` but not at `looked_ns`.

        `queued`: it started when the previous request ended, at a time that this method returned.
        """
        if not queued or start_ns != self._ended_ns:
            self._seen_ns = self._count = 0
        self._count += 1
        if self.is_alone and not queued:
            self._least_ns = self._least(start_ns, looked_ns, found_ns)
            self.aim_ns, self._ended_ns = found_ns - start_ns, found_ns
            return found_ns
        self._least_ns = 0
        due_ns = start_ns + self.aim_ns
        if not self.aim_ns or looked_ns >= max(due_ns - AWAKE_NS, start_ns):
            self._ended_ns = self._see(start_ns, found_ns, queued)
        elif looked_ns < start_ns and found_ns >= due_ns:
            self._ended_ns = due_ns  # no thread had waited for it
        else:
            self._ended_ns = self._guess(due_ns, found_ns, queued)
        return self._ended_ns

    def _least(self, start_ns: int, looked_ns: int, found_ns: int) -> int:
        """The least that the next request may take, given the last poll of this one."""
        took_ns = found_ns - start_ns
        if looked_ns <= start_ns and self.aim_ns:  # done at the first poll
            self._in_a_row += 1
            return took_ns - (took_ns >> (2 if self._in_a_row == 1 else 1))
        self._in_a_row = 0
        if 0 < self.aim_ns < took_ns - (took_ns >> 3):
            return self.aim_ns  # others came; the next request may be as fast as earlier ones
        return looked_ns - start_ns if found_ns - looked_ns > 2 * AWAKE_NS else 0

    def _see(self, start_ns: int, found_ns: int, queued: bool) -> int:
        """A request was seen to end; learn its duration."""
        if not queued or not self.aim_ns:
            self.aim_ns = found_ns - start_ns
        elif self._seen_ns:
            wrong_ns = found_ns - self._seen_ns - self._count * self.aim_ns
            self.aim_ns += wrong_ns // (self._count + _OLD_COUNT)
        else:
            self.aim_ns += (found_ns - start_ns - self.aim_ns) >> 1
        self._seen_ns, self._count, self._in_a_row = found_ns, 0, 0
        return found_ns

    def _guess(self, due_ns: int, found_ns: int, queued: bool) -> int:
        """A request was done at the first poll, so it may have ended earlier; estimate when."""
        self._in_a_row += 1
        step_ns = max(_EARLIER_NS, self.aim_ns >> _EARLIER_SHIFT)
        step_ns <<= min(max(self._in_a_row - _PATIENCE, 0), 20)
        is_early = found_ns < due_ns
        if is_early:
            step_ns = max(step_ns, due_ns - found_ns)
            self._seen_ns = self._count = 0
        step_ns = min(step_ns, self.aim_ns >> 2)
        if is_early or not queued:
            self.aim_ns -= step_ns
        return min(due_ns - step_ns, found_ns)


class Paces(dict[tuple[int, int, int], Pace]):
    """Paces by trace, slot and number of busy slots: requests side by side take longer."""

    def __missing__(self, key: tuple[int, int, int]) -> Pace:
        self[key] = pace = Pace(is_alone=key[2] == 1)
        return pace


class Nap:
    """A sleep of one thread that other threads can cut short.

    `until_ns` is when it ends: 0 while the thread does something else, and `FAR_NS` while it
    decides how long to sleep, since it may miss requests that begin then.
    """

    def __init__(self) -> None:
        self._bell = threading.Lock()
        self._bell.acquire()
        self._late_ns = 0
        self.until_ns = 0

    def sleep(self, now_ns: int, until_ns: int) -> int:
        """Sleep until `until_ns`; returns the time afterwards."""
        asked_ns = max(until_ns - now_ns - self._late_ns, 1_000)
        self.until_ns = until_ns
        rung = self._bell.acquire(timeout=asked_ns * 1e-9)
        self.until_ns = FAR_NS
        woken_ns = time.perf_counter_ns()
        if not rung:
            late_ns = min(woken_ns - now_ns - asked_ns, _MOST_LATE_NS)
            self._late_ns += (late_ns - self._late_ns) >> 3
        return woken_ns

    def end_by(self, until_ns: int) -> None:
        """Wake the thread if it sleeps longer than until `until_ns`."""
        if self.until_ns > until_ns:
            try:
                self._bell.release()
            except RuntimeError:
                return  # it has been woken already
