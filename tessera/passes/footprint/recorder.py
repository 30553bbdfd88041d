"""What a kernel's accesses add up to: bytes per instruction and zone, as they are met.

In: one access at a time, an address per thread with the threads that may and that surely make
it. Out: per instruction and zone the bytes it may touch and those it surely touches.

In a loop the addresses of an instruction mostly move by one distance each time. Such a run is
kept as its first set with distances, and put together at the end.

Longer than 400 lines because every form of an access (exact, open, growing with digits, moving in a
loop) ends in the same sets of bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tessera.ir.arrays import Flags, Offsets, Ranges, Words
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.intervals import distinct, repeated
from tessera.passes.footprint.both_ways import SureWrite
from tessera.passes.footprint.zones import REACH, Zones
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.digits import RoundDigit, Split
from tessera.passes.lane_values.lanes import (
    MASK,
    MIXED,
    NO_SLOPES,
    POINTER,
    U64,
    Lanes,
    Slopes,
    same,
)
from tessera.passes.lane_values.masks import NONE, same_threads, selected
from tessera.passes.lane_values.slopes import apart, collapsed, steps_of

_MERGE_ABOVE = 4096
_SORT_COST = 40
_NULL_REACH = 1 << 32
_RUN_REACH = REACH // 4
_MOST_MOVES = 1 << 14


@dataclass(slots=True)
class _MovingAddresses:
    """Addresses that move by a distance: the last ones, and the distances so far."""

    address: Lanes
    may: Flags
    sure: Flags
    width: int
    pieces: list[tuple[int, Ranges, Ranges]]
    moves: list[int]


class Recorder:
    """Collects the accesses of a launch."""

    def __init__(self, zones: Zones) -> None:
        self.zones = zones
        self.touched: dict[Key, TouchedBytes] = {}
        self.unresolved: dict[tuple[int, int], int] = {}
        self.nulls: dict[int, bool] = {}
        # Zones that values of the excerpt are loaded from: with known contents, and without.
        self.looked_up: set[int] = set()
        self.asked: set[int] = set()
        # Zones of which equal addresses are taken to hold equal numbers (`loaded`).
        self.steady: set[int] = set()
        # The CTA that copied a tensor map to each address, and the bytes of maps that copies used.
        self.map_owners: dict[int, int] = {}
        self.map_conflict = False
        self.used_maps: dict[int, tuple[int, Ranges]] = {}
        # Pinned calls that can touch only the buffers that the launch was given.
        self.bounded: set[int] = set()
        # Whether addresses came out of sums of several, or out of their bits (`pointer_steps`).
        self.doubt = 0
        # The effects whose addresses are made of several, and in no object for sure.
        self.mixed: set[tuple[int, int]] = set()
        self._runs: dict[tuple[int, int], _MovingAddresses] = {}
        self.work = 0

    def add(
        self, index: int, effect: int, address: Lanes, width: int, may: Flags, sure: Flags
    ) -> None:
        """An access of `width` bytes per thread."""
        if any(s.size > 1 or isinstance(d, RoundDigit) for d, s in address.slopes.items()):
            self._add_apart(index, effect, address, width, may, sure)
            return
        if address.kind > POINTER:
            self.doubt = max(self.doubt, 1)
            if address.kind == MIXED or address.span is None:
                self.mixed.add((index, effect))
        if address.options:
            for option in address.options:
                # One of several: even where it is exact, it is not certain.
                why = option.why if option.why >= 0 else address.why
                here = Lanes(option.low(), option.span, why, option.kind)
                self._add_open(index, effect, here, width, may)
        elif address.span is None:
            self._add_exact(index, effect, address, width, may, sure)
        else:
            self._add_open(index, effect, address, width, may)

    def add_sure(self, write: SureWrite) -> None:
        """Bytes that were added as uncertain, and turn out to be certain."""
        index, effect = write.index, write.effect
        for here, slopes in apart(write.slopes, write.sure, write.lo):
            chosen, _ = _select(write.lo, here, here)
            self.work += 4 * chosen.size
            for zone, certain, _ in self._pieces(
                chosen, None, write.width, (index, effect), slopes
            ):
                everywhere = self._repeated(certain, slopes)
                self._entry(index, effect, zone).sure.append(everywhere)

    def _repeated(self, ranges: Ranges, slopes: Slopes) -> Ranges:
        """Bytes of the CTA whose digits are 0, for all values of the digits."""
        everywhere = repeated(ranges, steps_of(slopes))
        self.work += 2 * everywhere.size if slopes else 0
        return everywhere

    def _add_apart(
        self, index: int, effect: int, address: Lanes, width: int, may: Flags, sure: Flags
    ) -> None:
        """An access whose address grows differently in some threads, or in rounds of a loop."""
        narrow = collapsed(address, may)
        for here, slopes in apart(narrow.slopes, may, narrow.start):
            part = lanes.copied(lanes.only_in(narrow, here))
            part.slopes = slopes
            try:
                self.add(index, effect, part, width, here, NONE)
                self._close(index, effect)
            except Split:
                raise Split(tuple(address.slopes)) from None
        if address.span is None and sure.any():
            narrow = collapsed(address, sure)
            self.add_sure(SureWrite(index, effect, narrow.start, width, sure, narrow.slopes))

    def own_maps(self, addresses: Words, ctas: Offsets) -> None:
        """Record the CTA that writes a tensor map at each address; two at one address conflict."""
        for address, cta in zip(addresses.tolist(), ctas.tolist(), strict=True):
            if self.map_owners.setdefault(address, cta) != cta:
                self.map_conflict = True

    def use_map(self, index: int, zone: int, ranges: Ranges) -> None:
        """Note the bytes of a tensor map in memory that a copy uses."""
        old = self.used_maps.get(index)
        parts = [ranges] if old is None or old[0] != zone else [ranges, old[1]]
        self.used_maps[index] = (zone, intervals.union(parts))

    def add_bytes(
        self, index: int, effect: int, zone: int, may: Ranges, sure: Ranges, *, exact: bool
    ) -> None:
        """Bytes of one object that were found in another way than thread by thread."""
        entry = self._entry(index, effect, zone)
        entry.always = entry.always and exact
        entry.may.append(may)
        entry.sure.append(sure)
        self.work += 8 * may.size
        self._compact_large(entry)

    def _compact_large(self, entry: TouchedBytes) -> None:
        parts = len(entry.may)
        if parts > 512 or (parts > 64 and sum(map(len, entry.may)) > _MERGE_ABOVE):
            entry.compact()

    def _add_exact(
        self, index: int, effect: int, address: Lanes, width: int, may: Flags, sure: Flags
    ) -> None:
        run = self._runs.get((index, effect))
        if (
            run is not None
            and run.width == width
            and same_threads(run.may, may)
            and same_threads(run.sure, sure)
        ):
            step = self._distance(run.address, address)
            if step is not None:
                moved = run.moves[-1] + (step - (1 << 64) if step >> 63 else step)
                # Further away is another object, or none.
                if -_RUN_REACH < moved < _RUN_REACH:
                    run.moves.append(moved)
                    run.address = address
                    return
        self._close(index, effect)
        chosen, certain = _select(address.start, may, sure)
        self.work += 4 * chosen.size
        pieces = self._pieces(chosen, certain, width, (index, effect), address.slopes)
        self._runs[index, effect] = _MovingAddresses(address, may, sure, width, pieces, [0])

    def _distance(self, old: Lanes, new: Lanes) -> int | None:
        """By how much every thread's address moved, modulo 2**64; None if they differ."""
        if not same(old.slopes, new.slopes):
            return None
        if new.base is old.base:
            return (new.shift - old.shift) & MASK[64]
        self.work += new.size
        moved = new.start - old.start
        first = moved.flat[0]
        return int(first) if moved.shape == old.start.shape and (moved == first).all() else None

    def _pieces(
        self,
        chosen: Words,
        certain: Flags | None,
        width: int,
        key: tuple[int, int],
        slopes: Slopes,
    ) -> list[tuple[int, Ranges, Ranges]]:
        """Per zone the bytes that may and that surely are touched by the CTA whose digits are 0;
        those of the others are in the same zone."""
        if not intervals.is_sorted(chosen):
            self.work += _SORT_COST * chosen.size
        common = self._common(chosen, slopes)
        if common is not None:
            offset = (chosen - U64(common[1])).view(np.int64)
            may = intervals.words(offset, width)
            sure = may if certain is None else intervals.words(offset[certain], width)
            return [(common[0], may, sure)]
        zone, offset = self.zones.decode(chosen)
        pieces: list[tuple[int, Ranges, Ranges]] = []
        for place in distinct(zone):
            here = zone == place
            if place == 0:
                self._note_nowhere(*key, chosen[here], certain, here)
                continue
            may = intervals.words(offset[here], width)
            if certain is None:
                pieces.append((int(place), may, may))
            else:
                sure = intervals.words(offset[here & certain], width)
                pieces.append((int(place), may, sure))
        return pieces

    def _common(self, addresses: Words, slopes: Slopes) -> tuple[int, int] | None:
        """The one zone of all addresses, whatever the digits, and its object's address."""
        if not slopes or not addresses.size:
            return self.zones.common(addresses)
        everywhere = Lanes(addresses)
        everywhere.slopes = slopes
        common = self.zones.between(*everywhere.bounds())
        if common is None:
            raise Split(tuple(slopes))
        return common

    def _note_nowhere(
        self, index: int, effect: int, addresses: Words, certain: Flags | None, here: Flags
    ) -> None:
        """Addresses in no object: next to zero they are a null pointer's, else a number's."""
        signed = addresses.view(np.int64)
        if ((signed > -_NULL_REACH) & (signed < _NULL_REACH)).all():
            known = certain is None or bool(certain[here].any())
            self.nulls[index] = self.nulls.get(index, False) or known
        else:
            self.unresolved.setdefault((index, effect), index)

    def _close(self, index: int, effect: int) -> None:
        run = self._runs.pop((index, effect), None)
        if run is None:
            return
        moves = distinct(np.array(run.moves, dtype=np.int64))
        for zone, may, sure in run.pieces:
            entry = self._entry(index, effect, zone)
            # First along the moves of the loop, then along the digits of the CTA's number.
            slopes = run.address.slopes
            everywhere = self._repeated(_spread(may, moves), slopes)
            certain = everywhere
            if sure is not may:
                certain = self._repeated(_spread(sure, moves), slopes)
            self.work += 2 * len(moves)
            if len(moves) > 1 and _leaves_zone(everywhere):
                self.unresolved.setdefault((index, effect), index)
            entry.may.append(everywhere)
            entry.sure.append(certain)
            self._compact_large(entry)

    def _add_open(self, index: int, effect: int, address: Lanes, width: int, may: Flags) -> None:
        address = lanes.only_in(address, may) if address.slopes else address
        span = lanes.spans(address)
        common = self.zones.between(*address.bounds())
        if common is None and address.slopes:
            raise Split(tuple(address.slopes))
        self.work += address.size + may.size
        hides = address.kind > POINTER and bool(((span == U64(MASK[64])) & may).any())
        if hides:
            # The unknown part may lead from one object to another.
            self.unresolved.setdefault((index, effect), address.why)
            return
        if common is not None and (span == U64(MASK[64])).all() and may.any():
            entry = self._entry(index, effect, common[0])
            entry.always, entry.whole = False, address.why
            return
        if common is not None and self._add_apart_by_data(
            index, effect, address, width, may, common
        ):
            return
        lo, reach = selected(may, address.start, span)
        self.work += 8 * lo.size
        if common is not None:
            offset = (lo - U64(common[1])).view(np.int64)
            key = Key(index, effect, common[0])
            self._open_bytes(key, offset, reach, width, address.why, address.slopes)
            return
        self.work += 16 * lo.size
        zone, offset = self.zones.decode(lo)
        for place in distinct(zone):
            here = zone == place
            if place == 0:
                self._note_open_nowhere(index, effect, lo[here], reach[here], address.why)
            else:
                key = Key(index, effect, int(place))
                self._open_bytes(key, offset[here], reach[here], width, address.why, NO_SLOPES)

    def _add_apart_by_data(
        self,
        index: int,
        effect: int,
        address: Lanes,
        width: int,
        may: Flags,
        common: tuple[int, int],
    ) -> bool:
        """Addresses that data moves by multiples of one distance, all threads by as many; False if
        they are not."""
        form = address.form
        if form is None or len(form.terms) != 1 or not form.where.all():
            return False
        ((symbol, step),) = form.terms
        if symbol.low.size != 1 or symbol.high.size != 1 or abs(step) <= width:
            return False
        first, last = int(symbol.low.flat[0]), int(symbol.high.flat[0])
        if not 0 <= last - first < _MOST_MOVES:
            return False
        (at,) = selected(may, form.at)
        offset = (at - U64(common[1])).view(np.int64) + step * (first if step > 0 else last)
        ranges = repeated(intervals.words(offset, width), [(abs(step), last - first + 1)])
        self.work += 8 * ranges.size
        entry = self._entry(index, effect, common[0])
        entry.always = False
        entry.may.append(self._repeated(ranges, address.slopes))
        self._compact_large(entry)
        return True

    def _note_open_nowhere(
        self, index: int, effect: int, lo: Words, reach: Words, why: int
    ) -> None:
        """Intervals that start in no object; a null pointer among several values is none."""
        if reach.any():
            self.unresolved.setdefault((index, effect), why)
        else:
            self._note_nowhere(index, effect, lo, np.zeros(lo.shape, np.bool_), lo == lo)

    def _open_bytes(
        self, key: Key, start: Offsets, reach: Words, width: int, why: int, slopes: Slopes
    ) -> None:
        """Bytes of one object, as far as each thread may reach from its start."""
        if start.size == 0:
            return
        entry = self._entry(*key)
        entry.always = False
        full = reach == U64(MASK[64])
        if full.any():
            entry.whole = why
        near = ~full
        start, end = start[near], start[near] + reach[near].astype(np.int64) + width
        if len(start):
            ranges = intervals.union([np.stack([start, end], axis=1)])
            entry.may.append(self._repeated(ranges, slopes))

    def move_zone(self, zone: int, objects: frozenset[int], why: int) -> None:
        """What was touched in a zone was touched somewhere in one of these objects."""
        if zone in self.asked:
            self.asked.update(objects)
        for key in [key for key in self.touched if key.zone == zone]:
            del self.touched[key]
            for place in sorted(objects):
                entry = self._entry(key.at, key.effect, place)
                entry.always = False
                entry.whole = why
                entry.compact()

    def _entry(self, index: int, effect: int, zone: int) -> TouchedBytes:
        key = Key(index, effect, zone)
        entry = self.touched.get(key)
        if entry is None:
            entry = self.touched[key] = TouchedBytes()
        return entry

    def absorb(self, other: Recorder) -> None:
        """Add what was collected for other CTAs of the launch."""
        for key, touched in other.touched.items():
            entry = self.touched.setdefault(key, touched)
            if entry is not touched:
                entry.add(touched)
        for effect, why in other.unresolved.items():
            self.unresolved.setdefault(effect, why)
        for at, known in other.nulls.items():
            self.nulls[at] = self.nulls.get(at, False) or known
        self.looked_up |= other.looked_up
        self.asked |= other.asked
        self.steady |= other.steady
        for address, cta in other.map_owners.items():
            self.map_conflict |= self.map_owners.setdefault(address, cta) != cta
        self.map_conflict |= other.map_conflict
        for index, (zone, ranges) in other.used_maps.items():
            self.use_map(index, zone, ranges)
        self.bounded |= other.bounded
        self.doubt = max(self.doubt, other.doubt)
        self.mixed |= other.mixed

    def finish(self) -> None:
        """Close all runs and merge the collected bytes."""
        for index, effect in list(self._runs):
            self._close(index, effect)
        for entry in self.touched.values():
            entry.compact()


def _select(lo: Words, may: Flags, sure: Flags) -> tuple[Words, Flags | None]:
    """Addresses of the threads that may make an access; which are sure, None for all."""
    shape = np.broadcast_shapes(lo.shape, may.shape, sure.shape)
    addresses = np.broadcast_to(lo, shape)
    chosen = np.broadcast_to(may, shape)
    picked = addresses.ravel() if may.size == 1 and may.flat[0] else addresses[chosen]
    if same_threads(may, sure):
        return picked, None
    return picked, np.broadcast_to(sure, shape)[chosen]


def _spread(ranges: Ranges, moves: Offsets) -> Ranges:
    if len(moves) == 1:
        return intervals.shift(ranges, int(moves[0]))
    spread = ranges[None, :, :] + moves[:, None, None]
    return intervals.union([spread.reshape(-1, 2)])


def _leaves_zone(ranges: Ranges) -> bool:
    return len(ranges) > 0 and (ranges[0, 0] < -REACH or ranges[-1, 1] > REACH)


class Key(NamedTuple):
    """An instruction, one of its effects, and the zone of the object."""

    at: int
    effect: int
    zone: int


@dataclass(slots=True)
class TouchedBytes:
    """Bytes of one object by one effect of one instruction; `whole`: maybe any byte of it."""

    may: list[Ranges] = field(default_factory=list)
    sure: list[Ranges] = field(default_factory=list)
    whole: int | None = None
    always: bool = True

    def compact(self) -> None:
        """Merge the collected bytes."""
        alike = [*map(id, self.may)] == [*map(id, self.sure)]
        self.may = [intervals.union(self.may)]
        self.sure = self.may[:] if alike else [intervals.union(self.sure)]

    def add(self, other: TouchedBytes) -> None:
        """Bytes that were collected apart."""
        self.may += other.may
        self.sure += other.sure
        self.whole = other.whole if self.whole is None else self.whole
        self.always = self.always and other.always
        self.compact()
