"""What a load from memory that outlives a CTA gives, in an excerpt.

In: a load and its addresses. Out: its results: pointers from an intact table, words of a weight
whose contents are known, else anything. An address that is one of several gives one of what is
there.
"""

from __future__ import annotations

from tessera.ir.opcodes import type_bits
from tessera.ir.opcodes.types import is_type
from tessera.passes.byte_sets.distinct import distinct
from tessera.passes.footprint.contents import contents_value
from tessera.passes.footprint.excerpt_state import SliceState
from tessera.passes.footprint.local import any_of_type
from tessera.passes.footprint.table_words import may_be_address, table_word
from tessera.passes.kernel_facts.kernel_code import Step
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import HARD, NUMBER, Lanes
from tessera.passes.lane_values.masks import Mask


def load_results(runner: SliceState, step: Step, mask: Mask) -> None:
    """Write what a load from memory gives."""
    types = [m for m in step.instruction.opcode.modifiers if is_type(m)]
    is_load = step.instruction.opcode.name in {"ld", "ldu"} and len(types) == 1
    if not is_load:
        runner.unknown_results(step, mask)
        return
    if not any(name in runner.code.needed for name in step.targets):
        return
    operand = step.instruction.operands[step.effects[0].operand]
    address = lanes.only_in(runner.address(operand, step.index), mask.may)
    width = (type_bits(types[0]) + 7) // 8
    for place, name in enumerate(step.targets):
        if name not in runner.code.needed:
            continue
        bits = runner.code.widths.get(name, 64)
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
    width = (type_bits(type) + 7) // 8
    kind = HARD if may_be_address(runner.scene, address, offset, width) else NUMBER
    return lanes.of_kind(any_of_type(type, bits, index), kind)


def _known_word(
    runner: SliceState, address: Lanes, offset: int, type: str, bits: int, index: int
) -> Lanes | None:
    """A word of a weight whose contents are known; otherwise note what was asked for."""
    zone = runner.common_zone(address)
    content = None if zone is None else runner.scene.contents.get(zone)
    if zone is None or content is None:
        zones = distinct(runner.scene.zones.decode(address.lo)[0]) if zone is None else [zone]
        runner.recorder.asked.update(int(place) for place in zones if place)
        return None
    runner.recorder.looked_up.add(zone)
    return contents_value(runner.scene.zones, content, address, offset, type, bits, index)
