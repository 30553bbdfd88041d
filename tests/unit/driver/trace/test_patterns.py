"""Patterns of operators: every example of the table, and where a pattern must not be replaced."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from tessera.driver.trace.patterns.fuse import fuse
from tessera.driver.trace.patterns.pattern_table import PATTERNS, TWINS
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.operators.table import bind, work_of
from tessera.ir.program import program as ir
from tessera.ir.program.print_trace import print_program

_OPERAND = re.compile(r"(\w+)(?:\+\d+)?:(\w+)\[([\d,]*)\]")
_SIZES = {"bf16": 2, "f32": 4, "s64": 8, "s32": 4, "bool": 1}
TABLE = {entry.name: entry for entry in (*PATTERNS, *TWINS)}


def program_of(records: str, **roles: str) -> ir.Program:
    """A program of `op` records: what nothing writes flows in, what nothing reads flows out."""
    sizes: dict[str, int] = {}
    for name, dtype, shape in _OPERAND.findall(records):
        size = _SIZES[dtype] * math.prod(int(part) for part in shape.split(",") if part)
        sizes[name] = max(sizes.get(name, 0), size)
    read = {n for part in re.findall(r"reads=\[(.*?)\] writes", records) for n in names(part)}
    written = {n for part in re.findall(r"writes=\[(.*?\])\]", records) for n in names(part)}
    lines = ["//! tessera.trace 1"]
    for name, size in sizes.items():
        both = "state" if name in ("kc", "vc") else "temp"
        role = both if name in read and name in written else "input"
        role = "output" if name not in read else role
        lines.append(f"//! buffer {name} bytes={size} role={roles.get(name, role)}")
    lines += [f"//! op {record}" for record in records.splitlines()]
    return parse_trace("\n".join(lines) + "\n")


def names(operands: str) -> list[str]:
    return [name for name, _, _ in _OPERAND.findall(operands)]


def operators(program: ir.Program) -> list[str]:
    return [step.operator for step in program.steps if isinstance(step, ir.LibraryCall)]


def seen(program: ir.Program) -> tuple[set[str], set[str]]:
    """What a program reads that was there before, and what it leaves behind."""
    roles = {b.name: b.role for b in program.declared_buffers()}
    read, written = set(), set()
    for step in program.steps:
        assert isinstance(step, ir.LibraryCall)
        read |= {program.buffers[o.pointer.buffer].name for o in step.reads}
        written |= {program.buffers[o.pointer.buffer].name for o in step.writes}
    kept = {n for n in read | written if roles[n] is not ir.Role.TEMP}
    return read & kept, written & kept


@pytest.mark.parametrize("name", TABLE)
def test_every_example_becomes_one_operator(name: str) -> None:
    entry = TABLE[name]
    program = program_of(entry.example)
    fused, counts = fuse(program)
    assert operators(fused) == [entry.operator]
    assert counts == {name: 1}
    assert seen(fused) == seen(program)
    (step,) = fused.steps
    assert isinstance(step, ir.LibraryCall)
    assert bind(step).operator.name == entry.operator
    assert work_of(step) is not None
    assert parse_trace(print_program(fused)) == fused


@pytest.mark.parametrize("name", [entry.name for entry in PATTERNS])
def test_what_others_see_is_not_taken_away(name: str) -> None:
    """A temporary of the pattern that a later step reads keeps the pattern apart, unless the
    operator leaves it behind as well."""
    entry = TABLE[name]
    if "\n" not in entry.text:
        pytest.skip("a pattern of one operator has no temporaries")
    first = re.findall(r"writes=\[(\w+):(\w+)\[([\d,]*)\]", entry.example)[0]
    temporary, dtype, shape = first
    also = f"aten::clone reads=[{temporary}:{dtype}[{shape}]] writes=[z:{dtype}[{shape}]]"
    fused, counts = fuse(program_of(f"{entry.example}\n{also}"))
    assert len(fused.steps) > 1
    assert name not in counts


def test_calls_are_kept_apart_where_an_input_changes_between_them() -> None:
    records = """aten::silu reads=[g:bf16[4,8]] writes=[s:bf16[4,8]]
aten::zero_ reads=[g:bf16[4,8]] writes=[g:bf16[4,8]]
aten::mm reads=[g:bf16[4,8], w:bf16[8,8]] writes=[y:bf16[4,8]]
aten::mul.Tensor reads=[s:bf16[4,8], y:bf16[4,8]] writes=[o:bf16[4,8]]"""
    program = program_of(records, g="state", u="input")
    fused, counts = fuse(program)
    assert counts == {"one kernel": 1}
    assert operators(fused) == ["tessera::fused", "aten::mm", "aten::mul.Tensor"]


def test_a_product_with_two_results_stays_a_batch() -> None:
    example = TABLE["product with one weight"].example
    made = "aten::relu reads=[v:bf16[4,8,6]{0,6,1}] writes=[w:bf16[4,8,6]{0,6,1}]"
    assert fuse(program_of(f"{made}\n{example}"))[1] == {}
    for other in ("w:bf16[4,8,6]{48,6,1}", "w:bf16[4,8,6]"):  # a weight for each
        assert fuse(program_of(example.replace("w:bf16[4,8,6]{0,6,1}", other)))[1] == {}
    apart = example.replace("x:bf16[4,1,8]", "x:bf16[4,3,8]{8,32,1}").replace("4,1,6", "4,3,6")
    assert fuse(program_of(apart))[1] == {}


CAUSAL = """aten::arange reads=[] writes=[c:s64[6]] attrs={"end":6}
aten::add.Tensor reads=[c:s64[6], seen:s64[]] writes=[q0:s64[6]]
aten::arange reads=[] writes=[d:s64[6]] attrs={"end":6}
aten::add.Tensor reads=[d:s64[6]] writes=[k0:s64[6]] attrs={"other":0}
aten::le.Tensor reads=[k0:s64[1,1,1,6], q0:s64[1,1,6,1]] writes=[m:bool[1,1,6,6]]
aten::scaled_dot_product_attention reads=[q:bf16[2,3,6,8], k:bf16[2,3,6,8], v:bf16[2,3,6,8], \
m:bool[2,1,6,6]{0,36,6,1}] writes=[o:bf16[2,3,6,8]]
aten::scaled_dot_product_attention reads=[o:bf16[2,3,6,8], k:bf16[2,3,6,8], v:bf16[2,3,6,8], \
m:bool[2,1,6,6]{0,36,6,1}] writes=[p:bf16[2,3,6,8]]"""


def test_a_mask_that_compares_places_is_causal_attention() -> None:
    fused, counts = fuse(program_of(CAUSAL, seen="state"))
    assert counts == {"causal mask": 2}
    assert len(fused.steps) == 2
    for step in fused.steps:
        assert isinstance(step, ir.LibraryCall)
        assert len(step.reads) == 3
        assert bind(step).flag("is_causal")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('writes=[c:s64[6]] attrs={"end":6}', 'writes=[c:s64[6]] attrs={"start":1,"end":7}'),
        ("aten::le.", "aten::lt."),  # a token does not see itself
        ("aten::le.", "aten::ge."),  # the other triangle
        ('"other":0', '"other":2'),  # keys are elsewhere
        ("reads=[c:s64[6], seen:s64[]]", "reads=[c:s64[6], seen:s64[6]]"),  # an offset for each
        ("reads=[c:s64[6], seen:s64[]]", "reads=[seen:s64[6], c:s64[6]]"),
        ('writes=[c:s64[6]] attrs={"end":6}', 'writes=[c:s64[6]] attrs={"end":12,"step":2}'),
        ("k:bf16[2,3,6,8], v:bf16[2,3,6,8], m:bool[2,1,6,6]{0,36,6,1}", "k, v, m"),
    ],
)
def test_other_masks_are_left_alone(old: str, new: str) -> None:
    text = CAUSAL.replace("\\\n", "")
    if new == "k, v, m":  # more keys than queries: the offset decides who sees what
        new = "k:bf16[2,3,7,8], v:bf16[2,3,7,8], m:bool[2,1,6,7]{0,36,6,1}"
        text = text.replace("s64[1,1,1,6]", "s64[1,1,1,7]").replace(
            "bool[1,1,6,6]", "bool[1,1,6,7]"
        )
        text = text.replace(
            'writes=[d:s64[6]] attrs={"end":6}', 'writes=[d:s64[7]] attrs={"end":7}'
        )
        text = text.replace("d:s64[6]] writes=[k0:s64[6]]", "d:s64[7]] writes=[k0:s64[7]]")
    assert old in text
    assert "causal mask" not in fuse(program_of(text.replace(old, new), seen="state"))[1]


EXPERTS = """aten::sort reads=[ids:s64[8]] writes=[sorted:s64[8], order:s64[8]]
aten::index.Tensor reads=[x:bf16[4,16], order:s64[8]] writes=[rows:bf16[8,16]]
aten::histc reads=[sorted:s64[8]] writes=[count:s64[3]] attrs={"bins":3,"min":0,"max":2}
aten::cumsum reads=[count:s64[3]] writes=[ends:s32[3]] attrs={"dim":0,"dtype":"s32"}
aten::_grouped_mm reads=[rows:bf16[8,16], up:bf16[3,16,12]{192,1,16}, ends:s32[3]] \
writes=[wide:bf16[8,12]]
aten::silu reads=[wide:bf16[8,6]{12,1}] writes=[act:bf16[8,6]]
aten::mul.Tensor reads=[act:bf16[8,6], wide+12:bf16[8,6]{12,1}] writes=[gate:bf16[8,6]]
aten::_grouped_mm reads=[gate:bf16[8,6], down:bf16[3,6,16]{96,1,6}, ends:s32[3]] \
writes=[made:bf16[8,16]]
aten::mul.Tensor reads=[made:bf16[8,16], share:bf16[8,1]] writes=[weighted:bf16[8,16]]
aten::sum.dim_IntList reads=[weighted:bf16[4,2,16]] writes=[y:bf16[4,16]] attrs={"dim":[1]}
aten::add.Tensor reads=[y:bf16[4,16], x:bf16[4,16]] writes=[z:bf16[4,16]]"""


def test_experts_are_one_operator_with_their_sizes() -> None:
    program = program_of(EXPERTS)
    fused, counts = fuse(program)
    assert counts == {"experts": 1}
    assert operators(fused) == ["tessera::experts", "aten::add.Tensor"]
    (step, _) = fused.steps
    assert isinstance(step, ir.LibraryCall)
    sizes = {"tokens": 4, "hidden": 16, "inner": 6, "chosen": 2, "experts": 3}
    assert dict(step.attributes) == sizes
    assert seen(fused) == seen(program)


def test_a_program_with_launches_stays_as_it_is() -> None:
    program = parse_trace(
        "//! tessera.trace 1\n//! buffer x bytes=64 role=output\n//! memset x bytes=64 value=0\n"
    )
    assert fuse(program) == (program, {})


def test_the_guide_has_every_pattern() -> None:
    guide = (Path(__file__).parents[4] / "docs" / "guides" / "capture.md").read_text()
    for entry in TABLE.values():
        assert f"| {entry.name} | {entry.says} | `{entry.operator}` |" in guide
