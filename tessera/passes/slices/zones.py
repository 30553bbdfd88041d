"""Made-up addresses for the objects that a kernel can reach.

The analysis runs the address arithmetic of a kernel on numbers. So that an address says which
object it points into, every object gets a zone of 2**40 bytes of its own in a part of the
address space that no argument of the launch names: | tag 12 | zone 12 | offset 40 |. Offsets
count from -2**39, so an index a little below an object is still seen as an offset into it.

The zones from `LOADED` on stand for what a load from shared memory gives (`shared_roots`).

An address outside all zones, or an interval that leaves its zone, points to nothing known. An
unknown value keeps the address it was added to as its anchor: its zone is where it may point.
"""

# NumPy's operators on arrays of unknown element type give Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tessera.passes.threads.lanes import U64, Array

SHARED, LOCAL, PARAMETER, WORKSPACE, FIRST = 1, 2, 3, 4, 16
LOADED, END = 3840, 4096
MOST = LOADED - FIRST
REACH = 1 << 39

_SHIFT = 40
_TAGS = (0x5A3, 0x6C5, 0x39B, 0x747, 0x2D1, 0x4E9, 0x1B7, 0x8F3)


@dataclass(frozen=True, slots=True)
class Zones:
    """One choice of the tag."""

    tag: int

    def address(self, zone: int, offset: int = 0) -> int:
        """The address `offset` bytes into a zone's object."""
        return ((self.tag << 12 | zone) << _SHIFT) + offset

    def decode(self, addresses: Array) -> tuple[Array, Array]:
        """Zones (0 for no zone) and signed offsets of addresses."""
        moved = addresses + U64(REACH)
        prefix = moved >> U64(_SHIFT)
        zone = np.where(prefix >> U64(12) == U64(self.tag), prefix & U64(0xFFF), U64(0))
        offset = (moved & U64((1 << _SHIFT) - 1)).astype(np.int64) - REACH
        return zone.astype(np.int64), offset

    def common(self, addresses: Array) -> tuple[int, int] | None:
        """The one zone of all addresses and its object's address, or None."""
        return self.between(int(addresses.min()), int(addresses.max())) if addresses.size else None

    def between(self, low: int, high: int) -> tuple[int, int] | None:
        """The one zone of all addresses from `low` to `high` and its object's address, or None."""
        first, last = (low + REACH) >> _SHIFT, (high + REACH) >> _SHIFT
        if first != last or first >> 12 != self.tag or first & 0xFFF == 0:
            return None
        return first & 0xFFF, first << _SHIFT


def choose_zones(words: frozenset[int]) -> Zones:
    """Zones whose tag none of these 64-bit words (the scalar arguments) has."""
    taken = {word >> 52 for word in words}
    return Zones(next(tag for tag in _TAGS if tag not in taken and tag + 1 not in taken))


def may_be_shared(zones: Array) -> bool:
    """Whether an address in one of these zones may be in shared memory."""
    return bool(((zones == 0) | (zones == SHARED) | (zones >= LOADED)).any())
