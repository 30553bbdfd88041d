"""Insights into a plan: kinds of steps and their devices, its limits, and what would help.

In: a `PlanSetting` and a `Decision`. Out: plain records; `report.plan` writes them down.

The period of a plan is divided into parts (`find_losses`), in nanoseconds per request. The first
part is a bound by times alone: every step on its best device, evenly shared, nothing sent or
stored. Each further limit adds a part, in a fixed order. The sum is the period of the simulation.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from math import exp, log1p, sqrt

from tessera.ir.plan.costs import Duration, SharedError, StepCosts
from tessera.ir.plan.machine import Device, Machine
from tessera.ir.plan.plan import Plan
from tessera.planning.bound.relax import spread_bound
from tessera.planning.find_plan import Decision
from tessera.planning.given.setting import PlanSetting
from tessera.planning.problem.period_limits import Limit, LimitKind
from tessera.planning.problem.problem import Problem, measure
from tessera.planning.promise.promise import Promise
from tessera.planning.roles.shares import loads_of, trace_problems
from tessera.planning.search.candidates import Candidate, busiest_ns
from tessera.planning.search.sensitivity import sensitivities

TIMES_ALONE = "the times alone"
NO_PLAN = "memory, links and slots, with any plan"
WHOLE = "steps and requests stay whole, and where memory puts them"
SENDING = "what sending takes of the GPUs and links"
FEW_SLOTS = "slots: a request takes longer than they cover"
WAITS = "requests wait for each other"

_HELD = (LimitKind.SLOTS, LimitKind.STATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """The parts of the period of the named split or plan, with times alone first."""

    name: str
    parts: tuple[tuple[str, float], ...]

    @property
    def reached(self) -> float:
        """The fraction of the rate by times alone that is reached."""
        total = sum(ns for _, ns in self.parts)
        return self.parts[0][1] / total if total > 0 else 1.0


def find_losses(promise: Promise, bound_ns: float) -> Losses:
    """The parts of the period of a candidate; `bound_ns` is a lower bound of all plans."""
    problem, candidate = promise.attempt.planning.problem, promise.chosen
    held = max((limit.ns for limit in candidate.limits if limit.kind in _HELD), default=0.0)
    levels = (
        (TIMES_ALONE, min(spread_bound(problem), candidate.period_ns)),
        (NO_PLAN, min(bound_ns, candidate.period_ns)),
        (WHOLE, _largest_load(replace(problem, tensors=()), candidate)),
        (SENDING, busiest_ns(promise.searched)),
        (FEW_SLOTS, held),
        (WAITS, candidate.period_ns),
    )
    parts, reached = [], 0.0
    for name, ns in levels:
        level = min(ns, candidate.period_ns)
        if level > reached:
            parts.append((name, level - reached))
            reached = level
    return Losses(name=candidate.name, parts=tuple(parts))


def _largest_load(problem: Problem, candidate: Candidate) -> float:
    """The load of the busiest resource, over all replicas."""
    loads = [0.0] * len(problem.resources())
    alone = trace_problems(problem) if candidate.roles is not None else ()
    for replica in candidate.replicas:
        rows = [(measure(problem, replica.placement).loads, replica.share)] if not alone else []
        if replica.part is not None:
            every = loads_of(alone, replica.part).items()
            rows = [(own, replica.shares[trace]) for trace, own in every]
        for own, share in rows:
            loads = [ns + more * share for ns, more in zip(loads, own, strict=True)]
    return max(loads, default=0.0)


FACTOR = 2.0
_MOST_HELPERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelClass:
    """Steps of one name. `ns` is their total time on each kind of device, None if one of them
    cannot run there; `placed` counts them by device, over all replicas.

    `bars` are the errors of these times, `shared` what they have in common with other kinds.
    """

    name: str
    steps: int
    kinds: tuple[str, ...]
    ns: tuple[float | None, ...]
    placed: tuple[tuple[str, int], ...]
    bars: tuple[float, ...]
    shared: tuple[SharedError | None, ...]

    @property
    def ratio(self) -> float | None:
        """Ratio of the longest to the shortest time: how much the choice of the device matters."""
        times = [ns for ns in self.ns if ns]
        return max(times) / min(times) if len(times) > 1 else None

    @property
    def end_kinds(self) -> tuple[str, str] | None:
        """The slowest and the fastest kind of device."""
        return (
            None if self.ratio is None else (self.kinds[self._ends[0]], self.kinds[self._ends[1]])
        )

    @property
    def _ends(self) -> tuple[int, int]:
        known = [(ns, kind) for kind, ns in enumerate(self.ns) if ns]
        return max(known)[1], min(known)[1]

    @property
    def ratio_bar(self) -> tuple[float, float] | None:
        """The ends of the bar of the ratio; what both errors have in common cancels."""
        if self.ratio is None:
            return None
        ends = self._ends
        first, second = (log1p(self.bars[kind]) for kind in ends)
        slow, fast = (self.shared[kind] for kind in ends)
        alike = slow is not None and fast is not None and slow.group == fast.group
        part = sqrt(slow.part * fast.part) if slow and fast and alike else 0.0
        bar = exp(sqrt(first**2 + second**2 - 2 * part * first * second))
        return self.ratio / bar, self.ratio * bar


@dataclass(frozen=True, slots=True, kw_only=True)
class Insight:
    """The limits of a plan, largest first, in time per request, and suggestions in words.

    `losses` are those of the best split, or of the plan if there is none.
    """

    limits: tuple[Limit, ...] = ()
    helpers: tuple[str, ...] = ()
    losses: Losses | None = None


def kernel_classes(setting: PlanSetting, plan: Plan) -> list[KernelClass]:
    """Every kind of step, by decreasing total time."""
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
            own = replica.placed(trace)
            for placed_step in own.steps if own is not None else ():
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
    bars: list[float] = []
    shared: list[SharedError | None] = []
    for devices in kinds.values():
        known = [_cost_on(step, devices) for step in steps]
        usable = [cost for cost in known if cost is not None]
        total = sum(cost.ns for cost in usable)
        times.append(total if len(usable) == len(known) else None)
        # Steps of one name are off together.
        bars.append(sum(cost.ns * cost.error for cost in usable) / total if total else 0.0)
        shared.append(usable[0].shared if usable else None)
    return KernelClass(
        name=name,
        steps=len(steps),
        kinds=tuple(kinds),
        ns=tuple(times),
        placed=tuple(sorted(placed.items())),
        bars=tuple(bars),
        shared=tuple(shared),
    )


def _cost_on(step: StepCosts, devices: list[Device]) -> Duration | None:
    """The time on the first device of a kind that can run the step."""
    costs = (step.on_device[device.id] for device in devices)
    return next((cost for cost in costs if isinstance(cost, Duration)), None)


def find_insight(decision: Decision) -> Insight:
    """The limits of the chosen plan, and the gain from raising each."""
    searched = decision.choice.ended.is_search
    divided = any(trace.planned.division for trace in decision.setting.traces)
    if divided or not searched or not decision.choice.objective.is_rate:
        return Insight(limits=decision.chosen.limits)
    limits = sensitivities(decision.attempt.planning.problem, decision.choice, FACTOR)
    return Insight(
        limits=decision.chosen.limits,
        helpers=tuple(limit.text for limit in limits[:_MOST_HELPERS]),
        losses=None if decision.split is None else find_losses(decision.split, decision.plan.bound),
    )
