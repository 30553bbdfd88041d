"""Finds out that polling threads wait for ever, long before the limit of steps.

A launch is deterministic. So if a chunk that only polls comes back to the state it had before,
with nothing in between that writes memory or reads a clock, it will do so for ever unless
another chunk writes; and if that holds for every chunk that is left, nothing will ever change.
What is not on the list below counts as a change, so a launch is never stopped wrongly; loops
that are not recognised still end at the limit of steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tessera.backend.cpu.compiled import CompiledBlock, KernelProgram
from tessera.backend.cpu.memory import Array
from tessera.ir import ptx

if TYPE_CHECKING:
    from tessera.backend.cpu.lanes import Lanes

_PURE = frozenset(
    {"activemask", "add", "and", "bra", "brx", "cvt", "cvta", "elect", "fence", "isspacep", "ld",
     "lop3", "mad", "mapa", "max", "membar", "min", "mov", "mul", "nanosleep", "not", "or",
     "selp", "set", "setp", "shfl", "shl", "shr", "sub", "vote", "xor"}
)  # fmt: skip
_WAITS = frozenset({"test_wait", "try_wait"})
_CLOCKS = ("%clock", "%globaltimer")

Standing = dict[int, "Lanes"]


def is_still(instruction: ptx.Instruction) -> bool:
    """Whether repeating an instruction with the same operands changes nothing."""
    name, modifiers = instruction.opcode.name, instruction.opcode.modifiers
    if name == "mbarrier":
        return not _WAITS.isdisjoint(modifiers)
    if name == "atom":
        # A lock: the new value, and the old one it replaces, are the same each time.
        swapped = instruction.operands[2:]
        constant = all(isinstance(o, ptx.Integer) for o in swapped)
        return constant and ("cas" in modifiers or "exch" in modifiers)
    if name in ("bar", "barrier"):
        return "warp" in modifiers
    clocks = any(
        isinstance(o, ptx.Name) and o.name.startswith(_CLOCKS) for o in instruction.operands
    )
    return name in _PURE and not clocks


class Stillness:
    """Whether a chunk has come back to the state it had when its turn began."""

    def __init__(self, program: KernelProgram) -> None:
        self._program = program
        self._still: dict[int, bool] = {}
        self._registers: list[Array] | None = None
        self._standing: dict[int, Array] = {}
        self._moved = False

    def begin(self, registers: list[Array], standing: Standing) -> None:
        """A turn begins; keep the state, as registers are overwritten in place."""
        self._registers = [r.copy() for r in registers]
        self._standing = {number: lanes.flags().copy() for number, lanes in standing.items()}
        self._moved = False

    def ran(self, block: CompiledBlock) -> None:
        """A block was run in this turn."""
        if self._moved or self._registers is None:
            return
        still = self._still.get(block.number)
        if still is None:
            sites = self._program.sites[block.site : block.site + block.length]
            still = all(is_still(site.instruction) for site in sites)
            self._still[block.number] = still
        self._moved = not still

    def repeated(self, registers: list[Array], standing: Standing) -> bool:
        """Whether the turn that ends here changed nothing."""
        if self._registers is None or self._moved or standing.keys() != self._standing.keys():
            return False
        here = all(np.array_equal(standing[n].flags(), f) for n, f in self._standing.items())
        return here and all(
            np.array_equal(now, then) for now, then in zip(registers, self._registers, strict=True)
        )
