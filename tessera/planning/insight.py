"""What a plan tells people: kinds of steps and where they went, what limits it, what would help.

In: a `PlanSetting` and a `Decision`. Out: plain records; `report.plan` writes them down.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tessera.ir.plan.costs import Duration, StepCosts
from tessera.ir.plan.machine import Device, Machine
from tessera.ir.plan.plan import Plan
from tessera.planning.find_plan import Decision
from tessera.planning.given.setting import PlanSetting
from tessera.planning.problem.period_limits import Limit
from tessera.planning.promise.losses import Losses, find_losses
from tessera.planning.search.sensitivity import Sensitivity, sensitivities

FACTOR = 2.0
_MOST_HELPERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelClass:
    """Steps of one name. `ns` is their time in all on each kind of device, None where one of them
    cannot run; `placed` counts them by device, over all replicas."""

    name: str
    steps: int
    kinds: tuple[str, ...]
    ns: tuple[float | None, ...]
    placed: tuple[tuple[str, int], ...]

    @property
    def ratio(self) -> float | None:
        """How much the choice matters."""
        times = [ns for ns in self.ns if ns]
        return max(times) / min(times) if len(times) > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Insight:
    """What limits a plan, largest first, in time per request; and what would help, in words.

    `losses` are those of the best split, or of the plan if there is none.
    """

    limits: tuple[Limit, ...] = ()
    helpers: tuple[str, ...] = ()
    losses: Losses | None = None


def kernel_classes(setting: PlanSetting, plan: Plan) -> list[KernelClass]:
    """Every kind of step, the most time first."""
    kinds = device_kinds(setting.machine)
    several = len(setting.traces) > 1
    classes = []
    for trace, costs in enumerate(setting.costs):
        prefix = f"{setting.traces[trace].planned.name}: " if several else ""
        steps: dict[str, list[StepCosts]] = {}
        for step in costs.steps:
            steps.setdefault(step.name, []).append(step)
        placed: dict[str, Counter[str]] = {name: Counter() for name in steps}
        for replica in plan.replicas:
            for placed_step in replica.traces[trace].steps:
                placed[placed_step.name][placed_step.device] += 1
        classes += [_class(prefix + name, steps[name], placed[name], kinds) for name in steps]
    return sorted(classes, key=lambda kernel_class: -max(ns or 0.0 for ns in kernel_class.ns))


def device_kinds(machine: Machine) -> dict[str, list[Device]]:
    """The devices of each kind: a GPU's key, with its SMs where it is a slice."""
    kinds: dict[str, list[Device]] = {}
    for device in machine.devices:
        gpu = machine.gpu_of(device)
        kind = gpu.key if device.sms == gpu.sms else f"{gpu.key}:{device.sms}sm"
        kinds.setdefault(kind, []).append(device)
    return kinds


def _class(
    name: str, steps: list[StepCosts], placed: Counter[str], kinds: dict[str, list[Device]]
) -> KernelClass:
    times: list[float | None] = []
    for devices in kinds.values():
        known = [_time_on(step, devices) for step in steps]
        usable = [ns for ns in known if ns is not None]
        times.append(sum(usable) if len(usable) == len(known) else None)
    return KernelClass(
        name=name,
        steps=len(steps),
        kinds=tuple(kinds),
        ns=tuple(times),
        placed=tuple(sorted(placed.items())),
    )


def _time_on(step: StepCosts, devices: list[Device]) -> float | None:
    """The time on the first device of a kind that can run the step."""
    costs = (step.on_device[device.id] for device in devices)
    return next((cost.ns for cost in costs if isinstance(cost, Duration)), None)


def find_insight(decision: Decision) -> Insight:
    """What limits the plan that was decided on, and what more of it would bring."""
    searched = decision.choice.ended.is_search
    if not searched or not decision.choice.objective.is_rate:
        return Insight(limits=decision.chosen.limits)
    limits = sensitivities(decision.attempt.planning.problem, decision.choice, FACTOR)
    return Insight(
        limits=decision.chosen.limits,
        helpers=tuple(map(_said, limits[:_MOST_HELPERS])),
        losses=None if decision.split is None else find_losses(decision.split, decision.plan.bound),
    )


def _said(limit: Sensitivity) -> str:
    times = f"{limit.factor:g} times"
    what = {
        "links": f"all links {times} as fast",
        "link": f"{limit.name} {times} as fast",
        "memory": f"{times} the memory of {limit.name}",
        "device": f"a GPU {times} as fast in place of {limit.name}",
        "slots": f"{times} the slots",
    }[limit.kind]
    return f"{what}: at most {limit.gain:+.1%} requests/s"
