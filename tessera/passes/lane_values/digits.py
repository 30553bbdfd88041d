"""Parts of a CTA's number that are not spelled out: digits, and what asks to take one apart.

The number of a CTA along an axis is an offset plus a sum of digits, each times its stride. A digit
stands for all its values at once: a value of the excerpt that depends on it is a sum with the digit
times a number in it (`slopes`), and no decision depends on it. If a decision does depend on it,
`Split` says what to do with the digit; the caller splits the set of CTAs and starts again.

The number of a round of a loop is a digit as well (`RoundDigit`), while its rounds are followed at
once. Its end may differ between CTAs; `RoundLimit` gives the rounds before a decision changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tessera.ir.arrays import Signed


@dataclass(frozen=True, slots=True, eq=False)
class Digit:
    """A number from 0 to `count` - 1, `stride` CTAs apart along an axis (0 to 2: x, y, z)."""

    axis: int
    stride: int
    count: int

    @property
    def last(self) -> Signed:
        """The greatest value, in each CTA that is spelled out."""
        return np.array([[self.count - 1]], dtype=np.int64)

    @property
    def most(self) -> int:
        """The greatest value in any CTA."""
        return self.count - 1


class RoundDigit(Digit):
    """The number of a round, from 0 to `last`, which has the axes of `Lanes`; the same for all
    threads of a CTA."""

    __slots__ = ("rounds",)
    rounds: Signed

    def __init__(self, last: Signed) -> None:
        super().__init__(axis=3, stride=1, count=int(last.max()) + 1)
        object.__setattr__(self, "rounds", last)

    @property
    def last(self) -> Signed:
        """The greatest value, in each CTA that is spelled out."""
        return self.rounds


class NotAlike(Exception):
    """Rounds of a loop cannot be followed at once."""


class RoundLimit(Exception):
    """The number of rounds for which decisions stay the same, in each thread; -1 for threads
    without a limit."""

    def __init__(self, digit: RoundDigit, counts: Signed) -> None:
        super().__init__()
        self.digit = digit
        self.counts = counts


class Split(Exception):
    """A decision differs between the values of digits.

    With `cuts` the first digit is to be cut before these values; with `base` it is to be written as
    two digits, the lower one below `base`; else all digits are to be spelled out.
    """

    def __init__(
        self, digits: tuple[Digit, ...], cuts: tuple[int, ...] = (), base: int = 0
    ) -> None:
        super().__init__()
        self.digits = digits
        self.cuts = cuts
        self.base = base
