"""Where memory is short: what fits with fewer slots than the search counted with.

In: a `PlanSetting` and an attempt. Out: what a search with two slots finds, the plans without a
search for one slot, and a bound whatever the slots. A search with four slots does not see a data
parallel plan that has room for two. How many slots a plan gets is found by simulation (`trial`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tessera.ir.objectives import Objective
from tessera.planning.attempts import build_problem, is_short
from tessera.planning.given.options import Watch
from tessera.planning.given.setting import Attempt, PlanSetting
from tessera.planning.problem.device_types import DIRECT_DEVICES
from tessera.planning.problem.limits import SearchWatch
from tessera.planning.problem.problem import INFINITY
from tessera.planning.promise.contention import has_neighbours
from tessera.planning.search.by_objective import least_of
from tessera.planning.search.plans import Choice, rank
from tessera.planning.search.strategies import usual_candidates

_FEW = 2


def may_be_fewer(setting: PlanSetting, attempt: Attempt, choice: Choice) -> bool:
    """Whether plans with fewer slots than those of an attempt may hold what it has no room for."""
    options = setting.options
    return (
        options.slots is None
        and attempt.slots > 1
        and not choice.objective.is_of_one_request
        and choice.ended.is_search
        and not has_neighbours(setting)
        and is_short(setting, attempt.slots, attempt.lanes)
    )


def with_fewer_slots(
    setting: PlanSetting,
    attempt: Attempt,
    choice: Choice,
    search: Callable[[Attempt], Choice | None],
) -> Iterator[tuple[Attempt, Choice]]:
    """The search with few slots; and what people would do where one request at a time must fit.

    Few slots keep few devices busy: with more devices there is no such search.
    """
    if not may_be_fewer(setting, attempt, choice):
        return
    sequences = setting.options.sequences
    if attempt.slots > _FEW and len(setting.machine.devices) <= DIRECT_DEVICES:
        few = _attempt(setting, _FEW, sequences or _FEW)
        searched = search(few)
        if searched is not None:
            yield few, searched
    least = _attempt(setting, 1, sequences or 1)
    usual = rank(usual_candidates(least.planning.problem), choice.objective)
    if usual:
        yield least, replace(choice, candidates=usual)


def _attempt(setting: PlanSetting, slots: int, lanes: int) -> Attempt:
    return Attempt(slots=slots, lanes=lanes, planning=build_problem(setting, slots, lanes))


def bound_of_any(
    setting: PlanSetting, attempt: Attempt, objective: Objective, watch: Watch
) -> float:
    """No plan is better with the slots of an attempt or fewer; infinite where none has more room.

    So a plan with more slots is proven no nearer to the best than it is to one with fewer.
    """
    if attempt.slots == 1 or not is_short(setting, attempt.slots, attempt.lanes):
        return INFINITY
    planning = build_problem(setting, 1, setting.options.sequences or 1, slot_bytes=0)
    limits = SearchWatch(deadline=watch.deadline, should_stop=watch.should_stop)
    return least_of(planning.problem, objective, limits)
