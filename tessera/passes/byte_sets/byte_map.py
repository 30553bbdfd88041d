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
        """Give each of these bytes, in sorted ranges, the value that `new` makes of its old one."""
        rebuilt = _Rebuilt(self.starts, self.values, self.size)
        for start, end in ranges:
            if start < end:
                rebuilt.change(start, end, new)
        rebuilt.finish()

    def set(self, ranges: Iterable[tuple[int, int]], value: V) -> None:
        """Give all of these bytes one value."""
        self.change(ranges, lambda _: value)


class _Rebuilt(Generic[V]):
    """The part of a map from the first range that changes to the last, made anew in one go.

    Entries `first` to `next` of the old lists are replaced by `starts` and `values`.
    """

    __slots__ = ("first", "next", "old_starts", "old_values", "size", "starts", "values")

    def __init__(self, old_starts: list[int], old_values: list[V], size: int) -> None:
        self.old_starts = old_starts
        self.old_values = old_values
        self.size = size
        self.starts: list[int] = []
        self.values: list[V] = []
        self.first = self.next = -1

    def change(self, start: int, end: int, new: Callable[[V], V]) -> None:
        """Change one range; it lies behind those before it."""
        place = bisect_right(self.old_starts, start, max(self.next - 1, 0)) - 1
        if self.first < 0:
            self.first = self.next = place
        whole = self.old_starts[place] == start
        self._copy(place if whole else place + 1)
        if self.starts and self.starts[-1] == start:
            self.starts.pop()
            self.values.pop()
        at = start
        while at < end:
            self._put(at, new(self.old_values[place]))
            place += 1
            at = self.old_starts[place] if place < len(self.old_starts) else self.size
        if at > end:
            self._put(end, self.old_values[place - 1])
        self.next = place

    def finish(self) -> None:
        """Put the new part in the place of the old."""
        if self.first < 0:
            return
        starts, values = self.old_starts, self.old_values
        if self.next < len(values) and values[self.next] == self.values[-1]:
            self.next += 1
        if self.first > 0 and values[self.first - 1] == self.values[0]:
            del self.starts[0], self.values[0]
        starts[self.first : self.next] = self.starts
        values[self.first : self.next] = self.values

    def _copy(self, stop: int) -> None:
        """Take over entries that do not change."""
        if self.next < stop:
            self._put(self.old_starts[self.next], self.old_values[self.next])
            self.starts += self.old_starts[self.next + 1 : stop]
            self.values += self.old_values[self.next + 1 : stop]
            self.next = stop

    def _put(self, start: int, value: V) -> None:
        if not self.values or self.values[-1] != value:
            self.starts.append(start)
            self.values.append(value)
