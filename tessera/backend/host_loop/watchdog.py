"""Finds requests that make no progress.

In: every `LOOK_S` seconds, a mark per request under way, which changes whenever a device does
something for it. Out: the request for which nothing has happened for longer than the limit, and for
how long.

Progress of requests that began earlier excuses a request: earlier requests go first, and they end.
Progress of later requests does not, so a slot that hangs is found however busy the others are. A
look counts as at most one second: a host that was stopped, or busy with callbacks, has not waited
for the devices.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

LOOK_S = 0.2
"""Seconds between two looks."""

_AWAY_S = 5 * LOOK_S


@dataclass(frozen=True, slots=True, kw_only=True)
class StalledRequest:
    """A request without progress, and the duration in seconds."""

    request: int
    seconds: float


class Watchdog:
    """The last mark of every request under way, in the order in which they began."""

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._looked_s = clock()
        self._seen: dict[int, tuple[object, float]] = {}

    def is_due(self) -> bool:
        """Whether `LOOK_S` seconds have passed since the last look."""
        return self._clock() - self._looked_s >= LOOK_S

    def look(self, marks: Mapping[int, object]) -> StalledRequest | None:
        """Compare marks with the last look; `marks` are in the order in which requests began."""
        now_s = self._clock()
        passed_s = min(now_s - self._looked_s, _AWAY_S)
        self._looked_s = now_s
        seen: dict[int, tuple[object, float]] = {}
        excused = False
        for number, (mark, waited_s) in self._seen.items():
            excused = excused or number not in marks or marks[number] != mark
            if number in marks:
                seen[number] = marks[number], 0.0 if excused else waited_s + passed_s
        for number, mark in marks.items():
            seen.setdefault(number, (mark, 0.0))
        self._seen = seen
        for number, (_, waited_s) in seen.items():
            if waited_s > self._limit_s:
                return StalledRequest(request=number, seconds=waited_s)
        return None
