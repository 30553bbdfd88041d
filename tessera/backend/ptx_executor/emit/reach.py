"""The functions that a kernel can reach, in the order in which their blocks are numbered.

A function is reached by a direct call, or, if some call goes through an address, because its own
address is taken somewhere. Callees come before callers: the scheduler prefers low numbers, so lanes
inside a function return before the lanes that wait at the call continue.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tessera.backend.ptx_executor.emit.lower import lower
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.flatten import FlatFunction, flatten


@dataclass(slots=True)
class ReachedFunctions:
    """The functions of a program, flat and lowered, callees first."""

    order: list[str]
    flats: dict[str, FlatFunction]
    leaders: dict[str, tuple[int, ...]]
    edges: dict[str, list[str]]

    def is_recursive(self, name: str) -> bool:
        """Whether a function may be called again before it returns."""
        seen: set[str] = set()
        pending = list(self.edges[name])
        while pending:
            other = pending.pop()
            if other == name:
                return True
            if other not in seen:
                seen.add(other)
                pending.extend(self.edges[other])
        return False


def functions_by_name(module: ptx.Module) -> dict[str, ptx.Function]:
    """Functions by name. A definition wins over a declaration; an alias names its function."""
    functions: dict[str, ptx.Function] = {}
    for function in module.functions():
        if function.body is not None or function.name not in functions:
            functions[function.name] = function
    for item in module.items:
        if isinstance(item, ptx.Alias) and item.aliasee in functions:
            functions[item.name] = functions[item.aliasee]
    return functions


def reach(module: ptx.Module, kernel: ptx.Function) -> ReachedFunctions:
    """Everything that a launch of the kernel may run."""
    functions = functions_by_name(module)
    flats: dict[str, FlatFunction] = {}
    leaders: dict[str, tuple[int, ...]] = {}
    edges: dict[str, list[str]] = {}
    pending = [kernel.name]
    while pending:
        name = pending.pop()
        if name in edges:
            continue
        flats[name], leaders[name] = lower(flatten(functions[name]))
        edges[name] = _callees(module, functions, flats[name])
        pending.extend(edges[name])
    return ReachedFunctions(_postorder(edges, kernel.name), flats, leaders, edges)


def _callees(
    module: ptx.Module, functions: dict[str, ptx.Function], flat: FlatFunction
) -> list[str]:
    used = dict.fromkeys(name for i in flat.instructions for name in names_in(i))
    if any(_is_indirect_call(i, functions) for i in flat.instructions):
        used |= _functions_with_addresses(module)
    called = (functions[name] for name in used if name in functions)
    return [f.name for f in called if f.body is not None and not f.is_entry]


def _functions_with_addresses(module: ptx.Module) -> dict[str, None]:
    """Names whose address is taken by an initialiser, an instruction or a list of targets."""
    taken: dict[str, None] = {}
    pending: list[object] = [v.initializer for v in module.variables() if v.initializer]
    while pending:
        item = pending.pop()
        if isinstance(item, ptx.InitializerList):
            pending.extend(item.elements)
        elif isinstance(item, ptx.Name):
            taken[item.name] = None
        elif isinstance(item, ptx.Generic | ptx.MaskedByte):
            pending.append(item.operand)
    for function in module.functions():
        for statement in ptx.walk_statements(function.body or ()):
            if isinstance(statement, ptx.Instruction) and statement.opcode.name == "mov":
                taken.update(dict.fromkeys(names_in(statement)))
            elif isinstance(statement, ptx.TargetList) and statement.kind == "calltargets":
                taken.update(dict.fromkeys(statement.targets))
    return dict.fromkeys(sorted(taken))


def _is_indirect_call(instruction: ptx.Instruction, functions: dict[str, ptx.Function]) -> bool:
    """Whether the callee is a register and not a function."""
    if instruction.opcode.name != "call":
        return False
    callee = next((o for o in instruction.operands if isinstance(o, ptx.Name)), None)
    return callee is not None and callee.name.split("#")[0] not in functions


def names_in(instruction: ptx.Instruction) -> Iterator[str]:
    """Every name in the operands of an instruction."""
    pending: list[object] = list(instruction.operands)
    while pending:
        operand = pending.pop()
        match operand:
            case ptx.Name():
                yield operand.name
            case ptx.Subscript():
                yield operand.name
                pending.append(operand.index)
            case ptx.Vector() | ptx.Group():
                pending.extend(operand.elements)
            case ptx.Address():
                pending.extend(operand.parts)
            case ptx.Offset():
                pending.extend((operand.base, operand.displacement))
            case ptx.Pair():
                pending.extend((operand.first, operand.second))
            case ptx.Not() | ptx.Negated() | ptx.Unary() | ptx.Cast() | ptx.Generic():
                pending.append(operand.operand)
            case ptx.Binary():
                pending.extend((operand.left, operand.right))
            case _:
                pass


def _postorder(edges: dict[str, list[str]], root: str) -> list[str]:
    seen: set[str] = {root}
    finished: list[str] = []
    stack = [(root, iter(edges[root]))]
    while stack:
        name, pending = stack[-1]
        for target in pending:
            if target not in seen:
                seen.add(target)
                stack.append((target, iter(edges[target])))
                break
        else:
            finished.append(name)
            stack.pop()
    return finished
