"""Durations of every step on every GPU, also where the plan did not place it.

In: `Given` with the programs of its traces. Out: the same with `machine` and costs. A plan keeps
the time of a step on its own device only. The other times are computed again, by the same rules and
with the given profiles. GPUs that only a machine file defines are left out, because a plan does not
describe them. Without a plan, the machine is that of the profiles.
"""

from __future__ import annotations

from dataclasses import replace

from tessera.driver.price_again import machine_of_plan
from tessera.frontend.machine.gpu_table import gpu_table
from tessera.ir.plan.costs import Costs
from tessera.ir.plan.machine import Card, CardId, Device, DeviceId, Machine
from tessera.ir.plan.plan import PlannedTrace
from tessera.passes.base import AnalysisManager
from tessera.planning.given.options import PlanOptions
from tessera.planning.given.setting import LoadedTrace
from tessera.planning.prices.durations import find_costs
from tessera.report.page.given import Given, GivenTrace


def priced(given: Given) -> Given:
    """Add the costs of all steps on the GPUs that are in the table."""
    plan = given.plan
    machine = machine_of_plan(plan) if plan is not None else machine_of_profiles(given)
    if not machine.devices or any(trace.program is None for trace in given.traces):
        return given
    options = PlanOptions(
        machine=machine, tables=plan is None or ",tables=none" not in plan.options
    )
    loaded = [_loaded(trace) for trace in given.traces]
    profiles = [own.profile for own in given.profiles]
    predicted: list[Costs] = find_costs(loaded, machine, options, [])
    costs = find_costs(loaded, machine, options, profiles) if profiles else predicted
    traces = tuple(
        replace(trace, costs=own, predicted=guessed)
        for trace, own, guessed in zip(given.traces, costs, predicted, strict=True)
    )
    return replace(given, machine=machine, traces=traces)


def _loaded(trace: GivenTrace) -> LoadedTrace:
    assert trace.program is not None
    # Profiles are of whole steps, which a divided trace does not have.
    digest = trace.digest if trace.program.whole is None else ""
    planned = PlannedTrace(name=trace.name, share=1.0, digest=digest, text="")
    return LoadedTrace(
        planned=planned,
        folder=".",
        manager=AnalysisManager(trace.program),
        graph=trace.graph,
        diagnostics=(),
    )


def machine_of_profiles(given: Given) -> Machine:
    """A card for each GPU, and each slice of a GPU, that a profile has times for."""
    table = gpu_table()
    kinds = sorted({(row.gpu, row.sms) for own in given.profiles for row in own.profile.rows})
    cards, devices = [], []
    for number, (key, sms) in enumerate(kinds):
        gpu = table[key]
        name = key if sms == gpu.sms else f"{key}:{sms}sm"
        cards.append(
            Card(
                id=CardId(number),
                name=name,
                gpu=gpu,
                memory_bytes=gpu.memory_bytes,
                usd_per_hour=None,
            )
        )
        devices.append(Device(id=DeviceId(number), name=name, card=CardId(number), sms=sms))
    return Machine(cards=tuple(cards), devices=tuple(devices))
