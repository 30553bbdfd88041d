"""What must hold of one instruction by itself: opcode, modifiers, the shapes of operands.

In: an instruction of a module. Out: at most one diagnostic. It depends only on the opcode and on
what kind of operand stands where, never on names, so that the caller asks once per combination.
Modifiers and types are held against the forms of the opcode in `verify_ptx.forms`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from tessera.diagnostics import Diagnostic, Span, error, warning
from tessera.ir.opcodes import OPCODES, Meaning, OperandRole, arity, meaning_of, takes_shapes
from tessera.ir.opcodes.form_table import Unfit, find_form
from tessera.ir.opcodes.modifiers import KNOWN_MODIFIERS, is_known_modifier
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.locate import opcode_span, operand_span

UNDOCUMENTED = frozenset({"cctl"})
"""Opcodes that ptxas takes and the ISA does not describe; so are those that start with `_`."""

LONGEST_COMPARED = 200
_CONSTANTS = (ptx.Integer, ptx.Float, ptx.Unary, ptx.Binary, ptx.Conditional, ptx.Cast)
_GOOD: set[tuple[ptx.Opcode, tuple[type, ...]]] = set()  # kept from module to module
_RESULTS = (
    OperandRole.DESTINATION,
    OperandRole.DESTINATION_SOURCE,
    OperandRole.PREDICATE_DESTINATION,
)
_IN_WORDS = {
    ptx.Address: "an address in brackets",
    ptx.Group: "a list in parentheses",
}
_BRACKETED = (
    OperandRole.ADDRESS,
    OperandRole.MBARRIER,
    OperandRole.TENSOR_MAP,
    OperandRole.TEXTURE,
    OperandRole.SURFACE,
)


def close_matches(name: str, known: Iterable[str], cutoff: float) -> list[str]:
    """The known name most like this one, if any is; comparing long ones would take for ever."""
    if len(name) > LONGEST_COMPARED:
        return []
    return difflib.get_close_matches(name, known, 1, cutoff)


def instruction_fault(
    module: ptx.Module, instruction: ptx.Instruction, *, is_new: bool
) -> Diagnostic | None:
    """What is wrong with an instruction; `is_new` if its PTX version may know better than we."""
    key = (instruction.opcode, tuple(map(type, instruction.operands)))
    if key in _GOOD:
        return None
    fault = _look(module, instruction, is_new=is_new)
    if fault is None and ptx.Group not in key[1]:
        _GOOD.add(key)
    return fault


def _look(module: ptx.Module, instruction: ptx.Instruction, *, is_new: bool) -> Diagnostic | None:
    meaning = meaning_of(instruction)
    unknown = [m for m in instruction.opcode.modifiers if not is_known_modifier(m)]
    if meaning is None and not unknown and isinstance(find_form(instruction.opcode, True), Unfit):
        return None  # `verify_ptx.forms` says what is wrong with it
    if meaning is None or unknown:
        return _unknown_opcode(module, instruction, unknown, is_new=is_new)
    if not meaning.fits:
        return _wrong_count(module, instruction)
    if not takes_shapes(instruction):
        return _wrong_shape(module, instruction, meaning)
    for index, (role, operand) in enumerate(zip(meaning.roles, instruction.operands, strict=False)):
        if role in _RESULTS and isinstance(operand, _CONSTANTS):
            headline = f"the result of `{instruction.opcode}` cannot be a constant"
            span = operand_span(module, instruction, index)
            return error("TSR1024", headline, span, "a register belongs here")
    return None


def _unknown_opcode(
    module: ptx.Module, instruction: ptx.Instruction, unknown: list[str], *, is_new: bool
) -> Diagnostic:
    """An opcode or modifier that no version has; a later one may, and ptxas has a few more."""
    opcode = instruction.opcode
    hint, label, span = None, "", opcode_span(module, instruction)
    if unknown and any(opcode.name == known.partition(".")[0] for known in OPCODES):
        near = close_matches(unknown[0], KNOWN_MODIFIERS, 0.6)
        hint = f"did you mean `.{near[0]}`?" if near else None
        label = f"`.{unknown[0]}` is not a modifier of PTX"
        span = _modifier_span(span, unknown[0])
    else:
        near = close_matches(opcode.name, OPCODES, 0.75)
        hint = f"did you mean `{near[0]}`?" if near and near[0] != opcode.name else None
    headline = f"opcode is not known: `{opcode}`"
    if is_new or opcode.name.startswith("_") or opcode.name in UNDOCUMENTED:
        note = "its address operands count as read and written"
        return warning("TSR1025", headline, span, label, notes=(note,), hint=hint)
    return error("TSR1025", headline, span, label, hint=hint)


def _modifier_span(opcode: Span | None, modifier: str) -> Span | None:
    if opcode is None:
        return None
    start = opcode.source.text.find(f".{modifier}", opcode.start, opcode.end)
    return opcode if start < 0 else Span(opcode.source, start, start + len(modifier) + 1)


def _wrong_count(module: ptx.Module, instruction: ptx.Instruction) -> Diagnostic:
    opcode, count = instruction.opcode, len(instruction.operands)
    low, high = arity(opcode) or (0, 0)
    wanted = f"{low} operand{'s' * (low != 1)}" if low == high else f"{low} to {high} operands"
    headline = f"`{opcode}` takes {wanted}, and has {count}"
    if low <= count <= high:
        headline = f"operands of `{opcode}` are not in one of its forms"
    return error("TSR1024", headline, opcode_span(module, instruction))


def _wrong_shape(module: ptx.Module, instruction: ptx.Instruction, meaning: Meaning) -> Diagnostic:
    headline = f"operands of `{instruction.opcode}` are not in one of its forms"
    for index, operand in enumerate(instruction.operands):
        in_brackets = meaning.roles[index] in _BRACKETED
        span, kind = operand_span(module, instruction, index), type(operand)
        if in_brackets and kind not in (ptx.Address, ptx.Subscript):
            return error("TSR1024", headline, span, "an address in brackets belongs here")
        if not in_brackets and kind in _IN_WORDS:
            return error("TSR1024", headline, span, f"{_IN_WORDS[kind]} cannot stand here")
    return error("TSR1024", headline, opcode_span(module, instruction))
