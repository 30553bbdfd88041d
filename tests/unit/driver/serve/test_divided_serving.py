"""Serving plans with parts and twins on the CPU backend: equal tokens, faults stay in a replica."""

from __future__ import annotations

from dataclasses import replace

import tessera
from tessera.driver.analyses import remembering
from tessera.driver.load import load
from tessera.driver.serve.engine import Engine
from tessera.ir.plan.division import Cut, Division
from tessera.ir.plan.plan import Plan
from tessera.passes.dependences.dependences import Dependences
from tessera.passes.division.legal_cuts import LegalCuts
from tessera.passes.division.twins import TwinRules
from tests.helpers.divided_plans import divided_plan
from tests.helpers.tiny_model import BUFFERS, KERNEL, STEP, fault_in_one_replica
from tests.helpers.traces import trace
from tests.unit.driver.serve.test_generated import ANSWERS, TRACES

LIMIT_S = 300


def divided_steps(name: str) -> tuple[list[str], list[str]]:
    """Options that cut two thirds of the steps that can be cut, and give the others twins."""
    program = load(TRACES / f"{name}.ptx")
    manager = remembering(program)
    rules = TwinRules(program, manager.get(Dependences).graph)
    cuts, twins = [], []
    for steps in manager.get(LegalCuts).steps:
        if steps.axes and steps.step % 3:
            axis = steps.axes[-1].axis
            cuts.append(f"{name}:{steps.step}:{axis}=0.6@a100,0.4@l40s")
        elif rules.why_not(steps.step) is None:
            twins.append(f"{name}:{steps.step}")
    return cuts, twins


def test_tokens_of_steps_in_parts() -> None:
    names = ("llama_steps_prefill", "llama_steps_decode")
    cuts, twins = map(sum, zip(*map(divided_steps, names), strict=True), ([], []))
    assert len(cuts) > 10
    assert len(twins) > 5
    options = tessera.PlanOptions(
        gpus="a100,l40s",
        slots=1,
        sequences=2,
        gap=0.2,
        seconds=2,
        cuts=tuple(cuts),
        twins=tuple(twins),
    )
    shares = [f"{TRACES}/{name}.ptx:{share}" for name, share in zip(names, (1, 4), strict=True)]
    plan = tessera.plan(shares, options).plan
    assert sum(len(trace.division.twins) for trace in plan.traces) == len(twins)
    cases = ANSWERS["llama"][:2]
    with tessera.Engine(plan, backend="cpu") as engine:
        given = [engine.submit(c["prompt"], max_tokens=3) for c in cases]
        assert [answer.result(LIMIT_S) for answer in given] == [c["answer"][:3] for c in cases]


def tiny_parts() -> Plan:
    """Two replicas of a model of one kernel; each row is a part on a device of its own."""
    kernel = KERNEL.replace("mov.u32 %r1, %tid.x", "mov.u32 %r1, %ctaid.x")
    step = STEP.replace("grid=1,1,1 block=2,1,1", "grid=2,1,1 block=1,1,1")
    program = trace(BUFFERS, kernel, step)
    division = Division((Cut(step=0, axis="x", edges=(0, 1, 2)),))
    plans = [divided_plan(program, division, devices)[0] for devices in ("ab", "cd")]
    return replace(
        plans[0],
        cards=tuple(card for plan in plans for card in plan.cards),
        devices=tuple(device for plan in plans for device in plan.devices),
        replicas=tuple(replace(plan.replicas[0], share=0.5) for plan in plans),
    )


def test_a_fault_in_one_part_takes_its_replica_alone() -> None:
    with Engine(tiny_parts(), backend="cpu") as engine:
        fault_in_one_replica(engine)
