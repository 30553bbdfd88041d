"""Bounds on the period and on the time of one request: without a solver, and by a relaxation.

In: a `Problem`, or its `IntegerModel`. Out: nanoseconds, or a `Relaxation`: values, bound, prices
of the resources.

Without a solver, the bound on the period counts only times, as if nothing had to be moved or
stored. With any weights w of the devices that add up to one, no plan is faster than the sum over
tasks of the least w[g] * time[k, g]: a period is at least the weighted sum of the devices' loads.
That holds for plans that share requests among placements, too. The weights are moved towards busy
devices for some rounds; for two devices the best are found exactly. The same bound holds for the
time of a request, since a device runs its tasks one by one. A request also takes at least as long
as any chain of tasks with the transfers between them: on each device, a task starts only when the
last of its inputs has arrived there by the fastest way.

The relaxation is solved by HiGHS (highspy 1.15): one thread, fixed seed, silent. Every run has a
limit: steps are counted, so that the same input gives the same answer, and the watch is asked
between steps. A model that is not solved within the limit has the bound without a solver, and no
bound depends on tolerances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tessera.planning.bound.highs import Highs, Listener, SolverEvent
from tessera.planning.bound.model import PERIOD, IntegerModel
from tessera.planning.problem.limits import ENDLESS, SearchWatch
from tessera.planning.problem.problem import INFINITY, Problem, Tensor

_ROUNDS = 60
_HALVINGS = 60


def spread_bound(problem: Problem) -> float:
    """A lower bound of the period of every plan."""
    if not problem.tasks:
        return 0.0
    times = np.array(
        [[INFINITY if ns is None else ns * task.rate for ns in task.ns] for task in problem.tasks]
    )
    times = times[:, np.isfinite(times).any(axis=0)]
    if not np.isfinite(times).any(axis=1).all():
        return INFINITY
    if times.shape[1] == 2:
        return _of_two(times)
    return _of_many(times)


def request_bound(problem: Problem) -> float:
    """A lower bound of the time of a request, for a problem with one trace."""
    count = len(problem.devices)
    per_byte, waits = np.zeros((count, count)), np.full((count, count), INFINITY)
    np.fill_diagonal(waits, 0.0)
    for wire in problem.wires:
        per_byte[wire.source, wire.target] = wire.ns_per_byte
        waits[wire.source, wire.target] = wire.latency_ns
    apart = 1.0 - np.eye(count)
    reads: list[list[Tensor]] = [[] for _ in problem.tasks]
    for tensor in problem.tensors:
        for reader in tensor.consumers:
            reads[reader].append(tensor)
    ends = np.zeros((len(problem.tasks), count))
    longest = 0.0
    for index, task in enumerate(problem.tasks):
        start = np.zeros(count)
        for tensor in reads[index]:
            ways = tensor.bytes * per_byte + waits + problem.ends_ns(tensor) * apart
            start = np.maximum(start, (ends[tensor.producer][:, None] + ways).min(axis=0))
        ends[index] = start + [INFINITY if ns is None else ns for ns in task.ns]
        longest = max(longest, float(ends[index].min()))
    rate = problem.tasks[0].rate if problem.tasks else 1.0
    return max(longest, spread_bound(problem) / rate if rate > 0 else 0.0)


def _of_two(times: Array) -> float:
    """The bound at the weights that make both devices equally busy, by bisection."""
    best, low, high = 0.0, 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        value, loads = _weighed(times, np.array([middle, 1 - middle]))
        best = max(best, value)
        if loads[0] > loads[1]:
            low = middle
        else:
            high = middle
    return best


def _of_many(times: Array) -> float:
    weights = np.full(times.shape[1], 1 / times.shape[1])
    best = 0.0
    for number in range(_ROUNDS):
        value, loads = _weighed(times, weights)
        best = max(best, value)
        largest = float(loads.max())
        if largest <= 0:
            break
        weights = weights * np.exp(loads / largest / (1 + number / 4))
        weights /= weights.sum()
    return best


def _weighed(times: Array, weights: Array) -> tuple[float, Array]:
    """The bound for these weights, and the loads if every task is on its cheapest device."""
    with np.errstate(invalid="ignore"):
        weighed = np.where(np.isinf(times), INFINITY, times * weights)
    chosen = weighed.argmin(axis=1)
    loads = np.zeros(times.shape[1])
    np.add.at(loads, chosen, times[np.arange(len(times)), chosen])
    return float(weighed.min(axis=1).sum()), loads


_LARGE_ROWS = 9000  # above this the interior point method beats the simplex method
_PRICED = ("device", "pipe", "shared", "room")
_SIMPLEX_STEPS = 20_000  # minimum limit; a few seconds
_SIMPLEX_STEPS_PER_ROW = 5  # a row usually needs about one
_INTERIOR_STEPS = 200  # a few dozen are usual
_MOST_STEPS = (1 << 31) - 1
_LONGEST_S = 600.0  # limit of branch and bound, whose relaxations are not counted: a last resort

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """The optimum without integrality. `duals` are those of loads and rooms, by row name.

    Without `solved`, the values are arbitrary.
    """

    values: Array
    bound_ns: float
    duals: tuple[tuple[str, float], ...]
    solved: bool = True

    def prices(self, problem: Problem) -> Array:
        """The price of a nanosecond of each resource, in the order of `problem.resources()`."""
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

    HiGHS regularly asks whether to continue, and signals are handled then. The interior point
    method drops exceptions that they raise, so these are kept here and raised at the end.
    """
    seconds = watch.seconds_left()
    if integer or seconds is not None:
        # For relaxations, HiGHS counts time from the first run of a solver.
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
    """Limit the steps of the simplex method in a run."""
    solver.setOptionValue("simplex_iteration_limit", min(steps, _MOST_STEPS))


def unsolved(model: IntegerModel) -> Relaxation:
    """The relaxation of a model that the solver did not solve."""
    values = np.zeros(len(model.columns))
    return Relaxation(values=values, bound_ns=spread_bound(model.problem), duals=(), solved=False)


def read_relaxation(
    model: IntegerModel, solver: Highs, row_lower: Array, row_upper: Array
) -> Relaxation:
    """The solver's result for the model with these bounds of its rows."""
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
    """A lower bound from the duals alone, independent of the solver's tolerances.

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
