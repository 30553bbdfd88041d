"""HiGHS with a model in it, its relaxation, and a bound that does not hang on tolerances.

In: a `Model`. Out: a `Relaxation`: values, bound, prices of the resources. Source: highspy 1.15.
One thread, fixed seed, silent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessera.passes.partition.model import PERIOD, Model
from tessera.passes.partition.problem import Problem

_LARGE_ROWS = 9000  # above this the interior point method beats the simplex method
_PRICED = ("device", "pipe", "shared", "room")

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """The optimum without integrality. `duals` are those of loads and rooms, by row name."""

    values: Array
    bound_ns: float
    duals: tuple[tuple[str, float], ...]

    def prices(self, problem: Problem) -> Array:
        """What a nanosecond of each resource is worth, in the order of `problem.resources()`."""
        known = dict(self.duals)
        names = [f"device[{name}]" for name in problem.devices]
        names += [f"pipe[{pipe.name}]" for pipe in problem.pipes]
        names += [f"shared[{load.name}]" for load in problem.shared]
        return np.array([max(0.0, -known.get(name, 0.0)) for name in names])


def make_solver(model: Model, integer: bool, named: bool = False) -> Any:
    """A HiGHS instance with the model in it."""
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


def relax(model: Model) -> Relaxation | None:
    """The relaxation of a model; None if it is infeasible."""
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
    return read_relaxation(model, solver, model.row_lower, model.row_upper)


def read_relaxation(model: Model, solver: Any, row_lower: Array, row_upper: Array) -> Relaxation:
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
    model: Model, row_dual: Array, row_lower: Array, row_upper: Array, period: float
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
    found = float(multipliers @ sides) * factor + float(columns.sum())
    return float(max(0.0, min(found, period)))
