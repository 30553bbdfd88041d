"""Loads of what the same thread has stored before.

In: a `KernelCode`. Out: all its loads, each with the parameters that its address is made of, and
whether it loads nothing but bytes that the thread has stored, whenever it runs. What a launch finds
there is nothing to such a load: compilers write results of a first pass over a row to memory, and
read them back in a second one.

All of this has to hold, of a store and a load that are both plain (`_OneAddress.is_plain`):
- Every way to the load leads through the store (`ThreadConstants.comes_first`).
- The store has no guard, or that of the load, which is kept from one to the other (`_has_guard`).
- Both have the same address: the same register, which is kept (`is_kept`), or constants of the
  thread that are equal (`ThreadConstants.address`).
- The store is at least as wide.

Whatever is written there between the two, by whomever, is written by the launch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tessera.ir.opcodes import WRITTEN_ROLES, MemoryEffect, special_register
from tessera.ir.ptx import syntax as ptx
from tessera.passes.kernel_facts.kernel_code import KernelCode, Step
from tessera.passes.kernel_facts.operand_names import registers_in, written_registers
from tessera.passes.kernel_facts.thread_constants import Place, ThreadConstants, parameter_place

_GLOBAL = frozenset({"global", "generic"})
_OUT_OF_ORDER = frozenset({"nc", "async", "mmio"})


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLoad:
    """An instruction that reads memory. `parameters` are all that its address may be made of; None
    where it may be made of something else, too: of what was loaded, or of what is not followed."""

    text: str
    parameters: frozenset[str] | None
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
    def place(self) -> Place:
        """Where it stands."""
        return self.block, self.step.index

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
        self._constants = ThreadConstants(code)
        self._made_of = _made_of(code)
        self._every = [
            _OneAddress(block=number, step=step, effect=effect)
            for number, block in enumerate(code.blocks)
            if code.flow.blocks[number].reachable
            for step in block
            for effect in step.effects
        ]

    def loads(self) -> Iterator[KernelLoad]:
        """In the order of their instructions."""
        by_name: dict[ptx.Operand, list[_OneAddress]] = {}
        by_value: dict[int | None, list[_OneAddress]] = {}
        for store in self._every:
            if store.is_plain and store.effect.access.writes:
                by_name.setdefault(store.operand, []).append(store)
                by_value.setdefault(self._address(store), []).append(store)
        by_value.pop(None, None)
        for load in self._every:
            if load.effect.access.reads:
                named, equal = by_name.get(load.operand, []), by_value.get(self._address(load), [])
                is_own = load.is_plain and (
                    any(self._stores(s, load) and self._is_kept(s, load) for s in named)
                    or any(self._stores(store, load) for store in equal)
                )
                yield KernelLoad(
                    text=str(load.step.instruction.opcode),
                    parameters=_joined(self._made_of, registers_in(load.operand)),
                    is_own=is_own,
                )

    def _address(self, use: _OneAddress) -> int | None:
        return self._constants.address(use.operand, use.place) if use.is_plain else None

    def _stores(self, store: _OneAddress, load: _OneAddress) -> bool:
        """Whether a thread that comes to the load has stored what it loads, if both have the same
        address."""
        return (
            store.width >= load.width
            and self._constants.comes_first(store.place, load.place)
            and self._has_guard(store, load)
        )

    def _has_guard(self, store: _OneAddress, load: _OneAddress) -> bool:
        """Whether the store runs wherever the load does, if it comes first."""
        guard = store.step.instruction.guard
        return guard is None or (
            guard == load.step.instruction.guard
            and self._constants.is_kept(guard.register, store.place, load.place)
        )

    def _is_kept(self, store: _OneAddress, load: _OneAddress) -> bool:
        """Whether the registers of an address hold at the load what they held at the store."""
        return all(
            self._constants.is_kept(name, store.place, load.place)
            for name in registers_in(load.operand)
        )


# --- what addresses are made of -------------------------------------------------------------------

_Names = frozenset[str] | None


def _made_of(code: KernelCode) -> dict[str, _Names]:
    """The parameters that each register may be made of, whoever wrote it; None: and more."""
    steps = [step for block in code.blocks for step in block]
    readers: dict[str, list[Step]] = {}
    for step in steps:
        for operand in step.instruction.operands:
            for name in registers_in(operand):
                readers.setdefault(name, []).append(step)
    made: dict[str, _Names] = dict.fromkeys(code.widths, frozenset())
    parameters = {parameter.name for parameter in code.function.parameters}
    pending = steps[::-1]
    while pending:
        step = pending.pop()
        given = _sources(step, parameters, made)
        for name in written_registers(step.instruction, step.meaning):
            old = made.get(name)
            new = None if old is None or given is None else old | given
            if new != old:
                made[name] = new
                pending += readers.get(name, ())
    return made


def _sources(step: Step, parameters: set[str], made: dict[str, _Names]) -> _Names:
    """What the results of a step may be made of."""
    name, _ = parameter_place(step)
    if name in parameters:
        return frozenset({name})
    if step.effects or (step.function is None and step.instruction.opcode.name != "cvta"):
        return None
    places = zip(step.meaning.roles, step.instruction.operands, strict=False)
    names = (n for role, o in places if role not in WRITTEN_ROLES for n in registers_in(o))
    return _joined(made, names)


def _joined(made: dict[str, _Names], names: Iterable[str]) -> _Names:
    """What some names are made of; special registers of no parameter."""
    total: frozenset[str] = frozenset()
    for name in names:
        part = frozenset() if special_register(name) is not None else made.get(name)
        if part is None:
            return None
        total |= part
    return total
