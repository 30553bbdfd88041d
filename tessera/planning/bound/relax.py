"""HiGHS with a model in it, its relaxation, and a bound that does not hang on tolerances.

In: an `IntegerModel`. Out: a `Relaxation`: values, bound, prices of the resources. Source: highspy
1.15. One thread, fixed seed, silent. No run is without a limit: steps are counted, so that the same
input gives the same answer, and who watches is asked between steps. What was not solved within them
has the bound of `bound.bounds`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tessera.planning.bound.bounds import spread_bound
from tessera.planning.bound.highs import Highs, Listener, SolverEvent
from tessera.planning.bound.model import PERIOD, IntegerModel
from tessera.planning.problem.limits import ENDLESS, SearchWatch
from tessera.planning.problem.problem import Problem

_LARGE_ROWS = 9000  # above this the interior point method beats the simplex method
_PRICED = ("device", "pipe", "shared", "room")
_SIMPLEX_STEPS = 20_000  # at least; some seconds
_SIMPLEX_STEPS_PER_ROW = 5  # where a row needs about one
_INTERIOR_STEPS = 200  # where some dozen are usual
_MOST_STEPS = (1 << 31) - 1
_LONGEST_S = 600.0  # of branch and bound, whose relaxations are not counted: a last resort

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """The optimum without integrality. `duals` are those of loads and rooms, by row name.

    Without `solved`, values are none in particular.
    """

    values: Array
    bound_ns: float
    duals: tuple[tuple[str, float], ...]
    solved: bool = True

    def prices(self, problem: Problem) -> Array:
        """What a nanosecond of each resource is worth, in the order of `problem.resources()`."""
        known = dict(self.duals)
        names = [f"device[{name}]" for name in problem.devices]
        names += [f"pipe[{pipe.name}]" for pipe in problem.pipes]
        names += [f"shared[{load.name}]" for load in problem.shared]
        return np.array([max(0.0, -known.get(name, 0.0)) for name in names])


def make_solver(model: IntegerModel, integer: bool, named: bool = False) -> Highs:
    """A HiGHS instance with the model in it."""
    import highspy

    solver = cast(Callable[[], Highs], highspy.Highs)()
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


def run_solver(
    solver: Highs,
    watch: SearchWatch = ENDLESS,
    *,
    integer: bool = False,
    on_event: Listener | None = None,
) -> None:
    """Run HiGHS until it is done or the watch is over.

    HiGHS asks in between whether to go on, and signals are seen then. Of what they raise the
    interior point method keeps nothing, so it is kept here and raised at the end.
    """
    seconds = watch.seconds_left()
    if integer or seconds is not None:
        # For relaxations HiGHS counts from the first run of a solver on.
        left = _LONGEST_S if seconds is None else seconds
        solver.setOptionValue("time_limit", solver.getRunTime() + left)
    raised: list[BaseException] = []

    def ask(event: SolverEvent) -> None:
        try:
            if on_event is not None:
                on_event(event)
            if watch.over():
                event.interrupt()
        except BaseException as problem:
            raised.append(problem)
            event.interrupt()

    asks = (
        [solver.cbMipInterrupt] if integer else [solver.cbSimplexInterrupt, solver.cbIpmInterrupt]
    )
    for asked in asks:
        asked.subscribe(ask)
    try:
        solver.run()
    finally:
        for asked in asks:
            asked.unsubscribe(ask)
    if raised:
        raise raised[0]


def relax(model: IntegerModel, watch: SearchWatch = ENDLESS) -> Relaxation | None:
    """The relaxation of a model; None if it is infeasible."""
    import highspy

    solver = make_solver(model, integer=False)
    limit_steps(solver, max(_SIMPLEX_STEPS, _SIMPLEX_STEPS_PER_ROW * len(model.rows)))
    solver.setOptionValue("ipm_iteration_limit", _INTERIOR_STEPS)
    solver.setOptionValue("run_crossover", "off")
    methods = ("simplex", "ipm")
    for method in reversed(methods) if len(model.rows) > _LARGE_ROWS else methods:
        solver.setOptionValue("solver", method)
        run_solver(solver, watch)
        status = solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return None
        if status == highspy.HighsModelStatus.kOptimal:
            return read_relaxation(model, solver, model.row_lower, model.row_upper)
        if watch.over():
            break
        solver.clearSolver()
    return unsolved(model)


def limit_steps(solver: Highs, steps: int) -> None:
    """At most so many steps of the simplex method in a run."""
    solver.setOptionValue("simplex_iteration_limit", min(steps, _MOST_STEPS))


def unsolved(model: IntegerModel) -> Relaxation:
    """What is known without the solver."""
    values = np.zeros(len(model.columns))
    return Relaxation(values=values, bound_ns=spread_bound(model.problem), duals=(), solved=False)


def read_relaxation(
    model: IntegerModel, solver: Highs, row_lower: Array, row_upper: Array
) -> Relaxation:
    """What a solver has found for the model with these bounds of its rows."""
    solution = solver.getSolution()
    values = np.array(solution.col_value)
    row_dual = np.array(solution.row_dual)
    bound = dual_bound(model, row_dual, row_lower, row_upper, float(values[PERIOD]))
    duals = tuple(
        (name, float(dual))
        for name, dual in zip(model.rows, row_dual, strict=True)
        if abs(dual) > 1e-9 and name.startswith(_PRICED)
    )
    return Relaxation(values=values, bound_ns=bound * model.scale, duals=duals)


def dual_bound(
    model: IntegerModel, row_dual: Array, row_lower: Array, row_upper: Array, period: float
) -> float:
    """A lower bound from the duals alone, whatever the solver's tolerances.

    With any multipliers w, negative ones for upper and positive ones for lower bounds of rows:
    min c x >= w b + sum of min over the columns' bounds of (c - w A). The column `T` has no upper
    bound, so the multipliers are scaled until its reduced cost is not negative.
    """
    multipliers = np.where(np.isinf(row_lower), np.minimum(row_dual, 0.0), row_dual)
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
    below = np.where(np.isinf(row_lower), 0.0, row_lower)
    sides = np.where(multipliers < 0, row_upper, below)
    bound = float(multipliers @ sides) * factor + float(columns.sum())
    return float(max(0.0, min(bound, period)))
