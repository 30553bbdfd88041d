"""What a load from a weight gives, where the weight's contents are known.

In: addresses per thread and the contents of the object. Out: the value that each thread loads: the
very word where the address is exact; where it is an interval, an interval that holds every word in
it. Loads are aligned, and objects start at multiples of 256 bytes, so only words at multiples of
their size count. What lies outside the object can be anything.
"""

from __future__ import annotations

import numpy as np

from tessera.ir.arrays import Bytes, Integers, Signed, Words
from tessera.ir.opcodes import type_bits
from tessera.passes.footprint.zones import Zones
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import U64, Lanes

_WIDTHS = (1, 2, 4, 8)


def contents_value(
    zones: Zones, content: Bytes, address: Lanes, offset: int, type: str, bits: int, index: int
) -> Lanes | None:
    """The words of `type` at the addresses plus an offset; None where nothing is known of them.

    `content` is the object's bytes. The addresses are in its zone, all of them.
    """
    width = (type_bits(type) + 7) // 8
    if width not in _WIDTHS or 8 * width > max(bits, 8):
        return None
    words = content[: len(content) // width * width].view(_dtype(type, width))
    starts = zones.decode(address.lo)[1] + offset
    if address.span is not None:
        return _any_in(words, starts, address.span, width, bits, index)
    inside = (starts >= 0) & (starts + width <= len(content)) & (starts % width == 0)
    if not inside.any() or len(words) == 0:
        return None
    loaded = words[np.where(inside, starts // width, 0)]
    exact = lanes.truncate(Lanes(loaded.astype(np.int64).view(U64)), bits)
    if inside.all():
        return exact
    return lanes.merge(inside, exact, lanes.unknown(bits, index))


def _dtype(type: str, width: int) -> str:
    return f"<{'i' if type.startswith('s') else 'u'}{width}"


def _any_in(
    words: Integers, starts: Signed, span: Words, width: int, bits: int, index: int
) -> Lanes | None:
    """Bounds over every word that a thread may load; by assumption it loads one of the object."""
    full = span >= U64(lanes.WIDE)
    reach = np.where(full, U64(0), span).astype(np.int64)
    low = np.where(full, 0, starts)
    high = np.where(full, len(words) * width, starts + reach)
    first = max(int(low.min()) // width, 0)
    last = min(int(high.max()) // width + 1, len(words))
    if first >= last:
        return None
    chosen = words[first:last]
    return lanes.between(int(chosen.min()), int(chosen.max()), bits, index)
