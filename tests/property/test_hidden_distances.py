"""Distances between buffers on ways that are not followed: no such number is taken for an index."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.backend.ptx_executor.run import run_program
from tessera.diagnostics import TesseraError
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.dependences.access_regions import AccessRegions
from tests.helpers.access_oracle import compare
from tests.helpers.traces import trace

BUFFERS = """
buffer x bytes=1024 role=input
buffer y bytes=1024 role=output
buffer s bytes=1024 role=state
buffer q bytes=64 role=input
pointers q @{0:y,8:x,16:s}
"""
HEAD = """
.visible .entry k(.param .u64 y, .param .u64 x, .param .u64 s)
{
    .reg .pred %p<4>;
    .reg .b32 %r<20>;
    .reg .b64 %rd<20>;
    .reg .f64 %fd<3>;
    .local .align 8 .b8 a[8];
    .local .align 8 .b8 b[64];
    .shared .align 16 .b8 sh[512];
    ld.param.u64 %rd1, [y];
    ld.param.u64 %rd2, [x];
    ld.param.u64 %rd3, [s];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd4, %r1, 4;
    add.s64 %rd5, %rd2, %rd4;
    ld.global.u32 %r2, [%rd5];
    and.b32 %r2, %r2, 1;
    mul.wide.u32 %rd6, %r2, 8;
    setp.eq.u32 %p1, %r2, 0;
"""
# %rd8 is the distance from x to y, in the end; %rd5 is in x.
FROM = "sub.s64 %rd7, %rd1, %rd2;"
USE = "add.s64 %rd9, %rd5, %rd8; st.global.u32 [%rd9], %r1; ret; }"
SPLIT = "mov.b64 {%r10, %r11}, %rd7;"
JOIN = "mov.b64 %rd8, {%r12, %r13};"
DIFFERENCE = "sub.s64 %rd8, %rd11, %rd12;"
IN_TABLE = "add.s64 %rd13, %rd3, %rd6;"
IN_SHARED = "bar.sync 0; ld.shared.u64 %rd8, [sh];"
OPEN = "mov.u64 %rd11, b; add.s64 %rd13, %rd11, %rd6;"
FUNCTION = """
.func (.param .b64 r) apart(.param .b64 a, .param .b64 b, .param .b32 n)
{
    .reg .pred %p; .reg .b32 %r<2>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u32 %r1, [n];
    sub.s64 %rd3, %rd1, %rd2;
    RECURSE
    st.param.b64 [r], %rd3; ret;
}
"""
AGAIN = """
    setp.eq.u32 %p, %r1, 0; @%p bra L; sub.u32 %r1, %r1, 1;
    { .param .b64 pa; .param .b64 pb; .param .b32 pn; .param .b64 pr;
      st.param.b64 [pa], %rd1; st.param.b64 [pb], %rd2; st.param.b32 [pn], %r1;
      call.uni (pr), apart, (pa, pb, pn); ld.param.b64 %rd3, [pr]; }
L:
"""
CALL = """
    { .param .b64 pa; .param .b64 pb; .param .b32 pn; .param .b64 pr;
      st.param.b64 [pa], %rd1; st.param.b64 [pb], %rd2; st.param.b32 [pn], 2;
      CALLED ld.param.b64 %rd8, [pr]; }
"""
CASES = {
    "a float": f"{FROM} cvt.rn.f64.s64 %fd1, %rd7; cvt.rzi.s64.f64 %rd8, %fd1;",
    "a selection by sign": f"{FROM} mov.u64 %rd11, 0; slct.u64.s32 %rd8, %rd7, %rd11, %r1;",
    "a carry": (
        "mov.b64 {%r10, %r11}, %rd1; mov.b64 {%r14, %r15}, %rd2;"
        f"sub.cc.u32 %r12, %r10, %r14; subc.u32 %r13, %r11, %r15; {JOIN}"
    ),
    "a sum that sets the carry": f"{FROM} add.cc.u64 %rd8, %rd7, 0;",
    "a reduction over a warp": (
        f"{FROM} {SPLIT} redux.sync.or.b32 %r12, %r10, -1; redux.sync.or.b32 %r13, %r11, -1; {JOIN}"
    ),
    "a video instruction": (
        f"{FROM} {SPLIT} vadd.u32.u32.u32 %r12, %r10, 0; vadd.u32.u32.u32 %r13, %r11, 0; {JOIN}"
    ),
    "local memory or a buffer, by data": (
        f"{FROM} st.local.u64 [a], %rd7; mov.u64 %rd11, a; cvta.local.u64 %rd12, %rd11;"
        "selp.b64 %rd13, %rd12, %rd3, %p1; ld.u64 %rd8, [%rd13];"
    ),
    "local memory or a buffer, by thread": (
        f"{FROM} st.local.u64 [a], %rd7; mov.u64 %rd11, a; cvta.local.u64 %rd12, %rd11;"
        "setp.lt.u32 %p2, %r1, 16; selp.b64 %rd13, %rd12, %rd3, %p2; ld.u64 %rd8, [%rd13];"
    ),
    "local or shared memory, by thread": (
        f"{FROM} st.local.u64 [a], %rd7; mov.u64 %rd11, a; cvta.local.u64 %rd12, %rd11;"
        "st.shared.u64 [sh], %rd7; bar.sync 0; mov.u64 %rd15, sh; cvta.shared.u64 %rd14, %rd15;"
        "setp.lt.u32 %p2, %r1, 16; selp.b64 %rd13, %rd12, %rd14, %p2; ld.u64 %rd8, [%rd13];"
    ),
    "shared memory or a buffer, by thread": (
        f"{FROM} st.shared.u64 [sh], %rd7; bar.sync 0; mov.u64 %rd11, sh;"
        "cvta.shared.u64 %rd14, %rd11; setp.lt.u32 %p2, %r1, 16;"
        "selp.b64 %rd13, %rd14, %rd3, %p2; ld.u64 %rd8, [%rd13];"
    ),
    "addresses at unknown places of local memory": (
        f"{OPEN} st.local.u64 [%rd13], %rd1; st.local.u64 [%rd13+16], %rd2;"
        f"ld.local.u64 %rd11, [b]; ld.local.u64 %rd12, [b+16]; {DIFFERENCE}"
    ),
    "an exchange in shared memory": f"{FROM} atom.shared.exch.b64 %rd11, [sh], %rd7; {IN_SHARED}",
    "an atomic load of shared memory": (
        f"{FROM} st.shared.u64 [sh], %rd7; bar.sync 0; atom.shared.or.b64 %rd8, [sh], 0;"
    ),
    "shared memory of a cluster": (
        f"{FROM} st.shared.u64 [sh], %rd7; bar.sync 0; mov.u64 %rd11, sh;"
        "cvta.shared.u64 %rd12, %rd11; mapa.u64 %rd13, %rd12, 0; ld.u64 %rd8, [%rd13];"
    ),
    "a load of a matrix": (
        f"{FROM} {SPLIT} st.shared.v4.u32 [sh], {{%r10, %r11, %r10, %r11}}; bar.sync 0;"
        "mov.u32 %r14, sh; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r15}, [%r14];"
        "shfl.sync.idx.b32 %r12, %r15, 0, 31, -1; shfl.sync.idx.b32 %r13, %r15, 1, 31, -1;"
        f"{JOIN}"
    ),
    "a buffer": f"{FROM} st.global.u64 [%rd3], %rd7; ld.global.u64 %rd8, [%rd3];",
    "a function that calls itself": CALL.replace("CALLED", "call.uni (pr), apart, (pa, pb, pn);"),
    "a function in a register": (
        "mov.u64 %rd14, other;"
        "P: .callprototype (.param .b64 _) _ (.param .b64 _, .param .b64 _, .param .b32 _);"
        + CALL.replace("CALLED", "call (pr), %rd14, (pa, pb, pn), P;")
    ),
    "the next parameter": (
        "mov.b64 %rd11, y; add.s64 %rd12, %rd11, %rd6; ld.param.u64 %rd13, [%rd12];"
        "sub.s64 %rd8, %rd13, %rd2;"
    ),
    "a parameter by its address, as a float": (
        "mov.b64 %rd11, y; ld.param.u64 %rd13, [%rd11]; cvt.rn.f64.u64 %fd1, %rd13;"
        "cvt.rn.f64.u64 %fd2, %rd2; sub.f64 %fd1, %fd1, %fd2; cvt.rzi.s64.f64 %rd8, %fd1;"
    ),
    "the next variable": (
        "st.local.u64 [a], 8; st.local.u64 [b], 16; mov.u64 %rd11, a; add.s64 %rd12, %rd11, %rd6;"
        "ld.local.u64 %rd8, [%rd12];"
    ),
    "a table at an unknown place": (
        f"{IN_TABLE} ld.global.u64 %rd11, [%rd13]; ld.global.u64 %rd12, [%rd3+8]; {DIFFERENCE}"
    ),
    "a table at two unknown places": (
        f"{IN_TABLE} ld.global.u64 %rd11, [%rd13]; ld.global.u64 %rd12, [%rd13+8]; {DIFFERENCE}"
    ),
    "halves of a table's words": (
        "ld.global.v2.u32 {%r10, %r11}, [%rd3]; ld.global.v2.u32 {%r12, %r13}, [%rd3+8];"
        f"mov.b64 %rd11, {{%r10, %r11}}; mov.b64 %rd12, {{%r12, %r13}}; {DIFFERENCE}"
    ),
    "a copy of a table": (
        "mov.u32 %r10, sh; cp.async.ca.shared.global [%r10], [%rd3], 16; cp.async.wait_all;"
        f"bar.sync 0; ld.shared.u64 %rd11, [sh]; ld.shared.u64 %rd12, [sh+8]; {DIFFERENCE}"
    ),
    "an atomic load of a table": (
        f"atom.global.or.b64 %rd11, [%rd3], 0; atom.global.or.b64 %rd12, [%rd3+8], 0;{DIFFERENCE}"
    ),
}
EXACT = {
    "registers": f"{FROM} mov.u64 %rd8, %rd7;",
    "halves as floats": f"{FROM} mov.b64 %fd1, %rd7; mov.b64 %rd8, %fd1;",
    "shared memory": f"{FROM} st.shared.u64 [sh], %rd7; {IN_SHARED}",
    "local memory": f"{FROM} st.local.u64 [a], %rd7; ld.local.u64 %rd8, [a];",
}


def program(body: str) -> ir.Program:
    table = any(body is CASES[name] for name in CASES if "table" in name)
    functions = FUNCTION.replace("RECURSE", AGAIN) + FUNCTION.replace("RECURSE", "").replace(
        "apart", "other"
    )
    last = "q" if table else "s"
    given = trace(
        BUFFERS,
        f"{functions}{HEAD}{body}{USE}\n",
        f"launch m.k grid=1,1,1 block=32,1,1 args=[y, x, {last}]\n",
    )
    return given


def check(given: ir.Program) -> bool:
    """Hold the regions against runs; whether something was written in `y`."""
    (step,) = AnalysisManager(given).get(AccessRegions).steps
    rng = np.random.default_rng(1)
    reaches = False
    for x in (np.zeros(1024, np.uint8), rng.integers(0, 2, 1024).astype(np.uint8)):
        contents = {"x": x, "s": np.zeros(1024, np.uint8), "q": np.zeros(64, np.uint8)}
        try:
            (record,) = run_program(given, contents, max_steps=4000).launches
        except TesseraError:  # the distance is another one, and leads nowhere
            continue
        for seen in compare(given, step, record.result.accesses):
            assert intervals.covers(seen.may_read, seen.read), seen.buffer.name
            assert intervals.covers(seen.may_write, seen.written), seen.buffer.name
            assert intervals.covers(seen.written, seen.must_write), seen.buffer.name
            reaches = reaches or (seen.buffer.name == "y" and len(seen.written) > 0)
    return reaches


@pytest.mark.parametrize("name", CASES)
def test_a_hidden_distance_is_no_index(name: str) -> None:
    assert check(program(CASES[name])) is (name != "the next variable")


@pytest.mark.parametrize("name", EXACT)
def test_what_is_followed_stays_exact(name: str) -> None:
    given = program(EXACT[name])
    (step,) = AnalysisManager(given).get(AccessRegions).steps
    assert not step.pins
    assert check(given)


WRITER = """
.func once(.param .b64 t, .param .b64 d, .param .b32 n)
{
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [t]; ld.param.u64 %rd2, [d]; st.global.u64 [%rd1], %rd2; ret;
}
.func keep(.param .b64 t, .param .b64 d, .param .b32 n)
{
    .reg .pred %p; .reg .b32 %r<2>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [t]; ld.param.u64 %rd2, [d]; ld.param.u32 %r1, [n];
    st.global.u64 [%rd1], %rd2; setp.eq.u32 %p, %r1, 0; @%p ret; sub.u32 %r1, %r1, 1;
    { .param .b64 pt; .param .b64 pd; .param .b32 pn;
      st.param.b64 [pt], %rd1; st.param.b64 [pd], %rd2; st.param.b32 [pn], %r1;
      call.uni keep, (pt, pd, pn); }
    ret;
}
.visible .entry put(.param .u64 y, .param .u64 x, .param .u64 t)
{
    .reg .b32 %r<4>; .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [y]; ld.param.u64 %rd2, [x]; ld.param.u64 %rd3, [t];
    sub.s64 %rd4, %rd1, %rd2;
    PUT
    ret;
}
.visible .entry take(.param .u64 x, .param .u64 t)
{
    .reg .b32 %r<4>; .reg .b64 %rd<10>;
    ld.param.u64 %rd5, [x]; ld.param.u64 %rd3, [t]; mov.u32 %r1, %tid.x;
    TAKE
    add.s64 %rd9, %rd5, %rd8; st.global.u32 [%rd9], %r1; ret;
}
"""
WORD, LOAD = "st.global.u64 [%rd3], %rd4;", "ld.global.u64 %rd8, [%rd3];"
HALVES = "mov.b64 {%r1, %r2}, %rd4; st.global.v2.u32 [%rd3], {%r1, %r2};"
PUT = "launch m.put grid=1,1,1 block=1,1,1 args=[y, x, t]"
TAKE = "launch m.take grid=1,1,1 block=1,1,1 args=[x, t]"
LATER = {
    "a word": (WORD, LOAD, (PUT, TAKE), True),
    "halves": (HALVES, LOAD, (PUT, TAKE), True),
    "a function that calls itself": (
        "{ .param .b64 pt; .param .b64 pd; .param .b32 pn; st.param.b64 [pt], %rd3;"
        "st.param.b64 [pd], %rd4; st.param.b32 [pn], 2; call.uni keep, (pt, pd, pn); }",
        LOAD,
        (PUT, TAKE),
        True,
    ),
    "local memory": (
        ".local .align 8 .b64 a; st.local.u64 [a], %rd4; ld.local.u64 %rd5, [a];"
        "st.global.u64 [%rd3], %rd5;",
        LOAD,
        (PUT, TAKE),
        True,
    ),
    "an exchange in shared memory": (
        ".shared .align 8 .b64 a; atom.shared.exch.b64 %rd5, [a], %rd4; ld.shared.u64 %rd5, [a];"
        "st.global.u64 [%rd3], %rd5;",
        LOAD,
        (PUT, TAKE),
        True,
    ),
    "a function": (
        "{ .param .b64 pt; .param .b64 pd; .param .b32 pn; st.param.b64 [pt], %rd3;"
        "st.param.b64 [pd], %rd4; st.param.b32 [pn], 2; call.uni once, (pt, pd, pn); }",
        LOAD,
        (PUT, TAKE),
        True,
    ),
    "two addresses": (
        "st.global.v2.u64 [%rd3], {%rd1, %rd2};",
        "ld.global.v2.u64 {%rd6, %rd7}, [%rd3]; sub.s64 %rd8, %rd6, %rd7;",
        (PUT, TAKE),
        True,
    ),
    "a copy": (WORD, LOAD, (PUT, "memcpy s t bytes=64", TAKE.replace("t]", "s]")), True),
    "a library call": (
        WORD,
        LOAD,
        (PUT, "op aten::neg reads=[t:s64[8]] writes=[s:s64[8]]", TAKE.replace("t]", "s]")),
        True,
    ),
    "the next request": (
        WORD,
        LOAD,
        (TAKE.replace("t]", "s]"), PUT.replace("t]", "s]")),
        True,
    ),
    "an index": ("st.global.u64 [%rd3], 64;", LOAD, (PUT, TAKE), False),
    "an index in another buffer": (
        f"{WORD} st.global.u64 [%rd1], 64;",
        LOAD,
        (PUT.replace("y", "s"), TAKE.replace("t]", "s]")),
        False,
    ),
}


@pytest.mark.parametrize("name", LATER)
def test_a_distance_that_an_earlier_launch_stored(name: str) -> None:
    put, take, steps, is_hidden = LATER[name]
    text = WRITER.replace("PUT", put).replace("TAKE", take)
    buffers = BUFFERS + "buffer t bytes=64 role=temp\n"
    given = trace(buffers, text, "\n".join(steps))
    taken = next(s for s in AnalysisManager(given).get(AccessRegions).steps if "take" in s.name)
    assert bool(taken.pins) is is_hidden
    touched = {given.buffers[a.buffer].name for a in taken.accesses if a.kind.writes}
    assert ("y" in touched) is is_hidden


def test_a_distance_that_the_code_for_another_gpu_stored() -> None:
    """Which code runs is not known when the second launch is looked at."""
    plain = WRITER.replace("PUT", "st.global.u64 [%rd3], 64;").replace("TAKE", LOAD)
    hides = WRITER.replace("PUT", WORD).replace("TAKE", LOAD)
    heads = [f".version 8.0\n.target {arch}\n.address_size 64\n" for arch in ("sm_80", "sm_90")]
    buffers = [*BUFFERS.strip().splitlines(), "buffer t bytes=64 role=temp"]
    records = "".join(f"//! {line}\n" for line in buffers)
    code = f"//! module m arch=sm_80\n{heads[0]}{plain}//! module m arch=sm_90\n{heads[1]}{hides}"
    text = f"//! tessera.trace 1\n{records}{code}//! {PUT}\n//! {TAKE}\n"
    taken = AnalysisManager(parse_trace(text, "t.ptx")).get(AccessRegions).steps[-1]
    assert taken.pins


def test_a_number_before_a_pointer_is_an_index_as_a_float_too() -> None:
    text = """
    .visible .entry k(.param .u64 n, .param .u64 y)
    {
        .reg .b64 %rd<8>; .reg .f64 %fd;
        ld.param.u64 %rd1, [n]; ld.param.u64 %rd2, [y];
        cvt.rn.f64.u64 %fd, %rd1; cvt.rzi.u64.f64 %rd5, %fd;
        add.s64 %rd6, %rd2, %rd5; st.global.u8 [%rd6], 1; ret;
    }
    """
    steps = "launch m.k grid=1,1,1 block=1,1,1 args=[u64:60, y]\n"
    given = trace(BUFFERS, f"{text}\n", steps)
    (step,) = AnalysisManager(given).get(AccessRegions).steps
    assert not step.pins
    assert check(given)


def test_a_number_before_a_word_of_a_table_is_an_index() -> None:
    text = """
    .visible .entry k(.param .u64 y, .param .u64 t)
    {
        .reg .b32 %r<4>; .reg .b64 %rd<8>;
        ld.param.u64 %rd1, [y]; ld.param.u64 %rd2, [t];
        ld.global.u32 %r1, [%rd2+4]; and.b32 %r1, %r1, 15; mul.wide.u32 %rd3, %r1, 4;
        add.s64 %rd4, %rd1, %rd3; st.global.u32 [%rd4], %r1; ret;
    }
    """
    buffers = BUFFERS + "buffer t bytes=64 role=input\npointers t @{8:x}\n"
    given = trace(buffers, f"{text}\n", "launch m.k grid=1,1,1 block=1,1,1 args=[y, t]\n")
    (step,) = AnalysisManager(given).get(AccessRegions).steps
    assert not step.pins
    assert {a.region.end for a in step.accesses if a.buffer == 1} == {64}
