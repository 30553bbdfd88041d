"""Sets of threads, three at a time: those that may be at a place, and how certain that is.

`sure` is inside `strong`, `strong` inside `may`. Arrays have the axes of `Lanes`.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tessera.ir.arrays import Flags
from tessera.passes.lane_values.lanes import Lanes

T = TypeVar("T", bound=np.generic)
ALL: Flags = np.ones((1, 1), dtype=np.bool_)
NONE: Flags = np.zeros((1, 1), dtype=np.bool_)


class Mask:
    """The threads at a place; see `footprint.machine` for what the three sets mean."""

    __slots__ = ("_everybody", "elected", "election", "may", "strong", "sure")

    def __init__(self, may: Flags, strong: Flags, sure: Flags) -> None:
        self.may = may
        self.strong = strong
        self.sure = sure
        self._everybody: bool | None = None
        # Threads that surely are here if `election` elects them (`elections`); -1: none does.
        self.elected = NONE
        self.election = -1

    @property
    def everybody(self) -> bool:
        """Whether all threads are here, and strong; called for every instruction."""
        if self._everybody is None:
            self._everybody = bool(self.strong.all())
        return self._everybody

    def any(self) -> bool:
        """Whether any thread may be here."""
        return bool(self.may.any())

    def narrow(self, condition: Lanes) -> Mask | None:
        """Those for which a condition holds; where it is unknown they only may be here."""
        holds = condition.low().astype(np.bool_)
        if condition.span is None:
            if holds.size == 1:
                return self if holds.flat[0] else None
            may = self.may & holds
            if not may.any():
                return None
            strong = may if self.strong is self.may else self.strong & holds
            sure = strong if self.sure is self.strong else self.sure & holds
            return Mask(may, strong, sure).with_election(self.election, self.elected & holds)
        open_ = condition.span.astype(np.bool_)
        may = self.may & (holds | open_)
        certain = holds & ~open_
        if not may.any():
            return None
        narrowed = Mask(may, self.strong & certain, self.sure & certain)
        choice = condition.choice
        if choice is None or self.election not in (-1, choice.election):
            return narrowed
        before = self.sure if self.election == -1 else self.elected
        hit = choice.hit.astype(np.bool_) & choice.valid
        return narrowed.with_election(choice.election, before & hit)

    def with_election(self, election: int, elected: Flags) -> Mask:
        """The same threads, and those that are here if they are elected."""
        if election != -1:
            self.elected, self.election = elected, election
        return self

    def unless(self, condition: Lanes) -> Mask | None:
        """Those for which a condition may fail, given that it holds for no thread here."""
        gone = condition.low().astype(np.bool_)
        if condition.span is not None:
            gone = gone & ~condition.span.astype(np.bool_)
        rest = self.without(gone)
        return rest if rest.any() else None

    def without(self, threads: Flags) -> Mask:
        """The threads of this mask that are not in a set."""
        rest = ~threads
        return Mask(self.may & rest, self.strong & rest, self.sure & rest)

    def union(self, other: Mask) -> Mask:
        """The threads of both masks."""
        may = self.may | other.may
        strong = self.strong | other.strong
        sure = self.sure | other.sure
        if same_threads(may, strong):
            strong = may
        if same_threads(strong, sure):
            sure = strong
        return Mask(_shrink(may), _shrink(strong), _shrink(sure)) if sure is not may else _one(may)


def _one(threads: Flags) -> Mask:
    small = _shrink(threads)
    return Mask(small, small, small)


def same_threads(left: Flags, right: Flags) -> bool:
    """Whether two sets of threads are the same, with the same axes."""
    return left is right or (left.shape == right.shape and bool((left == right).all()))


def selected(threads: Flags, *arrays: NDArray[T]) -> list[NDArray[T]]:
    """The numbers of the threads of a set, one after the other."""
    shape = np.broadcast_shapes(threads.shape, *(array.shape for array in arrays))
    chosen = np.broadcast_to(threads, shape)
    return [np.broadcast_to(array, shape)[chosen] for array in arrays]


def _shrink(threads: Flags) -> Flags:
    """Reduce a set of all threads to a single flag."""
    return ALL if threads.all() else threads
