"""The meaning of an opcode and its operands: the only reader of the opcode tables.

The lookup takes the table name that shares the most parts with the opcode, then the forms whose
modifiers fit, then the first of these whose operands fit. A wrong number of operands is not the
same as an opcode that the table lacks: see `meaning`. Results are memoised, because a module has
few distinct opcodes and many instructions.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache

from tessera.ir.opcodes import families
from tessera.ir.opcodes.extents import extent_of
from tessera.ir.opcodes.form_table import Unfit, find_form
from tessera.ir.opcodes.modifiers import is_known_modifier
from tessera.ir.opcodes.notation import OpcodeForm, OpcodeOperand, read_table
from tessera.ir.opcodes.records import (
    Flow,
    InstructionKind,
    Meaning,
    MemoryAction,
    MemoryEffect,
    OperandRole,
    ThreadScope,
    UnknownExtent,
)
from tessera.ir.opcodes.special_registers import SPECIAL_REGISTERS
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.types import is_float, is_type, state_space

_MEMORY_KINDS = {
    "global": InstructionKind.GLOBAL,
    "shared": InstructionKind.SHARED,
    "shared::cta": InstructionKind.SHARED,
    "shared::cluster": InstructionKind.SHARED,
    "local": InstructionKind.LOCAL,
    "param": InstructionKind.PARAM,
    "param::entry": InstructionKind.PARAM,
    "param::func": InstructionKind.PARAM,
    "const": InstructionKind.CONST,
    "generic": InstructionKind.GENERIC,
    "tmem": InstructionKind.TENSOR_MEMORY,
    "tex": InstructionKind.TEXTURE,
    "surf": InstructionKind.SURFACE,
}


def _load() -> dict[tuple[str, ...], tuple[OpcodeForm, ...]]:
    forms: dict[tuple[str, ...], list[OpcodeForm]] = defaultdict(list)
    for table in families.TABLES:
        for form in read_table(table):
            forms[form.name].append(form)
    return {name: tuple(group) for name, group in forms.items()}


_FORMS = _load()


def _index() -> dict[str, tuple[tuple[str, ...], ...]]:
    names: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for name in _FORMS:
        names[name[0]].append(name)
    return {head: tuple(sorted(group, key=len, reverse=True)) for head, group in names.items()}


_NAMES = _index()

OPCODES: frozenset[str] = frozenset(".".join(name) for name in _FORMS)
"""Every opcode of the table, with the modifiers that belong to its name: `cp.async.bulk`."""


@cache
def meaning(opcode: ptx.Opcode, operand_count: int) -> Meaning | None:
    """The meaning of an opcode with a number of operands; None if the table lacks the opcode.

    `fits` of the result is False when the opcode is known but takes another number of operands
    (`arity` says how many). With a modifier that no ISA up to 9.5 has, or that the opcode does not
    have, the result is None instead: the effect of the modifier is unknown. Where operand counts
    alone do not distinguish two forms (`call`, `tcgen05.mma`), the result is the first of them: use
    `meaning_of` for an instruction.
    """
    return _find(opcode, operand_count, None)


def meaning_of(instruction: ptx.Instruction) -> Meaning | None:
    """Like `meaning`, but uses the shapes of the operands to distinguish forms."""
    shapes = tuple(map(_shape, instruction.operands))
    return _meaning_by_shape(instruction.opcode, shapes)


def takes_shapes(instruction: ptx.Instruction) -> bool:
    """Whether some form takes addresses, vectors and lists where the instruction has them."""
    return operand_words(instruction) is not None


def operand_words(instruction: ptx.Instruction) -> tuple[str, ...] | None:
    """What the table calls the operands, even where the instruction has no meaning."""
    return _words_by_shape(instruction.opcode, tuple(map(_shape, instruction.operands)))


@cache
def arity(opcode: ptx.Opcode) -> tuple[int, int] | None:
    """The least and the greatest number of operands; None if the table lacks the opcode."""
    forms = _fitting_forms(opcode)
    if not forms:
        return None
    counts = [count for form in forms for count in _counts(form, opcode.modifiers)]
    return min(counts), max(counts)


def widened_meaning(instruction: ptx.Instruction) -> Meaning:
    """The conservative meaning of an instruction that the table lacks or that does not fit.

    Every register may be read and written. The bytes behind every address, and behind every
    register as if it held an address, may be read and written. Threads may have to synchronise.
    Control is assumed to continue at the next instruction unless the table says otherwise: a branch
    in an unknown opcode cannot be followed.
    """
    known = _fitting_forms(instruction.opcode)
    effects = tuple(
        MemoryEffect(index, MemoryAction.MAY_READ_WRITE, "generic", UnknownExtent())
        for index, operand in enumerate(instruction.operands)
        if _shape(operand) in _ADDRESSES or _may_hold_address(operand)
    )
    return Meaning(
        opcode=".".join(known[0].name) if known else instruction.opcode.name,
        roles=tuple(
            OperandRole.ADDRESS if _shape(operand) in _ADDRESSES else OperandRole.UNKNOWN
            for operand in instruction.operands
        ),
        effects=effects,
        kind=_kind(known[0], instruction.opcode.modifiers, effects)
        if known
        else InstructionKind.UNKNOWN,
        flow=known[0].flow if known else Flow.NEXT,
        scope=known[0].scope if known else ThreadScope.GRID,
        side_effects=True,
        reads_state=True,
        fits=False,
    )


def _may_hold_address(operand: ptx.Operand) -> bool:
    match operand:
        case ptx.Name(name):
            return name not in SPECIAL_REGISTERS
        case ptx.Vector(elements) | ptx.Group(elements):
            return any(map(_may_hold_address, elements))
        case ptx.Pair(first, _):
            return _may_hold_address(first)
        case _:
            return False


@cache
def _meaning_by_shape(opcode: ptx.Opcode, shapes: tuple[str, ...]) -> Meaning | None:
    return _find(opcode, len(shapes), shapes)


@cache
def _words_by_shape(opcode: ptx.Opcode, shapes: tuple[str, ...]) -> tuple[str, ...] | None:
    for takes in (_takes, _takes_loosely):
        layouts = _layouts(_fitting_forms(opcode), opcode.modifiers, len(shapes), shapes, takes)
        for _, layout in layouts:
            return tuple(map(_called, layout, shapes))
    return None


def _find(opcode: ptx.Opcode, count: int, shapes: tuple[str, ...] | None) -> Meaning | None:
    forms = _fitting_forms(opcode)
    if not forms or not all(map(is_known_modifier, opcode.modifiers)):
        return None
    if isinstance(find_form(opcode, True), Unfit):
        return None
    by_shape = [] if shapes is None else list(_layouts(forms, opcode.modifiers, count, shapes))
    if shapes is not None and not by_shape and _words_by_shape(opcode, shapes) is not None:
        return None
    layouts = by_shape or list(_layouts(forms, opcode.modifiers, count, None))
    if layouts:
        return _describe(*layouts[0], opcode.modifiers)
    return Meaning(
        opcode=".".join(forms[0].name),
        roles=(OperandRole.UNKNOWN,) * count,
        side_effects=True,
        fits=False,
    )


_SHAPES: dict[type, str] = {
    ptx.Address: "address",
    ptx.Subscript: "subscript",
    ptx.Vector: "vector",
    ptx.Group: "group",
}


_ADDRESSES = frozenset({"address", "subscript"})


def _shape(operand: ptx.Operand) -> str:
    if isinstance(operand, ptx.Group) and len(operand.elements) == 1:
        return "group of one"
    return _SHAPES.get(type(operand), "")


@cache
def _fitting_forms(opcode: ptx.Opcode) -> tuple[OpcodeForm, ...]:
    for name in _NAMES.get(opcode.name, ()):
        if all(part in opcode.modifiers for part in name[1:]):
            return tuple(form for form in _FORMS[name] if _accepts(form, opcode.modifiers))
    return ()


def _accepts(form: OpcodeForm, modifiers: tuple[str, ...]) -> bool:
    if form.forbidden.intersection(modifiers):
        return False
    rest = iter(modifiers)
    return all(any(modifier in wanted for modifier in rest) for wanted in form.required)


def _counts(form: OpcodeForm, modifiers: tuple[str, ...]) -> range:
    specs = _present(form, modifiers)
    optional = sum(spec.optional for spec in specs)
    return range(len(specs) - optional, len(specs) + 1)


def _present(form: OpcodeForm, modifiers: tuple[str, ...]) -> list[OpcodeOperand]:
    return [s for s in form.operands if not s.when or s.when.intersection(modifiers)]


def _layouts(
    forms: tuple[OpcodeForm, ...],
    modifiers: tuple[str, ...],
    count: int,
    shapes: tuple[str, ...] | None,
    takes: Callable[[OpcodeOperand, str], bool] | None = None,
) -> Iterator[tuple[OpcodeForm, tuple[OpcodeOperand, ...]]]:
    """The ways to assign `count` operands to a form; leftmost optional operands come first."""
    for form in forms:
        specs = _present(form, modifiers)
        optional = [index for index, spec in enumerate(specs) if spec.optional]
        surplus = count - (len(specs) - len(optional))
        if not 0 <= surplus <= len(optional):
            continue
        for chosen in itertools.combinations(optional, surplus):
            layout = tuple(
                spec for index, spec in enumerate(specs) if not spec.optional or index in chosen
            )
            if shapes is None or all(map(takes or _takes, layout, shapes)):
                yield form, layout


def _takes(spec: OpcodeOperand, shape: str) -> bool:
    if shape == "subscript":  # `a[4]` is an address where one belongs, and else a value
        return spec.shape in {"", "address"}
    if shape == "group of one":  # `(1.5)` may be a constant in parentheses
        return spec.shape in {"", "group"}
    if spec.shape:
        return spec.shape == shape
    # A vector of registers is a value too, but never a descriptor: it is the other form of wgmma.
    is_value = spec.role is not OperandRole.DESCRIPTOR and not spec.is_loose
    return shape == "" or (shape == "vector" and is_value)


def _takes_loosely(spec: OpcodeOperand, shape: str) -> bool:
    return _takes(spec, shape) or (spec.is_loose and shape in ("", "vector"))


def _describe(
    form: OpcodeForm, layout: tuple[OpcodeOperand, ...], modifiers: tuple[str, ...]
) -> Meaning:
    effects = tuple(
        MemoryEffect(
            index,
            spec.effect.access,
            _space(spec.effect.space, modifiers),
            extent_of(spec.effect.extent, modifiers, [other.word for other in layout]),
        )
        for index, spec in enumerate(layout)
        if spec.effect is not None
    )
    return Meaning(
        opcode=".".join(form.name),
        roles=tuple(spec.role for spec in layout),
        words=tuple(_called(spec, spec.shape) for spec in layout),
        effects=effects,
        kind=_kind(form, modifiers, effects),
        flow=form.flow,
        scope=form.scope,
        side_effects=_has_side_effects(form, modifiers, effects),
        reads_state="state" in form.flags,
        aligned="aligned" in form.flags or "aligned" in modifiers,
    )


def _called(spec: OpcodeOperand, shape: str) -> str:
    if spec.shape == "address":
        is_bare = spec.is_loose and shape in ("", "vector")
        return "bare" if is_bare else f"[{spec.word.rstrip('1234')}]"
    return "" if spec.shape else spec.word


def _has_side_effects(
    form: OpcodeForm, modifiers: tuple[str, ...], effects: tuple[MemoryEffect, ...]
) -> bool:
    if "side" in form.flags or form.flow is not Flow.NEXT or form.scope is not ThreadScope.THREAD:
        return True
    return "volatile" in modifiers or any(e.access.writes for e in effects)


def _space(notation: str, modifiers: tuple[str, ...]) -> str:
    if notation not in {"1", "2"}:
        return notation
    spaces = [space for space in map(state_space, modifiers) if space is not None]
    return (spaces[int(notation) - 1 :] or ["generic"])[0]


def _kind(
    form: OpcodeForm, modifiers: tuple[str, ...], effects: tuple[MemoryEffect, ...]
) -> InstructionKind:
    if form.kind == "memory":
        return _MEMORY_KINDS[effects[0].space] if effects else InstructionKind.GENERIC
    if form.kind != "arithmetic":
        return InstructionKind[form.kind.upper()]
    types = [modifier for modifier in modifiers if is_type(modifier)]
    return InstructionKind.FLOAT if types and is_float(types[-1]) else InstructionKind.INTEGER
