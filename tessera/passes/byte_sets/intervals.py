"""Sets of bytes as arrays of sorted, disjoint intervals that do not touch.

In and out: int64 arrays of shape (n, 2) with starts and ends (exclusive).

`repeated` repeats a set of bytes at equal distances, along several dimensions. It takes the
dimensions from the shortest distance to the longest, and doubles the set along each, so that pieces
that touch are merged before they are repeated further: the work depends on the size of the result,
not on the count. A single interval that touches its repetitions stays a single interval, and a set
shorter than the distance is only copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tessera.ir.arrays import Integers, Offsets, Ranges

EMPTY: Ranges = np.zeros((0, 2), dtype=np.int64)
MOST_INTERVALS = 1 << 21
T = TypeVar("T", bound=np.integer)


def interval(start: int, end: int) -> Ranges:
    """A set of one interval; the empty set if the interval is empty."""
    return np.array([[start, end]], dtype=np.int64) if start < end else EMPTY


def union(parts: Sequence[Ranges]) -> Ranges:
    """All bytes of the parts, which may overlap and need no order."""
    if not parts:
        return EMPTY
    ranges = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if len(ranges) <= 1:
        return ranges
    if (ranges[1:, 0] < ranges[:-1, 0]).any():
        ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
    # The furthest end so far: an interval that starts beyond it is not merged with those before it.
    reach = np.maximum.accumulate(ranges[:, 1])
    first = np.ones(len(ranges), dtype=np.bool_)
    first[1:] = ranges[1:, 0] > reach[:-1]
    last = np.append(np.flatnonzero(first)[1:] - 1, len(ranges) - 1)
    return np.stack([ranges[first, 0], reach[last]], axis=1)


def is_sorted(starts: Integers) -> bool:
    """Whether numbers never decrease."""
    return not (starts[1:] < starts[:-1]).any()


def words(starts: Offsets, width: int) -> Ranges:
    """The bytes of words of one width at these starts."""
    if len(starts) == 0:
        return EMPTY
    steps = np.diff(starts)
    if (steps < 0).any():
        starts = np.sort(starts)
        steps = np.diff(starts)
    breaks = np.flatnonzero(steps > width)
    first = np.append(starts[:1], starts[breaks + 1])
    last = np.append(starts[breaks], starts[-1:])
    return np.stack([first, last + width], axis=1)


def clip(ranges: Ranges, start: int, end: int) -> Ranges:
    """The bytes from `start` to `end` (exclusive)."""
    if len(ranges) == 0 or (ranges[0, 0] >= start and ranges[-1, 1] <= end):
        return ranges
    cut = np.clip(ranges, start, end)
    return cut[cut[:, 0] < cut[:, 1]]


def shift(ranges: Ranges, offset: int) -> Ranges:
    """The ranges moved by an offset in bytes."""
    return ranges + np.int64(offset) if offset else ranges


def intersect(left: Ranges, right: Ranges) -> Ranges:
    """The bytes in both."""
    if len(left) == 0 or len(right) == 0:
        return EMPTY
    # Per interval of `left`, the run of intervals of `right` that overlap it.
    first = np.searchsorted(right[:, 1], left[:, 0], side="right")
    last = np.searchsorted(right[:, 0], left[:, 1], side="left")
    count = np.maximum(last - first, 0)
    owner = np.repeat(np.arange(len(left)), count)
    begin = np.cumsum(count) - count
    other = np.arange(len(owner)) - np.repeat(begin, count) + np.repeat(first, count)
    starts = np.maximum(left[owner, 0], right[other, 0])
    ends = np.minimum(left[owner, 1], right[other, 1])
    return np.stack([starts, ends], axis=1)


def subtract(left: Ranges, right: Ranges) -> Ranges:
    """The bytes of `left` that are not in `right`."""
    if len(left) == 0 or len(right) == 0:
        return left
    edges = np.concatenate([right[:, :1].ravel(), right[:, 1:].ravel()])
    low = int(min(left[0, 0], edges.min())) - 1
    high = int(max(left[-1, 1], edges.max())) + 1
    ends = np.append(right[:, 0], high)
    starts = np.insert(right[:, 1], 0, low)
    return intersect(left, np.stack([starts, ends], axis=1))


def covers(outer: Ranges, inner: Ranges) -> bool:
    """Whether every byte of `inner` is in `outer`."""
    return size(intersect(inner, outer)) == size(inner)


def size(ranges: Ranges) -> int:
    """The number of bytes."""
    return int((ranges[:, 1] - ranges[:, 0]).sum())


def pairs(ranges: Ranges) -> tuple[tuple[int, int], ...]:
    """The intervals as pairs of plain numbers."""
    return tuple((int(s), int(e)) for s, e in ranges)


def from_pairs(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Intervals from pairs of plain numbers, in any order."""
    listed = list(ranges)
    return union([np.array(listed, dtype=np.int64).reshape(-1, 2)]) if listed else EMPTY


def narrow_to(ranges: Ranges, most: int) -> Ranges:
    """At most `most` intervals that cover the given bytes, with the smallest gaps filled."""
    if len(ranges) <= most:
        return ranges
    gaps = ranges[1:, 0] - ranges[:-1, 1]
    by_size = np.argsort(gaps, kind="stable")
    keep = np.sort(by_size[len(gaps) - (most - 1) :])
    starts = np.append(ranges[:1, 0], ranges[1:, 0][keep])
    ends = np.append(ranges[:-1, 1][keep], ranges[-1:, 1])
    return np.stack([starts, ends], axis=1)


def distinct(values: NDArray[T]) -> NDArray[T]:
    """The distinct integers of an array of any shape, in ascending order.

    `numpy.unique` does the same, but imports NumPy's masked arrays, which takes longer than the
    analysis of a small trace.
    """
    ordered = np.sort(values, axis=None)
    is_first = np.ones(ordered.shape, dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]


class TooManyIntervals(Exception):
    """The repetitions have more pieces than can be kept."""


def repeated(ranges: Ranges, steps: Iterable[tuple[int, int]]) -> Ranges:
    """All repetitions of a set of bytes. `steps` has distances in bytes and counts; a count
    includes the start."""
    if len(ranges) == 0:
        return ranges
    for distance, count in sorted(steps, key=lambda step: abs(step[0])):
        if distance < 0:
            ranges, distance = shift(ranges, distance * (count - 1)), -distance
        ranges = _along(ranges, distance, count)
    return ranges


def _along(ranges: Ranges, distance: int, count: int) -> Ranges:
    """Repeat sorted intervals that do not touch at a distance of at least 0 bytes."""
    start, end = int(ranges[0, 0]), int(ranges[-1, 1])
    if len(ranges) == 1 and distance <= end - start:
        return interval(start, end + distance * (count - 1))
    if distance > end - start:
        if len(ranges) * count > MOST_INTERVALS:
            raise TooManyIntervals
        steps = distance * np.arange(count, dtype=np.int64)
        return (ranges[None, :, :] + steps[:, None, None]).reshape(-1, 2)
    done = 1
    while done < count and distance:
        more = min(done, count - done)
        ranges = union([ranges, shift(ranges, distance * more)])
        done += more
        if len(ranges) > MOST_INTERVALS:
            raise TooManyIntervals
    return ranges
