"""Why a step is on its device: its time on every device, its transfers, the effect of moving it.

In: a `PlanReport`'s setting and decision, and a step. Out: a `StepReason`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tessera.diagnostics import TesseraError, error
from tessera.ir.graph.graph import Edge
from tessera.ir.plan.costs import Cost, Duration, LaunchWork
from tessera.planning.find_plan import Decision
from tessera.planning.given.setting import PlanSetting
from tessera.planning.prices.estimate_costs import variant_on
from tessera.planning.problem.problem import Placement, runs
from tessera.planning.promise.assemble import split_placement
from tessera.planning.roles.role_plans import with_part_moved
from tessera.planning.search.candidates import Candidate, candidate_of
from tessera.wording import Wording

_STEP = re.compile(r"(?:(.+):)?[k#]?([0-9]{1,9})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """Another device for a step, and the plan with the step there; None if it cannot run there."""

    device: str
    cost: Cost
    arch: str
    here: bool
    period_ns: float | None
    latency_ns: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReason:
    """A step of a trace in one replica. `together` are the steps that must be where it is."""

    trace: str
    step: int
    name: str
    replica: int
    together: tuple[int, ...]
    pins: tuple[Wording, ...]
    memory_bytes: float
    work: LaunchWork | None
    elsewhere: tuple[Elsewhere, ...]
    needs: tuple[Edge, ...]
    feeds: tuple[Edge, ...]


def find_step(setting: PlanSetting, text: str) -> tuple[int, int]:
    """The trace and number of `k17`, `#17`, `17` or `decode:k17`."""
    match = _STEP.fullmatch(text)
    names = [trace.planned.name for trace in setting.traces]
    trace = names.index(match[1]) if match and match[1] in names else 0
    known = match is not None and (match[1] is None or match[1] in names)
    count = len(setting.traces[trace].graph.nodes)
    if match is None or not known or int(match[2]) >= count:
        raise TesseraError(
            error(
                "TSR3017",
                f"there is no step `{text}` to explain",
                hint=f"write `k0` to `k{count - 1}`"
                + ("" if len(names) == 1 else f", behind {' or '.join(n + ':' for n in names)}"),
            )
        )
    return trace, int(match[2])


def explain_step(setting: PlanSetting, decision: Decision, text: str) -> list[StepReason]:
    """One reason per replica that serves the trace."""
    trace, step = find_step(setting, text)
    graph = setting.traces[trace].graph
    costs = setting.costs[trace].steps[step]
    reasons = []
    for number, replica in enumerate(decision.chosen.replicas):
        planning, part = decision.attempt.planning, trace
        if replica.part is not None:
            if trace not in replica.part.traces:
                continue
            planning, part = replica.part.planning, replica.part.traces.index(trace)
        offset = planning.offsets[part]
        task = planning.task_of[offset + step]
        together = tuple(
            at - offset
            for at, other in enumerate(planning.task_of)
            if other == task and 0 <= at - offset < len(graph.nodes) and at - offset != step
        )
        reasons.append(
            StepReason(
                trace=setting.traces[trace].planned.name,
                step=step,
                name=graph.nodes[step].name,
                replica=number,
                together=together,
                pins=tuple(pin.reason for pin in graph.nodes[step].pins),
                memory_bytes=costs.memory_bytes,
                work=costs.work,
                elsewhere=_elsewhere(setting, decision, number, trace, step, task),
                needs=tuple(e for e in graph.edges if e.target == step and e.moves_bytes),
                feeds=tuple(e for e in graph.edges if e.source == step and e.moves_bytes),
            )
        )
    return reasons


def _elsewhere(
    setting: PlanSetting, decision: Decision, number: int, trace: int, step: int, task: int
) -> tuple[Elsewhere, ...]:
    replicas = decision.chosen.replicas
    steps = split_placement(setting, decision.attempt.planning, replicas[number])[trace]
    here = None if steps is None else steps[step]
    program = setting.traces[trace].program
    work = list(program.work())[step]
    elsewhere = []
    for device, cost in zip(
        setting.machine.devices, setting.costs[trace].steps[step].on_device, strict=True
    ):
        moved = list(replicas[number].placement)
        moved[task] = int(device.id)
        period = latency = None
        if isinstance(cost, Duration):
            other = _moved(setting, decision, number, tuple(moved))
            if other is not None and other.period_ns < float("inf"):
                period, latency = other.period_ns, other.latency_ns
        gpu = setting.machine.gpu_of(device)
        code = cost.variant if isinstance(cost, Duration) else ""
        elsewhere.append(
            Elsewhere(
                device=device.name,
                cost=cost,
                here=device.id == here,
                period_ns=period,
                latency_ns=latency,
                arch=code or variant_on(program, work, gpu, device.sms),
            )
        )
    return tuple(elsewhere)


def _moved(
    setting: PlanSetting, decision: Decision, number: int, placement: Placement
) -> Candidate | None:
    """The plan with another placement of one replica; with roles, shared anew."""
    problem, chosen = decision.attempt.planning.problem, decision.chosen
    if chosen.roles is not None:
        return with_part_moved(setting, problem, chosen, number, placement)
    parts = tuple(
        (placement if index == number else replica.placement, replica.share)
        for index, replica in enumerate(chosen.replicas)
    )
    if not runs(problem, placement):
        return None
    return candidate_of(problem, "moved", parts)
