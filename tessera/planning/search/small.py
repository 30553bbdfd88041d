"""Enumeration of small problems: the best placement with all floors of the period.

In: a `Problem` and an objective. Out: a placement, or None if there are too many to look at.
The integer program knows loads and memory; the time of a request over the slots and a cycle over
the lanes come on top, and the best under those can be another placement. Loads, memory and money of
all placements are computed at once; times are looked at one by one, cheapest first, until no other
can be better.
"""

from __future__ import annotations

from math import prod
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tessera.ir.objectives import HOUR_NS, Objective, PlanFigures
from tessera.planning.problem.problem import INFINITY, Placement, Problem
from tessera.planning.search.candidates import one_placement
from tessera.planning.search.latency import all_placements

_MOST_PLACEMENTS = 1 << 16
_MOST_LOOKS = 4096

Array = NDArray[np.float64]
Grid = NDArray[np.int64]


def is_small(problem: Problem) -> bool:
    """Whether all placements can be looked at."""
    return prod(len(task.allowed()) for task in problem.tasks) <= _MOST_PLACEMENTS


def best_small(problem: Problem, objective: Objective) -> Placement | None:
    """The placement with the least value of an objective; None if that is not known here."""
    if objective.is_of_one_request or (problem.slots is None and problem.lanes is None):
        return None  # `solve_latency` and `solve` are exact for these
    grid = all_placements([task.allowed() for task in problem.tasks], _MOST_PLACEMENTS)
    if grid is None:
        return None
    periods = _periods(problem, grid)
    money = periods * _prices(problem, grid) / HOUR_NS
    # An objective is arithmetic on figures, so it takes those of all placements at once.
    figures = PlanFigures(period_ns=cast("float", periods), usd_per_request=cast("float", money))
    least = cast("Array", objective.value(figures))
    best, value = None, INFINITY
    for look, row in enumerate(np.argsort(least, kind="stable")):
        if least[row] >= value or not least[row] < INFINITY:
            break
        if look == _MOST_LOOKS:
            return None
        placement = tuple(int(device) for device in grid[row])
        reached = one_placement(problem, "", placement).value(objective)
        if reached < value:
            best, value = placement, reached
    return best


def _periods(problem: Problem, grid: Grid) -> Array:
    """The largest load of every placement; infinite where it does not fit or is not connected."""
    rows = len(grid)
    loads = np.zeros((len(problem.resources()), rows))
    first_pipe = len(problem.devices)
    first_shared = first_pipe + len(problem.pipes)
    at = [grid == device for device in range(len(problem.devices))]
    for index, task in enumerate(problem.tasks):
        for device in task.allowed():
            loads[device] += at[device][:, index] * (task.ns[device] or 0.0) * task.rate
        for number, load in enumerate(problem.shared):
            for device in load.devices:
                loads[first_shared + number] += at[device][:, index] * load.ns[index]
    wires = {(wire.source, wire.target): wire for wire in problem.wires}
    for tensor in problem.tensors:
        for target in range(len(problem.devices)):
            wanted = at[target][:, list(tensor.consumers)].any(axis=1)
            for source in range(len(problem.devices)):
                goes = wanted & at[source][:, tensor.producer]
                if source == target or not goes.any():
                    continue
                wire = wires.get((source, target))
                if wire is None:
                    loads[source][goes] = INFINITY
                    continue
                for end in (source, target):
                    loads[end] += goes * problem.tax_ns(tensor, wire)
                for number, pipe in enumerate(problem.pipes):
                    if (source, target) in pipe.pairs:
                        cost = tensor.bytes * tensor.rate * pipe.ns_per_byte
                        loads[first_pipe + number] += goes * cost
    periods = np.asarray(loads.max(axis=0))
    for room in problem.rooms:
        used = np.zeros(rows)
        for resident in problem.residents:
            for device in room.devices:
                used += at[device][:, list(resident.users)].any(axis=1) * resident.bytes
        periods[used > room.bytes] = INFINITY
    return periods


def _prices(problem: Problem, grid: Grid) -> Array:
    """Dollars per hour of the cards that each placement uses."""
    total = np.zeros(len(grid))
    for room in problem.rooms:
        used = np.isin(grid, room.devices).any(axis=1)
        total += used * room.usd_per_hour
    return total
