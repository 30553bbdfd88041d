"""Times of slices of GPUs by those of whole GPUs.

In: a machine, costs on it and on its whole GPUs. Out: costs on the machine. Tables, and most
measurements, are of whole GPUs. A slice whose time was not measured takes that of its whole GPU,
wherever that is from, times what the model says of the two. Otherwise the guess for a slice would
stand beside the measurement of its GPU, and might be shorter.
"""

from __future__ import annotations

from dataclasses import replace

from tessera.ir.plan.costs import Cost, Costs, Duration, StepCosts
from tessera.ir.plan.machine import CardId, Device, DeviceId, Machine
from tessera.planning.prices.floors import GUESSES


def with_wholes(machine: Machine) -> Machine:
    """The machine, and after its devices a whole card of each GPU that is there in slices only."""
    cards = {machine.gpu_of(device).key: machine.cards[device.card] for device in machine.devices}
    for device in machine.devices:
        if device.sms == machine.gpu_of(device).sms:
            cards.pop(machine.gpu_of(device).key, None)
    more = tuple(
        replace(card, id=CardId(len(machine.cards) + n)) for n, card in enumerate(cards.values())
    )
    devices = tuple(
        Device(
            id=DeviceId(len(machine.devices) + n), name=card.name, card=card.id, sms=card.gpu.sms
        )
        for n, card in enumerate(more)
    )
    return replace(machine, cards=machine.cards + more, devices=machine.devices + devices)


def slices_by_wholes(costs: Costs, guessed: Costs, wide: Machine, count: int) -> Costs:
    """The costs on the first `count` devices of a machine with whole GPUs, some of them in slices.

    `guessed` are the costs by the model.
    """
    gpus = [wide.gpu_of(device) for device in wide.devices]
    whole = {gpu.key: n for n, gpu in enumerate(gpus) if wide.devices[n].sms == gpu.sms}

    def cost_on(step: StepCosts, model: StepCosts, n: int) -> Cost:
        at = whole[gpus[n].key]
        cost, there = step.on_device[n], step.on_device[at]
        own, its = model.on_device[n], model.on_device[at]
        is_slice = wide.devices[n].sms < gpus[n].sms
        if not (is_slice and isinstance(cost, Duration) and isinstance(there, Duration)):
            return cost
        assert isinstance(own, Duration)
        assert isinstance(its, Duration)
        if cost.source not in GUESSES or (there == its and own.ns >= its.ns):
            return cost
        return replace(
            cost,
            ns=there.ns * max(1.0, own.ns / its.ns),
            error=max(cost.error, there.error),
            origin=f"as the whole GPU: {there.origin}" if there.origin else "",
            mark=there.mark,
        )

    return Costs(
        tuple(
            replace(step, on_device=tuple(cost_on(step, model, n) for n in range(count)))
            for step, model in zip(costs.steps, guessed.steps, strict=True)
        )
    )
