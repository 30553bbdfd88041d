"""Branch and bound on counts: how many tasks of a class are on a device, how many tensors cross.

In: a model with count rows (`build_model(problem, classes)`), its relaxation and a function that
rounds values to placements. Out: a `Counting`: a proven bound and the best placement found.

In a model of sixty equal layers, branching on one layer's task moves the fraction to the next layer
and the bound stays. Branching on "18 or fewer of these sixty tasks are on the second device" cannot
be evaded, and a few dozen relaxations close the gap that thousands of nodes over single tasks leave
open. A node is a set of bounds on count rows. Nodes are taken in the order of their bounds; some
fractional counts are tried both ways, and the node branches on the count whose weaker side rises
most. A node with whole counts and split tasks is not branched further; its bound stands.

A class is a set of tasks with equal times and equal neighbours (`classes_of`). Any partition is
valid; one that follows the layers of a model is fast.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tessera.ir.choices import Ending
from tessera.planning.bound.model import IntegerModel
from tessera.planning.bound.relax import (
    Array,
    Relaxation,
    limit_steps,
    make_solver,
    read_relaxation,
    run_solver,
)
from tessera.planning.problem.limits import SearchWatch
from tessera.planning.problem.problem import INFINITY, Placement, Problem, measure


def classes_of(problem: Problem, rounds: int = 1, *, by_time: bool = True) -> tuple[int, ...]:
    """The class of each task, numbered by first appearance.

    Tasks are told apart by where they can run, by their times to three digits if `by_time`, and in
    each round by the classes of the tasks they share tensors with.
    """
    numbers = _numbered(
        [
            (task.phase, task.allowed(), tuple(map(_digits, task.ns)) if by_time else ())
            for task in problem.tasks
        ]
    )
    for _ in range(rounds):
        seen: list[list[Hashable]] = [[] for _ in problem.tasks]
        for tensor in problem.tensors:
            readers = tuple(sorted(numbers[task] for task in set(tensor.consumers)))
            shape = (tensor.bytes, tensor.count, numbers[tensor.producer], readers)
            seen[tensor.producer].append((0, *shape))
            for task in set(tensor.consumers):
                seen[task].append((1, *shape))
        numbers = _numbered(
            [(number, tuple(sorted(seen[task], key=repr))) for task, number in enumerate(numbers)]
        )
    return tuple(numbers)


def _digits(ns: float | None) -> str:
    return "" if ns is None else f"{ns:.3g}"


def _numbered(colours: Sequence[Hashable]) -> list[int]:
    known: dict[Hashable, int] = {}
    return [known.setdefault(colour, len(known)) for colour in colours]


_WHOLE = 1e-5
_SETUP_ITERATIONS = 50  # cost of starting a relaxation, in steps of the simplex method
_ROOT_STEPS_PER_ROW = 4
_NODE_STEPS = 1000
_TRIED_COUNTS = 3
_ROUNDING = 4  # nodes until the first one is rounded to a placement; the interval grows afterwards

Bounds = tuple[tuple[int, float, float], ...]  # (count, least, most)
Rounder = Callable[[Relaxation, Placement | None], Placement | None]
Solved = tuple[Relaxation, object] | Literal["lost"] | None  # None: infeasible; lost: unknown
Side = tuple[Bounds, Relaxation, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting:
    """The result; `is_whole`: all counts are whole, yet the placement is not near the bound."""

    placement: Placement | None
    bound_ns: float
    ended: Ending
    is_whole: bool


@dataclass(frozen=True, slots=True, order=True)
class _BranchNode:
    bound: float
    number: int
    bounds: Bounds
    relaxed: Relaxation
    basis: object


class _Solver:
    """One HiGHS instance that goes from node to node, each from its parent's basis."""

    def __init__(self, model: IntegerModel, most_work: int, watch: SearchWatch) -> None:
        self.model = model
        self.most_work = most_work
        self.watch = watch
        self.first = len(model.rows) - len(model.counts)
        self.highs = make_solver(model, integer=False)
        self.lower, self.upper = model.row_lower.copy(), model.row_upper.copy()
        self.set: Bounds = ()
        self.work = 0

    def root(self) -> Solved:
        """The relaxation without bounds on counts."""
        self._run(_ROOT_STEPS_PER_ROW * len(self.model.rows))
        for name, value in (("presolve", "off"), ("solver", "simplex"), ("simplex_strategy", 1)):
            self.highs.setOptionValue(name, value)
        return self._read()

    def solve(self, bounds: Bounds, basis: object) -> Solved:
        """The relaxation with these bounds."""
        for count, _, _ in self.set:
            self._bound(count, 0.0, float(len(self.model.counts[count])))
        for count, least, most in bounds:
            self._bound(count, least, most)
        self.set = bounds
        self.highs.setBasis(basis)
        self._run(_NODE_STEPS)
        return self._read()

    def _run(self, least: int) -> None:
        """Solve with the steps that remain of the work limit, and at least `least`."""
        left = (self.most_work - self.work) // max(len(self.model.rows), 1)
        limit_steps(self.highs, max(least, left))
        run_solver(self.highs, self.watch)

    def _bound(self, count: int, least: float, most: float) -> None:
        row = self.first + count
        self.lower[row], self.upper[row] = least, most
        self.highs.changeRowBounds(row, least, most)

    def _read(self) -> Solved:
        import highspy

        iterations = max(1, self.highs.getInfo().simplex_iteration_count)
        self.work += (iterations + _SETUP_ITERATIONS) * len(self.model.rows)
        status = self.highs.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return None
        if status != highspy.HighsModelStatus.kOptimal:
            return "lost"
        relaxed = read_relaxation(self.model, self.highs, self.lower, self.upper)
        return relaxed, self.highs.getBasis()


def branch_on_counts(
    model: IntegerModel,
    incumbent: Placement | None,
    rounder: Rounder,
    *,
    gap: float,
    most_work: int,
    watch: SearchWatch,
    on_progress: Callable[[float, float], None] | None = None,
) -> Counting:
    """Raise the bound and look for placements until they are within the gap.

    `most_work` limits simplex steps times rows, which is proportional to the time.
    """
    search = _CountSearch(model, incumbent, rounder, gap, _Solver(model, most_work, watch))
    ended = search.run(most_work, watch, on_progress)
    return Counting(
        placement=search.best, bound_ns=search.bound(), ended=ended, is_whole=search.is_whole
    )


class _CountSearch:
    def __init__(
        self,
        model: IntegerModel,
        incumbent: Placement | None,
        rounder: Rounder,
        gap: float,
        solver: _Solver,
    ) -> None:
        self.model = model
        self.rounder = rounder
        self.gap = gap
        self.best = incumbent
        self.period = _period(model, incumbent)
        self.solver = solver
        self.counts = [np.array(columns) for columns in model.counts]
        self.open: list[_BranchNode] = []
        self.closed = INFINITY  # the smallest bound of a node that is not branched further
        self.made = 0
        self.is_whole = False

    def bound(self) -> float:
        """The proven lower bound of the period."""
        least = self.open[0].bound if self.open else INFINITY
        return min(least, self.closed, self.period)

    def run(
        self, most: int, watch: SearchWatch, on_progress: Callable[[float, float], None] | None
    ) -> Ending:
        root = self.solver.root()
        if root is None or root == "lost":
            self.closed = 0.0  # nothing is proved
            return watch.over() or Ending.NODES
        self._push((), *root)
        taken = whole = 0
        rounding = _ROUNDING
        while self.open:
            if self.period <= self.bound() * (1 + self.gap):
                return Ending.GAP
            if ended := watch.over():
                return ended
            if self.solver.work >= most:
                return Ending.NODES
            node = heapq.heappop(self.open)
            children = self._children(node)
            if children is None:
                self.closed = min(self.closed, node.bound)
                self._round(node.relaxed)
                whole += 1
            else:
                for bounds, relaxed, basis in children:
                    risen = max(relaxed.bound_ns, node.bound)
                    self._push(bounds, replace(relaxed, bound_ns=risen), basis)
                taken += 1
                if taken >= rounding and self.open:
                    self._round(self.open[0].relaxed)
                    rounding = taken + taken // 4 + _ROUNDING
            if on_progress is not None:
                on_progress(self.bound(), self.period)
        self.is_whole = whole > 0 and self.period > self.bound() * (1 + self.gap)
        return Ending.GAP

    def _push(self, bounds: Bounds, relaxed: Relaxation, basis: object) -> None:
        """Keep a node open unless no placement below it can be better by the gap."""
        if self.period <= relaxed.bound_ns * (1 + self.gap):
            self.closed = min(self.closed, relaxed.bound_ns)
            return
        self.made += 1
        heapq.heappush(self.open, _BranchNode(relaxed.bound_ns, self.made, bounds, relaxed, basis))

    def _round(self, relaxed: Relaxation) -> None:
        rounded = self.rounder(relaxed, self.best)
        period = _period(self.model, rounded)
        if period < self.period:
            self.best, self.period = rounded, period

    def _children(self, node: _BranchNode) -> list[Side] | None:
        """The two sides of the best count to branch on; None if there is none."""
        sums = np.array([node.relaxed.values[columns].sum() for columns in self.counts])
        best: list[Side] | None = None
        score = (-1.0, -1.0)
        for count in self._split_counts(sums):
            sides = self._sides(node, count, float(sums[count]))
            if sides is None:
                continue
            rises = sorted(relaxed.bound_ns for _, relaxed, _ in sides)
            rises += [INFINITY] * (2 - len(rises))
            gains = (min(rises[0], self.period), min(rises[1], self.period))
            if gains > score:
                best, score = sides, gains
        return best

    def _split_counts(self, sums: Array) -> list[int]:
        """Fractional counts: those of tasks before those of tensors, the most fractional first."""
        distance = np.abs(sums - np.round(sums))
        split = [int(n) for n in np.flatnonzero(distance > _WHOLE)]
        tasks = {n for n in split if self.model.integer[self.model.counts[n][0]]}
        split.sort(key=lambda n: (n not in tasks, -distance[n], n))
        return split[:_TRIED_COUNTS]

    def _sides(self, node: _BranchNode, count: int, value: float) -> list[Side] | None:
        """The children of a node on each side of a count; None if a side could not be solved."""
        least, most = 0.0, float(len(self.model.counts[count]))
        others = []
        for bound in node.bounds:
            if bound[0] == count:
                least, most = bound[1:]
            else:
                others.append(bound)
        sides = []
        for low, high in ((least, float(np.floor(value))), (float(np.ceil(value)), most)):
            bounds = (*others, (count, low, high))
            solved = self.solver.solve(bounds, node.basis)
            if solved == "lost":
                return None
            if solved is not None:
                sides.append((bounds, *solved))
        return sides


def _period(model: IntegerModel, placement: Placement | None) -> float:
    if placement is None:
        return INFINITY
    measured = measure(model.problem, placement)
    return measured.period_ns if measured.fits else INFINITY
