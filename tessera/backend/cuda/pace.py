"""When to look whether a request is done: a nap until just before it should be, then a close watch.

In: when requests of a kind began, and were seen to end. Out: when to look next. A GPU tells that a
request is done by a word in memory; to be woken up by it takes three more calls of the driver and
two threads. A nap that ends when the request does costs less than either. Naps do not end to the
microsecond, so who wakes up early stays awake for the short rest, and learns exactly how long the
request took. One that is done at the first look may have been so for a while: it is looked for a
little earlier each time, until one is seen to end again.

A request that begins while no other slot is busy has nobody to share the GPU with, unless others
follow: it may take a part of what the one before took. Then it is looked for more often, from the
least that it may take on: the host has nothing else to do, and somebody waits for it.
"""

from __future__ import annotations

import threading
import time

AWAKE_NS = 40_000
"""How long before a request should be done, and for how long, to watch it."""

_LEAST_NS = 20_000
# How much earlier to look next time: at least so much, and this part of the time it takes.
_EARLIER_NS, _EARLIER_SHIFT = 2_000, 10
# After so many in a row that were done at the first look: twice as much each time.
_PATIENCE = 8
# A mean over so many requests counts as much as all that is known from before.
_OLD_COUNT = 8
# Naps end late by what the system adds to every one; more than this is not its habit.
_MOST_LATE_NS = 200_000
FAR_NS = 1 << 62


class Pace:
    """What is known of how long requests of one kind take in one slot.

    `is_alone`: no other slot is busy when they begin.
    """

    __slots__ = ("_count", "_ended_ns", "_in_a_row", "_least_ns", "_seen_ns", "aim_ns", "is_alone")

    def __init__(self, *, is_alone: bool = False) -> None:
        self.is_alone = is_alone
        self.aim_ns = 0
        # One alone may take so little, for all that is known; 0: it takes what it should.
        self._least_ns = 0
        self._in_a_row = 0
        self._ended_ns = 0
        # One was seen to end then; so many have followed it, each right after the other.
        self._seen_ns = 0
        self._count = 0

    def next_look(self, start_ns: int, now_ns: int) -> int:
        """When to look at a request that started then and is not done now.

        Late by an eighth of its time at most, whatever was expected.
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
        """When a request ended that was found done, and not done yet when it was looked at before.

        `queued`: it started when the one before it ended, which is only known from here.
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
            self._ended_ns = due_ns  # nobody had waited for it
        else:
            self._ended_ns = self._guess(due_ns, found_ns, queued)
        return self._ended_ns

    def _least(self, start_ns: int, looked_ns: int, found_ns: int) -> int:
        """What the next one may take at least, given when this one was not done yet."""
        took_ns = found_ns - start_ns
        if looked_ns <= start_ns and self.aim_ns:  # done at the first look
            self._in_a_row += 1
            return took_ns - (took_ns >> (2 if self._in_a_row == 1 else 1))
        self._in_a_row = 0
        if 0 < self.aim_ns < took_ns - (took_ns >> 3):
            return self.aim_ns  # others came: the next one may be as fast as those before
        return looked_ns - start_ns if found_ns - looked_ns > 2 * AWAKE_NS else 0

    def _see(self, start_ns: int, found_ns: int, queued: bool) -> int:
        """A request has ended before the eyes of somebody."""
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
        """A request was done at the first look: it may have ended earlier."""
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
    """Paces by trace, slot and how many slots are busy: requests side by side take longer."""

    def __missing__(self, key: tuple[int, int, int]) -> Pace:
        self[key] = pace = Pace(is_alone=key[2] == 1)
        return pace


class Nap:
    """Sleep of one thread that others can cut short.

    `until_ns` is when it ends: 0 while the thread does something else, `FAR_NS` while it looks what
    there is to wait for, since it may miss what comes then.
    """

    def __init__(self) -> None:
        self._bell = threading.Lock()
        self._bell.acquire()
        self._late_ns = 0
        self.until_ns = 0

    def sleep(self, now_ns: int, until_ns: int) -> int:
        """Sleep until then; the time it is after that."""
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
        """Whoever sleeps longer than that wakes up now."""
        if self.until_ns > until_ns:
            try:
                self._bell.release()
            except RuntimeError:
                return  # rung already
