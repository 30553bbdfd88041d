"""Even out the loads of a placement by moving runs of tasks, one or two at a time.

In: a `Problem`, a placement, prices per resource (the duals of the relaxation) and patterns. Out: a
placement whose period is not longer. Single moves end where every one of them costs a transfer; the
rest of the gap is imbalance, and pairs of runs mend it: with a thousand runs there are half a
million pairs, and some pair changes the loads by nearly what is needed.

A run is a stretch of tasks put where a pattern has them. The priced sum of the loads is a bound for
the period, so a run whose priced change is more than the period's excess over that sum can be in no
improvement, unless another run makes up for it: such runs are left out. Runs with the same effect,
such as those of equal layers, represent each other. Loads of two runs add up unless they touch the
same tensors; the chosen runs are measured before they are kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tessera.planning.problem.limits import ENDLESS, SearchWatch
from tessera.planning.problem.problem import Placement, Problem
from tessera.planning.search.single_moves import State

_LONGEST = 20  # maximum number of tasks in a run
_MOST_RUNS = 1200
_ALIKE = 2  # runs of the same effect that are kept
_TRIED = 40
_BLOCK = 256
_CROWD = 64  # larger groups say little of one task; stale changes are detected when tried

Array = NDArray[np.float64]
Run = tuple[tuple[int, int], ...]  # (task, device)


class _Pool:
    """The runs that start at each task, and their changes: loads, then memory per room."""

    def __init__(self, state: State, patterns: Sequence[Placement]) -> None:
        self.state = state
        self.patterns = patterns
        self.near = _neighbours(state.problem)
        self.runs = [self._from(first) for first in range(len(state.place))]

    def _now(self) -> list[float]:
        return self.state.loads + self.state.memory

    def _from(self, first: int) -> tuple[list[Run], Array]:
        state = self.state
        after: dict[Run, list[float]] = {}
        loads, before = list(state.loads), self._now()
        last = min(len(state.place), first + _LONGEST)
        for pattern in self.patterns:
            if pattern[first] == state.place[first]:
                continue
            undo: list[tuple[int, int]] = []
            moves: list[tuple[int, int]] = []
            for task in range(first, last):
                to = pattern[task]
                if to == state.place[task] or to not in state.allowed[task]:
                    continue
                undo.append((task, state.place[task]))
                moves.append((task, to))
                state.move(task, to, state.change(task, to))
                after[tuple(moves)] = self._now()
            _undo(state, undo, loads)
        rows = np.array(list(after.values()), dtype=np.float64).reshape(len(after), len(before))
        return list(after), rows - np.array(before)

    def refresh(self, tasks: set[int]) -> None:
        """Rebuild the runs that involve these tasks."""
        touched = {near for task in tasks for near in self.near[task]}
        firsts = {f for t in touched for f in range(max(0, t - _LONGEST + 1), t + 1)}
        for first in firsts:
            self.runs[first] = self._from(first)

    def effects(self) -> tuple[list[Run], Array]:
        """All runs with their changes."""
        runs = [run for runs_from, _ in self.runs for run in runs_from]
        none = np.empty((0, len(self._now())))
        return runs, np.concatenate([none, *(changes for _, changes in self.runs)])


def balance(
    problem: Problem,
    start: Placement,
    prices: Array,
    patterns: Sequence[Placement],
    enough: float,
    *,
    rounds: int = 20,
    watch: SearchWatch = ENDLESS,
) -> Placement:
    """The placement after the best runs and pairs of runs; `start` must fit in memory."""
    state = State(problem, start)
    total = float(prices.sum())
    if state.excess() > 0 or total <= 0:
        return start
    pool = _Pool(state, patterns)
    for _ in range(rounds):
        if state.period() <= enough or watch.over():
            break
        moved = _step(state, pool, prices / total)
        if not moved:
            break
        pool.refresh(moved)
    return tuple(state.place)


def _step(state: State, pool: _Pool, prices: Array) -> set[int]:
    """Apply the best run or pair; returns the moved tasks, empty if nothing helps."""
    period = state.period()
    loads = np.array(state.loads)
    room = np.array(state.capacity) - np.array(state.memory)
    runs, changes = pool.effects()
    if not runs:
        return set()
    chosen = _select(changes, prices, period - float(prices @ loads), len(loads), period)
    kept = changes[chosen]
    for first, second in _best_pairs(kept, loads, room, period):
        moves = dict(runs[chosen[first]])
        if second >= 0:
            other = dict(runs[chosen[second]])
            if moves.keys() & other.keys():
                continue
            moves.update(other)
        if _apply(state, moves, period):
            return set(moves)
    return set()


def _select(
    changes: Array, prices: Array, slack: float, resources: int, period: float
) -> NDArray[np.int64]:
    """The runs that could be part of an improvement, cheapest first, few of the same effect."""
    priced = changes[:, :resources] @ prices
    order = np.argsort(priced, kind="stable")
    order = order[priced[order] <= slack]
    known: dict[bytes, int] = {}
    chosen = []
    keys = np.round(changes[order] / (period * 1e-6)).astype(np.int64)
    for index, key in zip(order, keys, strict=True):
        label = key.tobytes()
        if known.get(label, 0) < _ALIKE:
            known[label] = known.get(label, 0) + 1
            chosen.append(index)
            if len(chosen) == _MOST_RUNS:
                break
    return np.array(chosen, dtype=np.int64)


def _best_pairs(changes: Array, loads: Array, room: Array, period: float) -> list[tuple[int, int]]:
    """Runs (second -1) and pairs by the period that they promise, shortest first."""
    if not len(changes):
        return []
    count = len(loads)
    moving = np.flatnonzero(changes[:, :count].any(axis=0))
    still = np.delete(loads, moving)
    floor = float(still.max()) if len(still) else 0.0
    grows = changes[:, count:].max(axis=0, initial=0.0)
    tight = [index for index in range(len(room)) if 2 * grows[index] > room[index]]
    alone = np.maximum((changes[:, moving] + loads[moving]).max(axis=1, initial=0.0), floor)
    for index in tight:
        alone[changes[:, count + index] > room[index]] = np.inf
    promising = [(float(alone[n]), int(n), -1) for n in _smallest(alone, period)]
    for first in range(0, len(changes), _BLOCK):
        block = changes[first : first + _BLOCK]
        periods = np.full((len(block), len(changes)), floor)
        for column in moving:
            both = np.add.outer(block[:, column] + loads[column], changes[:, column])
            np.maximum(periods, both, out=periods)
        for index in tight:
            grown = np.add.outer(block[:, count + index], changes[:, count + index])
            over = grown > room[index]
            periods[over] = np.inf
        flat = periods.ravel()
        promising += [
            (float(flat[n]), first + int(n // len(changes)), int(n % len(changes)))
            for n in _smallest(flat, period)
        ]
    promising.sort()
    return [(first, second) for _, first, second in promising[:_TRIED]]


def _smallest(periods: Array, period: float) -> NDArray[np.int64]:
    """Indices of the shortest periods that are an improvement."""
    if len(periods) > _TRIED:
        places = np.argpartition(periods, _TRIED)[:_TRIED]
    else:
        places = np.arange(len(periods))
    return np.asarray(places[periods[places] < period * (1 - 1e-9)], dtype=np.int64)


def _apply(state: State, moves: dict[int, int], period: float) -> bool:
    """Move the tasks; undone, and false, unless that shortens the period within memory."""
    loads = list(state.loads)
    undo = [(task, state.place[task]) for task in moves]
    for task, to in moves.items():
        state.move(task, to, state.change(task, to))
    if state.excess() == 0 and state.period() < period * (1 - 1e-8):
        return True
    _undo(state, undo, loads)
    return False


def _undo(state: State, moves: list[tuple[int, int]], loads: list[float]) -> None:
    for task, to in reversed(moves):
        state.move(task, to, [])
    state.loads[:] = loads


def _neighbours(problem: Problem) -> list[set[int]]:
    """For each task: itself and tasks that share a tensor or a resident with it, except crowds."""
    neighbours: list[set[int]] = [{task} for task in range(len(problem.tasks))]
    groups = [{tensor.producer, *tensor.consumers} for tensor in problem.tensors]
    groups += [set(resident.users) for resident in problem.residents]
    for group in groups:
        if len(group) <= _CROWD:
            for task in group:
                neighbours[task] |= group
    return neighbours
