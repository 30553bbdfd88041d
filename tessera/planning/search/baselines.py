"""Placements that people make without a solver: what a plan is measured against.

In: a `Problem`. Out: named placements. `single`: all on one device. `layers`: the tasks in order, a
run of them per device. `phase`: each trace on a device of its own. `attention`: attention on one
device, the rest on another. `kernel`: tasks in the order of how much the choice matters, each where
it ends soonest. Data parallelism is no placement but a sharing of requests: see `search.plans`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tessera.ir.choices import Strategy
from tessera.planning.problem.device_types import DIRECT_DEVICES, types_of
from tessera.planning.problem.problem import Placement, Problem, runs
from tessera.planning.search.chains import best_runs
from tessera.planning.search.single_moves import best_of, splice

STRATEGIES = tuple(strategy for strategy in Strategy if strategy is not Strategy.DP)
_MOST_ORDERS = 24


def placements_of(problem: Problem, strategy: str) -> Iterator[Placement]:
    """The placements of a strategy that can run, fitting or not."""
    makers = {
        Strategy.SINGLE: _single,
        Strategy.LAYERS: _layers,
        Strategy.PHASE: _phase,
        Strategy.ATTENTION: _attention,
        Strategy.KERNEL: _kernel,
    }
    return (
        placement for placement in makers[Strategy(strategy)](problem) if runs(problem, placement)
    )


def best_baseline(problem: Problem, strategy: str) -> Placement | None:
    """The fitting placement of a strategy with the shortest period."""
    return best_of(problem, placements_of(problem, strategy))


def _single(problem: Problem) -> Iterator[Placement]:
    for device in range(len(problem.devices)):
        yield (device,) * len(problem.tasks)


def _layers(problem: Problem) -> Iterator[Placement]:
    """Runs of tasks with about equal times; with two devices, the best of all cuts."""
    devices = range(len(problem.devices))
    count = len(problem.tasks)
    if len(devices) == 2:
        for first, second in ((0, 1), (1, 0)):
            # Where the first can run all up to there, and the second all from there on.
            most = next((n for n, t in enumerate(problem.tasks) if t.ns[first] is None), count)
            least = max(
                (n + 1 for n, t in enumerate(problem.tasks) if t.ns[second] is None), default=0
            )
            if least <= most:
                yield splice(
                    problem,
                    (*(first,) * most, *(second,) * (count - most)),
                    (*(first,) * least, *(second,) * (count - least)),
                )
        return
    if len(devices) > DIRECT_DEVICES:
        runs_within = best_runs(problem, types_of(problem), range(count), 0.0, len(devices))
        if runs_within is not None:
            yield runs_within
            return
    for order in itertools.islice(itertools.permutations(devices), _MOST_ORDERS):
        yield _even_runs(problem, order)


def _even_runs(problem: Problem, order: tuple[int, ...]) -> Placement:
    """Cut so that every device is busy for the same time, as far as single tasks allow."""
    low, high = 0.0, sum(max((ns or 0.0) for ns in task.ns) for task in problem.tasks)
    placement = _runs_within(problem, order, high)
    for _ in range(40):
        middle = (low + high) / 2
        trial = _runs_within(problem, order, middle)
        if trial is None:
            low = middle
        else:
            placement, high = trial, middle
    return placement if placement is not None else (order[0],) * len(problem.tasks)


def _runs_within(problem: Problem, order: tuple[int, ...], limit: float) -> Placement | None:
    """Runs no longer than a limit; None if the devices do not suffice."""
    place: list[int] = []
    position, used = 0, 0.0
    for task in problem.tasks:
        while True:
            ns = task.ns[order[position]]
            if ns is not None and used + ns <= limit:
                break
            position, used = position + 1, 0.0
            if position == len(order):
                return None
        used += ns
        place.append(order[position])
    return tuple(place)


def _phase(problem: Problem) -> Iterator[Placement]:
    phases = list(dict.fromkeys(task.phase for task in problem.tasks))
    devices = _representatives(problem, len(phases))
    if len(phases) < 2 or len(devices) ** len(phases) > 4096:
        return
    for chosen in itertools.product(devices, repeat=len(phases)):
        where = dict(zip(phases, chosen, strict=True))
        yield tuple(where[task.phase] for task in problem.tasks)


def _representatives(problem: Problem, most: int) -> list[int]:
    """Of devices with the same times and memory, so many."""
    room = {device: room.bytes for room in problem.rooms for device in room.devices}
    alike: dict[object, list[int]] = {}
    for device in range(len(problem.devices)):
        key = tuple(task.ns[device] for task in problem.tasks), room.get(device)
        alike.setdefault(key, []).append(device)
    return sorted(device for group in alike.values() for device in group[:most])


def _attention(problem: Problem) -> Iterator[Placement]:
    if not any(task.kind == "attention" for task in problem.tasks):
        return
    for for_attention, other in itertools.permutations(_representatives(problem, 2), 2):
        yield tuple(for_attention if task.kind == "attention" else other for task in problem.tasks)


def _kernel(problem: Problem) -> Iterator[Placement]:
    """Tasks in the order of how much they gain, each to the best device with time left."""

    if not all(task.allowed() for task in problem.tasks):
        return

    def advantage(index: int) -> float:
        times = [ns for ns in problem.tasks[index].ns if ns is not None]
        return min(times) / max(max(times), 1e-12)

    load = [0.0] * len(problem.devices)
    place = [0] * len(problem.tasks)
    for index in sorted(range(len(place)), key=lambda i: (advantage(i), i)):
        task = problem.tasks[index]
        place[index] = min(task.allowed(), key=lambda d: (load[d] + (task.ns[d] or 0.0), d))
        load[place[index]] += task.ns[place[index]] or 0.0
    yield tuple(place)
