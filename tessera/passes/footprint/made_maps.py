"""Tensor maps that a kernel makes itself: field by field in shared memory, then copied out.

In: `tensormap.replace` and `tensormap.cp_fenceproxy` as they are met. Out: the 128 bytes of the map
at an address of global memory, for tensor copies that use it.

A map counts only where nothing is left open: every field is set between its first `replace` and
the copy, in one block, by threads that surely are there, with values that are the same for all
CTAs; nothing else writes shared memory meanwhile; each CTA copies to an address of its own. At the
end (`spoiled_maps`) no other instruction of the launch may write the bytes of a map that was used.
As everywhere, threads of a CTA are taken to synchronise what they share.
"""

from __future__ import annotations

import numpy as np

from tessera.ir.program.tensor_map import FIELDS, SIZE, replace_field
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.intervals import distinct
from tessera.passes.footprint.excerpt_state import Field, SliceState
from tessera.passes.footprint.recorder import Recorder
from tessera.passes.kernel_facts.kernel_code import KernelCode, Step
from tessera.passes.kernel_facts.operand_names import registers_in
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import U64
from tessera.passes.lane_values.masks import Mask, selected
from tessera.wording import Wording

_PER_AXIS = ("box_dim", "global_dim", "element_stride")
_ONCE = ("global_address", "rank", "elemtype", "interleave_layout")


def map_step(runner: SliceState, step: Step, mask: Mask) -> None:
    """Follow an instruction that makes a map, as far as it leaves nothing open."""
    modifiers = step.instruction.opcode.modifiers
    made = runner.made_maps
    whole = runner.side is None and bool((mask.sure == mask.may).all())
    if "replace" in modifiers:
        if not whole or not _set_field(runner, step, mask):
            made.drop()
    elif "cp_fenceproxy" in modifiers:
        if not whole or not _copy(runner, step, mask):
            runner.recorder.map_conflict = True
        made.drop()


def _set_field(runner: SliceState, step: Step, mask: Mask) -> bool:
    made, operands = runner.made_maps, step.instruction.operands
    modifiers = step.instruction.opcode.modifiers
    name = next((m for m in modifiers if m in FIELDS), None)
    if name is None or not any(m.startswith("shared") for m in modifiers):
        return False
    axis = operands[1] if len(operands) == 3 else None
    ordinal = integer_value(axis) if isinstance(axis, ptx.Integer) else 0 if axis is None else None
    value = lanes.exact_in(runner.value(operands[-1], 64, step.index), mask.may)
    place = str(operands[0])
    if value.span is not None or ordinal is None:
        return False
    numbers = distinct(selected(mask.may, value.low())[0])
    if len(numbers) != 1:
        return False
    if made.first < 0:
        made.first, made.place = step.index, place
    made.fields[name, ordinal] = int(numbers[0])
    return made.place == place


def _copy(runner: SliceState, step: Step, mask: Mask) -> bool:
    """Note a map that is copied to global memory; False if something is left open."""
    made, operands = runner.made_maps, step.instruction.operands
    content = _content(made.fields)
    if runner.piece is None and runner.scene.cta_count > 1:
        return False
    if content is None or made.place != str(operands[1]):
        return False
    names = frozenset(registers_in(operands[1]))
    if not _is_undisturbed(runner.code, made.first, step.index, names):
        return False
    target = lanes.exact_in(runner.address(operands[0], step.index), mask.may)
    if target.span is not None:
        return False
    shape = np.broadcast_shapes(target.low().shape, mask.may.shape, (1, 1))
    here = np.broadcast_to(mask.may, shape)
    addresses = np.broadcast_to(target.low(), shape)
    low = np.where(here, addresses, U64(lanes.MASK[64])).min(axis=-1, keepdims=True)
    high = np.where(here, addresses, U64(0)).max(axis=-1, keepdims=True)
    ctas = np.asarray(here.any(axis=-1))[..., None]
    if bool((low != high)[ctas].any()):
        return False
    runner.recorder.own_maps(*runner.by_cta(low, ctas))
    made.copies.append((low, ctas, content))
    return True


def _content(fields: dict[Field, int]) -> bytes | None:
    """The bytes of a map if all of its fields are set, else None."""
    if any((name, 0) not in fields for name in _ONCE):
        return None
    axes = fields["rank", 0] + 1
    wanted = [(name, axis) for name in _PER_AXIS for axis in range(axes)]
    wanted += [("global_stride", axis) for axis in range(axes - 1)]
    if not 1 <= axes <= 5 or any(field not in fields for field in wanted):
        return None
    content = bytes(SIZE)
    for (name, ordinal), value in fields.items():
        if ordinal > 4:
            return None
        content = replace_field(content, name, ordinal, value)
    return content


def _is_undisturbed(code: KernelCode, first: int, last: int, names: frozenset[str]) -> bool:
    """Whether from one instruction to another nothing but `replace` writes shared memory, and
    nothing the registers of the map's address."""
    block = next(b for b in code.flow.blocks if b.start <= first < b.end)
    if not first < last < block.end:
        return False
    for index in range(first, last):
        instruction = code.flat.instructions[index]
        if instruction.opcode.name == "tensormap":
            continue
        if instruction.opcode.name == "call" or index in code.shared_writes:
            return False
        if any(names & set(registers_in(operand)) for operand in instruction.operands[:1]):
            return False
    return True


def spoiled_maps(code: KernelCode, recorder: Recorder) -> dict[int, Wording]:
    """Tensor copies whose map, made by the kernel, something else may write."""
    effects = {s.index: s.effects for block in code.blocks for s in block}
    spoiled: dict[int, Wording] = {}
    for index, (zone, used) in recorder.used_maps.items():
        if recorder.map_conflict:
            spoiled[index] = Wording("its tensor map may be overwritten")
        for key, touched in recorder.touched.items():
            opcode = code.flat.instructions[key.at].opcode
            if key.zone != zone or key.effect < 0 or "cp_fenceproxy" in opcode.modifiers:
                continue
            if not effects[key.at][key.effect].access.writes:
                continue
            if touched.whole is not None or len(intervals.intersect(touched.may[0], used)):
                spoiled[index] = Wording("its tensor map may be overwritten")
    return spoiled
