"""Every memory row of the opcode table, held against a second account written from the ISA.

Executor and analysis share the table, so each would believe a wrong row. Here every row with an
effect on memory has at least one instruction in `memory_forms.txt` whose effects were written by
hand; the last test corrupts every row in turn (what it does, where, how much, to which operand)
and checks that the comparison notices.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tessera.diagnostics import Source
from tessera.frontend.ptx.read_ptx import parse_source
from tessera.ir.opcodes import lookup
from tessera.ir.opcodes.notation import EffectSpec, OpcodeForm, OpcodeOperand
from tessera.ir.opcodes.records import (
    Bytes,
    Extent,
    Matrix,
    MemoryAction,
    MemoryEffect,
    Rows,
    SizeOperand,
    TensorBox,
    UnknownExtent,
)
from tessera.ir.ptx import syntax as ptx
from tests.helpers.each import each

FORMS = Path(__file__).parents[2] / "data" / "opcodes" / "memory_forms.txt"
_CACHES = (
    lookup.meaning,
    lookup.arity,
    lookup._meaning_by_shape,
    lookup._words_by_shape,
    lookup._fitting_forms,
)


@dataclass(frozen=True, slots=True)
class Example:
    """An instruction and the effects that the ISA gives it, in the words of the data file."""

    instruction: ptx.Instruction
    effects: tuple[str, ...]


def read_examples() -> list[Example]:
    lines = [line.split(" => ") for line in FORMS.read_text().splitlines() if " => " in line]
    lines = [line for line in lines if not line[0].startswith("#")]
    body = "\n".join(f"{text};" for text, _ in lines)
    text = f".version 9.4\n.target sm_107a\n.entry k() {{\n{body}\n}}\n"
    module = parse_source(Source("<forms>", text))
    function = next(iter(module.kernels()))
    assert function.body is not None
    instructions = [s for s in function.body if isinstance(s, ptx.Instruction)]
    found = zip(instructions, lines, strict=True)
    return [Example(i, tuple(sorted(_split(words)))) for i, (_, words) in found]


def _split(words: str) -> list[str]:
    """One text per effect; commas also stand inside the words for a matrix."""
    return re.split(r", (?=\d+ [a-z_]+ [a-z])", words.strip())


def spelled(effect: MemoryEffect) -> str:
    """An effect in the words of the data file."""
    where = f"{effect.operand} {effect.access.value} {effect.space}"
    return f"{where} {_extent(effect.extent)}"


def _extent(extent: Extent) -> str:
    match extent:
        case Bytes(count):
            return str(count)
        case SizeOperand(index):
            return f"size {index}"
        case Rows(count, lanes):
            return f"rows {lanes} {count}"
        case Matrix(rows, row_bits, element_bits, stride):
            text = f"matrix {rows} x {row_bits} bits, {element_bits} bits"
            return text if stride is None else f"{text}, stride {stride}"
        case TensorBox():
            return "box"
        case UnknownExtent():
            return "any"


def effects_of(example: Example) -> tuple[str, ...] | None:
    """What the table says; None where it does not have the form."""
    meaning = lookup.meaning_of(example.instruction)
    if meaning is None or not meaning.fits:
        return None
    return tuple(sorted(map(spelled, meaning.effects)))


def form_of(example: Example) -> OpcodeForm:
    """The row that an instruction is looked up in."""
    opcode = example.instruction.opcode
    shapes = tuple(map(lookup._shape, example.instruction.operands))
    forms = lookup._fitting_forms(opcode)
    form, _ = next(lookup._layouts(forms, opcode.modifiers, len(shapes), shapes))
    return form


EXAMPLES = read_examples()
TABLE = dict(lookup._FORMS)
ROWS = [form for forms in TABLE.values() for form in forms if any(s.effect for s in form.operands)]


@each(EXAMPLES)
def test_the_table_agrees_with_the_isa(example: Example) -> None:
    assert effects_of(example) == example.effects


def test_every_memory_row_has_an_example() -> None:
    covered = {id(form_of(example)) for example in EXAMPLES}
    missing = [".".join(form.name) for form in ROWS if id(form) not in covered]
    assert not missing


# --- corruption --------------------------------------------------------------------------------

_OTHER_ACCESS = {
    MemoryAction.READ: MemoryAction.WRITE,
    MemoryAction.WRITE: MemoryAction.READ,
    MemoryAction.ATOMIC: MemoryAction.READ,
    MemoryAction.REDUCE: MemoryAction.WRITE,
    MemoryAction.UPDATE: MemoryAction.WRITE,
    MemoryAction.PREFETCH: MemoryAction.READ,
    MemoryAction.ASYNC_READ: MemoryAction.ASYNC_WRITE,
    MemoryAction.ASYNC_WRITE: MemoryAction.ASYNC_READ,
    MemoryAction.ASYNC_REDUCE: MemoryAction.ASYNC_WRITE,
    MemoryAction.ASYNC_UPDATE: MemoryAction.ASYNC_WRITE,
    MemoryAction.MBARRIER: MemoryAction.READ,
    MemoryAction.MBARRIER_TEST: MemoryAction.MBARRIER,
}


def _other_effects(effect: EffectSpec) -> Iterator[tuple[str, EffectSpec | None]]:
    yield "access", replace(effect, access=_OTHER_ACCESS[effect.access])
    yield "space", replace(effect, space="local" if effect.space != "local" else "global")
    extents = {"type": ("1", "4", "?"), "?": ("1",), "box": ("?",)}
    if effect.extent.isdigit():
        others: tuple[str, ...] = (str(2 * int(effect.extent)), str(int(effect.extent) // 2))
    else:
        others = extents.get(effect.extent, ("16", "?"))
    for other in others:
        yield f"extent {other}", replace(effect, extent=other)
    yield "nothing", None


def corruptions(form: OpcodeForm) -> Iterator[tuple[str, OpcodeForm]]:
    """Every row that differs from this one in one word about memory."""
    for place, spec in enumerate(form.operands):
        if spec.effect is None:
            continue
        for what, effect in _other_effects(spec.effect):
            yield f"{spec.word} {what}", _with(form, place, replace(spec, effect=effect))
        for other, neighbour in enumerate(form.operands):
            if other != place and neighbour.effect is None and not neighbour.when:
                moved = _with(form, place, replace(spec, effect=None))
                moved = _with(moved, other, replace(neighbour, effect=spec.effect))
                yield f"{spec.word} operand {other}", moved


def _with(form: OpcodeForm, place: int, spec: OpcodeOperand) -> OpcodeForm:
    operands = (*form.operands[:place], spec, *form.operands[place + 1 :])
    return replace(form, operands=operands)


def _install(monkeypatch: pytest.MonkeyPatch, old: OpcodeForm, new: OpcodeForm) -> None:
    forms = TABLE[old.name]
    changed = tuple(new if form is old else form for form in forms)
    monkeypatch.setitem(lookup._FORMS, old.name, changed)
    _forget()


def _forget() -> None:
    for cached in _CACHES:
        cached.cache_clear()


@pytest.fixture
def clean_table() -> Iterator[None]:
    yield
    _forget()


@pytest.mark.usefixtures("clean_table")
def test_a_corrupted_row_is_noticed() -> None:
    examples: dict[int, list[Example]] = {}
    for example in EXAMPLES:
        examples.setdefault(id(form_of(example)), []).append(example)
    unnoticed: list[str] = []
    count = 0
    for form in ROWS:
        for what, changed in corruptions(form):
            count += 1
            with pytest.MonkeyPatch.context() as monkeypatch:
                _install(monkeypatch, form, changed)
                if all(effects_of(e) == e.effects for e in examples[id(form)]):
                    unnoticed.append(f"{'.'.join(form.name)}: {what}")
            _forget()
    assert count > 500
    assert not unnoticed
