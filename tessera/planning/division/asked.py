"""A setting with the divisions that the user asks for.

In: a `PlanSetting` of whole steps, and an `AskedDivision` for each trace. Out: the setting of the
divided traces, in which parts run only on the GPUs that were named for them. Then the planner
places their steps like any others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tessera.diagnostics import TesseraError
from tessera.ir.plan.costs import Barred, Costs
from tessera.ir.plan.division import StepPart, parts_of
from tessera.ir.plan.machine import Machine
from tessera.planning.division.divided_promises import Divider
from tessera.planning.given.setting import AskedDivision, PlanSetting
from tessera.planning.prices.adjust_costs import names_device, restrict_steps


def asked_setting(setting: PlanSetting, asked: Sequence[AskedDivision]) -> PlanSetting:
    """The setting with divided traces."""
    divided = Divider(setting).divided([own.division for own in asked])
    costs = list(divided.costs)
    for number, own in enumerate(asked):
        whole = len(setting.traces[number].graph.nodes)
        parts = parts_of(whole, own.division)
        for step, gpu in own.gpus:
            costs[number] = _only_on(costs[number], setting.machine, parts[step], gpu)
    return replace(divided, costs=tuple(costs))


def _only_on(costs: Costs, machine: Machine, part: StepPart, gpu: str) -> Costs:
    """The costs with a step on one GPU alone."""
    step = costs.steps[part.step]
    named = [device for device in machine.devices if names_device(machine, device, gpu)]
    made = restrict_steps(costs, machine, f"#{part.step}", gpu, forbid=False)
    if made is None:
        names = ", ".join(device.name for device in machine.devices)
        headline = f"there is no GPU `{gpu}` for a part of step #{part.origin} `{step.name}`"
        raise TesseraError.of("TSR3029", headline, hint=f"the GPUs are: {names}")
    barred = [cost for d in named if isinstance(cost := step.on_device[d.id], Barred)]
    if len(barred) == len(named):
        able = [d.name for d in machine.devices if not isinstance(step.on_device[d.id], Barred)]
        said = f"`{step.name}`{part.words()} of step #{part.origin}"
        raise TesseraError.of(
            "TSR3029",
            f"{said} cannot run on `{gpu}`: {barred[0].reason}",
            hint=f"GPUs that can run it: {', '.join(able)}" if able else None,
        )
    return made
