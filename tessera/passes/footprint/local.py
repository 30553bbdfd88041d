"""Local memory and parameters in an excerpt.

Local memory and the parameters of inlined calls are kept word by word, under (offset, width). A
store where every thread uses the same address keeps its word; one to different words of one width
(an element of an array, by thread) is put into each of these words, for the threads that store
there. Any other store forgets all words. Loads may be of different words by thread.
Parameters of the kernel are bytes that every thread sees.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise, product

import numpy as np

from tessera.ir.arrays import Offsets
from tessera.ir.opcodes import type_bits
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.types import is_type
from tessera.passes.byte_sets.intervals import distinct
from tessera.passes.footprint.excerpt_state import SliceState
from tessera.passes.footprint.pointer_steps import BITS
from tessera.passes.footprint.scene import parameter_bytes
from tessera.passes.footprint.zones import LOCAL, PARAMETER
from tessera.passes.kernel_facts.kernel_code import Step
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lane_ops import extend
from tessera.passes.lane_values.lanes import (
    HARD,
    MIXED,
    MOST_OPTIONS,
    NUMBER,
    POINTER,
    Lanes,
)
from tessera.passes.lane_values.masks import Mask

_MOST_STORES = 16
_MOST_LOADS = 512
_MOST_ELEMENTS = 1 << 19
_PLACE_COST = 20_000


def local_access(runner: SliceState, step: Step, writes: bool, address: Lanes, mask: Mask) -> None:
    """A load or store of local memory or of a parameter."""
    opcode = step.instruction.opcode
    if opcode.name not in {"ld", "st"}:
        runner.forget_words()
        runner.unknown_results(step, mask, kind=_forgotten(runner))
        return
    type = next(m for m in opcode.modifiers if is_type(m))
    if writes:
        _store_words(runner, step, address, type_bits(type) // 8, mask)
    else:
        _load_words(runner, step, address, type, mask)


def _load_words(runner: SliceState, step: Step, address: Lanes, type: str, mask: Mask) -> None:
    width = type_bits(type) // 8
    address = lanes.only_in(address, mask.may)
    zones, offsets = runner.scene.zones.decode(address.low())
    for place, name in enumerate(step.targets):
        if name not in runner.code.needed:
            continue
        value: Lanes | None = None
        if width > 8:
            pass
        elif address.span is not None:
            value = _any_word(runner, address, place * width, width, step.index)
        elif (zones == PARAMETER).all():
            value = _parameter(runner, offsets + place * width, width)
        elif (zones == LOCAL).all():
            value = _local_word(runner, offsets + place * width, width, step.index)
        bits = runner.bits(name)
        if value is None:
            value = lanes.of_kind(any_of_type(type, bits, step.index), _forgotten(runner))
        elif bits > 8 * width:
            value = lanes.truncate(extend(value, type), bits)
        runner.write(step, name, value, mask)


def _forgotten(runner: SliceState) -> int:
    """The kind of a forgotten word: it may be a distance if a distance was stored."""
    return HARD if runner.local_kind >= MIXED else NUMBER


def _parameter(runner: SliceState, offsets: Offsets, width: int) -> Lanes | None:
    """Bytes of the parameters; part of an address is a number that says little."""
    numbers = parameter_bytes(runner.scene, offsets, width)
    if numbers is None:
        return None
    words = runner.scene.pointer_words
    kind = NUMBER
    for start in distinct(offsets).tolist():
        if any(start < word + 8 and word < start + width for word in words):
            whole = width == 8 and start in words
            kind = max(kind, POINTER if whole else HARD)
            runner.recorder.doubt = max(runner.recorder.doubt, 0 if whole else BITS)
    return Lanes(numbers, kind=kind)


def _any_word(
    runner: SliceState, address: Lanes, offset: int, width: int, index: int
) -> Lanes | None:
    """One of the words that an address may mean, in the variable that it starts in."""
    zone = runner.common_zone(address)
    if zone not in (LOCAL, PARAMETER):
        return None
    low, high = _bounds(runner, address, zone, width)
    if (high - low) // width >= MOST_OPTIONS:
        return None
    candidates: list[Lanes] = []
    for start in range(low + offset, high + offset + 1, width):
        places = np.array([[start]], dtype=np.int64)
        word = (
            _parameter(runner, places, width)
            if zone == PARAMETER
            else _local_word(runner, places, width, index)
        )
        if word is None:
            return None
        candidates.append(word)
    if not candidates:
        return None
    result = candidates[0]
    for word in candidates[1:]:
        result = lanes.join(result, word, 8 * width)
    if result.why < 0:
        result = lanes.copied(result)
        result.why = index
    return result


def _bounds(runner: SliceState, address: Lanes, zone: int, width: int) -> tuple[int, int]:
    """The least and the greatest offset of a word that an address may mean: loads are aligned.

    The greatest is below the least where that is not known.
    """
    base = runner.scene.zones.address(zone)
    lowest, highest = address.bounds()
    start, end = _variable(runner, lowest - base, zone)
    reach = int(lanes.spans(address).max())
    if zone == PARAMETER and reach < lanes.WIDE:
        # Where parameters lie is known: a number of bytes may lead into the next one.
        start, end = 0, len(runner.scene.parameters)
    elif reach < lanes.WIDE and highest - base + reach >= end:
        return 0, -1  # it may lead into another variable, and which one is unknown
    high = min(highest - base + reach, end - width)
    low = start if reach >= lanes.WIDE else max(lowest - base, start)
    return -(-low // width) * width, high


def _variable(runner: SliceState, offset: int, zone: int) -> tuple[int, int]:
    """The start and the end of the variable around an offset."""
    variables = runner.local_variables
    if zone == PARAMETER:
        starts = sorted({*runner.scene.parameter_offsets.values(), len(runner.scene.parameters)})
        variables = list(pairwise(starts))
    return next((v for v in variables if v[0] <= offset < v[1]), (offset, offset))


def _local_word(runner: SliceState, offsets: Offsets, width: int, index: int) -> Lanes | None:
    """The words that threads load; unknown for those whose word is not known."""
    if offsets.size == 1:
        return runner.registers.get((int(offsets.flat[0]), width))
    loaded: Lanes | None = None
    places = distinct(offsets).tolist()
    if len(places) > _MOST_LOADS or len(places) * offsets.size > _MOST_ELEMENTS:
        return None
    runner.work += _PLACE_COST * len(places)
    for start in places:
        word = runner.registers.get((start, width))
        if word is None:
            word = lanes.of_kind(lanes.unknown(8 * width, index), _forgotten(runner))
        runner.work += word.size + offsets.size
        loaded = word if loaded is None else lanes.merge(offsets == start, word, loaded)
    return loaded


def _store_words(runner: SliceState, step: Step, address: Lanes, width: int, mask: Mask) -> None:
    address = lanes.only_in(address, mask.may)
    zones, offsets = runner.scene.zones.decode(address.low())
    source = step.instruction.operands[1]
    elements = source.elements if isinstance(source, ptx.Vector) else (source,)
    values = [runner.value(element, 8 * width, step.index) for element in elements]
    runner.local_kind = max(runner.local_kind, *(value.kind for value in values))
    places = distinct(offsets)
    known = address.span is None and bool((zones == LOCAL).all()) and width <= 8
    # Words side by side, or one: two that overlap would have to be forgotten for each other.
    apart = bool((np.diff(places) % width == 0).all())
    few = len(places) == 1 or (width == 8 and len(places) <= _MOST_STORES)
    if not known or not apart or not few or not _are_inside(runner, places, width * len(values)):
        runner.forget_words()
        return
    runner.work += _PLACE_COST * (len(places) - 1)
    for start in places.tolist():
        here = mask.narrow(Lanes((offsets == start).astype(np.uint64)))
        assert here is not None
        for place, value in enumerate(values):
            _store_word(runner, step, (start + place * width, width), value, here)


def _are_inside(runner: SliceState, places: Offsets, width: int) -> bool:
    """Whether bytes are in one variable each; what is in none may be anywhere in local memory."""
    starts = [start for start, _ in runner.local_variables]
    for place in places.tolist():
        number = bisect_right(starts, place) - 1
        if number < 0 or place + width > runner.local_variables[number][1]:
            return False
    return True


def _store_word(
    runner: SliceState, step: Step, key: tuple[int, int], value: Lanes, mask: Mask
) -> None:
    registers, (start, width) = runner.registers, key
    known = key in registers
    for other in product(range(start - 7, start + width), (1, 2, 4, 8)):
        if other != key and start < other[0] + other[1]:
            registers.pop(other, None)
    if known or mask.strong.all():
        runner.assign(key, value, mask)
    elif mask.strong.any():
        # Words of the other threads are not known.
        nothing = lanes.of_kind(lanes.unknown(8 * width, step.index), _forgotten(runner))
        registers[key] = lanes.merge(mask.strong, value, nothing)


def any_of_type(type: str, bits: int, index: int) -> Lanes:
    """Any value that a load of a type can give."""
    width = type_bits(type)
    low = -(1 << (width - 1)) if type[0] == "s" else 0
    return lanes.between(low, low + (1 << width) - 1, bits, index)
