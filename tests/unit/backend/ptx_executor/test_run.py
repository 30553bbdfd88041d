"""Printing, assertions, traces, determinism."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tessera.backend.ptx_executor.device import Device
from tessera.backend.ptx_executor.run import run_program
from tessera.diagnostics import TesseraError
from tessera.frontend.ptx.read_ptx import parse_module
from tessera.frontend.trace.read_trace import parse_trace
from tests.helpers.cpu_kernels import HEADER, run

ROOT = Path(__file__).resolve().parents[4]


def text_variable(name: str, text: str) -> str:
    codes = ", ".join(str(b) for b in text.encode() + b"\0")
    return f".global .align 1 .b8 {name}[{len(text) + 1}] = {{{codes}}};\n"


def test_printf_formats_in_lane_order():
    before = (
        ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
        + text_variable("form", "%d|%u|%5.2f|%s|%c|%lld|%x|%%\n")
        + text_variable("word", "hi")
    )
    _, result = run(
        """
        .local .align 8 .b8 args[64];
        mov.u64 %rd5, args;
        cvta.local.u64 %rd6, %rd5;
        sub.u32 %r5, 0, %r1;
        st.local.u32 [%rd5], %r5;
        st.local.u32 [%rd5+4], %r5;
        cvt.rn.f64.u32 %fd1, %r1;
        st.local.f64 [%rd5+8], %fd1;
        mov.u64 %rd7, word;
        st.local.u64 [%rd5+16], %rd7;
        st.local.u32 [%rd5+24], 65;
        mov.u64 %rd8, -7;
        st.local.u64 [%rd5+32], %rd8;
        st.local.u32 [%rd5+40], 255;
        mov.u64 %rd9, form;
        { .param .b64 a; .param .b64 b; .param .b32 r;
        st.param.b64 [a], %rd9;
        st.param.b64 [b], %rd6;
        call (r), vprintf, (a, b); }
        """,
        before=before,
        block=2,
    )
    assert result.output == "0|0| 0.00|hi|A|-7|ff|%\n-1|4294967295| 1.00|hi|A|-7|ff|%\n"


def test_printf_of_short_integers():
    before = (
        ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
        + text_variable("form", "%hhd|%hhu|%hd|%hx\n")
    )
    _, result = run(
        """
        .local .align 8 .b8 args[16];
        mov.u64 %rd5, args;
        cvta.local.u64 %rd6, %rd5;
        st.local.u32 [%rd5], 0x1ff;
        st.local.u32 [%rd5+4], 0x1ff;
        st.local.u32 [%rd5+8], 0x18000;
        st.local.u32 [%rd5+12], 0xfabcd;
        mov.u64 %rd9, form;
        { .param .b64 a; .param .b64 b; .param .b32 r;
        st.param.b64 [a], %rd9;
        st.param.b64 [b], %rd6;
        call (r), vprintf, (a, b); }
        """,
        before=before,
        block=1,
    )
    assert result.output == "-1|255|-32768|abcd\n"


def test_failed_assertion_carries_its_text():
    before = (
        ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d,"
        " .param .b64 e);\n" + text_variable("what", "x > 0") + text_variable("file", "a.cu")
    )
    with pytest.raises(TesseraError, match=r"TSR5012\] assertion failed: x > 0") as caught:
        run(
            """
            setp.ne.u32 %p1, %r1, 5;
            @%p1 bra fine;
            mov.u64 %rd5, what;
            mov.u64 %rd6, file;
            { .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
            st.param.b64 [a], %rd5; st.param.b64 [b], %rd6; st.param.b32 [c], 12;
            st.param.b64 [d], %rd6; st.param.b64 [e], 1;
            call __assertfail, (a, b, c, d, e); }
        fine:
            """,
            before=before,
        )
    notes = caught.value.diagnostics[0].notes
    assert "thread (5, 0, 0)" in notes[0]
    assert "a.cu:12" in notes[1]


SAXPY = f"""{HEADER}
.visible .entry saxpy(.param .u64 y, .param .u64 x, .param .f32 a, .param .u32 n)
{{
    .reg .pred %p; .reg .b32 %r<6>; .reg .f32 %f<5>; .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [y]; ld.param.u64 %rd2, [x];
    ld.param.f32 %f1, [a]; ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x;
    mad.lo.u32 %r5, %r3, %r4, %r2;
    setp.ge.u32 %p, %r5, %r1;
    @%p ret;
    mul.wide.u32 %rd3, %r5, 4;
    add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;
    ld.global.f32 %f2, [%rd4]; ld.global.f32 %f3, [%rd5];
    fma.rn.f32 %f4, %f3, %f1, %f2;
    st.global.f32 [%rd4], %f4;
    ret;
}}
"""
TRACE = f"""//! tessera.trace 1
//! buffer x bytes=400 role=input dtype=f32 shape=100
//! buffer y bytes=400 role=state dtype=f32 shape=100
//! buffer z bytes=400 role=output
//! module m0
{SAXPY}
//! launch m0.saxpy grid=4,1,1 block=32,1,1 smem=0 args=[y, x+0, f32:2.0, u32:100]
//! memset z+0 bytes=400 value=0x00
//! memcpy z+4 y+0 bytes=396
//! launch m0.saxpy grid=4,1,1 block=32,1,1 smem=0 args=[z, y, f32:1.0, u32:50]
"""


def test_trace_runs_in_order():
    program = parse_trace(TRACE)
    x = np.arange(100, dtype=np.float32)
    y = np.ones(100, np.float32)
    result = run_program(program, {"x": x, "y": y})
    y = y + 2 * x
    z = np.concatenate([[0], y[:99]]).astype(np.float32)
    z[:50] += y[:50]
    assert result.buffers.keys() == {"y", "z"}
    assert (result.buffers["y"].view(np.float32) == y).all()
    assert (result.buffers["z"].view(np.float32) == z).all()
    touched = {a.buffer: a for a in result.launches[1].result.accesses}
    assert touched["y"].reads == ((0, 200),)
    assert touched["z"].writes == ((0, 200),)


def test_library_calls_without_code_are_refused_before_anything_runs():
    wrong = "//! op aten::mul.out reads=[x:c64[50], x:c64[50]] writes=[z:c64[50]] attrs={}\n"
    program = parse_trace(TRACE + wrong)
    with pytest.raises(TesseraError, match="TSR5001") as refused:
        run_program(program, {})
    assert "c64" in refused.value.diagnostics[0].notes[0]


def test_source_of_a_kernel_can_be_read():
    with Device() as device:
        kernel = device.load(parse_module(SAXPY))["saxpy"]
        assert "def block_0(cx" in kernel.program.source
        assert "floats.fma('f32'" in kernel.program.source


def test_sparse_product():
    """m16n8k16 with two of four kept: elements 0 and 2 of each group (metadata 0x8 a group)."""
    out, _ = run(
        """
        mov.b32 %r5, 0x3F803F80;
        mov.b32 %r6, 0x88888888;
        mov.f32 %f1, 0f00000000;
        cvt.rn.bf16x2.f32 %r7, %f1, %f1;
        setp.lt.u32 %p1, %r1, 4;
        selp.b32 %r8, %r5, %r7, %p1;
        mma.sp.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
            {%f2, %f3, %f4, %f5}, {%r5, %r5}, {%r8, %r8}, {%f1, %f1, %f1, %f1}, %r6, 0x0;
        st.global.f32 [%rd2], %f2;
        """,
        dtype=np.float32,
    )
    assert (out.reshape(8, 4) == [8, 0, 0, 0]).all()


def test_memory_of_the_kernels_own():
    """malloc in each thread, written, read and freed: nothing of it is left or reported."""
    before = (
        ".extern .func (.param .b64 r) malloc(.param .b64 a);\n.extern .func free(.param .b64 a);\n"
    )
    out, result = run(
        """
        { .param .b64 a; .param .b64 r;
        st.param.b64 [a], 64;
        call (r), malloc, (a);
        ld.param.b64 %rd5, [r]; }
        mul.wide.u32 %rd6, %r1, 8;
        and.b64 %rd6, %rd6, 32;
        add.u64 %rd7, %rd5, %rd6;
        st.u32 [%rd7], %r1;
        ld.u32 %r10, [%rd7];
        st.global.u32 [%rd2], %r10;
        { .param .b64 a;
        st.param.b64 [a], %rd5;
        call free, (a); }
        """,
        before=before,
        block=40,
    )
    assert (out == np.arange(40)).all()
    assert [a.buffer for a in result.accesses] == ["out"]


def test_wgmma_without_its_four_warps():
    body = """
        .shared .align 128 .b8 s[4096];
        mov.u64 %rd5, 0;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16
            {%f1, %f2, %f3, %f4}, %rd5, %rd5, 1, 1, 1, 0, 0;
    """
    with pytest.raises(TesseraError, match="TSR5023"):
        run(body, block=32)
