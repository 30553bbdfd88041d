"""Plans with parts and twins: read, proved, run, verified, sent to hosts, compared, reported."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.diff_plans import diff
from tessera.driver.hosts.sent_plan import received_model
from tessera.driver.load import load
from tessera.driver.run.open_plan import open_plan
from tessera.driver.run.run_plan import PlanRunOptions, prepare_run
from tessera.driver.run.serving import models_of
from tessera.driver.run.verify import verify_run
from tessera.frontend.plan.tsp import parse_plan
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.plan.division import Cut, Division
from tessera.ir.plan.plan import Plan
from tessera.ir.plan.print_plan import print_plan
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.division.divide import divide
from tessera.passes.division.part_kernels import with_part_kernels
from tessera.report.check import check_json, check_text
from tessera.report.diff import diff_text
from tests.helpers.divided_plans import divided_plan
from tests.helpers.random_divisions import random_devices, random_division
from tests.unit.driver.run.test_sent_plan import sent
from tests.unit.driver.run.test_verify import run_inline

MLP = Path(__file__).parents[4] / "examples" / "traces" / "mlp.ptx"
LINEAR = Division((Cut(step=2, axis="x", edges=(0, 4, 6)),))


@cache
def mlp() -> tuple[ir.Program, AnalysisManager]:
    program = load(MLP)
    return program, AnalysisManager(program)


@cache
def plan_of_seed(seed: int) -> Plan:
    program, manager = mlp()
    rng = random.Random(seed)
    division = random_division(manager, rng, 2)
    placed = random_devices(divide(program, division), rng, "ab")
    return divided_plan(program, division, placed)[0]


@pytest.mark.parametrize("seed", range(1, 3))
def test_the_bytes_of_whole_steps_on_one_device(seed: int) -> None:
    plan = parse_plan(print_plan(plan_of_seed(seed)))
    assert plan == plan_of_seed(seed)
    prepared = prepare_run(plan, PlanRunOptions(requests=2, backend="cpu"))
    (model,) = models_of(prepared.opened, prepared.materials)
    verdict = verify_run(run_inline(prepared, model), prepared)
    assert verdict.bytes > 0
    assert verdict.how == "to the byte"


def test_a_part_that_is_another_one_is_found() -> None:
    program, _ = mlp()
    plan, divided, _ = divided_plan(program, LINEAR, "a" * 9)
    prepared = prepare_run(plan, PlanRunOptions(requests=1, backend="cpu"))
    (model,) = models_of(prepared.opened, prepared.materials)
    steps = [
        replace(step, ctas=ir.CtaRange(0, 3, 6))
        if isinstance(step, ir.Launch) and step.ctas == ir.CtaRange(0, 4, 6)
        else step
        for step in divided.steps
    ]
    wrong = with_part_kernels(replace(divided, steps=tuple(steps)))
    served = replace(model.traces[0], program=wrong)
    outcome = run_inline(prepared, replace(model, traces=(served,)))
    with pytest.raises(TesseraError, match="TSR5054"):
        verify_run(outcome, prepared)


def test_a_host_gets_the_divided_plan_and_proves_it() -> None:
    plan = plan_of_seed(1)
    opened = open_plan(plan)
    materials = prepare_run(plan, PlanRunOptions(requests=1, backend="cpu")).materials
    (model,) = models_of(opened, materials)
    arrived = received_model(*sent(opened, model))
    assert arrived.traces == model.traces
    part, host, parts = sent(opened, model)
    text = parts[0].tobytes().decode().replace("edges=0,4,6", "edges=0,3,6")
    parts[0] = np.frombuffer(text.encode(), np.uint8)
    with pytest.raises(TesseraError, match="TSR40"):
        received_model(part, host, parts)


def test_reports_say_what_is_divided() -> None:
    opened = open_plan(plan_of_seed(1))
    division = opened.plan.traces[0].division
    counts = sum(cut.count for cut in division.cuts), sum(twin.count for twin in division.twins)
    assert "({} parts, {} twins)".format(*counts) in check_text(opened)
    document = json.loads(check_json(opened))["replicas"][0]["traces"][0]
    assert (document["parts"], document["twins"]) == counts
    text = diff_text(diff(plan_of_seed(1), plan_of_seed(2)))
    assert "the same text, other parts of steps" in text
    assert "a [x 0:4 of 6] and b [x 4:6 of 6]" in text
    assert "[twin] and b [twin]" in text
    assert diff(plan_of_seed(1), plan_of_seed(1)).is_equal


TWO_ARCHS = """//! tessera.trace 1
//! buffer y bytes=512 role=output dtype=f32 shape=128
//! module m arch=sm_80
{sm_80}
//! module m arch=sm_90
{sm_90}
//! launch m.k grid=128,1,1 block=1,1,1 args=[y]
//! variant sm_90 grid=64,1,1 block=2,1,1
"""
TILE = """.version 8.0
.target {arch}
.address_size 64
.visible .entry k(.param .u64 .ptr .global y) {{
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    mul.wide.u32 %rd1, %r4, 4;
    ld.param.u64 %rd2, [y];
    add.s64 %rd3, %rd2, %rd1;
    mov.b32 %r5, {value};
    st.global.b32 [%rd3], %r5;
    ret;
}}"""


def test_variants_that_differ_are_reported() -> None:
    """Parts run in the code of their device, and so does the reference; the report compares both
    codes."""
    codes = {"sm_80": "0x3f800000", "sm_90": "0x3f800001"}
    texts = {arch: TILE.format(arch=arch, value=value) for arch, value in codes.items()}
    program = parse_trace(TWO_ARCHS.format(**texts), "tiles.ptx")
    cut = Cut(step=0, axis="x", edges=(0, 96, 128))
    division = Division((cut, replace(cut, edges=(0, 48, 64), arch="sm_90")))
    plan, _, _ = divided_plan(program, division, "ab")
    (replica,) = plan.replicas
    (placed,) = replica.traces
    steps = (placed.steps[0], replace(placed.steps[1], arch="sm_90"))
    cards = (plan.cards[0], replace(plan.cards[1], gpu="h100-sxm", arch="sm_90a"))
    plan = replace(
        plan,
        cards=cards,
        devices=(plan.devices[0], replace(plan.devices[1], sms=132)),
        replicas=(replace(replica, traces=(replace(placed, steps=steps),)),),
    )
    prepared = prepare_run(plan, PlanRunOptions(requests=1, backend="cpu"))
    (model,) = models_of(prepared.opened, prepared.materials)
    outcome = run_inline(prepared, model)
    (done,) = outcome.done.values()
    assert [hex(word) for word in done.outputs["y"].view(np.uint32)[[0, 95, 96, 127]]] == [
        *[codes["sm_80"]] * 2,
        *[codes["sm_90"]] * 2,
    ]
    notes = " ".join(verify_run(outcome, prepared).notes)
    assert "code for several architectures ran (sm_80 on a, sm_90 on b)" in notes
    assert "1 launch compared, the worst: #1 `m.k__x96of128`" in notes
