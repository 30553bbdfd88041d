"""A trace whose third step finds its buffers through a table of device addresses."""

from __future__ import annotations

from tessera.ir.program.program import Program
from tests.helpers.traces import COPY, trace

# out[i] = x[i] + 3, both found through a table.
_VIA = """
.visible .entry via(.param .u64 .ptr .global table)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [table];
    ld.global.u64 %rd2, [%rd1];
    ld.global.u64 %rd3, [%rd1+8];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd4, %r1, 4;
    add.s64 %rd5, %rd2, %rd4;
    add.s64 %rd6, %rd3, %rd4;
    ld.global.u32 %r2, [%rd5];
    add.u32 %r2, %r2, 3;
    st.global.u32 [%rd6], %r2;
    ret;
}
"""


def table_trace(role: str, target: str, *, records: int = 1) -> Program:
    """`table` has a role of choice and points to `h` and a target, by one record or by two."""
    words = [f"0:h,8:{target}"] if records == 1 else ["0:h", f"8:{target}"]
    pointers = "\n".join(f"pointers table @{{{one}}}" for one in words)
    buffers = f"""
    buffer x bytes=64 role=input dtype=u32 shape=16
    buffer h bytes=64 role=temp dtype=u32 shape=16
    buffer g bytes=64 role=temp dtype=u32 shape=16
    buffer table bytes=32 role={role} dtype=u64 shape=4
    buffer s bytes=64 role=state dtype=u32 shape=16
    buffer y bytes=64 role=output dtype=u32 shape=16
    buffer z bytes=64 role=output dtype=u32 shape=16
    {pointers}
    """
    steps = f"""
    launch m.copy grid=1,1,1 block=16,1,1 args=[g, x, u32:16]
    launch m.copy grid=1,1,1 block=16,1,1 args=[h, g, u32:16]
    launch m.via grid=1,1,1 block=16,1,1 args=[table]
    launch m.copy grid=1,1,1 block=16,1,1 args=[z, {target}, u32:16]
    """
    return trace(buffers, COPY + _VIA, steps)
