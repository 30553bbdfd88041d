"""Instructions with other names in them.

In: an instruction and a map from names to names. Out: the same instruction with every register,
variable and label that the map holds replaced; the rest stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tessera.ir.ptx import syntax as ptx

Names = Mapping[str, str]


def rename_instruction(instruction: ptx.Instruction, names: Names) -> ptx.Instruction:
    """Every name of an instruction, its guard's included."""
    if not names:
        return instruction
    guard = instruction.guard
    if guard is not None and guard.register in names:
        guard = replace(guard, register=names[guard.register])
    operands = tuple(rename_operand(o, names) for o in instruction.operands)
    return replace(instruction, guard=guard, operands=operands)


def rename_operand(operand: ptx.Operand, names: Names) -> ptx.Operand:
    """Every name of an operand."""
    match operand:
        case ptx.Name():
            return _name(operand, names)
        case ptx.Not() | ptx.Negated():
            return replace(operand, operand=_name(operand.operand, names))
        case ptx.Pair():
            first = rename_operand(operand.first, names)
            second = rename_operand(operand.second, names)
            assert isinstance(first, ptx.Name | ptx.Sink | ptx.Vector)
            assert isinstance(second, ptx.Name | ptx.Sink)
            return ptx.Pair(first, second)
        case ptx.Vector():
            return ptx.Vector(tuple(rename_operand(e, names) for e in operand.elements))
        case ptx.Group():
            return ptx.Group(tuple(rename_operand(e, names) for e in operand.elements))
        case ptx.Address():
            parts = tuple(rename_operand(p, names) for p in operand.parts)
            return ptx.Address(parts, operand.suffix)
        case ptx.Offset():
            displacement = _constant(operand.displacement, names)
            return ptx.Offset(_name(operand.base, names), displacement)
        case ptx.Subscript():
            index = operand.index
            if isinstance(index, ptx.Offset):
                renamed = rename_operand(index, names)
                assert isinstance(renamed, ptx.Offset)
                return ptx.Subscript(names.get(operand.name, operand.name), renamed)
            return ptx.Subscript(names.get(operand.name, operand.name), _constant(index, names))
        case ptx.Sink():
            return operand
        case _:
            return _constant(operand, names)


def _name(name: ptx.Name, names: Names) -> ptx.Name:
    new_name = names.get(name.name)
    return name if new_name is None else ptx.Name(new_name, name.component)


def _constant(constant: ptx.Constant, names: Names) -> ptx.Constant:
    match constant:
        case ptx.Name():
            return _name(constant, names)
        case ptx.Unary() | ptx.Cast():
            return replace(constant, operand=_constant(constant.operand, names))
        case ptx.Binary():
            left, right = _constant(constant.left, names), _constant(constant.right, names)
            return ptx.Binary(constant.operator, left, right)
        case _:
            return constant
