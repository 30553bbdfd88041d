"""Find the parts of a statement in the text again, so that a diagnostic can point at them.

Records hold only the start of their statement. A diagnostic that points at one operand, or at one
name in it, scans the statement again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tessera.diagnostics import Span
from tessera.ir.ptx import syntax as ptx

_TOKEN = re.compile(
    r'//[^\n]*|/\*(?:[^*]|\*(?!/))*+\*/|"[^"\n]*"|[%$_A-Za-z][\w$]*|\.[\w:]+|\d[\w.]*|\S', re.ASCII
)
_OPENING, _CLOSING = "([{", ")]}"


@dataclass(frozen=True, slots=True)
class StatementParts:
    """Character ranges of an instruction's guard, opcode (with modifiers) and operands."""

    guard: tuple[int, int] | None
    opcode: tuple[int, int]
    operands: tuple[tuple[int, int], ...]


def locate_parts(text: str, at: int) -> StatementParts:
    """The parts of the instruction that starts at an offset."""
    guard: tuple[int, int] | None = None
    opcode: tuple[int, int] | None = None
    operands: list[tuple[int, int]] = []
    current: tuple[int, int] | None = None
    in_opcode, depth = False, 0
    for match in _TOKEN.finditer(text, at):
        token, (start, end) = match[0], match.span()
        if token.startswith(("//", "/*")):
            continue
        if token == ";" or (token == "}" and depth == 0):
            break
        if opcode is None and (token in "@!" or (guard and text[guard[1] - 1] in "@!")):
            guard = (guard[0] if guard else start, end)
        elif opcode is None:
            opcode, in_opcode = (start, end), True
        elif in_opcode and token[0] == "." and not operands and current is None:
            opcode = (opcode[0], end)
        elif token == "," and depth == 0:
            operands.append(current or (start, end))
            current = None
        else:
            in_opcode = False
            depth += (token in _OPENING) - (token in _CLOSING)
            current = (current[0] if current else start, end)
    if current is not None:
        operands.append(current)
    return StatementParts(guard, opcode or (at, at + 1), tuple(operands))


def opcode_span(module: ptx.Module, instruction: ptx.Instruction) -> Span | None:
    """The position of an instruction's opcode."""
    if module.source is None or instruction.at < 0:
        return None
    return Span(module.source, *locate_parts(module.source.text, instruction.at).opcode)


def operand_span(module: ptx.Module, instruction: ptx.Instruction, index: int) -> Span | None:
    """The position of an operand of an instruction."""
    if module.source is None or instruction.at < 0:
        return None
    parts = locate_parts(module.source.text, instruction.at)
    place = parts.operands[index] if index < len(parts.operands) else parts.opcode
    return Span(module.source, *place)


def name_span(module: ptx.Module, at: int, name: str) -> Span | None:
    """The first position of a name in the statement that starts at an offset."""
    if module.source is None or at < 0:
        return None
    for match in _TOKEN.finditer(module.source.text, at):
        if match[0] == name:
            return Span(module.source, *match.span())
        if match[0] == ";":
            break
    return Span(module.source, at, at + 1)
