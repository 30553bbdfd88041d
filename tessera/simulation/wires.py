"""Transfers under way: which transfers wait for a capacity, and which hold it.

In: ready transfers and the current time. Out: the transfers that begin. A transfer takes its rate
from every capacity of its path, oldest first; a transfer that waits for a capacity blocks younger
ones from it. Released capacity is counted when another transfer asks for it.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Iterator, Sequence

from tessera.simulation.hardware import UNLIMITED
from tessera.simulation.intake import MovingRequest

SLACK = 1e-9
"""Capacities are sums of floats: an excess up to this share is not an overload."""


class Wires:
    """The capacities by place, in bytes per second, and the transfers that wait for them."""

    def __init__(self, whole: Sequence[float]) -> None:
        self._whole = whole
        self._room = list(whole)
        self._slack = [SLACK * capacity for capacity in whole]
        self._waiting: list[tuple[int, int, MovingRequest]] = []
        self._held: list[tuple[float, int, float, tuple[int, ...]]] = []
        self._count = 0

    def want(self, request: MovingRequest, node: int) -> None:
        """Add a transfer that is ready."""
        bisect.insort(self._waiting, (request.age, node, request))

    def begin(self, now: float, busy_ns: list[float]) -> list[tuple[MovingRequest, int]]:
        """Begin the transfers whose path has room, oldest first; adds their time to `busy_ns`."""
        room, held, slack = self._room, self._held, self._slack
        while held and held[0][0] <= now:
            _, _, rate, places = heapq.heappop(held)
            for place in places:
                room[place] += rate
        claimed: set[int] = set()
        begun, kept = [], []
        for entry in self._waiting:
            _, node, request = entry
            columns = request.columns
            rate, places = columns.rate[node], columns.place[node]
            short = [p for p in places if p in claimed or room[p] + slack[p] < rate]
            if short:
                claimed.update(short)
                kept.append(entry)
                continue
            ns = columns.ns[node]
            for place in places:
                room[place] -= rate
                busy_ns[place] += ns * rate / self._whole[place]
            self._count += 1
            heapq.heappush(held, (now + ns, self._count, rate, places))
            begun.append((request, node))
        self._waiting = kept
        return begun

    @property
    def is_wanted(self) -> bool:
        """Whether a transfer waits."""
        return bool(self._waiting)

    @property
    def free_at_ns(self) -> float:
        """The earliest time at which capacity is released."""
        return self._held[0][0] if self._held else UNLIMITED

    def ahead_ns(self, now: float) -> Iterator[tuple[int, float]]:
        """Places with the remaining busy time of the transfers under way."""
        for at_ns, _, rate, places in self._held:
            for place in places if at_ns > now else ():
                yield place, (at_ns - now) * rate / self._whole[place]
