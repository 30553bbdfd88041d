"""The times of a plan by one library: `tessc simulate --library`.

In: a plan, which has its traces, and a library. Out: the plan with other times and bars, for steps
whose times are from tables. Everything else is as it was.
"""

from __future__ import annotations

from dataclasses import replace

from tessera.driver.traces import loaded_program, read_planned
from tessera.frontend.machine.gpu_table import gpu_table
from tessera.ir.plan.costs import Costs, CostSource, Duration
from tessera.ir.plan.machine import Card, CardId, Device, DeviceId, Machine
from tessera.ir.plan.plan import PlacedStep, PlacedTrace, Plan
from tessera.planning.given.options import PlanOptions
from tessera.planning.prices.durations import trace_costs

_FROM_TABLES = (CostSource.TABLE.value, CostSource.NEAR.value)


def by_library(plan: Plan, name: str, library: str) -> Plan:
    """The plan with the times of a library; `name` is that of its file."""
    machine = machine_of_plan(plan)
    options = PlanOptions(machine=machine, library=library)
    costs = [
        trace_costs(loaded_program(read_planned(trace, name)[0], trace.name), machine, options, ())
        for trace in plan.traces
    ]
    places = {device.name: device.id for device in machine.devices}

    def priced(placed: PlacedTrace) -> PlacedTrace:
        steps = tuple(_step(step, costs[placed.trace], places) for step in placed.steps)
        return replace(placed, steps=steps)

    replicas = tuple(
        replace(replica, traces=tuple(map(priced, replica.traces))) for replica in plan.replicas
    )
    return replace(plan, replicas=replicas)


def _step(step: PlacedStep, costs: Costs, places: dict[str, DeviceId]) -> PlacedStep:
    place = places.get(step.device)
    if place is None or step.source not in _FROM_TABLES or step.alone_ns is not None:
        return step
    cost = costs.steps[step.step].on_device[place]
    if not isinstance(cost, Duration):
        return step
    return replace(step, predicted_ns=cost.ns, error=cost.error, source=cost.source.value)


def machine_of_plan(plan: Plan) -> Machine:
    """The cards and devices of a plan whose data sheets are in the table; no links."""
    table = gpu_table()
    known = [card for card in plan.cards if not card.like and card.gpu in table]
    cards = tuple(
        Card(
            id=CardId(number),
            name=card.name,
            gpu=table[card.gpu],
            memory_bytes=card.capacity_bytes,
            usd_per_hour=card.usd_per_hour,
            node=card.node,
        )
        for number, card in enumerate(known)
    )
    ids = {card.name: card.id for card in cards}
    own = [device for device in plan.devices if device.card in ids]
    devices = tuple(
        Device(id=DeviceId(number), name=device.name, card=ids[device.card], sms=device.sms)
        for number, device in enumerate(own)
    )
    return Machine(cards=cards, devices=devices)
