"""A plan file is proved before it runs, whatever it says of itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tessera.diagnostics import TesseraError
from tessera.ir.launch_program import Send
from tessera.ir.plan import Plan
from tessera.running.open_plan import is_plan, open_plan
from tests.helpers.plan_files import plan_of, write_plan
from tests.helpers.random_traces import random_program


@pytest.fixture(scope="module")
def plan() -> Plan:
    program = random_program(2)
    return plan_of([program], [["ab"[n % 2] for n in range(len(program.steps))]])


def test_a_plan_and_its_file_are_the_same(tmp_path: Path, plan: Plan) -> None:
    path = write_plan(tmp_path, plan)
    assert is_plan(path)
    assert open_plan(path).plan == open_plan(plan).plan == plan


def test_other_files_are_no_plans(tmp_path: Path) -> None:
    trace = tmp_path / "t.ptx"
    trace.write_text("//! tessera.trace 1\n")
    assert not is_plan(trace)
    assert not is_plan(tmp_path / "missing")


def test_slots_and_lanes_can_be_changed(plan: Plan) -> None:
    opened = open_plan(plan, slots=1, lanes=3)
    (replica,) = opened.replicas
    assert (replica.slots, replica.lanes) == (1, 3)
    assert (replica.lowered.slots, replica.lowered.lanes) == (1, 3)


def test_more_slots_than_the_memory_holds(plan: Plan) -> None:
    cards = tuple(replace(card, capacity_bytes=card.used_bytes) for card in plan.cards)
    small = replace(plan, cards=cards)
    open_plan(small)
    with pytest.raises(TesseraError, match="TSR4"):
        open_plan(small, slots=50)


def test_a_plan_without_one_of_its_sends_is_refused(plan: Plan) -> None:
    (replica,) = plan.replicas
    (lowered,) = replica.lowered.traces
    program = lowered.programs[0]
    without = tuple(one for one in program.operations if not isinstance(one.operation, Send))
    assert len(without) < len(program.operations)
    programs = (replace(program, operations=without), *lowered.programs[1:])
    broken = replace(replica.lowered, traces=(replace(lowered, programs=programs),))
    with pytest.raises(TesseraError, match="TSR4"):
        open_plan(replace(plan, replicas=(replace(replica, lowered=broken),)))


def test_a_plan_with_another_trace_inside_is_refused(plan: Plan) -> None:
    (trace,) = plan.traces
    other = replace(trace, text=trace.text + "//! memset y0+0 bytes=4 value=0x00\n")
    with pytest.raises(TesseraError, match="TSR5057"):
        open_plan(replace(plan, traces=(other,)))


def test_a_policy_that_is_not_there(plan: Plan) -> None:
    with pytest.raises(TesseraError, match="has no policy `fast`"):
        open_plan(plan, policy="fast")


@pytest.mark.parametrize("more", [{"slots": 65}, {"lanes": 1 << 40}])
def test_numbers_that_the_host_cannot_hold(plan: Plan, more: dict[str, int]) -> None:
    with pytest.raises(TesseraError, match="TSR5053"):
        open_plan(plan, **more)
