"""Placements over many devices in one replica: stages, each with a few devices of its own.

In: a `Problem`, its types, and a solution by types. Out: placements. The tasks are put in an order,
cut into as many runs as there are stages, and each run is solved for the devices of its stage, two
or three of them, as a problem of its own. Stages that turn out slow get fewer tasks in the next
round. Two orders are tried: the program's, and the one by depth within each phase, so that phases
that share weights share stages. At the end runs of tasks are moved between neighbouring stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import gcd

import numpy as np

from tessera.planning.bound.relax import Array
from tessera.planning.problem.limits import SearchWatch, ShouldStop
from tessera.planning.problem.problem import (
    Pipe,
    Placement,
    Problem,
    Room,
    Task,
    Wire,
    part_of,
)
from tessera.planning.problem.task_index import TaskIndex
from tessera.planning.search.balance import balance
from tessera.planning.search.single_moves import best_of, improve
from tessera.planning.search.solve import Solution, SolveOptions, order_key, solve

_ROUNDS = 4
_BALANCES = 3
_QUICK = SolveOptions(gap=0.01, max_nodes=10, thorough=False)
_THOROUGH = SolveOptions(gap=0.004, max_nodes=4)

Groups = tuple[tuple[int, ...], ...]


def staged_placements(
    problem: Problem,
    groups: Groups,
    merged: Problem,
    typed: Solution,
    gap: float,
    watch: SearchWatch,
) -> tuple[list[Placement], dict[Placement, Placement]]:
    """Placements by stages, the best of each order of tasks; what `improve` made of some."""
    stages = stages_of(groups)
    weights = _weights(problem, groups, merged, typed)
    enough = typed.relaxation_ns * (1 + gap)
    placements: list[Placement] = []
    improved: dict[Placement, Placement] = {}
    index = TaskIndex(problem)
    for order in orders_of(problem):
        staged = _staged(problem, order, weights, stages, watch)
        if staged is None:
            continue
        improved[staged] = improve(problem, staged, index=index)
        even = best_of(problem, (staged, improved[staged]), index) or staged
        prices = _prices(problem, groups, merged, typed)
        for _ in range(_BALANCES):
            before, patterns = even, _shifts(problem, even, groups)
            even = balance(problem, even, prices, patterns, enough, rounds=20, watch=watch)
            if even == before:
                break
        placements += [even, staged]
        if order_key(problem, even) <= (False, enough):
            break
    return placements, improved


def stages_of(groups: Groups) -> tuple[tuple[int, ...], ...]:
    """Devices dealt to stages: as many stages as every type can serve alike, or one per device."""
    number = gcd(*(len(group) for group in groups))
    if number == 1:
        number = max(len(group) for group in groups)
    stages: list[list[int]] = [[] for _ in range(number)]
    for group in groups:
        for position, device in enumerate(group):
            stages[position * number // len(group)].append(device)
    return tuple(tuple(stage) for stage in stages)


def orders_of(problem: Problem) -> list[list[int]]:
    """Program order, and by depth within each phase where there are several."""
    program = list(range(len(problem.tasks)))
    sizes: dict[tuple[int, str], int] = {}
    depth = []
    for task in problem.tasks:
        key = task.trace, task.phase
        depth.append(sizes.get(key, 0))
        sizes[key] = sizes.get(key, 0) + 1
    if len(sizes) == 1:
        return [program]
    by_depth = sorted(
        program,
        key=lambda n: (depth[n] / sizes[problem.tasks[n].trace, problem.tasks[n].phase], n),
    )
    return [by_depth, program]


def _weights(problem: Problem, groups: Groups, merged: Problem, typed: Solution) -> list[float]:
    """The share of each task in a period, by the solution by types and its prices."""
    assert typed.placement is not None
    known = dict(typed.duals)
    prices = [max(1e-3, -known.get(f"device[{name}]", 0.0)) for name in merged.devices]
    return [
        prices[kind] * (problem.tasks[task].ns[groups[kind][0]] or 0.0) * problem.tasks[task].rate
        for task, kind in enumerate(typed.placement)
    ]


def _prices(problem: Problem, groups: Groups, merged: Problem, typed: Solution) -> Array:
    """The price of each resource: a type's price over its devices; the rest is free."""
    known = dict(typed.duals)
    prices = np.zeros(len(problem.resources()))
    for name, group in zip(merged.devices, groups, strict=True):
        prices[list(group)] = max(1e-3, -known.get(f"device[{name}]", 0.0)) / len(group)
    return prices


def _staged(
    problem: Problem,
    order: Sequence[int],
    weights: Sequence[float],
    stages: tuple[tuple[int, ...], ...],
    watch: SearchWatch,
) -> Placement | None:
    """Cut, solve every stage, move the cuts towards slow stages; the best of some rounds."""
    shares = [1.0] * len(stages)
    best: Placement | None = None
    chosen: list[list[int]] = []
    for _ in range(_ROUNDS):
        if watch.over():
            break
        cut = _cut(order, weights, shares)
        solved = _solve_stages(problem, cut, stages, _QUICK, watch)
        if solved is None:
            return best
        trial, periods = solved
        if best is None or order_key(problem, trial) < order_key(problem, best):
            best, chosen = trial, cut
        mean = sum(periods) / len(periods)
        if max(periods) <= mean * 1.005 or mean <= 0:
            break
        shares = [
            share * (mean / max(period, 1e-9)) ** 0.7
            for share, period in zip(shares, periods, strict=True)
        ]
    if best is not None and not watch.over():
        finer = _solve_stages(problem, chosen, stages, _THOROUGH, watch)
        if finer is not None and order_key(problem, finer[0]) < order_key(problem, best):
            best = finer[0]
    return best


def _solve_stages(
    problem: Problem,
    cut: list[list[int]],
    stages: tuple[tuple[int, ...], ...],
    options: SolveOptions,
    watch: SearchWatch,
) -> tuple[Placement, list[float]] | None:
    """A placement with every run of tasks on its stage, and the stages' periods."""
    place = [0] * len(problem.tasks)
    periods = []
    for stage, tasks in zip(stages, cut, strict=True):
        left = replace(options, seconds=watch.seconds_left())
        period = _solve_stage(problem, tasks, stage, place, left, watch.should_stop)
        if period is None:
            return None
        periods.append(period)
    return tuple(place), periods


def _cut(
    order: Sequence[int], weights: Sequence[float], shares: Sequence[float]
) -> list[list[int]]:
    """Runs of tasks whose weights are proportional to the shares."""
    total = sum(weights[task] for task in order)
    ends = list(np.cumsum(shares) / sum(shares) * total)
    runs: list[list[int]] = [[] for _ in shares]
    done, stage = 0.0, 0
    for task in order:
        while stage < len(shares) - 1 and done + weights[task] / 2 > ends[stage]:
            stage += 1
        runs[stage].append(task)
        done += weights[task]
    return [sorted(run) for run in runs]


def _solve_stage(
    problem: Problem,
    tasks: list[int],
    stage: tuple[int, ...],
    place: list[int],
    options: SolveOptions,
    should_stop: ShouldStop | None,
) -> float | None:
    """Place a run of tasks on the devices of a stage; returns its period, None if impossible."""
    if not tasks:
        return 0.0
    part = stage_problem(problem, tasks, stage)
    if any(not task.allowed() for task in part.tasks):
        return None
    solved = solve(part, options, should_stop=should_stop)
    if solved.placement is None:
        # Memory is repaired later, over all devices.
        solved = solve(replace(part, rooms=()), options, should_stop=should_stop)
        if solved.placement is None:
            return None
    for task, device in zip(tasks, solved.placement, strict=False):
        place[task] = stage[device]
    return solved.period_ns


def stage_problem(problem: Problem, tasks: Sequence[int], stage: tuple[int, ...]) -> Problem:
    """Some tasks on some devices; all else is one more device that sends and receives.

    Two tasks without time stand for what comes from elsewhere and what goes there, so ports are
    charged for it.
    """
    number = {device: index for index, device in enumerate(stage)}
    outside = len(stage)
    inner = {task: index for index, task in enumerate(tasks)}
    before, after = len(tasks), len(tasks) + 1
    tensors = []
    for tensor in problem.tensors:
        readers = {inner.get(task, after) for task in tensor.consumers}
        producer = inner.get(tensor.producer, before)
        if producer == before:
            readers.discard(after)
        if readers:
            tensors.append(replace(tensor, producer=producer, consumers=tuple(sorted(readers))))
    elsewhere = Task(name="elsewhere", ns=(*(None for _ in stage), 0.0))
    part = part_of(problem, tasks)
    return replace(
        part,
        devices=(*(problem.devices[device] for device in stage), "elsewhere"),
        tasks=(
            *(replace(t, ns=(*(t.ns[device] for device in stage), None)) for t in part.tasks),
            elsewhere,
            elsewhere,
        ),
        tensors=tuple(tensors),
        rooms=_inside_rooms(problem, number),
        wires=_stage_wires(problem, number, outside),
        pipes=_stage_pipes(problem, number, outside),
        shared=tuple(
            replace(
                load,
                devices=tuple(number[d] for d in load.devices if d in number),
                ns=(*load.ns, 0.0, 0.0),
            )
            for load in part.shared
            if number.keys() & set(load.devices)
        ),
    )


def _inside_rooms(problem: Problem, number: dict[int, int]) -> tuple[Room, ...]:
    return tuple(
        replace(room, devices=tuple(number[d] for d in room.devices if d in number))
        for room in problem.rooms
        if number.keys() & set(room.devices)
    )


def _stage_wires(problem: Problem, number: dict[int, int], outside: int) -> tuple[Wire, ...]:
    """Wires inside, and the fastest one in and out of each device."""
    best: dict[tuple[int, int], Wire] = {}
    for wire in problem.wires:
        pair = number.get(wire.source, outside), number.get(wire.target, outside)
        if pair[0] != pair[1] and (pair not in best or wire.ns_per_byte < best[pair].ns_per_byte):
            best[pair] = replace(wire, source=pair[0], target=pair[1])
    return tuple(best.values())


def _stage_pipes(problem: Problem, number: dict[int, int], outside: int) -> tuple[Pipe, ...]:
    """The pipes that belong to a device of the stage: one end of all their pairs."""
    pipes = []
    for pipe in problem.pipes:
        ends = [{pair[end] for pair in pipe.pairs} for end in (0, 1)]
        if not any(len(end) == 1 and end <= number.keys() for end in ends):
            continue
        pairs = {(number.get(a, outside), number.get(b, outside)) for a, b in pipe.pairs}
        pipes.append(replace(pipe, pairs=tuple(sorted(pairs))))
    return tuple(pipes)


def _shifts(problem: Problem, placement: Placement, groups: Groups) -> list[Placement]:
    """Every task on the next or the last device of its type, or on one of another type."""
    following: dict[int, int] = {}
    before: dict[int, int] = {}
    beside: dict[int, int] = {}
    for index, group in enumerate(groups):
        for here, other in pairwise((*group, group[0])):
            following[here], before[other] = other, here
        partner = groups[(index + 1) % len(groups)]
        for position, device in enumerate(group):
            beside[device] = partner[position * len(partner) // len(group)]
    return [
        tuple(
            way[device] if problem.tasks[task].ns[way[device]] is not None else device
            for task, device in enumerate(placement)
        )
        for way in (following, before, beside)
    ]
