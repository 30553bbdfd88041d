"""A set of bytes repeated at equal distances, along several dimensions.

In: intervals, and distances with counts. Out: the intervals of all repetitions. Short distances
come first, and each dimension is done by doubling what there is, so that pieces that touch have
grown together before they are repeated further: the work is that of the result, not of the count.
One interval that touches its repetitions is one again, and what is shorter than the distance is
only copied.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tessera.ir.arrays import Ranges
from tessera.passes.byte_sets import intervals

MOST_INTERVALS = 1 << 21

Steps = tuple[tuple[int, int], ...]
"""Distances and how often each is gone, the start included."""


class TooManyIntervals(Exception):
    """The repetitions have more pieces than can be kept."""


def repeated(ranges: Ranges, steps: Iterable[tuple[int, int]]) -> Ranges:
    """All repetitions of some bytes."""
    if len(ranges) == 0:
        return ranges
    for distance, count in sorted(steps, key=lambda step: abs(step[0])):
        if distance < 0:
            ranges, distance = intervals.shift(ranges, distance * (count - 1)), -distance
        ranges = _along(ranges, distance, count)
    return ranges


def _along(ranges: Ranges, distance: int, count: int) -> Ranges:
    """Sorted intervals that do not touch, repeated at a distance of at least 0."""
    start, end = int(ranges[0, 0]), int(ranges[-1, 1])
    if len(ranges) == 1 and distance <= end - start:
        return intervals.interval(start, end + distance * (count - 1))
    if distance > end - start:
        if len(ranges) * count > MOST_INTERVALS:
            raise TooManyIntervals
        steps = distance * np.arange(count, dtype=np.int64)
        return (ranges[None, :, :] + steps[:, None, None]).reshape(-1, 2)
    done = 1
    while done < count and distance:
        more = min(done, count - done)
        ranges = intervals.union([ranges, intervals.shift(ranges, distance * more)])
        done += more
        if len(ranges) > MOST_INTERVALS:
            raise TooManyIntervals
    return ranges
