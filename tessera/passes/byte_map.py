"""A map from the bytes of a buffer (or an area) to values, kept as sorted ranges.

In: ranges of bytes and values that compare by value. Out: the ranges with one value each; equal
neighbours are one. An access splits ranges at its ends, so the cost is near-linear in the number of
ranges that it covers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

V = TypeVar("V")


@dataclass(slots=True)
class ByteMap(Generic[V]):
    """Bytes 0 to `size`, all with one value at first."""

    size: int
    first: V
    starts: list[int] = field(init=False)
    values: list[V] = field(init=False)

    def __post_init__(self) -> None:
        self.starts = [0]
        self.values = [self.first]

    def get(self, ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, V]]:
        """The parts of these bytes that have one value, in order of the ranges."""
        for start, end in ranges:
            place = bisect_right(self.starts, start) - 1
            while place < len(self.starts) and self.starts[place] < end:
                after = self.starts[place + 1] if place + 1 < len(self.starts) else self.size
                low, high = max(self.starts[place], start), min(after, end)
                if low < high:
                    yield low, high, self.values[place]
                place += 1

    def change(self, ranges: Iterable[tuple[int, int]], new: Callable[[V], V]) -> None:
        """Give each of these bytes the value that `new` makes of its old one."""
        for start, end in ranges:
            if start >= end:
                continue
            first = self._split(start)
            last = self._split(end) if end < self.size else len(self.starts)
            for place in range(first, last):
                self.values[place] = new(self.values[place])
            self._merge(first, last)

    def set(self, ranges: Iterable[tuple[int, int]], value: V) -> None:
        """Give all of these bytes one value."""
        self.change(ranges, lambda _: value)

    def _split(self, at: int) -> int:
        place = bisect_right(self.starts, at) - 1
        if self.starts[place] == at:
            return place
        self.starts.insert(place + 1, at)
        self.values.insert(place + 1, self.values[place])
        return place + 1

    def _merge(self, first: int, last: int) -> None:
        low, high = max(first - 1, 0), min(last + 1, len(self.starts))
        starts: list[int] = []
        values: list[V] = []
        for start, value in zip(self.starts[low:high], self.values[low:high], strict=True):
            if not values or values[-1] != value:
                starts.append(start)
                values.append(value)
        self.starts[low:high] = starts
        self.values[low:high] = values
