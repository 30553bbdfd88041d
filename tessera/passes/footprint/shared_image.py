"""The contents of the shared memory of each CTA, cell by cell, while an excerpt runs.

In: stores and loads of exact addresses, in the order in which the excerpt runs them, and barriers.
Out: what a load gives; or `SharedTrouble`, after which nothing that was loaded counts.

A *cell* is 4 bytes. It names a lane of a value that was stored, so values that differ from CTA to
CTA are kept once, as the registers have them. A store that may happen, or that some CTAs make, or
that two threads make at once, puts a join of old and new there.

The threads of a CTA run in any order between two barriers; the excerpt runs them in one. So the
threads that wrote and that read a cell since the last barrier are known (`shared_phases`):
- a load of a cell that another thread wrote since is not followed;
- a store to a cell that another thread read since is trouble: that load may have seen it;
- stores of two threads are joined.

Copies that land later (`cp.async`) make their cells unknown until they are known to be over, which
for bulk copies is never.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tessera.ir.arrays import Flags, Offsets, Signed
from tessera.passes.byte_sets.intervals import distinct
from tessera.passes.footprint.shared_phases import Phase, Phases, SharedTrouble
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import HARD, MASK, NUMBER, U64, Lanes
from tessera.passes.lane_values.masks import Mask, same_threads

CELL = 4
_UNKNOWN = 0
_WHOLE, _LOW, _HIGH = 0, 1, 2
_MOST_RECORDS = 64
_MOST_AT_ONCE = 4


class SharedImage:
    """The cells of one run; see the module docstring. Cells of threads are arrays with a number per
    thread, -1 for a thread that takes no part."""

    def __init__(self, cells: int, threads: int) -> None:
        self.threads = threads
        self.record = np.zeros(cells, dtype=np.int32)
        self.lane = np.zeros(cells, dtype=np.int32)
        self.part = np.zeros(cells, dtype=np.int8)
        self.landing = np.zeros(cells, dtype=np.bool_)
        self.forever = np.zeros(cells, dtype=np.bool_)
        self.values: dict[int, Lanes] = {}
        self.next = _UNKNOWN + 1
        self.phases = Phases(cells, threads)
        self.work = 0

    # --- order -----------------------------------------------------------------------------

    def copies_are_over(self) -> None:
        """Every thread waited for its copies, and then for the others."""
        self.landing.fill(False)

    # --- stores ----------------------------------------------------------------------------

    def store(self, cells: Offsets, width: int, value: Lanes, mask: Mask, *, sure: bool) -> None:
        """Put a value of 4 or 8 bytes in the cells of the threads of a mask.

        `sure`: those that are strong in the mask surely do it.
        """
        for some in self._one_each(cells, width, value, mask):
            raced = self._note_write(some, _cells_of(width), mask)
            final = value
            uniform = mask.strong.size == mask.strong.shape[-1] and same_threads(
                mask.strong, mask.may
            )
            if not sure or not uniform or raced.any():
                final = self._joined(some, width, value, mask, raced, sure=sure)
            threads = np.nonzero(some >= 0)[0]
            self._put(threads, some[threads], width, final)

    def _note_write(self, cells: Offsets, count: int, mask: Mask) -> Flags:
        """Note the threads that write, `count` cells each; True for threads of which another one
        wrote a cell since the last barrier."""
        raced = np.zeros(cells.shape, dtype=np.bool_)
        self.work += 16 * count * len(cells)
        for phase, threads in self.phases.present(cells, mask):
            places = (cells[threads][:, None] + np.arange(count)).reshape(-1)
            everybody = np.repeat(threads, count)
            if phase.read.others(places, everybody).any():
                raise SharedTrouble
            foreign = phase.written.others(places, everybody).reshape(-1, count)
            raced[threads] |= foreign.any(axis=1)
            phase.written.add(places, everybody)
        return raced

    def _one_each(self, cells: Offsets, width: int, value: Lanes, mask: Mask) -> Iterator[Offsets]:
        """The cells of the threads in parts in which no two threads have the same one."""
        threads = np.nonzero(cells >= 0)[0]
        places = cells[threads]
        _, first, which = np.unique(places, return_index=True, return_inverse=True)
        if len(first) == len(places):
            yield cells
            return
        which = which.reshape(-1)
        instead = threads[first][which]
        uniform = mask.may.size == mask.may.shape[-1]
        if uniform and all(
            array.shape[-1] == 1 or bool((array[..., threads] == array[..., instead]).all())
            for array in (value.low(), lanes.spans(value))
        ):
            # All threads that store to a cell store the same: the first one does for all.
            yield _only(cells, threads[first])
            self._note_write(cells, _cells_of(width), mask)
            return
        # `turn`: how many threads before this one store to the same cell.
        order = np.argsort(which, kind="stable")
        starts = np.searchsorted(which[order], np.arange(len(first)))
        turn = np.empty(len(places), dtype=np.int64)
        turn[order] = np.arange(len(places)) - starts[which[order]]
        if turn.max() >= _MOST_AT_ONCE:
            if width == 8:
                raise SharedTrouble
            self.overwrite(cells, 1, mask)
            return
        for number in range(int(turn.max()) + 1):
            yield _only(cells, threads[turn == number])

    def _joined(
        self, cells: Offsets, width: int, value: Lanes, mask: Mask, raced: Flags, *, sure: bool
    ) -> Lanes:
        old = self.load(cells, width, value.why)
        both = lanes.join(old, value, 8 * width)
        self.work += 8 * both.size
        replaced = mask.strong & ~raced if sure else np.zeros((1, 1), dtype=np.bool_)
        final = lanes.merge(mask.may, lanes.merge(replaced, value, both), old)
        if width == 8 and (_is_open(final) & ~_is_open(value) & mask.may & (cells >= 0)).any():
            # Addresses of two objects: a join of whole objects says more.
            raise SharedTrouble
        return final

    def _put(self, threads: Signed, places: Offsets, width: int, value: Lanes) -> None:
        number = self.next
        self.next += 1
        self.values[number] = value
        halves = ((0, _LOW), (1, _HIGH)) if width == 8 else ((0, _WHOLE),)
        for half, part in halves:
            self.record[places + half] = number
            self.lane[places + half] = threads
            self.part[places + half] = part
        self._hide_landing(places, width)
        if len(self.values) > _MOST_RECORDS:
            used = set(distinct(self.record).tolist())
            self.values = {n: v for n, v in self.values.items() if n in used}

    def _hide_landing(self, places: Offsets, width: int) -> None:
        """Make cells unknown that a copy may still overwrite."""
        for half in range(_cells_of(width)):
            here = places + half
            self.record[here[self.landing[here] | self.forever[here]]] = _UNKNOWN

    def overwrite(
        self, cells: Offsets, count: int, mask: Mask, *, later: bool = False, forever: bool = False
    ) -> None:
        """Put something unknown in `count` cells of each thread, now or `later`."""
        self._note_write(cells, count, mask)
        here = (cells[cells >= 0][:, None] + np.arange(count)).reshape(-1)
        self.record[here] = _UNKNOWN
        self.landing[here] |= later
        self.forever[here] |= forever

    def overwrite_range(self, first: int, last: int, *, forever: bool = False) -> None:
        """Put something unknown in any of the cells from `first` to before `last`."""
        for phase in self.phases.all:
            if phase.read.any_in(first, last):
                raise SharedTrouble
            phase.written.add_range(first, last)
        self.record[first:last] = _UNKNOWN
        self.forever[first:last] |= forever

    # --- loads -----------------------------------------------------------------------------

    def disturbed(self, cells: Offsets, width: int, mask: Mask) -> bool:
        """Whether another thread wrote what threads of a mask load since the last barrier; else
        note that they load it. What is unknown stays unknown whatever a thread writes."""
        loads: list[tuple[Phase, Offsets, Signed]] = []
        for phase, threads in self.phases.present(cells, mask):
            for half in range(_cells_of(width)):
                places = cells[threads] + half
                known = self.record[places] != _UNKNOWN
                loads.append((phase, places[known], threads[known]))
        if any(phase.written.others(places, threads).any() for phase, places, threads in loads):
            return True
        for phase, places, threads in loads:
            phase.read.add(places, threads)
        return False

    def load(self, cells: Offsets, width: int, why: int) -> Lanes:
        """The contents of the cells of each thread, as 4 or 8 bytes."""
        chosen = cells >= 0
        places = np.where(chosen, cells, cells[chosen][0] if chosen.any() else 0)
        low = self._gather(places, why)
        self.work += 4 * low.size
        if width != 8:
            return self._half(low, places)
        last = len(self.record) - 1
        above = np.minimum(places + 1, last)
        whole = (
            (self.part[places] == _LOW)
            & (self.part[above] == _HIGH)
            & (self.record[places] == self.record[above])
            & (self.lane[places] == self.lane[above])
            & (self.record[places] != _UNKNOWN)
        )
        if whole.all():
            return low
        high = self._half(self._gather(above, why), above)
        pasted = _paste(self._half(low, places), high, why)
        return lanes.merge(whole[None, :], low, pasted)

    def _gather(self, places: Offsets, why: int) -> Lanes:
        """The value that each cell names, of 8 bytes where the cell is half of one."""
        numbers, owners = self.record[places], self.lane[places]
        gathered: Lanes | None = None
        for number in distinct(numbers):
            value = self.values.get(int(number))
            cell_value = lanes.unknown(32, why) if value is None else _take(value, owners)
            gathered = (
                cell_value
                if gathered is None
                else lanes.merge((numbers == number)[None, :], cell_value, gathered)
            )
        assert gathered is not None
        return gathered

    def _half(self, value: Lanes, places: Offsets) -> Lanes:
        """4 bytes of what `_gather` found."""
        part = np.where(self.record[places] == _UNKNOWN, _WHOLE, self.part[places])
        if not part.any():
            return value
        full = U64(MASK[32])
        lo = np.where(part == _LOW, value.low() & full, value.low())
        lo = np.where(part == _HIGH, value.low() >> U64(32), lo)
        kind = HARD if value.kind else NUMBER
        if value.span is None:
            return Lanes(lo, kind=kind)
        # Where the interval passes a multiple of 2**32, either half can be anything.
        low = value.low() & full
        near = value.span <= full - low
        span = np.where(part == _HIGH, np.where(near, U64(0), full), value.span)
        span = np.where((part == _LOW) & ~near, full, span)
        return Lanes(np.where(span == full, U64(0), lo), span, value.why, kind)


def _only(cells: Offsets, threads: Signed) -> Offsets:
    """The cells of some threads."""
    kept = np.full_like(cells, -1)
    kept[threads] = cells[threads]
    return kept


def _cells_of(width: int) -> int:
    return 2 if width == 8 else 1


def _is_open(value: Lanes) -> Flags:
    """Where a 64-bit value can be anything, in no object."""
    is_open: Flags = (lanes.spans(value) == U64(MASK[64])) & (value.low() == U64(0))
    return is_open


def _take(value: Lanes, owners: Signed) -> Lanes:
    """The values of other threads."""
    if value.options:
        return lanes.one_of([_take(option, owners) for option in value.options], value.why)
    lo = value.low()
    lo = lo if lo.shape[-1] == 1 else lo[..., owners]
    span = value.span
    if span is not None and span.shape[-1] > 1:
        span = span[..., owners]
    return Lanes(lo, span, value.why, value.kind)


def _paste(low: Lanes, high: Lanes, why: int) -> Lanes:
    """8 bytes from two halves of which something is known of the lower and all of the upper."""
    lo = low.low() | (high.low() << U64(32))
    kind = HARD if low.kind or high.kind else NUMBER
    if low.span is None and high.span is None:
        return Lanes(lo, kind=kind)
    span = lanes.spans(low)
    full = U64(MASK[32])
    open_ = (lanes.spans(high) > 0) | (span >= full) | (span > full - low.low())
    span = np.where(open_, U64(MASK[64]), span)
    return Lanes(np.where(open_, U64(0), lo), span, why, kind)
