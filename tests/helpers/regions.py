"""The bytes of regions, run by run, without the arrays that the analysis uses."""

from __future__ import annotations

import itertools

from tessera.ir.graph.region import Affine, Interval, Region


def region_intervals(region: Region, size: int) -> list[tuple[int, int]]:
    """The byte ranges of a region in a buffer of `size` bytes; they may overlap."""
    if isinstance(region, Interval):
        return [(region.start, region.end)]
    if not isinstance(region, Affine):
        return [(0, size)]
    runs = []
    for piece in region.pieces:
        ranges = [[d.stride * i for i in range(d.count)] for d in piece.dimensions]
        starts = (piece.offset + sum(steps) for steps in itertools.product(*ranges))
        runs += [(start, start + piece.width) for start in starts]
    return runs
