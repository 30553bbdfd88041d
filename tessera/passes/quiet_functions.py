"""Functions that touch no memory but their own.

In: a module. Out: the names of its functions whose accesses, and those of all they call, stay in
local, parameter and shared memory. A call of such a function that cannot be put in place of the
call (recursion, a call through a register) gives unknown results and nothing else.

A call through a register can reach the functions named by anything but a direct call; it is quiet
where all of them are.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera.ir import ptx
from tessera.ir.flatten import FlatFunction, flatten
from tessera.ir.opcodes import Role, meaning_of
from tessera.passes.inline_calls import call_parts
from tessera.passes.operand_names import registers_in

_OWN = frozenset({"local", "param", "param::entry", "param::func"})


def quiet_calls(module: ptx.Module, flat: FlatFunction) -> frozenset[str]:
    """The callees in a function's calls (registers too) that touch no memory outside the CTA."""
    called = {call_parts(i)[0] or "" for i in flat.instructions if i.opcode.name == "call"}
    if not called:
        return frozenset()
    quiet = _quiet_functions(module)
    taken = _address_taken(module)
    through_register = bool(taken) and taken <= quiet
    registers = {r.name for r in flat.registers}
    return frozenset(
        name for name in called if name in quiet or (name in registers and through_register)
    )


def _quiet_functions(module: ptx.Module) -> frozenset[str]:
    bodies = {f.name: f for f in module.functions() if f.body is not None and not f.is_entry}
    reached = {name: frozenset(_reaches(f)) for name, f in bodies.items()}
    quiet = {name for name, found in reached.items() if "" not in found}
    while True:
        fewer = {name for name in quiet if reached[name] <= quiet}
        if fewer == quiet:
            return frozenset(quiet)
        quiet = fewer


def _reaches(function: ptx.Function) -> Iterator[str]:
    """The functions that a body calls; "" where it touches memory or is not understood."""
    for instruction in flatten(function).instructions:
        meaning = meaning_of(instruction)
        if meaning is None or not meaning.fits:
            yield ""
            continue
        if instruction.opcode.name == "call":
            yield call_parts(instruction)[0] or ""
        for effect in meaning.effects:
            if effect.space not in _OWN and not effect.space.startswith("shared"):
                yield ""
        if Role.TENSOR_MAP in meaning.roles:
            yield ""


def _address_taken(module: ptx.Module) -> frozenset[str]:
    """The functions of a module whose address something may hold."""
    names = {f.name for f in module.functions()}
    found: set[str] = set()
    for function in module.functions():
        if function.body is None:
            continue
        flat = flatten(function)
        for instruction in flat.instructions:
            found.update(names & set(_mentioned(instruction)))
        for targets in flat.targets:
            found.update(names & set(targets.targets))
    for variable in module.variables():
        if variable.initializer is not None:
            found.update(names & set(_initial_names(variable.initializer)))
    return frozenset(found)


def _mentioned(instruction: ptx.Instruction) -> Iterator[str]:
    meaning = meaning_of(instruction)
    roles = meaning.roles if meaning is not None else ()
    for place, operand in enumerate(instruction.operands):
        if place < len(roles) and roles[place] is Role.FUNCTION:
            continue
        yield from registers_in(operand)


def _initial_names(initializer: ptx.Initializer) -> Iterator[str]:
    if isinstance(initializer, ptx.InitializerList):
        for element in initializer.elements:
            yield from _initial_names(element)
    elif not isinstance(initializer, ptx.InitializerField):
        yield from registers_in(initializer)
