"""The shortest time of one request: cut at separators, solve each segment, join by recursion.

In: a `Problem`. Out: a `LatencySolution`. The times are those of `search.schedule`, here for many
placements at once. Traces of a mix are solved apart; they share memory and groups of tasks that
must stay together.

A separator is a task that all earlier tasks lead to, that leads to all later ones, and that no
tensor passes by. At its end nothing else is under way, so what follows depends only on the device
it ran on. Each segment between two separators is enumerated once per pair of devices; equal
segments are enumerated once. The result is exact if every segment is small enough and it fits in
memory. Otherwise placements that are built task by task (`prefixes`) and those that are known are
improved by moves, and the bound is that of the cut problem, or of chains and loads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from tessera.planning.bound.relax import request_bound
from tessera.planning.problem.problem import (
    INFINITY,
    Placement,
    Problem,
    Tensor,
    memory_of,
    part_of,
    runs,
)
from tessera.planning.search.prefixes import built_placements
from tessera.planning.search.schedule import MovedRequest, latency_of

_MOST_PLACEMENTS = 1 << 16
_MOST_TRIALS = 3000
_MOST_STEPS = 1_000_000

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySolution:
    """A placement for one request; None if none was found. `exact`: nothing is shorter."""

    placement: Placement | None
    latency_ns: float
    bound_ns: float
    exact: bool


def solve_latency(problem: Problem, starts: Iterable[Placement] = ()) -> LatencySolution:
    """The placement with the shortest time of one request that was found."""
    base, groups = problem, tuple(range(len(problem.tasks)))
    if problem.detail is not None:
        base, groups = problem.detail.problem, problem.detail.groups
    traces = sorted({task.trace for task in base.tasks})
    if len(traces) == 1:
        small = _enumerate(problem, base, groups)
        if small is not None:
            return small
    place: list[int | None] = [None] * len(problem.tasks)
    bound, exact = 0.0, True
    for trace in traces:
        tasks = [n for n, task in enumerate(base.tasks) if task.trace == trace]
        placed, shortest, proven = _by_segments(part_of(base, tasks), [groups[n] for n in tasks])
        bound += shortest * base.tasks[tasks[0]].rate
        exact = exact and proven and placed is not None
        for n, device in zip(tasks, placed or (), strict=False):
            exact = exact and place[groups[n]] in (None, device)
            place[groups[n]] = device
    return _settle(problem, place, bound, exact, starts)


def bound_of_requests(problem: Problem) -> float:
    """A lower bound of the request time: chains and loads of every trace, weighted by its rate."""
    base, _ = problem.in_detail(tuple(range(len(problem.tasks))))
    tasks_of: dict[int, list[int]] = {}
    for number, task in enumerate(base.tasks):
        tasks_of.setdefault(task.trace, []).append(number)
    return sum(
        request_bound(part_of(base, tasks)) * base.tasks[tasks[0]].rate
        for tasks in tasks_of.values()
    )


def _settle(
    problem: Problem,
    place: list[int | None],
    bound: float,
    exact: bool,
    starts: Iterable[Placement],
) -> LatencySolution:
    """The placement itself if it is proven and fits, else the best of it and others, improved."""
    options = list(starts)
    base, groups = problem.in_detail(tuple(range(len(problem.tasks))))
    joined = tuple(device for device in place if device is not None)
    if len(joined) == len(place) and runs(problem, joined):
        if exact and _fits(problem, joined):
            latency = latency_of(problem, joined)
            return LatencySolution(
                placement=joined, latency_ns=latency, bound_ns=min(bound, latency), exact=True
            )
        options.insert(0, joined)
    ranked = [_ranked(problem, options), _ranked(problem, built_placements(base, groups))]
    improved = [_improve(problem, *own[0]) for own in ranked if own]
    if not improved:
        return LatencySolution(placement=None, latency_ns=INFINITY, bound_ns=bound, exact=False)
    latency, best = min(improved)
    return LatencySolution(
        placement=best,
        latency_ns=latency,
        bound_ns=min(bound, latency),
        exact=latency <= bound * (1 + 1e-9),
    )


def _ranked(problem: Problem, placements: Iterable[Placement]) -> list[tuple[float, Placement]]:
    """The placements that run and fit, with their times, shortest first."""
    fitting = (placement for placement in placements if _fits(problem, placement))
    timed = ((latency_of(problem, placement), placement) for placement in fitting)
    return sorted(pair for pair in timed if pair[0] < INFINITY)


def separators(problem: Problem) -> tuple[int, ...]:
    """The separator tasks, in order.

    All earlier tasks lead to one if each of them has a reader that is not later: that is the task
    itself, or leads to it in turn. Likewise for what it leads to.
    """
    count = len(problem.tasks)
    soonest = [count] * count  # the first reader of what a task makes
    furthest = [0] * count
    latest = [-1] * count  # the last maker of what a task reads
    for tensor in problem.tensors:
        made = tensor.producer
        for task in tensor.consumers:
            soonest[made] = min(soonest[made], task)
            furthest[made] = max(furthest[made], task)
            latest[task] = max(latest[task], made)
    leads = [count] * (count + 1)  # the first of the last makers from a task on
    for task in reversed(range(count)):
        leads[task] = min(leads[task + 1], latest[task])
    passed_by_all, reach, open_until = [], 0, 0
    for task in range(count):
        if open_until <= task <= leads[task + 1] and reach <= task:
            passed_by_all.append(task)
        reach = max(reach, furthest[task])
        open_until = max(open_until, soonest[task])
    return tuple(passed_by_all)


# --- schedules of many placements at once ----------------------------------------------------


def _finish_times(problem: Problem, tasks: Iterable[int], placements: NDArray[np.int64]) -> Matrix:
    """Per row: when the last of these tasks ends; `placements[:, n]` is the n-th task's device.

    The last row of the result is that of the end of all; row n that of the n-th task.
    """
    order = list(tasks)
    position = {task: n for n, task in enumerate(order)}
    rows, devices = len(placements), len(problem.devices)
    free = np.zeros((devices, rows))
    ends = np.zeros((len(order) + 1, rows))
    ready = np.zeros((len(order), rows))
    made: dict[int, list[int]] = {}
    for index, tensor in enumerate(problem.tensors):
        if tensor.producer in position:
            made.setdefault(tensor.producer, []).append(index)
    busy = {(wire.source, wire.target): np.zeros(rows) for wire in problem.wires}
    for n, task in enumerate(order):
        place = placements[:, n]
        times = np.array([INFINITY if v is None else v for v in problem.tasks[task].ns])
        start = np.maximum(ready[n], np.take_along_axis(free, place[None], 0)[0])
        end = start + times[place]
        np.put_along_axis(free, place[None], end[None], 0)
        ends[n] = end
        for index in made.get(task, ()):
            readers = [position[c] for c in problem.tensors[index].consumers if c in position]
            _deliver(problem, index, readers, placements, place, end, ready, busy)
    ends[-1] = ends[:-1].max(axis=0, initial=0.0)
    return ends


def _deliver(
    problem: Problem,
    index: int,
    readers: list[int],
    placements: NDArray[np.int64],
    place: NDArray[np.int64],
    end: Matrix,
    ready: Matrix,
    busy: dict[tuple[int, int], Matrix],
) -> None:
    """Make a tensor ready for its readers, wherever they are."""
    tensor = problem.tensors[index]
    for reader in readers:
        here = placements[:, reader] == place
        ready[reader] = np.where(here, np.maximum(ready[reader], end), ready[reader])
    for source in range(len(problem.devices)):
        from_here = place == source
        if not from_here.any():
            continue
        for target in range(len(problem.devices)):
            if target == source:
                continue
            goes = [from_here & (placements[:, reader] == target) for reader in readers]
            needed = np.logical_or.reduce(goes) if goes else np.zeros(len(place), dtype=bool)
            if not needed.any():
                continue
            arrival = _arrival(problem, tensor, (source, target), needed, end, busy)
            for reader, mask in zip(readers, goes, strict=True):
                late = np.maximum(ready[reader], arrival)
                ready[reader] = np.where(mask, late, ready[reader])


def _arrival(
    problem: Problem,
    tensor: Tensor,
    pair: tuple[int, int],
    needed: NDArray[np.bool_],
    end: Matrix,
    busy: dict[tuple[int, int], Matrix],
) -> Matrix:
    wire = next((w for w in problem.wires if (w.source, w.target) == pair), None)
    if wire is None:
        return np.full(len(end), INFINITY)
    leaves = np.maximum(end, busy[pair]) + tensor.bytes * wire.ns_per_byte
    busy[pair] = np.where(needed, leaves, busy[pair])
    ends = problem.ends_ns(tensor) + 2 * tensor.bytes * wire.end_ns_per_byte
    return np.asarray(leaves + (wire.latency_ns + ends))


# --- enumeration and recursion -----------------------------------------------------------------


def all_placements(options: list[tuple[int, ...]], most: int) -> NDArray[np.int64] | None:
    """A row per placement; None if there are more than `most`."""
    total = 1
    for allowed in options:
        total *= len(allowed)
        if total > most:
            return None
    return _grid(options)


def _grid(options: list[tuple[int, ...]]) -> NDArray[np.int64]:
    """All combinations, the first task slowest. (`meshgrid` ends at 32 tasks.)"""
    rest = np.arange(prod(len(allowed) for allowed in options))
    columns = []
    for allowed in reversed(options):
        columns.append(np.array(allowed, dtype=np.int64)[rest % len(allowed)])
        rest = rest // len(allowed)
    return np.stack(columns[::-1], axis=1)


def _fits(problem: Problem, placement: Placement) -> bool:
    used = memory_of(problem, placement)
    return all(bytes <= room.bytes for bytes, room in zip(used, problem.rooms, strict=True))


def _enumerate(problem: Problem, base: Problem, groups: tuple[int, ...]) -> LatencySolution | None:
    """All placements of a small problem; None if there are too many."""
    options = [task.allowed() for task in problem.tasks]
    grid = all_placements(options, _MOST_PLACEMENTS) if options else None
    if grid is None:
        return None
    times = _finish_times(base, range(len(groups)), grid[:, list(groups)])[-1]
    times = times * base.tasks[0].rate
    for row in np.argsort(times, kind="stable"):
        placement = tuple(int(device) for device in grid[row])
        if times[row] < INFINITY and _fits(problem, placement):
            return LatencySolution(
                placement=placement,
                latency_ns=float(times[row]),
                bound_ns=float(times[row]),
                exact=True,
            )
    return LatencySolution(placement=None, latency_ns=INFINITY, bound_ns=INFINITY, exact=True)


Table = dict[tuple[int, int], tuple[float, Placement]]


def _by_segments(problem: Problem, groups: Sequence[int]) -> tuple[Placement | None, float, bool]:
    """The shortest placement without regard to memory, its time, and whether that is proven.

    Tasks of one group stay together inside a segment, but not across segments: the caller looks.
    Where a segment is too large to enumerate, the bound is that of chains and loads.
    """
    cuts = separators(problem)
    known: dict[object, Table] = {}
    spans = list(zip((-1, *cuts), (*cuts, len(problem.tasks)), strict=True))
    states: dict[int, tuple[float, Placement]] = {-1: (0.0, ())}
    for first, last in spans:
        table = _segment(problem, groups, first, last, known)
        if table is None:
            return None, request_bound(problem), False
        following: dict[int, tuple[float, Placement]] = {}
        for (before, after), (time, inner) in table.items():
            if before not in states:
                continue
            total = states[before][0] + time
            if after not in following or total < following[after][0]:
                end = () if after < 0 else (after,)
                following[after] = total, (*states[before][1], *inner, *end)
        states = following
    best = min(states.values(), default=None)
    if best is None:
        return None, INFINITY, True
    return best[1], best[0], True


def _segment(
    problem: Problem, groups: Sequence[int], first: int, last: int, known: dict[object, Table]
) -> Table | None:
    """Per (device of the separator before, of the one after): time between their ends, placement.

    -1 stands for the start of the request and for its end. None: too many placements.
    """
    closes = last < len(problem.tasks)
    tasks = list(range(max(first, 0), last + closes))
    numbers: dict[int, int] = {}
    local = [numbers.setdefault(groups[task], len(numbers)) for task in tasks]
    options: list[tuple[int, ...]] = [tuple(range(len(problem.devices)))] * len(numbers)
    for task, group in zip(tasks, local, strict=True):
        allowed = problem.tasks[task].allowed()
        options[group] = tuple(device for device in options[group] if device in allowed)
    key = _shape(problem, tasks, first >= 0, closes), tuple(local)
    if key not in known:
        grid = all_placements(options, _MOST_PLACEMENTS)
        if grid is None:
            return None
        known[key] = _table(problem, tasks, grid[:, local], first >= 0, closes)
    return known[key]


def _shape(problem: Problem, tasks: list[int], opens: bool, closes: bool) -> object:
    """What the times of a segment depend on."""
    base, inside = tasks[0], set(tasks)
    tensors = tuple(
        (t.producer - base, tuple(c - base for c in t.consumers), t.bytes, t.count)
        for t in problem.tensors
        if t.producer in inside and inside.issuperset(t.consumers)
    )
    return tuple(problem.tasks[task].ns for task in tasks), tensors, opens, closes


def _table(
    problem: Problem, tasks: list[int], grid: NDArray[np.int64], opens: bool, closes: bool
) -> Table:
    ends = _finish_times(problem, tasks, grid)
    times = ends[-1] - (ends[0] if opens else 0.0)
    table: Table = {}
    for row in np.argsort(times, kind="stable"):
        if not times[row] < INFINITY:
            break
        place = tuple(int(device) for device in grid[row])
        ends_on = (place[0] if opens else -1, place[-1] if closes else -1)
        inner = place[opens : len(place) - closes]
        table.setdefault(ends_on, (float(times[row]), inner))
    return table


def _improve(problem: Problem, latency: float, start: Placement) -> tuple[float, Placement]:
    """Move single tasks while that shortens the request, within a fixed number of trials."""
    best, place, trials = latency, start, 0
    request = MovedRequest(problem, start)
    limit = min(_MOST_TRIALS, _MOST_STEPS // len(start))
    improved = True
    while improved and trials < limit:
        improved = False
        for task, device in _moves(problem):
            if device == place[task] or trials >= limit:
                continue
            trials += 1
            time = request.latency_if(task, device, best * (1 - 1e-9))
            trial = (*place[:task], device, *place[task + 1 :])
            if time < best * (1 - 1e-9) and _fits(problem, trial):
                request.move(task, device)
                best, place, improved = time, trial, True
    return best, place


def _moves(problem: Problem) -> Iterator[tuple[int, int]]:
    for index, task in enumerate(problem.tasks):
        for device in task.allowed():
            yield index, device
