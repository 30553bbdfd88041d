"""Rules for one instruction: opcode, modifiers, the shapes and types of operands, targets.

In: an instruction of a module, with the words for its operands (`names`). Out: at most one
diagnostic. `instruction_fault` depends only on the opcode and on the kinds of its operands, never
on names; `form_fault` compares modifiers and types with the forms of the opcode in
`opcodes.families`. Valid combinations are remembered across modules.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from itertools import zip_longest
from typing import NamedTuple

from tessera.diagnostics import Diagnostic, Span, error, warning
from tessera.ir.opcodes import (
    OPCODES,
    Meaning,
    OperandRole,
    arity,
    meaning_of,
    operand_words,
    takes_shapes,
)
from tessera.ir.opcodes.form_table import FoundForm, Unfit, find_form
from tessera.ir.opcodes.modifiers import KNOWN_MODIFIERS, is_known_modifier
from tessera.ir.opcodes.operand_types import (
    UNTOLD,
    USUAL,
    address_fault,
    any_vector_fits,
    bare_fits,
    is_value,
    memory_value_fits,
    moved_fits,
    named_type,
    offset_count,
    pair_fits,
    parts_fault,
    surface_fault,
    value_fits,
    vector_fits,
    vector_length,
    wide_type,
)
from tessera.ir.opcodes.rules import MeasuredRule, reads_values, unmet_rule
from tessera.ir.opcodes.targets import Version
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.locate import opcode_span, operand_span
from tessera.ir.ptx.types import is_type

_IN_WORDS = {"#i": "an integer", "#f": "a float", "#d": "a float", ":": "a label", "_": "`_`"}
_TAKE_SPECIAL = frozenset({"mov", "cvt"})
UNDOCUMENTED = frozenset({"cctl"})
"""Opcodes that ptxas accepts but the ISA does not describe, like those that start with `_`."""

LONGEST_COMPARED = 200
_PART = re.compile(r"\.[bh]\d+$")
_ADDRESS = re.compile(r"\[[^*]|[?=]")
_CONSTANTS = (ptx.Integer, ptx.Float, ptx.Unary, ptx.Binary, ptx.Conditional, ptx.Cast)
_GOOD: set[tuple[ptx.Opcode, tuple[type, ...]]] = set()  # kept from module to module
_RESULTS = (
    OperandRole.DESTINATION,
    OperandRole.DESTINATION_SOURCE,
    OperandRole.PREDICATE_DESTINATION,
)
_BRACKETS = {ptx.Address: "an address in brackets", ptx.Group: "a list in parentheses"}
_BRACKETED = (
    OperandRole.ADDRESS,
    OperandRole.MBARRIER,
    OperandRole.TENSOR_MAP,
    OperandRole.TEXTURE,
    OperandRole.SURFACE,
)


def close_matches(name: str, known: Iterable[str], cutoff: float) -> list[str]:
    """The most similar known name, if any; long names are not compared because of the cost."""
    if len(name) > LONGEST_COMPARED:
        return []
    return difflib.get_close_matches(name, known, 1, cutoff)


def instruction_fault(
    module: ptx.Module, instruction: ptx.Instruction, *, is_new: bool
) -> Diagnostic | None:
    """What is wrong with an instruction; `is_new` if its PTX version is newer than the tables."""
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
    if meaning is None and not unknown and _is_read_without(instruction):
        return None
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


def _is_read_without(instruction: ptx.Instruction) -> bool:
    """Whether an instruction has no meaning because `form_fault` refuses it, or ptxas takes it."""
    is_unfit = isinstance(find_form(instruction.opcode, True), Unfit)
    return is_unfit or takes_shapes(instruction)


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
        span = modifier_span(span, unknown[0])
    else:
        near = close_matches(opcode.name, OPCODES, 0.75)
        hint = f"did you mean `{near[0]}`?" if near and near[0] != opcode.name else None
    headline = f"opcode is not known: `{opcode}`"
    if is_new or opcode.name.startswith("_") or opcode.name in UNDOCUMENTED:
        note = "its address operands count as read and written"
        return warning("TSR1025", headline, span, label, notes=(note,), hint=hint)
    return error("TSR1025", headline, span, label, hint=hint)


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
        if not in_brackets and kind in _BRACKETS:
            return error("TSR1024", headline, span, f"{_BRACKETS[kind]} cannot stand here")
    return error("TSR1024", headline, opcode_span(module, instruction))


# --- forms ---------------------------------------------------------------------------------


class Ground(NamedTuple):
    """The version and target of a module, and whether the version is newer than the tables."""

    version: Version
    target: str
    is_new: bool

    @property
    def is_old(self) -> bool:
        """Whether rounding may be left to the opcode, as it was for sm_1x."""
        return self.version < (2, 0) or (
            self.target.startswith(("sm_1", "compute_1"))
            and (len(self.target.rpartition("_")[2]) == 2)
        )


_GOOD_FORMS: set[tuple[ptx.Opcode, tuple[str, ...], Ground]] = set()  # kept from module to module


def form_fault(
    module: ptx.Module, instruction: ptx.Instruction, words: tuple[str, ...], ground: Ground
) -> Diagnostic | None:
    """What is wrong with the modifiers and the operands of an instruction."""
    opcode = instruction.opcode
    if (opcode, words, ground) in _GOOD_FORMS:
        return None
    chosen = find_form(opcode, ground.is_old)
    if chosen is None:
        return None
    if isinstance(chosen, Unfit):
        return _unfit(module, instruction, chosen, ground)
    if ground.is_new:
        return None
    missing = chosen.needs.missing(ground.version, ground.target)
    if missing is not None:
        headline = f"`{opcode}` needs {missing} or later"
        return error("TSR1029", headline, opcode_span(module, instruction))
    rule = unmet_rule(opcode, words, instruction.operands, ground.version, ground.target)
    if rule is not None and rule.places:
        lacks = rule.lacks(ground.version, ground.target.replace("compute_", "sm_", 1))
        return error("TSR1029", f"`{opcode}` needs {lacks}", opcode_span(module, instruction))
    fault = _operand_fault(opcode, chosen, words, operand_words(instruction) or ())
    if fault is None and rule is not None:
        return _refused(module, instruction, rule)
    if fault is None:
        if not reads_values(opcode):
            _GOOD_FORMS.add((opcode, words, ground))
        return None
    index, reason = fault
    headline = f"operand {index + 1} of `{opcode}` does not fit: {reason}"
    return error("TSR1028", headline, operand_span(module, instruction, index))


def _refused(module: ptx.Module, instruction: ptx.Instruction, rule: MeasuredRule) -> Diagnostic:
    """An instruction that ptxas takes nowhere, by a measured rule."""
    opcode, span = instruction.opcode, opcode_span(module, instruction)
    if rule.values is not None:
        span = operand_span(module, instruction, rule.values.operand)
        reason = f"the constant has to be {rule.values}"
        number = rule.values.operand + 1
        return error("TSR1028", f"operand {number} of `{opcode}` does not fit: {reason}", span)
    if rule.operands or any(word[0] == "#" for word in rule.words):
        index = min(map(int, rule.operands), default=None)
        span = span if index is None else operand_span(module, instruction, index)
        return error("TSR1028", f"operands of `{opcode}` do not fit together", span)
    has = [f"`.{word}`" for word in rule.words if word[0] != "-"]
    lacks = [f"`.{word[1:]}`" for word in rule.words if word[0] == "-"]
    reason = " and ".join(has) or "it"
    reason += f" without {' and '.join(lacks)}" if lacks else ""
    return error("TSR1027", f"`{opcode}` is in no form that there is: {reason}", span)


def _unfit(
    module: ptx.Module, instruction: ptx.Instruction, unfit: Unfit, ground: Ground
) -> Diagnostic:
    opcode, span = instruction.opcode, opcode_span(module, instruction)
    headline = f"`{opcode}` is in no form that there is: {unfit.reason}"
    if unfit.modifier is not None:
        headline = f"`.{unfit.modifier}` does not belong to `{opcode}`: {unfit.reason}"
        span = modifier_span(span, unfit.modifier)
    if ground.is_new:
        note = "its address operands count as read and written"
        return warning("TSR1027", headline, span, notes=(note,))
    return error("TSR1027", headline, span)


def modifier_span(opcode: Span | None, modifier: str) -> Span | None:
    """The position of a modifier in an opcode."""
    if opcode is None:
        return None
    word = modifier.removesuffix("]")
    start = opcode.source.text.find(f".{word}", opcode.start, opcode.end)
    return opcode if start < 0 else Span(opcode.source, start, start + len(word) + 1)


def _operand_fault(
    opcode: ptx.Opcode, chosen: FoundForm, words: tuple[str, ...], called: tuple[str, ...]
) -> tuple[int, str] | None:
    """The first operand that does not fit, and why."""
    for index, (word, name) in enumerate(zip_longest(words[: len(called)], called)):
        wanted = chosen.form.operands[index] if index < len(chosen.form.operands) else "."
        if wanted == "." or name == "bare":
            wanted = USUAL.get(name) or USUAL.get(name.rstrip("0123456789"), "_")
        reasons = [_reason(opcode, chosen, choice, word) for choice in wanted.split("/")]
        if all(reasons):
            return index, str(reasons[0])
    return None


def _reason(opcode: ptx.Opcode, chosen: FoundForm, wanted: str, word: str) -> str | None:
    if wanted[-1] == "&":
        first = pair_fits(word, is_needed=wanted[-2] == "&")
        if first is None:
            return "a pair with a predicate belongs here"
        return _reason(opcode, chosen, wanted.rstrip("&"), first)
    if wanted[0] == "!":
        wanted = wanted[1:]
        if word[0] in "#%=" or word in (":", "()"):
            return f"a register belongs here, not {_describe(word)}"
    modifiers = opcode.modifiers
    if wanted[0] == "_":
        return None if word == "_" or wanted == "_" else _reason(opcode, chosen, wanted[1:], word)
    match wanted:
        case ".":
            return None if word == "?" or is_value(word) else f"{_describe(word)} cannot stand here"
        case "-":
            return "no operand belongs here"
        case "[]":
            if word.startswith("[=const") and "const" not in modifiers:
                return "the variable is in `.const`"
            return None if _ADDRESS.match(word) else "an address of one part belongs here"
        case "[parts]":
            return parts_fault(word, modifiers)
        case "bare":
            fits = bare_fits(word, opcode.name, modifiers)
            return None if fits else "an address in brackets belongs here"
        case "offsets":
            wanted = f"{offset_count(modifiers)}*b16"
        case "ctas" | "phase":
            wanted = named_type(wanted, modifiers)
        case "A":
            return address_fault(word, modifiers, is_store=opcode.name == "st")
        case "C":
            return surface_fault(word, modifiers)
        case "i":
            return None if word[0] in "#?" else "a constant belongs here"
        case "sink":
            return None if word in "_?" else "only `_` can stand here"
        case "function":
            return None if word[0] in "(=:?" else "a call through a register needs a prototype"
        case "targets":
            return None if word[0] in ":=?" else "a prototype or a list of functions belongs here"
        case "shared":
            return None if word.startswith("=shared") else "a shared variable belongs here"
        case "label":
            return None if word in (":", "?") else "a label belongs here"
    count, star, element = wanted.partition("*")
    if star:
        element = _type(element, chosen.types) or element
        if count == "+":
            return None if any_vector_fits(word, element) else "this vector does not belong here"
        number = vector_length(count, modifiers)
        if number is None and word[0] == "{":
            number = 1
        if number is not None:
            fits = vector_fits(word, number, element)
            return None if fits else f"a vector of {number} registers of `.{element}` belongs here"
        wanted = element
    if wanted[0] == "%":
        wanted, word = wanted[1:], _PART.sub("", word.removeprefix("-"))
    if wanted[0] == "[":
        if not _ADDRESS.match(word):
            return "an address of one part belongs here"
        wanted, word = wanted[1:-1], word.strip("[]")
    wider = wanted.endswith("~")
    type_name = _type(wanted.removesuffix("~"), chosen.types)
    if type_name is None:
        return None
    if wanted == "V":
        fits = memory_value_fits(word, type_name, modifiers)
    elif wanted == "M":
        fits = moved_fits(word, type_name, modifiers)
    else:
        special = opcode.name in _TAKE_SPECIAL
        fits = value_fits(word, type_name, wider=wider, takes_special=special)
    return None if fits else f"{_describe(word)} where `.{type_name}` is wanted"


def _type(wanted: str, types: tuple[str, ...]) -> str | None:
    if is_type(wanted) or wanted == UNTOLD:
        return wanted
    if not types:
        return None
    match wanted:
        case "D":
            return types[0]
        case "S":
            return types[1] if len(types) > 1 else None
        case "W":
            return wide_type(types[-1])
        case _:
            return types[-1]


def _describe(word: str) -> str:
    if word in _IN_WORDS:
        return _IN_WORDS[word]
    match word[0]:
        case "=":
            return "a variable"
        case "%":
            return f"the special register `{word.partition(':')[2]}`"
        case "{":
            return "a vector"
        case "[":
            return "an address"
        case "(":
            return "a function"
    return f"`.{word}`"
