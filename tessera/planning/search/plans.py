"""Choose a plan: gather candidates, rank them, keep the best and its alternatives.

In: a `Problem`, an objective and options. Out: a `Choice`: the best candidate, all others, and a
bound. A candidate is a list of replicas, each with devices, a placement and its share of the
requests; so data parallelism (one device each), copies of a placement and one placement over all
devices have one form. What is best is picked from a list that holds the usual plans
(`strategies`), so no plan is worse than one of them. There is a search for each figure that an
objective can name; small problems are enumerated (`small`), floors of the period and all.

Equal devices make copies: with counts that share a divisor, the problem is solved for one such part
and repeated, the smallest parts first; larger ones only where the smaller do not fit or are not
near the bound.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd

from tessera.ir.choices import Ending
from tessera.ir.objectives import HOUR_NS, THROUGHPUT, Figure, Objective, PlanFigures
from tessera.planning.bound.class_model import class_bound, most_replicas
from tessera.planning.bound.relax import spread_bound
from tessera.planning.problem.device_types import (
    DIRECT_DEVICES,
    aggregate,
    equal_parts,
    types_of,
    usable_devices,
)
from tessera.planning.problem.limits import SearchWatch, ShouldStop, watch_for
from tessera.planning.problem.problem import INFINITY, Placement, Problem, keep_devices, restrict
from tessera.planning.search.candidates import (
    Candidate,
    Parts,
    candidate_of,
    one_placement,
    with_rates,
)
from tessera.planning.search.latency import bound_of_requests, solve_latency
from tessera.planning.search.many import is_large, solve_many
from tessera.planning.search.small import best_small
from tessera.planning.search.solve import Progress, SolveOptions, lower_bound
from tessera.planning.search.strategies import KERNEL, alone_on, usual_candidates

_NEAR = 0.01  # of the bound; larger parts are not tried then
_NEAR_ENOUGH = 0.05
_LARGE_TASKS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSearch:
    """The parameters of a search besides the problem."""

    options: SolveOptions
    on_progress: Progress | None = None
    should_stop: ShouldStop | None = None

    def within(self, watch: SearchWatch) -> PlanSearch:
        """A search that ends when the watch does."""
        return replace(self, options=replace(self.options, seconds=watch.seconds_left()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """Candidates, a bound in the unit of the objective, and how the search ended."""

    candidates: list[Candidate]
    bound: float
    ended: Ending
    duals: tuple[tuple[str, float], ...] = ()


def searched_candidate(problem: Problem, placement: Placement) -> Candidate:
    """A placement found by a search, as a split of single requests or a device alone."""
    used = set(placement)
    if len(used) == 1:
        return alone_on(problem, placement[0])
    return one_placement(problem, KERNEL, placement)


def fastest(problem: Problem, search: PlanSearch, usual: list[Candidate]) -> Searched:
    """Try copies of a part first, then one placement over all devices if not near the bound."""
    watch = watch_for(search.options.seconds, search.should_stop)
    many = len(usable_devices(problem)) > DIRECT_DEVICES
    candidates: list[Candidate] = []
    large = len(problem.tasks) > _LARGE_TASKS or not search.options.thorough
    if search.options.any_plan and large:
        least = spread_bound(problem)
        if min((candidate.period_ns for candidate in usual), default=INFINITY) <= least * (
            1 + search.options.gap
        ):
            return Searched(candidates=candidates, bound=least, ended=Ending.GAP)
    if many:
        bound = least_period(problem, watch)
        copies = most_replicas(problem)
        for number in (count for count in _part_counts(problem) if count <= copies):
            candidates += _copies(problem, search.within(watch), number)
            best = min((candidate.period_ns for candidate in usual + candidates), default=INFINITY)
            if best <= bound * (1 + max(search.options.gap, _NEAR)):
                near = best <= bound * (1 + search.options.gap)
                return Searched(
                    candidates=candidates, bound=bound, ended=Ending.GAP if near else Ending.SEARCH
                )
            if (over := watch.over()) is not None:
                return Searched(candidates=candidates, bound=bound, ended=over)
        if candidates and best <= bound * (1 + _NEAR_ENOUGH):
            # One placement over all devices has more boundaries than replicas have.
            return Searched(candidates=candidates, bound=bound, ended=Ending.SEARCH)
    solved = solve_many(
        problem,
        search.within(watch).options,
        _starts(usual),
        on_progress=search.on_progress,
        should_stop=search.should_stop,
    )
    if solved.placement is not None:
        candidates.append(searched_candidate(problem, solved.placement))
    if not many:
        for number in () if watch.over() else _part_counts(problem):
            candidates += _copies(problem, search.within(watch), number)
    if not is_large(problem):
        candidates += _with_fewer_hops(problem, usual + candidates)
    return Searched(
        candidates=candidates, bound=solved.relaxation_ns, ended=solved.ended, duals=solved.duals
    )


def _with_fewer_hops(problem: Problem, candidates: list[Candidate]) -> list[Candidate]:
    """Add the placement with the shortest request if slots or lanes limit the best plan."""
    best = min(candidates, key=lambda candidate: candidate.period_ns, default=None)
    if best is None or not best.limits or best.limits[0].kind.is_load:
        return []
    shortest = solve_latency(problem, _starts(candidates))
    if shortest.placement is None:
        return []
    return [searched_candidate(problem, shortest.placement)]


def _starts(candidates: list[Candidate]) -> tuple[Placement, ...]:
    return tuple(
        candidate.replicas[0].placement for candidate in candidates if len(candidate.replicas) == 1
    )


def _part_counts(problem: Problem) -> list[int]:
    """The numbers of parts to deal the devices into, largest first."""
    counts = [len(group) for group in types_of(problem)]
    common = gcd(*counts)
    divisors = {number for number in range(2, common + 1) if common % number == 0}
    return sorted((divisors | {min(counts), max(counts)}) - {1}, reverse=True)


def _copies(problem: Problem, search: PlanSearch, number: int) -> list[Candidate]:
    """Plans for parts of the devices, side by side; parts that are alike share one plan."""
    rates = _parts_with_rates(problem, search, equal_parts(problem, number))
    if len(rates) < 2:
        return []
    candidate = candidate_of(problem, f"{len(rates)} replicas", rates)
    return [candidate] if candidate.period_ns < INFINITY else []


def _parts_with_rates(
    problem: Problem, search: PlanSearch, parts: tuple[tuple[int, ...], ...]
) -> Parts:
    """A placement and a rate for each part that can serve requests."""
    kinds = {d: index for index, group in enumerate(types_of(problem)) for d in group}
    solved: dict[tuple[int, ...], Placement | None] = {}
    placed = []
    for part in parts:
        shape = tuple(kinds[device] for device in part)
        if shape not in solved:
            inside = keep_devices(problem, part)
            usable = all(task.allowed() for task in inside.tasks)
            plan = None
            if usable:
                plan = solve_many(inside, search.options, should_stop=search.should_stop).placement
            solved[shape] = plan
        placement = solved[shape]
        if placement is None:
            continue
        copied = tuple(part[device] for device in placement)
        placed.append(copied)
    return with_rates(problem, placed)


def shortest(problem: Problem, search: PlanSearch, usual: list[Candidate]) -> Searched:
    """The placement with the shortest request, from the usual ones or from any that fits."""
    solved = solve_latency(problem, _starts(usual))
    if solved.placement is None:
        # Memory is short: start from any placement that fits.
        quick = replace(search.options, gap=0.05)
        fitting = solve_many(problem, quick, should_stop=search.should_stop).placement
        if fitting is not None:
            solved = solve_latency(problem, (fitting,))
    candidates = []
    if solved.placement is not None:
        candidates.append(searched_candidate(problem, solved.placement))
    return Searched(candidates=candidates, bound=solved.bound_ns, ended=Ending.GAP)


def cheapest(problem: Problem, search: PlanSearch, usual: list[Candidate]) -> Searched:
    """Plans for subsets of the cards, a bound on the money per request, and how it ended."""
    candidates: list[Candidate] = []
    least = min((candidate.usd_per_request for candidate in usual), default=INFINITY)
    bound = INFINITY
    ended = Ending.GAP
    watch = watch_for(search.options.seconds, search.should_stop)
    for part, price in subset_problems(problem):
        floor = price * least_period(part, watch)
        bound = min(bound, floor)
        if floor >= least or watch.over():
            ended = watch.over() or ended
            continue
        inside = usual_candidates(part)
        solved = fastest(part, search.within(watch), inside)
        inside += solved.candidates
        if solved.ended != Ending.GAP:
            ended = solved.ended
        candidates += inside
        least = min([least, *(candidate.usd_per_request for candidate in inside)])
    return Searched(candidates=candidates, bound=bound, ended=ended)


def least_of(problem: Problem, objective: Objective, watch: SearchWatch) -> float:
    """A lower bound of an objective over all plans, for any slots and sequences."""
    return _value(
        objective, {figure: _least(problem, figure, watch) for figure in objective.figures}
    )


def _least(problem: Problem, figure: Figure, watch: SearchWatch) -> float:
    match figure:
        case Figure.PERIOD:
            return least_period(problem, watch)
        case Figure.LATENCY:
            return bound_of_requests(problem)
        case Figure.MONEY:
            return min(
                (price * least_period(part, watch) for part, price in subset_problems(problem)),
                default=INFINITY,
            )


def _value(objective: Objective, least: Mapping[Figure, float]) -> float:
    """The number of an objective whose figures are no smaller than these."""
    return objective.value(
        PlanFigures(
            period_ns=least.get(Figure.PERIOD, 0.0),
            latency_ns=least.get(Figure.LATENCY, 0.0),
            usd_per_request=least.get(Figure.MONEY, 0.0),
        )
    )


def least_period(problem: Problem, watch: SearchWatch) -> float:
    """A lower bound of the period; with many devices, the bound by types."""
    if watch.over():
        return spread_bound(problem)
    if is_large(problem):
        return class_bound(problem, None, watch)
    many = len(usable_devices(problem)) > DIRECT_DEVICES
    return lower_bound(aggregate(problem)[0] if many else problem, watch)


def subset_problems(problem: Problem) -> Iterator[tuple[Problem, float]]:
    """The problem on each set of cards that can run it, and dollars per nanosecond of these."""
    for cards in _subsets(problem):
        devices = tuple(sorted(d for card in cards for d in problem.rooms[card].devices))
        part = restrict(problem, devices)
        if all(task.allowed() for task in part.tasks):
            yield part, sum(problem.rooms[card].usd_per_hour for card in cards) / HOUR_NS


def _subsets(problem: Problem) -> list[tuple[int, ...]]:
    """Sets of cards, smallest first; for identical cards only their number matters."""
    alike: dict[object, list[int]] = {}
    for index, room in enumerate(problem.rooms):
        columns = tuple(tuple(task.ns[d] for task in problem.tasks) for d in room.devices)
        alike.setdefault((columns, room.bytes, room.usd_per_hour), []).append(index)
    counts = itertools.product(*(range(len(group) + 1) for group in alike.values()))
    subsets = [
        tuple(card for group, n in zip(alike.values(), chosen, strict=True) for card in group[:n])
        for chosen in counts
    ]
    return sorted(
        (subset for subset in subsets if subset), key=lambda subset: (len(subset), subset)
    )


_SEARCHES = {Figure.PERIOD: fastest, Figure.LATENCY: shortest, Figure.MONEY: cheapest}


def search_for(
    objective: Objective, problem: Problem, search: PlanSearch, usual: list[Candidate]
) -> Searched:
    """What the searches for all figures of an objective find; the bound is that of their bounds."""
    every = {figure: _SEARCHES[figure](problem, search, usual) for figure in objective.figures}
    ends = [searched.ended for searched in every.values()]
    return Searched(
        candidates=[candidate for searched in every.values() for candidate in searched.candidates],
        bound=_value(objective, {figure: searched.bound for figure, searched in every.items()}),
        ended=next((ended for ended in ends if ended is not Ending.GAP), Ending.GAP),
        duals=next((searched.duals for searched in every.values() if searched.duals), ()),
    )


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
        key = tuple((r.placement, r.share, r.shares) for r in candidate.replicas)
        seen.setdefault(key, candidate)
    return tuple(seen.values())


def first_of_names(ranked: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """The first candidate of each name."""
    seen: dict[str, Candidate] = {}
    for candidate in ranked:
        seen.setdefault(candidate.name, candidate)
    return tuple(seen.values())
