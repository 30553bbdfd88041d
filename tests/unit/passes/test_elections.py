"""`elect.sync`: what happens whichever thread is elected."""

from __future__ import annotations

import pytest

from tessera.ir.graph.access import AccessKind, Certainty
from tests.helpers.regions import region_intervals
from tests.helpers.traces import dependences, trace

BUFFERS = "buffer x bytes=4096 role=input\nbuffer y bytes=4096 role=output\n"
HEAD = """
.visible .entry k(.param .u64 y, .param .u64 x)
{
    .reg .pred %p<6>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [y];
    ld.param.u64 %rd2, [x];
    mov.u32 %r1, %tid.x;
    shr.u32 %r2, %r1, 5;
    mul.wide.u32 %rd3, %r2, 64;
    add.s64 %rd4, %rd1, %rd3;
    mul.wide.u32 %rd5, %r1, 4;
    add.s64 %rd6, %rd1, %rd5;
"""
ELECT = "elect.sync %r3|%p1, 0xffffffff;\n"
STORE = "st.global.u32 [%rd4], %r1;"
WARPS = [(0, 4), (64, 68)]


def must(body: str, threads: int = 64) -> list[tuple[int, int]]:
    steps = f"launch m.k grid=1,1,1 block={threads},1,1 args=[y, x]\n"
    text = HEAD + body + "\nret;\n}\n"
    node = dependences(trace(BUFFERS, text, steps)).graph.nodes[0]
    assert [a.kind for a in node.accesses if a.kind is AccessKind.WRITE]
    found = [
        pair
        for access in node.accesses
        if access.kind is AccessKind.WRITE and access.certainty is Certainty.MUST
        for pair in region_intervals(access.region, 4096)
    ]
    return sorted(found)


@pytest.mark.parametrize(
    "body",
    [
        f"{ELECT}@%p1 {STORE}",
        f"{ELECT}@!%p1 bra E; {STORE} E:",
        f"{ELECT}selp.u32 %r4, 1, 0, %p1; setp.ne.u32 %p2, %r4, 0; @%p2 {STORE}",
        f"{ELECT}not.pred %p2, %p1; @!%p2 {STORE}",
        f"{ELECT}setp.lt.u32 %p2, %r1, 64; and.pred %p3, %p1, %p2; @%p3 {STORE}",
    ],
)
def test_one_thread_of_each_warp_stores(body: str) -> None:
    assert must(body) == WARPS


def test_a_last_warp_that_is_not_full() -> None:
    assert must(f"{ELECT}@%p1 {STORE}", 40) == WARPS


def test_only_the_first_warp() -> None:
    body = f"setp.lt.u32 %p2, %r1, 32;\n{ELECT}and.pred %p3, %p1, %p2; @%p3 {STORE}"
    assert must(body) == [(0, 4)]
    inside = f"setp.ge.u32 %p2, %r1, 32; @%p2 bra E;\n{ELECT}@%p1 {STORE} E:"
    assert must(inside) == [(0, 4)]


@pytest.mark.parametrize(
    "body",
    [
        # Each thread has an address of its own: it is not known whose is stored to.
        f"{ELECT}@%p1 st.global.u32 [%rd6], %r1;",
        # Only some threads go on, and the elected one may be another.
        f"{ELECT}and.b32 %r4, %r1, 31; setp.lt.u32 %p2, %r4, 16; and.pred %p3, %p1, %p2;"
        f"@%p3 {STORE}",
        # Not all threads take part.
        f"and.b32 %r4, %r1, 31; setp.lt.u32 %p2, %r4, 16; @%p2 bra E;\n{ELECT}@%p1 {STORE} E:",
        f"elect.sync %r3|%p1, 0xffff;\n@%p1 {STORE}",
        # Data decides too.
        f"{ELECT}ld.global.u32 %r4, [%rd2]; setp.eq.u32 %p2, %r4, 0; and.pred %p3, %p1, %p2;"
        f"@%p3 {STORE}",
        f"ld.global.u32 %r4, [%rd2]; setp.eq.u32 %p2, %r4, 0; @%p2 bra E;\n{ELECT}@%p1 {STORE} E:",
        # Two elections: they may elect different threads.
        f"{ELECT}elect.sync %r3|%p2, 0xffffffff;\nand.pred %p3, %p1, %p2; @%p3 {STORE}",
    ],
)
def test_what_is_not_certain(body: str) -> None:
    assert must(body) == []


def test_those_that_are_not_elected() -> None:
    """There are others, but in a warp of one thread there are none."""
    assert must(f"{ELECT}@!%p1 {STORE}") == []
