"""Sets of bytes of the judge of plans, against sets of numbers."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable

import numpy as np
import pytest

from tessera.ir.graph.region import (
    Affine,
    Descriptor,
    Dimension,
    Interval,
    Region,
    Unknown,
    WholeBuffer,
)
from tessera.passes.checker.bytes import (
    Array,
    boundaries,
    common,
    hull_of,
    join,
    minus,
    ranges_of,
    region_hull,
    region_ranges,
    text,
)
from tessera.wording import Wording


def numbers(ranges: Array) -> set[int]:
    """The bytes of ranges, which are sorted, not empty, and do not touch."""
    listed = ranges.tolist()
    assert all(start < end for start, end in listed)
    assert all(end < start for (_, end), (start, _) in itertools.pairwise(listed))
    return {at for start, end in listed for at in range(start, end)}


def ranges(of: Iterable[int]) -> Array:
    return ranges_of((at, at + 1) for at in of)


def test_sets_against_numbers() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        sets = [set(rng.sample(range(12), rng.randint(0, 12))) for _ in range(3)]
        made = [ranges(rng.sample(sorted(own), len(own))) for own in sets]
        assert [numbers(own) for own in made] == sets
        assert numbers(join(made)) == set().union(*sets)
        assert numbers(join(made[:1])) == sets[0]
        assert numbers(minus(*made[:2])) == sets[0] - sets[1]
        assert numbers(common(*made[:2])) == sets[0] & sets[1]


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        ([], []),
        ([[]], []),
        ([[(3, 3)]], []),
        ([[(3, 2)]], []),
        ([[(0, 4)]], [[0, 4]]),
        ([[(0, 4), (4, 8)]], [[0, 8]]),
        ([[(0, 4), (5, 8)]], [[0, 4], [5, 8]]),
        ([[(5, 8), (0, 4)]], [[0, 4], [5, 8]]),
        ([[(0, 9), (1, 2), (9, 10)]], [[0, 10]]),
        ([[(0, 2), (6, 8)], [(1, 6)]], [[0, 8]]),
        ([[(0, 1)], [], [(2, 3)]], [[0, 1], [2, 3]]),
        ([[(2, 3)], [(0, 1)]], [[0, 1], [2, 3]]),
        ([[(2, 9)], [(0, 3)], [(4, 5)]], [[0, 9]]),
        ([[(0, 1 << 62)], [(1 << 62, (1 << 63) - 1)]], [[0, (1 << 63) - 1]]),
    ],
)
def test_joined_ranges(parts: list[list[tuple[int, int]]], wanted: list[list[int]]) -> None:
    assert ranges_of(pair for part in parts for pair in part).tolist() == wanted
    assert join([ranges_of(part) for part in parts]).tolist() == wanted
    raw = [np.array(part, np.int64).reshape(-1, 2) for part in parts]
    if all(start < end for part in parts for start, end in part):
        assert join(raw).tolist() == wanted
    assert hull_of(join([ranges_of(part) for part in parts])) == (
        (wanted[0][0], wanted[-1][1]) if wanted else (0, 0)
    )


def piece(offset: int, width: int, *dimensions: tuple[int, int]) -> Descriptor:
    """Words of `width` bytes; a dimension is a stride and a count."""
    return Descriptor(
        offset=offset,
        dimensions=tuple(Dimension(stride=stride, count=count) for stride, count in dimensions),
        width=width,
    )


def bytes_of(own: Descriptor) -> set[int]:
    starts = {own.offset}
    for dimension in own.dimensions:
        starts = {
            start + dimension.stride * step for start in starts for step in range(dimension.count)
        }
    return {start + at for start in starts for at in range(own.width)}


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        (piece(0, 4),),
        (piece(60, 4),),
        (piece(61, 4),),
        (piece(-1, 4),),
        (piece(-4, 4),),
        (piece(64, 4),),
        (piece(1, 4),),
        (piece(8, 4, (4, 3)),),
        (piece(8, 4, (5, 3)),),
        (piece(8, 4, (3, 3)),),
        (piece(8, 4, (4, 1)),),
        (piece(8, 4, (8, 1)),),
        (piece(0, 4, (4, 2), (8, 3)),),
        (piece(0, 4, (4, 2), (9, 3)),),
        (piece(0, 4, (8, 3), (4, 2)),),
        (piece(0, 2, (6, 3), (4, 2)),),
        (piece(0, 2, (4, 2), (5, 3)),),
        (piece(0, 1, (2, 3), (3, 4)),),
        (piece(0, 1, (2, 2), (4, 2), (8, 2)),),
        (piece(-8, 4, (8, 3)),),
        (piece(40, 4, (8, 5)),),
        (piece(0, 64),),
        (piece(0, 65),),
        (piece(32, 4), piece(8, 4)),
        (piece(8, 4), piece(32, 4), piece(16, 4)),
        (piece(8, 30), piece(12, 4)),
        (piece(-8, 4), piece(8, 4)),
        (piece(8, 4), piece(80, 4)),
    ],
)
def test_regions(pieces: tuple[Descriptor, ...]) -> None:
    wanted = set().union(*map(bytes_of, pieces)) & set(range(64))
    region = Affine(pieces=pieces)
    assert numbers(region_ranges(region, 64)) == wanted
    assert region_hull(region, 64) == ((min(wanted), max(wanted) + 1) if wanted else (0, 0))


@pytest.mark.parametrize(
    ("region", "wanted"),
    [
        (Interval(0, 64), [[0, 64]]),
        (Interval(3, 9), [[3, 9]]),
        (Interval(-3, 9), [[0, 9]]),
        (Interval(60, 65), [[60, 64]]),
        (Interval(64, 65), []),
        (Interval(-9, 0), []),
        (Interval(5, 5), []),
        (WholeBuffer(Wording("a reason")), [[0, 64]]),
        (Unknown(Wording("a reason")), [[0, 64]]),
    ],
)
def test_other_regions(region: Region, wanted: list[list[int]]) -> None:
    assert region_ranges(region, 64).tolist() == wanted
    assert region_hull(region, 64) == (tuple(wanted[0]) if wanted else (0, 0))


def test_ends_at_which_a_buffer_is_cut() -> None:
    assert boundaries(8, []).tolist() == [0, 8]
    parts = [ranges_of([(2, 4), (6, 8)]), ranges_of([(4, 5), (0, 3)])]
    assert boundaries(8, parts).tolist() == [0, 2, 3, 4, 5, 6, 8]


def test_ranges_in_words() -> None:
    listed = [(8 * at, 8 * at + 4) for at in range(5)]
    said = [text(ranges_of(listed[:count])) for count in range(6)]
    assert said == [
        "",
        "0:4",
        "0:4, 8:12",
        "0:4, 8:12, 16:20",
        "0:4, 8:12, 16:20 and 1 more",
        "0:4, 8:12, 16:20 and 2 more",
    ]
