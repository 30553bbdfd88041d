"""Sets of bytes, of the analysis and of the checker, against plain sets of numbers.

In: random intervals in a short stretch of bytes, so that they touch, overlap and are empty often.
Every result has exactly the bytes of the plain set, in the one form that a set has: sorted, with
gaps between intervals. Limits are small here, so that what happens past them is common.
"""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from tessera.ir.graph.region import Affine, Descriptor, Dimension, Interval, WholeBuffer
from tessera.passes.byte_sets import intervals, regions
from tessera.passes.checker import bytes as checker_bytes
from tessera.wording import Wording

CASES = 400
LENGTH = 40


def some_pairs(draw, most=6):
    starts = [draw.randrange(LENGTH) for _ in range(draw.randrange(most + 1))]
    return [(start, start + draw.randrange(1, 7)) for start in starts]


def numbers(pairs):
    return {byte for start, end in pairs for byte in range(start, end)}


def in_form(plain):
    """The intervals of a plain set."""
    ordered = sorted(plain)
    breaks = [0, *(n for n in range(1, len(ordered)) if ordered[n] > ordered[n - 1] + 1)]
    ends = [*breaks[1:], len(ordered)] if ordered else []
    return [[ordered[b], ordered[e - 1] + 1] for b, e in zip(breaks, ends, strict=False)]


def as_array(plain):
    return np.array(in_form(plain), dtype=np.int64).reshape(-1, 2)


def unmerged(pairs):
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


@pytest.mark.parametrize("seed", range(2))
def test_operations_on_sets(seed):
    draw = random.Random(seed)
    for _ in range(CASES):
        one, two = (numbers(some_pairs(draw)) for _ in range(2))
        left, right = as_array(one), as_array(two)
        start, end = sorted((draw.randrange(-2, LENGTH + 9), draw.randrange(-2, LENGTH + 9)))
        lists = [some_pairs(draw) for _ in range(draw.randrange(4))]
        every = numbers(pair for pairs in lists for pair in pairs)
        starts = [draw.randrange(LENGTH) for _ in range(draw.randrange(6))]
        width = draw.randrange(1, 5)
        wide = unmerged([(s, s + width) for s in starts])
        listed = lists[0] if lists else []
        got = {
            "interval": (intervals.interval(start, end), numbers([(start, end)])),
            "union": (intervals.union([unmerged(pairs) for pairs in lists]), every),
            "words": (intervals.words(np.array(starts, dtype=np.int64), width), numbers(wide)),
            "clip": (intervals.clip(left, start, end), one & numbers([(start, end)])),
            "shift": (intervals.shift(left, start), {byte + start for byte in one}),
            "intersect": (intervals.intersect(left, right), one & two),
            "subtract": (intervals.subtract(left, right), one - two),
            "from_pairs": (intervals.from_pairs(iter(listed)), numbers(listed)),
            "join": (checker_bytes.join([unmerged(pairs) for pairs in lists]), every),
            "ranges_of": (checker_bytes.ranges_of([*listed, (3, 3), (5, 2)]), numbers(listed)),
            "minus": (checker_bytes.minus(left, right), one - two),
            "common": (checker_bytes.common(left, right), one & two),
        }
        for name, (result, plain) in got.items():
            assert result.tolist() == in_form(plain), (name, left, right, lists, start, end)
        assert intervals.covers(left, right) == (two <= one)
        assert intervals.size(left) == len(one)
        assert [list(pair) for pair in intervals.pairs(left)] == left.tolist()
        ordered = np.array(starts, dtype=np.int64)
        assert intervals.is_sorted(ordered) == all(a <= b for a, b in pairwise(starts))
        assert intervals.distinct(ordered).tolist() == sorted(set(starts))


@pytest.mark.parametrize("seed", range(2))
def test_narrowed_sets_fill_the_smallest_gaps(seed):
    draw = random.Random(seed)
    for _ in range(CASES):
        given = as_array(numbers(some_pairs(draw)))
        most = draw.randrange(1, 5)
        result = intervals.narrow_to(given, most)
        plain = numbers(given.tolist())
        gaps = sorted(after - end for (_, end), (after, _) in pairwise(given.tolist()))
        filled = sum(gaps[: max(0, len(given) - most)])
        assert plain <= numbers(result.tolist())
        assert result.tolist() == in_form(numbers(result.tolist()))
        assert len(result) == min(len(given), most)
        assert intervals.size(result) == len(plain) + filled


@pytest.mark.parametrize("seed", range(2))
def test_repeated_sets(seed):
    draw = random.Random(seed)
    for _ in range(CASES):
        plain = numbers(some_pairs(draw, 3))
        steps = [
            (draw.choice((0, 1, 2, 3, 4, 5, 8, 13, -1, -4, -9)), draw.randrange(1, 6))
            for _ in range(draw.randrange(1, 4))
        ]
        wanted = plain
        for distance, count in steps:
            wanted = {byte + distance * time for byte in wanted for time in range(count)}
        result = intervals.repeated(as_array(plain), steps)
        assert result.tolist() == in_form(wanted), (plain, steps)


@pytest.mark.parametrize("apart", [7, 60])
def test_a_repetition_up_to_the_limit_is_kept(apart, monkeypatch):
    ranges = as_array({0, 2, 4})
    monkeypatch.setattr(intervals, "MOST_INTERVALS", 12)
    assert len(intervals.repeated(ranges, [(apart, 4)])) == 12
    with pytest.raises(intervals.TooManyIntervals):
        intervals.repeated(ranges, [(apart, 5)])


@pytest.mark.parametrize("seed", range(3))
def test_regions_of_sets(seed, monkeypatch):
    draw = random.Random(seed)
    for _ in range(CASES):
        steps = [(draw.randrange(1, 60), draw.randrange(1, 5)) for _ in range(3)]
        plain = numbers(some_pairs(draw, 4))
        for distance, count in steps[: draw.randrange(4)]:
            plain = {byte + distance * time for byte in plain for time in range(count)}
        ranges = as_array(plain)
        most = draw.choice((1, 2, 3, 2048))
        monkeypatch.setattr(regions, "_MOST_INTERVALS", draw.choice((4, 1 << 20)))
        monkeypatch.setattr(regions, "_MOST_KNOWN", draw.choice((3, 4096)))
        monkeypatch.setattr(regions, "_MOST_RUNS", draw.choice((most, 1 << 16)))
        regions._known_pieces.cache_clear()
        exact = regions.exact_region(ranges, most)
        may, must = regions.may_region(ranges, most), regions.must_region(ranges, most)
        size = max(plain, default=0) + 1
        assert bytes_of(may, size) >= plain
        assert must is None or bytes_of(must, size) <= plain
        assert (must is None) == (not plain)
        if exact is not None:
            assert bytes_of(exact, size) == plain
            assert len(ranges) <= regions._MOST_INTERVALS
            assert may == exact
            assert must in (None, exact)
        else:
            assert len(ranges) > most or len(ranges) > regions._MOST_INTERVALS
        for region in filter(None, (exact, may, must)):
            assert not isinstance(region, Affine) or len(region.pieces) <= max(most, 1)
            assert in_order(region)


def in_order(region):
    offsets = [p.offset for p in region.pieces] if isinstance(region, Affine) else []
    return offsets == sorted(offsets)


def bytes_of(region, size):
    """The bytes of a region, by three accounts of them that agree."""
    plain = spelled_out(region, size)
    assert regions.regions_bytes((region,), size).tolist() == in_form(plain)
    inside = {byte for byte in plain if 0 <= byte < size}
    assert checker_bytes.region_ranges(region, size).tolist() == in_form(inside)
    hull = (min(inside), max(inside) + 1) if inside else (0, 0)
    assert checker_bytes.region_hull(region, size) == hull
    return plain


def spelled_out(region, size):
    match region:
        case Interval(start, end):
            return set(range(start, end))
        case Affine(pieces):
            plain = set()
            for piece in pieces:
                own = set(range(piece.offset, piece.offset + piece.width))
                for along in piece.dimensions:
                    own = {byte + along.stride * n for byte in own for n in range(along.count)}
                plain |= own
            return plain
    return set(range(size))


@pytest.mark.parametrize("seed", range(2))
def test_any_region_is_read_alike(seed):
    """Regions that no set was made into: pieces that overlap, and that leave the buffer."""
    draw = random.Random(seed)
    for _ in range(CASES):
        pieces = tuple(
            Descriptor(
                draw.randrange(30),
                draw.randrange(1, 6),
                tuple(
                    Dimension(draw.randrange(1, 20), draw.randrange(1, 4))
                    for _ in range(draw.randrange(3))
                ),
            )
            for _ in range(draw.randrange(4))
        )
        several = (
            Affine(tuple(sorted(pieces, key=lambda piece: piece.offset))),
            Interval(draw.randrange(9), draw.randrange(9, 40)),
            WholeBuffer(Wording("some reason")),
        )
        size = draw.randrange(1, 90)
        every = set().union(*(bytes_of(region, size) for region in several[:2]))
        assert regions.regions_bytes(several[:2], size).tolist() == in_form(every)
        bytes_of(several[2], size)


@pytest.mark.parametrize("distance", [3, 100])
def test_too_many_intervals_are_refused(distance, monkeypatch):
    """Of repetitions that lie between each other, and of those that come one after the other."""
    given = np.array([[0, 1], [10, 11]])
    count = 9 if distance == 100 else 30
    spelled = len(in_form({n * distance + at for n in range(count) for at in (0, 10)}))
    monkeypatch.setattr(intervals, "MOST_INTERVALS", spelled)
    assert len(intervals.repeated(given, [(distance, count)])) == spelled
    monkeypatch.setattr(intervals, "MOST_INTERVALS", spelled - 1)
    with pytest.raises(intervals.TooManyIntervals):
        intervals.repeated(given, [(distance, count)])
