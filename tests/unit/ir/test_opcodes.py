"""The opcode table, held against the ISA's list of opcodes and examples that ptxas accepts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.ir.opcodes import (
    OPCODES,
    Bytes,
    Flow,
    InstructionKind,
    Matrix,
    MemoryAction,
    OperandRole,
    Rows,
    SizeOperand,
    TensorBox,
    ThreadScope,
    UnknownExtent,
    arity,
    meaning,
    meaning_of,
    widened_meaning,
)
from tessera.ir.opcodes.families import TABLES
from tessera.ir.opcodes.modifiers import is_known_modifier
from tessera.ir.opcodes.notation import OpcodeForm, read_table
from tessera.ir.ptx import syntax as ptx
from tests.helpers.each import each

DATA = Path(__file__).parents[2] / "data" / "opcodes"
INSTRUCTION = re.compile(r"\s+(?:@!?%\w+ )?(?P<opcode>[a-z][\w.:]*)(?P<operands> [^;]*)?;")
SHAPES = {"[": ptx.Address((ptx.Name("a"),)), "{": ptx.Vector(()), "(": ptx.Group(())}
ADDRESS_ROLES = {
    OperandRole.ADDRESS,
    OperandRole.MBARRIER,
    OperandRole.TENSOR_MAP,
    OperandRole.TENSOR_MEMORY,
    OperandRole.TEXTURE,
    OperandRole.SURFACE,
    OperandRole.OPAQUE,
    OperandRole.REMOTE,
}


def opcode(text: str) -> ptx.Opcode:
    name, *modifiers = text.split(".")
    return ptx.Opcode(name, tuple(modifiers))


def instruction(text: str) -> ptx.Instruction:
    """An instruction whose operands have the right shapes; what they name is left out."""
    match = INSTRUCTION.fullmatch(f" {text.strip()}")
    assert match is not None, text
    operands = split_operands((match["operands"] or "").strip())
    return ptx.Instruction(None, opcode(match["opcode"]), tuple(map(stand_in, operands)))


def stand_in(operand: str) -> ptx.Operand:
    """An operand of the same shape."""
    if "|" in operand:
        return ptx.Pair(ptx.Name("d"), ptx.Name("p"))
    if re.match(r"\w+\[", operand):
        return ptx.Subscript("a", ptx.Integer("1", 1))
    return SHAPES.get(operand[0], ptx.Name("a"))


def split_operands(text: str) -> list[str]:
    pieces, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += character
    return [piece.strip() for piece in pieces if piece.strip()]


def examples() -> Iterator[tuple[str, str]]:
    for path in sorted(DATA.glob("*.ptx")):
        for line in path.read_text().splitlines():
            if INSTRUCTION.fullmatch(line):
                yield path.name, line.strip()


EXAMPLES = list(examples())
FORMS = [form for table in TABLES for form in read_table(table)]


def isa_opcodes() -> set[str]:
    lines = (DATA / "isa_opcodes.txt").read_text().splitlines()
    return {line.strip() for line in lines if line.strip() and not line.startswith("#")}


def test_table_has_exactly_the_opcodes_of_the_isa():
    assert isa_opcodes() - OPCODES == set(), "the ISA has these, the table lacks them"
    assert OPCODES - isa_opcodes() == set(), "the table has these, the list of the ISA lacks them"


def test_examples_are_many():
    assert len(EXAMPLES) > 500


@each(EXAMPLES)
def test_example_fits(file: str, line: str):
    example = instruction(line)
    found = meaning_of(example)
    assert found is not None, f"{file}: the table lacks it"
    assert found.fits, f"{file}: arity {arity(example.opcode)}"
    assert len(found.roles) == len(example.operands)
    for role, operand in zip(found.roles, example.operands, strict=True):
        is_address = isinstance(operand, ptx.Address | ptx.Subscript)
        assert is_address == (role in ADDRESS_ROLES), found.roles
        assert isinstance(operand, ptx.Group) == (
            role in {OperandRole.RESULTS, OperandRole.ARGUMENTS}
        )
    assert all(effect.operand < len(example.operands) for effect in found.effects)


def test_every_opcode_has_an_example():
    shown = {found.opcode for _, line in EXAMPLES if (found := meaning_of(instruction(line)))}
    assert OPCODES - shown == set()


def test_every_form_has_an_example():
    """A form that no example reaches is one that nothing checks."""
    from tessera.ir.opcodes import lookup

    reached = set()
    for _, line in EXAMPLES:
        example = instruction(line)
        shapes = tuple(map(lookup._shape, example.operands))
        forms = lookup._fitting_forms(example.opcode)
        layouts = lookup._layouts(forms, example.opcode.modifiers, len(shapes), shapes)
        reached.update(id(form) for form, _ in layouts)
    unreached = [form for forms in lookup._FORMS.values() for form in forms]
    unreached = [form for form in unreached if id(form) not in reached]
    assert [describe(form) for form in unreached] == []


def describe(form: OpcodeForm) -> str:
    return f"{'.'.join(form.name)} {form.required} | {[o.word for o in form.operands]}"


def test_modifiers_may_stand_in_any_order():
    # ptxas takes all of these; CUB writes the first.
    for usual, swapped, count in (
        ("vote.sync.ballot.b32", "vote.ballot.sync.b32", 3),
        ("shfl.sync.bfly.b32", "shfl.bfly.sync.b32", 5),
        ("redux.sync.add.s32", "redux.add.sync.s32", 3),
        (
            "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
            "mma.sync.sp.aligned.m16n8k16.row.col.f32.f16.f16.f32",
            6,
        ),
        ("barrier.cta.sync.aligned", "barrier.cta.aligned.sync", 1),
        ("ld.global.v4.f32", "ld.v4.global.f32", 2),
    ):
        assert meaning(opcode(usual), count) == meaning(opcode(swapped), count)


# --- unknown and misfit ---------------------------------------------------------------------


def test_unknown_opcode_has_no_meaning():
    assert meaning(opcode("frobnicate.f32"), 2) is None
    assert arity(opcode("frobnicate.f32")) is None
    assert meaning(opcode("mbarrier.invent.b64"), 1) is None
    assert meaning(opcode("cp.async.bulk.shared::moon.global"), 4) is None


@pytest.mark.parametrize(
    ("text", "count", "bounds"),
    [
        ("add.f32", 2, (3, 3)),
        ("add.f32", 4, (3, 3)),
        ("ld.global.f32", 1, (2, 2)),
        ("ld.global.L2::cache_hint.f32", 2, (3, 3)),
        ("setp.lt.and.s32", 3, (4, 4)),
        ("setp.lt.s32", 4, (3, 3)),
        ("atom.global.cas.b32", 3, (4, 4)),
        ("bar.sync", 0, (1, 2)),
        ("bar.red.popc.u32", 2, (3, 4)),
        ("ret", 1, (0, 0)),
        ("call", 5, (1, 4)),
        ("cp.async.ca.shared.global", 2, (3, 4)),
        ("cp.async.bulk.global.shared::cta.bulk_group", 4, (3, 3)),
    ],
)
def test_wrong_number_of_operands_is_not_unknown(text: str, count: int, bounds: tuple[int, int]):
    found = meaning(opcode(text), count)
    assert found is not None
    assert not found.fits
    assert found.roles == (OperandRole.UNKNOWN,) * count
    assert arity(opcode(text)) == bounds


def test_widened_meaning_may_read_and_write_behind_every_address():
    strange = instruction("frobnicate.global.f32 %r0, [%rd1], {%r1}, [%rd2];")
    found = widened_meaning(strange)
    assert [effect.operand for effect in found.effects] == [0, 1, 3]  # any register may be one
    assert all(effect.space == "generic" for effect in found.effects)
    assert all(effect.access is MemoryAction.MAY_READ_WRITE for effect in found.effects)
    assert all(effect.access.reads for effect in found.effects)
    assert all(effect.access.writes for effect in found.effects)
    assert all(effect.extent == UnknownExtent() for effect in found.effects)
    assert found.roles == (
        OperandRole.UNKNOWN,
        OperandRole.ADDRESS,
        OperandRole.UNKNOWN,
        OperandRole.ADDRESS,
    )
    assert found.side_effects
    assert found.kind is InstructionKind.UNKNOWN
    assert not found.fits


def test_operand_added_by_a_later_isa_is_unknown_rather_than_wrong():
    assert meaning(opcode("ld.global.f32"), 3) is not None
    assert meaning(opcode("ld.global.L3::psychic_hint.f32"), 3) is None
    assert meaning(opcode("ld.global.L3::psychic_hint.f32"), 2) is None
    assert meaning(opcode("ld.global.sat.f32"), 2) is None


def test_modifiers_of_all_examples_are_known():
    modifiers = {m for _, line in EXAMPLES for m in instruction(line).opcode.modifiers}
    assert {m for m in modifiers if not is_known_modifier(m)} == set()


def test_modifiers_that_the_table_mentions_are_known():
    for form in FORMS:
        mentioned = set(form.name[1:]).union(form.forbidden, *form.required)
        mentioned.update(*(operand.when for operand in form.operands))
        assert {m for m in mentioned if not is_known_modifier(m)} == set(), form.name


def test_widened_meaning_of_a_misfit_keeps_control_flow():
    assert widened_meaning(instruction("bra a, b;")).flow is Flow.BRANCH


MODIFIERS = sorted({m for _, line in EXAMPLES for m in instruction(line).opcode.modifiers})
OPERANDS = [ptx.Name("a"), ptx.Sink(), ptx.Vector(()), ptx.Address((ptx.Name("a"),)), ptx.Group(())]


@given(
    name=st.sampled_from(sorted(OPCODES)),
    modifiers=st.lists(st.sampled_from(MODIFIERS), max_size=6),
    operands=st.lists(st.sampled_from(OPERANDS), max_size=10),
)
def test_any_instruction_has_an_answer(
    name: str, modifiers: list[str], operands: list[ptx.Operand]
):
    head, *rest = name.split(".")
    strange = ptx.Instruction(None, ptx.Opcode(head, (*rest, *modifiers)), tuple(operands))
    found = meaning_of(strange) or widened_meaning(strange)
    bounds = arity(strange.opcode)
    assert len(found.roles) == len(operands)
    assert all(effect.operand < len(operands) for effect in found.effects)
    if bounds is not None and not bounds[0] <= len(operands) <= bounds[1]:
        assert not found.fits


# --- effects --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ld.global.v4.b32 {%r0}, [%rd1];", [(1, MemoryAction.READ, "global", Bytes(16))]),
        ("ld.b128 %q0, [%rd1];", [(1, MemoryAction.READ, "generic", Bytes(16))]),
        ("ld.global.v8.b32 {%r0}, [%rd1];", [(1, MemoryAction.READ, "global", Bytes(32))]),
        ("ld.param.b64 %rd0, [x];", [(1, MemoryAction.READ, "param", Bytes(8))]),
        ("ld.const[2].b16 %h0, [x];", [(1, MemoryAction.READ, "const", Bytes(2))]),
        (
            "st.shared::cluster.b8 [%r1], %r0;",
            [(0, MemoryAction.WRITE, "shared::cluster", Bytes(1))],
        ),
        ("st.global.b32 [%rd1], %r0;", [(0, MemoryAction.WRITE, "global", Bytes(4))]),
        ("atom.global.add.f32 %f0, [%rd1], %f1;", [(1, MemoryAction.ATOMIC, "global", Bytes(4))]),
        ("red.global.v2.f32.add [%rd1], {%f0};", [(0, MemoryAction.REDUCE, "global", Bytes(8))]),
        (
            "cp.async.cg.shared.global [%r1], [%rd1], 16, %r2;",
            [
                (0, MemoryAction.ASYNC_WRITE, "shared", SizeOperand(2)),
                (1, MemoryAction.ASYNC_READ, "global", SizeOperand(2)),
            ],
        ),
        (
            "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%rd1], [%r1], %r2, %rd3;",
            [
                (0, MemoryAction.ASYNC_WRITE, "global", SizeOperand(2)),
                (1, MemoryAction.ASYNC_READ, "shared::cta", SizeOperand(2)),
            ],
        ),
        (
            "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {%r2}], [%r1];",
            [
                (0, MemoryAction.ASYNC_UPDATE, "global", TensorBox()),
                (1, MemoryAction.ASYNC_READ, "shared::cta", TensorBox()),
            ],
        ),
        (
            "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0}, [%r4];",
            [(1, MemoryAction.READ, "shared", Rows(16, 16))],
        ),
        (
            "wmma.load.a.sync.aligned.col.m8n32k16.global.f16 {%r0}, [%rd1], %r8;",
            [(1, MemoryAction.READ, "global", Matrix(16, 8 * 16, 16, 2))],
        ),
        (
            "wmma.store.d.sync.aligned.row.m16n16k16.f32 [%rd1], {%f0};",
            [(0, MemoryAction.WRITE, "generic", Matrix(16, 16 * 32, 32, None))],
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0}, {%r0}, %rd1, 1, 1, 1, 0;",
            [(2, MemoryAction.ASYNC_READ, "shared", UnknownExtent())],
        ),
        ("discard.global.L2 [%rd1], 128;", [(0, MemoryAction.UPDATE, "global", SizeOperand(1))]),
        ("prefetch.global.L2 [%rd1];", [(0, MemoryAction.PREFETCH, "global", UnknownExtent())]),
        ("mbarrier.arrive.shared.b64 _, [bar];", [(1, MemoryAction.MBARRIER, "shared", Bytes(8))]),
        ("createpolicy.range.global.L2::evict_last.b64 %rd0, [%rd1], 1, 1;", []),
        ("add.f32 %f0, %f1, %f2;", []),
    ],
)
def test_effects(line: str, expected: list[tuple[object, ...]]):
    found = meaning_of(instruction_with_bank(line))
    assert found is not None
    effects = [(e.operand, e.access, e.space, e.extent) for e in found.effects]
    assert effects == expected


def instruction_with_bank(line: str) -> ptx.Instruction:
    """As `instruction`; a constant bank, which only very old PTX has, is put in by hand."""
    if "const[2]" not in line:
        return instruction(line)
    plain = instruction(line.replace("const[2]", "const"))
    return ptx.Instruction(None, ptx.Opcode("ld", ("const[2]", "b16")), plain.operands)


@pytest.mark.parametrize(
    ("line", "roles"),
    [
        ("call (r0), f, (a0);", "RESULTS FUNCTION ARGUMENTS"),
        ("call f, (a0);", "FUNCTION ARGUMENTS"),
        ("call (r0), f;", "RESULTS FUNCTION"),
        ("call f, p;", "FUNCTION PROTOTYPE"),
        ("call f, (a0), p;", "FUNCTION ARGUMENTS PROTOTYPE"),
        ("bar.red.and.pred %p0, 1, 64, %p1;", "PREDICATE_DESTINATION BARRIER THREADS PREDICATE"),
        ("bar.red.popc.u32 %r0, 1, %p1;", "DESTINATION BARRIER PREDICATE"),
        ("brx.idx %r0, t;", "SOURCE TARGETS"),
        ("st.global.b32 [%rd1], %r0;", "ADDRESS SOURCE"),
        (
            "tcgen05.mma.cta_group::1.kind::f16 [%r0], [%r1], %rd2, %r3, %p0;",
            "TENSOR_MEMORY TENSOR_MEMORY DESCRIPTOR DESCRIPTOR PREDICATE",
        ),
        (
            "tcgen05.mma.cta_group::1.kind::f16 [%r0], %rd1, %rd2, %r3, {%r4}, %p0;",
            "TENSOR_MEMORY DESCRIPTOR DESCRIPTOR DESCRIPTOR SOURCE PREDICATE",
        ),
        (
            "tcgen05.mma.cta_group::1.kind::f16 [%r0], %rd1, %rd2, %r3, %p0, 3;",
            "TENSOR_MEMORY DESCRIPTOR DESCRIPTOR DESCRIPTOR PREDICATE IMMEDIATE",
        ),
    ],
)
def test_roles(line: str, roles: str):
    found = meaning_of(instruction(line))
    assert found is not None
    assert " ".join(role.name for role in found.roles) == roles


@pytest.mark.parametrize(
    ("text", "count", "flow", "scope", "side_effects"),
    [
        ("bra.uni", 1, Flow.BRANCH, ThreadScope.THREAD, True),
        ("brx.idx", 2, Flow.INDEXED_BRANCH, ThreadScope.THREAD, True),
        ("ret", 0, Flow.RETURN, ThreadScope.THREAD, True),
        ("exit", 0, Flow.EXIT, ThreadScope.THREAD, True),
        ("trap", 0, Flow.TRAP, ThreadScope.THREAD, True),
        ("bar.sync", 1, Flow.NEXT, ThreadScope.CTA, True),
        ("barrier.cluster.wait", 0, Flow.NEXT, ThreadScope.CLUSTER, True),
        ("griddepcontrol.wait", 0, Flow.NEXT, ThreadScope.GRID, True),
        ("shfl.sync.idx.b32", 5, Flow.NEXT, ThreadScope.WARP, True),
        ("wgmma.fence.sync.aligned", 0, Flow.NEXT, ThreadScope.WARPGROUP, True),
        ("ld.global.f32", 2, Flow.NEXT, ThreadScope.THREAD, False),
        ("ld.volatile.global.f32", 2, Flow.NEXT, ThreadScope.THREAD, True),
        ("st.global.f32", 2, Flow.NEXT, ThreadScope.THREAD, True),
        ("add.u32", 3, Flow.NEXT, ThreadScope.THREAD, False),
        ("add.cc.u32", 3, Flow.NEXT, ThreadScope.THREAD, True),
    ],
)
def test_flow_and_scope(text: str, count: int, flow: Flow, scope: ThreadScope, side_effects: bool):
    found = meaning(opcode(text), count)
    assert found is not None
    assert (found.flow, found.scope, found.side_effects) == (flow, scope, side_effects)
    assert found.is_collective == (scope is not ThreadScope.THREAD)


@pytest.mark.parametrize(
    ("text", "count", "kind"),
    [
        ("add.s32", 3, InstructionKind.INTEGER),
        ("add.rn.f32", 3, InstructionKind.FLOAT),
        ("fma.rn.bf16x2", 4, InstructionKind.FLOAT),
        ("ex2.approx.f32", 2, InstructionKind.SPECIAL_FUNCTION),
        ("ld.shared::cta.b32", 2, InstructionKind.SHARED),
        ("ld.b32", 2, InstructionKind.GENERIC),
        ("ld.param::entry.b32", 2, InstructionKind.PARAM),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 4, InstructionKind.TENSOR),
        ("cp.async.wait_all", 0, InstructionKind.ASYNC_COPY),
    ],
)
def test_kind(text: str, count: int, kind: InstructionKind):
    found = meaning(opcode(text), count)
    assert found is not None
    assert found.kind is kind


def test_table_notation_names_the_line_that_breaks_it():
    with pytest.raises(ValueError, match="table line 2"):
        list(read_table("\nadd | d zebra | integer"))
    with pytest.raises(ValueError, match="unknown flags"):
        list(read_table("add | d a | integer | sideways"))
    with pytest.raises(ValueError, match="cannot read operand"):
        list(read_table("ld | d [a | memory"))
