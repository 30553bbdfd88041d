"""Plan files with one thing changed by hand: followed or refused, never a crash, never a hang."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import islice

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.simulated_timeline import timeline_events
from tessera.frontend.plan.tsp import parse_plan
from tessera.ir.plan.plan import Plan, PlanCapacity, PlanPath
from tessera.ir.plan.print_plan import print_plan
from tessera.report.simulation import simulation_json, simulation_text
from tessera.simulation.options import SimulateOptions
from tessera.simulation.simulate_plan import simulate
from tests.property.test_plan_file_edits import changes, made

OPTIONS = (
    SimulateOptions(requests=3, timeline=True),
    SimulateOptions(backend="cpu", throttle_bytes_per_s=1e9),
    SimulateOptions(arrivals="poisson:1/us:6"),
)


def joined(plan: Plan) -> Plan:
    """With times of steps, and devices that are joined."""
    names = [device.name for device in plan.devices]
    ends = [(s, t) for s in (*names, "host") for t in (*names, "host") if s != t]
    replicas = tuple(
        replace(
            replica,
            traces=tuple(
                replace(own, steps=tuple(replace(s, predicted_ns=500.0) for s in own.steps))
                for own in replica.traces
            ),
        )
        for replica in plan.replicas
    )
    return replace(
        plan,
        replicas=replicas,
        capacities=(PlanCapacity(name="bus", bytes_per_second=4e9),),
        paths=tuple(
            PlanPath(source=s, target=t, bytes_per_second=2e9, latency_ns=10.0, shares=("bus",))
            for s, t in ends
        ),
    )


def follow(text: str, options: SimulateOptions) -> bool:
    """Whether a text is a plan that can be followed; the report of it has numbers alone."""
    try:
        report = simulate(parse_plan(text), options)
        events = timeline_events(report)
    except TesseraError:
        return False
    assert bool(events) <= options.timeline

    def refuse(word: str) -> None:
        raise AssertionError(word)

    json.loads(simulation_json(report), parse_constant=refuse)
    assert simulation_text(report)
    return True


@pytest.mark.parametrize("seed", range(2))
def test_a_changed_plan_is_followed_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    text = print_plan(joined(made(seed)[1]))
    assert follow(text, OPTIONS[0])
    every = list(changes(text, rng))
    rng.shuffle(every)
    followed = sum(follow(changed, rng.choice(OPTIONS)) for changed in islice(every, 25))
    assert followed > 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_many_changed_plans(seed: int) -> None:
    rng = random.Random(seed)
    text = print_plan(joined(made(seed)[1]))
    every = list(changes(text, rng))
    rng.shuffle(every)
    for changed in islice(every, 200):
        follow(changed, rng.choice(OPTIONS))
