"""The call graph of a module, and the memory that calls which cannot be inlined may touch.

In: a module, and the callees of each function. `gather` and `closed_names` find facts about a
function and all its callees, direct and indirect, in time linear in the calls. `components` is
Tarjan's algorithm without recursion, so that a call chain may have any length.

`call_reach` is about the calls that stay in a kernel (recursive, or through a register). Out: the
callees that are
- quiet: their accesses, and those of all they call, stay in local, parameter and shared memory.
  Such a call gives unknown results and has no other effect;
- bounded: neither they nor the kernel load a pointer. They touch only the buffers among the
  kernel's arguments and the module's variables.

`may_exit`: a thread may end in one of these calls, so what follows them is not certain.

A call through a register can reach every function whose name appears outside a direct call; it is
quiet or bounded if all of these functions are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tessera.ir.opcodes import OperandRole
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.flatten import FlatFunction, flatten
from tessera.passes.kernel_facts.inline_calls import call_parts
from tessera.passes.kernel_facts.operand_names import known_meaning, registers_in

Item = TypeVar("Item")


def components(calls: Mapping[str, Collection[str]]) -> Iterator[list[str]]:
    """The strongly connected components of the call graph, callees before their callers."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_names: list[str] = []
    is_open: set[str] = set()
    for root in calls:
        if root in order:
            continue
        path = [(root, iter(calls[root]))]
        order[root] = lowest[root] = len(order)
        open_names.append(root)
        is_open.add(root)
        while path:
            name, rest = path[-1]
            callee = next(
                (c for c in rest if c in calls and (c not in order or c in is_open)), None
            )
            if callee is not None and callee in order:
                lowest[name] = min(lowest[name], order[callee])
                continue
            if callee is not None:
                order[callee] = lowest[callee] = len(order)
                open_names.append(callee)
                is_open.add(callee)
                path.append((callee, iter(calls[callee])))
                continue
            path.pop()
            if path:
                lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[name])
            if lowest[name] == order[name]:
                start = len(open_names) - 1
                while open_names[start] != name:
                    start -= 1
                group = open_names[start:]
                del open_names[start:]
                is_open.difference_update(group)
                yield group


def gather(
    calls: Mapping[str, Collection[str]], own: Mapping[str, Collection[Item]]
) -> dict[str, frozenset[Item]]:
    """The items of each function and of all its callees; equal sets are one object."""
    gathered: dict[str, frozenset[Item]] = {}
    for group in components(calls):
        parts = [gathered[c] for name in group for c in calls[name] if c in gathered]
        largest = max(parts, key=len, default=frozenset[Item]())
        more = {item for name in group for item in own.get(name, ())}
        for part in parts:
            if part is not largest:
                more |= part
        total = largest if more <= largest else largest | more
        gathered.update(dict.fromkeys(group, total))
    return gathered


def closed_names(needs: Mapping[str, Collection[str]]) -> frozenset[str]:
    """The names that need, directly or not, only names of the mapping."""
    users: dict[str, list[str]] = {}
    bad: list[str] = []
    for name, needed in needs.items():
        for need in needed:
            users.setdefault(need, []).append(name)
        if any(need not in needs for need in needed):
            bad.append(name)
    gone = set(bad)
    while bad:
        for user in users.get(bad.pop(), ()):
            if user not in gone:
                gone.add(user)
                bad.append(user)
    return frozenset(needs.keys() - gone)


# Functions of the CUDA device runtime; they return, or end the launch.
_RUNTIME = re.compile(r"vprintf|malloc|free|__assert_?fail|cuda\w*")
_THROUGH_A_REGISTER = " "  # no function has this name
_PLAIN = frozenset({"global", "const", "generic"})
_OWN = frozenset({"local", "param", "param::entry", "param::func"})


@dataclass(frozen=True, slots=True)
class CallReach:
    """The known facts about the callees of a kernel, including calls through registers."""

    quiet: frozenset[str] = frozenset()
    bounded: frozenset[str] = frozenset()
    may_exit: bool = False


def call_reach(module: ptx.Module, flat: FlatFunction) -> CallReach:
    """The memory that the calls which stayed in a kernel can touch."""
    called = {call_parts(i)[0] or "" for i in flat.instructions if i.opcode.name == "call"}
    if not called:
        return CallReach()
    taken = _address_taken(module)
    registers = {r.name for r in flat.registers}
    quiet = _quiet_functions(module)
    bounded = frozenset[str]() if _loads_pointers(flat) else _bounded_functions(module)

    def among(good: frozenset[str]) -> frozenset[str]:
        through = called & registers if taken and taken <= good else set()
        return frozenset(called & good | through)

    return CallReach(among(quiet), among(bounded), _may_exit(module, called - registers, called))


def _may_exit(module: ptx.Module, names: set[str], called: set[str]) -> bool:
    """Whether a thread may end in a call: in a function of the module, or in an unknown one."""
    bodies = [f for f in module.functions() if f.body is not None and not f.is_entry]
    own = {f.name for f in bodies}
    # A function that the module defines is its own, even if it has the name of a runtime function.
    unknown = {name for name in names - own if not _RUNTIME.fullmatch(name)}
    if unknown:
        return True
    return any(name in own or not _RUNTIME.fullmatch(name) for name in called) and any(
        instruction.opcode.name == "exit" for f in bodies for instruction in flatten(f).instructions
    )


def _bounded_functions(module: ptx.Module) -> frozenset[str]:
    """The functions that, with all they call, load no pointers and are understood."""
    bodies = {f.name: flatten(f) for f in module.functions() if f.body and not f.is_entry}
    taken = _address_taken(module)
    calls = {
        name: {call_parts(i)[0] or "" for i in flat.instructions if i.opcode.name == "call"}
        for name, flat in bodies.items()
    }
    registers = {name: {r.name for r in flat.registers} for name, flat in bodies.items()}
    good = {name for name, flat in bodies.items() if not _loads_pointers(flat)}
    needs = {
        name: {_THROUGH_A_REGISTER if c in registers[name] and c not in good else c for c in called}
        for name, called in calls.items()
        if name in good
    }
    return closed_names({**needs, _THROUGH_A_REGISTER: taken}) - {_THROUGH_A_REGISTER}


def _loads_pointers(flat: FlatFunction) -> bool:
    """Whether a body may load an address from memory, whole or in parts, or is not understood."""
    for instruction in flat.instructions:
        meaning = known_meaning(instruction)
        if not meaning.fits or OperandRole.TENSOR_MAP in meaning.roles:
            return True
        name, modifiers = instruction.opcode.name, instruction.opcode.modifiers
        wide = any(m.endswith(("64", "128")) for m in modifiers)
        outside = [e for e in meaning.effects if e.space not in _OWN]
        if any(e.space not in _PLAIN and not e.space.startswith("shared") for e in outside):
            return True
        if wide and any(e.access.reads for e in outside):
            return True
        packs = name == "mov" and any(isinstance(o, ptx.Vector) for o in instruction.operands[1:])
        if wide and (packs or name in {"bfi", "or", "xor", "prmt"}):
            return True
    return False


def _quiet_functions(module: ptx.Module) -> frozenset[str]:
    bodies = {f.name: f for f in module.functions() if f.body is not None and not f.is_entry}
    reached = {name: frozenset(_reaches(f)) for name, f in bodies.items()}
    return closed_names({name: callees for name, callees in reached.items() if "" not in callees})


def _reaches(function: ptx.Function) -> Iterator[str]:
    """The functions that a body calls; "" where it touches memory or is not understood."""
    for instruction in flatten(function).instructions:
        meaning = known_meaning(instruction)
        if not meaning.fits or OperandRole.TENSOR_MAP in meaning.roles:
            yield ""
        if instruction.opcode.name == "call":
            yield call_parts(instruction)[0] or ""
        for effect in meaning.effects:
            if effect.space not in _OWN and not effect.space.startswith("shared"):
                yield ""


def _address_taken(module: ptx.Module) -> frozenset[str]:
    """The functions of a module whose address something may hold."""
    names = {f.name for f in module.functions()}
    taken: set[str] = set()
    for function in module.functions():
        if function.body is None:
            continue
        flat = flatten(function)
        for instruction in flat.instructions:
            taken.update(names & set(_mentioned(instruction)))
        for targets in flat.targets:
            taken.update(names & set(targets.targets))
    for variable in module.variables():
        if variable.initializer is not None:
            taken.update(names & set(_initial_names(variable.initializer)))
    return frozenset(taken)


def _mentioned(instruction: ptx.Instruction) -> Iterator[str]:
    roles = known_meaning(instruction).roles
    for role, operand in zip(roles, instruction.operands, strict=True):
        if role is not OperandRole.FUNCTION:
            yield from registers_in(operand)


def _initial_names(initializer: ptx.Initializer) -> Iterator[str]:
    if isinstance(initializer, ptx.InitializerList):
        for element in initializer.elements:
            yield from _initial_names(element)
    elif not isinstance(initializer, ptx.InitializerField):
        yield from registers_in(initializer)
