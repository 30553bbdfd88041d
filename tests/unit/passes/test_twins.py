"""Which steps may have twins: a step that breaks each rule, and ones that do not."""

from __future__ import annotations

import pytest

from tessera.ir.program.program import Program
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.dependences import Dependences
from tessera.passes.division.twins import TwinRules
from tests.helpers.traces import trace

BUFFERS = """
buffer x bytes=4096 role=input dtype=f32 shape=1024
buffer i bytes=8192 role=input dtype=s64 shape=1024
buffer y bytes=4096 role=output dtype=f32 shape=1024
buffer t bytes=64 role=temp
pointers t @{0:x}
"""
KERNEL = """
.global .align 4 .u32 kept;
.visible .entry k(.param .u64 x, .param .u64 y)
{{
    .reg .pred %p<4>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<12>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.u64 %rd4, %rd1, %rd3;
    add.u64 %rd5, %rd2, %rd3;
    ld.global.u32 %r5, [%rd4];
    {body}
    ret;
}}
"""
LAUNCH = "launch m.k grid=1,1,1 block=32,1,1 args=[x, y]"
STORE = "st.global.u32 [%rd5], %r5;"


def made(body: str = STORE, steps: str = LAUNCH) -> Program:
    return trace(BUFFERS, KERNEL.format(body=body), steps)


def reason(program: Program, step: int = 0) -> str:
    why = TwinRules(program, AnalysisManager(program).get(Dependences).graph).why_not(step)
    return "" if why is None else str(why)


@pytest.mark.parametrize(
    "body",
    [
        STORE,
        "ld.global.u32 %r6, [%rd5]; add.u32 %r6, %r6, %r5; st.global.u32 [%rd5], %r6;",
        "and.b32 %r5, %r5, 7; mul.wide.u32 %rd6, %r5, 4; add.u64 %rd6, %rd2, %rd6;"
        "st.global.u32 [%rd6], %r1;",
        "mov.u64 %rd6, kept; ld.global.u32 %r6, [%rd6]; st.global.u32 [%rd5], %r6;",
    ],
)
def test_what_depends_on_bytes_alone_may_have_twins(body: str) -> None:
    assert reason(made(body)) == ""


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("ld.global.u64 %rd6, [%rd4]; st.global.u32 [%rd6], %r5;", "it is pinned"),
        ("red.global.add.f32 [%rd5], 0f3F800000;", "changes `y` in an order that may vary"),
        ("mov.u64 %rd6, kept; st.global.u32 [%rd6], %r5;", "the module variable `m.kept`"),
        ("mov.u32 %r6, %smid; st.global.u32 [%rd5], %r6;", "reads `%smid`"),
        ("mov.u64 %rd6, %gridid; st.global.u64 [%rd2], %rd6;", "names `%gridid`"),
        ("st.global.u64 [%rd2], %rd1;", "it stores addresses"),
    ],
)
def test_a_launch_that_something_else_decides_may_not(body: str, why: str) -> None:
    assert why in reason(made(body))


def test_a_step_beside_a_pinned_one_may_not() -> None:
    follows = "ld.global.u64 %rd6, [%rd4]; st.global.u32 [%rd6], %r5;"
    program = made(follows, f"memset y+0 bytes=64 value=0x00\n{LAUNCH}")
    assert "`m.k`, which is pinned" in reason(program)


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ("memset y+0 bytes=64 value=0x00", ""),
        ("memcpy y+0 x+0 bytes=64", ""),
        ("memcpy y+0 t+0 bytes=64", "it copies addresses"),
        ("op aten::relu reads=[x:f32[1024]] writes=[y:f32[1024]]", ""),
        (
            "op aten::scatter_add reads=[x:f32[1024], i:s64[1024], x:f32[1024]]"
            ' writes=[y:f32[1024]] attrs={"dim":0}',
            "adds in an order",
        ),
    ],
)
def test_steps_that_are_no_launches(step: str, why: str) -> None:
    assert why in reason(made(steps=step))
    assert bool(why) == bool(reason(made(steps=step)))
