"""Facts of kernels that decide which numbers count as addresses, on the smallest code that shows
them: words that reach addresses or are stored, functions that load addresses, shared memory."""

from __future__ import annotations

import pytest

from tessera.frontend.ptx.read_ptx import parse_module
from tessera.ir.graph.access import NeedKind
from tessera.ir.opcodes import meaning_of
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.control_flow import build_control_flow
from tessera.ir.ptx.flatten import FlatFunction
from tessera.passes.kernel_facts.base_words import base_words, stored_words
from tessera.passes.kernel_facts.call_graph import _loads_pointers
from tessera.passes.kernel_facts.hidden_addresses import HiddenAddresses, hidden_addresses
from tessera.passes.kernel_facts.inline_calls import inline_calls
from tessera.passes.kernel_facts.kernel_code import prepare_kernel
from tessera.passes.kernel_facts.kernel_needs import kernel_needs
from tessera.passes.kernel_facts.shared_use import is_copy_wait, shared_steps, shared_use

KERNEL = """.version 8.6
.target sm_90a
.address_size 64
.global .align 16 .b8 held[64];
.extern .func takes(.param .b64 a);
.visible .entry k(.param .u64 y, .param .u64 x, .param .u32 n)
{{
    .reg .pred %p<4>;
    .reg .b32 %r<20>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<20>;
    .reg .f64 %fd<4>;
    .reg .b128 %q<2>;
    .shared .align 16 .b8 sh[512];
    .local .align 16 .b8 own[64];
    ld.param.u64 %rd1, [y];
    ld.param.u32 %r9, [n];
    {body}
    ret;
}}
"""
TENSOR = "shared::cluster.global.tile.mbarrier::complete_tx::bytes"


def of(body: str) -> tuple[ptx.Module, ptx.Function, FlatFunction]:
    module = parse_module(KERNEL.format(body=body), "k.ptx")
    function = module.definitions()["k"]
    return module, function, inline_calls(module, function)


@pytest.mark.parametrize(
    ("body", "is_base"),
    [
        ("ld.param.u64 %rd2, [x]; ld.global.u32 %r1, [%rd2];", True),
        ("ld.param.f64 %fd1, [x]; mov.b64 %rd2, %fd1; ld.global.u32 %r1, [%rd2];", True),
        ("ld.param.u64 %rd3, [x]; mov.f64 %fd1, %rd3; mov.b64 %rd2, %fd1; st.u32 [%rd2], 0;", True),
        ("ld.param.f64 %fd1, [x]; st.local.f64 [%rd1], %fd1;", True),
        ("ld.param.u64 %rd3, [x]; cvt.rn.f64.u64 %fd1, %rd3; st.global.f64 [%rd1], %fd1;", False),
        ("ld.param.f64 %fd1, [x]; add.f64 %fd2, %fd1, %fd1; st.global.f64 [%rd1], %fd2;", False),
        ("ld.param.u64 %rd3, [x]; mul.lo.u64 %rd2, %rd3, 4; ld.global.u32 %r1, [%rd2];", False),
        ("tex.1d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [x, {%r1}];", False),
    ],
)
def test_words_that_reach_addresses(body: str, is_base: bool) -> None:
    module, function, _ = of(body)
    assert (base_words(module, function)["x"] == frozenset({0})) is is_base


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        ("ld.param.u64 %rd2, [x]; st.global.u64 [%rd1], %rd2;", {("x", 0)}),
        (
            "ld.param.v2.u32 {%r1, %r2}, [x]; st.global.v2.u32 [%rd1], {%r1, %r2};",
            {("x", 0), ("x", 4)},
        ),
        ("ld.param.u32 %r1, [x+4]; st.global.u32 [%rd1], %r1;", {("x", 4)}),
        ("st.global.u32 [%rd1], %r9;", set()),
        ("ld.param.u64 %rd2, [x]; cvt.u32.u64 %r1, %rd2; st.u32 [%rd1], %r1;", {("x", 0)}),
        (
            "ld.param.u64 %rd2, [x]; { .param .b64 a; st.param.b64 [a], %rd2; call takes, (a); }",
            {("x", 0)},
        ),
    ],
)
def test_words_that_are_stored(body: str, stored: set[tuple[str, int]]) -> None:
    module, function, _ = of(body)
    assert {word for _, words in stored_words(module, function) for word in words} == stored


@pytest.mark.parametrize(
    ("body", "valued"),
    [
        ("mul.wide.u32 %rd3, %r9, 4; add.s64 %rd4, %rd2, %rd3; ld.global.u32 %r1, [%rd4];", set()),
        ("mad.wide.u32 %rd4, %r9, 4, %rd2; ld.global.u32 %r1, [%rd4];", set()),
        ("add.s64 %rd4, %rd2, %rd1; ld.global.u32 %r1, [%rd4];", {"x", "y"}),
        ("sub.s64 %rd4, %rd1, %rd2; st.global.u64 [%rd1], %rd4;", {"x", "y"}),
    ],
)
def test_parameters_that_are_more_than_bases(body: str, valued: set[str]) -> None:
    module, function, _ = of(f"ld.param.u64 %rd2, [x]; {body}")
    assert prepare_kernel(module, function).valued_parameters - {"n"} == valued


@pytest.mark.parametrize(
    ("body", "loads"),
    [
        ("ld.global.u32 %r1, [%rd1];", False),
        ("ld.global.u32 %r1, [%rd1]; add.s32 %r2, %r1, 4; st.global.u32 [%rd1], %r2;", False),
        ("ld.global.u64 %rd2, [%rd1];", True),
        ("ld.global.v2.u32 {%r1, %r2}, [%rd1]; mov.b64 %rd2, {%r1, %r2};", True),
        ("ld.global.u32 %r1, [%rd1]; cvt.u64.u32 %rd2, %r1; or.b64 %rd3, %rd2, %rd1;", True),
        ("ld.global.u32 %r1, [%rd1]; cvt.u64.u32 %rd2, %r1; xor.b64 %rd3, %rd2, %rd1;", True),
        ("cvt.u64.u32 %rd2, %r9; bfi.b64 %rd3, %rd2, %rd1, 32, 32;", True),
        ("or.b32 %r1, %r9, 5; xor.b32 %r2, %r1, 1; bfi.b32 %r3, %r1, %r2, 4, 4;", False),
        ("mov.b64 {%r1, %r2}, %rd1;", False),
        ("ld.shared.u64 %rd2, [sh];", True),
        ("ld.shared.u32 %r1, [sh];", False),
        ("_odd.b32 %r1, 5;", True),
        (f"cp.async.bulk.tensor.1d.{TENSOR} [sh], [%rd1, {{%r1}}], [sh];", True),
        ("tex.1d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [x, {%r1}];", True),
    ],
)
def test_code_that_may_load_an_address(body: str, loads: bool) -> None:
    assert _loads_pointers(of(body)[2]) is loads


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        ("cp.async.commit_group;", True),
        ("cp.async.wait_group 0;", True),
        ("cp.async.wait_all;", True),
        ("cp.async.bulk.commit_group;", False),
        ("cp.async.bulk.wait_group.read 0;", False),
        ("wgmma.commit_group.sync.aligned;", False),
        ("wgmma.wait_group.sync.aligned 0;", False),
        ("cp.async.ca.shared.global [sh], [%rd1], 4;", False),
        ("bar.sync 0;", False),
    ],
)
def test_only_waits_for_copies_of_a_thread_wait_for_them(text: str, waits: bool) -> None:
    flat = of(text)[2]
    assert [is_copy_wait(i) for i in flat.instructions if i.opcode.name not in ("ld", "ret")] == [
        waits
    ]


# Where an address comes from is written behind what is done with it: a second round finds it.
ROUND = """
    mov.u32 %r2, %r9;
L:
    DONE
    mov.u32 %r4, %r2;
    mov.u32 %r2, %r3;
    mov.u32 %r3, sh;
    setp.lt.u32 %p1, %r9, 9;
    @%p1 bra L;
    ld.shared.u32 %r7, [%r5];
"""


@pytest.mark.parametrize(
    ("done", "is_plain"),
    [
        ("add.u32 %r5, %r4, 4;", True),
        ("xor.b32 %r5, %r4, 4;", True),
        ("xor.b32 %r5, %r4, 16;", False),
        ("shr.u32 %r5, %r4, 4;", False),
        ("sub.u32 %r5, %r9, %r4;", False),
    ],
)
def test_shared_addresses_are_followed_round_after_round(done: str, is_plain: bool) -> None:
    module, _, flat = of(ROUND.replace("DONE", done))
    meanings = [meaning_of(instruction) for instruction in flat.instructions]
    assert all(meanings)
    known = [meaning for meaning in meanings if meaning is not None]
    needed = {register.name for register in flat.registers}
    use = shared_use(module, flat, known, needed, shared_steps(flat, known))
    assert use.is_plain is is_plain


Y, X, NONE = 0, 8, -1
FROM_Y = "cvt.rn.f64.u64 %fd1, %rd2; cvt.rzi.u64.f64 %rd8, %fd1;"


@pytest.mark.parametrize(
    ("body", "hides"),
    [
        # The result in %rd8 hides the parameters at these offsets; a variable's address always.
        (f"mov.u64 %rd2, %rd1; {FROM_Y}", {Y}),
        (f"ld.param.u64 %rd2, [x]; {FROM_Y}", {X}),
        (f"mov.u64 %rd2, held; {FROM_Y}", {NONE, Y, X}),
        (f"mov.u64 %rd2, own; {FROM_Y}", {NONE, Y, X}),
        (f"cvt.u64.u32 %rd2, %r9; {FROM_Y}", set()),
        (f"mov.b64 %rd3, y; ld.param.u64 %rd2, [%rd3]; {FROM_Y}", {Y, X}),
        (f"mov.b64 %rd3, x; ld.param.u64 %rd2, [%rd3]; {FROM_Y}", {X, Y}),
        (f"st.local.u64 [own], %rd1; ld.local.u64 %rd2, [own]; {FROM_Y}", {Y}),
        (f"st.shared.u64 [sh], %rd1; ld.shared.u64 %rd2, [sh]; {FROM_Y}", {Y}),
        ("ld.param.u64 %rd2, [x]; sub.s64 %rd8, %rd1, %rd2;", {X, Y}),
        ("ld.param.u64 %rd2, [x]; add.s64 %rd8, %rd1, 16;", set()),
        ("ld.param.u64 %rd2, [x]; sub.s64 %rd8, %rd9, %rd2;", {X}),
        ("ld.param.u64 %rd2, [x]; mad.lo.s64 %rd8, %rd9, 8, %rd2;", set()),
        ("ld.param.u64 %rd2, [x]; mad.lo.s64 %rd8, %rd2, 8, %rd9;", {X}),
        ("add.cc.u64 %rd8, %rd1, %rd9;", {Y}),
        ("and.b64 %rd8, %rd1, -16;", set()),
        ("and.b64 %rd8, %rd1, 255;", set()),
        ("and.b64 %rd8, %rd1, 256;", {Y}),
        ("and.b64 %rd8, %rd1, -512;", {Y}),
        ("shr.u64 %rd8, %rd1, 32;", {Y}),
        ("min.u64 %rd8, %rd1, %rd9;", set()),
        ("selp.b64 %rd8, %rd1, %rd9, %p1;", set()),
        ("mov.b64 {%r1, %r2}, %rd1; mov.b64 %rd8, {%r1, %r2};", {Y}),
        ("ld.param.u32 %r1, [x+4]; cvt.u64.u32 %rd8, %r1;", {X}),
        ("cvt.s64.u64 %rd8, %rd1;", set()),
        ("cvt.u64.u32 %rd8, %r9;", set()),
        ("atom.global.exch.b64 %rd8, [%rd1], %rd9;", set()),
    ],
)
def test_results_that_hide_an_address(body: str, hides: set[int]) -> None:
    module, _, flat = of(body)
    meanings = [meaning_of(i) for i in flat.instructions]
    found = hidden_addresses(module, flat, [m for m in meanings if m is not None])
    (place,) = (
        place
        for place, i in enumerate(flat.instructions)
        if i.operands and isinstance(i.operands[0], ptx.Name) and i.operands[0].name == "%rd8"
    )
    offsets = {"y": 0, "x": 8, "n": 16}
    pointers = {Y: (Y,), X: (X,), NONE: ()}
    assert hides == {
        at
        for at, given in pointers.items()
        if place in found.where(offsets, given, has_tables=False)
    }
    if not found.results:
        return
    # A word that begins or ends inside a pointer counts, one beside it does not.
    one = next(at for at in (Y, X) if at in hides) if hides & {Y, X} else None
    if one is not None and NONE not in hides and len(hides) == 1:
        near = [
            p
            for p in range(one - 9, one + 10)
            if place in found.where(offsets, (p,), has_tables=False)
        ]
        assert set(range(one - 3, one + 4)) <= set(near) <= set(range(one - 7, one + 8))


@pytest.mark.parametrize(
    ("body", "waits"),
    [
        ("L: atom.global.cas.b32 %r1, [%rd1], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra L;", True),
        (
            "mov.u32 %r2, 0; L: add.u32 %r2, %r2, 1; atom.global.cas.b32 %r1, [%rd1], %r2, 1;"
            "setp.ne.u32 %p1, %r1, %r2; @%p1 bra L;",
            False,
        ),
        (
            "T: .branchtargets L, M; L: ld.volatile.global.u32 %r1, [%rd1]; brx.idx %r1, T; M:",
            True,
        ),
        (
            "T: .branchtargets L, M; L: ld.global.u32 %r1, [%rd1]; brx.idx %r1, T; M:",
            False,
        ),
        (
            "T: .branchtargets L, N; L: ld.volatile.global.u32 %r1, [%rd1];"
            "setp.eq.u32 %p1, %r9, 1; brx.idx %r9, T; N: @%p1 bra L;",
            False,
        ),
        # An atomic that changes nothing is a load.
        ("L: atom.global.add.u32 %r1, [%rd1], 0; setp.ne.u32 %p1, %r1, 0; @%p1 bra L;", True),
        ("L: atom.global.add.u32 %r1, [%rd1], 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra L;", False),
        ("L: atom.global.add.u32 %r1, [%rd1], %r9; setp.ne.u32 %p1, %r1, 0; @%p1 bra L;", False),
        ("L: atom.global.exch.b32 %r1, [%rd1], 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra L;", True),
        ("L: atom.shared.exch.b32 %r1, [sh], 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra L;", False),
        ("L: ld.volatile.global.u32 %r1, [%rd1]; setp.ne.u32 %p1, %r1, 0; @%p1 exit; bra L;", True),
        ("L: ld.volatile.global.u32 %r1, [%rd1]; setp.ne.u32 %p1, %r9, 0; @%p1 bra L;", False),
        (
            "L: ld.volatile.global.u32 %r1, [%rd1]; setp.ne.u32 %p2, %r1, 0; mov.u32 %r2, 0;"
            "@%p2 mov.u32 %r2, 1; setp.ne.u32 %p1, %r2, 0; @%p1 bra L;",
            True,
        ),
        (
            "L: mov.u32 %r2, 7; atom.global.cas.b32 %r1, [%rd1], %r2, 1;"
            "setp.ne.u32 %p1, %r1, %r2; @%p1 bra L;",
            True,
        ),
    ],
)
def test_a_loop_that_tries_other_values_does_not_wait(body: str, waits: bool) -> None:
    _, _, flat = of(body)
    meanings = [meaning_of(i) for i in flat.instructions]
    needs = kernel_needs(flat, build_control_flow(flat), meanings)
    assert [need.kind for need in needs] == [NeedKind.WAIT] * waits


@pytest.mark.parametrize(
    ("count", "pointer", "hides"), [(4, 8, False), (9, 8, True), (-1, 80, True)]
)
def test_words_of_which_the_number_is_unknown_may_be_any(
    count: int, pointer: int, hides: bool
) -> None:
    hidden = HiddenAddresses((("x", 0, count),), {3: 4})  # the bit of the first word
    assert hidden.where({"x": 0}, [pointer], has_tables=False) == ({3} if hides else set())
