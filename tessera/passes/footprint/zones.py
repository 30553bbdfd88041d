"""Made-up addresses for the objects that a kernel can reach.

The analysis runs the address arithmetic of a kernel on numbers. So that an address says which
object it points into, every object gets a zone of its own: its made-up address, and 2**39 bytes on
either side of it, so an index a little below an object is still seen as an offset into it.

The addresses are drawn: 21 bits select the 2**42 bytes of the address space that hold the zone, and
32 more bits select its start in them, at a multiple of 256. A sum of addresses that does not reduce
to a single address lies in no zone or, once in a million times, in the wrong zone; with the
addresses of another draw (`salt`) it lies elsewhere. Callers that have to be certain compare draws
(`footprint.agreed_footprint`).

The zones from `LOADED` on stand for the results of loads from shared memory (`shared_roots`).

An address outside all zones, or an interval that leaves its zone, points to nothing known. An
unknown value keeps the address it was added to as its anchor: its zone is where it may point.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import NamedTuple

import numpy as np

from tessera.ir.arrays import Offsets, Words
from tessera.passes.lane_values.lanes import U64

SHARED, LOCAL, PARAMETER, WORKSPACE, FIRST = 1, 2, 3, 4, 16
LOADED, END = 3840, 4096
MOST = LOADED - FIRST
REACH = 1 << 39

_SLOT_BITS = 21
_SLOT = 42
_MASK = (1 << 64) - 1


class _ZoneOrder(NamedTuple):
    """Zones in the order of their addresses."""

    zones: Offsets
    starts: Words
    addresses: Words
    first: list[int]


@dataclass(frozen=True, slots=True)
class Zones:
    """One draw of addresses; the zones of objects from `limit` on are not used."""

    salt: int
    limit: int = LOADED

    def address(self, zone: int, offset: int = 0) -> int:
        """The address `offset` bytes into a zone's object."""
        return (_drawn(self.salt)[zone] + offset) & _MASK

    def decode(self, addresses: Words) -> tuple[Offsets, Offsets]:
        """Zones (0 for no zone) and signed offsets of addresses."""
        places = _places(self.salt, self.limit)
        place = np.searchsorted(places.starts, addresses, side="right") - 1
        offset = (addresses - places.addresses[place]).view(np.int64)
        # Before all zones, place is -1, and the offset into the last one is far below.
        inside = (offset >= -REACH) & (offset < REACH)
        return np.where(inside, places.zones[place], 0), np.where(inside, offset, 0)

    def common(self, addresses: Words) -> tuple[int, int] | None:
        """The one zone of all addresses and its object's address, or None."""
        return self.between(int(addresses.min()), int(addresses.max())) if addresses.size else None

    def between(self, low: int, high: int) -> tuple[int, int] | None:
        """The one zone of all addresses from `low` to `high` and its object's address, or None."""
        places = _places(self.salt, self.limit)
        place = bisect_right(places.first, low) - 1
        if place < 0:
            return None
        address = places.first[place] + REACH
        return (int(places.zones[place]), address) if low <= high < address + REACH else None


def _mix(number: int) -> int:
    """A number that looks drawn (splitmix64)."""
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)


@lru_cache(maxsize=64)
def _drawn(salt: int) -> list[int]:
    """The address of every zone. Every second draw has the bits of the one before it turned, so
    that no bit of an address is the same in all draws."""
    pair, turned = divmod(salt, 2)
    slots = _slots(pair)
    inside = (1 << 40) - 256
    addresses = []
    for zone in range(END):
        slot, start = slots[zone], _mix(pair << 32 | 1 << 20 | zone) & inside
        if turned:
            slot, start = slot ^ ((1 << _SLOT_BITS) - 1), start ^ inside
        addresses.append((slot << _SLOT) + (1 << 41) + start)
    return addresses


def _slots(pair: int) -> list[int]:
    """A different part of the address space for every zone: a permutation of all parts."""
    numbers = np.arange(END, dtype=U64)
    mask = U64((1 << _SLOT_BITS) - 1)
    # Odd factors and shifted exclusive ors are invertible modulo 2**21: no two zones collide.
    for turn in range(3):
        factor = _mix(pair << 32 | turn)
        numbers = (numbers * U64(factor | 1) + U64(factor >> 40)) & mask
        numbers = numbers ^ (numbers >> U64(11))
    return [int(number) for number in numbers]


@lru_cache(maxsize=256)
def _places(salt: int, limit: int) -> _ZoneOrder:
    used = [*range(1, WORKSPACE + 1), *range(FIRST, limit), *range(LOADED, END)]
    drawn = _drawn(salt)
    order = sorted(used, key=drawn.__getitem__)
    first = [drawn[zone] - REACH for zone in order]
    return _ZoneOrder(
        np.array(order, dtype=np.int64),
        np.array(first, dtype=U64),
        np.array([drawn[zone] for zone in order], dtype=U64),
        first,
    )


def draw_zones(words: frozenset[int], limit: int) -> Iterator[Zones]:
    """Draws in which none of these 64-bit words (the scalar arguments) lies in a zone."""
    numbers = np.array(sorted(words), dtype=U64)
    for salt in count():
        zones = Zones(salt, limit)
        if not len(numbers) or not zones.decode(numbers)[0].any():
            yield zones


def may_be_shared(zones: Offsets) -> bool:
    """Whether an address in one of these zones may be in shared memory."""
    return bool(((zones == 0) | (zones == SHARED) | (zones >= LOADED)).any())
