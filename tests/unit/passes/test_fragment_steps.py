"""What registers hold with regard to `wmma` fragments, after a few lines without branches."""

from __future__ import annotations

import pytest

from tessera.frontend.ptx.read_ptx import parse_module
from tessera.ir.ptx.flatten import flatten
from tessera.passes.kernel_facts.fragment_steps import (
    FragmentShape,
    FragmentSteps,
    FragmentValue,
    Holds,
    State,
    Use,
    fragment_shapes,
)

KERNEL = """.version 9.9
.target sm_90a
.address_size 64
.extern .func (.param .b32 back) takes(.param .b64 a);
.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 n)
{{
    .reg .pred %p<6>;
    .reg .b16 %h<9>;
    .reg .b32 %r<20>, %l<9>, %a<9>, %b<9>;
    .reg .b64 %d<20>;
    .reg .f32 %f<9>, %g<9>;
    .shared .align 32 .b8 sh[1024];
    .local .align 32 .b8 own[64];
    ld.param.u64 %d1, [x];
    ld.param.u32 %r9, [n];
    mov.u32 %l0, %tid.x;
    setp.eq.u32 %p1, %r9, 1;
    setp.eq.u32 %p2, %l0, 1;
    {body}
    ret;
}}
"""
F = "{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}"
H = "{%a0, %a1, %a2, %a3}"
LOAD = f"wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {F}, [%d1];"
LOAD_H = f"wmma.load.c.sync.aligned.row.m16n16k16.global.f16 {H}, [%d1];"
U, L, V, E, X = "UNIFORM", "LANE_ID", "VARYING", "FRAGMENT", "LAYOUT"


def after(body: str) -> tuple[State, list[Use]]:
    """What registers hold behind the lines, and the uses of the layout."""
    module = parse_module(KERNEL.format(body=body), "k.ptx")
    flat = flatten(module.definitions()["k"])
    steps, state, uses = FragmentSteps(flat), State(), list[Use]()
    for index in range(len(flat.instructions)):
        steps.step(index, state, FragmentValue(), uses)
    return state, uses


@pytest.mark.parametrize(
    ("line", "holds"),
    [
        ("mov.u32 %r1, %laneid;", L),
        ("mov.u32 %r1, %tid.x;", L),
        ("mov.u32 %r1, %tid.y;", U),
        ("mov.u32 %r1, %tid.z;", U),
        ("mov.u32 %r1, %ctaid.x;", U),
        ("mov.u32 %r1, %warpid;", U),
        ("mov.u32 %r1, WARP_SZ;", U),
        ("mov.u32 %r1, %lanemask_eq;", V),
        ("mov.u32 %r1, 7;", U),
        # The number of a lane plus something uniform.
        ("add.u32 %r1, %l0, %r9;", L),
        ("add.u32 %r1, %r9, %l0;", L),
        ("add.u32 %r1, %l0, %l0;", V),
        ("cvt.u64.u32 %r1, %l0;", L),
        ("mad.lo.u32 %r1, %r9, %r9, %l0;", L),
        ("mad.lo.u32 %r1, %l0, %r9, %r9;", V),
        ("mad.lo.u32 %r1, %r9, %l0, %r9;", V),
        ("sub.u32 %r1, %l0, %r9;", V),
        ("mul.lo.u32 %r1, %l0, 32;", V),
        ("shl.b32 %r1, %l0, 5;", V),
        ("shr.u32 %r1, %l0, 4;", V),
        ("shr.u32 %r1, %l0, 5;", U),
        ("shr.u32 %r1, %l0, 6;", U),
        ("shr.u32 %r1, %l0, %r9;", V),
        ("div.u32 %r1, %l0, 16;", V),
        ("div.u32 %r1, %l0, 31;", V),
        ("div.u32 %r1, %l0, 32;", U),
        ("div.u32 %r1, %l0, 33;", V),
        ("div.u32 %r1, %l0, 96;", U),
        ("and.b32 %r1, %l0, 31;", V),
        ("and.b32 %r1, %l0, 32;", U),
        ("and.b32 %r1, %l0, 33;", V),
        ("and.b32 %r1, %l0, 48;", V),
        ("or.b32 %r1, %l0, 32;", V),
        ("rem.u32 %r1, %l0, 32;", V),
        # What a warp hands around.
        ("shfl.sync.idx.b32 %r1, %l0, 3, 31, -1;", U),
        ("shfl.sync.idx.b32 %r1, %l0, %r9, 31, -1;", V),
        ("shfl.sync.idx.b32 %r1|%p3, %l0, 3, %r9, -1;", U),
        ("shfl.sync.up.b32 %r1, %l0, 3, 0, -1;", V),
        ("shfl.sync.bfly.b32 %r1, %l0, 3, 31, -1;", V),
        ("shfl.sync.up.b32 %r1, %r9, 3, 0, -1;", U),
        ("match.any.sync.b32 %r1, %l0, -1;", V),
        ("redux.sync.add.u32 %r1, %l0, -1;", U),
        ("vote.sync.ballot.b32 %r1, %p2, -1;", U),
        ("elect.sync %r1|%p3, -1;", V),
        ("movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r9;", V),
        # Loads from where all lanes, or each lane, look.
        ("ld.global.u32 %r1, [%d1];", U),
        ("cvt.u64.u32 %d2, %l0; ld.global.u32 %r1, [%d2];", V),
        ("cvt.u64.u32 %d2, %f0; ld.global.u32 %r1, [%d2];", E),
        ("mul.f32 %g0, %f0, %f1; cvt.u64.u32 %d2, %g0; ld.global.u32 %r1, [%d2];", X),
        ("atom.global.add.u32 %r1, [%d1], 1;", V),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [sh];", V),
        # Elements.
        ("mov.b32 %r1, %f0;", E),
        ("add.f32 %r1, %f0, 0f3F800000;", E),
        ("add.f32 %r1, %f0, %f0;", E),
        ("add.f32 %r1, %f0, %f1;", X),
        ("mul.lo.u32 %r1, %f0, %l0;", X),
        # Where a condition holds.
        ("@%p1 mov.b32 %r1, %f0;", E),
        ("@%p2 mov.b32 %r1, %f0;", X),
        ("@%p2 mov.b32 %r1, 5;", V),
        ("mov.u32 %r1, %l0; @%p1 mov.u32 %r1, 5;", L),
        ("mov.u32 %r1, %f0; @%p1 mov.u32 %r1, %f1;", X),
        # Memory of a thread's own.
        ("st.local.b32 [own+4], %f0; ld.local.b32 %r1, [own+4];", E),
        ("st.local.b32 [own+4], %f0; ld.local.b32 %r1, [own+8];", U),
        ("st.local.b32 [4], %f0; ld.local.b32 %r1, [8];", U),
        ("mov.b64 %d2, own; st.b32 [%d2+4], %f0; ld.b32 %r1, [%d2+4];", E),
        ("st.local.v2.b32 [own], {%r9, %f0}; ld.local.v2.b32 {%r2, %r1}, [own];", E),
        # Registers in parts.
        ("mov.b64 %r1, {%r9, %r9};", U),
        ("mov.b64 %r1, {%r9, %l0};", L),
        ("mov.b32 {%h0, %h1}, %a0; mov.b32 %r1, {%h0, %h1};", E),
        ("mov.b32 {%h0, %h1}, %a0; mov.b32 %r1, {%h1, %h0};", X),
        ("mov.b32 {%h0, %h1}, %a0; add.u16 %h0, %h0, 1; mov.b32 %r1, {%h0, %h1};", X),
        ("mov.b32 {%h0, %h1}, %a0; mov.b32 {%h2, %h3}, %a1; mov.b32 %r1, {%h0, %h3};", X),
        ("mov.b32 {%h0, %h1}, %a0; add.u16 %h0, %h0, 1; add.u16 %h1, %h1, 1;"
         "mov.b32 %r1, {%h0, %h1};", E),
    ],
)  # fmt: skip
def test_what_a_register_holds(line: str, holds: str) -> None:
    state, _ = after(f"{LOAD} {LOAD_H} {line}")
    assert state["%r1"].holds.name == holds


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("add.u32 %r1, %r9, 4;", "add.u32 %r2, %r9, 4;", True),
        ("add.u32 %r1, %r9, 4;", "add.u32 %r2, 4, %r9;", True),
        ("sub.u32 %r1, %r9, 4;", "sub.u32 %r2, 4, %r9;", False),
        ("add.u32 %r1, %r9, 4;", "add.u32 %r2, %r9, 5;", False),
        ("add.u32 %r1, %r9, 4;", "or.b32 %r2, %r9, 4;", False),
        ("mov.u32 %r1, %r9;", "@%p1 mov.u32 %r2, %r9;", False),
        # Where elements or lanes decide whether a value is written.
        ("mov.u32 %r1, 5; @%p2 mov.u32 %r1, 5;", "mov.u32 %r2, 5;", True),
        ("mov.u32 %r1, %f0; @%p2 mov.u32 %r1, %f0;", "mov.u32 %r2, %f0;", False),
        ("mov.u32 %r1, 5; @%p3 mov.u32 %r1, 5;", "mov.u32 %r2, 5;", False),
    ],
)
def test_equal_computations_have_one_recipe(first: str, second: str, is_same: bool) -> None:
    state, _ = after(f"{LOAD} setp.lt.f32 %p3, %f0, %f1; {first} {second}")
    assert (state["%r1"].recipe == state["%r2"].recipe) is is_same


@pytest.mark.parametrize(
    ("line", "used"),
    [
        ("st.global.f32 [%d1], %f0;", ["`st.global.f32` stores it"]),
        ("st.shared.f32 [sh], %f0;", ["`st.shared.f32` stores it"]),
        ("st.local.f32 [own], %f0;", []),
        ("mov.b64 %d2, own; st.f32 [%d2], %f0;", []),
        ("mov.b64 %d2, own; prefetch.L1 [%d2]; st.f32 [%d2], %f0;", []),
        # One of two places.
        ("mov.b64 %d2, own; @%p1 mov.b64 %d2, %d1; st.f32 [%d2], %f0;", ["`st.f32` stores it"]),
        ("mov.b64 %d2, %d1; @%p1 mov.b64 %d2, own; st.f32 [%d2], %f0;", ["`st.f32` stores it"]),
        ("st.global.f32 [%d1], %g0;", []),
        ("{ .param .b64 a; .param .b32 b; st.param.f32 [a], %f0; call (b), takes, (a); }",
         ["a call gets elements of one"]),
        ("{ .param .b64 a; .param .b32 b; st.param.f32 [a+4], %f0; call (b), takes, (a); }",
         ["a call gets elements of one"]),
        ("{ .param .b64 a, c; .param .b32 b; st.param.f32 [c], %f0; call (b), takes, (a); }", []),
        ("{ .param .b64 a; .param .b32 b; st.param.f32 [a], %g0; call (b), takes, (a); }", []),
        ("shfl.sync.up.b32 %r1, %f0, 3, 0, -1;", ["`shfl.sync.up.b32` hands it to other lanes"]),
        ("setp.lt.f32 %p3, %f0, 0f00000000; vote.sync.any.pred %p4, %p3, -1;", []),
        ("setp.lt.f32 %p3, %f0, 0f00000000; vote.sync.ballot.b32 %r1, %p3, -1;",
         ["`vote.sync.ballot.b32` hands it to other lanes"]),
        ("movmatrix.sync.aligned.m8n8.trans.b16 %r1, %f0;",
         ["`movmatrix.sync.aligned.m8n8.trans.b16` takes its registers in an order of its own"]),
        (f"wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%d1], {F};", []),
        (f"wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%d1], {F};".replace("%f7", "%f6"),
         ["`wmma.store.d.sync.aligned.row.m16n16k16.global.f32` takes elements of another"
          " fragment, or in another order"]),
        # A form of a later ISA has no known shapes.
        (f"wmma.load._odd {F}, [%d1];", []),
        (f"wmma.store._odd [%d1], {F};", []),
    ],
)  # fmt: skip
def test_uses_of_the_layout(line: str, used: list[str]) -> None:
    assert [how for _, how in after(f"{LOAD} {line}")[1]] == used


def accumulator(type_name: str) -> FragmentShape:
    return FragmentShape("accumulator", "", "m16n16k16", type_name)


HEAD = ("sync", "aligned")
MMA = ("mma", *HEAD, "row", "col", "m16n16k16")


def factors(first: str, second: str) -> tuple[FragmentShape, FragmentShape]:
    return (
        FragmentShape("a", "row", "m16n16k16", first),
        FragmentShape("b", "col", "m16n16k16", second),
    )


@pytest.mark.parametrize(
    ("modifiers", "shapes"),
    [
        (("load", "a", *HEAD, "row", "m16n16k16", "global", "f16"),
         (FragmentShape("a", "row", "m16n16k16", "f16"),)),
        (("load", "b", *HEAD, "col", "m8n32k16", "s8"),
         (FragmentShape("b", "col", "m8n32k16", "s8"),)),
        (("load", "c", *HEAD, "row", "m16n16k16", "f32"), (accumulator("f32"),)),
        (("store", "d", *HEAD, "row", "m16n16k16", "shared", "f16"), (accumulator("f16"),)),
        (("load", "c", *HEAD, "row", "m16n16k16"), (accumulator(""),)),
        ((*MMA, "f32", "f16"), (accumulator("f32"), *factors("f16", "f16"), accumulator("f16"))),
        ((*MMA, "f32", "bf16", "tf32", "f16"),
         (accumulator("f32"), *factors("bf16", "tf32"), accumulator("f16"))),
        ((*MMA, "s32", "s8", "u4"), (accumulator("s32"), *factors("f16", "f16"),
                                     accumulator("u4"))),
        ((*MMA, "s32", "u8", "s8", "s32", "satfinite"),
         (accumulator("s32"), *factors("u8", "s8"), accumulator("s32"))),
        ((*MMA, "f32"), ()),
        (MMA, ()),
        (("mma", *HEAD, "row", "m16n16k16", "f32", "f32"), ()),
        (("mma", *HEAD, "row", "col", "f32", "f32"), ()),
        (("load", "c", *HEAD, "m16n16k16", "f32"), ()),
        (("load", "a", *HEAD, "row", "f16"), ()),
    ],
)  # fmt: skip
def test_shapes_of_fragments(modifiers: tuple[str, ...], shapes: tuple[FragmentShape, ...]) -> None:
    assert fragment_shapes(modifiers) == shapes


def test_an_unknown_load_makes_a_fragment_without_a_shape() -> None:
    state, _ = after(f"wmma.load._odd {F}, [%d1];")
    assert state["%f2"].holds is Holds.FRAGMENT
    assert state["%f2"].shape is None
