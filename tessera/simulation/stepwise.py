"""The event loop with requests that are submitted one by one, as earlier requests end.

In: requests, at the current time or later. Out: at each moment, the requests that have ended. Later
requests may depend on these, as in the steps of a generation.
"""

from __future__ import annotations

import heapq

from tessera.simulation.events import EventLoop
from tessera.simulation.hardware import UNLIMITED
from tessera.simulation.intake import Coming, MovingRequest


class StepwiseLoop(EventLoop):
    """All replicas on their devices and paths; the caller decides which requests arrive."""

    _just_ended: list[tuple[int, int]]

    def hand_in(self, replica: int, trace: int, sequence: int, now_ns: float) -> None:
        """Submit a request now; no work under way ends earlier."""
        self._now = now_ns
        self._age += 1
        intake = self._intakes[replica]
        coming = Coming(now_ns, trace, sequence)
        intake.queue.append(MovingRequest(intake, coming, self._age))
        self._changed.add(replica)

    def go_on(self, until_ns: float) -> tuple[float, list[tuple[int, int]]]:
        """Run until requests end; give the moment, with their replicas and sequences.

        The list is empty if `until_ns` comes first. Resources of ended requests are reassigned in
        the next call, after new requests have been submitted.
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
