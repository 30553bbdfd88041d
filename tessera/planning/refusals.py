"""Refusals: why there is no plan, why a candidate is refused, and the findings of the proof.

In: a problem without a placement, or a plan. Out: diagnostics, with the smallest change that makes
a plan possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tessera.diagnostics import Diagnostic, ExitCode, TesseraError, error, warning
from tessera.frontend.machine.quantities import format_bytes
from tessera.ir.plan.costs import Costs, Duration, StepCosts
from tessera.ir.plan.machine import Machine
from tessera.ir.plan.plan import Plan
from tessera.ir.plan.verify_plan import verify_plan
from tessera.passes.checker.check_plan import check_plan
from tessera.planning.bound.infeasible import Obstacle, ObstacleKind, find_obstacle
from tessera.planning.given.setting import PlanSetting
from tessera.planning.problem.plan_problem import RESERVED_BYTES, Planning
from tessera.planning.promise.assemble import overflows, short_of_memory
from tessera.planning.search.candidates import Candidate
from tessera.planning.search.plans import Choice

STAY_TOGETHER = (
    "steps stay together that share a state from one request to the next, and with a step that may "
    "touch anything all that it depends on"
)
_MOST_REASONS = 4


def no_plan(
    planning: Planning, costs: Sequence[Costs], machine: Machine, fitting: str = ""
) -> TesseraError:
    """The violated constraint, by how much, and a hint; `fitting` names options that fit."""
    obstacle = find_obstacle(planning.problem)
    match obstacle.kind:
        case ObstacleKind.TASK:
            obstacle_error = _no_gpu(obstacle, planning, costs, machine)
        case ObstacleKind.LINKS:
            obstacle_error = error(
                "TSR3011",
                "steps that depend on each other must be on GPUs that no link joins",
                hint="join the GPUs with a link, or offer one that can run all the steps",
            )
        case ObstacleKind.MEMORY:
            obstacle_error = _no_memory(obstacle, machine, fitting)
    return TesseraError(obstacle_error, exit_code=ExitCode.NO_PLAN)


def _no_gpu(
    obstacle: Obstacle, planning: Planning, costs: Sequence[Costs], machine: Machine
) -> Diagnostic:
    name = obstacle.tasks[0]
    index = [task.name for task in planning.problem.tasks].index(name)
    every = [step for trace_costs in costs for step in trace_costs.steps]
    steps = [step for step, task in zip(every, planning.task_of, strict=True) if task == index]
    why = [
        f"{device.name}: {f'#{step.step} ' if len(steps) > 1 else ''}{cost.reason}"
        for step in steps
        for device, cost in zip(machine.devices, step.on_device, strict=True)
        if not isinstance(cost, Duration)
    ]
    notes = tuple(dict.fromkeys(why))[:_MOST_REASONS]
    return error(
        "TSR3011",
        f"no GPU of the machine can run `{name}`{_with_others(steps)}",
        notes=(*notes, STAY_TOGETHER) if len(steps) > 1 else notes,
        hint="add a GPU that can, or a variant of the module for one of these",
    )


def _with_others(steps: Sequence[StepCosts]) -> str:
    """The steps that must share the device of the first step."""
    named = [f"`#{step.step}`" for step in steps[1:4]]
    if len(steps) > 4:
        named.append(f"{len(steps) - 4} more")
    return f" with {', '.join(named)}" if named else ""


def _no_memory(obstacle: Obstacle, machine: Machine, fitting: str) -> Diagnostic:
    need, have = format_bytes(obstacle.need_bytes), format_bytes(obstacle.have_bytes)
    hint = None
    if obstacle.extra_bytes:
        name, extra = min(
            (
                (name, count + _missing_reserve(machine, name))
                for name, count in obstacle.extra_bytes
            ),
            key=lambda pair: pair[1],
        )
        hint = f"with {format_bytes(extra)} more on `{name}` it fits; or add a GPU"
    if fitting:
        hint = f"with `{fitting}` it fits" + ("" if hint is None else f"; {hint}")
    return error(
        "TSR3010",
        "the model does not fit in the memory of these GPUs",
        notes=(
            f"all buffers, for the slots and sequences, take {need}; the GPUs have {have} in all",
        ),
        hint=hint,
    )


def _missing_reserve(machine: Machine, name: str) -> int:
    """Bytes that a card lacks for the reserve, before any buffer."""
    card = next(card for card in machine.cards if card.name == name)
    return max(0, RESERVED_BYTES * len(machine.slices_of(card.id)) - card.memory_bytes)


Refused = tuple[str, tuple[Diagnostic, ...]]
"""The name of a candidate, and the diagnostics against it."""


def refusals_of(refused: Sequence[Refused]) -> tuple[Diagnostic, ...]:
    """Notes on refused candidates, with the reasons; another candidate is used."""
    return tuple(
        warning(
            "TSR3018",
            f"the plan `{name}` was given up: {findings[0].headline}",
            notes=tuple(note for finding in findings[:2] for note in finding.notes),
            hint="the next best plan is tried; please report this if it is not about memory",
        )
        for name, findings in refused
    )


def none_left(refused: Sequence[Refused]) -> TesseraError:
    """The error if every candidate was refused: the reasons against the best one."""
    name, (first, *_) = refused[0]
    first = replace(
        first,
        notes=(f"this is the plan `{name}`, and no other is left", *first.notes),
        hint=first.hint or "please report this: a plan that was made cannot be proved",
    )
    return TesseraError(first, exit_code=ExitCode.NO_PLAN)


def was_ended(choice: Choice, chosen: Candidate) -> list[Diagnostic]:
    """A note if the search was cut short."""
    if not choice.ended.is_cut_short:
        return []
    value = chosen.value(choice.objective)
    gap = f"{value / choice.bound - 1:.2%}" if choice.bound > 0 else "not known"
    return [
        warning(
            "TSR3019",
            f"{choice.ended.text} ended the search: the plan is `{chosen.name}`, the best so far",
            notes=(f"its distance from the best possible is at most: {gap}",),
            hint="with more time the same command may find a better plan",
        )
    ]


def findings_of(setting: PlanSetting, plan: Plan) -> tuple[Diagnostic, ...]:
    """Diagnostics against a plan: the findings of its proof."""
    flaws = tuple(verify_plan(plan))
    if flaws:
        raise RuntimeError(f"a plan is not well formed: {flaws[0].message}: {flaws[0].record}")
    if overflows(plan):
        over = max(plan.cards, key=lambda card: card.used_bytes - card.capacity_bytes)
        return (
            error(
                "TSR3010",
                f"the launch programs need {over.used_bytes} bytes of `{over.name}`, "
                f"which has {over.capacity_bytes}",
                hint="plan with fewer `--slots` or `--sequences`, or add a GPU",
            ),
        )
    short = short_of_memory(setting.machine, plan.replicas)
    if short is not None:
        return (short,)
    return check_plan(
        plan,
        [trace.program for trace in setting.traces],
        [trace.graph for trace in setting.traces],
    )
