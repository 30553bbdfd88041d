"""What has happened in a simulation.

In: nothing. Out: records, which the event loop fills and everything else reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Passage:
    """A request that went through: when it came, began and ended."""

    replica: int
    trace: int
    came_ns: float
    began_ns: float
    ended_ns: float


@dataclass(frozen=True, slots=True)
class Busy:
    """Something that a device or path did, for timelines."""

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
    """What has happened: requests in the order of their end, busy time by place, queue lengths.

    `waiting` are moments with the number of requests that had come and not begun.
    """

    passages: tuple[Passage, ...]
    busy_ns: Mapping[str, float]
    ended_ns: float
    operations: int
    waiting: tuple[tuple[float, int], ...] = ()
    timeline: tuple[Busy, ...] = ()
