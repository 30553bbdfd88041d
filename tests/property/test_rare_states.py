"""Kernels in which a state of the analysis that is seldom reached decides the regions.

Each was written for a change of the analysis that no test had noticed (`tests/sabotage.py`), and
which would state too few bytes. They are held against the log of the CPU backend.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from tessera.backend.ptx_executor.run import run_program
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.access_regions import AccessRegions
from tests.helpers.traces import trace
from tests.property.kernel_strategies import Kernel
from tests.property.test_grid_pieces import HEAD, STORE, both_ways, check_equal, in_pieces
from tests.property.test_soundness_generated import check_log, log_of, program_of

# What the launch stores to `out` is placed by %r20, which is at most 63; %r5 is from data.
DATA = "ld.global.u32 %r5, [%rd2];\n and.b32 %r5, %r5, 63;\n"
PRINT = """.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);
.global .align 1 .b8 $str[3] = {37, 100, 0};
.visible .entry"""
DECIDED = {
    # A loop that data decides about is tried at once, in vain: then its guard says nothing of
    # what is stored behind the loop.
    "a guard in rounds that are given up": f"""{DATA}
    setp.lt.u32 %p1, %r5, 5;
    mov.u32 %r6, 0;
MORE:
    @%p1 st.global.u32 [%rd1+512], %r6;
    add.s32 %r6, %r6, 1;
    setp.lt.u32 %p2, %r6, 12;
    @%p2 bra MORE;
    mov.u32 %r20, %r5;
""",
    # The address may be in shared memory, or in `out`.
    "a generic store to one of two spaces": f"""{DATA}
    .shared .align 4 .b32 kept;
    mov.u32 %r6, 3;
    st.shared.u32 [kept], %r6;
    bar.sync 0;
    cvta.shared.u64 %rd5, kept;
    setp.lt.u32 %p1, %r5, 5;
    selp.b64 %rd6, %rd5, %rd1, %p1;
    mov.u32 %r7, 50;
    st.u32 [%rd6], %r7;
    bar.sync 0;
    ld.shared.u32 %r20, [kept];
""",
    # Where a variable lies is not known, and local memory may hold it as a number.
    "where a shared variable lies": """
    .shared .align 4 .b32 other;
    .shared .align 4 .b32 kept;
    .local .align 4 .b32 own;
    st.shared.u32 [kept], 3;
    bar.sync 0;
    mov.u32 %r6, kept;
    st.local.u32 [own], %r6;
    ld.local.u32 %r7, [own];
    and.b32 %r7, %r7, 31;
    ld.shared.u32 %r8, [kept];
    add.s32 %r20, %r7, %r8;
""",
    # The call writes how many arguments it has taken over what was stored in its result.
    "the result of a call": """
    .local .align 8 .b64 values;
    .param .b32 result;
    .param .b64 format;
    .param .b64 listed;
    mov.u32 %r6, 9;
    st.param.b32 [result], %r6;
    cvta.local.u64 %rd5, values;
    mov.u64 %rd6, $str;
    cvta.global.u64 %rd6, %rd6;
    st.param.b64 [format], %rd6;
    st.param.b64 [listed], %rd5;
    call.uni (result), vprintf, (format, listed);
    ld.param.b32 %r20, [result];
""",
    "a copy that data may leave out": f"""{DATA}
    .shared .align 16 .b8 copied[1024];
    mul.wide.u32 %rd5, %r4, 16;
    add.s64 %rd6, %rd2, %rd5;
    mov.u32 %r6, copied;
    mad.lo.u32 %r6, %r4, 16, %r6;
    setp.lt.u32 %p1, %r5, 5;
    cp.async.cg.shared.global [%r6], [%rd6], 16, %p1;
    cp.async.wait_all;
    mov.u32 %r20, %r5;
""",
    "a quotient of numbers that do not grow": """
    mul.lo.u32 %r5, %r4, 0x90000001;
    mul.hi.s32 %r6, %r5, -5;
    shr.s32 %r6, %r6, 1;
    and.b32 %r20, %r6, 63;
""",
    "a high half that is not only moved": """
    add.s32 %r6, %r3, 7;
    mul.hi.u32 %r5, %r6, 0x40000000;
    popc.b32 %r20, %r5;
""",
    "lanes below": "mov.u32 %r6, %lanemask_lt;\n popc.b32 %r20, %r6;\n",
    # An argument that does not start at a multiple of 16 bytes.
    "the alignment of an argument": """
    cvt.u32.u64 %r6, %rd1;
    and.b32 %r20, %r6, 15;
""",
    "the alignment of two arguments": """
    or.b64 %rd5, %rd1, %rd2;
    cvt.u32.u64 %r6, %rd5;
    and.b32 %r20, %r6, 15;
""",
    # Nobody comes to the trap, so all store.
    "a trap": f"""{DATA}
    setp.gt.u32 %p1, %r5, 63;
    @%p1 bra NEVER;
    mov.u32 %r20, %r4;
    bra GO;
NEVER:
    trap;
GO:
""",
}


@pytest.mark.parametrize("body", DECIDED.values(), ids=list(DECIDED))
def test_what_is_stored_is_in_the_regions(body: str) -> None:
    text = (HEAD + body + STORE).replace(".visible .entry", PRINT)
    kernel = Kernel(text, (2, 1, 1), (32, 1, 1), (0, 0), 4)
    program = program_of(kernel)
    literal = ir.Buffer(id=ir.BufferId(3), name="m.$str", bytes=3, role=ir.Role.VARIABLE)
    program = replace(program, buffers=(*program.buffers, literal))
    steps = [in_pieces(program), *AnalysisManager(program).get(AccessRegions).steps]
    for contents in ("zeros", "ones", "random", "small"):
        log = log_of(program, kernel, contents)
        for step in steps:
            assert not step.pins
            check_log(program, step, log, contents)


def test_a_format_that_may_be_overwritten_is_not_known() -> None:
    """Only literals of compilers cannot be: by `%s`, the call would follow pointers."""
    body = DECIDED["the result of a call"]
    text = (HEAD + body + STORE).replace(".visible .entry", PRINT).replace("$str", "text")
    program = program_of(Kernel(text, (1, 1, 1), (32, 1, 1), (0, 0), 0))
    literal = ir.Buffer(id=ir.BufferId(3), name="m.text", bytes=3, role=ir.Role.VARIABLE)
    program = replace(program, buffers=(*program.buffers, literal))
    (step,) = AnalysisManager(program).get(AccessRegions).steps
    assert [str(pin.reason) for pin in step.pins] == ["it prints by a format that is not known"]


def test_a_literal_with_an_address_in_it_is_not_known() -> None:
    """Its bytes are those of the address, which a format of the same name could be."""
    listed = ".global .align 8 .b64 $str[1] = {there};"
    given = PRINT.replace(".global .align 1 .b8 $str[3] = {37, 100, 0};", listed)
    given = given.replace(listed, f".global .align 1 .b8 there[3] = {{37, 115, 0}};\n{listed}")
    text = (HEAD + DECIDED["the result of a call"] + STORE).replace(".visible .entry", given)
    program = program_of(Kernel(text, (1, 1, 1), (32, 1, 1), (0, 0), 0))
    literals = [
        ir.Buffer(id=ir.BufferId(3 + n), name=f"m.{name}", bytes=8 - 5 * n, role=ir.Role.VARIABLE)
        for n, name in enumerate(("$str", "there"))
    ]
    program = replace(program, buffers=(*program.buffers, *literals))
    (step,) = AnalysisManager(program).get(AccessRegions).steps
    assert [str(pin.reason) for pin in step.pins] == ["it prints by a format that is not known"]


def test_a_kernel_that_ends_behind_a_branch() -> None:
    """Threads that do not take it end there."""
    body = "mov.u32 %r20, %r4;\n mov.u32 %r6, 0;\nAGAIN:\n"
    end = "add.s32 %r6, %r6, 1;\n setp.lt.u32 %p1, %r6, %r4;\n @%p1 bra AGAIN;\n}"
    text = HEAD + body + STORE.replace("DONE:\n    ret;\n}", end)
    assert "ret;" not in text
    kernel = Kernel(text, (2, 1, 1), (5, 1, 1), (0, 0), 4)
    program = program_of(kernel)
    (step,) = AnalysisManager(program).get(AccessRegions).steps
    assert not step.pins
    check_log(program, step, log_of(program, kernel, "zeros"), "zeros")


# What was computed before the CTAs are spelled out, beside their numbers read afterwards.
BEFORE = """
    add.s32 %r5, %r3, 1;
    mul.lo.s32 %r6, %r5, %r5;
    mov.u32 %r7, %ctaid.x;
    mul.lo.s32 %r8, %r7, 7;
    add.s32 %r20, %r6, %r8;
"""
# Between two elections, the CTAs are taken apart. If other threads are elected then, none stores.
ELECTED = """
    elect.sync %r6|%p1, 0xffffffff;
    setp.lt.u32 %p2, %r3, 5;
    selp.b32 %r20, 64, 0, %p2;
    elect.sync %r7|%p3, 0xffffffff;
    and.pred %p4, %p1, %p3;
    @!%p4 bra DONE;
"""


# The number of a cluster beside that of the CTA; grids of clusters are not followed in pieces.
CLUSTERS = """
    mov.u32 %r6, %clusterid.x;
    mad.lo.s32 %r20, %r6, 9, %r3;
"""
IN_PARTS = {"numbers of CTAs": BEFORE, "two elections": ELECTED, "clusters": CLUSTERS}


@pytest.mark.parametrize("body", IN_PARTS.values(), ids=list(IN_PARTS))
def test_runs_that_go_on_in_parts_of_the_grid(body: str) -> None:
    text = (HEAD + body + STORE).replace("sm_80", "sm_90")
    if "%clusterid" in body:
        text = text.replace(")\n{", ")\n.reqnctapercluster 3, 1, 1\n{")
    kernel = Kernel(text, (12, 1, 1), (32, 1, 1), (0, 0), 0)
    program = program_of(kernel)
    check_equal(*both_ways(program)[0])
    check_log(program, in_pieces(program), log_of(program, kernel, "zeros"), "zeros")


CHOOSE = """
.visible .entry choose(.param .u64 y, .param .u64 x, .param .u64 first, .param .u64 second)
{
    .reg .pred %p;
    .reg .b32 %r<4>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [y];
    ld.param.u64 %rd2, [x];
    ld.param.u64 %rd3, [first];
    ld.param.u64 %rd4, [second];
    ld.global.u32 %r1, [%rd2];
    setp.lt.u32 %p, %r1, 5;
    selp.b64 %rd5, %rd3, %rd4, %p;
    ld.global.u32 %r2, [%rd5+8];
    mul.wide.u32 %rd6, %r2, 4;
    add.s64 %rd7, %rd1, %rd6;
    st.global.u32 [%rd7], %r2;
    ret;
}
"""
WEIGHTS = """
buffer y bytes=256 role=output
buffer x bytes=64 role=input
buffer first bytes=64 role=weight
buffer second bytes=64 role=weight
"""


def test_a_word_of_one_of_two_weights() -> None:
    tables = [np.arange(start, start + 16, dtype=np.uint32) for start in (0, 40)]
    step = "launch m.choose grid=1,1,1 block=1,1,1 args=[y, x, first, second]\n"
    known = [
        ir.KnownContents(ir.BufferId(2 + n), bytes(t), hashlib.sha256(bytes(t)).hexdigest())
        for n, t in enumerate(tables)
    ]
    program = replace(trace(WEIGHTS, CHOOSE, step), known=tuple(known))
    (found,) = AnalysisManager(program).get(AccessRegions).steps
    assert not found.pins
    named = dict(zip(("first", "second"), (t.view(np.uint8) for t in tables), strict=True))
    for number in (0, 9):
        x = np.full(16, number, np.uint32).view(np.uint8)
        (record,) = run_program(program, {**named, "x": x}).launches
        check_log(program, found, record.result.accesses, f"x is {number}")
