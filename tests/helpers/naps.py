"""Kernels that take their time (50 ms), reach into the void, or trap unless they read zero."""

from __future__ import annotations

SLEEP = """
.visible .entry doze(.param .u64 .ptr .global out, .param .u64 .ptr .global x)
{
    .reg .pred %p;
    .reg .b32 %r<4>;
    .reg .b64 %rd<3>;
    mov.u32 %r1, 0;
AGAIN:
    nanosleep.u32 1000000;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p, %r1, 50;
    @%p bra AGAIN;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [x];
    ld.global.u32 %r2, [%rd2];
    add.u32 %r2, %r2, 1;
    st.global.u32 [%rd1], %r2;
    ret;
}
.visible .entry wild(.param .u64 .ptr .global out, .param .u64 .ptr .global x)
{
    .reg .b32 %r;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [x];
    ld.global.u32 %r, [%rd2];
    st.global.u32 [%rd1], %r;
    cvt.u64.u32 %rd0, %r;
    st.global.u32 [%rd0], %r;
    ret;
}
.visible .entry stop(.param .u64 .ptr .global out, .param .u64 .ptr .global x)
{
    .reg .pred %p;
    .reg .b32 %r;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [x];
    ld.global.u32 %r, [%rd2];
    st.global.u32 [%rd1], %r;
    setp.ne.u32 %p, %r, 0;
    @%p trap;
    ret;
}
"""
BUFFERS = """
buffer x bytes=4 role=input dtype=u32 shape=1
buffer h bytes=4 role=temp dtype=u32 shape=1
buffer y bytes=4 role=output dtype=u32 shape=1
"""
