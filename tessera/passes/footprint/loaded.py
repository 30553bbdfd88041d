"""The results of loads from memory that outlives a CTA, in an excerpt.

In: a load and its addresses. Out: its results. If the address is one of several, the result is one
of the values at these addresses.
- From an object with pointers (`Table`): the pointer where each thread loads a word of the table
  that nothing may have overwritten; otherwise an address in one of the objects that the table
  points to, as long as the bytes were never written: what is not a pointer there is data, and no
  launch follows data. Bytes that may have been written can hold any address.
- From a weight whose contents are known: the very word where the address is exact; where it is an
  interval, an interval that holds every word in it. Loads are aligned, and objects start at
  multiples of 256 bytes, so only words at multiples of their size count. What lies outside the
  object can be anything.
- From anywhere else: anything.
"""

from __future__ import annotations

import numpy as np

from tessera.ir.arrays import Bytes, Flags, Integers, Offsets, Ranges, Signed, Words
from tessera.ir.opcodes import type_bits
from tessera.ir.ptx.types import is_type
from tessera.passes.byte_sets.intervals import distinct
from tessera.passes.footprint.excerpt_state import SliceState
from tessera.passes.footprint.local import any_of_type
from tessera.passes.footprint.scene import Scene
from tessera.passes.footprint.zones import FIRST, Zones
from tessera.passes.kernel_facts.kernel_code import Step
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import HARD, NUMBER, POINTER, U64, Lanes
from tessera.passes.lane_values.masks import Mask
from tessera.passes.lane_values.named_values import loaded_number


def load_results(runner: SliceState, step: Step, mask: Mask) -> None:
    """Write the results of a load from memory."""
    types = [m for m in step.instruction.opcode.modifiers if is_type(m)]
    is_load = step.instruction.opcode.name in {"ld", "ldu"} and len(types) == 1
    if not is_load:
        runner.unknown_results(step, mask)
        return
    if not any(name in runner.code.needed for name in step.targets):
        return
    operand = step.instruction.operands[step.effects[0].operand]
    address = lanes.only_in(runner.address(operand, step.index), mask.may)
    width = type_bits(types[0]) // 8
    for place, name in enumerate(step.targets):
        if name not in runner.code.needed:
            continue
        bits = runner.bits(name)
        words = [
            _word(runner, option, place * width, types[0], bits, step.index)
            for option in address.options or (address,)
        ]
        value = words[0]
        for word in words[1:]:
            value = lanes.join(value, word, bits)
        runner.write(step, name, value, mask)


def _word(
    runner: SliceState, address: Lanes, offset: int, type: str, bits: int, index: int
) -> Lanes:
    value = table_word(runner.scene, address, offset, index) if type_bits(type) == 64 else None
    if value is None:
        value = _known_word(runner, address, offset, type, bits, index)
    if value is not None:
        return value
    width = type_bits(type) // 8
    if may_be_address(runner.scene, address, offset, width):
        return lanes.of_kind(any_of_type(type, bits, index), HARD)
    return _named_word(runner, address, (offset, type), any_of_type(type, bits, index), bits)


_MOST_ADDRESSES = 1 << 12


def _named_word(
    runner: SliceState, address: Lanes, what: tuple[int, str], value: Lanes, bits: int
) -> Lanes:
    """A loaded number with a name, if all threads load from one object. If the launch writes no
    byte of the object, which is seen at its end, equal addresses hold equal numbers: in the same
    thread, and in all threads of a CTA."""
    if runner.piece is None or address.span is not None or value.span is None or bits < 32:
        return value
    zone = runner.common_zone(address)
    if zone is None or zone < FIRST:  # some may load what they stored elsewhere: a distance, say
        return lanes.of_kind(value, NUMBER)
    steady = zone in runner.scene.alone and address.size <= _MOST_ADDRESSES
    key = None
    if steady:
        runner.recorder.steady.add(zone)
        slopes = tuple((id(digit), slope.tobytes()) for digit, slope in address.slopes.items())
        key = (address.start.shape, address.start.tobytes(), slopes, *what, bits)
        known = runner.loads.get(key)
        if known is not None:
            return known
    arrays = (address.start, *address.slopes.values())
    shared = steady and all(array.shape[-1] == 1 for array in arrays)
    result = loaded_number(runner.assumed, value, bits, is_shared=shared)
    if key is not None:
        runner.loads[key] = result
    return result


def _known_word(
    runner: SliceState, address: Lanes, offset: int, type: str, bits: int, index: int
) -> Lanes | None:
    """A word of a weight whose contents are known; otherwise record the zone that was asked for."""
    zone = runner.common_zone(address)
    if zone is None or zone not in runner.scene.contents:
        zones = distinct(runner.scene.zones.decode(address.low())[0]) if zone is None else [zone]
        runner.recorder.asked.update(int(place) for place in zones if place)
        return None
    runner.recorder.looked_up.add(zone)
    content = runner.scene.contents[zone]
    return contents_value(runner.scene.zones, content, address, offset, type, bits, index)


def contents_value(
    zones: Zones, content: Bytes, address: Lanes, offset: int, type: str, bits: int, index: int
) -> Lanes | None:
    """The words of `type` at the addresses plus an offset; None if nothing is known of them.

    `content` is the object's bytes. The addresses are in its zone, all of them.
    """
    width = type_bits(type) // 8
    if width > 8:
        return None
    letter = "i" if type.startswith("s") else "u"
    words = content[: len(content) // width * width].view(f"<{letter}{width}")
    starts = zones.decode(address.low())[1] + offset
    if address.span is not None:
        return _any_in(words, starts, address.span, width, bits, index)
    inside = (starts >= 0) & (starts + width <= len(content)) & (starts % width == 0)
    if not inside.any():
        return None
    loaded = words[np.where(inside, starts // width, 0)]
    exact = lanes.truncate(Lanes(loaded.astype(np.int64).view(U64)), bits)
    if inside.all():
        return exact
    return lanes.merge(inside, exact, lanes.unknown(bits, index))


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


_BYTES = 8


def table_word(scene: Scene, address: Lanes, offset: int, index: int) -> Lanes | None:
    """The words at the addresses plus an offset; None if nothing is known of them."""
    if not scene.tables:
        return None
    zone, offsets = scene.zones.decode(address.low())
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
    """Whether an unknown word may be an address of a table, or a part of one: then it is not an
    index.

    Also where nothing is left of the table: what is there now may be such an address, too.
    """
    if not scene.holders:
        return False
    zones, offsets = scene.zones.decode(address.low())
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
