"""Coarsening of large problems: runs of consecutive tasks become one task.

In: a `Problem` of very many tasks. Out: a `Coarse`: the problem in which each run of tasks is one
task, and mappings between the placements of both. A relaxation of a hundred thousand tasks takes
minutes, and neighbours in a trace mostly belong together. The result is a valid placement of the
large problem, though maybe not the best; a bound of the coarse problem does not bound the large
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.planning.problem.problem import Placement, Problem, contract

MOST_TASKS = 20_000  # maximum number of tasks placed one by one
COARSE_TASKS = 5_000


@dataclass(frozen=True, slots=True)
class Coarse:
    """A problem with fewer tasks, and the coarse task of each task of the large problem."""

    problem: Problem
    groups: tuple[int, ...]

    def expand(self, placement: Sequence[int]) -> Placement:
        """The device of each task of the large problem."""
        return tuple(placement[group] for group in self.groups)

    def shrink(self, placement: Sequence[int]) -> Placement:
        """The coarse placement of a large one: the device of the last task of each run."""
        shrunk = [0] * len(self.problem.tasks)
        for group, device in zip(self.groups, placement, strict=True):
            shrunk[group] = device
        return tuple(shrunk)


def coarsen(problem: Problem, most: int = COARSE_TASKS) -> Coarse:
    """Runs of equal length, `most` of them; more if some tasks cannot share a device."""
    length = -(-len(problem.tasks) // max(most, 1))
    groups: list[int] = []
    number, size = -1, 0
    allowed, trace = set[int](), -1
    for task in problem.tasks:
        both = allowed.intersection(task.allowed())
        if not both or task.trace != trace or size == length:
            number, size, trace, both = number + 1, 0, task.trace, set(task.allowed())
        allowed, size = both, size + 1
        groups.append(number)
    return Coarse(contract(problem, tuple(groups)), tuple(groups))
