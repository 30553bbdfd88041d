"""Kernels that look at where a variable lies: at bits of its address, or at which one follows."""

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

BUFFERS = "buffer y bytes=4096 role=output\n"
KERNEL = """
.visible .global .align ALIGN .b8 g[64];
.visible .entry k(.param .u64 y)
{
    .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %rd<10>;
    .local .align 4 .b8 first[4];
    .local .align ALIGN .b8 a[64];
    .local .align ALIGN .b8 b[64];
    ld.param.u64 %rd1, [y];
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
    mov.u64 %rd4, OF; mov.u64 %rd5, b;
    BODY
    @%p1 st.global.u32 [%rd3], %r1;
    @!%p1 st.global.u32 [%rd3+512], %r1;
    ret;
}
"""
LOW = {
    "and": "and.b64 %rd6, %rd4, 15; setp.eq.u64 %p1, %rd6, 0;",
    "rem": "rem.u64 %rd6, %rd4, 16; setp.eq.u64 %p1, %rd6, 0;",
    "and of 32 bits": ("cvt.u32.u64 %r2, %rd4; and.b32 %r2, %r2, 15; setp.eq.u32 %p1, %r2, 0;"),
    "shl": "shl.b64 %rd6, %rd4, 60; setp.eq.u64 %p1, %rd6, 0;",
    "index": (
        "and.b64 %rd6, %rd4, 15; shl.b64 %rd7, %rd6, 5; add.s64 %rd8, %rd3, %rd7;"
        "st.global.u32 [%rd8+1024], %r1; setp.eq.u64 %p1, %rd6, 0;"
    ),
    "round up": (
        "add.s64 %rd6, %rd4, 15; and.b64 %rd6, %rd6, -16; sub.s64 %rd7, %rd6, %rd4;"
        "add.s64 %rd8, %rd3, %rd7; st.global.u32 [%rd8+1024], %r1; setp.eq.u64 %p1, %rd7, 0;"
    ),
}
NEXT = {
    "order": "setp.lt.u64 %p1, %rd4, %rd5;",
    "distance": (
        "sub.s64 %rd6, %rd5, %rd4; add.s64 %rd7, %rd3, %rd6; st.global.u32 [%rd7+1024], %r1;"
        "setp.eq.u64 %p1, %rd6, 64;"
    ),
    "distance by a sum": (
        "neg.s64 %rd6, %rd4; add.s64 %rd6, %rd6, %rd5; add.s64 %rd7, %rd3, %rd6;"
        "st.global.u32 [%rd7+1024], %r1; setp.eq.u64 %p1, %rd6, 64;"
    ),
    "the later one": (
        "max.u64 %rd6, %rd4, %rd5; st.local.u64 [a], 8; st.local.u64 [b], 16;"
        "ld.local.u64 %rd7, [%rd6]; setp.eq.u64 %p1, %rd7, 16;"
    ),
}


def program(body: str, of: str = "a", align: int = 4) -> ir.Program:
    text = KERNEL.replace("BODY", body).replace("OF", of).replace("ALIGN", str(align))
    return trace(BUFFERS, f"{text}\n", "launch m.k grid=1,1,1 block=8,1,1 args=[y]\n")


def step_of(given: ir.Program) -> StepAccesses:
    (step,) = AnalysisManager(given).get(AccessRegions).steps
    return step


def is_certain(step: StepAccesses) -> bool:
    """Whether a write of `y` surely happens."""
    return any(
        a.buffer == 0 and a.kind is AccessKind.WRITE and a.certainty is Certainty.MUST
        for a in step.accesses
    )


@pytest.mark.parametrize("name", [*LOW, *NEXT])
def test_regions_hold(name: str) -> None:
    given = program((LOW | NEXT)[name], align=4 if name in LOW else 8)
    step = step_of(given)
    assert not is_certain(step)
    (record,) = run_program(given, {"m.g": np.zeros(64, np.uint8)}).launches
    for seen in compare(given, step, record.result.accesses):
        assert intervals.covers(seen.may_write, seen.written)


@pytest.mark.parametrize("of", ["a", "g"])
def test_an_alignment_that_is_declared_counts(of: str) -> None:
    for body in (LOW["and"], LOW["rem"]):
        assert is_certain(step_of(program(body, of, align=16)))
        assert not is_certain(step_of(program(body, of, align=8)))
