"""A thread that reads back what it has stored is told from one that may read what was there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tessera.driver.plan.make_plan import PlanOptions, plan
from tessera.ir.plan.launch_program import Fill
from tessera.ir.program.print_trace import print_program
from tests.helpers.command import tessc
from tests.helpers.traces import dependences, trace

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


def test_another_load_of_the_same_bytes_stays() -> None:
    """Equal accesses are one in the report, whatever instruction they are of."""
    assert reads(f"{BACK} bar.sync 0; {ALIAS}", launch()) == ["y"]
    assert reads(f"{BACK} bar.sync 0; {ALIAS}", launch("t", "t")) == ["t"]
    assert reads(f"{LOAD} {BACK}", launch()) == ["t"]


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
