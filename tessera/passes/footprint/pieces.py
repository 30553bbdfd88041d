"""The CTAs of a launch in pieces, each followed at once.

In: a grid, and the numbers of its first CTA. Out: `GridPiece`s that hold every CTA once. Along each
axis the number of a CTA is an offset plus digits (`lane_values.digits`), which stand for all their
values, plus digits that are spelled out: those become an axis of the arrays of `Lanes`. A grid
starts as one piece with a digit per axis. Where a decision differs between the values of a digit
(`Split`), the piece is taken apart: the digit is cut, written to another base, or spelled out. So a
piece that came through without a `Split` was followed exactly for each of its CTAs, however many
they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod

import numpy as np

from tessera.ir.arrays import Offsets
from tessera.passes.lane_values.digits import Digit, Split

_MOST_CUTS = 6
_MOST_PARTS = 4096

Triple = tuple[int, int, int]
Listed = tuple[tuple[int, int], ...]
"""Digits that are spelled out: strides and counts."""


class TooManyPieces(Exception):
    """A digit would have to be split into more parts than can be followed."""


@dataclass(frozen=True, slots=True)
class GridAxis:
    """The numbers of CTAs along an axis; `cuts` counts how often it was cut."""

    offset: int = 0
    digits: tuple[Digit, ...] = ()
    listed: Listed = ()
    cuts: int = 0

    def places(self) -> Offsets:
        """The numbers where all digits that are not spelled out are 0."""
        numbers = np.array([self.offset], dtype=np.int64)
        for stride, count in self.listed:
            steps = stride * np.arange(count, dtype=np.int64)
            numbers = (numbers[:, None] + steps).ravel()
        return np.sort(numbers)

    def parts(self, digit: Digit, starts: list[int]) -> Iterator[GridAxis]:
        """The axis with a digit cut at these values."""
        rest = tuple(d for d in self.digits if d is not digit)
        for first, end in pairwise([*starts, digit.count]):
            kept = (Digit(digit.axis, digit.stride, end - first),) if end - first > 1 else ()
            yield replace(self, offset=self.offset + digit.stride * first, digits=(*rest, *kept))

    def rebased(self, digit: Digit, base: int) -> Iterator[GridAxis]:
        """The axis with a digit as two, the lower one below `base`."""
        whole = digit.count // base
        if digit.count % base:
            first, last = self.parts(digit, [0, whole * base])
            yield last
            yield from first.rebased(next(d for d in first.digits if d not in self.digits), base)
            return
        pair = (
            Digit(digit.axis, digit.stride * base, whole),
            Digit(digit.axis, digit.stride, base),
        )
        rest = tuple(d for d in self.digits if d is not digit)
        yield replace(self, digits=(*rest, *(d for d in pair if d.count > 1)))


@dataclass(frozen=True, slots=True)
class GridPiece:
    """Some CTAs; `share`: how many pieces like this one are left of a digit in parts."""

    axes: tuple[GridAxis, GridAxis, GridAxis]
    share: int = field(default=1, compare=False)

    @property
    def digits(self) -> tuple[Digit, ...]:
        """The digits that stand for all their values."""
        return tuple(digit for axis in self.axes for digit in axis.digits)

    @property
    def listed(self) -> int:
        """The number of CTAs that are spelled out."""
        return prod(count for axis in self.axes for _, count in axis.listed)

    def with_axis(self, place: int, axis: GridAxis, share: int = 1) -> GridPiece:
        """The same with another axis."""
        x, y, z = (axis if i == place else old for i, old in enumerate(self.axes))
        return GridPiece((x, y, z), share)

    def split(self, wanted: Split, most: int) -> list[GridPiece]:
        """The pieces that this one is split into; at most `most` CTAs are spelled out in each."""
        digit = wanted.digits[0]
        axis = self.axes[digit.axis]
        if wanted.base:
            return [self.with_axis(digit.axis, part) for part in axis.rebased(digit, wanted.base)]
        if wanted.cuts and axis.cuts < _MOST_CUTS:
            cut = replace(axis, cuts=axis.cuts + 1)
            parts = cut.parts(digit, [0, *wanted.cuts])
            return [self.with_axis(digit.axis, part) for part in parts]
        return self._spelled_out(digit, most)

    def _spelled_out(self, digit: Digit, most: int) -> list[GridPiece]:
        axis = self.axes[digit.axis]
        size = max(1, most // self.listed)
        if digit.count <= size:
            rest = tuple(d for d in axis.digits if d is not digit)
            more = ((digit.stride, digit.count),)
            whole = replace(axis, digits=rest, listed=(*axis.listed, *more))
            return [self.with_axis(digit.axis, whole, self.share)]
        starts = list(range(0, digit.count, size))
        if len(starts) > _MOST_PARTS:
            raise TooManyPieces
        pieces = []
        for number, part in enumerate(axis.parts(digit, starts)):
            piece = self.with_axis(digit.axis, part, len(starts) - number)
            new = [d for d in part.digits if d not in axis.digits]
            pieces.extend(piece._spelled_out(new[0], most) if new else [piece])
        return pieces


def whole_grid(grid: Triple, first: Triple = (0, 0, 0)) -> GridPiece:
    """All CTAs as one piece, nothing spelled out."""
    x, y, z = (
        GridAxis(first[axis], (Digit(axis, 1, count),) if count > 1 else ())
        for axis, count in enumerate(grid)
    )
    return GridPiece((x, y, z))


def boxes(grid: Triple, most: int, first: Triple = (0, 0, 0)) -> Iterator[GridPiece]:
    """The grid in boxes of at most `most` CTAs, all spelled out: whole rows, or whole layers,
    where they fit."""
    x, y, z = grid
    wide = max(1, min(x, most))
    high = max(1, min(y, most // x))
    deep = max(1, min(z, most // (x * y)))
    for k in range(0, z, deep):
        for j in range(0, y, high):
            for i in range(0, x, wide):
                starts = ((i, wide), (j, high), (k, deep))
                sides = (
                    GridAxis(base + at, (), ((1, min(size, end - at)),))
                    for base, (at, size), end in zip(first, starts, grid, strict=True)
                )
                yield GridPiece((next(sides), next(sides), next(sides)))
