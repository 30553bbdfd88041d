"""The bound of `benchmarks/gain/bound.py` against brute force, and against plans of the planner."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import pytest

from benchmarks.gain.bound import (
    Group,
    Times,
    alike,
    bounds,
    finish,
    in_us,
    kernels,
    least_ns,
    levels,
    row_of,
)
from tessera.driver.plan import PlanOptions, plan
from tests.helpers.share import share

MLP = Path(__file__).parents[2] / "examples" / "traces" / "mlp.ptx"


def random_times(random_source: random.Random, slices: int) -> Times:
    """A task that is slower beside neighbours, and may be barred from a slice."""
    row: list[tuple[float, float] | None] = []
    for _ in range(slices):
        quiet = random_source.uniform(1, 50)
        row.append((quiet, quiet * random_source.uniform(1.0, 1.8)))
    if random_source.random() < 0.2:
        row[random_source.randrange(slices)] = None
    return tuple(row)


def followed_ns(queues: list[list[tuple[float, float]]], pauses: list[float]) -> float:
    """When the last slice is done: each does its tasks one after the other, from its pause on.

    Step by step in time, with a speed that changes whenever another slice begins or ends. It shares
    nothing with the linear program.
    """
    now, others = 0.0, len(queues) - 1
    left = [[1.0] * len(queue) for queue in queues]
    while any(left):
        busy = [bool(parts) and pauses[i] <= now for i, parts in enumerate(left)]
        speeds = []
        for index, queue in enumerate(queues):
            if not busy[index]:
                speeds.append(0.0)
                continue
            quiet, crowded = queue[len(queue) - len(left[index])]
            beside = (sum(busy) - 1) / others if others else 0.0
            speeds.append(1.0 / (quiet + beside * (crowded - quiet)))
        ends = [parts[0] / s for parts, s in zip(left, speeds, strict=True) if s]
        ends += [
            pause - now for pause, parts in zip(pauses, left, strict=True) if parts and pause > now
        ]
        step = min(ends)
        for parts, speed in zip(left, speeds, strict=True):
            if speed:
                parts[0] -= step * speed
                if parts[0] <= 1e-12:
                    parts.pop(0)
        now += step
    return now


@pytest.mark.parametrize("seed", share(range(8)))
def test_no_placement_and_no_order_beats_the_bound(seed: int) -> None:
    source = random.Random(seed)
    slices = 3 if seed % 4 == 3 else 2
    tasks = [random_times(source, slices) for _ in range(4 if slices == 3 else 5)]
    free, whole = least_ns(alike(tasks)), least_ns(alike(tasks), whole=True)
    assert free <= whole * (1 + 1e-6)
    best = float("inf")
    for placement in itertools.product(range(slices), repeat=len(tasks)):
        if any(task[place] is None for task, place in zip(tasks, placement, strict=True)):
            continue
        shares = [[float(place == own) for place in range(slices)] for own in placement]
        placed = least_ns([Group(task) for task in tasks], placed=shares)
        order = list(range(len(tasks)))
        source.shuffle(order)
        queues = [
            [pair for task in order if placement[task] == place and (pair := tasks[task][place])]
            for place in range(slices)
        ]
        for pauses in ([0.0] * slices, [source.uniform(0, 20) for _ in range(slices)]):
            took = followed_ns(queues, pauses)
            assert placed <= took * (1 + 1e-6)
            best = min(best, took)
        assert whole <= placed * (1 + 2e-3)
    assert free <= best * (1 + 1e-6)


def test_slices_that_slow_each_other_down_much_are_better_used_in_turns() -> None:
    tasks = [Group(((10.0, 50.0), None)), Group((None, (10.0, 50.0)))]
    assert least_ns(tasks) == pytest.approx(20.0)
    side_by_side = [Group(((10.0, 12.0), None)), Group((None, (10.0, 11.0)))]
    # While the first takes 11 of its 12, the other is done: the rest is at the speed of one alone.
    assert least_ns(side_by_side) == pytest.approx(11.0 + 10.0 * (1 - 11 / 12))


def test_alike_tasks_are_one_and_nothing_changes() -> None:
    task: Times = ((4.0, 5.0), (7.0, 9.0))
    assert alike([task] * 5) == [Group(task, 5)]
    assert least_ns([Group(task, 5)]) == pytest.approx(least_ns([Group(task)] * 5))
    assert least_ns([Group(task, 5)], least=1e3) == 1e3


@pytest.mark.parametrize("strategy", ["kernel", "dp"])
def test_no_plan_is_beyond_the_bound(tmp_path: Path, strategy: str) -> None:
    source = random.Random(strategy)
    options = PlanOptions(gpus="h200:84sm,h200:48sm")
    first = plan(MLP, PlanOptions(gpus="h200"), compare=False).plan
    rows = []
    for step, placed in enumerate(first.replicas[0].traces[0].steps):
        for sms in (84, 48):
            ns = source.uniform(2e5, 2e6)
            beside = ns * source.uniform(1.0, 1.2)
            rows.append(
                {
                    "step": step,
                    "name": placed.name,
                    "gpu": "h200",
                    "sms": sms,
                    "ns": ns,
                    "beside_compute_ns": beside,
                    "beside_memory_ns": beside * source.uniform(1.0, 2.0),
                }
            )
    profile = {"schema": "tessera-profile/1", "program": first.traces[0].digest, "rows": rows}
    place = tmp_path / "times.json"
    place.write_text(json.dumps(profile))
    given = PlanOptions(gpus=options.gpus, profiles=(str(place),), strategy=strategy)
    report = plan(MLP, given, compare=False)
    common = bounds(report)
    made = common | levels(report)
    assert 0 < made["fit"] <= made["apart"] <= made["busy"] <= made["bytes"] * (1 + 1e-9)
    assert made["copies"] <= report.plan.period_ns * (1 + 1e-6)
    row = row_of(report, 1, 1.1 * report.plan.period_ns / 1e3)
    document = {
        "mixes": {"1": {"84+48": {strategy: row}}},
        "common_us": {"1": {"84+48": in_us(common, 1)}},
        "whole_gpu_us": {"1": {"serial": 1e5, "streams": 1e5}},
    }
    for _ in range(2):
        finish(document)
    assert list(row["us"])[:3] == ["fit", "apart", "busy"]
    assert sum(row["lost"].values()) == pytest.approx(1.0, abs=1e-3)
    assert row["lost"]["measured"] == pytest.approx(1 - 1 / 1.1, abs=1e-3)
    table = kernels(profile)
    assert sum(own["launches"] for own in table) == len(rows) // 2
    assert set(table[0]["us"]) == {"84", "48"}
