"""Choose a plan: our placement, every baseline and every way to share requests, side by side.

In: a `Problem`, an objective and options. Out: a `Choice`: the best candidate, all others, and a
bound. A candidate is a list of replicas, each with devices, a placement and its share of the
requests; so data parallelism (one device each), copies of a placement and one placement over all
devices have one form. What is best is picked from a list that holds the baselines, so no plan is
worse than one of them.

Equal devices make copies: with counts that share a divisor, the problem is solved for one such part
and repeated, the smallest parts first; larger ones only where the smaller do not fit or are not
near the bound. Small problems are enumerated, floors of the period and all.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import gcd

from tessera.ir.choices import Ending, Objective, Strategy
from tessera.passes.placement.baselines import best_baseline
from tessera.passes.placement.bounds import spread_bound
from tessera.passes.placement.candidates import (
    HOUR_NS,
    Candidate,
    Parts,
    ReplicaPlan,
    candidate_of,
    one_placement,
    slots_needed,
)
from tessera.passes.placement.latency import solve_latency
from tessera.passes.placement.limits import SearchWatch, ShouldStop, watch_for
from tessera.passes.placement.many import (
    DIRECT_DEVICES,
    aggregate,
    equal_parts,
    solve_many,
    types_of,
    usable_devices,
)
from tessera.passes.placement.problem import (
    INFINITY,
    Placement,
    Problem,
    keep_devices,
    measure,
    restrict,
    runs,
)
from tessera.passes.placement.small import best_small
from tessera.passes.placement.solve import Progress, SolveOptions, lower_bound

__all__ = [
    "Candidate",
    "Choice",
    "ReplicaPlan",
    "alone_candidates",
    "candidate_of",
    "choose",
    "first_of_names",
    "slots_needed",
    "strategy_candidate",
]

_NEAR = 0.01  # of the bound; larger parts are not tried then
_NEAR_ENOUGH = 0.05
_LARGE_TASKS = 2_000
_COARSE = (Strategy.LAYERS, Strategy.PHASE, Strategy.ATTENTION, Strategy.KERNEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The best candidate first; `bound` is in the unit of the objective, `ended` as in `solve`."""

    objective: str
    candidates: tuple[Candidate, ...]
    bound: float
    ended: str
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlanSearch:
    """What a search is given besides the problem."""

    options: SolveOptions
    on_progress: Progress | None = None
    should_stop: ShouldStop | None = None

    def within(self, watch: SearchWatch) -> _PlanSearch:
        """The same, with the time that is left."""
        return replace(self, options=replace(self.options, seconds=watch.seconds_left()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Candidates, a bound in the unit of the objective, and how the search ended."""

    candidates: list[Candidate]
    bound: float
    ended: str
    duals: tuple[tuple[str, float], ...] = ()


def choose(
    problem: Problem,
    objective: str = Objective.THROUGHPUT,
    options: SolveOptions | None = None,
    *,
    on_progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
) -> Choice | None:
    """The best plan found, with all others; None if nothing fits (see `partition.infeasible`)."""
    if not all(task.allowed() for task in problem.tasks):
        return None
    search = _PlanSearch(
        options=options or SolveOptions(), on_progress=on_progress, should_stop=should_stop
    )
    baselines = _baselines(problem)
    look = {
        Objective.THROUGHPUT: _fastest,
        Objective.LATENCY: _shortest,
        Objective.COST: _cheapest,
    }[Objective(objective)]
    searched = look(problem, search, baselines)
    everything = baselines + searched.candidates
    small = best_small(problem, objective)
    if small is not None:
        everything.append(_searched(problem, small))
    usable = [candidate for candidate in everything if candidate.value(objective) < INFINITY]
    if not usable:
        return None
    # Equal ones stay in the order above: "do not split" wins a draw.
    ranked = sorted(usable, key=lambda candidate: candidate.value(objective))
    return Choice(
        objective=objective,
        candidates=tuple(_without_repeats(ranked)),
        bound=min(searched.bound, ranked[0].value(objective)),
        ended=searched.ended,
        duals=searched.duals,
    )


def strategy_candidate(problem: Problem, strategy: str) -> Candidate | None:
    """A baseline by name; None if it has no plan here. A split by kernels is one without search."""
    if strategy == Strategy.DP:
        return _data_parallel(problem)
    placement = best_baseline(problem, strategy)
    if placement is None:
        return None
    name = f"single:{problem.devices[placement[0]]}" if strategy == Strategy.SINGLE else strategy
    candidate = one_placement(problem, name, placement)
    return candidate if candidate.period_ns < INFINITY else None


def alone_candidates(
    problem: Problem, objective: str = Objective.THROUGHPUT, options: SolveOptions | None = None
) -> list[Candidate]:
    """The best plan for the devices of each type alone, named `2x a100-0`."""
    candidates = []
    for group in types_of(problem):
        part = restrict(problem, group)
        choice = choose(part, objective, options)
        if choice is not None:
            name = f"{len(group)}x {problem.devices[group[0]]}"
            candidates.append(replace(choice.best, name=name))
    return candidates


def _searched(problem: Problem, placement: Placement) -> Candidate:
    """What a search has found: a split of single requests, or a device that serves them alone."""
    used = set(placement)
    name = Strategy.KERNEL if len(used) > 1 else f"single:{problem.devices[placement[0]]}"
    return one_placement(problem, name, placement)


def _without_repeats(ranked: list[Candidate]) -> list[Candidate]:
    """Of candidates with the same replicas the first alone."""
    seen: dict[object, Candidate] = {}
    for candidate in ranked:
        seen.setdefault(tuple((r.placement, r.share) for r in candidate.replicas), candidate)
    return list(seen.values())


def first_of_names(ranked: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Of candidates with the same name the first alone."""
    seen: dict[str, Candidate] = {}
    for candidate in ranked:
        seen.setdefault(candidate.name, candidate)
    return tuple(seen.values())


# --- baselines ---------------------------------------------------------------------------------


def _baselines(problem: Problem) -> list[Candidate]:
    """What people would do: each strategy at its best, each kind of device alone, all apart."""
    candidates: list[Candidate | None] = [
        one_placement(problem, f"single:{problem.devices[group[0]]}", _alone(problem, group[0]))
        for group in types_of(problem)
        if _fits_alone(problem, group[0])
    ]
    devices = usable_devices(problem)
    if len(devices) > 1:
        candidates.append(_data_parallel(problem))
        candidates += [strategy_candidate(problem, name) for name in _COARSE]
    return [
        candidate
        for candidate in candidates
        if candidate is not None and candidate.period_ns < INFINITY
    ]


def _alone(problem: Problem, device: int) -> Placement:
    return (device,) * len(problem.tasks)


def _fits_alone(problem: Problem, device: int) -> bool:
    alone = _alone(problem, device)
    return runs(problem, alone) and measure(problem, alone).fits


def _data_parallel(problem: Problem) -> Candidate | None:
    """Every device that holds the whole model serves requests of its own."""
    parts = []
    for device in range(len(problem.devices)):
        if _fits_alone(problem, device):
            alone = _alone(problem, device)
            parts.append((alone, 1.0 / max(measure(problem, alone).period_ns, 1e-9)))
    if len(parts) < 2:
        return None
    candidate = candidate_of(problem, Strategy.DP, tuple(parts))
    return candidate if candidate.period_ns < INFINITY else None


# --- objectives --------------------------------------------------------------------------------


def _shortest(problem: Problem, search: _PlanSearch, baselines: list[Candidate]) -> _Found:
    solved = solve_latency(problem, _starts(baselines))
    if solved.placement is None:
        # Memory is short: start from any placement that fits.
        quick = replace(search.options, gap=0.05)
        fitting = solve_many(problem, quick, should_stop=search.should_stop).placement
        if fitting is not None:
            solved = solve_latency(problem, (fitting,))
    candidates = []
    if solved.placement is not None:
        candidates.append(_searched(problem, solved.placement))
    return _Found(candidates=candidates, bound=solved.bound_ns, ended=Ending.GAP)


def _starts(candidates: list[Candidate]) -> tuple[Placement, ...]:
    return tuple(
        candidate.replicas[0].placement for candidate in candidates if len(candidate.replicas) == 1
    )


def _fastest(problem: Problem, search: _PlanSearch, baselines: list[Candidate]) -> _Found:
    """Copies of a part first; one placement over all devices where that is not near the bound."""
    watch = watch_for(search.options.seconds, search.should_stop)
    many = len(usable_devices(problem)) > DIRECT_DEVICES
    candidates: list[Candidate] = []
    if search.options.any_plan and len(problem.tasks) > _LARGE_TASKS:
        least = spread_bound(problem)
        if min((candidate.period_ns for candidate in baselines), default=INFINITY) <= least * (
            1 + search.options.gap
        ):
            return _Found(candidates=candidates, bound=least, ended=Ending.GAP)
    if many:
        bound = lower_bound(aggregate(problem)[0], watch)
        for number in _part_counts(problem):
            candidates += _copies(problem, search.within(watch), number)
            best = min(
                (candidate.period_ns for candidate in baselines + candidates), default=INFINITY
            )
            if best <= bound * (1 + max(search.options.gap, _NEAR)):
                near = best <= bound * (1 + search.options.gap)
                return _Found(
                    candidates=candidates, bound=bound, ended=Ending.GAP if near else Ending.SEARCH
                )
            if watch.over():
                return _Found(candidates=candidates, bound=bound, ended=watch.over())
        if candidates and best <= bound * (1 + _NEAR_ENOUGH):
            # One placement over all devices has more boundaries than replicas have.
            return _Found(candidates=candidates, bound=bound, ended=Ending.SEARCH)
    solved = solve_many(
        problem,
        search.within(watch).options,
        _starts(baselines),
        on_progress=search.on_progress,
        should_stop=search.should_stop,
    )
    if solved.placement is not None:
        candidates.append(_searched(problem, solved.placement))
    if not many:
        for number in () if watch.over() else _part_counts(problem):
            candidates += _copies(problem, search.within(watch), number)
    candidates += _with_fewer_hops(problem, baselines + candidates)
    return _Found(
        candidates=candidates, bound=solved.relaxation_ns, ended=solved.ended, duals=solved.duals
    )


def _with_fewer_hops(problem: Problem, candidates: list[Candidate]) -> list[Candidate]:
    """Where slots or lanes limit the best plan, the placement with the shortest request."""
    best = min(candidates, key=lambda candidate: candidate.period_ns, default=None)
    if best is None or not best.limits or not best.limits[0][0].startswith(("slots", "cycle")):
        return []
    shortest = solve_latency(problem, _starts(candidates))
    if shortest.placement is None:
        return []
    return [_searched(problem, shortest.placement)]


def _part_counts(problem: Problem) -> list[int]:
    """Into how many parts to deal the devices: the most first."""
    counts = [len(group) for group in types_of(problem)]
    common = gcd(*counts)
    divisors = {number for number in range(2, common + 1) if common % number == 0}
    return sorted((divisors | {min(counts), max(counts)}) - {1}, reverse=True)


def _copies(problem: Problem, search: _PlanSearch, number: int) -> list[Candidate]:
    """Plans for parts of the devices, side by side; parts that are alike share one plan."""
    rates = _parts_with_rates(problem, search, equal_parts(problem, number))
    if len(rates) < 2:
        return []
    candidate = candidate_of(problem, f"{len(rates)} replicas", rates)
    return [candidate] if candidate.period_ns < INFINITY else []


def _parts_with_rates(
    problem: Problem, search: _PlanSearch, parts: tuple[tuple[int, ...], ...]
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
        placed.append((copied, 1.0 / max(measure(problem, copied).period_ns, 1e-9)))
    return tuple(placed)


def _cheapest(problem: Problem, search: _PlanSearch, baselines: list[Candidate]) -> _Found:
    """Plans for subsets of the cards, a bound on the money per request, and how it ended."""
    candidates: list[Candidate] = []
    least = min((candidate.usd for candidate in baselines), default=INFINITY)
    bound = INFINITY
    ended: str = Ending.GAP
    watch = watch_for(search.options.seconds, search.should_stop)
    for cards in _subsets(problem):
        devices = tuple(sorted(d for card in cards for d in problem.rooms[card].devices))
        part = restrict(problem, devices)
        if any(not task.allowed() for task in part.tasks):
            continue
        price = sum(problem.rooms[card].usd_per_hour for card in cards) / HOUR_NS
        floor = price * (
            spread_bound(part) if watch.over() else lower_bound(aggregate_if_many(part), watch)
        )
        bound = min(bound, floor)
        if floor >= least or watch.over():
            ended = watch.over() or ended
            continue
        inside = _baselines(part)
        solved = _fastest(part, search.within(watch), inside)
        inside += solved.candidates
        if solved.ended != Ending.GAP:
            ended = solved.ended
        candidates += inside
        least = min([least, *(candidate.usd for candidate in inside)])
    return _Found(candidates=candidates, bound=bound, ended=ended)


def aggregate_if_many(problem: Problem) -> Problem:
    """The problem itself, or with many devices the one by types."""
    many = len(usable_devices(problem)) > DIRECT_DEVICES
    return aggregate(problem)[0] if many else problem


def _subsets(problem: Problem) -> list[tuple[int, ...]]:
    """Sets of cards, few first; of cards that are alike only how many are used matters."""
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
