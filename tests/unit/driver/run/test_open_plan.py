"""A plan file is proved before it runs, whatever it says of itself."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.plan import PlanOptions
from tessera.driver.plan import plan as make_plan
from tessera.driver.run.open_plan import is_plan, open_plan
from tessera.frontend.machine.machine_file import parse_machine
from tessera.ir.objectives import OBJECTIVES
from tessera.ir.plan.launch_program import Send
from tessera.ir.plan.plan import Plan
from tessera.ir.program.print_trace import print_program
from tests.helpers.plan_files import plan_of, write_plan
from tests.helpers.random_traces import random_program
from tests.helpers.share import share

MLP = Path(__file__).parents[4] / "examples" / "traces" / "mlp.ptx"


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


def test_a_pipe_keeps_what_is_in_it() -> None:
    """As of `tessc run <(make_a_trace)`: what a first look took would be missing."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as stream:
        os.write(writer, b"//! tessera.trace 1\n")
        os.close(writer)
        assert not is_plan(f"/dev/fd/{reader}")
        assert stream.read() == b"//! tessera.trace 1\n"


def test_slots_and_lanes_can_be_changed(plan: Plan) -> None:
    opened = open_plan(plan, slots=1, sequences=3)
    (replica,) = opened.replicas
    assert (replica.slots, replica.lanes) == (1, 3)
    assert (replica.lowered.slots, replica.lowered.lanes) == (1, 3)


def gated(plan: Plan, gate: int | None) -> Plan:
    (replica,) = plan.replicas
    (lowered,) = replica.lowered.traces
    traces = (replace(lowered, gate=gate),)
    changed = replace(replica, lowered=replace(replica.lowered, traces=traces))
    return replace(plan, replicas=(changed,))


def test_gates(tmp_path: Path, plan: Plan) -> None:
    """A gate is read as it was written, whatever slots and lanes; a plan need not have one."""
    assert "gate" not in Path(write_plan(tmp_path, plan)).read_text()
    last = len(plan.replicas[0].traces[0].steps) - 1
    for gate in (None, 0, last):
        path = write_plan(tmp_path, gated(plan, gate))
        for more in ({}, {"slots": 1}, {"slots": 4, "sequences": 3}, {"sequences": 5}):
            (replica,) = open_plan(path, **more).replicas
            assert [trace.gate for trace in replica.lowered.traces] == [gate]


@pytest.mark.parametrize("gate", ["-1", "999", "x", "1.5", "0 gate=0", '"0"', "9" * 40, "0,1", ""])
def test_wrong_gates(tmp_path: Path, plan: Plan, gate: str) -> None:
    path = Path(write_plan(tmp_path, gated(plan, 0)))
    text = path.read_text()
    assert text.count("gate=0") == 1
    path.write_text(text.replace("gate=0", f"gate={gate}"))
    with pytest.raises(TesseraError) as failure:
        open_plan(path)
    (found,) = failure.value.diagnostics
    assert found.code == "TSR3020"
    assert "gate" in str(found.headline) or "too large" in str(found.headline)
    assert found.primary is not None


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
    with pytest.raises(TesseraError, match=r"TSR4013.* digests differ"):
        open_plan(replace(plan, traces=(other,)))


def test_a_plan_made_by_hand_with_names_that_are_not_there(plan: Plan) -> None:
    devices = (replace(plan.devices[0], card="nowhere"), *plan.devices[1:])
    with pytest.raises(TesseraError, match=r"TSR4013.*there is no card `nowhere`"):
        open_plan(replace(plan, devices=devices))
    with pytest.raises(TesseraError, match="at least one replica"):
        open_plan(replace(plan, replicas=()))


def test_a_policy_that_is_not_there(plan: Plan) -> None:
    with pytest.raises(TesseraError, match="has no policy `fast`") as failure:
        open_plan(plan, policy="fast")
    assert failure.value.diagnostics[0].hint == "it has none to choose from"


def test_a_run_takes_as_many_slots_as_a_plan_may_have() -> None:
    from tessera.driver.run import open_plan as opening
    from tessera.planning.promise import trial

    assert opening.MOST_SLOTS >= trial.MOST_SLOTS


@pytest.mark.parametrize("more", [{"slots": 257}, {"sequences": 1 << 40}])
def test_numbers_that_the_host_cannot_hold(plan: Plan, more: dict[str, int]) -> None:
    with pytest.raises(TesseraError, match="TSR5053"):
        open_plan(plan, **more)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"period_ns": 0.5}, "`a` is busy for 1.0 ns of every request"),
        ({"objective": "foo"}, "`foo` is no objective"),
        ({"ended": "luck"}, "no search ends by `luck`"),
        ({"gap": 0.5}, "`gap` is 0.5, and follows from `bound` as 0"),
        ({"usd_per_request": 1.0}, "`usd_per_request` is 1.0"),
    ],
)
def test_predictions_that_contradict_each_other(
    plan: Plan, change: dict[str, object], said: str
) -> None:
    with pytest.raises(TesseraError, match="TSR4013") as failure:
        open_plan(replace(plan, **change))  # type: ignore[arg-type]
    assert said in str(failure.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gpu": "nope"}, "there is no GPU `nope` in the table"),
        ({"like": "nope"}, "there is no GPU `nope` in the table"),
        ({"arch": "sm_89"}, "is of sm_80, not of sm_89"),
        ({"arch": "foo"}, "`foo` is no architecture"),
        ({"capacity_bytes": 1 << 40}, "bytes at most"),
        ({"like": "a100-80g-sxm", "capacity_bytes": 1 << 50}, "bytes at most"),
    ],
)
def test_cards_that_there_are_not(plan: Plan, change: dict[str, object], said: str) -> None:
    cards = (replace(plan.cards[0], **change), *plan.cards[1:])  # type: ignore[arg-type]
    with pytest.raises(TesseraError, match="TSR4013") as failure:
        open_plan(replace(plan, cards=cards))
    assert said in str(failure.value)


def test_devices_with_more_sms_or_less_time_than_their_card_has(plan: Plan) -> None:
    for change, said in (({"sms": 109}, "has 108 SMs"), ({"busy_ns": 0.0}, "its steps take")):
        device = replace(plan.devices[0], **change)  # type: ignore[arg-type]
        slow = replace(plan.replicas[0].traces[0].steps[0], predicted_ns=0.25)
        placed = plan.replicas[0].traces[0]
        placed = replace(placed, steps=(slow, *placed.steps[1:]))
        replicas = (replace(plan.replicas[0], traces=(placed,)),)
        with pytest.raises(TesseraError, match=said):
            open_plan(replace(plan, devices=(device, *plan.devices[1:]), replicas=replicas))
        open_plan(replace(plan, replicas=replicas))
    with pytest.raises(TesseraError, match=r"`latency_ns` is 0\.1, and the steps of"):
        open_plan(replace(plan, replicas=replicas, latency_ns=0.1))


@pytest.mark.parametrize("objective", share([*OBJECTIVES]))
def test_what_the_planner_predicts_holds_together(tmp_path: Path, objective: str) -> None:
    """Also for several traces, and for GPUs of the user's own, whatever their memory."""
    machine = (
        '[[card]]\ngpu = "mine"\n[[card]]\ngpu = "a100"\nslices = [54, 54]\n'
        '[gpu.mine]\nlike = "l40s"\nsms = 200\nmemory = "512GB"\n'
    )
    options = PlanOptions(machine=parse_machine(machine), objective=objective)
    other = tmp_path / "other.ptx"
    other.write_text(print_program(random_program(2)), "utf-8")
    found = make_plan((f"{MLP}:1", f"{other}:3"), options).plan
    assert {card.like for card in found.cards} == {"", "l40s"}
    path = write_plan(tmp_path, found)
    assert open_plan(path).plan == found
