"""Certainty and regions of single accesses: what data may decide is never certain."""

from __future__ import annotations

import pytest

from tessera.ir.graph.access import Access
from tessera.ir.graph.region import region_text
from tests.helpers.traces import dependences, trace

BUFFERS = "buffer x bytes=4096 role=input\nbuffer y bytes=4096 role=output"


def writes(body: str, block: int = 4) -> list[tuple[str, str]]:
    """Certainty and region of each write of y; %r1 is a word of x, %rd1 is y, %r0 is tid.x."""
    kernel = f"""
.visible .entry k(.param .u64 y, .param .u64 x)
{{
    .reg .pred %p<4>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<9>;
    mov.u32 %r0, %tid.x;
    ld.param.u64 %rd1, [y];
    ld.param.u64 %rd2, [x];
    ld.global.u32 %r1, [%rd2];
    setp.ne.u32 %p1, %r1, 0;
{body}
    ret;
}}
"""
    step = f"launch m.k grid=1,1,1 block={block},1,1 args=[y, x]\n"
    node = dependences(trace(BUFFERS, kernel, step)).graph.nodes[0]
    assert not node.pins
    found: list[Access] = [a for a in node.accesses if a.kind.writes]
    return [(a.certainty.value, region_text(a.region)) for a in found]


def store(index: str, offset: int = 0, guard: str = "") -> str:
    return (
        f"mul.wide.u32 %rd3, {index}, 4;\nadd.s64 %rd4, %rd1, %rd3;\n"
        f"{guard} st.global.u32 [%rd4+{offset}], %r1;\n"
    )


def test_plain() -> None:
    assert writes(store("%r0")) == [("must", "0:16")]


def test_a_guard_on_data() -> None:
    assert writes(store("%r0", guard="@%p1")) == [("may", "0:16")]
    assert writes(store("%r0", guard="@!%p1")) == [("may", "0:16")]


def test_a_guard_on_the_thread() -> None:
    assert writes("setp.lt.u32 %p2, %r0, 3;" + store("%r0", guard="@%p2")) == [("must", "0:12")]
    assert writes("setp.lt.u32 %p2, %r0, 0;" + store("%r0", guard="@%p2")) == []


def test_after_an_if_on_data_it_is_certain_again() -> None:
    body = "@%p1 bra L;\n" + store("%r0", 64) + "L:\n" + store("%r0")
    assert sorted(writes(body)) == [("may", "64:80"), ("must", "0:16")]


def test_after_a_return_on_data_nothing_is_certain() -> None:
    assert writes("@%p1 ret;\n" + store("%r0")) == [("may", "0:16")]


def test_a_register_that_both_sides_write() -> None:
    body = "@%p1 bra E;\nmov.u32 %r2, 3;\nbra L;\nE:\nmov.u32 %r2, 9;\nL:\n" + store("%r2")
    assert writes(body) == [("may", "12:40")]


def test_a_register_written_under_a_guard_on_data() -> None:
    body = "mov.u32 %r2, 2;\n@%p1 mov.u32 %r2, 5;\n" + store("%r2")
    assert writes(body) == [("may", "8:24")]


def test_a_loop_that_data_ends() -> None:
    body = (
        "mov.u32 %r2, 0;\nL:\nadd.u32 %r2, %r2, 1;\nsetp.lt.u32 %p2, %r2, %r1;\n@%p2 bra L;\n"
        + store("%r0")
        + "and.b32 %r3, %r2, 7;\n"
        + store("%r3", 128)
    )
    assert writes(body) == [("must", "0:16"), ("may", "128:160")]


def test_a_store_in_a_loop_that_data_ends() -> None:
    """The first round happens in any case; the analysis may or may not say so."""
    body = (
        "mov.u32 %r2, 0;\nL:\nand.b32 %r3, %r2, 7;\n"
        + store("%r3")
        + "add.u32 %r2, %r2, 1;\nsetp.lt.u32 %p2, %r2, %r1;\n@%p2 bra L;\n"
    )
    found = writes(body)
    assert [region for certainty, region in found if certainty == "may"] == ["whole"]
    assert all(region == "0:4" for certainty, region in found if certainty == "must")


@pytest.mark.parametrize(
    ("operation", "value"),
    [
        ("bfe.s32 %r2, 0xF0, 4, 4;", -1),
        ("bfe.s32 %r2, 0x70, 4, 40;", 7),
        ("bfe.s32 %r2, 0x80000000, 31, 4;", -1),
        ("shr.s32 %r2, -8, 1;", -4),
        ("mul.hi.s32 %r2, -1, 2;", -1),
        ("div.s32 %r2, -7, 2;", -3),
        ("rem.s32 %r2, -7, 2;", -1),
        ("shf.l.wrap.b32 %r2, 0x80000000, 1, 1;", 3),
    ],
)
def test_exact_values(operation: str, value: int) -> None:
    body = _with_registers(operation) + "add.s32 %r3, %r2, 16;\n" + store("%r3")
    offset = 4 * (value + 16)
    assert writes(body, 1) == [("must", f"{offset}:{offset + 4}")]


def _with_registers(line: str) -> str:
    """The first source through a register."""
    opcode, operands = line.split(" ", 1)
    target, source, *others = operands.rstrip(";").split(", ")
    return f"mov.u32 %r7, {source};\n{opcode} {target}, %r7, {', '.join(others)};\n"
