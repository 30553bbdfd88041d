"""The event loop with requests that are handed in one by one, as those before them end.

In: requests, at any time that is not past. Out: moment by moment, whose requests have ended. What
comes next may depend on what has ended, as in the steps of a generation.
"""

from __future__ import annotations

import heapq

from tessera.simulation.events import EventLoop
from tessera.simulation.hardware import UNLIMITED
from tessera.simulation.intake import Coming, MovingRequest


class StepwiseLoop(EventLoop):
    """All replicas on their devices and paths; whoever uses it decides what comes."""

    _just_ended: list[tuple[int, int]]

    def hand_in(self, replica: int, trace: int, sequence: int, now_ns: float) -> None:
        """A request comes now; nothing that is under way ends before."""
        self._now = now_ns
        self._age += 1
        intake = self._intakes[replica]
        coming = Coming(now_ns, trace, sequence)
        intake.queue.append(MovingRequest(intake, coming, self._age))
        self._changed.add(replica)

    def go_on(self, until_ns: float) -> tuple[float, list[tuple[int, int]]]:
        """Until requests end: the moment, with their replicas and sequences.

        None of them if the time comes first. What they were held by is given to others when this
        is called again, after new requests have been handed in.
        """
        self._just_ended = []
        self._moment()
        events = self._events
        while not self._just_ended:
            if not events or events[0][0] > until_ns:
                return until_ns, []
            now = self._now = events[0][0]
            while events and events[0][0] <= now:
                _, count, request, number = heapq.heappop(events)
                if count in self._cut:
                    self._cut.discard(count)
                elif request is not None:
                    self._end(request, number)
                elif number >= 0:
                    self._changed.add(number)
                else:
                    self._freed_ns = UNLIMITED
                    self._wires_changed = True
            if not self._just_ended:
                self._moment()
        return self._now, self._just_ended

    def _finish(self, request: MovingRequest) -> None:
        super()._finish(request)
        self._passages.clear()
        self._just_ended.append((request.replica.index, request.sequence))
