"""Assigns requests to slots.

In: lanes that want to begin a request, and slots that have ended one. Out: a slot, or None for now.
A slot takes up to `depth` requests, which run one after the other. Requests of one lane share
memory, so all its requests under way are in one slot, where they keep their order without a wait on
the host.

Invariant: while fewer than `slots * depth` requests are under way, a lane without requests under
way finds a slot. A lane with requests under way may have to wait for its slot.
"""

from __future__ import annotations


class SlotBook:
    """Requests under way, by slot and lane."""

    def __init__(self, *, slots: int, lanes: int, depth: int) -> None:
        self._depth = depth
        self._in_slot = [0] * slots
        self._in_lane = [0] * lanes
        self._slot_of = [lane % slots for lane in range(lanes)]
        self._last = [0] * slots
        self._taken = 0

    def take(self, lane: int) -> int | None:
        """A slot for the next request of a lane; None if it has to wait."""
        slot = self._slot_of[lane]
        if self._in_lane[lane]:
            if self._in_slot[slot] == self._depth:
                return None
        elif self._in_slot[slot]:
            slot = self._emptiest()
        self._taken += 1
        self._last[slot] = self._taken
        self._in_slot[slot] += 1
        self._in_lane[lane] += 1
        self._slot_of[lane] = slot
        return slot

    def _emptiest(self) -> int:
        """The slot with the fewest requests; among equals, the one whose last request is oldest."""
        return min(range(len(self._in_slot)), key=lambda s: (self._in_slot[s], self._last[s]))

    def give_back(self, slot: int, lane: int) -> None:
        """Note that a request of a lane in a slot has ended."""
        self._in_slot[slot] -= 1
        self._in_lane[lane] -= 1

    def is_idle(self, lane: int) -> bool:
        """Whether a lane has no request under way."""
        return not self._in_lane[lane]
