"""Kernels that nobody should write: what is said of them, and that it is true of every run."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.backend.ptx_executor.run import run_program
from tessera.diagnostics import TesseraError
from tessera.ir.graph.access import AccessKind, Certainty
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import region_bytes
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.dependences import Dependences
from tests.helpers.access_oracle import compare
from tests.helpers.traces import trace

BUFFERS = """
buffer x bytes=4096 role=input
buffer y bytes=4096 role=output
buffer w bytes=64 role=weight
buffer t bytes=64 role=temp
"""
HEAD = """
.visible .entry k(.param .u64 y, .param .u64 x, .param .u32 n)
{
    .reg .pred %p<6>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<12>;
    ld.param.u64 %rd1, [y];
    ld.param.u64 %rd2, [x];
    ld.param.u32 %r9, [n];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
"""
STORE = "st.global.u32 [%rd4], %r1;"
LOAD = "ld.global.u32 %r6, [%rd5];"
HALF = (2048, 2176)


def program(body: str, args: str = "y+2048, x+2048, u32:5") -> ir.Program:
    steps = f"launch m.k grid=1,1,1 block=32,1,1 args=[{args}]\n"
    return trace(BUFFERS, f"{HEAD}{body}\n}}\n", steps)


def must(given: ir.Program) -> list[tuple[int, int]]:
    """The bytes of y that are surely written."""
    (step,) = AnalysisManager(given).get(AccessRegions).steps
    found = [
        region_bytes(a.region, 4096)
        for a in step.accesses
        if a.buffer == 1 and a.kind is AccessKind.WRITE and a.certainty is Certainty.MUST
    ]
    return list(intervals.pairs(intervals.union(found)))


def codes(given: ir.Program) -> list[str]:
    return [d.code for d in AnalysisManager(given).get(Dependences).diagnostics]


def check(given: ir.Program) -> None:
    """Hold the regions against runs with several contents; a run that faults says nothing."""
    (step,) = AnalysisManager(given).get(AccessRegions).steps
    rng = np.random.default_rng(3)
    for x in (np.zeros(4096), np.full(4096, 255), rng.integers(0, 3, 4096)):
        contents = {"x": x.astype(np.uint8), "w": np.zeros(64, np.uint8)}
        try:
            (record,) = run_program(given, contents, max_steps=4000).launches
        except TesseraError:
            continue
        for found in compare(given, step, record.result.accesses):
            assert intervals.covers(found.may_read, found.read), found.buffer.name
            assert intervals.covers(found.may_write, found.written), found.buffer.name
            assert intervals.covers(found.written, found.must_write), found.buffer.name


CASES = {
    "negative offset": ("st.global.u32 [%rd4+-64], %r1; ret;", [(1984, 2112)]),
    "index that wraps in 32 bits": (
        "add.s32 %r2, %r1, -16; mul.lo.s32 %r3, %r2, 0x10000001; and.b32 %r3, %r3, 31;"
        "mul.wide.u32 %rd6, %r3, 4; add.s64 %rd7, %rd1, %rd6; st.global.u32 [%rd7], %r1; ret;",
        [HALF],
    ),
    "negative index, extended by sign": (
        "add.s32 %r2, %r1, -16; mul.wide.s32 %rd6, %r2, 4; add.s64 %rd7, %rd1, %rd6;"
        "st.global.u32 [%rd7], %r1; ret;",
        [(1984, 2112)],
    ),
    "unreachable code": (f"bra E; st.global.u32 [%rd4+512], %r1; E: {STORE} ret;", [HALF]),
    "no return": (STORE, [HALF]),
    "irreducible loop, known": (
        "setp.lt.u32 %p1, %r1, 16; mov.u32 %r5, 0; @%p1 bra B;"
        f"A: add.u32 %r5, %r5, 1; {STORE}"
        "B: add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 7; @%p2 bra A; ret;",
        [HALF],
    ),
    "irreducible loop, from data": (
        f"{LOAD} setp.lt.u32 %p1, %r6, 16; mov.u32 %r5, 0; @%p1 bra B;"
        f"A: add.u32 %r5, %r5, 1; {STORE} add.s64 %rd4, %rd4, 4;"
        "B: add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, %r6; setp.lt.and.u32 %p2, %r5, 9, %p2;"
        "@%p2 bra A; ret;",
        [],
    ),
    "two loops that share a body": (
        f"{LOAD} and.b32 %r6, %r6, 3; mov.u32 %r5, 0; setp.eq.u32 %p1, %r6, 1; @%p1 bra C;"
        f"A: add.u32 %r5, %r5, 1; {STORE} bra D;"
        "C: add.u32 %r5, %r5, 2; st.global.u32 [%rd4+128], %r1;"
        "D: setp.gt.u32 %p2, %r5, 6; @%p2 bra E; setp.gt.u32 %p3, %r5, %r6; @%p3 bra C; bra A;"
        "E: ret;",
        [],
    ),
    "a trap that data decides": (
        f"{LOAD} setp.eq.u32 %p1, %r6, 77; @%p1 trap; {STORE} ret;",
        [HALF],
    ),
    "a trap inside a side": (
        f"{LOAD} setp.eq.u32 %p1, %r6, 0; @%p1 bra S; setp.eq.u32 %p2, %r6, 77; @%p2 bra T;"
        f"bra S; T: trap; S: {STORE} ret;",
        [HALF],
    ),
    "an exit that data decides": (f"{LOAD} setp.eq.u32 %p1, %r6, 0; @%p1 exit; {STORE} ret;", []),
    "a difference of pointers": (
        "sub.s64 %rd6, %rd1, %rd2; add.s64 %rd7, %rd5, %rd6; st.global.u32 [%rd7], %r1; ret;",
        [HALF],
    ),
    "a pointer in halves": (
        "mov.b64 {%r2, %r3}, %rd4; mov.b64 %rd6, {%r2, %r3}; st.global.u32 [%rd6], %r1; ret;",
        [HALF],
    ),
    "the index first, the base second": (
        "add.s64 %rd6, %rd3, %rd1; st.global.u32 [%rd6], %r1; ret;",
        [HALF],
    ),
    "a double where a single is asked for": (
        ".reg .f32 %f<3>; mov.f32 %f1, 2.0; mov.b32 %r2, %f1; shr.u32 %r2, %r2, 22;"
        "mul.wide.u32 %rd6, %r2, 4; add.s64 %rd7, %rd1, %rd6; st.global.u32 [%rd7], %r1; ret;",
        [],
    ),
    "a single as it is": (
        ".reg .f32 %f<3>; mov.f32 %f1, 0f40000000; mov.b32 %r2, %f1; shr.u32 %r2, %r2, 22;"
        "mul.wide.u32 %rd6, %r2, 4; add.s64 %rd7, %rd1, %rd6; st.global.u32 [%rd7], %r1; ret;",
        [(3072, 3076)],
    ),
    "a register that only some threads write": (
        "mov.u64 %rd6, %rd4; setp.lt.u32 %p1, %r1, 8; @%p1 add.s64 %rd6, %rd6, 256;"
        "st.global.u32 [%rd6], %r1; ret;",
        [(2080, 2176), (2304, 2336)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_regions_hold(name: str) -> None:
    body, wanted = CASES[name]
    given = program(body)
    assert must(given) == wanted
    check(given)


@pytest.mark.parametrize(
    ("body", "args", "code"),
    [
        ("st.global.u32 [%rd4+-64], %r1; ret;", "y, x, u32:0", "TSR2004"),
        (f"{STORE} ret;", "y+4064, x, u32:0", "TSR2004"),
        ("ld.global.u32 %r2, [%rd5+4]; ret;", "y, x+3968, u32:0", "TSR2004"),
        (
            "add.s32 %r2, %r1, -16; mul.wide.u32 %rd6, %r2, 4; add.s64 %rd7, %rd1, %rd6;"
            "st.global.u32 [%rd7], %r1; ret;",
            "y+2048, x, u32:0",
            "TSR2004",
        ),
        (f"{STORE} ret;", "u64:0, x, u32:0", "TSR2005"),
        (f"{STORE} ret;", "w, x, u32:0", "TSR2003"),
        (
            f"{LOAD} mul.wide.u32 %rd6, %r6, 4; add.s64 %rd7, %rd1, %rd6; "
            "st.global.u32 [%rd7], %r1;",
            "w, x, u32:0",
            "TSR2003",
        ),
        ("ld.global.u32 %r2, [%rd5]; ret;", "y, t, u32:0", "TSR2007"),
        (f"{STORE} ret;", "u64:0x123456789abc, x, u32:0", "TSR2001"),
    ],
)
def test_findings(body: str, args: str, code: str) -> None:
    given = program(body, args)
    found = [d for d in AnalysisManager(given).get(Dependences).diagnostics if d.code == code]
    assert found
    assert found[0].primary is not None
    line = found[0].primary.span.source.line_text(found[0].primary.span.start)
    assert "global" in line


def test_a_number_is_not_said_to_come_from_memory() -> None:
    given = program(f"{STORE} ret;", "u64:0x123456789abc, x, u32:0")
    (step,) = AnalysisManager(given).get(AccessRegions).steps
    assert [str(p.reason) for p in step.pins] == [
        "the address of `st.global.u32` is a number that points into no buffer of the trace"
    ]


@pytest.mark.slow
def test_a_loop_that_takes_forever_is_widened() -> None:
    given = program(f"A: {STORE} bra A;")
    assert codes(given) == ["TSR2006"]
    assert must(given) == []


def test_a_loop_of_two_thousand_million_rounds_is_followed() -> None:
    loop = f"mov.u32 %r5, 0; A: add.u32 %r5, %r5, 1; {STORE} setp.lt.u32 %p2, %r5, 0x7fffffff;"
    given = program(f"{loop} @%p2 bra A; ret;")
    assert codes(given) == []
    assert must(given) == [HALF]


def test_views_that_overlap_by_one_byte() -> None:
    """Two launches on one buffer: apart, no edge; one byte shared, an edge of that byte."""
    copy = "launch m.k grid=1,1,1 block=32,1,1 args=[y+{}, x, u32:0]\n"
    for second, wanted in ((128, 0), (127, 1)):
        given = trace(
            BUFFERS,
            f"{HEAD}st.global.u8 [%rd4], %r1; st.global.u8 [%rd4+1], %r1;"
            f"st.global.u8 [%rd4+2], %r1; st.global.u8 [%rd4+3], %r1; ret;\n}}\n",
            copy.format(0) + copy.format(second),
        )
        edges = AnalysisManager(given).get(Dependences).graph.edges
        assert [e.bytes for e in edges if not e.carried] == [wanted] * bool(wanted)


def test_one_buffer_passed_twice() -> None:
    given = program(f"{STORE} {LOAD} ret;", "y, y+64, u32:0")
    check(given)
    (step,) = AnalysisManager(given).get(AccessRegions).steps
    assert {int(a.buffer) for a in step.accesses} == {1}


def test_an_empty_grid_is_refused_by_the_reader() -> None:
    with pytest.raises(TesseraError, match="TSR1116"):
        trace(
            BUFFERS, f"{HEAD}ret;\n}}\n", "launch m.k grid=0,1,1 block=1,1,1 args=[y, x, u32:0]\n"
        )


def test_wide_registers() -> None:
    """128 bits at once: nothing of them is followed, and nothing breaks."""
    body = (
        ".reg .b128 %q<3>; .local .align 16 .b8 stack[32]; .reg .b64 %l;"
        "mov.b128 %q1, {%rd4, %rd5}; mov.b128 {%rd6, %rd7}, %q1; mov.u64 %l, stack;"
        "st.local.b128 [%l], %q1; ld.local.b128 %q2, [%l]; mov.b128 {%rd8, %rd9}, %q2;"
        "st.global.u32 [%rd4], %r1; setp.eq.u64 %p1, %rd6, %rd8; @%p1 ret; ret;"
    )
    assert must(program(body)) == [HALF]


def test_a_narrow_word_in_a_wide_register() -> None:
    """A 32-bit word near 2**32 that data moves past it: the 64-bit register gets a small number."""
    body = (
        f".local .align 8 .b8 stack[16]; {LOAD} and.b32 %r6, %r6, 3; add.u32 %r7, %r6, 0xfffffffe;"
        "st.local.u32 [stack], %r7; ld.local.u32 %rd6, [stack]; and.b64 %rd7, %rd6, 255;"
        "shl.b64 %rd7, %rd7, 2; add.s64 %rd8, %rd1, %rd7; st.global.u32 [%rd8], %r1;"
        "shr.u64 %rd9, %rd6, 24; shl.b64 %rd9, %rd9, 2; add.s64 %rd10, %rd1, %rd9;"
        "st.global.u32 [%rd10], %r1; ret;"
    )
    check(program(body))
