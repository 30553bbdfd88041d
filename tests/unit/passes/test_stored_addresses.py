"""Addresses that are stored as data: which results they may get into."""

from __future__ import annotations

import pytest

from tessera.passes.dependences.pointer_words import moved_words
from tessera.passes.dependences.stored_addresses import stored_addresses
from tests.helpers.traces import COPY, HEADER, dependences, trace

KERNELS = (
    COPY
    + """
.visible .entry store(.param .u64 y, .param .u64 x)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [y];
    ld.param.u64 %rd2, [x];
    add.s64 %rd3, %rd2, 16;
    mov.b64 {%r1, %r2}, %rd3;
    st.global.u32 [%rd1], %r1;
    st.global.u32 [%rd1+4], %r2;
    ret;
}
.visible .entry spill(.param .u64 y, .param .u64 x)
{
    .local .align 8 .b8 stack[8];
    .reg .b32 %r<3>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [y];
    ld.param.u64 %rd2, [x];
    st.local.u64 [stack], %rd2;
    ld.local.u64 %rd3, [stack];
    st.global.u32 [%rd1], 5;
    ret;
}
.visible .entry both(.param .u64 y, .param .u64 x)
{
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [y];
    ld.param.u64 %rd2, [x];
    st.global.u64 [%rd1], %rd2;
    st.global.u64 [%rd1+8], 5;
    ret;
}
.visible .entry follow(.param .u64 y, .param .u64 table)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [y];
    ld.param.u64 %rd2, [table];
    ld.global.u64 %rd3, [%rd2];
    ld.global.u32 %r1, [%rd3];
    st.global.u32 [%rd1], %r1;
    ret;
}
"""
)
BUFFERS = """
buffer x bytes=64 role=input
buffer t bytes=64 role=temp
buffer s bytes=64 role=state
buffer y bytes=64 role=output
pointers s @{0:x}
"""
STORE = "launch m.store grid=1,1,1 block=1,1,1 args="
COPY_ON = "launch m.copy grid=1,1,1 block=16,1,1 args="


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (f"{STORE}[y, x]", "`m.store` stores an address as data, which may get into output `y`"),
        (f"{STORE}[s+8, x]", "may get into state `s`"),
        (f"{STORE}[t, x]\nmemcpy y t bytes=8", "may get into output `y`"),
        (f"{STORE}[t, x]\n{COPY_ON}[s+16, t, u32:2]", "may get into state `s`"),
        ("memcpy y s bytes=16", "`memcpy` copies an address as data"),
    ],
)
def test_an_address_in_a_result(steps: str, said: str) -> None:
    program = trace(BUFFERS, KERNELS, steps)
    found = stored_addresses(program, dependences(program).graph)
    assert found
    assert {one.code for one in found} == {"TSR2015"}
    assert all(said in str(one.headline) for one in found)


@pytest.mark.parametrize(
    "steps",
    [
        f"{STORE}[t, x]\nmemcpy y t+8 bytes=8",  # other bytes
        f"{STORE}[t, x]\nmemcpy y t+8 bytes=8".replace("store", "both"),  # of the same launch
        f"{STORE}[t, x]\nlaunch m.follow grid=1,1,1 block=1,1,1 args=[y, t]",  # used as an address
        f"{STORE}[s, x]",  # a word that is declared
        f"{STORE}[y, u64:1234]",  # a number
        "launch m.spill grid=1,1,1 block=1,1,1 args=[y, x]",  # into memory of the thread's own
        "memcpy y s+8 bytes=16",
        f"{STORE}[t, x]\nmemset t bytes=64 value=0\nmemcpy y t bytes=8",
    ],
)
def test_no_address_in_a_result(steps: str) -> None:
    program = trace(BUFFERS, KERNELS, steps)
    assert stored_addresses(program, dependences(program).graph) == ()


@pytest.mark.parametrize(
    ("step", "moved"),
    [
        ("memset s bytes=4 value=0", ["s"]),
        ("memset s+8 bytes=8 value=0", []),
        ("memset w bytes=8 value=0", []),  # of one request
    ],
)
def test_words_of_states_that_are_moved(step: str, moved: list[str]) -> None:
    words = "buffer w bytes=8 role=temp\npointers w @{0:x}\n"
    program = trace(BUFFERS + words, KERNELS, step)
    found = moved_words(program, dependences(program).graph)
    assert [buffer.name for _, buffer in found] == moved


KEEP = """
.visible .entry keep(.param .u64 x, .param .u64 y, .param .u64 t)
{
    .shared .align 16 .b8 sh[64];
    .local .align 16 .b8 own[64];
    .reg .b64 %d<9>;
    ld.param.u64 %d1, [x];
    ld.param.u64 %d2, [y];
    ld.param.u64 %d3, [t];
    sub.u64 %d4, %d2, %d1;
    mov.u64 %d6, own;
    cvta.local.u64 %d6, %d6;
    LINES
    ret;
}
.visible .entry move(.param .u64 x, .param .u64 t)
{
    .reg .b64 %d<9>;
    ld.param.u64 %d1, [x];
    ld.param.u64 %d3, [t];
    ld.global.u64 %d4, [%d3];
    add.u64 %d5, %d4, %d1;
    st.global.u32 [%d5], 7;
    ret;
}
"""
BULK = "cp.async.bulk.global.shared::cta.bulk_group [%d3], [sh], 64;"


@pytest.mark.parametrize(
    ("lines", "is_kept"),
    [
        ("st.global.u64 [%d3], %d4;", True),
        ("st.global.u64 [%d3], 5;", False),
        ("st.u64 [%d6], %d4; ld.local.u64 %d5, [own]; st.global.u64 [%d3], %d5;", True),
        ("st.local.u64 [own], %d4; ld.u64 %d5, [%d6]; st.global.u64 [%d3], %d5;", True),
        ("st.global.u64 [%d1], %d4; ld.global.u64 %d5, [%d1]; st.global.u64 [%d3], %d5;", True),
        ("st.local.u64 [own], 5; ld.u64 %d5, [%d6]; st.global.u64 [%d3], %d5;", False),
        (f"st.shared.u64 [sh], %d4; {BULK}", True),
        (f"st.shared.u64 [sh], 5; {BULK}", False),
        ("_odd.u64 %d5, %d4; st.global.u64 [%d3], %d5;", True),
        ("_odd.u64 [%d3], %d4;", True),
    ],
)
def test_the_distance_of_two_buffers_leads_a_later_launch_into_the_other(
    lines: str, is_kept: bool
) -> None:
    buffers = "".join(
        f"buffer {name} bytes=4096 role={role}\n"
        for name, role in (("x", "input"), ("y", "output"), ("t", "temp"))
    )
    steps = (
        "launch m.keep grid=1,1,1 block=32,1,1 args=[x, y, t]\n"
        "launch m.move grid=1,1,1 block=32,1,1 args=[x, t]\n"
    )
    header = HEADER.replace("8.0", "8.6").replace("80", "90")
    program = trace(buffers, KEEP.replace("LINES", lines), steps, header)
    node = dependences(program).graph.nodes[1]
    names = {program.buffers[a.buffer].name for a in node.accesses if a.kind.writes}
    assert names == ({"x", "y", "t"} if is_kept else {"x"})
