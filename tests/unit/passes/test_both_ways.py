"""Writes that happen on both sides of a branch that data decides."""

from __future__ import annotations

import pytest

from tessera.ir.graph.access import AccessKind, Certainty
from tests.helpers.regions import region_intervals
from tests.helpers.traces import dependences, trace

BUFFERS = "buffer x bytes=4096 role=input\nbuffer y bytes=4096 role=output\n"
HEAD = """
.visible .entry k(.param .u64 y, .param .u64 x)
{
    .reg .pred %p<4>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [y];
    ld.param.u64 %rd2, [x];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 8;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.u32 %r2, [%rd5];
    setp.eq.s32 %p1, %r2, 0;
"""
BRANCH = "    @%p1 bra A;\n{first}\n    bra B;\nA:\n{second}\nB:\n    ret;\n}}\n"


def must(body: str) -> list[tuple[int, int]]:
    """The bytes of y that 64 threads must write."""
    steps = "launch m.k grid=1,1,1 block=64,1,1 args=[y, x]\n"
    node = dependences(trace(BUFFERS, HEAD + body, steps)).graph.nodes[0]
    found = [
        pair
        for access in node.accesses
        if access.kind is AccessKind.WRITE and access.certainty is Certainty.MUST
        for pair in region_intervals(access.region, 4096)
    ]
    return sorted(set(found))


PAIR = "st.global.v2.u32 [%rd4], {%r1, %r2};"
LOW, HIGH = "st.global.u32 [%rd4], %r1;", "st.global.u32 [%rd4+4], %r2;"
ALL, EVEN = [(0, 512)], [(8 * i, 8 * i + 4) for i in range(64)]


def test_the_same_store_on_both_sides() -> None:
    assert must(BRANCH.format(first=PAIR, second=PAIR)) == ALL


def test_bytes_that_one_side_leaves_out_are_not_certain() -> None:
    assert must(BRANCH.format(first=PAIR, second=LOW)) == EVEN
    assert must(BRANCH.format(first=PAIR, second="")) == []
    assert must(BRANCH.format(first=LOW, second=HIGH)) == []


def test_different_instructions_may_make_up_one_write() -> None:
    found = must(BRANCH.format(first=PAIR, second=f"{LOW} {HIGH}"))
    assert sum(end - start for start, end in found) == 512


def test_the_neighbours_bytes_do_not_count() -> None:
    """Thread 0 may write 8:16 and thread 1 0:8, or neither: what all sides cover is not enough."""
    other = "xor.b32 %r3, %r1, 1; mul.wide.u32 %rd3, %r3, 8; add.s64 %rd6, %rd1, %rd3;\n"
    swapped = other + "st.global.v2.u32 [%rd6], {%r1, %r2};"
    assert must(BRANCH.format(first=PAIR, second=swapped)) == []


@pytest.mark.parametrize("order", [0, 1])
def test_a_predicate_and_its_opposite(order: int) -> None:
    lines = [f"@%p1 {PAIR}", f"@!%p1 {PAIR}"]
    assert must("\n".join(lines[::-1] if order else lines) + "\nret;\n}\n") == ALL


def test_a_predicate_that_changed_is_another() -> None:
    assert must(f"@%p1 {PAIR}\nnot.pred %p1, %p1;\n@!%p1 {PAIR}\nret;\n}}\n") == []
    assert must(f"@%p1 {PAIR}\n@%p1 {PAIR}\nret;\n}}\n") == []


def test_sides_of_sides() -> None:
    inner = BRANCH.replace("A", "C").replace("B", "D").replace("    ret;\n}}\n", "")
    inner = "ld.global.u32 %r4, [%rd5+4]; setp.gt.s32 %p2, %r4, 3;\n" + inner.replace("%p1", "%p2")
    both = inner.format(first=PAIR, second=PAIR)
    assert must(BRANCH.format(first=both, second=PAIR)) == ALL
    one = inner.format(first=PAIR, second="")
    assert must(BRANCH.format(first=one, second=PAIR)) == []


def test_predicates_on_different_sides_do_not_meet() -> None:
    guard = "ld.global.u32 %r4, [%rd5+4]; setp.gt.s32 %p2, %r4, 3;\n"
    first, second = f"@%p2 {PAIR}", f"@!%p2 {PAIR}"
    assert must(guard + BRANCH.format(first=first, second=second)) == []


def test_a_loop_that_data_ends_proves_its_first_round_only() -> None:
    loop = f"""
L:
    {PAIR}
    add.s64 %rd4, %rd4, 1024;
    ld.global.u32 %r2, [%rd5];
    setp.ne.s32 %p2, %r2, 0;
    @%p2 bra L;
    ret;
}}
"""
    assert must(loop) == ALL


def test_leaving_early_on_data_proves_nothing_after_it() -> None:
    assert must(f"@%p1 ret;\n{PAIR}\nret;\n}}\n") == []
