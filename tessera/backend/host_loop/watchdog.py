"""Which request has stopped getting on.

In: now and then, a mark per request under way, which changes whenever a device does something for
it. Out: the request for which nothing has happened for longer than the limit, and for how long.

What happens for requests that began earlier is an excuse, since they go first: one may wait for
them, and they end. What happens for later ones is none, so a slot that hangs is found however busy
the others are. Time counts only as far as somebody looks: a host that was away, stopped or busy
with what it calls at the end of a request, has not waited for the devices.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

LOOK_S = 0.2
"""How often to look."""

_AWAY_S = 5 * LOOK_S


@dataclass(frozen=True, slots=True, kw_only=True)
class StalledRequest:
    """A request that does not get on, and for how long it has not."""

    request: int
    seconds: float


class Watchdog:
    """What was last seen of every request under way, in the order in which they began."""

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._looked_s = clock()
        self._seen: dict[int, tuple[object, float]] = {}

    def is_due(self) -> bool:
        """Whether it is time to look."""
        return self._clock() - self._looked_s >= LOOK_S

    def look(self, marks: Mapping[int, object]) -> StalledRequest | None:
        """Compare with what was seen before; `marks` are in the order of the requests' begin."""
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
