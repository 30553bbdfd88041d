"""Why no placement fits, and the smallest change that would let one fit.

In: a `Problem` with no feasible placement. Out: an `Obstacle`. There are three causes: a task that
no device can run; dependent tasks on devices that are not connected; and memory. For memory, an
integer program per card finds the smallest additional room.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from tessera.planning.bound.model import PERIOD, build_model
from tessera.planning.bound.relax import make_solver, run_solver
from tessera.planning.problem.problem import Problem

_NODES = 500


class ObstacleKind(StrEnum):
    """The cause for which no placement is possible."""

    TASK = "task"  # no device can run it
    MEMORY = "memory"
    LINKS = "links"  # steps that depend on each other run on devices that no link joins


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """The cause. `extra_bytes` per room: this much more memory in that room alone suffices."""

    kind: ObstacleKind
    tasks: tuple[str, ...] = ()
    need_bytes: int = 0
    have_bytes: int = 0
    extra_bytes: tuple[tuple[str, int], ...] = ()


def find_obstacle(problem: Problem) -> Obstacle:
    """The first cause for which no placement is possible."""
    stuck = tuple(task.name for task in problem.tasks if not task.allowed())
    if stuck:
        return Obstacle(kind=ObstacleKind.TASK, tasks=stuck)
    roomy = replace(problem, rooms=())
    if _least_extra(roomy, None) is None:
        return Obstacle(kind=ObstacleKind.LINKS)
    extra = []
    for index, room in enumerate(problem.rooms):
        needed = _least_extra(problem, index)
        if needed is not None:
            extra.append((room.name, needed))
    return Obstacle(
        kind=ObstacleKind.MEMORY,
        need_bytes=sum(resident.bytes for resident in problem.residents),
        have_bytes=sum(room.bytes for room in problem.rooms),
        extra_bytes=tuple(sorted(extra, key=lambda pair: pair[1])),
    )


def _least_extra(problem: Problem, room: int | None) -> int | None:
    """The fewest additional bytes in a room with which a placement fits; None if none suffice."""
    import highspy

    model = build_model(problem)
    name = None if room is None else f"room[{problem.rooms[room].name}]"
    if name is not None and name not in model.rows:
        return None
    solver = make_solver(model, integer=True)
    solver.changeColCost(PERIOD, 0.0)
    if room is not None and name is not None:
        capacity = max(problem.rooms[room].bytes, 1)
        row = np.array([model.rows.index(name)], dtype=np.int32)
        solver.addCol(1.0, 0.0, highspy.kHighsInf, 1, row, np.array([-1.0]))
        scale = capacity
    solver.setOptionValue("mip_max_nodes", _NODES)
    run_solver(solver, integer=True)
    if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return None
    if room is None:
        return 0
    return int(np.ceil(solver.getSolution().col_value[-1] * scale))
