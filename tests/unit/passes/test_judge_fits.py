"""The judge of plans: no step is on a device that cannot run it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.plan.plan import Plan
from tessera.passes.checker.check_plan import check_plan
from tests.helpers.plan_files import plan_of
from tests.helpers.served import graph_of
from tests.helpers.traces import COPY, trace

BUFFERS = """
buffer x bytes=256 role=input
buffer y bytes=256 role=output
"""


def plan_for(launch: str, kernel: str = COPY) -> Plan:
    """One launch on a whole A100: 108 SMs of `sm_80`."""
    step = f"launch m.copy {launch} args=[y, x, u32:64]"
    return plan_of([trace(BUFFERS, kernel, step)], [["a"]])


def judged(plan: Plan, *, sms: int = 108, arch: str = "sm_80") -> str:
    programs = [parse_trace(one.text, "t.ptx") for one in plan.traces]
    changed = replace(
        plan,
        devices=tuple(replace(one, sms=sms) for one in plan.devices),
        cards=tuple(replace(one, arch=arch) for one in plan.cards),
    )
    found = check_plan(changed, programs, [graph_of(one) for one in programs])
    assert {one.code for one in found} <= {"TSR4013"}
    return "\n".join(str(one.headline) for one in found)


@pytest.mark.parametrize(
    ("launch", "sms", "arch", "why"),
    [
        ("grid=1000,1,1 block=1024,1,1", 1, "sm_80", ""),
        ("grid=216,1,1 block=1024,1,1 cooperative=1", 108, "sm_80", ""),
        ("grid=216,1,1 block=1024,1,1 cooperative=1", 107, "sm_80", "at most 214 run"),
        ("grid=217,1,1 block=1024,1,1 cooperative=1", 108, "sm_80", "at most 216 run"),
        ("grid=216,1,1 block=1024,1,1 cooperative=1", 108, "sm_89", "at most 108 run"),
        ("grid=108,1,1 block=32,1,1 smem=90000 cooperative=1", 108, "sm_80", ""),
        ("grid=109,1,1 block=32,1,1 smem=90000 cooperative=1", 108, "sm_80", "at most 108 run"),
        ("grid=3456,1,1 block=32,1,1 cooperative=1", 108, "sm_80", ""),
        ("grid=3457,1,1 block=32,1,1 cooperative=1", 108, "sm_80", "at most 3456 run"),
        ("grid=1,1,1 block=64,1,1 smem=166912", 108, "sm_80", ""),
        ("grid=1,1,1 block=64,1,1 smem=166913", 108, "sm_80", "166913 bytes of shared memory"),
        ("grid=1,1,1 block=64,1,1 smem=166912", 108, "sm_89", "166912 bytes of shared memory"),
        ("grid=2,1,1 block=64,1,1 cluster=2,1,1", 108, "sm_80", "in clusters"),
        ("grid=2,1,1 block=64,1,1 cluster=2,1,1", 108, "sm_90", ""),
        ("grid=1,1,1 block=64,1,1", 108, "sm_75", "its code is for `sm_80`"),
    ],
)
def test_a_step_fits_its_device(launch: str, sms: int, arch: str, why: str) -> None:
    found = judged(plan_for(launch), sms=sms, arch=arch)
    if not why:
        assert found == ""
    else:
        assert f"step `#0 m.copy` cannot run on `a`, which is `{arch}` with {sms} SMs" in found
        assert why in found


def test_steps_are_called_as_in_the_trace() -> None:
    plan = plan_for("grid=1,1,1 block=64,1,1")
    (replica,) = plan.replicas
    (placed,) = replica.traces
    (step,) = placed.steps
    other = replace(placed, steps=(replace(step, name="m.other"),))
    changed = replace(plan, replicas=(replace(replica, traces=(other,)),))
    assert judged(changed) == "step 0 of replica 0 is called `m.other`, and `m.copy` in its trace"


@pytest.mark.parametrize(("blocks", "fits"), [(216, True), (217, False)])
def test_blocks_that_wait_for_others_must_be_there(blocks: int, fits: bool) -> None:
    """Without a cooperative launch, too."""
    spin = "WAIT: ld.volatile.global.u32 %r1, [%rd2]; setp.eq.u32 %p, %r1, 0; @%p bra WAIT;\n"
    waits = COPY.replace("    mul.wide", f"    {spin}    mul.wide")
    found = judged(plan_for(f"grid={blocks},1,1 block=1024,1,1", waits))
    assert ("at most 216 run" not in found) is fits
