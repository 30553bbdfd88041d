"""Calls that are not followed, and variables of functions: what is certain after them, and whose
bytes they are."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.backend.ptx_executor.run import run_program
from tessera.ir.graph.access import AccessKind, Certainty
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.launch_report import StepAccesses
from tests.helpers.access_oracle import compare
from tests.helpers.traces import trace

BUFFERS = "buffer x bytes=128 role=input\nbuffer y bytes=128 role=output\n"
FUNCTION = """
.func leaves(.param .b32 n, .param .b32 d)
{
    .reg .pred %p<3>; .reg .b32 %r<3>;
    ld.param.u32 %r1, [n]; ld.param.u32 %r2, [d];
    setp.eq.u32 %p1, %r2, 0; @%p1 LEAVE;
    setp.eq.u32 %p2, %r1, 0; @%p2 ret;
    sub.u32 %r1, %r1, 1;
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; st.param.b32 [b], %r2;
      call.uni leaves, (a, b); }
    ret;
}
"""
KERNEL = """
.visible .global .align 4 .u32 count[8];
.visible .entry k(.param .u64 y, .param .u64 x)
{
    .reg .pred %p<3>; .reg .b32 %r<5>; .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [y]; ld.param.u64 %rd2, [x];
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
    ld.global.u32 %r2, [%rd5]; and.b32 %r2, %r2, 1;
    BODY
    st.global.u32 [%rd4], %r1; ret;
}
"""
GIVEN = "{ .param .b32 a; .param .b32 b; st.param.b32 [a], 2; st.param.b32 [b], %r2; CALL }"
DIRECT = GIVEN.replace("CALL", "call.uni leaves, (a, b);")
INDIRECT = (
    "mov.u64 %rd6, leaves; P: .callprototype _ (.param .b32 _, .param .b32 _);"
    + GIVEN.replace("CALL", "call %rd6, (a, b), P;")
)


def program(body: str, leave: str = "ret") -> ir.Program:
    functions = FUNCTION.replace("LEAVE", leave)
    steps = "launch m.k grid=1,1,1 block=32,1,1 args=[y, x]\n"
    return trace(BUFFERS, f"{functions}{KERNEL.replace('BODY', body)}\n", steps)


def step_of(given: ir.Program) -> StepAccesses:
    (step,) = AnalysisManager(given).get(AccessRegions).steps
    return step


def writes_surely(step: StepAccesses) -> bool:
    return any(
        a.buffer == 1 and a.kind is AccessKind.WRITE and a.certainty is Certainty.MUST
        for a in step.accesses
    )


@pytest.mark.parametrize("body", [DIRECT, INDIRECT])
@pytest.mark.parametrize("leave", ["exit", "ret"])
def test_a_thread_may_end_in_a_call(body: str, leave: str) -> None:
    given = program(body, leave)
    step = step_of(given)
    assert not step.pins
    assert writes_surely(step) is (leave == "ret")
    x = (np.arange(32, dtype=np.uint32) % 3).view(np.uint8)
    (record,) = run_program(given, {"x": x}).launches
    for seen in compare(given, step, record.result.accesses):
        assert intervals.covers(seen.may_write, seen.written)
        assert intervals.covers(seen.written, seen.must_write)


def test_a_variable_of_a_function_is_not_the_module_s() -> None:
    call = "{ .param .b32 a; st.param.b32 [a], %r2; call.uni keeps, (a); }"
    head, entry, rest = KERNEL.replace("BODY", call).partition(".visible .entry")
    for own in ("", ".global .align 4 .u32 count;"):
        keeps = f".func keeps(.param .b32 n) {{ {own} st.global.u32 [count], 1; ret; }}\n"
        steps = "launch m.k grid=1,1,1 block=32,1,1 args=[y, x]\n"
        assert bool(step_of(trace(BUFFERS, head + keeps + entry + rest, steps)).pins) is bool(own)


def test_a_variable_of_a_kernel_is_not_the_module_s() -> None:
    own = ".global .align 4 .u32 count; st.global.u32 [count], %r1;"
    assert not step_of(program("st.global.u32 [count], %r1;")).pins
    assert step_of(program(own)).pins
