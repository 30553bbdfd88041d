"""Conversion from sets of bytes to regions, and back.

In: intervals (`passes.byte_sets.intervals`). Out: the `Region` with the same bytes. A left-to-right
scan keeps the number of descriptors small: a run of equal pieces at equal distances becomes one
descriptor, and a run of equal descriptors becomes one descriptor with a further dimension.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from tessera.ir.arrays import Offsets, Ranges, Signed
from tessera.ir.graph.region import Affine, Descriptor, Dimension, Interval, Region
from tessera.passes.byte_sets import intervals

MOST_PIECES = 2048
_MOST_INTERVALS = 1 << 20
# Limit on the runs that one scan may leave for the next; more than this do not fold into few
# pieces.
_MOST_RUNS = 1 << 16
_FOLDS = 3
_MOST_KNOWN = 4096  # only sets of at most this many intervals have their pieces cached

_Shape = tuple[int, tuple[Dimension, ...]]
"""A descriptor without its offset."""


def exact_region(ranges: Ranges, most: int = MOST_PIECES) -> Region | None:
    """The region of exactly these bytes; None if it has too many pieces."""
    return _compress(ranges, most) if len(ranges) <= _MOST_INTERVALS else None


def may_region(ranges: Ranges, most: int = MOST_PIECES) -> Region:
    """A region that holds these bytes; past the limit on pieces the smallest gaps are filled."""
    region = _compress(intervals.narrow_to(ranges, _MOST_INTERVALS), most)
    return _few(intervals.narrow_to(ranges, most), most) if region is None else region


def must_region(ranges: Ranges, most: int = MOST_PIECES) -> Region | None:
    """A region inside these bytes, or None; past the limit the largest pieces are kept."""
    if len(ranges) == 0:
        return None
    region = _compress(ranges[:_MOST_INTERVALS], most)
    if region is not None:
        return region
    largest = (ranges[:, 0] - ranges[:, 1]).argsort(kind="stable")[:most]
    largest.sort()
    return _few(ranges[largest], most)


def _few(ranges: Ranges, most: int) -> Region:
    region = _compress(ranges, most)
    assert region is not None
    return region


def _compress(ranges: Ranges, most: int) -> Region | None:
    """The region of some intervals; None if it has more than `most` pieces."""
    if len(ranges) == 0:
        return Affine(())
    first = int(ranges[0, 0])
    if len(ranges) == 1:
        return Interval(first, int(ranges[0, 1]))
    # The accesses of an unrolled loop differ only in their start.
    from_zero = ranges - first
    is_small = len(ranges) <= _MOST_KNOWN
    pieces = _known_pieces(from_zero.tobytes(), most) if is_small else _pieces(from_zero, most)
    if pieces is None:
        return None
    return Affine(tuple(Descriptor(first + offset, *shape) for offset, shape in pieces))


@lru_cache(maxsize=64)
def _known_pieces(ranges: bytes, most: int) -> tuple[tuple[int, _Shape], ...] | None:
    """Offsets and shapes of the pieces of some intervals; None if there are more than `most`."""
    return _pieces(np.frombuffer(ranges, dtype=np.int64).reshape(-1, 2), most)


def _pieces(ranges: Ranges, most: int) -> tuple[tuple[int, _Shape], ...] | None:
    offsets, width = ranges[:, 0], ranges[:, 1] - ranges[:, 0]
    if (width == width[0]).all():
        widths, kinds = width[:1], np.zeros(len(ranges), dtype=np.int64)
    else:
        widths, kinds = np.unique(width, return_inverse=True)
    shapes: list[_Shape] = [(int(size), ()) for size in widths]
    for _ in range(_FOLDS):
        runs = _find_runs(offsets, kinds)
        if runs is None:
            return None
        if len(runs) == len(offsets):
            break
        kinds, shapes = _fold(offsets, kinds, shapes, runs)
        offsets = offsets[runs]
    if len(offsets) > most:
        return None
    pieces = zip(offsets.tolist(), kinds.tolist(), strict=True)
    return tuple((offset, shapes[kind]) for offset, kind in pieces)


def _find_runs(offsets: Offsets, kinds: Signed) -> Offsets | None:
    """The starts of runs of pieces of one kind at equal distances; None if there are too many.

    Each run is as long as possible, from left to right. Offsets are sorted and distinct.
    """
    count = len(offsets)
    steps = np.diff(offsets)
    alike = kinds[1:] == kinds[:-1]
    # A run goes on while kind and distance stay the same; `following` is the start of the next run.
    same_step = alike[1:] & alike[:-1] & (steps[1:] == steps[:-1])
    breaks = np.append(np.flatnonzero(~same_step), count - 2)
    ends = (breaks[np.searchsorted(breaks, np.arange(count - 1))] + 2) if count > 1 else breaks
    following = np.append(np.where(alike, ends, np.arange(1, count)), count).tolist()
    starts = [0]
    while (at := following[starts[-1]]) < count:
        if len(starts) == _MOST_RUNS:
            return None
        starts.append(at)
    return np.array(starts, dtype=np.int64)


def _fold(
    offsets: Offsets, kinds: Signed, shapes: list[_Shape], runs: Offsets
) -> tuple[Offsets, list[_Shape]]:
    """Fold each run into one piece: return the kind of each piece, and the shape of each kind."""
    counts = np.diff(runs, append=len(offsets))
    steps = offsets[np.minimum(runs + 1, len(offsets) - 1)] - offsets[runs]
    steps[counts == 1] = 0
    described = zip(kinds[runs].tolist(), steps.tolist(), counts.tolist(), strict=True)
    order: dict[tuple[int, int, int], int] = {}
    folded = [order.setdefault(run, len(order)) for run in described]
    folded_shapes: list[_Shape] = []
    for kind, step, count in order:
        width, dimensions = shapes[kind]
        more = (Dimension(step, count),) if count > 1 else ()
        folded_shapes.append((width, (*more, *dimensions)))
    return np.array(folded, dtype=np.int64), folded_shapes


@lru_cache(maxsize=1024)
def region_bytes(region: Region, size: int) -> Ranges:
    """The bytes of a region in a buffer of `size` bytes."""
    return regions_bytes((region,), size)


def regions_bytes(regions: Iterable[Region], size: int) -> Ranges:
    """The union of the bytes of some regions.

    Pieces with equal repetition are merged before they are repeated: the stores of an unrolled loop
    often leave no gaps between each other.
    """
    alike: dict[tuple[Dimension, ...], list[tuple[int, int]]] = {}
    for region in regions:
        match region:
            case Affine():
                for piece in region.pieces:
                    run = (piece.offset, piece.offset + piece.width)
                    alike.setdefault(piece.dimensions, []).append(run)
            case Interval():
                alike.setdefault((), []).append((region.start, region.end))
            case _:
                return intervals.interval(0, size)
    parts = [_repeat(intervals.from_pairs(runs), along) for along, runs in alike.items()]
    return intervals.union(parts)


def _repeat(runs: Ranges, dimensions: tuple[Dimension, ...]) -> Ranges:
    for dimension in reversed(dimensions):
        steps = dimension.stride * np.arange(dimension.count, dtype=np.int64)
        runs = intervals.union([(steps[:, None, None] + runs).reshape(-1, 2)])
    return runs
