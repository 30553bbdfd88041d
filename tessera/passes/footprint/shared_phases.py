"""The threads of a CTA that touched each cell of shared memory since the last barrier.

In: the cells that threads touch, and barriers. Out: whether a thread is ordered after the other
threads that touched a cell. Per cell the least and the greatest thread is kept. That is exact for
one thread, and shows whether all of them are in one warp: threads of a warp are also ordered by
`bar.warp.sync`. CTAs may be at different barriers, so each `Phase` belongs to some CTAs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tessera.ir.architecture import WARP
from tessera.ir.arrays import Flags, Offsets, Signed
from tessera.passes.lane_values.masks import ALL, Mask

_NOBODY = np.iinfo(np.int32).max
_MOST_PHASES = 8


class SharedTrouble(Exception):
    """Shared memory cannot be followed; what was found out with its help does not hold."""


class CellTouches:
    """The threads that touched each cell since a barrier."""

    __slots__ = ("high", "is_clear", "low", "met")

    def __init__(self, cells: int) -> None:
        self.low = np.full(cells, _NOBODY, dtype=np.int32)
        self.high = np.full(cells, -1, dtype=np.int32)
        # Cells whose threads, all of one warp, have met at a barrier of the warp since.
        self.met = np.zeros(cells, dtype=np.bool_)
        self.is_clear = True

    def copy(self) -> CellTouches:
        """An independent copy."""
        other = CellTouches(0)
        other.low, other.high, other.met = self.low.copy(), self.high.copy(), self.met.copy()
        other.is_clear = self.is_clear
        return other

    def clear(self) -> None:
        """A barrier: no cell has been touched since."""
        if not self.is_clear:
            self.low.fill(_NOBODY)
            self.high.fill(-1)
            self.met.fill(False)
            self.is_clear = True

    def add(self, cells: Offsets, threads: Signed) -> None:
        """Each thread touches its cell."""
        np.minimum.at(self.low, cells, threads)
        np.maximum.at(self.high, cells, threads)
        self.met[cells] = False
        self.is_clear = False

    def add_range(self, first: int, last: int) -> None:
        """Any thread may touch the cells from `first` to before `last`."""
        self.low[first:last] = -1
        self.high[first:last] = _NOBODY
        self.met[first:last] = False
        self.is_clear = False

    def any_in(self, first: int, last: int) -> bool:
        """Whether a thread touched one of these cells."""
        return bool((self.high[first:last] >= 0).any())

    def others(self, cells: Offsets, threads: Signed) -> Flags:
        """Where another thread touched the cell of a thread and the two are not ordered."""
        if self.is_clear:
            return np.zeros(cells.shape, dtype=np.bool_)
        low, high = self.low[cells], self.high[cells]
        own = (low == threads) & (high == threads)
        warp = threads // WARP
        met = self.met[cells] & (low // WARP == warp) & (high // WARP == warp)
        others: Flags = (high >= 0) & ~own & ~met
        return others

    def meet(self, warps: Flags) -> None:
        """These warps (a flag each) were at a barrier of their own."""
        if self.is_clear:
            return
        touched = np.nonzero(self.high >= 0)[0]
        first, last = self.low[touched] // WARP, self.high[touched] // WARP
        same = first == last
        self.met[touched[same]] |= warps[first[same]]


class Phase:
    """What the threads of some CTAs did since the barrier that these CTAs came to last."""

    __slots__ = ("ctas", "read", "written")

    def __init__(self, ctas: Flags, written: CellTouches, read: CellTouches) -> None:
        self.ctas = ctas
        self.written = written
        self.read = read

    @property
    def is_clear(self) -> bool:
        """Whether no thread touched a cell since the barrier."""
        return self.written.is_clear and self.read.is_clear


class Phases:
    """The phases that the CTAs of a run are in."""

    def __init__(self, cells: int, threads: int) -> None:
        self.threads = threads
        self.all = [Phase(ALL, CellTouches(cells), CellTouches(cells))]

    def barrier(self, ctas: Flags) -> None:
        """All threads of these CTAs come together."""
        phases: list[Phase] = []
        for phase in self.all:
            inside = phase.ctas & ctas
            if not inside.any():
                phases.append(phase)
                continue
            rest = phase.ctas & ~ctas
            if rest.any() and not phase.is_clear:
                phases.append(Phase(rest, phase.written.copy(), phase.read.copy()))
                phase.ctas = inside
            phase.written.clear()
            phase.read.clear()
            phases.append(phase)
        clear = [phase for phase in phases if phase.is_clear]
        for other in clear[1:]:
            clear[0].ctas = clear[0].ctas | other.ctas
        self.all = [*clear[:1], *(phase for phase in phases if not phase.is_clear)]
        if len(self.all) > _MOST_PHASES:
            raise SharedTrouble

    def meet_warps(self, present: Flags) -> None:
        """Threads come together warp by warp: `present` are those that surely do."""
        warps = -(-self.threads // WARP)
        for phase in self.all:
            here = present | ~phase.ctas
            flat = np.broadcast_to(here, (*here.shape[:-1], self.threads))
            every = flat.reshape(-1, self.threads).all(axis=0)
            padded = np.ones(warps * WARP, dtype=np.bool_)
            padded[: self.threads] = every
            full = np.asarray(padded.reshape(warps, WARP).all(axis=1))
            phase.written.meet(full)
            phase.read.meet(full)

    def present(self, cells: Offsets, mask: Mask) -> Iterator[tuple[Phase, Signed]]:
        """Each phase that threads here are in, with those threads."""
        for phase in self.all:
            here = mask.may & phase.ctas
            if not here.any():
                continue
            flat = here.reshape(-1, here.shape[-1]).any(axis=0)
            threads = np.nonzero(np.broadcast_to(flat, cells.shape) & (cells >= 0))[0]
            yield phase, threads.astype(np.int32)
