"""What an instruction means, also where the opcode table does not know it."""

from __future__ import annotations

from tessera.ir.opcodes import Meaning, meaning_of, widened_meaning
from tessera.ir.ptx import syntax as ptx


def known_meaning(instruction: ptx.Instruction) -> Meaning:
    """What the table says, or, where it has no such form, the most that it may do."""
    meaning = meaning_of(instruction)
    return meaning if meaning is not None and meaning.fits else widened_meaning(instruction)
