"""Cuts of launches with other grids on other architectures: at the same bytes on each.

In: a cut of a launch's own grid. Out: the cuts of the other grids whose parts write the same bytes,
and the parts themselves. The grids of two architectures divide a buffer into tiles of their own; an
edge of one is found in the other by the bytes that are written before it, which only grow with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from tessera.ir.plan.division import Cut, Division
from tessera.ir.program import program as ir
from tessera.passes.division.divide import divide
from tessera.passes.division.part_conflicts import PartBytes, Written, writes_equal, written_size
from tessera.passes.division.part_regions import PartRegions
from tessera.wording import Wording

AXES = "xyz"


class GridCuts:
    """Finds the cuts of all grids of a launch."""

    def __init__(self, program: ir.Program, parts: PartRegions) -> None:
        self.program = program
        self.parts = parts

    def own_grids(self, launch: ir.Launch) -> Iterator[str]:
        """The architectures whose code has another grid than the launch itself."""
        for variant in self.program.modules[launch.module].variants:
            if ir.for_arch(launch, variant.arch).grid != launch.grid:
                yield variant.arch

    def for_every_arch(self, work: ir.Launch, cut: Cut) -> tuple[Cut, ...] | Wording:
        """The cut and those for other grids, or why there is none."""
        others = tuple(self.own_grids(work))
        archs = [v.arch for v in self.program.modules[work.module].variants]
        base = next((arch for arch in archs if arch not in others), None)
        if others and base is None:
            return Wording("no code has the grid of the launch itself")
        made = [cut]
        for arch in others:
            other = self._matching(work, cut, str(base), arch)
            if other is None:
                reason = f"the code for `{arch}` has another grid, and divides these bytes nowhere"
                return Wording(reason)
            made.append(other)
        return tuple(made)

    def _matching(self, launch: ir.Launch, cut: Cut, base: str, arch: str) -> Cut | None:
        """The cut of the grid for `arch` whose parts write what those for `base` write."""
        grid = ir.for_arch(launch, arch).grid
        wanted = [
            self._written(launch, replace(cut, edges=(0, edge, cut.edges[-1])), base)
            for edge in cut.edges[1:-1]
        ]
        for axis in sorted(AXES, key=lambda name: name != cut.axis):
            extent = grid[AXES.index(axis)]
            edges = [0]
            for edge, bytes_ in zip(cut.edges[1:-1], wanted, strict=True):
                near = edge * extent // cut.edges[-1]
                place = self._edge(launch, replace(cut, axis=axis, arch=arch), extent, near, bytes_)
                if place is None:
                    break
                edges.append(place)
            else:
                if not falls((*edges, extent)):
                    return replace(cut, axis=axis, edges=(*edges, extent), arch=arch)
        return None

    def _edge(
        self, launch: ir.Launch, cut: Cut, extent: int, near: int, wanted: Written
    ) -> int | None:
        """The edge before which the code for an architecture writes the wanted bytes: two
        guesses, then bisection."""
        low, high, size = 1, extent - 1, written_size(wanted)
        guesses = [near, near + 1]
        while low <= high:
            middle = min(max(guesses.pop(0), low), high) if guesses else (low + high) // 2
            there = self._written(launch, replace(cut, edges=(0, middle, extent)), cut.arch)
            if writes_equal(there, wanted):
                return middle
            low, high = (middle + 1, high) if written_size(there) < size else (low, middle - 1)
        return None

    def _written(self, launch: ir.Launch, cut: Cut, arch: str) -> Written:
        """The bytes that the first part of a cut may write, by the code for an architecture."""
        whole = replace(ir.for_arch(launch, arch), id=launch.id)
        first, _ = parts_of_launch(self.program, whole, [replace(cut, arch="")])
        part = self.parts.find(first, arch)
        return PartBytes(self.program, part).writes


def parts_of_launch(program: ir.Program, launch: ir.Launch, cuts: Sequence[Cut]) -> list[ir.Launch]:
    """The parts of a launch, each under the number of the whole."""
    alone = replace(program, steps=(replace(launch, id=ir.LaunchId(0)),))
    division = Division(tuple(replace(cut, step=0) for cut in cuts))
    return [replace(part, id=launch.id) for part in divide(alone, division).launches()]


def falls(edges: Sequence[int]) -> bool:
    """Whether an edge does not lie after the one before."""
    return any(after <= edge for edge, after in pairwise(edges))
