"""Loads of what the same thread has stored before.

In: a `KernelCode`. Out: all its loads, each with the parameter that its address is made of, and
whether it loads nothing but bytes that the thread has stored, whenever it runs. What a launch finds
there is nothing to such a load: compilers write results of a first pass over a row to memory, and
read them back in a second one.

A store comes first if its block dominates that of the load, or it stands before it in the same one.
Its guard is then that of the load, or it has none. Both have the same address: the same register
that one instruction writes, or expressions of thread and parameters that are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tessera.ir.graph.expr import Expression
from tessera.ir.opcodes import MemoryEffect
from tessera.ir.ptx import syntax as ptx
from tessera.passes.kernel_facts.describe_kernel import Describer
from tessera.passes.kernel_facts.kernel_code import KernelCode, Step
from tessera.passes.kernel_facts.operand_names import registers_in
from tessera.passes.kernel_facts.register_values import Provenance, split_base

_GLOBAL = frozenset({"global", "generic"})
_OUT_OF_ORDER = frozenset({"nc", "async", "mmio"})
_UNKNOWN = "?@"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLoad:
    """An instruction that reads memory. `parameter` is what its address is an offset from; empty
    where that is not known."""

    text: str
    parameter: str
    is_own: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _OneAddress:
    """An instruction that reads or writes some bytes behind one address."""

    block: int
    step: Step
    effect: MemoryEffect

    @property
    def operand(self) -> ptx.Operand:
        """Its address."""
        return self.step.instruction.operands[self.effect.operand]

    @property
    def width(self) -> int:
        """Bytes per thread; 0 where no constant."""
        return self.effect.width or 0

    @property
    def is_plain(self) -> bool:
        """Whether it is a load or a store in the order of the thread; `nc` may be of before it."""
        opcode = self.step.instruction.opcode
        return (
            opcode.name in ("ld", "st")
            and _OUT_OF_ORDER.isdisjoint(opcode.modifiers)
            and self.effect.space in _GLOBAL
            and self.width > 0
        )


def loads_of(code: KernelCode) -> tuple[KernelLoad, ...]:
    """All instructions of a kernel that read memory."""
    return tuple(_LoadFinder(code).loads())


class _LoadFinder:
    """The loads of one kernel, and the stores that come before them."""

    def __init__(self, code: KernelCode) -> None:
        self._code = code
        self._describer = Describer(code)
        self._addresses: dict[_OneAddress, Expression] = {}
        self._every = [
            _OneAddress(block=number, step=step, effect=effect)
            for number, block in enumerate(code.blocks)
            if code.flow.blocks[number].reachable
            for step in block
            for effect in step.effects
        ]

    def loads(self) -> Iterator[KernelLoad]:
        """In the order of their instructions."""
        stores = [use for use in self._every if use.is_plain and use.effect.access.writes]
        for load in self._every:
            if load.effect.access.reads:
                yield KernelLoad(
                    text=str(load.step.instruction.opcode),
                    parameter=self._parameter(load),
                    is_own=load.is_plain and any(self._stores(store, load) for store in stores),
                )

    def _address(self, use: _OneAddress) -> Expression:
        known = self._addresses.get(use)
        if known is None:
            known = self._describer.address(use.block, use.step, use.effect.operand)
            self._addresses[use] = known
        return known

    def _parameter(self, load: _OneAddress) -> str:
        base, _ = split_base(self._code, self._address(load))
        return base.name if base.provenance is Provenance.PARAMETER else ""

    def _stores(self, store: _OneAddress, load: _OneAddress) -> bool:
        """Whether a thread that comes to the load has stored what it loads."""
        return (
            store.width >= load.width
            and self._comes_first(store, load)
            and self._has_guard(store.step, load.step)
            and self._has_address(store, load)
        )

    def _comes_first(self, store: _OneAddress, load: _OneAddress) -> bool:
        if store.block == load.block:
            return store.step.index < load.step.index
        return self._code.flow.dominates(store.block, load.block)

    def _has_guard(self, store: Step, load: Step) -> bool:
        """Whether the store runs wherever the load does, if it comes first."""
        guard = store.instruction.guard
        return guard is None or (
            guard == load.instruction.guard and self._is_written_once(guard.register)
        )

    def _has_address(self, store: _OneAddress, load: _OneAddress) -> bool:
        if store.operand == load.operand:
            return all(self._is_written_once(name) for name in registers_in(load.operand))
        if self._is_repeated(store.block) or self._is_repeated(load.block):
            return False
        text = str(self._address(load))
        return text == str(self._address(store)) and not any(sign in text for sign in _UNKNOWN)

    def _is_written_once(self, name: str) -> bool:
        """Whether a register has one definition: where that dominates two uses of it, and the
        first use the second, both find the same value."""
        return len(self._describer.definitions.get(name, ())) == 1

    def _is_repeated(self, block: int) -> bool:
        return any(block in loop.blocks for loop in self._code.flow.loops)
