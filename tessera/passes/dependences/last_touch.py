"""The steps that touched each byte of a buffer last: a map from byte ranges to steps.

In: reads and writes of steps in program order, as intervals. Out, per access: the earlier steps
that it depends on, with the bytes. The history of a range has the steps that may have written it
since the last certain write (included), and the steps that have read it since then.

The map is a sorted array of ranges that cover the whole buffer, and a table of histories; ranges
with the same history share an entry. An access splits ranges at its ends. Every operation is a few
array operations over all ranges, so a long map is kept in segments, and the cost of an access
depends on the segments that it touches.

An uncertain write may leave bytes alone and so ends no history. Histories would grow with every
uncertain write, and edges with the square of their number. An uncertain write depends on the
earlier writes (it needs the bytes that it leaves alone), so older writes are reached through it,
and a history names only the last few.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tessera.ir.arrays import Flags, Offsets, Ranges
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.intervals import distinct

Touch = tuple[int, int]
"""A step and one of its totals."""
MOST_KEPT = 8
_SPARE_HISTORIES = 1024
_MOST_RANGES = 2048


class Readers(NamedTuple):
    """A list that grows at the front and is shared by its earlier holders."""

    touch: Touch
    older: Readers | None


class TouchHistory(NamedTuple):
    """Writers since the last certain one, oldest first, and readers since."""

    writers: tuple[Touch, ...] = ()
    readers: Readers | None = None

    def all_readers(self) -> Iterator[Touch]:
        """The readers, newest first."""
        at = self.readers
        while at is not None:
            yield at.touch
            at = at.older


class LastTouch:
    """The map of one buffer."""

    def __init__(self, size: int) -> None:
        origin = np.zeros(1, dtype=np.int64)
        self.segments = [_Stretch(size, origin, origin, [TouchHistory()])]
        self._firsts = [0]

    def look_up(self, touched: Ranges) -> list[tuple[TouchHistory, Ranges]]:
        """The histories of these bytes, each with bytes that have it."""
        return [pair for segment, part in self._parts(touched) for pair in segment.look_up(part)]

    def add_read(self, touched: Ranges, touch: Touch) -> None:
        """Record a read."""
        for segment, part in self._parts(touched):
            segment.change(part, lambda old: TouchHistory(old.writers, Readers(touch, old.readers)))
        self._divide()

    def add_write(
        self, touched: Ranges, touch: Touch, *, certain: bool, kept: int = MOST_KEPT
    ) -> None:
        """Record a write. A certain write ends the history; others keep its last `kept` writers."""
        for segment, part in self._parts(touched):
            if certain:
                segment.replace(part, TouchHistory((touch,)))
            else:
                segment.change(part, lambda old: _with_write(old, touch, kept))
        self._divide()

    def _parts(self, touched: Ranges) -> Iterator[tuple[_Stretch, Ranges]]:
        """The segments that contain some bytes, each with its share of the bytes."""
        if len(self.segments) == 1:
            yield self.segments[0], touched
            return
        first = bisect_right(self._firsts, int(touched[0, 0])) - 1
        last = bisect_left(self._firsts, int(touched[-1, 1]))
        for segment in self.segments[first:last]:
            begin = np.searchsorted(touched[:, 1], segment.starts[0], side="right")
            end = np.searchsorted(touched[:, 0], segment.end, side="left")
            part = intervals.clip(touched[begin:end], int(segment.starts[0]), segment.end)
            if len(part):
                yield segment, part

    def _divide(self) -> None:
        """Halve segments that have grown too long."""
        if all(len(segment.starts) <= _MOST_RANGES for segment in self.segments):
            return
        self.segments = [half for segment in self.segments for half in segment.halves()]
        self._firsts = [int(segment.starts[0]) for segment in self.segments]


@dataclass(slots=True)
class _Stretch:
    """The ranges from `starts[0]` to `end`."""

    end: int
    starts: Offsets
    places: Offsets
    histories: list[TouchHistory]

    def look_up(self, touched: Ranges) -> list[tuple[TouchHistory, Ranges]]:
        """The histories of these bytes, each with the bytes that have it."""
        first = np.searchsorted(self.starts, touched[:, 0], side="right") - 1
        last = np.searchsorted(self.starts, touched[:, 1], side="left")
        if int(last[-1]) - int(first[0]) == 1:
            return [(self.histories[self.places[first[0]]], touched)]
        # One row per pair of a touched interval and a range that it overlaps.
        count = last - first
        owner = np.repeat(np.arange(len(touched)), count)
        begin = np.cumsum(count) - count
        place = np.arange(len(owner)) - np.repeat(begin - first, count)
        ends = np.append(self.starts[1:], self.end)
        pieces = np.stack(
            [
                np.maximum(touched[owner, 0], self.starts[place]),
                np.minimum(touched[owner, 1], ends[place]),
            ],
            axis=1,
        )
        kinds = self.places[place]
        return [
            (self.histories[kind], intervals.union([pieces[kinds == kind]]))
            for kind in dict.fromkeys(kinds.tolist())
        ]

    def halves(self) -> list[_Stretch]:
        """The segment, or its two halves if it is too long."""
        middle = len(self.starts) // 2
        if len(self.starts) <= _MOST_RANGES:
            return [self]
        cut = int(self.starts[middle])
        first = _Stretch(cut, self.starts[:middle], self.places[:middle], list(self.histories))
        return [
            first,
            _Stretch(self.end, self.starts[middle:], self.places[middle:], self.histories),
        ]

    def replace(self, touched: Ranges, history: TouchHistory) -> None:
        """Give these bytes one history."""
        inside = self._split(touched)
        # Of the ranges that a piece covers, only the first is kept.
        starts_piece = np.zeros(len(self.starts), dtype=np.bool_)
        starts_piece[np.searchsorted(self.starts, touched[:, 0])] = True
        keep = ~inside | starts_piece
        self.starts = self.starts[keep]
        self.places = np.where(starts_piece, len(self.histories), self.places)[keep]
        self.histories.append(history)
        self._drop_unused()

    def change(self, touched: Ranges, change: Callable[[TouchHistory], TouchHistory]) -> None:
        """Give these bytes new histories, computed from the old ones."""
        inside = self._split(touched)
        new = np.arange(len(self.histories))
        for kind in distinct(self.places[inside]).tolist():
            new[kind] = len(self.histories)
            self.histories.append(change(self.histories[kind]))
        self.places = np.where(inside, new[self.places], self.places)
        self._drop_unused()

    def _split(self, touched: Ranges) -> Flags:
        """Split ranges at the ends of these bytes; return a flag per range that is inside."""
        edges = touched.ravel()
        if edges[-1] == self.end:
            edges = edges[:-1]
        at = np.searchsorted(self.starts, edges)
        missing = at == len(self.starts)
        missing[~missing] = self.starts[at[~missing]] != edges[~missing]
        if missing.any():
            where = at[missing]
            self.starts = np.insert(self.starts, where, edges[missing])
            self.places = np.insert(self.places, where, self.places[where - 1])
        # Bytes of `touched` start at even edges and end at odd ones.
        inside: Flags = np.searchsorted(touched.ravel(), self.starts, side="right") % 2 == 1
        return inside

    def _drop_unused(self) -> None:
        """Drop histories that no range uses, once there are many of them."""
        if len(self.histories) > _SPARE_HISTORIES + 4 * len(self.starts):
            used, self.places = np.unique(self.places, return_inverse=True)
            self.histories = [self.histories[kind] for kind in used.tolist()]


def _with_write(old: TouchHistory, touch: Touch, kept: int) -> TouchHistory:
    readers: Readers | None = None
    for reader in reversed(list(itertools.islice(old.all_readers(), kept))):
        readers = Readers(reader, readers)
    return TouchHistory((*old.writers, touch)[-max(kept, 1) :], readers)
