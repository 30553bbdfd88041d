"""Parts of a CTA's number that are not spelled out: digits, and what asks to take one apart.

The number of a CTA along an axis is an offset plus a sum of digits, each times its stride. A digit
stands for all its values at once: a value of the excerpt that depends on it is a sum with the digit
times a number in it (`slopes`), and no decision depends on it. Where that cannot go on, `Split`
says what to do with the digit; the caller takes the set of CTAs apart and starts again.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Digit:
    """A number from 0 to `count` - 1, `stride` CTAs apart along an axis (0 to 2: x, y, z)."""

    axis: int
    stride: int
    count: int

    @property
    def last(self) -> int:
        """The greatest value."""
        return self.count - 1


class Split(Exception):
    """What was to be decided differs between the values of digits.

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
