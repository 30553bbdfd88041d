"""Who touched each byte of a buffer last: a map from byte ranges to steps.

In: reads and writes of steps in program order, as intervals. Out, per access: the earlier steps
that it depends on, with the bytes. A range knows the steps that may have written it since the
last certain write (that one included), and the steps that read it since then.

The map is a sorted list of ranges that cover the whole buffer. An access splits ranges at its
ends, so the cost is near-linear in the number of ranges that it covers.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from tessera.passes.lanes import Array

Touch = tuple[int, int]
"""A step and one of its accesses."""


@dataclass(slots=True)
class _Range:
    """Bytes up to the next range: writers since the last certain one, and readers since."""

    writers: tuple[Touch, ...] = ()
    readers: tuple[Touch, ...] = ()


@dataclass(slots=True)
class LastTouch:
    """The map of one buffer."""

    size: int
    starts: list[int] = field(default_factory=lambda: [0])
    ranges: list[_Range] = field(default_factory=lambda: [_Range()])

    def _span(self, start: int, end: int) -> tuple[int, int]:
        """The places of the ranges that make up `start` to `end`, split where needed."""
        first = self._split(start)
        last = self._split(end) if end < self.size else len(self.starts)
        return first, last

    def _split(self, at: int) -> int:
        place = bisect_right(self.starts, at) - 1
        if self.starts[place] == at:
            return place
        old = self.ranges[place]
        self.starts.insert(place + 1, at)
        self.ranges.insert(place + 1, _Range(old.writers, old.readers))
        return place + 1

    def writers(self, found: Array) -> dict[Touch, list[tuple[int, int]]]:
        """The writes that these bytes may come from."""
        return self._collect(found, readers=False)

    def readers(self, found: Array) -> dict[Touch, list[tuple[int, int]]]:
        """The reads of these bytes since they were last certainly written."""
        return self._collect(found, readers=True)

    def _collect(self, found: Array, *, readers: bool) -> dict[Touch, list[tuple[int, int]]]:
        touched: dict[Touch, list[tuple[int, int]]] = {}
        for start, end in found.tolist():
            place = bisect_right(self.starts, start) - 1
            while place < len(self.starts) and self.starts[place] < end:
                low = max(self.starts[place], start)
                after = self.starts[place + 1] if place + 1 < len(self.starts) else self.size
                entry = self.ranges[place]
                for touch in entry.readers if readers else entry.writers:
                    touched.setdefault(touch, []).append((low, min(after, end)))
                place += 1
        return touched

    def add_read(self, found: Array, touch: Touch) -> None:
        """Note a read."""
        for start, end in found.tolist():
            first, last = self._span(start, end)
            for place in range(first, last):
                entry = self.ranges[place]
                if touch not in entry.readers:
                    self.ranges[place] = _Range(entry.writers, (*entry.readers, touch))

    def add_write(self, found: Array, touch: Touch, *, certain: bool) -> None:
        """Note a write; a certain one ends what came before."""
        for start, end in found.tolist():
            first, last = self._span(start, end)
            if certain:
                self.starts[first:last] = [self.starts[first]]
                self.ranges[first:last] = [_Range((touch,), ())]
                continue
            for place in range(first, last):
                entry = self.ranges[place]
                if touch not in entry.writers:
                    self.ranges[place] = _Range((*entry.writers, touch), entry.readers)

    def unwritten(self, found: Array) -> list[tuple[int, int]]:
        """The bytes that nothing may have written."""
        missing: list[tuple[int, int]] = []
        for start, end in found.tolist():
            place = bisect_right(self.starts, start) - 1
            while place < len(self.starts) and self.starts[place] < end:
                after = self.starts[place + 1] if place + 1 < len(self.starts) else self.size
                if not self.ranges[place].writers:
                    missing.append((max(self.starts[place], start), min(after, end)))
                place += 1
        return missing
