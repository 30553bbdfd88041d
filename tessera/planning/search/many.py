"""Search over many devices: by types for the bound, by parts and stages for placements.

In: a `Problem`. Out: a `Solution`. Devices that are alike make a type. The problem with one device
per type, as fast and large as all of the type together, is small, and no plan beats its bound.
Placements for many devices in one replica come from cutting the tasks into stages, each with its
own devices (`search.stages`). Where tasks times devices are very many, the bound is that of
kinds of tasks (`bound.class_model`), and placements are runs, one for each device
(`search.chains`), and what single moves make of them.
"""

from __future__ import annotations

from dataclasses import replace

from tessera.ir.choices import Ending
from tessera.planning.bound.class_model import class_bound
from tessera.planning.problem.device_types import (
    DIRECT_DEVICES,
    aggregate,
    may_fit,
    types_of,
    usable_devices,
)
from tessera.planning.problem.limits import SearchWatch, ShouldStop, watch_for
from tessera.planning.problem.problem import INFINITY, Placement, Problem, measure
from tessera.planning.problem.task_index import TaskIndex
from tessera.planning.search.chains import best_runs
from tessera.planning.search.single_moves import best_of, improve
from tessera.planning.search.solve import (
    NOTHING,
    Progress,
    Solution,
    SolveOptions,
    order_key,
    solve,
)
from tessera.planning.search.stages import orders_of, staged_placements

_IMPROVED = 4
_LARGE = 10_000  # tasks times devices
_LARGE_IF_SPREAD = 5_000  # if no device holds everything
_RUNS_POWERS = (400.0,)
_RUNS_SWEEPS = 3


def is_large(problem: Problem) -> bool:
    """Whether runs of tasks are looked for, and no integer program is solved."""
    devices = len(usable_devices(problem))
    most = _LARGE if fits_one_device(problem) else _LARGE_IF_SPREAD
    return devices > DIRECT_DEVICES and devices * len(problem.tasks) > most


def fits_one_device(problem: Problem) -> bool:
    """Whether the largest memory holds everything."""
    needed = sum(resident.bytes for resident in problem.residents)
    return needed <= max((room.bytes for room in problem.rooms), default=needed)


def runs_of(problem: Problem, least: float) -> list[Placement]:
    """Runs of tasks, one for each device; where slots are few, also on no more devices than these.

    `least` is a bound on the period.
    """
    groups, devices = types_of(problem), len(problem.devices)
    numbers = [devices]
    if problem.slots is not None and problem.slots < devices:
        numbers.append(problem.slots)
    placements = [
        best_runs(problem, groups, order, least, number)
        for order in orders_of(problem)
        for number in numbers
    ]
    return [placement for placement in dict.fromkeys(placements) if placement is not None]


def _solve_runs(
    problem: Problem,
    options: SolveOptions,
    starts: tuple[Placement, ...],
    watch: SearchWatch,
    on_progress: Progress | None,
) -> Solution:
    """As `solve_many`, for very many tasks and devices."""
    bound = class_bound(problem, None, watch)
    if bound == INFINITY:
        return NOTHING
    best = best_of(problem, (*starts, *runs_of(problem, bound)))
    if best is not None and options.thorough and not watch.over():
        moved = improve(problem, best, _RUNS_POWERS, _RUNS_SWEEPS)
        best = best_of(problem, (best, moved))
    solution = _solution(problem, best, bound, watch)
    if on_progress is not None:
        on_progress(bound, solution.period_ns)
    return solution


def _solution(
    problem: Problem, best: Placement | None, bound: float, watch: SearchWatch
) -> Solution:
    """The solution of a search, with a bound on every plan."""
    period = INFINITY if best is None else measure(problem, best).period_ns
    return Solution(
        placement=best,
        period_ns=period,
        bound_ns=min(bound, period),
        relaxation_ns=min(bound, period),
        ended=watch.over() or Ending.SEARCH,
    )


def solve_many(
    problem: Problem,
    options: SolveOptions,
    starts: tuple[Placement, ...] = (),
    *,
    on_progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
) -> Solution:
    """As `solve`; with many devices, by types, stages and local search."""
    if not may_fit(problem):
        return NOTHING
    if len(usable_devices(problem)) <= DIRECT_DEVICES:
        return solve(problem, options, starts, on_progress, should_stop=should_stop)
    watch = watch_for(options.seconds, should_stop)
    if is_large(problem):
        return _solve_runs(problem, options, starts, watch, on_progress)
    merged, groups = aggregate(problem)
    typed = solve(merged, replace(options, gap=max(options.gap, 0.003)), should_stop=should_stop)
    bound = typed.relaxation_ns
    trials, improved = list(starts), dict[Placement, Placement]()
    if typed.placement is not None:
        staged, improved = staged_placements(problem, groups, merged, typed, options.gap, watch)
        trials += staged
    index = TaskIndex(problem)
    ranked = sorted(trials, key=lambda placement: order_key(problem, placement))
    best = best_of(problem, ranked, index)
    for trial in ranked[: _IMPROVED if options.thorough else 1]:
        if watch.over():
            break
        if trial not in improved:
            improved[trial] = improve(problem, trial, index=index)
        best = best_of(problem, filter(None, (best, improved[trial])), index)
        if on_progress is not None:
            on_progress(bound, INFINITY if best is None else measure(problem, best).period_ns)
    return replace(_solution(problem, best, bound, watch), duals=typed.duals)
