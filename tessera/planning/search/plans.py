"""Choose a plan: gather candidates, rank them, keep the best and what it was chosen from.

In: a `Problem`, an objective and options. Out: a `Choice`: the best candidate, all others, and a
bound. A candidate is a list of replicas, each with devices, a placement and its share of the
requests; so data parallelism (one device each), copies of a placement and one placement over all
devices have one form. What is best is picked from a list that holds the usual plans
(`strategies`), so no plan is worse than one of them. `by_objective` has the searches; small
problems are enumerated (`small`), floors of the period and all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tessera.ir.choices import Ending
from tessera.ir.objectives import THROUGHPUT, Objective
from tessera.planning.problem.limits import ShouldStop
from tessera.planning.problem.problem import INFINITY, Problem
from tessera.planning.search.by_objective import PlanSearch, search_for, searched_candidate
from tessera.planning.search.candidates import Candidate
from tessera.planning.search.small import best_small
from tessera.planning.search.solve import Progress, SolveOptions
from tessera.planning.search.strategies import usual_candidates


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The best candidate first; `bound` is in the unit of the objective, `ended` as in `solve`."""

    objective: Objective
    candidates: tuple[Candidate, ...]
    bound: float
    ended: Ending
    duals: tuple[tuple[str, float], ...] = ()

    @property
    def best(self) -> Candidate:
        """The candidate to run."""
        return self.candidates[0]

    @property
    def gap(self) -> float:
        """How far the best is above the bound, as a fraction of it."""
        value = self.best.value(self.objective)
        return max(0.0, value / self.bound - 1.0) if self.bound > 0 else 0.0


def choose(
    problem: Problem,
    objective: Objective = THROUGHPUT,
    options: SolveOptions | None = None,
    *,
    on_progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
) -> Choice | None:
    """The best plan found, with all others; None if nothing fits (see `bound.infeasible`)."""
    if not all(task.allowed() for task in problem.tasks):
        return None
    search = PlanSearch(
        options=options or SolveOptions(), on_progress=on_progress, should_stop=should_stop
    )
    usual = usual_candidates(problem)
    searched = search_for(objective, problem, search, usual)
    small = best_small(problem, objective)
    enumerated = [] if small is None else [searched_candidate(problem, small)]
    ranked = rank([*usual, *searched.candidates, *enumerated], objective)
    if not ranked:
        return None
    return Choice(
        objective=objective,
        candidates=ranked,
        bound=min(searched.bound, ranked[0].value(objective)),
        ended=searched.ended,
        duals=searched.duals,
    )


def rank(candidates: Iterable[Candidate], objective: Objective) -> tuple[Candidate, ...]:
    """The usable candidates, the best first; of those with the same replicas the first alone.

    Equal ones stay in the order given: "do not split" comes first there, and wins a draw.
    """
    usable = (candidate for candidate in candidates if candidate.value(objective) < INFINITY)
    ranked = sorted(usable, key=lambda candidate: candidate.value(objective))
    seen: dict[object, Candidate] = {}
    for candidate in ranked:
        seen.setdefault(tuple((r.placement, r.share) for r in candidate.replicas), candidate)
    return tuple(seen.values())


def first_of_names(ranked: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Of candidates with the same name the first alone."""
    seen: dict[str, Candidate] = {}
    for candidate in ranked:
        seen.setdefault(candidate.name, candidate)
    return tuple(seen.values())
