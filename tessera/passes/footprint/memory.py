"""From an instruction's effect and its address to the bytes of each thread.

The extent (`opcodes.Extent`) says how many bytes lie behind an address: a constant, the value of
an operand, rows of a matrix, or something that only the object bounds.
"""

from __future__ import annotations

import numpy as np

from tessera.ir.opcodes import Bytes, Matrix, MemoryAction, MemoryEffect, OperandRole, SizeOperand
from tessera.passes.footprint.excerpt_state import SliceState
from tessera.passes.kernel_facts.kernel_code import Step
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import U64, Lanes
from tessera.passes.lane_values.masks import ALL, NONE, Mask
from tessera.passes.lane_values.narrowing import narrowed
from tessera.passes.lane_values.symbols import impossible


def extent_accesses(
    runner: SliceState, step: Step, number: int, effect: MemoryEffect, address: Lanes, mask: Mask
) -> None:
    """Record the bytes that an effect touches."""
    if effect.access is MemoryAction.PREFETCH:
        return
    sure = mask.sure
    if effect.access in {
        MemoryAction.UPDATE,
        MemoryAction.ASYNC_UPDATE,
        MemoryAction.MAY_READ_WRITE,
    }:
        sure = NONE
    extent = effect.extent
    match extent:
        case Bytes():
            runner.note(step, number, address, extent.count, Mask(mask.may, mask.strong, sure))
        case SizeOperand():
            _sized(runner, step, number, effect, address, Mask(mask.may, mask.strong, sure))
        case Matrix():
            _matrix(runner, step, number, extent, address, Mask(mask.may, mask.strong, sure))
        case _:
            anchored = lanes.widened(address, 64, step.index)
            runner.recorder.add(step.index, number, anchored, 1, mask.may, NONE)


def _sized(
    runner: SliceState,
    step: Step,
    number: int,
    effect: MemoryEffect,
    address: Lanes,
    mask: Mask,
) -> None:
    """Record an access whose size in bytes is an operand; a copy reads its source size."""
    assert isinstance(effect.extent, SizeOperand)
    size = runner.value(step.instruction.operands[effect.extent.index], 32, step.index)
    if effect.access.reads and OperandRole.SOURCE_SIZE in step.meaning.roles:
        place = step.meaning.roles.index(OperandRole.SOURCE_SIZE)
        size = _source_size(runner, step, place, size)
    if size.span is not None:
        high = lanes.unsigned_bounds(size, 32)[1]
        mark = len(runner.assumed.trail)
        if size.facts is not None:
            # With a size of 0, nothing is touched.
            runner.assumed.assume(size.facts.true, ALL)
            mask = mask.without(impossible(address.form))
            address = narrowed(address, 64)
        runner.assumed.undo(mark)
        length = Lanes(np.zeros_like(high), np.maximum(high, U64(1)) - U64(1), size.why)
        grown = lanes.add(address, length, 64)
        runner.recorder.add(step.index, number, grown, 1, mask.may, NONE)
        return
    for count in lanes.distinct(size):
        here = mask.narrow(Lanes((size.low() == U64(count)).astype(U64)))
        if count > 0 and here is not None:
            runner.note(step, number, address, count, here)


def _source_size(runner: SliceState, step: Step, place: int, size: Lanes) -> Lanes:
    """The bytes that cp.async reads: a number, or a predicate that says to read none."""
    operand = step.instruction.operands[place]
    name = getattr(operand, "name", getattr(getattr(operand, "operand", None), "name", ""))
    if runner.code.widths.get(name) == 1:
        ignore = runner.value(operand, 1, step.index)
        nothing = lanes.scalar(0)
        chosen = lanes.merge(ignore.low().astype(np.bool_), nothing, size)
        if ignore.span is None:
            return chosen
        either = lanes.join(nothing, size, 32)
        return lanes.merge(ignore.span.astype(np.bool_), either, chosen)
    return runner.value(operand, 32, step.index)


def _matrix(
    runner: SliceState, step: Step, number: int, extent: Matrix, address: Lanes, mask: Mask
) -> None:
    """Rows a stride apart."""
    row = (extent.row_bits + 7) // 8
    if extent.stride_operand is None:
        runner.note(step, number, address, extent.rows * row, mask)
        return
    stride = runner.value(step.instruction.operands[extent.stride_operand], 32, step.index)
    low, high = lanes.unsigned_bounds(stride, 32)
    inside_bytes = extent.element_bits < 8 and stride.span is not None
    if inside_bytes or ((low * U64(extent.element_bits)) & U64(7)).any():
        row += 1  # a row may begin inside a byte
    for place in range(extent.rows):
        bits = U64(place * extent.element_bits)
        offset = lanes.from_bounds(low * bits >> U64(3), high * bits >> U64(3), 64, stride.why)
        runner.note(step, number, lanes.add(address, offset, 64), row, mask)
