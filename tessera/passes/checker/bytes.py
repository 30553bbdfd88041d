"""The sets of bytes of the plan checker.

In: regions of accesses, ranges of a plan. Out: int64 arrays of shape (n, 2) with the starts and
ends (exclusive) of sorted ranges that do not touch, and indices into a list of boundaries.

A buffer is cut at every boundary of an access, transfer, fill or home; the pieces are its *atoms*.
Facts about bytes are then arrays with one value per atom. The bytes that an operation touches are a
slice of such an array, or an array of indices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from tessera.ir.graph.region import Affine, Descriptor, Interval, Region, Unknown, WholeBuffer

Array = npt.NDArray[np.int64]
Index = slice | Array
NOTHING: Array = np.zeros((0, 2), dtype=np.int64)


def ranges_of(pairs: Iterable[tuple[int, int]]) -> Array:
    """Ranges from pairs, in any order."""
    ranges = np.fromiter(chain.from_iterable(pairs), dtype=np.int64).reshape(-1, 2)
    return join([ranges[ranges[:, 0] < ranges[:, 1]]])


def join(parts: Sequence[Array]) -> Array:
    """All bytes of the parts."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return NOTHING
    ranges = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if (ranges[1:, 0] > ranges[:-1, 1]).all():
        return ranges
    ranges = ranges[ranges[:, 0].argsort(kind="stable")]
    reach = np.maximum.accumulate(ranges[:, 1])
    begins = np.append(0, (ranges[1:, 0] > reach[:-1]).nonzero()[0] + 1)
    ends = np.append(begins[1:] - 1, len(ranges) - 1)
    return np.stack([ranges[begins, 0], reach[ends]], axis=1)


def minus(left: Array, right: Array) -> Array:
    """The bytes of `left` that are not in `right`."""
    if len(left) == 0 or len(right) == 0:
        return left
    if len(left) == len(right) and (left == right).all():
        return NOTHING
    bounds = distinct([left.ravel(), right.ravel()])
    kept = np.zeros(len(bounds), dtype=np.bool_)
    kept[places(bounds, left)] = True
    kept[places(bounds, right)] = False
    return _runs(bounds, kept)


def common(left: Array, right: Array) -> Array:
    """The bytes in both."""
    if len(left) == 0 or len(right) == 0:
        return NOTHING
    return minus(left, minus(left, right))


def boundaries(length: int, parts: Iterable[Array]) -> Array:
    """The offsets at which a buffer is cut: its two ends, and the ends of all ranges."""
    return distinct([np.array([0, length]), *(part.ravel() for part in parts)])


def distinct(parts: Sequence[Array]) -> Array:
    """The numbers of all parts, each once, in order.

    Sorting finds the runs that are in order already; NumPy's own `unique` takes a hundred times as
    long for such numbers.
    """
    numbers = np.sort(np.concatenate(parts), kind="stable")
    each: Array = numbers[np.append(True, numbers[1:] != numbers[:-1])]
    return each


def places(bounds: Array, ranges: Array) -> Index:
    """The atoms that make up ranges whose ends are all among the boundaries."""
    if len(ranges) == 1:
        first, last = bounds.searchsorted(ranges[0]).tolist()
        return slice(first, last)
    ends = bounds.searchsorted(ranges)
    counts = ends[:, 1] - ends[:, 0]
    shift = ends[:, 0] - (np.cumsum(counts) - counts)
    inside: Array = np.arange(counts.sum()) + np.repeat(shift, counts)
    return inside


def marked(bounds: Array, index: Index, mask: npt.NDArray[np.bool_]) -> Array:
    """The ranges of the atoms in `index` that are set in `mask`."""
    chosen = np.zeros(len(bounds), dtype=np.bool_)
    chosen[index] = mask
    return _runs(bounds, chosen)


def _runs(bounds: Array, chosen: npt.NDArray[np.bool_]) -> Array:
    """The ranges that the chosen atoms form; no atom starts at the last boundary."""
    edges = np.diff(chosen.astype(np.int8), prepend=np.int8(0), append=np.int8(0))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    return np.stack([bounds[starts], bounds[ends]], axis=1)


def text(ranges: Array) -> str:
    """A few ranges, for people: `0:64, 128:192 and 3 more`."""
    shown = ", ".join(f"{start}:{end}" for start, end in ranges[:3].tolist())
    return shown if len(ranges) <= 3 else f"{shown} and {len(ranges) - 3} more"


def region_ranges(region: Region, length: int) -> Array:
    """The bytes of a region that lie in a buffer of `length` bytes."""
    match region:
        case Affine():
            ranges = join([_descriptor(piece) for piece in region.pieces])
        case Interval():
            ranges = ranges_of([(region.start, region.end)])
        case WholeBuffer() | Unknown():
            ranges = ranges_of([(0, length)])
    if len(ranges) == 0 or (ranges[0, 0] >= 0 and ranges[-1, 1] <= length):
        return ranges
    cut = np.clip(ranges, 0, length)
    return cut[cut[:, 0] < cut[:, 1]]


def region_hull(region: Region, length: int) -> tuple[int, int]:
    """The first byte of a region in a buffer of `length` bytes and the end of its last."""
    if isinstance(region, Affine) and region.pieces:
        first = min(piece.offset for piece in region.pieces)
        end = max(piece.end for piece in region.pieces)
        if first >= 0 and end <= length:
            return first, end
    return hull_of(region_ranges(region, length))


def hull_of(ranges: Array) -> tuple[int, int]:
    """The start of the first range and the end of the last; 0 and 0 if there is none."""
    return (int(ranges[0, 0]), int(ranges[-1, 1])) if len(ranges) else (0, 0)


def _descriptor(piece: Descriptor) -> Array:
    """Merge dimensions without gaps into a wider word; the other dimensions yield the starts."""
    width = piece.width
    starts = np.array([piece.offset], dtype=np.int64)
    for dimension in sorted(piece.dimensions, key=lambda dimension: dimension.stride):
        if dimension.stride <= width:
            width += dimension.stride * (dimension.count - 1)
        else:
            steps = np.arange(dimension.count, dtype=np.int64) * dimension.stride
            starts = (starts[:, None] + steps[None, :]).ravel()
    return join([np.stack([starts, starts + width], axis=1)])
