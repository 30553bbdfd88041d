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
from tessera.passes.footprint.scene import Scene
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import POINTER, U64, Lanes

_BYTES = 8


def table_word(scene: Scene, address: Lanes, offset: int, index: int) -> Lanes | None:
    """The words at the addresses plus an offset; None where nothing is known of them."""
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


def _may_be_written(written: Ranges, wanted: Offsets, address: Lanes, others: Flags) -> bool:
    """Whether a thread may load bytes that were written, other than an intact word."""
    span = lanes.spans(address)
    shape = np.broadcast_shapes(wanted.shape, span.shape)
    span, start = np.broadcast_to(span, shape), np.broadcast_to(wanted, shape)
    if (span >= U64(lanes.WIDE)).any():
        return True
    chosen = np.broadcast_to(others, shape) | (span > U64(0))
    low = start[chosen]
    high = low + span[chosen].astype(np.int64) + _BYTES
    place = np.searchsorted(written[:, 1], low, side="right")
    inside = place < len(written)
    return bool((written[place[inside], 0] < high[inside]).any())
