"""Slices of one GPU: times that hang on the neighbours, and whether to slice at all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tessera.driver.plan import PlanOptions, PlanReport, plan
from tessera.frontend.plan.tsp import parse_plan
from tessera.ir.plan.costs import Costs, CostSource, Duration, StepCosts
from tessera.ir.plan.plan import Plan
from tessera.ir.plan.print_plan import print_plan
from tessera.ir.plan.verify_predictions import verify_predictions
from tessera.ir.program.program import LaunchId
from tessera.planning.prices.adjust_costs import beside_neighbours
from tessera.planning.problem.plan_problem import problem_of_mix
from tessera.planning.problem.problem import Problem, Task, contract
from tessera.planning.promise.contention import TOGETHER
from tessera.simulation.hardware import hardware_of
from tessera.simulation.simulate import shares_of
from tessera.simulation.steady import saturate
from tests.helpers.command import tessc

MLP = Path(__file__).parents[3] / "examples" / "traces" / "mlp.ptx"
SLICES = PlanOptions(gpus="h200:84sm,h200:48sm", slots=4, sequences=4)
STEPS = 8


@pytest.fixture(scope="module")
def before() -> Plan:
    return plan(MLP, replace(SLICES, strategy="single"), compare=False).plan


def profiled(
    folder: Path,
    before: Plan,
    ns: dict[int, float],
    busy: float = 1.0,
    together: dict[int, float] | None = None,
    steady: dict[int, float] | None = None,
    **options: Any,
) -> PlanReport:
    """A plan from a profile: so many nanoseconds per step by SMs, `busy` times that beside a
    neighbour that moves memory; `together` for a request while the rest is busy, too, with two
    requests each, and `steady` with one each."""
    names = [step.name for step in before.replicas[0].traces[0].steps]
    digest = before.traces[0].digest
    rows = [
        {"step": step, "name": name, "gpu": "h200", "sms": sms, "ns": time}
        | ({"beside_compute_ns": time, "beside_memory_ns": busy * time} if sms < 132 else {})
        for sms, time in ns.items()
        for step, name in enumerate(names)
    ]
    wholes = [
        {"gpu": "h200", "sms": sms, "ns": time, "together_ns": time}
        | ({"steady_ns": steady[sms]} if steady else {})
        for sms, time in (together or {}).items()
    ]
    path = folder / "times.json"
    data = {"schema": "tessera-profile/1", "program": digest, "rows": rows, "wholes": wholes}
    path.write_text(json.dumps(data))
    return plan(MLP, replace(SLICES, profiles=(str(path),), **options), compare=False)


def times_of(found: PlanReport) -> list[float]:
    return [step.predicted_ns for one in found.plan.replicas for step in one.traces[0].steps]


def test_neighbours_that_move_little_cost_little(tmp_path: Path, before: Plan) -> None:
    # Steps of a millisecond that move some kilobytes: halfway to `busy` would be 5 times as long.
    found = profiled(tmp_path, before, {84: 1e6, 48: 1e6}, busy=10.0, strategy="dp")
    assert found.plan.period_ns == pytest.approx(TOGETHER * STEPS * 1e6 / 2, rel=0.01)
    assert times_of(found) == pytest.approx([TOGETHER * 1e6] * 2 * STEPS, rel=0.01)


def test_what_slices_took_that_were_busy_together_counts(tmp_path: Path, before: Plan) -> None:
    """Each slice has a factor of its own; steps keep their shares of it."""
    times, together = {84: 1e6, 48: 2e6}, {84: 1.2e6 * STEPS, 48: 3e6 * STEPS}
    found = profiled(tmp_path, before, times, together=together, strategy="dp")
    assert times_of(found) == pytest.approx([1.2e6] * STEPS + [3e6] * STEPS, rel=0.01)
    assert found.plan.period_ns == pytest.approx(STEPS / (1 / 1.2e6 + 1 / 3e6), rel=0.01)
    alone = profiled(tmp_path, before, times, together=together, strategy="single")
    assert times_of(alone) == pytest.approx([1e6] * STEPS, rel=0.01)


def test_with_one_request_at_a_time_nothing_fills_its_gaps(tmp_path: Path, before: Plan) -> None:
    """And a request that has the card for itself takes what its steps took alone."""
    times = {84: 1e6, 48: 1e6}
    given: dict[str, Any] = {
        "together": dict.fromkeys(times, 1.2e6 * STEPS),
        "steady": dict.fromkeys(times, 1.5e6 * STEPS),
        "strategy": "dp",
    }
    for slots, each in ((1, 1.5e6), (2, 1.2e6)):
        found = profiled(tmp_path, before, times, **given, slots=slots, sequences=slots)
        assert found.plan.period_ns == pytest.approx(STEPS * each / 2, rel=0.01)
        assert found.plan.latency_ns == pytest.approx(STEPS * 1e6, rel=0.01)
        (step, *_) = found.plan.replicas[0].traces[0].steps
        assert step.times_ns == pytest.approx((1.2e6, 1.5e6, 1e6), rel=0.01)
        hardware = hardware_of(parse_plan(print_plan(found.plan)))
        assert hardware is not None
        again = saturate(found.plan.replicas, shares_of(found.plan), hardware)
        assert again.period_ns == pytest.approx(found.plan.period_ns)


@pytest.mark.parametrize("seed", range(3))
def test_a_slice_beside_an_idle_one_is_faster_than_its_load(
    tmp_path: Path, before: Plan, seed: int
) -> None:
    """Random placements leave one slice idle for long; what the plan says of itself holds."""
    times = {84: 1e6, 48: 1e6}
    slow = dict.fromkeys(times, 2e6 * STEPS)
    found = profiled(tmp_path, before, times, together=slow, placement=f"random:{seed}")
    load = max(
        sum(
            step.predicted_ns for step in found.plan.replicas[0].traces[0].steps if step.device == d
        )
        for d in ("h200-0.0", "h200-0.1")
    )
    assert found.plan.period_ns <= load * 1.01
    assert list(verify_predictions(found.plan)) == []


def test_a_step_that_is_no_slower_beside_a_neighbour(tmp_path: Path, before: Plan) -> None:
    """As it was measured: the plan can be read all the same."""
    found = profiled(tmp_path, before, {84: 1e6, 48: 1e6}, busy=0.98, objective="latency")
    assert parse_plan(print_plan(found.plan)) == found.plan


def test_slices_that_lose_together_are_not_taken(tmp_path: Path, before: Plan) -> None:
    times = {132: 600.0, 84: 1000.0, 48: 1000.0}
    assert len(profiled(tmp_path, before, times).plan.devices) == 2
    slow = dict.fromkeys((84, 48), 1300.0 * STEPS)
    assert len(profiled(tmp_path, before, times, together=slow).plan.devices) == 1


def test_what_requests_side_by_side_took_on_the_whole_gpu_counts(
    tmp_path: Path, before: Plan
) -> None:
    """They fill each other's gaps, as those of slices do; one at a time cannot."""
    times = {132: 1000.0, 84: 1300.0, 48: 2000.0}
    slices = {84: 1400.0 * STEPS, 48: 2100.0 * STEPS}
    assert len(profiled(tmp_path, before, times, together=slices).plan.devices) == 2
    both = {**slices, 132: 800.0 * STEPS}
    found = profiled(tmp_path, before, times, together=both)
    assert len(found.plan.devices) == 1
    assert found.plan.period_ns == pytest.approx(800.0 * STEPS, rel=0.01)
    assert found.plan.bound <= found.plan.period_ns
    one = profiled(tmp_path, before, times, together=both, gpus="h200", slots=1, sequences=1)
    # With one slot nothing hides that inputs come from the host and outputs go there.
    assert 1000.0 * STEPS < one.plan.period_ns < 1000.0 * STEPS + 5000.0


def test_neighbours_that_fill_the_memory_cost_their_part(tmp_path: Path, before: Plan) -> None:
    # So short that the memory is the limit: each slice draws about half of what it has, of which
    # the measuring neighbour drew all on 84 SMs and 48/66 on 48.
    found = profiled(tmp_path, before, {84: 1e-3, 48: 1e-3}, busy=3.0, strategy="dp")
    large, small = times_of(found)[0], times_of(found)[-1]
    assert large == pytest.approx(TOGETHER * 1e-3 * (1 + 2 * 0.5 * 66 / 48), rel=0.1)
    assert small == pytest.approx(TOGETHER * 1e-3 * (1 + 2 * 0.5), rel=0.1)


def test_the_bound_holds_for_every_candidate(tmp_path: Path, before: Plan) -> None:
    found = profiled(tmp_path, before, {84: 2000.0, 48: 3000.0}, busy=2.0)
    periods = [found.plan.period_ns, *(one.period_ns for one in found.plan.baselines)]
    assert min(periods) == found.plan.period_ns
    assert found.plan.bound <= found.plan.period_ns
    names = [found.plan.strategy, *(one.name for one in found.plan.baselines)]
    assert len(set(names)) == len(names)


def test_the_bound_knows_what_requests_gain_that_fill_each_others_gaps(
    tmp_path: Path, before: Plan
) -> None:
    """One slice gains, so a plan that gives it more may be faster than any that was looked at."""
    together = {84: 0.6e6 * STEPS, 48: 1e6 * STEPS}
    found = profiled(tmp_path, before, {84: 1e6, 48: 1e6}, together=together, strategy="layers")
    assert found.plan.bound <= 1.0001 * STEPS / (1 / 0.6e6 + 1 / 1e6)
    worse = dict.fromkeys((84, 48), 1.5e6 * STEPS)
    found = profiled(tmp_path, before, {84: 1e6, 48: 1e6}, together=worse, strategy="layers")
    assert found.plan.bound == pytest.approx(1e6 * STEPS / 2, rel=0.01)


def test_two_requests_gain_no_more_than_half(tmp_path: Path, before: Plan) -> None:
    """Whatever a profile says: else plans would promise anything, and bounds prove nothing."""
    together = {84: 1e-3, 48: 1e-3}
    found = profiled(tmp_path, before, {84: 1e11, 48: 1e11}, together=together, strategy="dp")
    assert times_of(found) == pytest.approx([0.5e11] * 2 * STEPS, rel=0.01)
    assert found.plan.bound == pytest.approx(0.5e11 * STEPS / 2, rel=0.01)


@pytest.mark.parametrize(("whole", "devices"), [(100.0, 1), (10_000.0, 2)])
def test_the_whole_gpu_is_taken_where_slices_lose(
    tmp_path: Path, before: Plan, whole: float, devices: int
) -> None:
    found = profiled(tmp_path, before, {132: whole, 84: 1000.0, 48: 1000.0})
    assert len(found.plan.devices) == len(found.machine.devices) == devices
    said = [one.code for one in found.diagnostics]
    assert ("TSR3021" in said) == (devices == 1)
    (other,) = found.alternatives
    assert other.name.startswith("84+48 SMs: " if devices == 1 else "132 SMs: single:h200-0")
    assert other.period_ns > found.plan.period_ns


@pytest.mark.parametrize(("ahead", "devices"), [(0.01, 1), (0.05, 2)])
def test_slices_have_to_bring_more_than_predictions_are_off(
    tmp_path: Path, before: Plan, ahead: float, devices: int
) -> None:
    times = {84: 1e6, 48: 1e6}
    sliced = profiled(tmp_path, before, times).plan.period_ns
    found = profiled(tmp_path, before, {**times, 132: (1 + ahead) * sliced / STEPS})
    assert len(found.plan.devices) == devices
    notes = [note for one in found.diagnostics if one.code == "TSR3021" for note in one.notes]
    assert len(notes) == (devices == 1)
    assert all("ahead of it, which is no more than such predictions" in note for note in notes)


def test_the_search_knows_that_copies_between_slices_take_time_from_steps() -> None:
    machine = PlanOptions(gpus="h200:84sm,h200:48sm,a100").find_machine()
    problem = problem_of_mix((), machine, slots=1).problem
    taken = {(wire.source, wire.target): wire.end_ns_per_byte for wire in problem.wires}
    byte = 2e9 / machine.cards[0].gpu.memory_bandwidth
    assert taken == {
        (0, 1): byte,
        (1, 0): byte,
        (0, 2): 0.0,
        (2, 0): 0.0,
        (1, 2): 0.0,
        (2, 1): 0.0,
    }


def test_slices_stay_where_they_are_asked_for_or_nothing_is_known(
    tmp_path: Path, before: Plan
) -> None:
    fast = {132: 100.0, 84: 1000.0, 48: 1000.0}
    assert len(profiled(tmp_path, before, fast, strategy="dp").plan.devices) == 2
    assert len(profiled(tmp_path, before, {84: 1000.0, 48: 1000.0}).plan.devices) == 2
    assert len(plan(MLP, SLICES).plan.devices) == 2


@pytest.mark.parametrize("whole", [100.0, pytest.param(10_000.0, marks=pytest.mark.slow)])
def test_what_such_a_plan_says_of_itself_holds(tmp_path: Path, before: Plan, whole: float) -> None:
    profiled(tmp_path, before, {132: whole, 84: 1000.0, 48: 1500.0}, busy=3.0)
    target = tmp_path / "plan.tsp"
    outcome = tessc(
        "plan",
        str(MLP),
        "--gpus",
        SLICES.gpus,
        "--profile",
        str(tmp_path / "times.json"),
        "--pareto",
        "--explain",
        "k2",
        "-o",
        str(target),
    )
    assert outcome.code == 0
    said = "warning[TSR3021]: slices of `h200-0` do not pay" in outcome.err
    assert said == (whole == 100.0)
    assert "in place of this machine:" in outcome.text
    assert tessc("check", str(target)).code == 0


def test_three_slices_have_two_neighbours(tmp_path: Path, before: Plan) -> None:
    options = {"gpus": "h200:64sm,h200:40sm,h200:24sm"}
    found = profiled(tmp_path, before, {64: 900.0, 40: 1200.0, 24: 2000.0}, busy=2.0, **options)
    assert len(found.plan.devices) == 3
    assert found.plan.bound <= found.plan.period_ns


def test_a_strategy_keeps_its_name_beside_another_with_the_same_placement(
    tmp_path: Path, before: Plan
) -> None:
    # One slice is so slow that every strategy of one replica leaves it alone but for a step.
    for strategy in ("single", "layers", "kernel"):
        found = profiled(tmp_path, before, {84: 10.0, 48: 1e6}, busy=2.0, strategy=strategy)
        assert found.plan.strategy.partition(":")[0] == strategy


def test_times_between_neighbours() -> None:
    cost = Duration(ns=15.0, source=CostSource.PROFILE, error=0.1, beside=(10.0, 20.0))
    plain = replace(cost, beside=None)
    costs = Costs((StepCosts(step=LaunchId(0), name="k", on_device=(cost, cost, plain)),))
    (step,) = beside_neighbours(costs, (0.0, 0.25, 0.9)).steps
    assert [one.ns for one in step.on_device if isinstance(one, Duration)] == [10.0, 12.5, 15.0]


def test_a_group_with_attention_in_it_is_attention() -> None:
    tasks = (
        Task(name="write", ns=(1.0,)),
        Task(name="read", ns=(2.0,), kind="attention"),
        Task(name="mm", ns=(1.0,)),
    )
    joined = contract(Problem(devices=("a",), tasks=tasks), (0, 0, 1))
    assert [task.kind for task in joined.tasks] == ["attention", ""]
