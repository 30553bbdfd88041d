"""Which registers of an excerpt hold something that may still be read.

In: a kernel's code. Out: for a block, the registers that some way from its start reads before it
writes them. A write under a guard may leave the old value, so it ends nothing.
"""

from __future__ import annotations

from tessera.ir.opcodes import READ_ROLES
from tessera.ir.ptx import syntax as ptx
from tessera.passes.kernel_facts.kernel_code import KernelCode, Step
from tessera.passes.kernel_facts.operand_names import registers_in


def live_registers_at(code: KernelCode) -> dict[int, frozenset[str]]:
    """The live registers at the start of each block: backwards until nothing changes."""
    own = [_block_names(steps) for steps in code.blocks]
    live: dict[int, frozenset[str]] = dict.fromkeys(range(len(own)), frozenset())
    changed = True
    while changed:
        changed = False
        for index in reversed(range(len(own))):
            read, written = own[index]
            after: set[str] = set()
            for successor in code.flow.blocks[index].successors:
                after |= live.get(successor, frozenset())
            names = read | (after - written)
            if names != live[index]:
                live[index] = frozenset(names)
                changed = True
    return live


def _block_names(steps: tuple[Step, ...]) -> tuple[set[str], set[str]]:
    """What a block reads of what was there before, and what it surely writes."""
    read: set[str] = set()
    written: set[str] = set()
    for step in steps:
        read |= _reads(step) - written
        if step.instruction.guard is None:
            written |= set(step.targets)
    return read, written


def _reads(step: Step) -> set[str]:
    names: set[str] = set()
    if step.instruction.guard is not None:
        names.add(step.instruction.guard.register)
    roles = step.meaning.roles
    for place, operand in enumerate(step.instruction.operands):
        known = place < len(roles)
        if not known or roles[place] in READ_ROLES or isinstance(operand, ptx.Address):
            names.update(registers_in(operand))
    return names
