"""Parameters whose value matters beyond being a base that offsets are added to.

In: the instructions of a kernel. Out: the names of the parameters whose 64-bit value reaches
something other than an addition, a copy, an address or a comparison with zero. For every other
parameter, moving the pointer that is passed moves its accesses and changes nothing else, so one
footprint serves all launches that differ in such pointers only.
"""

from __future__ import annotations

from tessera.ir.opcodes import Meaning, OperandRole
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value
from tessera.ir.ptx.flatten import FlatFunction
from tessera.passes.kernel_facts.operand_names import readers_of, registers_in, written_registers

Taint = frozenset[str]
_NONE: Taint = frozenset()


def valued_parameters(flat: FlatFunction, meanings: list[Meaning]) -> frozenset[str]:
    """The parameters whose value matters beyond being a base."""
    names = frozenset(p.name for p in flat.function.parameters)
    readers = readers_of(flat.instructions)
    taints: dict[str, Taint] = {}
    valued: set[str] = set()
    pending = [index for name in sorted(names) for index in readers.get(name, ())]
    while pending:
        index = pending.pop()
        instruction, meaning = flat.instructions[index], meanings[index]
        passed, used = _flow(instruction, meaning, names, taints)
        valued |= used
        for name in written_registers(instruction, meaning):
            old = taints.get(name, _NONE)
            if not passed <= old:
                taints[name] = old | passed
                pending += readers.get(name, ())
    return frozenset(valued)


def _flow(
    instruction: ptx.Instruction, meaning: Meaning, names: Taint, taints: dict[str, Taint]
) -> tuple[Taint, Taint]:
    """The parameters that the results carry, and those that are used as more than a base."""
    name = instruction.opcode.name
    sources = [
        _taint(operand, names, taints)
        for role, operand in zip(meaning.roles, instruction.operands, strict=False)
        if role
        not in {OperandRole.DESTINATION, OperandRole.PREDICATE_DESTINATION, OperandRole.ADDRESS}
    ]
    everything = frozenset().union(*sources)
    if name == "ld" and any(e.space.startswith("param") for e in meaning.effects):
        return _loaded(instruction, names, taints)
    if not everything:
        return _NONE, _NONE
    has_vector = any(isinstance(operand, ptx.Vector) for operand in instruction.operands)
    if name in {"mov", "cvta", "selp"} and not has_vector:
        return everything, _NONE
    if name == "add" and sum(map(bool, sources)) == 1:
        return everything, _NONE
    base = {"sub": 0, "mad": 2}.get(name)
    if base is not None and not any(taint for i, taint in enumerate(sources) if i != base):
        return everything, _NONE
    if name == "setp" and _compares_with_zero(instruction):
        return _NONE, _NONE
    return _NONE, everything


def _loaded(
    instruction: ptx.Instruction, names: Taint, taints: dict[str, Taint]
) -> tuple[Taint, Taint]:
    """A load of a whole parameter by name; through a register or in parts, its value matters."""
    target, source = instruction.operands[0], instruction.operands[1]
    named = frozenset(n for n in registers_in(source) if n in names)
    through = frozenset().union(*(taints.get(n, _NONE) for n in registers_in(source)))
    whole = isinstance(target, ptx.Name) and instruction.opcode.modifiers[-1][1:] == "64"
    return (named, through) if whole else (_NONE, named | through)


def _taint(operand: ptx.Operand, names: Taint, taints: dict[str, Taint]) -> Taint:
    taint: Taint = _NONE
    for name in registers_in(operand):
        taint |= taints.get(name, _NONE)
        if name in names:
            taint |= {name}
    return taint


def _compares_with_zero(instruction: ptx.Instruction) -> bool:
    if not {"eq", "ne"} & set(instruction.opcode.modifiers):
        return False
    constants = [o for o in instruction.operands[1:] if isinstance(o, ptx.Integer)]
    return any(integer_value(constant) == 0 for constant in constants)
