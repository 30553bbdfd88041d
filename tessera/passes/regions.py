"""From sets of bytes to regions, and back.

In: intervals (`passes.intervals`). Out: the `Region` with the same bytes, as few descriptors as
a left-to-right scan finds: runs of equal pieces at equal distances become one descriptor, and
runs of equal descriptors become one with a further dimension.
"""

# NumPy's operators on arrays of unknown element type give Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from tessera.ir.region import (
    Affine,
    Descriptor,
    Dimension,
    Interval,
    Region,
    WholeBuffer,
    region_intervals,
)
from tessera.passes import intervals
from tessera.passes.lanes import Array

MOST_PIECES = 2048
_MOST_INTERVALS = 1 << 20


def may_region(found: Array, size: int) -> Region:
    """A region that holds these bytes; past the limit on pieces the smallest gaps are filled."""
    region = _compress(intervals.narrow_to(found, _MOST_INTERVALS))
    if isinstance(region, Affine) and len(region.pieces) > MOST_PIECES:
        region = _compress(intervals.narrow_to(found, MOST_PIECES))
    return region


def must_region(found: Array) -> Region | None:
    """A region inside these bytes, or None; past the limit the largest pieces are kept."""
    if len(found) == 0:
        return None
    region = _compress(found[:_MOST_INTERVALS])
    if isinstance(region, Affine) and len(region.pieces) > MOST_PIECES:
        largest = (found[:, 0] - found[:, 1]).argsort(kind="stable")[:MOST_PIECES]
        largest.sort()
        region = _compress(found[largest])
    return region


def _compress(found: Array) -> Region:
    if len(found) == 1:
        return Interval(int(found[0, 0]), int(found[0, 1]))
    pieces = [Descriptor(int(s), int(e) - int(s)) for s, e in found]
    for _ in range(3):
        folded = _fold(pieces)
        if len(folded) == len(pieces):
            break
        pieces = folded
    return Affine(tuple(pieces))


def _fold(pieces: list[Descriptor]) -> list[Descriptor]:
    """Runs of pieces that are alike but for an offset in equal steps, each as one piece."""
    folded: list[Descriptor] = []
    at = 0
    while at < len(pieces):
        first = pieces[at]
        end = at + 1
        if end < len(pieces) and _alike(first, pieces[end]):
            step = pieces[end].offset - first.offset
            end += 1
            while (
                end < len(pieces)
                and _alike(first, pieces[end])
                and pieces[end].offset - pieces[end - 1].offset == step
            ):
                end += 1
            if step > 0 and end - at > 1:
                dimension = Dimension(step, end - at)
                folded.append(replace(first, dimensions=(dimension, *first.dimensions)))
                at = end
                continue
        folded.append(first)
        at += 1
    return folded


def _alike(left: Descriptor, right: Descriptor) -> bool:
    return left.width == right.width and left.dimensions == right.dimensions


@lru_cache(maxsize=4096)
def region_bytes(region: Region, size: int) -> Array:
    """The bytes of a region in a buffer of `size` bytes."""
    if isinstance(region, WholeBuffer):
        return intervals.interval(0, size)
    return intervals.from_pairs(region_intervals(region, size))
