"""The best placement for throughput, with a proven bound.

In: a `Problem`. Out: a `Solution`: placement, period, proven bound, how it ended. The order is
bound, rounding, splicing, local search, balancing; then branching on counts where tasks repeat, and
branch and bound by HiGHS where they do not, both from the best placement so far. So the answer is
never worse than a start that was handed in. Same input, same answer: one thread, a fixed seed, and
limits that count nodes; a clock limit, if given, is reported when it strikes.

A start that HiGHS finds infeasible is dropped without a word, so what comes back is compared with
what went in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tessera.ir.choices import Ending
from tessera.planning.bound.coarse import MOST_TASKS, coarsen
from tessera.planning.bound.counts import branch_on_counts, classes_of
from tessera.planning.bound.highs import Listener, SolverEvent
from tessera.planning.bound.model import IntegerModel, build_model
from tessera.planning.bound.relax import (
    Relaxation,
    make_solver,
    relax,
    run_solver,
    spread_bound,
    unsolved,
)
from tessera.planning.problem.limits import ENDLESS, SearchWatch, ShouldStop, watch_for
from tessera.planning.problem.problem import INFINITY, Placement, Problem, measure
from tessera.planning.problem.task_index import TaskIndex
from tessera.planning.search.balance import balance
from tessera.planning.search.single_moves import POWERS, best_of, improve, shake, splice_all

_NODES_TIMES_COLUMNS = 20_000  # so that branch and bound takes a few seconds at most
_WORK = 150_000_000  # steps of the simplex method times rows: some ten to twenty seconds
_WORK_PER_NODE = 1_000_000
_REPEATED = 0.75  # classes per task; with more of them there is too little to count
_FEW_TASKS = 16
_SHAKEN = (40, 600)  # tasks; fewer are quick to solve, more gain nothing by it
_KICKS_TIMES_TASKS = 30_000  # for two or three devices; with more a kick takes longer
_NEAR = 1.02  # factor over the bound up to which a placement is worth balancing
_COARSE_SWEEPS = 2
_THRESHOLDS = (0.5, 0.25, 0.75, 0.05, 0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveOptions:
    """Limits. `gap` is a fraction; the search stops when the plan is proven to be that near.

    `max_nodes` of branch and bound: None is as many as suit the size of the model. Without
    `thorough` a placement from rounding and local search is enough; branching is for none at all.
    `any_plan`: of a large problem, and without `thorough`, no split of requests is looked for where
    a baseline is near enough.
    """

    gap: float = 0.001
    max_nodes: int | None = None
    seconds: float | None = None
    seed: int = 0
    thorough: bool = True
    any_plan: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """A placement and how good it is proven to be. No placement: none fits.

    `relaxation_ns` bounds every plan, also one that shares requests among placements;
    `bound_ns` bounds plans with one placement. `ended`: why the search stopped.
    """

    placement: Placement | None
    period_ns: float
    bound_ns: float
    relaxation_ns: float
    ended: Ending
    duals: tuple[tuple[str, float], ...] = ()

    @property
    def gap(self) -> float:
        """How far above the bound the period is, as a fraction."""
        if self.placement is None or self.period_ns <= 0:
            return 0.0
        return max(0.0, (self.period_ns - self.bound_ns) / self.period_ns)


Progress = Callable[[float, float], None]
NOTHING = Solution(
    placement=None, period_ns=INFINITY, bound_ns=INFINITY, relaxation_ns=INFINITY, ended=Ending.GAP
)


def solve(
    problem: Problem,
    options: SolveOptions | None = None,
    starts: Iterable[Placement] = (),
    on_progress: Progress | None = None,
    *,
    should_stop: ShouldStop | None = None,
) -> Solution:
    """The best placement found for throughput, with a proven bound."""
    options = options or SolveOptions()
    watch = watch_for(options.seconds, should_stop)
    if len(problem.tasks) > MOST_TASKS:
        return _solve_coarse(problem, options, tuple(starts), on_progress, watch)
    classes = _classes(problem) if options.thorough else ()
    model = build_model(problem, classes)
    relaxed = relax(model, watch)
    if relaxed is None:
        starts = tuple(starts)
        if best_of(problem, starts) is None:
            return NOTHING
        relaxed = unsolved(model)  # the solver is wrong: a start fits
    incumbent = _round(problem, model, relaxed, starts, options, watch)
    if on_progress:
        on_progress(relaxed.bound_ns, _period(problem, incumbent))
    best, proven = incumbent, relaxed.bound_ns
    ended, is_whole = Ending.GAP, False
    if best is not None and not options.thorough:
        ended = Ending.SEARCH
    elif not relaxed.solved and best is not None:
        ended = watch.over() or Ending.NODES  # what branching would have to solve again and again
    elif classes and not _near(problem, best, proven, options.gap):
        best, proven, ended, is_whole = _count(model, relaxed, best, options, watch, on_progress)
    if is_whole or (
        ended == Ending.GAP and not classes and not _near(problem, best, proven, options.gap)
    ):
        best, proven, ended = _branch(model, best, options, watch, proven, on_progress)
    period = _period(problem, best)
    return Solution(
        placement=best,
        period_ns=period,
        bound_ns=min(proven, period),
        relaxation_ns=min(relaxed.bound_ns, period),
        ended=ended,
        duals=relaxed.duals,
    )


def _solve_coarse(
    problem: Problem,
    options: SolveOptions,
    starts: tuple[Placement, ...],
    on_progress: Progress | None,
    watch: SearchWatch,
) -> Solution:
    """As `solve`, with runs of tasks as one. The bound is that of times alone."""
    coarse = coarsen(problem)
    bound = spread_bound(problem)
    trials, solved = list(starts), NOTHING
    if len(coarse.problem.tasks) <= MOST_TASKS:
        solved = solve(
            coarse.problem,
            replace(options, seconds=watch.seconds_left()),
            [coarse.shrink(placement) for placement in starts],
            on_progress,
            should_stop=watch.should_stop,
        )
    if solved.placement is not None:
        trials.insert(0, coarse.expand(solved.placement))
    best = best_of(problem, trials)
    if best is not None and not watch.over():
        finer = improve(problem, best, POWERS[1:], max_sweeps=_COARSE_SWEEPS)
        best = best_of(problem, (best, finer))
    period = _period(problem, best)
    near = best is not None and _near(problem, best, bound, options.gap)
    return Solution(
        placement=best,
        period_ns=period,
        bound_ns=min(bound, period),
        relaxation_ns=min(bound, period),
        ended=Ending.GAP if near else watch.over() or Ending.SEARCH,
        duals=solved.duals,
    )


def lower_bound(problem: Problem, watch: SearchWatch = ENDLESS) -> float:
    """The period of the relaxation: no plan is faster, however it shares requests."""
    if len(problem.tasks) > MOST_TASKS:
        return spread_bound(problem)
    relaxed = relax(build_model(problem), watch)
    return INFINITY if relaxed is None else relaxed.bound_ns


def write_lp(problem: Problem, path: str) -> None:
    """Write the model as a file that any solver reads; the ending chooses `.lp` or `.mps`."""
    make_solver(build_model(problem), integer=True, named=True).writeModel(path)


def _period(problem: Problem, placement: Placement | None) -> float:
    return INFINITY if placement is None else measure(problem, placement).period_ns


def _near(problem: Problem, placement: Placement | None, bound: float, gap: float) -> bool:
    return _period(problem, placement) <= bound * (1 + gap)


def _classes(problem: Problem) -> tuple[int, ...]:
    """Classes of tasks, by times or where those vary by tensors; none if too little is alike."""
    count = len(problem.tasks)
    if count >= _FEW_TASKS:
        for by_time, rounds in ((True, 1), (False, 2)):
            classes = classes_of(problem, rounds, by_time=by_time)
            if max(classes) + 1 <= _REPEATED * count:
                return classes
    return ()


def _round(
    problem: Problem,
    model: IntegerModel,
    relaxed: Relaxation,
    starts: Iterable[Placement],
    options: SolveOptions,
    watch: SearchWatch,
) -> Placement | None:
    """The best placement from thresholds of the relaxation, splices and local search."""
    bound, gap = relaxed.bound_ns, options.gap
    rounded = _patterns(problem, model.shares(relaxed.values))
    index = TaskIndex(problem)
    patterns = splice_all(problem, [*rounded, *starts], most=16, index=index)
    ranked = sorted(patterns, key=lambda placement: order_key(problem, placement))
    best = best_of(problem, ranked, index)
    for start in ranked[:4]:
        improved = improve(problem, start, index=index)
        best = best_of(problem, filter(None, (best, improved)), index)
        if _near(problem, best, bound, gap) or watch.over():
            return best
    if not options.thorough:
        return best
    if best is not None and _near(problem, best, bound, _NEAR - 1):
        runs = _run_patterns(problem, rounded)
        prices = relaxed.prices(problem)
        best = balance(problem, best, prices, runs, bound * (1 + gap), watch=watch)
    tasks = len(problem.tasks)
    if best is not None and not model.counts and _SHAKEN[0] <= tasks <= _SHAKEN[1]:
        kicks = min(200, _KICKS_TIMES_TASKS // (tasks * max(1, len(problem.devices) - 2) ** 2))
        best = shake(problem, best, patterns, kicks=kicks, enough=bound * (1 + gap), watch=watch)
    return best


def _run_patterns(problem: Problem, patterns: Sequence[Placement]) -> list[Placement]:
    """Where runs of tasks may go: as the relaxation has them, and all to one device."""
    alone = [(device,) * len(problem.tasks) for device in range(len(problem.devices))]
    return list(dict.fromkeys([*patterns, *alone]))


def _count(
    model: IntegerModel,
    relaxed: Relaxation,
    incumbent: Placement | None,
    options: SolveOptions,
    watch: SearchWatch,
    on_progress: Progress | None,
) -> tuple[Placement | None, float, Ending, bool]:
    """Branch on counts: placement, proven bound, how it ended, whether branching must go on."""
    problem = model.problem
    prices = relaxed.prices(problem)

    def rounder(node: Relaxation, best: Placement | None) -> Placement | None:
        return _quick_round(problem, model, node, prices, best, options.gap, watch)

    most = _WORK if options.max_nodes is None else options.max_nodes * _WORK_PER_NODE
    branched = branch_on_counts(
        model,
        incumbent,
        rounder,
        gap=options.gap,
        most_work=most,
        watch=watch,
        on_progress=on_progress,
    )
    bound = max(branched.bound_ns, relaxed.bound_ns)
    return branched.placement, bound, branched.ended, branched.is_whole


def _quick_round(
    problem: Problem,
    model: IntegerModel,
    relaxed: Relaxation,
    prices: NDArray[np.float64],
    best: Placement | None,
    gap: float,
    watch: SearchWatch,
) -> Placement | None:
    """As `_round`, from a node of the tree, with less effort."""
    rounded = _patterns(problem, model.shares(relaxed.values))
    enough = relaxed.bound_ns * (1 + gap / 2)
    index = TaskIndex(problem)
    for start in sorted(rounded, key=lambda placement: order_key(problem, placement))[:2]:
        trial = improve(problem, start, powers=(400.0, 3000.0), max_sweeps=8, index=index)
        if _near(problem, trial, relaxed.bound_ns, _NEAR - 1):
            runs = _run_patterns(problem, rounded)
            trial = balance(problem, trial, prices, runs, enough, watch=watch)
        best = best_of(problem, filter(None, (best, trial)), index)
    return best


def _patterns(problem: Problem, shares: NDArray[np.float64]) -> list[Placement]:
    """Placements near the relaxation: its largest shares, and thresholds between them."""
    allowed = [task.allowed() for task in problem.tasks]
    patterns: list[Placement] = []
    for threshold in _THRESHOLDS:
        pattern = []
        for row, options in zip(shares, allowed, strict=True):
            ordered = sorted(options, key=lambda device: (-row[device], device))
            first = options[0]
            choose_first = row[first] >= threshold or len(ordered) == 1
            pattern.append(first if choose_first else next(d for d in ordered if d != first))
        patterns.append(tuple(pattern))
    largest = tuple(
        max(options, key=lambda device: (row[device], -device))
        for row, options in zip(shares, allowed, strict=True)
    )
    return [largest, *patterns]


def _branch(
    model: IntegerModel,
    incumbent: Placement | None,
    options: SolveOptions,
    watch: SearchWatch,
    bound: float,
    on_progress: Progress | None,
) -> tuple[Placement | None, float, Ending]:
    """Branch and bound from an incumbent: placement, proven bound, how it ended."""
    import highspy

    solver = make_solver(model, integer=True)
    solver.setOptionValue("mip_rel_gap", options.gap)
    solver.setOptionValue("mip_abs_gap", 0.0)
    nodes = options.max_nodes
    if nodes is None:
        nodes = max(1, _NODES_TIMES_COLUMNS // len(model.columns))
    solver.setOptionValue("mip_max_nodes", nodes)
    solver.setOptionValue("random_seed", options.seed)
    if incumbent is not None:
        columns, values = model.encode(incumbent)
        solver.setSolution(len(columns), columns, values)
    run_solver(solver, watch, integer=True, on_event=_reporter(model, on_progress))
    info = solver.getInfo()
    status = solver.getModelStatus()
    proven = max(
        bound, info.mip_dual_bound * model.scale if np.isfinite(info.mip_dual_bound) else 0
    )
    best = incumbent
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        shares = model.shares(np.array(solver.getSolution().col_value))
        decoded = _decode(model.problem, shares)
        best = best_of(
            model.problem, filter(None, (incumbent, decoded, improve(model.problem, decoded)))
        )
    if status == highspy.HighsModelStatus.kInfeasible and incumbent is None:
        return None, INFINITY, Ending.GAP
    endings: dict[object, Ending] = {
        highspy.HighsModelStatus.kOptimal: Ending.GAP,
        highspy.HighsModelStatus.kTimeLimit: Ending.CLOCK,
        highspy.HighsModelStatus.kInterrupt: watch.over() or Ending.INTERRUPTED,
    }
    return best, proven, endings.get(status, Ending.NODES)


def _reporter(model: IntegerModel, on_progress: Progress | None) -> Listener | None:
    if on_progress is None:
        return None

    def hear(event: SolverEvent) -> None:
        out = event.data_out
        on_progress(out.mip_dual_bound * model.scale, out.mip_primal_bound * model.scale)

    return hear


def _decode(problem: Problem, shares: NDArray[np.float64]) -> Placement:
    return tuple(
        max(task.allowed(), key=lambda device: (shares[index, device], -device))
        for index, task in enumerate(problem.tasks)
    )


def order_key(problem: Problem, placement: Placement) -> tuple[bool, float]:
    """The key by which placements are in order: those that fit first, then by the period."""
    measured = measure(problem, placement)
    return not measured.fits, measured.period_ns
