"""The names in an operand, wherever they stand, and the registers that an instruction writes."""

from __future__ import annotations

from collections.abc import Iterator

from tessera.ir.opcodes import WRITTEN_ROLES, Meaning
from tessera.ir.ptx import syntax as ptx


def registers_in(operand: ptx.Operand) -> Iterator[str]:
    """Every name in an operand; those that are no registers do no harm."""
    match operand:
        case ptx.Name():
            yield operand.name
        case ptx.Not() | ptx.Negated():
            yield operand.operand.name
        case ptx.Pair():
            yield from registers_in(operand.first)
            yield from registers_in(operand.second)
        case ptx.Vector() | ptx.Group():
            for element in operand.elements:
                yield from registers_in(element)
        case ptx.Address():
            for part in operand.parts:
                yield from registers_in(part)
        case ptx.Offset():
            yield operand.base.name
            yield from registers_in(operand.displacement)
        case ptx.Subscript():
            yield operand.name
            yield from registers_in(operand.index)
        case ptx.Unary() | ptx.Cast() | ptx.Generic() | ptx.MaskedByte():
            yield from registers_in(operand.operand)
        case ptx.Binary():
            yield from registers_in(operand.left)
            yield from registers_in(operand.right)
        case _:
            return


def written_registers(instruction: ptx.Instruction, meaning: Meaning) -> tuple[str, ...]:
    """The registers that an instruction may write, in operand order."""
    registers: list[str] = []
    for role, operand in zip(meaning.roles, instruction.operands, strict=False):
        if role in WRITTEN_ROLES and not isinstance(operand, ptx.Address):
            registers.extend(registers_in(operand))
    return tuple(registers)
