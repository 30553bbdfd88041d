"""How many slots a plan over very many devices needs, and a bound whatever they are.

In: a `PlanSetting`. Out: an attempt with slots and sequences at which runs of tasks over the
devices are fastest, by an estimate, and the least period with any number of slots. More slots keep
more devices busy, and take memory for the states of their sequences. So a range of numbers has a
bound: the memory of the least of them, the requests under way of the most. Ranges are halved, that
with the least bound first, until it is near the best estimate.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from math import isqrt

from tessera.planning.bound.class_model import class_bound
from tessera.planning.given.setting import Attempt, PlanSetting
from tessera.planning.problem.plan_problem import Planning
from tessera.planning.problem.problem import INFINITY, Problem
from tessera.planning.promise.trial import MOST_SLOTS
from tessera.planning.search.candidates import one_placement
from tessera.planning.search.many import fits_one_device, is_large, runs_of

Build = Callable[[int], Planning]
_NEAR = 1.02
_MOST_PROBLEMS = 12
_STEPS = (3, 1)  # to and fro from the best, at the end
_AS_GOOD = 1.003
_SPARE = 8
"""A part of the slots to spare: requests wait for each other a little, which estimates leave out.

How many slots a plan has is found by simulation; these have to find room in memory.
"""


class _Ranges:
    """Ranges of slots, each with its bound; the problem of the least slots of each."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self.heap: list[tuple[float, int, int]] = []
        self.problems: dict[int, Planning] = {}
        self.best: tuple[float, int] = (INFINITY, 1)
        self.estimates: dict[int, float] = {}

    def add(self, first: int, last: int) -> None:
        """A range with its bound."""
        self.try_slots(first)
        bound = class_bound(self.problems[first].problem, last)
        if bound < INFINITY:
            heapq.heappush(self.heap, (bound, first, last))

    def try_slots(self, slots: int) -> None:
        """What a number of slots is worth."""
        if slots in self.problems:
            return
        self.problems[slots] = self._build(slots)
        problem = self.problems[slots].problem
        loads = class_bound(problem, None)
        if loads < INFINITY:
            self.estimates[slots] = _estimate(problem, loads)
            self.best = min(self.best, (self.estimates[slots], slots))

    def is_near(self) -> bool:
        """Whether the best is near the bound."""
        return not self.heap or self.best[0] <= _NEAR * self.heap[0][0]


def _estimate(problem: Problem, least: float) -> float:
    return min(
        (one_placement(problem, "", placement).period_ns for placement in runs_of(problem, least)),
        default=INFINITY,
    )


def attempt_for_many(setting: PlanSetting, build: Build) -> Attempt | None:
    """The attempt to begin with; None where one device holds all, or a search is quick."""
    lanes = setting.options.sequences
    ranges = _Ranges(build)
    problem = build(1).problem
    if not is_large(problem) or fits_one_device(problem):
        return None
    ranges.add(1, MOST_SLOTS)
    while ranges.heap and len(ranges.problems) < _MOST_PROBLEMS:
        _, first, last = ranges.heap[0]
        if first == last or ranges.is_near():
            break
        heapq.heappop(ranges.heap)
        middle = max(first + 1, isqrt(first * last))
        ranges.add(first, middle - 1)
        ranges.add(middle, last)
    for step in () if ranges.is_near() else _STEPS:
        for slots in (ranges.best[1] - step, ranges.best[1] + step):
            ranges.try_slots(max(1, min(slots, MOST_SLOTS)))
    period, slots = ranges.best
    if not ranges.heap or period == INFINITY:
        return None
    more = min(MOST_SLOTS, slots + max(1, slots // _SPARE))
    ranges.try_slots(more)
    if ranges.estimates.get(more, INFINITY) <= _AS_GOOD * period:
        slots = more
    return Attempt(
        slots=slots,
        lanes=lanes or slots,
        planning=ranges.problems[slots],
        least_ns=ranges.heap[0][0],
    )
