"""Pointers that go to other threads in halves: followed where they are put together again."""

from __future__ import annotations

from itertools import product

import pytest

from tessera.ir.graph.access import AddressClass
from tests.helpers.pointer_cases import analysed, checked, kernel, trace

BUFFERS = "\n".join(f"//! buffer b{i} bytes=8192 role=state" for i in range(3))
# An address with an index from memory in it, and the thread: %d1. The index: %d3.
INDEXED = """
  ld.global.u32 %r0, [%p2];
  mul.wide.u32 %d0, %r0, 256;
  add.s64 %d1, %p0, %d0;
  add.s64 %d1, %d1, %o;
"""
CUTS = {
    "mov": "mov.b64 {%r1, %r2}, %d1;",
    "cvt": "mov.b64 {_, %r2}, %d1; cvt.u32.u64 %r1, %d1;",
    "shr": "and.b64 %d8, %d1, 4294967295; cvt.u32.u64 %r1, %d8;"
    " shr.u64 %d9, %d1, 32; cvt.u32.u64 %r2, %d9;",
}
MOVES = {
    "idx": "xor.b32 %r9, %t, 1; shfl.sync.idx.b32 %r3, %r1, %r9, 31, -1;"
    " shfl.sync.idx.b32 %r4, %r2, %r9, 31, -1;",
    "bfly": "shfl.sync.bfly.b32 %r3, %r1, 5, 31, -1; shfl.sync.bfly.b32 %r4, %r2, 5, 31, -1;",
    "down": "shfl.sync.down.b32 %r3, %r1, 3, 31, -1; shfl.sync.down.b32 %r4, %r2, 3, 31, -1;",
    "by data": "ld.global.u32 %r9, [%p2+4]; shfl.sync.idx.b32 %r3, %r1, %r9, 31, -1;"
    " shfl.sync.idx.b32 %r4, %r2, %r9, 31, -1;",
    "twice": "shfl.sync.bfly.b32 %r5, %r1, 1, 31, -1; shfl.sync.bfly.b32 %r6, %r2, 1, 31, -1;"
    " shfl.sync.up.b32 %r3, %r5, 2, 0, -1; shfl.sync.up.b32 %r4, %r6, 2, 0, -1;",
    "none": "mov.b32 %r3, %r1; mov.b32 %r4, %r2;",
}
JOINS = {
    "mov": "mov.b64 %d2, {%r3, %r4};",
    "or": "cvt.u64.u32 %d4, %r3; cvt.u64.u32 %d5, %r4; shl.b64 %d6, %d5, 32; or.b64 %d2, %d4, %d6;",
    "add": "cvt.u64.u32 %d4, %r3; cvt.u64.u32 %d5, %r4; shl.b64 %d6, %d5, 32;"
    " add.s64 %d2, %d6, %d4;",
    "bfi": "cvt.u64.u32 %d4, %r3; cvt.u64.u32 %d5, %r4; bfi.b64 %d2, %d5, %d4, 32, 32;",
}
STORE = "\n  st.global.u32 [%d2], %t;"


def of(body: str, *, grid: int = 1, threads: int = 32) -> str:
    launch = f"//! launch m.k grid={grid},1,1 block={threads},1,1 args=[b0, b1, b2]"
    return trace(BUFFERS, kernel("k", 3, body), [launch])


FORMS = [
    *(
        (cut, move, list(JOINS)[number % 4])
        for number, (cut, move) in enumerate(product(CUTS, MOVES))
    ),
    *(("mov", "idx", join) for join in JOINS),
]


@pytest.mark.parametrize(("cut", "move", "join"), FORMS)
def test_a_pointer_with_an_index_in_it_is_put_together(cut: str, move: str, join: str) -> None:
    text = of(INDEXED + "  ".join((CUTS[cut], MOVES[move], JOINS[join])) + STORE)
    (step,) = analysed(text)
    assert step.pins == ()
    (write,) = (access for access in step.accesses if access.text.startswith("st."))
    assert (write.buffer, write.address) == (0, AddressClass.INDEXED)
    if cut == "mov":  # what the CPU backend touches lies in the regions
        checked(text, fills=(0, 7))


def test_values_go_with_their_threads() -> None:
    """Half of the threads have a pointer into one buffer, half into another one."""
    body = (
        INDEXED
        + """
  add.s64 %d7, %p1, %d0;
  add.s64 %d7, %d7, %o;
  setp.lt.u32 %c0, %t, 16;
  selp.b64 %d1, %d1, %d7, %c0;
"""
    )
    (low, high) = (
        body + CUTS["mov"] + MOVES["bfly"].replace("5", "16") + JOINS["or"] + end
        for end in ("\n  @%c0 st.global.u32 [%d2], %t;", "\n  @!%c0 st.global.u32 [%d2], %t;")
    )
    for text, buffer in ((of(low), 1), (of(high), 0)):
        (step,) = analysed(text)
        assert step.pins == ()
        assert {a.buffer for a in step.accesses if a.text.startswith("st.")} == {buffer}
        checked(text, fills=(0, 5))


def test_halves_that_are_chosen_alike_stay_together() -> None:
    body = (
        INDEXED
        + """
  add.s64 %d7, %d1, 128;
  setp.lt.u32 %c0, %t, 16;
  mov.b64 {%r10, %r11}, %d7;
"""
    )
    alike = "selp.b32 %r3, %r1, %r10, %c0; selp.b32 %r4, %r2, %r11, %c0;"
    (step,) = analysed(of(body + CUTS["cvt"] + alike + JOINS["or"] + STORE))
    assert step.pins == ()
    checked(of(body + CUTS["cvt"] + alike + JOINS["or"] + STORE), fills=(0, 5))


@pytest.mark.parametrize(
    "body",
    [
        # Halves of two pointers.
        "add.s64 %d7, %p1, %d0; mov.b64 {%r10, %r4}, %d7; mov.b64 {%r3, %r11}, %d1;",
        # From two threads.
        "mov.b64 {%r1, %r2}, %d1; shfl.sync.bfly.b32 %r3, %r1, 1, 31, -1;"
        " shfl.sync.bfly.b32 %r4, %r2, 2, 31, -1;",
        # One of them is moved, or changed.
        "mov.b64 {%r1, %r4}, %d1; shfl.sync.bfly.b32 %r3, %r1, 1, 31, -1;",
        "mov.b64 {%r3, %r4}, %d1; add.s32 %r3, %r3, 4;",
        # The wrong way round.
        "mov.b64 {%r4, %r3}, %d1;",
        # Chosen differently.
        "add.s64 %d7, %p1, %d0; mov.b64 {%r1, %r2}, %d1; mov.b64 {%r10, %r11}, %d7;"
        " setp.lt.u32 %c0, %t, 16; setp.lt.u32 %c1, %t, 8;"
        " selp.b32 %r3, %r1, %r10, %c0; selp.b32 %r4, %r2, %r11, %c1;",
        # Not in all threads.
        "mov.b64 {%r3, %r4}, %d1; add.s64 %d7, %p1, %d0; mov.b64 {%r10, %r11}, %d7;"
        " setp.lt.u32 %c0, %t, 16; @%c0 mov.b32 %r3, %r10;",
        # With a sign, and saturated.
        "mov.b64 {_, %r4}, %d1; cvt.sat.u32.u64 %r3, %d1;",
    ],
)
@pytest.mark.parametrize("join", ["mov", "or"])
def test_other_halves_point_anywhere(body: str, join: str) -> None:
    (step,) = analysed(of(INDEXED + body + JOINS[join] + STORE))
    assert step.pins != ()


BY_THREAD = {
    "and": "mov.u64 %d8, 4294967295; sub.s64 %d8, %d8, %o; and.b64 %d9, %d1, %d8;"
    " cvt.u32.u64 %r3, %d9;" + JOINS["mov"],
    "shr": "shr.u64 %d9, %d1, %r8; cvt.u32.u64 %r4, %d9;" + JOINS["mov"],
    "shl": JOINS["or"].replace("%d5, 32;", "%d5, %r8;"),
    "bfi at": JOINS["bfi"].replace("32, 32;", "%r8, 32;"),
    "bfi of": JOINS["bfi"].replace("32, 32;", "32, %r8;"),
}


@pytest.mark.parametrize("body", BY_THREAD.values(), ids=list(BY_THREAD))
def test_what_only_some_threads_put_together_is_no_half(body: str) -> None:
    """The number that has to be 32, or the mask, is another one in all threads but the first."""
    text = of(f"{INDEXED} mov.b64 {{%r3, %r4}}, %d1; sub.u32 %r8, 32, %t; {body} {STORE}")
    (step,) = analysed(text)
    assert step.pins != ()
    (step,) = analysed(text.replace("32, %t;", "32, 0;").replace("%d8, %d8, %o;", "%d8, %d8, 0;"))
    assert step.pins == ()


def test_a_sign_is_no_half() -> None:
    body = "mov.b64 {%r3, %r4}, %d1; cvt.s64.s32 %d4, %r3; cvt.u64.u32 %d5, %r4;"
    end = " shl.b64 %d6, %d5, 32; or.b64 %d2, %d4, %d6;"
    (step,) = analysed(of(INDEXED + body + end + STORE))
    assert step.pins != ()


@pytest.mark.parametrize("data", ["", "ld.global.u32 %r20, [%p2];"])
def test_halves_of_an_earlier_round_are_not_those_of_this_one(data: str) -> None:
    """Each round stores to what the round before it has taken apart."""
    body = f"""{INDEXED}
  add.s64 %d10, %p1, %d0;
  add.s64 %d10, %d10, %o;
  mov.u32 %r20, 4;
  {data}
  mov.u32 %r21, 0;
  {CUTS["mov"]}
LOOP:
  mov.b64 %d2, {{%r1, %r2}};
  st.global.u32 [%d2], %t;
  mov.b64 {{%r1, %r2}}, %d10;
  add.u32 %r21, %r21, 1;
  setp.lt.u32 %c0, %r21, %r20;
  @%c0 bra LOOP;
"""
    checked(of(body), fills=(0, 3))
    (step,) = analysed(of(body))
    assert step.pins or {a.buffer for a in step.accesses if a.text.startswith("st.")} == {0, 1}


@pytest.mark.parametrize("condition", ["%t, 16", "%r0, 2"])
def test_halves_of_two_sides_of_a_branch(condition: str) -> None:
    body = f"""{INDEXED}
  add.s64 %d10, %p1, %d0;
  add.s64 %d10, %d10, %o;
  {CUTS["mov"]}
  setp.lt.u32 %c0, {condition};
  @%c0 bra JOIN;
  mov.b64 {{%r1, %r2}}, %d10;
JOIN:
  mov.b64 %d2, {{%r1, %r2}};
  st.global.u32 [%d2], %t;
"""
    checked(of(body), fills=(0, 3))
    (step,) = analysed(of(body))
    assert step.pins or {a.buffer for a in step.accesses if a.text.startswith("st.")} == {0, 1}


def test_the_number_of_blocks_does_not_matter() -> None:
    """As a scatter of torch.compile has it: addresses grow with the block."""
    body = (
        INDEXED
        + """
  mov.u32 %r30, %ctaid.x;
  mul.wide.u32 %d11, %r30, 32;
  add.s64 %d1, %d1, %d11;
"""
    )
    (step,) = analysed(of(body + CUTS["cvt"] + MOVES["idx"] + JOINS["or"] + STORE, grid=65536))
    assert step.pins == ()
    checked(of(body + CUTS["cvt"] + MOVES["idx"] + JOINS["or"] + STORE, grid=3), fills=(0, 2))


def test_a_pointer_of_any_thread_may_be_that_of_the_last() -> None:
    """Also where only the first thread, whose own is the lowest, stores through it."""
    body = INDEXED + CUTS["mov"] + MOVES["by data"] + JOINS["mov"]
    guarded = " setp.eq.u32 %c0, %t, 0; @%c0 st.global.u32 [%d2], %t;"
    for grid in (1, 3):
        (step,) = checked(of(body + guarded, grid=grid), fills=(0, 5, 31))
        assert step.pins == ()
