"""A thread that reads back what it has stored is told from one that may read what was there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tessera.driver.plan import PlanOptions, plan
from tessera.ir.graph.access import AccessKind
from tessera.ir.plan.launch_program import Fill
from tessera.ir.program.print_trace import print_program
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import region_bytes
from tests.helpers.command import tessc
from tests.helpers.traces import HEADER, dependences, trace

KERNEL = """
.visible .entry twice(.param .u64 out, .param .u64 t, .param .u32 n)
{
    .reg .pred %p<6>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<12>;
    ld.param.u64 %rd1, [t];
    ld.param.u64 %rd2, [out];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd3, %r2, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    setp.lt.u32 %p1, %r2, %r1;
    setp.lt.u32 %p2, %r2, 7;
    BODY
    @%p1 st.global.u32 [%rd5], %r3;
    ret;
}
"""
BUFFERS = """
buffer t bytes=512 role=temp
buffer y bytes=512 role=output
"""
STORE = "st.global.u32 [%rd4], %r2;"
LOAD = "ld.global.u32 %r3, [%rd4];"
AGAIN = "add.s64 %rd6, %rd1, %rd3; ld.global.u32 %r3, [%rd6];"


def is_told(body: str) -> bool:
    """Whether the launch is told to read bytes of `t` that nothing has written."""
    launch = "launch m.twice grid=1,1,1 block=128,1,1 args=[y, t, u32:100]\n"
    program = trace(BUFFERS, KERNEL.replace("BODY", body), launch)
    return "TSR2007" in [told.code for told in dependences(program).diagnostics]


@pytest.mark.parametrize(
    "body",
    [
        f"{STORE} {LOAD}",
        f"{STORE} {AGAIN}",
        f"{STORE} mov.b64 %rd6, %rd4; {LOAD.replace('%rd4', '%rd6')}",
        f"@%p1 {STORE} @%p1 {LOAD}",
        f"{STORE} @%p1 {LOAD}",
        f"{STORE} @%p2 bra over; over: {LOAD}",
        "st.global.v2.u32 [%rd4], {%r2, %r2}; ld.global.u32 %r3, [%rd4];",
        # The same register in every round of a loop.
        f"mov.u32 %r4, 0; more: add.u32 %r4, %r4, 1; {STORE} {LOAD} "
        "setp.lt.u32 %p3, %r4, 3; @%p3 bra more;",
    ],
)
def test_what_a_thread_has_stored(body: str) -> None:
    assert not is_told(body)


@pytest.mark.parametrize(
    "body",
    [
        LOAD,
        f"{LOAD} {STORE}",
        f"@%p2 {STORE} {LOAD}",
        f"@%p2 {STORE} @%p1 {LOAD}",
        f"@!%p1 {STORE} @%p1 {LOAD}",
        f"@%p2 bra over; {STORE} over: {LOAD}",
        "st.global.u16 [%rd4], 1; st.global.u16 [%rd4+2], 1; ld.global.u32 %r3, [%rd4];",
        f"{STORE} ld.global.nc.u32 %r3, [%rd4];",
        # What another thread has stored: who knows when.
        f"{STORE} bar.sync 0; xor.b32 %r5, %r2, 1; mul.wide.u32 %rd7, %r5, 4; "
        "add.s64 %rd8, %rd1, %rd7; ld.global.u32 %r3, [%rd8];",
        # The guard, or the address, is another one by then.
        f"@%p2 {STORE} setp.ne.u32 %p2, %r2, 500; @%p2 {LOAD}",
        f"mov.b64 %rd9, %rd4; {STORE.replace('%rd4', '%rd9')} xor.b64 %rd9, %rd9, 4; "
        "ld.global.u32 %r3, [%rd9];",
        # In the first round of a loop nothing is stored yet.
        f"mov.u32 %r4, 0; mov.b64 %rd9, %rd4; more: ld.global.u32 %r3, [%rd9]; {STORE} "
        "add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, 2; @%p3 bra more;",
    ],
)
def test_what_may_have_been_there(body: str) -> None:
    assert is_told(body)


LOOP = "mov.u32 %r4, 0; more: {} add.u32 %r4, %r4, 1; setp.lt.u32 %p4, %r4, 9; @%p4 bra more;"
MOVED = "mul.wide.u32 %rd8, %r4, 4; add.s64 %rd9, %rd4, %rd8;"
ROUND = "setp.ne.u32 %p3, %r4, 0;"
THERE, BACK_THERE = STORE.replace("%rd4", "%rd9"), LOAD.replace("%rd4", "%rd9")


@pytest.mark.parametrize(
    "body",
    [
        LOOP.format(f"{ROUND} @%p3 {THERE} {MOVED} @%p3 {BACK_THERE}"),
        LOOP.format(f"@%p3 {STORE} {ROUND} @%p3 {LOAD}"),
        LOOP.format(f"@%p2 bra over; {MOVED} over: {THERE} {BACK_THERE}"),
        f"@%p2 bra over; add.s64 %rd9, %rd1, %rd3; over: {THERE} {BACK_THERE}",
        f"@%p2 add.s64 %rd9, %rd1, %rd3; {THERE} {BACK_THERE}",
        f"@%p2 setp.lt.u32 %p3, %r2, 9; @%p3 {STORE} @%p3 {LOAD}",
        # Ways into the middle of a circle: neither block dominates the other.
        f"mov.u32 %r4, 0; @%p2 bra two; one: {STORE} two: {LOAD} add.u32 %r4, %r4, 1; "
        "setp.lt.u32 %p4, %r4, 3; @%p4 bra one;",
    ],
)
def test_what_is_written_once_counts_only_after_that(body: str) -> None:
    """Each of these registers has one writer, which does not come before both uses."""
    assert "t" in reads(body, launch())


def test_what_is_written_once_before_both_uses() -> None:
    """In each round of a loop, too."""
    assert not is_told(LOOP.format(f"{ROUND} {MOVED} @%p3 {THERE} @%p3 {BACK_THERE}"))
    assert not is_told(LOOP.format(f"{MOVED} {THERE} @%p2 bra over; {BACK_THERE} over:"))


READ_BACK = """
.visible .entry rb(.param .u64 y, .param .u32 n)
{
    .reg .b32 %r<10>;
    .reg .b64 %d<8>;
    .reg .pred %p<4>;
    ld.param.u64 %d1, [y];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, 0;
    mov.u32 %r5, 1;
    mov.u32 %r6, 0;
L:
    setp.ne.u32 %p1, %r2, 0;
    @%p1 st.global.u32 [%d3], %r5;
    mul.wide.u32 %d2, %r2, 4;
    add.u64 %d3, %d1, %d2;
    @%p1 ld.global.u32 %r6, [%d3];
    add.u32 %r5, %r5, %r6;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p2, %r2, %r1;
    @%p2 bra L;
    st.global.u32 [%d3], %r5;
    ret;
}
"""


@pytest.mark.parametrize("role", ["temp", "output"])
def test_a_store_one_round_behind_its_load(role: str) -> None:
    """The store is to the address of the round before: every word but the first is read."""
    launch = "launch m.rb grid=1,1,1 block=1,1,1 args=[y, u32:64]\n"
    program = trace(f"buffer y bytes=256 role={role}", READ_BACK, launch)
    (node,) = dependences(program).graph.nodes
    loaded = [region_bytes(a.region, 256) for a in node.accesses if a.kind is AccessKind.READ]
    assert intervals.union(loaded).tolist() == [[4, 256]]


FAR = """
buffer t bytes=131072 role=temp
buffer y bytes=512 role=output
"""
MORE = "%r<20>; .reg .b16 %h1; .reg .f32 %f1;"
PLACE = "mad.lo.u32 %r12, %r2, 4, 0x10000;"
WIDE = "cvt.u64.u32 %rd10, %r12;"


@pytest.mark.parametrize(
    ("stored", "loaded", "parameters", "arguments", "is_new"),
    [
        (f"{PLACE} {WIDE}", "cvt.u64.u32 %rd12, %r12;", "", "", False),
        (f"{PLACE} cvt.u16.u32 %h1, %r12; cvt.u64.u16 %rd10, %h1;", "cvt.u64.u32 %rd12, %r12;",
         "", "", True),
        ("mov.u32 %r12, %clock; and.b32 %r13, %r12, 508; or.b32 %r14, %r13, 0x10000; "
         "cvt.u64.u32 %rd10, %r14;",
         "mov.u32 %r15, %clock; and.b32 %r16, %r15, 508; or.b32 %r17, %r16, 0x10000; "
         "cvt.u64.u32 %rd12, %r17;", "", "", True),
        ("ld.param.u32 %r13, [k]; mad.lo.u32 %r12, %r2, 4, %r13; cvt.u64.u32 %rd10, %r12;",
         "ld.param.u32 %r14, [twice_k]; mad.lo.u32 %r15, %r2, 4, %r14; cvt.u64.u32 %rd12, %r15;",
         ".param .u32 k, .param .u32 twice_k", "u32:0, u32:65536", True),
        ("ld.param.v2.u32 {%r13, %r14}, [k]; mad.lo.u32 %r12, %r2, 4, %r13; "
         "cvt.u64.u32 %rd10, %r12;",
         "mad.lo.u32 %r15, %r2, 4, %r14; cvt.u64.u32 %rd12, %r15;",
         ".param .align 8 .b8 k[8]", "b8[8]:0000000000000100", True),
        (f"{PLACE} cvt.rn.f32.u32 %f1, %r12; mov.b32 %r13, %f1; and.b32 %r13, %r13, 508; "
         "cvt.u64.u32 %rd10, %r13;", "cvt.u64.u32 %rd12, %r12;", "", "", True),
    ],
)  # fmt: skip
def test_addresses_that_look_alike(
    stored: str, loaded: str, parameters: str, arguments: str, is_new: bool
) -> None:
    """Texts of two addresses are equal, their numbers are not: another thread stores there."""
    other = "xor.b32 %r10, %r2, 1; mad.lo.u32 %r11, %r10, 4, 0x10000; cvt.u64.u32 %rd8, %r11;"
    body = (
        f"{other} add.s64 %rd9, %rd1, %rd8; {STORE.replace('%rd4', '%rd9')} "
        f"{stored} add.s64 %rd11, %rd1, %rd10; {STORE.replace('%rd4', '%rd11')} "
        f"{loaded} add.s64 %rd13, %rd1, %rd12; {LOAD.replace('%rd4', '%rd13')}"
    )
    kernel = KERNEL.replace("%r<12>;", MORE).replace("%rd<12>", "%rd<16>").replace("BODY", body)
    kernel = kernel.replace(".u32 n)", f".u32 n{', ' if parameters else ''}{parameters})")
    given = f"y, t, u32:100{', ' if arguments else ''}{arguments}"
    program = trace(FAR, kernel, f"launch m.twice grid=1,1,1 block=128,1,1 args=[{given}]\n")
    told = [told.code for told in dependences(program).diagnostics]
    assert ("TSR2007" in told) is is_new


def test_addresses_made_of_two_pointers() -> None:
    """A load through one pointer, moved by the distance to another, is not elsewhere."""
    far = "sub.s64 %rd6, %rd4, %rd5; shr.s64 %rd7, %rd6, 0; add.s64 %rd8, %rd5, %rd7; "
    near = "ld.global.u32 %r6, [%rd8];"
    assert is_told(f"{far} {near} {STORE} {LOAD}")


# --- what becomes of it ---------------------------------------------------------------------------

BACK = f"{STORE} {LOAD}"
ALIAS = "ld.param.u64 %rd10, [out]; add.s64 %rd11, %rd10, %rd3; ld.global.u32 %r6, [%rd11];"


def reads(body: str, steps: str) -> list[str]:
    """The buffers that the last step reads."""
    program = trace(BUFFERS, KERNEL.replace("BODY", body), steps)
    graph = dependences(program).graph
    return [graph.buffers[a.buffer].name for a in graph.nodes[-1].accesses if a.kind.reads]


def launch(out: str = "y", t: str = "t") -> str:
    return f"launch m.twice grid=1,1,1 block=128,1,1 args=[{out}, {t}, u32:100]\n"


def test_nothing_has_to_be_there_before() -> None:
    assert reads(BACK, launch()) == []
    assert reads(f"@%p2 {STORE} {LOAD}", launch()) == ["t"]


def test_what_an_earlier_step_wrote_stays_a_read() -> None:
    earlier = "memset t bytes=4 value=0\n"
    assert reads(BACK, earlier + launch()) == ["t"]


def test_what_an_earlier_step_only_read_does_not_stay() -> None:
    assert reads(BACK, "memcpy y t bytes=4\n" + launch()) == []
    assert reads(BACK, "memset y bytes=4 value=0\n" + launch()) == []


def test_another_load_of_the_same_bytes_stays() -> None:
    """Equal accesses are one in the report, whatever instruction they are of."""
    assert reads(f"{BACK} bar.sync 0; {ALIAS}", launch()) == ["y"]
    assert reads(f"{BACK} bar.sync 0; {ALIAS}", launch("t", "t")) == ["t"]
    assert reads(f"{LOAD} {BACK}", launch()) == ["t"]


@pytest.mark.parametrize("bodies", [(BACK, LOAD), (LOAD, BACK), (BACK, BACK)])
def test_code_for_two_gpus_keeps_its_reads(bodies: tuple[str, str]) -> None:
    first, second = (KERNEL.replace("BODY", body) for body in bodies)
    for_other = HEADER.replace("sm_80", "sm_90")
    kernels = f"{first}//! module m arch=sm_90\n{for_other}{second}"
    program = trace(BUFFERS, kernels, launch())
    graph = dependences(program).graph
    assert [a.buffer for a in graph.nodes[-1].accesses if a.kind.reads] == [0]


def test_weights_inputs_and_states_stay_read() -> None:
    for role in ("state", "input"):
        kinds = BUFFERS.replace("role=temp", f"role={role}")
        program = trace(kinds, KERNEL.replace("BODY", BACK), launch())
        (node,) = dependences(program).graph.nodes
        assert any(access.kind.reads for access in node.accesses)


def test_a_plan_fills_nothing_for_it(tmp_path: Path) -> None:
    """And is proved, and runs to what one device gives."""
    made = tmp_path / "back.tsp"
    for body, fills in ((BACK, 0), (f"@%p2 {STORE} {LOAD}", 1)):
        path = tmp_path / f"{fills}.ptx"
        program = trace(BUFFERS, KERNEL.replace("BODY", body), launch())
        path.write_text(print_program(program))
        report = plan(path, PlanOptions(gpus="a100", strategy="single"), compare=False)
        operations = [
            queued.operation
            for own in report.plan.replicas[0].lowered.traces
            for device in own.programs
            for queued in device.operations
        ]
        assert sum(isinstance(operation, Fill) for operation in operations) == fills
    planned = tessc("plan", str(tmp_path / "0.ptx"), "--gpus", "a100", "-o", str(made))
    assert planned.code == 0, planned.err
    ran = tessc("run", str(made), "--backend", "cpu", "--requests", "2", "--verify")
    assert ran.code == 0, ran.err
