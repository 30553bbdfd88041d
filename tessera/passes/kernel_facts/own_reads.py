"""Loads of bytes that the same thread has stored.

In: a `KernelCode`. Out: all its loads, each with the parameters from which its address is computed,
and whether it always loads only bytes that the thread has stored. Such a load does not depend on
the contents of memory at the start of the launch: compilers write results of a first pass over a
row to memory, and read them back in a second pass.

The store and the load must both be plain (`_OneAddress.is_plain`), and all of this must hold:
- Every path to the load leads through the store (`ThreadConstants.comes_first`).
- The store has no guard, or the guard of the load, kept from the store to the load (`_has_guard`).
- Both have the same address: the same register, which is kept (`is_kept`), or constants of the
  thread that are equal (`ThreadConstants.address`).
- The store is at least as wide.

A write by another thread between the two is a write of the same launch.

A *constant* of a thread is a register that holds one number for as long as the thread runs. It is
computed from parameters, the thread's place and numbers alone, by the one instruction that writes
it, under no guard. So it is the same whenever that instruction runs. It counts only where it was
computed: the instruction dominates every reader. Sums of 64 bits are compared as sums modulo 2**64,
other results by opcode and operands.

A register with one unguarded writer is *kept* from one place to another if the writer dominates the
first and the first dominates the second: a path from the writer to the second place that avoids the
first would extend to a path from the entry that avoids it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tessera.ir.opcodes import WRITTEN_ROLES, MemoryEffect, special_register
from tessera.ir.opcodes.special_registers import Varies
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value
from tessera.ir.ptx.layout import size_bytes
from tessera.passes.kernel_facts.operand_names import place_of, registers_in, written_registers

if TYPE_CHECKING:
    from tessera.passes.kernel_facts.kernel_code import KernelCode, Step

_GLOBAL = frozenset({"global", "generic"})
_OUT_OF_ORDER = frozenset({"nc", "async", "mmio"})


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLoad:
    """An instruction that reads memory. `parameters` are those from which its address may be
    computed; None if loaded or unfollowed values may also be part of the address."""

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
        """The operand that is its address."""
        return self.step.instruction.operands[self.effect.operand]

    @property
    def place(self) -> Place:
        """The block and the instruction."""
        return self.block, self.step.index

    @property
    def width(self) -> int:
        """Bytes per thread; 0 if not a constant."""
        return self.effect.width or 0

    @property
    def is_plain(self) -> bool:
        """Whether it is a load or store in thread order; an `nc` load may read older contents."""
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
        """The loads in the order of their instructions."""
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
        """Whether a thread that reaches the load has stored the loaded bytes, given that both have
        the same address."""
        return (
            store.width >= load.width
            and self._constants.comes_first(store.place, load.place)
            and self._has_guard(store, load)
        )

    def _has_guard(self, store: _OneAddress, load: _OneAddress) -> bool:
        """Whether the store runs whenever the load does, given that the store comes first."""
        guard = store.step.instruction.guard
        return guard is None or (
            guard == load.step.instruction.guard
            and self._constants.is_kept(guard.register, store.place, load.place)
        )

    def _is_kept(self, store: _OneAddress, load: _OneAddress) -> bool:
        """Whether the registers of an address have the same values at the load as at the store."""
        return all(
            self._constants.is_kept(name, store.place, load.place)
            for name in registers_in(load.operand)
        )


# --- what addresses are made of -------------------------------------------------------------------

_Names = frozenset[str] | None


def _made_of(code: KernelCode) -> dict[str, _Names]:
    """The parameters from which each register may be computed; None if not only from parameters."""
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
    """The parameters from which the results of a step may be computed."""
    name, _ = parameter_place(step)
    if name in parameters:
        return frozenset({name})
    if step.effects or (step.function is None and step.instruction.opcode.name != "cvta"):
        return None
    places = zip(step.meaning.roles, step.instruction.operands, strict=False)
    names = (n for role, o in places if role not in WRITTEN_ROLES for n in registers_in(o))
    return _joined(made, names)


def _joined(made: dict[str, _Names], names: Iterable[str]) -> _Names:
    """The parameters behind some names; special registers have none."""
    total: frozenset[str] = frozenset()
    for name in names:
        part = frozenset() if special_register(name) is not None else made.get(name)
        if part is None:
            return None
        total |= part
    return total


Place = tuple[int, int]
"""A block, and an instruction in it."""
Sum = tuple[int, tuple[tuple[int, int], ...]]
"""A number, and other values with their factors, modulo 2**64."""
_MASK = (1 << 64) - 1
_MOST_TERMS = 8


class ThreadConstants:
    """Values of one kernel by number; see the module's text."""

    def __init__(self, code: KernelCode) -> None:
        self._code = code
        self._sizes = {p.name: size_bytes(p) for p in code.function.parameters}
        self._writers: dict[str, list[tuple[int, Step]]] = {}
        self._numbers: dict[object, int] = {}
        self._sums: dict[int, Sum] = {}
        self._known: dict[str, int] = {}
        for block, steps in enumerate(code.blocks):
            for step in steps:
                for name in written_registers(step.instruction, step.meaning):
                    self._writers.setdefault(name, []).append((block, step))
        for block in code.flow.order:
            for step in code.blocks[block]:
                self._define(block, step)

    def comes_first(self, first: Place, second: Place) -> bool:
        """Whether every path to the second place leads through the first."""
        if first[0] == second[0]:
            return first[1] < second[1]
        return self._code.flow.dominates(first[0], second[0])

    def is_kept(self, name: str, first: Place, second: Place) -> bool:
        """Whether a register has the same value at both places, given that all paths to the second
        place lead through the first."""
        return self._is_defined(name, first) and self.comes_first(first, second)

    def address(self, operand: ptx.Operand, at: Place) -> int | None:
        """The number of an address in brackets; None if it is not a constant."""
        if not isinstance(operand, ptx.Address) or len(operand.parts) != 1:
            return None
        part = operand.parts[0]
        if not isinstance(part, ptx.Offset):
            return self._value(part, at)
        base, moved = self._value(part.base, at), integer_value(part.displacement)
        return None if base is None or moved is None else self._added(base, (moved, ()), 1)

    def _is_defined(self, name: str, at: Place) -> bool:
        """Whether a register has one writer, without a guard, which comes before a place."""
        writers = self._writers.get(name, ())
        if len(writers) != 1 or writers[0][1].instruction.guard is not None:
            return False
        return self.comes_first((writers[0][0], writers[0][1].index), at)

    def _define(self, block: int, step: Step) -> None:
        instruction = step.instruction
        if len(step.targets) != 1 or len(self._writers[step.targets[0]]) != 1:
            return
        if instruction.guard is None:
            number = self._result(step, (block, step.index))
            if number is not None:
                self._known[step.targets[0]] = number

    def _result(self, step: Step, at: Place) -> int | None:
        opcode, operands = step.instruction.opcode, step.instruction.operands
        if step.effects:
            return self._parameter(step)
        if step.function is None and opcode.name != "cvta":
            return None
        values = [self._value(operand, at) for operand in operands[1:]]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        if opcode.name in ("add", "sub") and opcode.modifiers[-1].endswith("64"):
            return self._added(known[0], self._sum(known[1]), 1 if opcode.name == "add" else -1)
        if opcode.name == "mov" or (opcode.name == "cvta" and "global" in opcode.modifiers):
            return known[0]
        return self._number((str(opcode), *known))

    def _parameter(self, step: Step) -> int | None:
        """The value of a load from a place inside one parameter of the kernel."""
        place = parameter_load(step, self._sizes)
        return None if place is None else self._number((str(step.instruction.opcode), *place))

    def _value(self, operand: ptx.Operand, at: Place) -> int | None:
        if isinstance(operand, ptx.Integer | ptx.Unary | ptx.Binary | ptx.Cast):
            number = integer_value(operand)
            return None if number is None else self._added(None, (number, ()), 1)
        if not isinstance(operand, ptx.Name):
            return None
        if operand.name in self._code.widths:
            known = self._known.get(operand.name) if operand.component is None else None
            return known if known is not None and self._is_defined(operand.name, at) else None
        special = special_register(operand.name)
        if special is None or special.is_volatile or special.varies is Varies.MACHINE:
            return None
        return self._number((operand.name, operand.component))

    def _number(self, key: object) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _sum(self, value: int) -> Sum:
        return self._sums.get(value, (0, ((value, 1),)))

    def _added(self, value: int | None, more: Sum, factor: int) -> int:
        """The number of a value plus a sum times a factor."""
        constant, terms = (0, ()) if value is None else self._sum(value)
        factors = dict(terms)
        for term, count in more[1]:
            factors[term] = (factors.get(term, 0) + factor * count) & _MASK
        total = (constant + factor * more[0]) & _MASK
        kept = tuple(sorted((term, count) for term, count in factors.items() if count))
        if len(kept) > _MOST_TERMS:
            return self._number(("long sum", value, more, factor))
        if total == 0 and len(kept) == 1 and kept[0][1] == 1:
            return kept[0][0]
        number = self._number(("sum", total, kept))
        self._sums[number] = total, kept
        return number


def parameter_load(step: Step, sizes: Mapping[str, int | None]) -> tuple[str, int] | None:
    """The parameter and the place of a plain load of bytes inside one parameter."""
    name, offset = parameter_place(step)
    size = sizes.get(name)
    if size is None:
        return None
    width = step.effects[0].width
    return (name, offset) if width is not None and 0 <= offset <= size - width else None


def parameter_place(step: Step) -> tuple[str, int]:
    """The name and the offset of a plain load of a parameter; no name if it is not one."""
    opcode, effects = step.instruction.opcode, step.effects
    is_load = opcode.name == "ld" and len(effects) == 1 and effects[0].space.startswith("param")
    name, offset = place_of(step.instruction.operands[effects[0].operand]) if is_load else ("", 0)
    return ("", 0) if offset is None else (name, offset)
