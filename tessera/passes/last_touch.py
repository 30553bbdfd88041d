"""Who touched each byte of a buffer last: a map from byte ranges to steps.

In: reads and writes of steps in program order, as intervals. Out, per access: the earlier steps
that it depends on, with the bytes. A range knows the steps that may have written it since the
last certain write (that one included), and the steps that read it since then.

The map is a sorted array of ranges that cover the whole buffer, and a table of what is known of
them; ranges with the same history share an entry. An access splits ranges at its ends. Every
operation is a few array operations over the ranges, so the cost is near-linear in them.

A write that may leave bytes alone ends nothing, so histories would grow with every such write,
and edges with their square. It depends on the writes before it (it needs what it leaves alone),
so an older one is reached through it: of those, only the last few are named.
"""

# NumPy's operators on arrays of unknown element type give Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tessera.passes import intervals
from tessera.passes.lanes import Array

Touch = tuple[int, int]
"""A step and one of its totals."""
MOST_KEPT = 8
_SPARE_HISTORIES = 1024


class Readers(NamedTuple):
    """A list that grows at the front and is shared by whoever had it before."""

    touch: Touch
    older: Readers | None


class History(NamedTuple):
    """Writers since the last certain one, oldest first, and readers since."""

    writers: tuple[Touch, ...] = ()
    readers: Readers | None = None

    def all_readers(self) -> Iterator[Touch]:
        """The readers, newest first."""
        at = self.readers
        while at is not None:
            yield at.touch
            at = at.older


@dataclass(slots=True, init=False)
class LastTouch:
    """The map of one buffer."""

    size: int
    starts: Array
    places: Array
    histories: list[History]

    def __init__(self, size: int) -> None:
        self.size = size
        self.starts = np.zeros(1, dtype=np.int64)
        self.places = np.zeros(1, dtype=np.int64)
        self.histories = [History()]

    def look_up(self, found: Array) -> list[tuple[History, Array]]:
        """The histories of these bytes, each with the bytes that have it."""
        first = np.searchsorted(self.starts, found[:, 0], side="right") - 1
        last = np.searchsorted(self.starts, found[:, 1], side="left")
        if int(last[-1]) - int(first[0]) == 1:
            return [(self.histories[self.places[first[0]]], found)]
        count = last - first
        owner = np.repeat(np.arange(len(found)), count)
        begin = np.cumsum(count) - count
        place = np.arange(len(owner)) - np.repeat(begin - first, count)
        ends = np.append(self.starts[1:], self.size)
        pieces = np.stack(
            [
                np.maximum(found[owner, 0], self.starts[place]),
                np.minimum(found[owner, 1], ends[place]),
            ],
            axis=1,
        )
        kinds = self.places[place]
        return [
            (self.histories[kind], intervals.union([pieces[kinds == kind]]))
            for kind in dict.fromkeys(kinds.tolist())
        ]

    def add_read(self, found: Array, touch: Touch) -> None:
        """Note a read."""
        self._change(found, lambda old: History(old.writers, Readers(touch, old.readers)))

    def add_write(
        self, found: Array, touch: Touch, *, certain: bool, kept: int = MOST_KEPT
    ) -> None:
        """Note a write; a certain one ends what came before, another one keeps a few of them."""
        if not certain:
            self._change(found, lambda old: _with_write(old, touch, kept))
            return
        inside = self._split(found)
        # Of the ranges that a piece covers only the first is left.
        starts_piece = np.zeros(len(self.starts), dtype=np.bool_)
        starts_piece[np.searchsorted(self.starts, found[:, 0])] = True
        keep = ~inside | starts_piece
        self.starts = self.starts[keep]
        self.places = np.where(starts_piece, len(self.histories), self.places)[keep]
        self.histories.append(History((touch,)))
        self._drop_unused()

    def _change(self, found: Array, change: Callable[[History], History]) -> None:
        inside = self._split(found)
        new = np.arange(len(self.histories))
        for kind in np.unique(self.places[inside]).tolist():
            new[kind] = len(self.histories)
            self.histories.append(change(self.histories[kind]))
        self.places = np.where(inside, new[self.places], self.places)
        self._drop_unused()

    def _split(self, found: Array) -> Array:
        """Make ranges end where these bytes do; which ranges are inside."""
        edges = found.ravel()
        if edges[-1] == self.size:
            edges = edges[:-1]
        at = np.searchsorted(self.starts, edges)
        missing = at == len(self.starts)
        missing[~missing] = self.starts[at[~missing]] != edges[~missing]
        if missing.any():
            where = at[missing]
            self.starts = np.insert(self.starts, where, edges[missing])
            self.places = np.insert(self.places, where, self.places[where - 1])
        # Bytes of `found` start at even edges and end at odd ones.
        return np.searchsorted(found.ravel(), self.starts, side="right") % 2 == 1

    def _drop_unused(self) -> None:
        """Forget histories that no range has any more, now and then."""
        if len(self.histories) > _SPARE_HISTORIES + 4 * len(self.starts):
            used, self.places = np.unique(self.places, return_inverse=True)
            self.histories = [self.histories[kind] for kind in used.tolist()]


def _with_write(old: History, touch: Touch, kept: int) -> History:
    readers: Readers | None = None
    for reader in reversed(list(itertools.islice(old.all_readers(), kept))):
        readers = Readers(reader, readers)
    writers = old.writers[-(kept - 1) :] if kept > 1 else ()
    return History((*writers, touch), readers)
