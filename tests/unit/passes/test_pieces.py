"""Grids in boxes and pieces: every CTA once, and none besides."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tessera.passes.footprint import pieces
from tessera.passes.footprint.pieces import GridPiece, TooManyPieces, boxes, whole_grid
from tessera.passes.lane_values.digits import Digit, Split

FIRST = (3, 5, 7)


def numbers(axis: pieces.GridAxis) -> list[int]:
    """The numbers along an axis, whatever stands for them."""
    found = axis.places().tolist()
    for digit in axis.digits:
        found = [n + digit.stride * k for n in found for k in range(digit.count)]
    return sorted(found)


def told(digits: tuple[Digit, ...]) -> list[tuple[int, ...]]:
    return [(digit.axis, digit.stride, digit.count) for digit in digits]


def ctas(piece: GridPiece) -> list[tuple[int, ...]]:
    return [*product(*map(numbers, piece.axes))]


@pytest.mark.parametrize(
    ("grid", "most", "sizes"),
    [
        # The most CTAs: whole rows where they fit, then whole layers.
        ((5, 4, 3), 1, [(1, 1, 1)] * 60),
        ((5, 4, 3), 4, [(4, 1, 1), (1, 1, 1)] * 12),
        ((5, 4, 3), 5, [(5, 1, 1)] * 12),
        ((5, 4, 3), 9, [(5, 1, 1)] * 12),
        ((5, 4, 3), 10, [(5, 2, 1)] * 6),
        ((5, 4, 3), 15, [(5, 3, 1), (5, 1, 1)] * 3),
        ((5, 4, 3), 19, [(5, 3, 1), (5, 1, 1)] * 3),
        ((5, 4, 3), 20, [(5, 4, 1)] * 3),
        ((5, 4, 3), 39, [(5, 4, 1)] * 3),
        ((5, 4, 3), 40, [(5, 4, 2), (5, 4, 1)]),
        ((5, 4, 3), 60, [(5, 4, 3)]),
        ((5, 4, 3), 1000, [(5, 4, 3)]),
        ((1, 1, 1), 1, [(1, 1, 1)]),
        ((2, 1, 2), 2, [(2, 1, 1)] * 2),
        ((4, 1, 1), 0, [(1, 1, 1)] * 4),
        # No full row: one row at a time, though two would be as many.
        ((4, 2, 2), 2, [(2, 1, 1)] * 8),
        ((4, 1, 3), 2, [(2, 1, 1)] * 6),
        ((4, 2, 6), 4, [(4, 1, 1)] * 12),
    ],
)
def test_boxes(grid: Any, most: int, sizes: list[Any]) -> None:
    found = [*boxes(grid, most, FIRST)]
    assert [tuple(len(a.places()) for a in piece.axes) for piece in found] == sizes
    assert [p.listed for p in found] == [x * y * z for x, y, z in sizes]
    every = [cta for piece in found for cta in ctas(piece)]
    wanted = [range(at, at + count) for at, count in zip(FIRST, grid, strict=True)]
    assert sorted(every) == sorted(product(*wanted))
    assert next(boxes(grid, most)).axes[0].offset == 0


def test_the_whole_grid() -> None:
    piece = whole_grid((4, 1, 2), FIRST)
    assert told(piece.digits) == [(0, 1, 4), (2, 1, 2)]
    assert ctas(piece) == [*product(range(3, 7), [5], range(7, 9))]
    assert (piece.listed, piece.share) == (1, 1)
    assert whole_grid((1, 1, 1)).digits == ()


def test_an_axis_is_cut_and_rebased() -> None:
    axis = pieces.GridAxis(10, (Digit(0, 2, 7), Digit(0, 100, 3)), ((1, 2),), 1)
    digit = axis.digits[0]
    parts = [*axis.parts(digit, [0, 1, 4])]
    assert [part.offset for part in parts] == [10, 12, 18]
    assert [[d.count for d in part.digits] for part in parts] == [[3], [3, 3], [3, 3]]
    assert sorted(n for part in parts for n in numbers(part)) == numbers(axis)
    for base in range(2, 8):
        parts = [*axis.rebased(digit, base)]
        assert sorted(n for part in parts for n in numbers(part)) == numbers(axis), base
    assert [[(d.stride, d.count) for d in part.digits] for part in axis.rebased(digit, 3)] == [
        [(100, 3)],
        [(100, 3), (6, 2), (2, 3)],
    ]
    assert [[(d.stride, d.count) for d in part.digits] for part in axis.rebased(digit, 7)] == [
        [(100, 3), (2, 7)]
    ]
    assert axis.places().tolist() == [10, 11]


def split(piece: GridPiece, wanted: Split, most: int = 4) -> list[GridPiece]:
    found = piece.split(wanted, most)
    assert sorted(cta for part in found for cta in ctas(part)) == sorted(ctas(piece))
    return found


def test_a_piece_is_split() -> None:
    piece = whole_grid((6, 3, 1))
    x, y = piece.digits
    low, high = split(piece, Split((x,), cuts=(2,)))
    assert [low.axes[0].cuts, low.axes[1].cuts, high.axes[0].cuts] == [1, 0, 1]
    assert (len(ctas(low)), len(ctas(high))) == (6, 12)
    assert len(split(piece, Split((y,), cuts=(1, 2)))) == 3
    (pair,) = split(piece, Split((x,), base=2))
    assert told(pair.digits) == [(0, 2, 3), (0, 1, 2), (1, 1, 3)]
    alone = split(pair, Split((pair.digits[0],)), 1)
    assert [part.axes[0].offset for part in alone] == [0, 2, 4]
    assert [told(part.digits) for part in alone] == [[(0, 1, 2), (1, 1, 3)]] * 3
    axis = pieces.GridAxis(0, (x,), (), 5)
    assert len(split(piece.with_axis(0, axis), Split((x,), cuts=(2,)))) == 2
    # Cut too often, a digit is spelled out.
    axis = pieces.GridAxis(0, (x,), (), 6)
    often = split(piece.with_axis(0, axis), Split((x,), cuts=(2,)))
    assert [part.listed for part in often] == [4, 2]


@pytest.mark.parametrize(
    ("most", "listed", "shares"),
    [
        (0, [1] * 6, [6, 5, 4, 3, 2, 1]),
        (1, [1] * 6, [6, 5, 4, 3, 2, 1]),
        (2, [2] * 3, [3, 2, 1]),
        (4, [4, 2], [2, 1]),
        (5, [5, 1], [2, 1]),
        (6, [6], [1]),
        (7, [6], [1]),
    ],
)
def test_digits_that_are_spelled_out(most: int, listed: list[int], shares: list[int]) -> None:
    piece = whole_grid((6, 3, 1), FIRST)
    found = split(piece, Split((piece.digits[0],)), most)
    assert [part.listed for part in found] == listed
    assert [part.share for part in found] == shares
    assert all(told(part.digits) == [(1, 1, 3)] for part in found)
    (left, *_) = split(piece.with_axis(1, piece.axes[1], 7), Split((piece.digits[0],)), 6)
    assert left.share == 7
    # What is spelled out already counts.
    both = [split(part, Split((part.digits[0],)), most) for part in found]
    for of_one, before in zip(both, listed, strict=True):
        at_once = min(3, max(1, most // before))
        assert of_one[0].listed == before * at_once


def test_too_many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    piece = whole_grid((6, 1, 1))
    monkeypatch.setattr(pieces, "_MOST_PARTS", 3)
    assert len(split(piece, Split((piece.digits[0],)), 2)) == 3
    with pytest.raises(TooManyPieces):
        piece.split(Split((piece.digits[0],)), 1)
