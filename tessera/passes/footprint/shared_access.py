"""Addresses in shared memory, and the instructions of an excerpt that use them.

In: an instruction that loads or stores, and the registers of a run. Out: where in shared memory,
what is stored, and to whom (`Follower`) it is told. A generic address of shared memory is in the
zone `SHARED`, at the number of the address.
"""

from __future__ import annotations

import numpy as np

from tessera.ir.arrays import Flags, Signed, Words
from tessera.ir.opcodes import Bytes, MemoryEffect, Rows, SizeOperand, type_bits
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.types import is_type
from tessera.passes.byte_sets.intervals import distinct
from tessera.passes.footprint.excerpt_state import Follower, SliceState
from tessera.passes.footprint.scene import Scene
from tessera.passes.footprint.shared_image import CELL
from tessera.passes.footprint.zones import SHARED, may_be_shared
from tessera.passes.kernel_facts.kernel_code import Step
from tessera.passes.kernel_facts.shared_use import BASE, SPACING, SharedUse
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import Lanes
from tessera.passes.lane_values.masks import Mask, selected


class SharedSpace:
    """Where the variables of shared memory are: made-up addresses and cells."""

    def __init__(self, use: SharedUse, scene: Scene) -> None:
        self.sizes: dict[int, int] = {}
        for variable in use.variables.values():
            number = (variable.base - BASE) // SPACING
            size = scene.dynamic_shared if variable.size is None else variable.size
            self.sizes[number] = max(self.sizes.get(number, 0), size)
        count = max(self.sizes, default=-1) + 1
        self.bytes = np.array([self.sizes.get(n, 0) for n in range(count)], dtype=np.int64)
        cells = (self.bytes + 7) // 8 * 2
        self.first = np.concatenate([[0], np.cumsum(cells)]).astype(np.int64)
        self.cells = int(self.first[-1])

    def place(self, numbers: Words, width: int) -> tuple[Signed, Signed, Flags]:
        """The first cells of `width` bytes at addresses, the cells after the variables that they
        are in, and which addresses are inside a variable."""
        offset = numbers.astype(np.int64) - BASE
        variable = offset // SPACING
        offset = offset % SPACING
        known = (variable >= 0) & (variable < len(self.bytes))
        variable = np.where(known, variable, 0)
        if len(self.bytes) == 0:
            return offset, offset, known
        inside = known & (offset + width <= self.bytes[variable])
        return self.first[variable] + offset // CELL, self.first[variable + 1], inside


def shared_address(runner: SliceState, operand: ptx.Operand, index: int) -> Lanes:
    """The address in shared memory that an operand in brackets stands for, in 32 bits."""
    if not isinstance(operand, ptx.Address) or len(operand.parts) != 1:
        return lanes.unknown(32, index)
    part = operand.parts[0]
    base = part.base if isinstance(part, ptx.Offset) else part
    if not isinstance(base, ptx.Name):
        return lanes.unknown(32, index)
    bits = 64 if runner.code.widths.get(base.name, 32) == 64 else 32
    return lanes.truncate(runner.value(part, bits, index), 32)


def write_address(runner: SliceState, step: Step, effect: MemoryEffect, mask: Mask) -> Lanes | None:
    """The address in shared memory that an effect writes; None if it writes elsewhere."""
    operand = step.instruction.operands[effect.operand]
    if effect.space != "generic":
        return shared_address(runner, operand, step.index)
    address = lanes.exact_in(runner.address(operand, step.index), mask.may)
    zones = distinct(runner.scene.zones.decode(selected(mask.may, address.low())[0])[0])
    if len(zones) == 1 and zones[0] == SHARED and address.span is None:
        return lanes.truncate(_number(runner, address), 32)
    return lanes.unknown(32, step.index) if may_be_shared(zones) else None


def _number(runner: SliceState, address: Lanes) -> Lanes:
    return lanes.add(address, lanes.scalar(-runner.scene.zones.address(SHARED)), 64)


def load_address(runner: SliceState, step: Step) -> Lanes:
    """The address in shared memory that a load reads."""
    effect = step.meaning.effects[0]
    operand = step.instruction.operands[effect.operand]
    if effect.space == "generic":
        return lanes.truncate(_number(runner, runner.address(operand, step.index)), 32)
    return shared_address(runner, operand, step.index)


def most_bytes(runner: SliceState, step: Step, effect: MemoryEffect) -> int | None:
    """How many bytes from its address an effect writes at most; None if that is not known."""
    match effect.extent:
        case Bytes(count=count) | Rows(count=count):
            return count
        case SizeOperand(index=place):
            return runner.value(step.instruction.operands[place], 32, step.index).bounds()[1]
    return None


def load_type(step: Step) -> str | None:
    """The type of the words that a load gives, if it has one."""
    types = [m for m in step.instruction.opcode.modifiers if is_type(m)]
    return types[0] if len(types) == 1 and type_bits(types[0]) <= 64 else None


def words_of_store(step: Step) -> tuple[int, tuple[ptx.Operand, ...]] | None:
    """The width and the operands of a plain store's words; None for whatever else writes."""
    opcode = step.instruction.opcode
    if opcode.name != "st" or {"async", "bulk"} & {*opcode.modifiers}:
        return None
    type = load_type(step)
    if type is None:
        return None
    source = step.instruction.operands[1]
    elements = source.elements if isinstance(source, ptx.Vector) else (source,)
    return type_bits(type) // 8, elements


def in_shared(runner: SliceState, follower: Follower, step: Step, mask: Mask) -> bool:
    """Hand a step to the follower of shared memory; whether that is all that the step does."""
    use = runner.code.shared
    assert use is not None
    if step.index in use.steps:
        follower.step(runner, step, mask)
    if step.index not in use.loads:
        return False
    effect = step.meaning.effects[0]
    if effect.space == "generic":
        operand = step.instruction.operands[effect.operand]
        address = lanes.exact_in(runner.address(operand, step.index), mask.may)
        if address.span is not None or runner.common_zone(address) != SHARED:
            return False
    follower.load(runner, step, mask)
    return True


def convert_shared(runner: SliceState, step: Step, source: ptx.Operand, mask: Mask) -> None:
    """`cvta`: from an address in shared memory to a generic one, or back."""
    back = "to" in step.instruction.opcode.modifiers
    start = runner.scene.zones.address(SHARED)
    value = runner.value(source, 64, step.index)
    followed = runner.shared is not None and value.span is None
    if not followed or (back and runner.common_zone(value) != SHARED):
        runner.unknown_results(step, mask, 0 if back else start)
        return
    name = step.targets[0]
    moved = lanes.add(value, lanes.scalar(-start if back else start), 64)
    moved = lanes.of_kind(moved, lanes.NUMBER if back else lanes.POINTER)
    runner.write(step, name, lanes.truncate(moved, runner.bits(name)), mask)
