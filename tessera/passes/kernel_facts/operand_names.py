"""Names in operands, the registers that an instruction writes, and what an instruction means."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from tessera.ir.opcodes import WRITTEN_ROLES, Meaning, meaning_of, widened_meaning
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value

SINK = "_"
"""The name that stands for the register of a dropped result; nothing reads it."""


def registers_in(operand: ptx.Operand) -> tuple[str, ...]:
    """Every name in an operand; names that are not registers are harmless to callers."""
    match operand:
        case ptx.Name():
            return (operand.name,)
        case ptx.Integer():
            return ()
        case ptx.Not() | ptx.Negated():
            return (operand.operand.name,)
        case ptx.Pair():
            return (*registers_in(operand.first), *registers_in(operand.second))
        case ptx.Vector() | ptx.Group():
            return tuple(chain.from_iterable(map(registers_in, operand.elements)))
        case ptx.Address():
            return tuple(chain.from_iterable(map(registers_in, operand.parts)))
        case ptx.Offset():
            return (operand.base.name, *registers_in(operand.displacement))
        case ptx.Subscript():
            return (operand.name, *registers_in(operand.index))
        case ptx.Unary() | ptx.Cast() | ptx.Generic() | ptx.MaskedByte():
            return registers_in(operand.operand)
        case ptx.Binary():
            return (*registers_in(operand.left), *registers_in(operand.right))
        case _:
            return ()


def place_of(operand: ptx.Operand) -> tuple[str, int | None]:
    """The name in an address, and the offset from it. The name is empty if there is not exactly one
    name; the offset is None if it is not a number."""
    if not isinstance(operand, ptx.Address) or len(operand.parts) != 1:
        return "", None
    part = operand.parts[0]
    if isinstance(part, ptx.Offset):
        return part.base.name, integer_value(part.displacement)
    return (part.name, 0) if isinstance(part, ptx.Name) else ("", None)


def readers_of(instructions: Sequence[ptx.Instruction]) -> dict[str, list[int]]:
    """The instructions that name each register or symbol in an operand."""
    readers: dict[str, list[int]] = {}
    for index, instruction in enumerate(instructions):
        for operand in instruction.operands:
            for name in registers_in(operand):
                readers.setdefault(name, []).append(index)
    return readers


def written_registers(instruction: ptx.Instruction, meaning: Meaning) -> tuple[str, ...]:
    """The registers that an instruction may write, in operand order; a dropped result is `SINK`, so
    that the other results keep their index."""
    registers: list[str] = []
    for role, operand in zip(meaning.roles, instruction.operands, strict=False):
        if role in WRITTEN_ROLES:
            registers.extend(results_in(operand))
    return tuple(registers)


def results_in(operand: ptx.Operand) -> tuple[str, ...]:
    """The registers of a destination, including `SINK`."""
    match operand:
        case ptx.Name():
            return (operand.name,)
        case ptx.Sink():
            return (SINK,)
        case ptx.Pair():
            return (*results_in(operand.first), *results_in(operand.second))
        case ptx.Vector() | ptx.Group():
            return tuple(chain.from_iterable(map(results_in, operand.elements)))
        case _:
            return registers_in(operand)


def known_meaning(instruction: ptx.Instruction) -> Meaning:
    """The meaning from the table, or the largest possible effect if the table lacks the form."""
    meaning = meaning_of(instruction)
    return meaning if meaning is not None and meaning.fits else widened_meaning(instruction)
