"""Buffers that hold device addresses: each device, slot and lane has its own."""

from __future__ import annotations

import pytest

from tessera.backend.cpu_plan.inline import InlineBackend
from tests.helpers.served import Ask, assert_equal, expected, model_of, serve
from tests.helpers.traces import COPY, trace

# out[i] = x[i] + 3, both found through a table.
VIA = """
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


@pytest.mark.parametrize("role", ["temp", "weight", "input", "state", "output"])
@pytest.mark.parametrize("target", ["y", "s"])
@pytest.mark.parametrize("placement", ["aaba", "abab", "abba"])
def test_tables(role: str, target: str, placement: str) -> None:
    buffers = f"""
    buffer x bytes=64 role=input dtype=u32 shape=16
    buffer h bytes=64 role=temp dtype=u32 shape=16
    buffer g bytes=64 role=temp dtype=u32 shape=16
    buffer table bytes=32 role={role} dtype=u64 shape=4
    buffer s bytes=64 role=state dtype=u32 shape=16
    buffer y bytes=64 role=output dtype=u32 shape=16
    buffer z bytes=64 role=output dtype=u32 shape=16
    pointers table @{{0:h,8:{target}}}
    """
    steps = f"""
    launch m.copy grid=1,1,1 block=16,1,1 args=[g, x, u32:16]
    launch m.copy grid=1,1,1 block=16,1,1 args=[h, g, u32:16]
    launch m.via grid=1,1,1 block=16,1,1 args=[table]
    launch m.copy grid=1,1,1 block=16,1,1 args=[z, {target}, u32:16]
    """
    model = model_of([trace(buffers, COPY + VIA, steps)], [list(placement)], slots=2, lanes=2)
    asks = [Ask(n, lane=n % 2) for n in range(4)]
    done, states = serve(InlineBackend(model, seed=1), model, asks)
    assert_equal(model, asks, expected(model, asks), done, states)
