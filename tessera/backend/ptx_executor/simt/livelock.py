"""Detects threads that poll or loop forever, long before the limit of steps.

A launch is deterministic. If a chunk that only polls returns to an earlier state, without writing
memory or reading a clock in between, it repeats forever unless another chunk writes. If that holds
for every remaining chunk, nothing will ever change.
`Meaning` says which instructions write memory; an unknown instruction counts as a change, so a
launch is never stopped wrongly. Loops that are not recognised end at the limit of steps.

`Rounds` detects loops that do not poll: from time to time it saves the state of the chunk, and
checks whether the chunk returns to it. It also detects lanes in blocks that no path leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tessera.backend.ptx_executor.memory.memory import Array
from tessera.backend.ptx_executor.simt.compiled import CompiledBlock, KernelProgram
from tessera.ir.opcodes import Flow, InstructionKind, Meaning, ThreadScope, meaning_of
from tessera.ir.ptx import syntax as ptx

if TYPE_CHECKING:
    from tessera.backend.ptx_executor.memory.lanes import LaneSet

# These instructions change only their destinations: the carry flag is a register.
_LEAVES_NOTHING = frozenset({InstructionKind.INTEGER, InstructionKind.FENCE})
_STAYS = frozenset({Flow.NEXT, Flow.BRANCH, Flow.INDEXED_BRANCH})
_CLOCKS = ("%clock", "%globaltimer")

# Steps before the first check, and comparisons with one state before a later state replaces it.
_FIRST_LOOK = 1 << 14
_COMPARISONS = 8

Standing = dict[int, "LaneSet"]


def is_still(instruction: ptx.Instruction) -> bool:
    """Whether repeating an instruction with the same operands changes nothing."""
    name, modifiers = instruction.opcode.name, instruction.opcode.modifiers
    if name == "atom":
        # A lock: the new value, and the old one it replaces, are the same each time.
        swapped = instruction.operands[2:]
        constant = all(isinstance(o, ptx.Integer) for o in swapped)
        return constant and ("cas" in modifiers or "exch" in modifiers)
    clocks = any(
        isinstance(o, ptx.Name) and o.name.startswith(_CLOCKS) for o in instruction.operands
    )
    means = meaning_of(instruction)
    return not clocks and means is not None and means.fits and _keeps_memory(means)


def _keeps_memory(means: Meaning) -> bool:
    """Whether the instruction can change only registers of the lanes that execute it."""
    if any(effect.access.writes or effect.access.is_async for effect in means.effects):
        return False
    if means.flow not in _STAYS or means.scope not in (ThreadScope.THREAD, ThreadScope.WARP):
        return False
    # For example a volatile read, an mbarrier test, a prefetch, an exchange in a warp, a branch.
    if means.effects or means.scope is ThreadScope.WARP or means.flow is not Flow.NEXT:
        return True
    return not means.side_effects or means.kind in _LEAVES_NOTHING or means.opcode == "nanosleep"


class Stillness:
    """Detects that a chunk has returned to the state in which its turn began."""

    def __init__(self, program: KernelProgram) -> None:
        self._program = program
        self._still: dict[int, bool] = {}
        self._registers: list[Array] | None = None
        self._standing: dict[int, Array] = {}
        self._moved = False

    def begin(self, registers: list[Array], standing: Standing) -> None:
        """Begin a turn; copy the state, because registers are overwritten in place."""
        self._registers = [r.copy() for r in registers]
        self._standing = {number: lanes.flags().copy() for number, lanes in standing.items()}
        self._moved = False

    def ran(self, block: CompiledBlock) -> None:
        """Note that a block ran in this turn."""
        if self._moved or self._registers is None:
            return
        still = self._still.get(block.number)
        if still is None:
            sites = self._program.sites[block.site : block.site + block.length]
            still = all(is_still(site.instruction) for site in sites)
            self._still[block.number] = still
        self._moved = not still

    @property
    def moved(self) -> bool:
        """Whether the turn may have changed what other chunks see."""
        return self._moved or self._registers is None

    def repeated(self, registers: list[Array], standing: Standing) -> bool:
        """Whether the turn that ends here changed nothing."""
        if self._registers is None or self._moved or standing.keys() != self._standing.keys():
            return False
        here = all(np.array_equal(standing[n].flags(), f) for n, f in self._standing.items())
        return here and all(
            np.array_equal(now, then) for now, then in zip(registers, self._registers, strict=True)
        )


class Rounds:
    """Detects a chunk in a loop that it never leaves. Checks when its steps reach `due`."""

    def __init__(self, program: KernelProgram) -> None:
        self._program = program
        self._stillness = Stillness(program)
        self._block = -1
        self._since = 0
        self._left = 0
        self.due = _FIRST_LOOK
        self.is_armed = False
        self.is_found = False

    def resume(self, steps: int) -> None:
        """Begin another turn of a chunk that was in a loop; others may have written meanwhile."""
        if self.is_found:
            self.is_found = False
            self.due = steps

    def look(self, number: int, steps: int, registers: list[Array], standing: Standing) -> bool:
        """Whether a chunk that is about to run a block loops forever."""
        if not self.is_armed:
            self._keep(number, steps, registers, standing)
            return self.is_found
        if steps >= 2 * self._since:
            self._rest(steps)
        elif number == self._block:
            self.is_found = self._stillness.repeated(registers, standing)
            self._left -= 1
            if self.is_found or not self._left:
                self._rest(steps)
        return self.is_found

    def ran(self, block: CompiledBlock) -> None:
        """Note that a block ran while a state is saved."""
        self._stillness.ran(block)

    def _keep(self, number: int, steps: int, registers: list[Array], standing: Standing) -> None:
        self.is_found = len(standing) == 1 and number in _closed(self._program)
        self._stillness.begin(registers, standing)
        self._block, self._since, self._left = number, max(steps, 1), _COMPARISONS
        self.is_armed = not self.is_found

    def _rest(self, steps: int) -> None:
        self.is_armed = False
        self.due = 2 * max(steps, _FIRST_LOOK)


def _closed(program: KernelProgram) -> frozenset[int]:
    """Blocks from which no path leads to an end, and which only compute.

    The block after a `ret` of a function is not known here, so `ret` counts as an end. So does any
    instruction with a side effect other than a store.
    """
    before: dict[int, list[int]] = {}
    open_blocks: list[int] = []
    for block in program.blocks:
        for target in block.targets:
            before.setdefault(target, []).append(block.number)
        ends = block.control not in ("goto", "branch", "table") or min(block.targets) < 0
        if ends or block.polls or not _only_computes(program, block):
            open_blocks.append(block.number)
    reached = set(open_blocks)
    while open_blocks:
        for number in before.get(open_blocks.pop(), ()):
            if number not in reached:
                reached.add(number)
                open_blocks.append(number)
    return frozenset(block.number for block in program.blocks) - reached


def _only_computes(program: KernelProgram, block: CompiledBlock) -> bool:
    sites = program.sites[block.site : block.site + block.length]
    return all(
        is_still(site.instruction) or site.instruction.opcode.name in ("st", "red")
        for site in sites
    )
