"""Small rewrites of a flat function that make its control flow explicit.

- A guard on an instruction that a group of threads executes together, or that transfers control
  (`bar`, `call`, `shfl.sync`, `trap`), becomes a branch around it: `@p bar.sync 0` is
  `@!p bra next; bar.sync 0`. The scheduler alone then decides what the instruction means for
  part of a group.
- A `call` is followed by `%return`, where the lanes return: copying results and restoring
  registers must not happen on other paths that join there.
- Some instructions must start a block even if no branch targets them. Lanes wait for their warp at
  the start of a block, so effects that other lanes wait for must be in an earlier block.
"""

from __future__ import annotations

from dataclasses import replace

from tessera.ir.opcodes import ThreadScope, meaning_of, widened_meaning
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value
from tessera.ir.ptx.control_flow import ends_block
from tessera.ir.ptx.flatten import FlatFunction, LabelIndex

RETURN = "%return"

BARRIERS = frozenset({"bar", "barrier"})
# `setmaxnreg` does nothing here, so no lane waits for another at it.
_NOTHING_TO_DO = frozenset({"setmaxnreg"})
_TOGETHER = frozenset({ThreadScope.WARP, ThreadScope.WARPGROUP})
_MASK_OPERAND = {"shfl": -1, "vote": -1, "match": -1, "redux": -1, "elect": -1}
_FULL = 0xFFFFFFFF
_SEEN_BY_OTHERS = frozenset({"st", "atom", "red", "mbarrier", "cp", "stmatrix"})


def is_cta_barrier(instruction: ptx.Instruction) -> bool:
    """Whether lanes wait here for other warps of the CTA or the cluster."""
    if instruction.opcode.name not in BARRIERS:
        return False
    return "warp" not in instruction.opcode.modifiers


def is_warp_wide(instruction: ptx.Instruction) -> bool:
    """Whether the lanes of a warp execute the instruction together."""
    if instruction.opcode.name in _NOTHING_TO_DO:
        return False
    means = meaning_of(instruction)
    if means is None or not means.fits:
        means = widened_meaning(instruction)
    return means.scope in _TOGETHER


def member_mask(instruction: ptx.Instruction) -> ptx.Operand | None:
    """The operand with the mask of participating lanes, or None for the whole warp."""
    if "sync" not in instruction.opcode.modifiers:
        return None
    name = instruction.opcode.name
    if name in BARRIERS:
        return instruction.operands[0]
    place = _MASK_OPERAND.get(name)
    return None if place is None else instruction.operands[place]


def starts_block(instruction: ptx.Instruction) -> bool:
    """Whether a block must start here, because the instruction names part of a warp."""
    if not is_warp_wide(instruction):
        return False
    mask = member_mask(instruction)
    if mask is None:
        return False
    value = integer_value(mask)
    return value is None or value & _FULL != _FULL


def _needs_branch(instruction: ptx.Instruction) -> bool:
    if instruction.guard is None:
        return False
    name = instruction.opcode.name
    if name in ("call", "trap") or is_cta_barrier(instruction):
        return True
    return is_warp_wide(instruction)


def lower(flat: FlatFunction) -> tuple[FlatFunction, tuple[int, ...]]:
    """Rewrite a function; also return the instructions that must start a block."""
    instructions: list[ptx.Instruction] = []
    labels: dict[int, list[str]] = {}
    for label in flat.labels:
        labels.setdefault(label.index, []).append(label.name)
    moved: list[LabelIndex] = []
    leaders: list[int] = []
    dirty = False
    for number, instruction in enumerate(flat.instructions):
        if number in labels or ends_block(instruction):
            dirty = False
        if is_warp_wide(instruction) and dirty:
            leaders.append(len(instructions))
            dirty = False
        dirty = dirty or instruction.opcode.name in _SEEN_BY_OTHERS
        moved.extend(LabelIndex(name, len(instructions)) for name in labels.get(number, ()))
        if _needs_branch(instruction):
            guard = instruction.guard
            assert guard is not None
            around = f"%around{number}"
            flipped = ptx.Guard(guard.register, not guard.negated)
            bra = ptx.Opcode("bra")
            instructions.append(ptx.Instruction(flipped, bra, (ptx.Name(around),), instruction.at))
            instruction = replace(instruction, guard=None)
            _append(instructions, leaders, instruction)
            moved.append(LabelIndex(around, len(instructions)))
        else:
            _append(instructions, leaders, instruction)
    end = len(flat.instructions)
    moved.extend(LabelIndex(name, len(instructions)) for name in labels.get(end, ()))
    lowered = replace(flat, instructions=tuple(instructions), labels=tuple(moved))
    return lowered, tuple(leaders)


def _append(
    instructions: list[ptx.Instruction], leaders: list[int], instruction: ptx.Instruction
) -> None:
    if starts_block(instruction):
        leaders.append(len(instructions))
    instructions.append(instruction)
    if instruction.opcode.name == "call":
        leaders.append(len(instructions))
        back = ptx.Opcode(RETURN)
        instructions.append(ptx.Instruction(None, back, instruction.operands, instruction.at))
        leaders.append(len(instructions))
    elif is_cta_barrier(instruction):
        leaders.append(len(instructions))
