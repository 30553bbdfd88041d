"""Small traces for tests of the analysis, from a few lines of PTX."""

from __future__ import annotations

from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.program.program import Program
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.dependences import Dependences

HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"

# out[i] = x[i] for i < n, one float per thread.
COPY = """
.visible .entry copy(.param .u64 .ptr .global out, .param .u64 .ptr .global x, .param .u32 n)
{
    .reg .pred %p;
    .reg .b32 %r<5>;
    .reg .b64 %rd<6>;
    .reg .f32 %f;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    ld.param.u32 %r0, [n];
    setp.ge.u32 %p, %r4, %r0;
    @%p bra DONE;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [x];
    mul.wide.u32 %rd3, %r4, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.f32 %f, [%rd4];
    add.s64 %rd5, %rd1, %rd3;
    st.global.f32 [%rd5], %f;
DONE:
    ret;
}
"""


def trace(buffers: str, kernels: str, steps: str, header: str = HEADER) -> Program:
    """A program from the three parts of a trace; `//! ` is put before records."""

    def records(text: str) -> str:
        lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
        return "".join(f"//! {line}\n" for line in lines)

    text = "//! tessera.trace 1\n" + records(buffers)
    return parse_trace(f"{text}//! module m\n{header}{kernels}{records(steps)}", "trace.ptx")


def dependences(program: Program) -> Dependences:
    """The graph and the findings of a program."""
    return AnalysisManager(program).get(Dependences)
