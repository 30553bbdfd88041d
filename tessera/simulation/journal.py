"""Records of the events in a simulation.

In: nothing. Out: records, which the event loop fills and everything else reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Passage:
    """A completed request: when it arrived, began and ended."""

    replica: int
    trace: int
    came_ns: float
    began_ns: float
    ended_ns: float


@dataclass(frozen=True, slots=True)
class Busy:
    """An interval in which a device or path was busy, for timelines."""

    place: tuple[str, ...]
    replica: int
    trace: int
    request: int
    slot: int
    node: int
    start_ns: float
    end_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The record of a simulation: requests by their end, busy time by place, queue lengths.

    `waiting` holds moments with the number of requests that had arrived and not begun.
    """

    passages: tuple[Passage, ...]
    busy_ns: Mapping[str, float]
    ended_ns: float
    operations: int
    waiting: tuple[tuple[float, int], ...] = ()
    timeline: tuple[Busy, ...] = ()
