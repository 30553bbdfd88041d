"""Which kernels depend on how `wmma` lays fragments out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tessera import analyze
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.ptx.control_flow import build_control_flow
from tessera.ir.ptx.flatten import flatten
from tessera.passes.kernel_facts.fragment_layout import fragment_slice, layout_warnings
from tessera.passes.kernel_facts.operand_names import known_meaning
from tests.helpers.command import tessc

F = "{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}"
G = "{%g0, %g1, %g2, %g3, %g4, %g5, %g6, %g7}"
H = "{%r0, %r1, %r2, %r3}"
A = "{%a0, %a1, %a2, %a3, %a4, %a5, %a6, %a7}"
B = "{%b0, %b1, %b2, %b3, %b4, %b5, %b6, %b7}"
LOAD = f"wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {F}, [%rd1];"
LOAD_G = LOAD.replace(F, G)
LOAD_H = f"wmma.load.c.sync.aligned.row.m16n16k16.global.f16 {H}, [%rd1];"
STORE = f"wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd2], {F};"
STORE_H = f"wmma.store.d.sync.aligned.row.m16n16k16.global.f16 [%rd2], {H};"
LOAD_A = f"wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {A}, [%rd1];"
LOAD_B = f"wmma.load.b.sync.aligned.col.m16n16k16.global.f16 {B}, [%rd1];"
MULTIPLY = f"wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {F}, {A}, {B}, {F};"
LANE = "mov.u32 %t, %tid.x; cvt.rn.f32.u32 %s, %t;"


def each(text: str, count: int = 8) -> str:
    """A line for every register of a fragment, `#` being its number."""
    return "\n".join(text.replace("#", str(n)) for n in range(count))


def module(body: str) -> str:
    return (
        ".version 8.0\n.target sm_80\n.address_size 64\n"
        ".visible .entry k(.param .u64 x, .param .u64 out, .param .f32 scale)\n{\n"
        ".reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<9>, %a<9>, %b<9>, %t, %u;\n"
        ".reg .b64 %rd<9>; .reg .f32 %f<9>, %g<9>, %s;\n"
        ".shared .align 4 .b8 tile[1024]; .local .align 4 .b8 spill[64];\n"
        "ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [out]; ld.param.f32 %s, [scale];\n"
        f"{body}\nret;\n}}\n"
    )


def told(body: str) -> list[str]:
    return [str(one.headline) for one in layout_warnings(parse_trace(module(body)))]


FINE = {
    "through memory": f"{LOAD}{STORE}",
    "multiplied": f"{LOAD}{LOAD_A}{LOAD_B}{MULTIPLY}{STORE}",
    "filled with zero": f"{each('mov.f32 %f#, 0f00000000;')}{LOAD_A}{LOAD_B}{MULTIPLY}{STORE}",
    "one register for all": "mov.f32 %f0, 0f00000000;"
    + STORE.replace(F, "{%f0, %f0, %f0, %f0, %f0, %f0, %f0, %f0}"),
    "scaled": f"{LOAD}{each('mul.f32 %f#, %f#, %s;')}{STORE}",
    "two of one shape": f"{LOAD}{LOAD_G}{each('fma.rn.f32 %f#, %g#, %s, %f#;')}{STORE}",
    "operands swapped": f"{LOAD}{each('add.f32 %f#, %f#, %s;', 4)}"
    + "".join(f"add.f32 %f{n}, %s, %f{n};" for n in range(4, 8))
    + STORE,
    "by a condition on the element": LOAD
    + each("setp.lt.f32 %p0, %f#, 0f00000000; @%p0 mov.f32 %f#, 0f00000000;")
    + STORE,
    "selected": LOAD + each("setp.gt.f32 %p0, %f#, %s; selp.f32 %f#, %f#, %s, %p0;") + STORE,
    "by branches": LOAD
    + each("setp.gt.f32 %p0, %f#, %s; @%p0 bra L#; mul.f32 %f#, %f#, %s; L#:")
    + STORE,
    "halves": LOAD_H
    + each(
        "mov.b32 {%h0, %h1}, %r#; fma.rn.f16 %h0, %h0, %h0, %h0;"
        "fma.rn.f16 %h1, %h1, %h1, %h1; mov.b32 %r#, {%h0, %h1};",
        4,
    )
    + STORE_H,
    "by the number of the warp": f"mov.u32 %t, %tid.x; shr.u32 %t, %t, 5; cvt.rn.f32.u32 %s, %t;"
    f"{LOAD}{each('mul.f32 %f#, %f#, %s;')}{STORE}",
    "in a loop": f"{each('mov.f32 %f#, 0f00000000;')} mov.u32 %t, 0;\nL: {LOAD_A}{LOAD_B}{MULTIPLY}"
    f"add.u32 %t, %t, 1; setp.lt.u32 %p0, %t, 4; @%p0 bra L;\n{STORE}",
    "in a branch of whole warps": f"mov.u32 %t, %tid.x; setp.lt.u32 %p0, %t, 64; @!%p0 bra L;"
    f"{LOAD}{each('mul.f32 %f#, %f#, %s;')}{STORE}\nL:",
    "a register used again": f"{LOAD}{STORE}{LANE} mov.f32 %f0, %s; st.global.f32 [%rd2], %f0;",
    "by what lane 0 says": f"{LANE} shfl.sync.idx.b32 %s, %s, 0, 31, -1; {LOAD}"
    f"{each('mul.f32 %f#, %f#, %s;')}{STORE}",
    "spilled": f"{LOAD}{each('st.local.f32 [spill+#0], %f#;')}"
    + each("ld.local.f32 %g#, [spill+#0];")
    + STORE.replace(F, G),
    "spilled by a generic address": f"{LOAD} cvta.local.u64 %rd3, spill;"
    + each("add.s64 %rd4, %rd3, #0; st.f32 [%rd4], %f#;")
    + each("ld.local.f32 %g#, [spill+#0];")
    + STORE.replace(F, G),
    "one question about all": f"{LOAD} setp.gt.f32 %p0, %f0, %s; vote.sync.any.pred %p1, %p0, -1;"
    f"@%p1 st.global.f32 [%rd2], %s; {STORE}",
    "mma.sync stored": "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3},"
    " {%a0, %a1}, {%b0}, {%f0, %f1, %f2, %f3}; st.global.f32 [%rd2], %f0;" + LOAD_G,
}
DEPENDS = {
    "stored": (f"{LOAD} st.global.f32 [%rd2], %f3;", "stores it"),
    "stored as a vector": (f"{LOAD} st.global.v2.f32 [%rd2], {{%s, %f1}};", "stores it"),
    "stored in shared memory": (f"{LOAD} st.shared.f32 [tile], %f0;", "stores it"),
    "computed and stored": (f"{LOAD} mul.f32 %g0, %f0, %s; st.global.f32 [%rd2], %g0;", "stores"),
    "of a product": (f"{LOAD}{LOAD_A}{LOAD_B}{MULTIPLY} st.global.f32 [%rd2], %f0;", "stores it"),
    "a factor": (f"{LOAD_A} st.global.u32 [%rd2], %a0;", "stores it"),
    "summed": (f"{LOAD} red.global.add.f32 [%rd2], %f0;", "stores it"),
    "shuffled": (f"{LOAD} shfl.sync.bfly.b32 %g0, %f0, 1, 31, -1;", "other lanes"),
    "matched": (f"{LOAD_A} match.any.sync.b32 %t, %a0, -1;", "other lanes"),
    "to mma.sync": (
        f"{LOAD_A} mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {{%f0, %f1, %f2, %f3}},"
        " {%a0, %a1}, {%b0}, {%f0, %f1, %f2, %f3};",
        "an order of its own",
    ),
    "by the lane": (f"{LANE}{LOAD}{each('add.f32 %f#, %f#, %s;')}{STORE}", "lane by lane"),
    "by what another lane says": (
        f"{LANE} shfl.sync.bfly.b32 %s, %s, 1, 31, -1; {LOAD}"
        f"{each('mul.f32 %f#, %f#, %s;')}{STORE}",
        "lane by lane",
    ),
    "by what a lane loads": (
        "mov.u32 %t, %laneid; mul.wide.u32 %rd3, %t, 4; add.s64 %rd4, %rd1, %rd3;"
        f"ld.global.f32 %s, [%rd4]; {LOAD}{each('add.f32 %f#, %f#, %s;')}{STORE}",
        "lane by lane",
    ),
    "by some lanes": (
        f"mov.u32 %t, %laneid; setp.lt.u32 %p0, %t, 16; {LOAD}"
        f"{each('@%p0 mul.f32 %f#, %f#, %s;')}{STORE}",
        "lane by lane",
    ),
    "in a branch of some lanes": (
        f"mov.u32 %t, %laneid; {LOAD} setp.lt.u32 %p0, %t, 16; @%p0 bra L;"
        f"{each('mul.f32 %f#, %f#, %s;')}\nL: {STORE}",
        "lane by lane",
    ),
    "one register only": (f"{LOAD} mul.f32 %f0, %f0, %s; {STORE}", "not all treated alike"),
    "one register only, behind a loop": (
        f"{each('mov.f32 %f#, 0f00000000;')} mov.u32 %t, 0;\nL: {LOAD_A}{LOAD_B}{MULTIPLY}"
        "add.u32 %t, %t, 1; setp.lt.u32 %p0, %t, 4; @%p0 bra L;\n"
        f"add.f32 %f0, %f0, %f0; {STORE}",
        "not all treated alike",
    ),
    "by the number of the register": (
        f"{LOAD}{each('add.f32 %f#, %f#, 0f4000000#;')}{STORE}",
        "not all treated alike",
    ),
    "exchanged": (
        f"{LOAD} mov.f32 %s, %f0; mov.f32 %f0, %f1; mov.f32 %f1, %s; {STORE}",
        "in another order",
    ),
    "added up": (f"{LOAD}{each('add.f32 %f#, %f#, %f0;')}{STORE}", "mixed"),
    "another shape": (
        f"{LOAD.replace('m16n16k16', 'm32n8k16')}{STORE}",
        "another fragment",
    ),
    "halves exchanged": (
        f"{LOAD_H}{each('mov.b32 {%h0, %h1}, %r#; mov.b32 %r#, {%h1, %h0};', 4)}{STORE_H}",
        "mixed",
    ),
    "filled by lanes": (f"{LANE}{each('mov.f32 %f#, %s;')}{STORE}", "no `wmma.load`"),
    "a factor from plain loads": (
        "mov.u32 %t, %tid.x; mul.wide.u32 %rd3, %t, 4; add.s64 %rd4, %rd1, %rd3;"
        f"{each('ld.global.u32 %a#, [%rd4+#0];')}{LOAD}{LOAD_B}{MULTIPLY}{STORE}",
        "no `wmma.load`",
    ),
}


@pytest.mark.parametrize("name", FINE)
def test_nothing_depends_on_the_layout(name: str) -> None:
    assert told(FINE[name]) == []


@pytest.mark.parametrize("name", DEPENDS)
def test_the_layout_decides(name: str) -> None:
    body, how = DEPENDS[name]
    (headline,) = told(body)
    assert "`m0.k` depends on how `wmma` lays fragments out" in headline
    assert how in headline


def test_in_a_function_that_is_called() -> None:
    called = (
        ".func keep(.param .f32 v, .param .u64 p)\n{ .reg .f32 %f; .reg .b64 %rd;\n"
        "ld.param.f32 %f, [v]; ld.param.u64 %rd, [p]; st.global.f32 [%rd], %f; ret; }\n"
    )
    call = (
        "{ .param .f32 a; .param .u64 b; st.param.f32 [a], %f0; st.param.u64 [b], %rd2;"
        " call keep, (a, b); }"
    )
    text = module(LOAD + call).replace(".visible", called + ".visible", 1)
    (only,) = layout_warnings(parse_trace(text))
    assert "`st.global.f32` stores it" in str(only.headline)


def test_kernels_that_are_not_launched_are_left_alone() -> None:
    text = (
        "//! tessera.trace 1\n//! buffer x bytes=1024 role=input\n"
        "//! buffer y bytes=1024 role=output\n//! module m\n"
        + module(f"{LOAD} st.global.f32 [%rd2], %f0;")
        + ".visible .entry idle() { ret; }\n"
    )
    launch = "//! launch m.k grid=1,1,1 block=32,1,1 args=[x, y, f32:1.0]\n" * 3
    assert len(list(layout_warnings(parse_trace(text + launch)))) == 1
    other = "//! launch m.idle grid=1,1,1 block=32,1,1 args=[]\n"
    assert list(layout_warnings(parse_trace(text + other))) == []


def test_code_for_several_gpus_is_told_once() -> None:
    program = parse_trace(module(DEPENDS["stored"][0]))
    (code,) = program.modules
    twice = replace(code, variants=2 * code.variants)
    assert len([*layout_warnings(replace(program, modules=(twice,)))]) == 1


def test_what_a_compiler_makes_of_plain_wmma_is_fine() -> None:
    path = Path(__file__).parents[2] / "data/kernels/ptx/wmma.ptx"
    assert [d.code for d in analyze(path).diagnostics] == []


def test_running_says_so_too(tmp_path: Path) -> None:
    path = tmp_path / "trace.ptx"
    path.write_text(
        "//! tessera.trace 1\n//! buffer x bytes=1024 role=input\n"
        "//! buffer y bytes=1024 role=output\n//! module m\n"
        + module(f"{LOAD} st.global.f32 [%rd2], %f0;")
        + "//! launch m.k grid=1,1,1 block=32,1,1 args=[x, y, f32:1.0]\n"
    )
    outcome = tessc("run", str(path))
    assert outcome.code == 0
    assert outcome.err.count("TSR2016") == 1


def test_code_that_fragments_do_not_hang_on_is_left_out() -> None:
    """Kernels are long, and most of them computes addresses: the work grows with the rest only."""
    addresses = each("add.s64 %rd#, %rd1, #; setp.lt.u64 %p1, %rd#, %rd2; @%p1 bra N#;\nN#:", 8)
    text = module(f"{LOAD}{addresses}{each('mul.f32 %f#, %f#, %s;')}{STORE}")
    code = parse_trace(text).modules[0].variants[0].ptx
    flat = flatten(next(code.kernels()))
    meanings = [known_meaning(one) for one in flat.instructions]
    kept = fragment_slice(flat, build_control_flow(flat), meanings)
    opcodes = {str(flat.instructions[index].opcode) for index in kept}
    assert {"mul.f32", "ld.param.f32"} <= opcodes
    assert not {"add.s64", "setp.lt.u64", "bra"} & opcodes
