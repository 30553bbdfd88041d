"""The use of shared memory by a kernel, as far as its addresses and branches depend on it.

In: the instructions of a kernel and the registers that its excerpt needs. Out: a `SharedUse`, or
None if nothing that the excerpt needs is loaded from shared memory: then no instruction on
shared memory is part of the excerpt.

Shared variables have made-up addresses, 2**20 bytes apart (`BASE`), so that an address identifies
the variable that it points into. A kernel can tell a made-up address from a real address only if it
does more than add to the address and access memory with it; `is_plain` says that it does not. Bits
below the alignment of the variable are the same in both, so `or` with 8 is allowed on an address
that is a multiple of 16.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tessera.ir.opcodes import Meaning, OperandRole
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value
from tessera.ir.ptx.flatten import FlatFunction
from tessera.ir.ptx.layout import alignment, size_bytes
from tessera.passes.kernel_facts.operand_names import registers_in, written_registers

BASE = 0x5A000000
SPACING = 1 << 20
_MOST_VARIABLES = 64
_COPIES = frozenset({"mov", "cvta", "selp"})
_BITS = frozenset({"and", "or", "xor"})
_WAITS = frozenset({"commit_group", "wait_group", "wait_all"})
_ROOTS = frozenset({OperandRole.SIZE, OperandRole.BARRIER, OperandRole.THREADS})


@dataclass(frozen=True, slots=True)
class SharedVariable:
    """A variable at its made-up address; `size` is None if the launch gives the bytes."""

    base: int
    size: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedUse:
    """The instructions that matter: `steps` may write shared memory or wait for other threads,
    `loads` give values that the excerpt needs; `has_addresses`: a load gives words of 8 bytes.
    `opaque` stores write an address of shared memory, which counts as unknown. Without `is_plain`,
    addresses of shared memory are unknown."""

    steps: frozenset[int]
    loads: frozenset[int]
    opaque: frozenset[int]
    variables: dict[str, SharedVariable]
    is_plain: bool
    has_addresses: bool


def may_write_shared(meaning: Meaning) -> bool:
    """Whether an instruction may change shared memory."""
    return any(
        e.access.writes and (e.space.startswith("shared") or e.space == "generic")
        for e in meaning.effects
    )


def shared_loads(flat: FlatFunction, meanings: list[Meaning], needed: set[str]) -> frozenset[int]:
    """The loads that give a needed register and may be from shared memory."""
    generic = any(
        instruction.opcode.name in {"cvta", "mapa"}
        and "to" not in instruction.opcode.modifiers
        and any(m.startswith("shared") for m in instruction.opcode.modifiers)
        for instruction in flat.instructions
    )
    loads: list[int] = []
    for index, (instruction, meaning) in enumerate(zip(flat.instructions, meanings, strict=True)):
        if instruction.opcode.name != "ld" or len(meaning.effects) != 1:
            continue
        space = meaning.effects[0].space
        if not space.startswith("shared") and not (space == "generic" and generic):
            continue
        if any(name in needed for name in written_registers(instruction, meaning)):
            loads.append(index)
    return frozenset(loads)


def shared_steps(flat: FlatFunction, meanings: list[Meaning]) -> frozenset[int]:
    """The instructions that may write shared memory, or order the accesses of threads to it."""
    return frozenset(
        index
        for index, (instruction, meaning) in enumerate(
            zip(flat.instructions, meanings, strict=True)
        )
        if may_write_shared(meaning) or is_barrier(instruction) or is_copy_wait(instruction)
    )


def is_barrier(instruction: ptx.Instruction) -> bool:
    """Whether this is a barrier of threads of a CTA or of a warp."""
    return (
        instruction.opcode.name in {"bar", "barrier"}
        and "cluster" not in instruction.opcode.modifiers
    )


def is_copy_wait(instruction: ptx.Instruction) -> bool:
    """Whether this groups or waits for the thread's own `cp.async` copies."""
    modifiers = instruction.opcode.modifiers
    return (
        instruction.opcode.name == "cp" and "bulk" not in modifiers and bool(_WAITS & {*modifiers})
    )


def shared_roots(instruction: ptx.Instruction, meaning: Meaning) -> Iterator[str]:
    """The registers that decide what one of `shared_steps` does."""
    if instruction.guard is not None:
        yield instruction.guard.register
    takes_sources = instruction.opcode.name == "st" or is_barrier(instruction)
    addresses = {effect.operand for effect in meaning.effects if effect.access.writes}
    for place, (role, operand) in enumerate(zip(meaning.roles, instruction.operands, strict=False)):
        if place in addresses or role in _ROOTS or (takes_sources and role is OperandRole.SOURCE):
            yield from registers_in(operand)


def shared_use(
    module: ptx.Module,
    flat: FlatFunction,
    meanings: list[Meaning],
    needed: set[str],
    steps: frozenset[int],
) -> SharedUse:
    """The use of shared memory, given the registers that the excerpt needs with `steps` in it."""
    declared = [v for v in (*module.variables(), *flat.variables) if v.space == "shared"]
    variables = _place(declared)
    # A variable of a function that is inlined twice is one variable under two names.
    renamed = any("@" in variable.name for variable in declared)
    odd, opaque = _odd_uses(flat, meanings, needed, declared)
    loads = shared_loads(flat, meanings, needed)
    return SharedUse(
        steps=steps,
        loads=loads,
        opaque=opaque,
        variables=variables,
        is_plain=not odd and not renamed and len(variables) <= _MOST_VARIABLES,
        has_addresses=any(
            flat.instructions[load].opcode.modifiers[-1].endswith("64") for load in loads
        ),
    )


def _place(declared: Iterable[ptx.Variable]) -> dict[str, SharedVariable]:
    """A place for each variable; all variables of open size share the launch's dynamic memory."""
    placed: dict[str, SharedVariable] = {}
    for number, variable in enumerate(declared, start=1):
        size = None if variable.linkage == "extern" else size_bytes(variable)
        base = BASE if size is None else BASE + number * SPACING
        placed[variable.name] = SharedVariable(base, size)
    return placed


def _odd_uses(
    flat: FlatFunction,
    meanings: list[Meaning],
    needed: set[str],
    declared: Iterable[ptx.Variable],
) -> tuple[bool, frozenset[int]]:
    """Whether the excerpt does more with shared addresses than adding to them, and the stores to
    shared memory that store one."""
    aligned = {variable.name: alignment(variable) for variable in declared}
    carries: dict[str, int] = dict(aligned)
    odd, opaque, changed = False, set[int](), True
    while changed and not odd:
        changed = False
        for index, (instruction, meaning) in enumerate(
            zip(flat.instructions, meanings, strict=True)
        ):
            least, kept = _flow(instruction, meaning, carries)
            if least is None:
                continue
            if instruction.opcode.name == "st":
                opaque.add(index)
                odd = odd or not _stays_shared(meaning)
                continue
            for name in written_registers(instruction, meaning):
                odd = odd or (name in needed and not kept)
                if kept and carries.get(name, 1 << 62) > least:
                    carries[name], changed = least, True
    return odd, frozenset(opaque)


def _stays_shared(meaning: Meaning) -> bool:
    """Whether a stored value can only be loaded again from shared memory, or never."""
    return all(e.space.startswith("shared") or e.space == "global" for e in meaning.effects)


def _flow(
    instruction: ptx.Instruction, meaning: Meaning, carries: dict[str, int]
) -> tuple[int | None, bool]:
    """The least alignment of the shared addresses among the sources, None if there is none;
    and whether the result is such an address again."""
    skipped = {
        OperandRole.DESTINATION,
        OperandRole.PREDICATE_DESTINATION,
        OperandRole.ADDRESS,
        OperandRole.MBARRIER,
    }
    if instruction.opcode.name == "cvta":
        skipped.discard(OperandRole.ADDRESS)
    sources = [
        [carries[name] for name in registers_in(operand) if name in carries]
        for role, operand in zip(meaning.roles, instruction.operands, strict=False)
        if role not in skipped
    ]
    address_places = [place for place, some in enumerate(sources) if some]
    if not address_places:
        return None, True
    least = min(min(some) for some in sources if some)
    return least, _keeps(instruction, address_places, least)


def _keeps(instruction: ptx.Instruction, address_places: list[int], least: int) -> bool:
    """Whether an instruction only makes a sum or a copy of shared addresses.

    `address_places` are the sources that hold such addresses.
    """
    name, modifiers = instruction.opcode.name, instruction.opcode.modifiers
    if any(isinstance(operand, ptx.Vector) for operand in instruction.operands):
        return False
    if name in _COPIES:
        return True
    if name == "cvt":
        return all(m[1:] in {"32", "64"} and m[0] in "sub" for m in modifiers)
    if name == "add":
        return len(address_places) == 1 and not {"cc", "sat"} & {*modifiers}
    if name in {"sub", "mad"}:
        wanted = 0 if name == "sub" else 2
        return address_places == [wanted] and not {"cc", "sat", "hi"} & {*modifiers}
    return name in _BITS and address_places == [0] and _is_low(instruction, name, least)


def _is_low(instruction: ptx.Instruction, name: str, least: int) -> bool:
    """Whether `and`, `or`, `xor` with a constant change bits below the alignment only."""
    mask = instruction.operands[-1]
    value = integer_value(mask) if isinstance(mask, ptx.Integer | ptx.Unary) else None
    if value is None:
        return False
    bits = 64 if instruction.opcode.modifiers[-1].endswith("64") else 32
    changed = ~value if name == "and" else value
    return changed & ((1 << bits) - 1) < least
