"""The candidates for an objective, from a search, a strategy or a file: gathered and ranked.

In: a `PlanSetting`, an `Attempt` and an objective. Out: a `Choice`, the best candidate first, by
loads. `find_plan` simulates and proves them.
"""

from __future__ import annotations

from dataclasses import replace

from tessera.ir.choices import Ending
from tessera.ir.objectives import LATENCY, Objective
from tessera.planning.attempts import runs_alone
from tessera.planning.given.options import Watch
from tessera.planning.given.setting import Attempt, PlanSetting
from tessera.planning.placements import given_choice
from tessera.planning.problem.limits import SearchWatch
from tessera.planning.problem.problem import Problem
from tessera.planning.promise.contention import Search, has_neighbours, settle_all
from tessera.planning.roles.role_plans import with_roles
from tessera.planning.search.candidates import Candidate, busiest_ns, splits_requests
from tessera.planning.search.plans import Choice, choose, first_of_names
from tessera.planning.search.solve import SolveOptions
from tessera.planning.search.strategies import KERNEL

_LESS_LOAD = 0.995


def choose_best(
    setting: PlanSetting,
    attempt: Attempt,
    objective: Objective,
    watch: Watch,
    *,
    best_alone: bool = False,
) -> Choice | None:
    """The candidates for an objective: gathered, then ranked, the best first.

    This is the only place that orders candidates. The plan is later the first of them that is
    proved. `best_alone`: neither the other candidates nor a proof of the gap are needed.
    """
    alone = bool(runs_alone(setting))
    search = _search_for(setting, objective, watch, alone=alone, best_alone=best_alone)
    limits = SearchWatch(deadline=watch.deadline, should_stop=watch.should_stop)
    gathered = _gather_candidates(setting, attempt, objective, search, limits, alone=alone)
    if gathered is None:
        return None
    return _rank_candidates(setting, attempt, objective, gathered, search, alone=alone)


def _search_for(
    setting: PlanSetting, objective: Objective, watch: Watch, *, alone: bool, best_alone: bool
) -> Search:
    """The search of `planning.search`, with the limits of this plan."""
    options = solve_options(setting, watch)
    if best_alone:
        options = replace(options, thorough=False, any_plan=True)
    # If requests run one at a time, the latency is the period.
    sought = LATENCY if alone and objective.is_rate else objective

    def search(problem: Problem) -> Choice | None:
        return choose(
            problem,
            sought,
            options,
            on_progress=None if watch.on_progress is None else watch.tell_search,
            should_stop=watch.should_stop,
        )

    return search


def _gather_candidates(
    setting: PlanSetting,
    attempt: Attempt,
    objective: Objective,
    search: Search,
    watch: SearchWatch,
    *,
    alone: bool,
) -> Choice | None:
    """The candidate that the user asks for, or those of a search; beside a strategy, both."""
    given = given_choice(setting, attempt)
    form = setting.options.form
    if (given is None) == (form is not None and not form.is_divided):
        return given  # a placement, or a strategy that needs fewer slots
    searched = search(attempt.planning.problem)
    if not alone and setting.options.placement is None:
        searched = with_roles(setting, attempt, searched, watch)
    if alone and searched is not None:
        lone = tuple(candidate for candidate in searched.candidates if len(candidate.replicas) == 1)
        searched = replace(searched, candidates=lone, objective=objective) if lone else None
    return searched if given is None else _beside(given, searched)


def _rank_candidates(
    setting: PlanSetting,
    attempt: Attempt,
    objective: Objective,
    gathered: Choice,
    search: Search,
    *,
    alone: bool,
) -> Choice:
    """The best candidate of each name, in order, with times beside busy neighbours if known.

    The requested candidate stays first.
    """
    if objective.is_rate and has_neighbours(setting):
        fixed = alone or gathered.ended == Ending.GIVEN
        return settle_all(setting, attempt, gathered, None if fixed else search)
    return replace(gathered, candidates=_first_of_names(gathered.candidates))


def _first_of_names(ranked: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """The first candidate of each name; if slots hold it back, also the one with the least load.

    Those with roles are few, and differ in what loads do not show.
    """
    kept = {candidate.name: candidate for candidate in first_of_names(ranked)}
    least = dict(kept)
    for candidate in ranked:
        if busiest_ns(candidate) < _LESS_LOAD * busiest_ns(least[candidate.name]):
            least[candidate.name] = candidate
    chosen = {id(candidate) for candidate in (*kept.values(), *least.values())}
    return tuple(c for c in ranked if id(c) in chosen or c.roles is not None)


def solve_options(setting: PlanSetting, watch: Watch) -> SolveOptions:
    """The limits of a search; all searches of a plan share one deadline."""
    options = setting.options
    seconds = options.seconds if watch.deadline is None else watch.seconds_left()
    return SolveOptions(gap=options.gap, seconds=seconds, any_plan=options.strategy is None)


def _beside(given: Choice, searched: Choice | None) -> Choice:
    """The requested choice, followed by the searched candidates."""
    if searched is None:
        return given
    chosen = given.best
    if chosen.name == KERNEL:
        splits = (candidate for candidate in searched.candidates if splits_requests(candidate))
        best = min((chosen, *splits), key=lambda candidate: candidate.value(searched.objective))
        chosen = replace(best, name=KERNEL)
    others = tuple(
        candidate
        for candidate in searched.candidates
        if candidate.name != chosen.name and candidate.replicas != chosen.replicas
    )
    return replace(given, candidates=(chosen, *others), bound=searched.bound)
