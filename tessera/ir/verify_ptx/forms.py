"""What must hold of one instruction against the forms of its opcode: modifiers, types, targets.

In: an instruction with the words for its operands (`verify_ptx.operands`). Out: at most one
diagnostic. Everything that is looked up here comes from the forms in `opcodes.families`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tessera.diagnostics import Diagnostic, Span, error, warning
from tessera.ir.opcodes.form_table import FoundForm, Unfit, find_form
from tessera.ir.opcodes.operand_types import (
    address_fault,
    memory_value_fits,
    moved_fits,
    surface_fault,
    value_fits,
    vector_fits,
    wide_type,
)
from tessera.ir.opcodes.targets import Version
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.locate import opcode_span, operand_span
from tessera.ir.ptx.types import is_type

_IN_WORDS = {"#i": "an integer", "#f": "a float", "#d": "a float", ":": "a label"}
_TAKE_SPECIAL = frozenset({"mov", "cvt"})


@dataclass(frozen=True, slots=True)
class Ground:
    """What a module says about itself: its version and target, and whether it may know better."""

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


_GOOD: set[tuple[ptx.Opcode, tuple[str, ...], Ground]] = set()  # kept from module to module


def form_fault(
    module: ptx.Module, instruction: ptx.Instruction, words: tuple[str, ...], ground: Ground
) -> Diagnostic | None:
    """What is wrong with the modifiers and the operands of an instruction."""
    opcode = instruction.opcode
    if (opcode, words, ground) in _GOOD:
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
    fault = _operand_fault(opcode, chosen, words)
    if fault is None:
        _GOOD.add((opcode, words, ground))
        return None
    index, reason = fault
    headline = f"operand {index + 1} of `{opcode}` does not fit: {reason}"
    return error("TSR1028", headline, operand_span(module, instruction, index))


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
    """Where a modifier stands in an opcode."""
    if opcode is None:
        return None
    word = modifier.removesuffix("]")
    start = opcode.source.text.find(f".{word}", opcode.start, opcode.end)
    return opcode if start < 0 else Span(opcode.source, start, start + len(word) + 1)


def _operand_fault(
    opcode: ptx.Opcode, chosen: FoundForm, words: tuple[str, ...]
) -> tuple[int, str] | None:
    """The first operand that does not fit, and why."""
    for index, (wanted, word) in enumerate(zip(chosen.form.operands, words, strict=False)):
        reason = _reason(opcode, chosen, wanted, word)
        if reason is not None:
            return index, reason
    return None


def _reason(opcode: ptx.Opcode, chosen: FoundForm, wanted: str, word: str) -> str | None:
    if wanted[0] == "!":
        wanted = wanted[1:]
        if word[0] in "#%=" or word in (":", "()"):
            return f"a register belongs here, not {_describe(word)}"
    modifiers = opcode.modifiers
    match wanted:
        case "_":
            return None
        case "A":
            return address_fault(word, modifiers, is_store=opcode.name == "st")
        case "C":
            return surface_fault(word, modifiers)
        case "i":
            return None if word[0] in "#?" else "a constant belongs here"
        case "label":
            return None if word in (":", "?") else "a label belongs here"
    count, star, element = wanted.partition("*")
    if star:
        element = _type(element, chosen.types) or element
        fits = vector_fits(word.partition("|")[0], int(count), element)
        return None if fits else f"a vector of {count} registers of `.{element}` belongs here"
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
    if is_type(wanted):
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
