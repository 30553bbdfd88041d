"""Run HiGHS on a model: the relaxation for a bound and a pattern, then the integer program.

In: a `Problem`. Out: a `Solution`: placement, period, proven bound, how it ended. The order is
bound, rounding, splicing, local search, then branch and bound from the best placement so far. So
the answer is never worse than a start that was handed in. Same input, same answer: one thread, a
fixed seed, and limits that count nodes; a clock limit, if given, is reported when it strikes.

Source: highspy 1.15. A start that HiGHS finds infeasible is dropped without a word, so what comes
back is compared with what went in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessera.passes.partition_model import PERIOD, Model, build_model
from tessera.passes.partition_problem import INFINITY, Placement, Problem, measure
from tessera.passes.partition_search import best_of, improve, shake, splice_all

_LARGE_ROWS = 6000  # above this the interior point method beats the simplex method
_NODES_TIMES_COLUMNS = 20_000  # so that branch and bound takes a few seconds at most
_SHAKEN = (40, 600)  # tasks; fewer are quick to solve, more gain nothing by it
_KICKS_TIMES_TASKS = 30_000
_THRESHOLDS = (0.5, 0.25, 0.75, 0.05, 0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveOptions:
    """Limits. `gap` is a fraction; the search stops when the plan is proven to be that near.

    `max_nodes` of branch and bound: None is as many as suit the size of the model.
    """

    gap: float = 0.001
    max_nodes: int | None = None
    seconds: float | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """A placement and how good it is proven to be. No placement: none fits.

    `relaxation_ns` bounds every plan, also one that shares requests among placements;
    `bound_ns` bounds plans with one placement. `ended` is `gap`, `nodes` or `clock`.
    """

    placement: Placement | None
    period_ns: float
    bound_ns: float
    relaxation_ns: float
    ended: str
    duals: tuple[tuple[str, float], ...] = ()

    @property
    def gap(self) -> float:
        """How far above the bound the period is, as a fraction."""
        if self.placement is None or self.period_ns <= 0:
            return 0.0
        return max(0.0, (self.period_ns - self.bound_ns) / self.period_ns)


Progress = Callable[[float, float], None]


def solve(
    problem: Problem,
    options: SolveOptions | None = None,
    starts: Iterable[Placement] = (),
    on_progress: Progress | None = None,
) -> Solution:
    """The best placement found for throughput, with a proven bound."""
    options = options or SolveOptions()
    started = time.perf_counter()
    model = build_model(problem)
    relaxed = _relax(model)
    if relaxed is None:
        return Solution(
            placement=None, period_ns=INFINITY, bound_ns=INFINITY, relaxation_ns=INFINITY,
            ended="gap",
        )  # fmt: skip
    values, bound, duals = relaxed
    incumbent = _round(problem, model.shares(values), starts, bound, options.gap)
    period = INFINITY if incumbent is None else measure(problem, incumbent).period_ns
    if on_progress:
        on_progress(bound, period)
    best, proven, ended = incumbent, bound, "gap"
    if incumbent is None or period > bound * (1 + options.gap):
        left = None
        if options.seconds is not None:
            left = max(0.1, options.seconds - (time.perf_counter() - started))
        best, proven, ended = _branch(model, incumbent, options, left, bound, on_progress)
    period = INFINITY if best is None else measure(problem, best).period_ns
    return Solution(
        placement=best, period_ns=period, bound_ns=min(proven, period),
        relaxation_ns=min(bound, period), ended=ended, duals=duals,
    )  # fmt: skip


def lower_bound(problem: Problem) -> float:
    """The period of the relaxation: no plan is faster, however it shares requests."""
    relaxed = _relax(build_model(problem))
    return INFINITY if relaxed is None else relaxed[1]


def write_lp(problem: Problem, path: str) -> None:
    """Write the model as a file that any solver reads; the ending chooses `.lp` or `.mps`."""
    make_solver(build_model(problem), integer=True, named=True).writeModel(path)


def make_solver(model: Model, integer: bool, named: bool = False) -> Any:
    """A HiGHS instance with the model in it: one thread, silent."""
    import highspy

    make: Any = highspy.Highs
    solver = make()
    for name, value in (("output_flag", False), ("threads", 1), ("random_seed", 0)):
        solver.setOptionValue(name, value)
    lp = highspy.HighsLp()
    lp.num_col_ = len(model.columns)
    lp.num_row_ = len(model.rows)
    cost = np.zeros(len(model.columns))
    cost[PERIOD] = 1.0
    lp.col_cost_ = cost
    lp.col_lower_ = model.lower
    lp.col_upper_ = model.upper
    lp.row_lower_ = model.row_lower
    lp.row_upper_ = model.row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = model.start
    lp.a_matrix_.index_ = model.index
    lp.a_matrix_.value_ = model.value
    if integer:
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        lp.integrality_ = [kinds[int(flag)] for flag in model.integer]
    if named:
        lp.col_names_ = [_plain(name) for name in model.columns]
        lp.row_names_ = [f"r{n}_{_plain(name)}" for n, name in enumerate(model.rows)]
    solver.passModel(lp)
    return solver


def _plain(name: str) -> str:
    """A name that the LP format allows."""
    return "".join(c if c.isalnum() or c in "_.()" else "_" for c in name)


def _relax(
    model: Model,
) -> tuple[NDArray[np.float64], float, tuple[tuple[str, float], ...]] | None:
    """Values, bound in nanoseconds and the duals of loads and rooms; None if infeasible."""
    import highspy

    solver = make_solver(model, integer=False)
    if len(model.rows) > _LARGE_ROWS:
        solver.setOptionValue("solver", "ipm")
        solver.setOptionValue("run_crossover", "off")
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return None
    if status != highspy.HighsModelStatus.kOptimal:
        solver.setOptionValue("solver", "simplex")
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
    solution = solver.getSolution()
    values = np.array(solution.col_value)
    bound = _dual_bound(model, np.array(solution.row_dual), values[PERIOD]) * model.scale
    duals = tuple(
        (name, float(dual))
        for name, dual in zip(model.rows, solution.row_dual, strict=True)
        if abs(dual) > 1e-9 and name.startswith(("device", "pipe", "shared", "room"))
    )
    return values, bound, duals


def _dual_bound(model: Model, row_dual: NDArray[np.float64], period: float) -> float:
    """A lower bound from the duals alone, whatever the solver's tolerances.

    With multipliers w <= 0 of `A x <= b`: min c x >= w b + sum of min over the columns' bounds of
    (c - w A). The column `T` has no upper bound, so the multipliers are scaled until its reduced
    cost is not negative.
    """
    multipliers = np.minimum(row_dual, 0.0)
    rows = np.repeat(np.arange(len(model.rows)), np.diff(model.start))
    reduced = np.zeros(len(model.columns))
    np.subtract.at(reduced, model.index, multipliers[rows] * model.value)
    total = -reduced[PERIOD]
    if total <= 0:
        return 0.0
    # `T` costs one; its own terms must come to at least minus one.
    factor = 1.0 / total
    upper = np.where(np.isinf(model.upper), 0.0, model.upper)
    columns = np.minimum(reduced * factor, 0.0) * upper
    columns[PERIOD] = 0.0
    found = float(multipliers @ model.row_upper) * factor + float(columns.sum())
    return float(max(0.0, min(found, period)))


def _round(
    problem: Problem,
    shares: NDArray[np.float64],
    starts: Iterable[Placement],
    bound: float,
    gap: float,
) -> Placement | None:
    """The best placement from thresholds of the relaxation, splices and local search."""
    patterns = splice_all(problem, [*_patterns(problem, shares), *starts], most=16)
    ranked = sorted(patterns, key=lambda one: _key(problem, one))
    best = best_of(problem, ranked)
    for start in ranked[:4]:
        best = best_of(problem, filter(None, (best, improve(problem, start))))
        if best is not None and measure(problem, best).period_ns <= bound * (1 + gap):
            break
    tasks = len(problem.tasks)
    if best is not None and _SHAKEN[0] <= tasks <= _SHAKEN[1]:
        kicks = min(200, _KICKS_TIMES_TASKS // tasks)
        best = shake(problem, best, patterns, kicks=kicks, enough=bound * (1 + gap))
    return best


def _key(problem: Problem, placement: Placement) -> tuple[bool, float]:
    found = measure(problem, placement)
    return not found.fits, found.period_ns


def _patterns(problem: Problem, shares: NDArray[np.float64]) -> list[Placement]:
    """Placements near the relaxation: its largest shares, and thresholds between them."""
    allowed = [task.allowed() for task in problem.tasks]
    found: list[Placement] = []
    for threshold in _THRESHOLDS:
        pattern = []
        for row, options in zip(shares, allowed, strict=True):
            ordered = sorted(options, key=lambda device: (-row[device], device))
            first = options[0]
            choose_first = row[first] >= threshold or len(ordered) == 1
            pattern.append(first if choose_first else next(d for d in ordered if d != first))
        found.append(tuple(pattern))
    largest = tuple(
        max(options, key=lambda device: (row[device], -device))
        for row, options in zip(shares, allowed, strict=True)
    )
    return [largest, *found]


def _branch(
    model: Model,
    incumbent: Placement | None,
    options: SolveOptions,
    seconds: float | None,
    bound: float,
    on_progress: Progress | None,
) -> tuple[Placement | None, float, str]:
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
    if seconds is not None:
        solver.setOptionValue("time_limit", seconds)
    if incumbent is not None:
        columns, values = model.encode(incumbent)
        solver.setSolution(len(columns), columns, values)
    if on_progress is not None:
        _report(solver, model, on_progress)
    solver.run()
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
        return None, INFINITY, "gap"
    ended = {
        highspy.HighsModelStatus.kOptimal: "gap",
        highspy.HighsModelStatus.kTimeLimit: "clock",
    }.get(status, "nodes")
    return best, proven, ended


def _report(solver: Any, model: Model, on_progress: Progress) -> None:
    def hear(event: Any) -> None:
        out = event.data_out
        on_progress(out.mip_dual_bound * model.scale, out.mip_primal_bound * model.scale)

    solver.cbMipInterrupt.subscribe(hear)


def _decode(problem: Problem, shares: NDArray[np.float64]) -> Placement:
    return tuple(
        max(task.allowed(), key=lambda device: (shares[index, device], -device))
        for index, task in enumerate(problem.tasks)
    )
