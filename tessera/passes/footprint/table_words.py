"""What a load of eight bytes from an object with pointers gives.

In: addresses per thread, and the object's `Table`. Out: the pointer where each thread loads a word
of the table that nothing may have overwritten; otherwise an address in one of the objects that the
table points to, as long as the bytes were never written: what is not a pointer there is data, and
no launch follows data. Bytes that may have been written can hold any address, so there it is
unknown (None).
"""

from __future__ import annotations

import numpy as np

from tessera.ir.arrays import Flags, Offsets, Ranges
from tessera.passes.byte_sets.distinct import distinct
from tessera.passes.footprint.scene import Scene
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import POINTER, U64, Lanes

_BYTES = 8


def table_word(scene: Scene, address: Lanes, offset: int, index: int) -> Lanes | None:
    """The words at the addresses plus an offset; None where nothing is known of them."""
    if not scene.tables:
        return None
    zone, offsets = scene.zones.decode(address.lo)
    first = int(zone.flat[0])
    table = scene.tables.get(first)
    if table is None or not (zone == first).all():
        return None
    wanted = offsets + offset
    place = np.minimum(np.searchsorted(table.offsets, wanted), len(table.offsets) - 1)
    others = table.offsets[place] != wanted
    if address.span is None and not others.any():
        return Lanes(table.targets[place], kind=POINTER)
    if len(table.written) and _may_be_written(table.written, wanted, address, others):
        return None
    return lanes.unknown(64, index, scene.zones.address(table.zone))


def may_be_address(scene: Scene, address: Lanes, offset: int, width: int) -> bool:
    """Whether an unknown word may be an address of a table, or a part of one: then it is no index.

    Also where nothing is left of the table: what is there now may be such an address, too.
    """
    if not scene.holders:
        return False
    zones, offsets = scene.zones.decode(address.lo)
    span = lanes.spans(address)
    for zone in distinct(zones).tolist():
        table = scene.tables.get(zone)
        if zone == 0 or (zone in scene.holders and table is None):
            return True
        if table is None:
            continue
        here = np.broadcast_to(zones == zone, np.broadcast_shapes(zones.shape, span.shape))
        if (span >= U64(lanes.WIDE)).any():
            return True
        low = np.broadcast_to(offsets, here.shape)[here] + offset
        high = low + np.broadcast_to(span, here.shape)[here].astype(np.int64) + width
        words = np.stack([table.offsets, table.offsets + _BYTES], axis=1)
        if any(_meet(ranges, low, high) for ranges in (words, table.written)):
            return True
    return False


def _meet(ranges: Ranges, low: Offsets, high: Offsets) -> bool:
    """Whether some of the bytes from `low` to `high` are in ranges that are sorted."""
    place = np.searchsorted(ranges[:, 1], low, side="right")
    inside = place < len(ranges)
    return bool((ranges[place[inside], 0] < high[inside]).any())


def _may_be_written(written: Ranges, wanted: Offsets, address: Lanes, others: Flags) -> bool:
    """Whether a thread may load bytes that were written, other than an intact word."""
    span = lanes.spans(address)
    shape = np.broadcast_shapes(wanted.shape, span.shape)
    span, start = np.broadcast_to(span, shape), np.broadcast_to(wanted, shape)
    if (span >= U64(lanes.WIDE)).any():
        return True
    chosen = np.broadcast_to(others, shape) | (span > U64(0))
    low = start[chosen]
    return _meet(written, low, low + span[chosen].astype(np.int64) + _BYTES)
