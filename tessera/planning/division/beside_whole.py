"""Divided plans beside those of whole steps: when they are looked for, and the choice among all.

In: promises of plans of whole steps, and a `DividedPlans`. Out: all promises, best first, and the
`Choice` that the plan is taken from.
"""

from __future__ import annotations

from tessera.diagnostics import ExitCode, TesseraError, error
from tessera.ir.choices import Ending
from tessera.planning.bound.relax import spread_bound
from tessera.planning.division.divided_promises import DividedPlans
from tessera.planning.given.setting import Attempt, PlanSetting
from tessera.planning.promise.contention import has_neighbours
from tessera.planning.promise.promise import Promise
from tessera.planning.search.plans import Choice
from tessera.planning.search.strategies import Strategy

_NEAR = 1.03
"""A plan this near to what the times allow leaves nothing to gain."""


def may_divide(setting: PlanSetting) -> bool:
    """Whether plans with parts of steps take part: a search, or a form of them."""
    form = setting.options.form
    return (
        setting.options.placement is None
        and (form is None or form.is_divided)
        and not any(trace.planned.division for trace in setting.traces)
        and len(setting.machine.devices) > 1
        and not has_neighbours(setting)
    )


def leaves_nothing(setting: PlanSetting, attempt: Attempt, made: list[Promise]) -> bool:
    """Whether a plan keeps all devices busy with nothing but the work: no division can gain."""
    objective = setting.options.aim
    if not objective.is_rate or setting.options.form is not None or not made:
        return False
    least = spread_bound(attempt.planning.problem)
    return min(promise.chosen.period_ns for promise in made) <= _NEAR * least


def with_divided(
    setting: PlanSetting, made: list[Promise], choice: Choice | None, divided: DividedPlans
) -> tuple[list[Promise], Choice | None]:
    """All promises, best first; the choice is given if the user asks for a form of divided plan."""
    objective, form = setting.options.aim, setting.options.form
    every = sorted([*made, *divided.promises], key=lambda p: p.chosen.value(objective))
    if form is None:
        if choice is None and every:  # no plan of whole steps has the memory
            candidates = tuple(promise.chosen for promise in every)
            choice = Choice(
                objective=objective, candidates=candidates, bound=0.0, ended=Ending.SEARCH
            )
        return every, choice
    asked = next((p.chosen for p in every if p.chosen.name == form), None)
    if asked is None:
        return every, None  # with fewer slots there may be one
    others = () if choice is None else choice.candidates
    return every, Choice(
        objective=objective, candidates=(asked, *others), bound=0.0, ended=Ending.GIVEN
    )


def check_form(setting: PlanSetting) -> None:
    """Raise an error if the user asks for a form of divided plan; to be called if there is none."""
    form = setting.options.form
    if form is not None and form.is_divided:
        raise unusable_strategy(form)


def unusable_strategy(form: Strategy, reason: str = "") -> TesseraError:
    """The error for a strategy that has no plan."""
    headline = f"the strategy `{form}` has no plan here" + (f": {reason}" if reason else "")
    return TesseraError(error("TSR3017", headline, hint=form.needs), exit_code=ExitCode.NO_PLAN)
