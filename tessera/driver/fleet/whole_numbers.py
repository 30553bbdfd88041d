"""Small linear programs, some of whose columns are whole numbers, solved to the end.

In: costs, rows and limits. Out: a `LeastCost`: the values of the columns, and a bound that no
values are below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import cast

import numpy as np

from tessera.planning.bound.highs import Highs

_OPTIONS = (
    ("output_flag", False),
    ("threads", 1),
    ("random_seed", 0),
    ("mip_rel_gap", 0.0),
    ("mip_abs_gap", 1e-9),
)


@dataclass(frozen=True, slots=True)
class BoundedRow:
    """A sum of columns, each times its value, and what it is at least and at most."""

    values: dict[int, float]
    least: float = -inf
    most: float = inf


@dataclass(frozen=True, slots=True)
class LeastCost:
    """Values of the columns, from 0 on, and a cost that no values are below."""

    values: tuple[float, ...]
    bound: float


def least_cost(
    costs: Sequence[float],
    rows: Sequence[BoundedRow],
    most: Sequence[float],
    whole: Sequence[bool],
) -> LeastCost | None:
    """The columns of least cost within the rows; None if there are none."""
    import highspy

    solver = cast(Callable[[], Highs], highspy.Highs)()
    for name, value in _OPTIONS:
        solver.setOptionValue(name, value)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(costs), len(rows)
    model.col_cost_ = np.array(costs)
    model.col_lower_, model.col_upper_ = np.zeros(len(costs)), np.array(most, dtype=float)
    model.row_lower_ = np.array([row.least for row in rows])
    model.row_upper_ = np.array([row.most for row in rows])
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.cumsum([0, *(len(row.values) for row in rows)])
    model.a_matrix_.index_ = np.array([n for row in rows for n in row.values], dtype=int)
    model.a_matrix_.value_ = np.array([v for row in rows for v in row.values.values()], dtype=float)
    if any(whole):
        kinds = highspy.HighsVarType
        model.integrality_ = [kinds.kInteger if is_ else kinds.kContinuous for is_ in whole]
    solver.passModel(model)
    solver.run()
    info = solver.getInfo()
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return None
    values = tuple(solver.getSolution().col_value)
    cost = float(np.dot(costs, values))
    return LeastCost(values, min(cost, info.mip_dual_bound) if any(whole) else cost)
