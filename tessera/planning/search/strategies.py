"""The usual plans that need no search: the baselines of a plan.

In: a `Problem`. Out: candidates, each by the name of its strategy. A strategy is a class: the word
that users type, what it needs, and its placements. Data parallelism is no placement but a sharing
of requests, and parts of steps are no placement either (`planning.division`). A new strategy is one
more class below (docs/developer/errands/objective.md).

The command line takes its words from here, so that what needs NumPy is imported where it is used.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import ClassVar

from tessera.ir.choices import Word
from tessera.planning.problem.device_types import (
    DIRECT_DEVICES,
    may_fit,
    types_of,
    usable_devices,
)
from tessera.planning.problem.problem import INFINITY, Placement, Problem, measure, runs
from tessera.planning.search.candidates import Candidate, candidate_of, one_placement, with_rates
from tessera.planning.search.chains import best_runs

_MOST_ORDERS = 24


class Strategy(Word):
    """A way to place steps. `needs`: the message if it has no plan."""

    needs: ClassVar[str | None] = None
    is_divided: ClassVar[bool] = False
    """Whether its plans divide steps, which `planning.division` does."""
    in_fleets: ClassVar[bool] = True
    """Whether `tessc fleet` considers this strategy for a unit."""

    def placements(self, problem: Problem) -> Iterator[Placement]:
        """The placements to try; they may not run or not fit."""
        return iter(())

    def candidate(self, problem: Problem) -> Candidate | None:
        """The best plan of this form; None if it has none here."""
        placement = self.best_placement(problem)
        return None if placement is None else _usable(one_placement(problem, self, placement))

    def best_placement(self, problem: Problem) -> Placement | None:
        """The fitting placement with the shortest period."""
        from tessera.planning.search.single_moves import best_of

        if not may_fit(problem):
            return None
        return best_of(problem, (p for p in self.placements(problem) if runs(problem, p)))


def _usable(candidate: Candidate) -> Candidate | None:
    return candidate if candidate.period_ns < INFINITY else None


class Single(Strategy):
    """All steps on one device."""

    word = "single"
    needs = "no GPU can run everything, or none has the memory"

    def placements(self, problem: Problem) -> Iterator[Placement]:
        """Each device in turn."""
        for device in range(len(problem.devices)):
            yield (device,) * len(problem.tasks)

    def candidate(self, problem: Problem) -> Candidate | None:
        """The best device alone, by its name."""
        placement = self.best_placement(problem)
        return None if placement is None else _usable(alone_on(problem, placement[0]))


def alone_on(problem: Problem, device: int) -> Candidate:
    """A device that serves all requests alone."""
    return one_placement(problem, f"single:{problem.devices[device]}", _alone(problem, device))


class DataParallel(Strategy):
    """Every device that holds the whole model serves requests of its own."""

    word = "dp"
    needs = "it needs two GPUs that have room for everything"
    in_fleets = False  # units side by side are data parallel already

    def candidate(self, problem: Problem) -> Candidate | None:
        """Shares of the requests by how fast each device is."""
        devices = [d for d in range(len(problem.devices)) if _fits_alone(problem, d)]
        if len(devices) < 2:
            return None
        parts = with_rates(problem, [_alone(problem, device) for device in devices])
        return _usable(candidate_of(problem, self, parts))


class Layers(Strategy):
    """The steps in order, a run of them per device."""

    word = "layers"

    def placements(self, problem: Problem) -> Iterator[Placement]:
        """Runs of tasks with about equal times; with two devices, the best of all cuts."""
        devices = range(len(problem.devices))
        count = len(problem.tasks)
        if len(devices) == 2:
            from tessera.planning.search.single_moves import splice

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
    whole = sum(max((ns or 0.0) for ns in task.ns) for task in problem.tasks)
    cut = even_runs([[task.ns[device] for device in order] for task in problem.tasks], whole)
    return tuple(order[at] for at in cut or (0,) * len(problem.tasks))


def even_runs(
    times: Sequence[Sequence[float | None]],
    whole: float,
    sizes: Sequence[float] = (),
    rooms: Sequence[float] = (),
) -> tuple[int, ...] | None:
    """Runs of tasks, one for each place, such that the busiest place has as little as possible.

    `times` are by task and place, `whole` is enough for all tasks on one place. With `sizes` of
    tasks, a run fits the room of its place. None if the places do not suffice.
    """
    low, high = 0.0, whole
    best = _runs_within(times, high, sizes, rooms)
    for _ in range(40):
        middle = (low + high) / 2
        trial = _runs_within(times, middle, sizes, rooms)
        if trial is None:
            low = middle
        else:
            best, high = trial, middle
    return best


def _runs_within(
    times: Sequence[Sequence[float | None]],
    limit: float,
    sizes: Sequence[float],
    rooms: Sequence[float],
) -> tuple[int, ...] | None:
    """Runs no longer than a limit; None if the places do not suffice."""
    places: list[int] = []
    at, busy, held = 0, 0.0, 0.0
    for task, row in enumerate(times):
        size = sizes[task] if sizes else 0.0
        while True:
            ns = row[at]
            is_room = not sizes or held + size <= rooms[at]
            if ns is not None and busy + ns <= limit and is_room:
                break
            at, busy, held = at + 1, 0.0, 0.0
            if at == len(row):
                return None
        busy, held = busy + ns, held + size
        places.append(at)
    return tuple(places)


class PhaseStrategy(Strategy):
    """Each trace on devices of its own. For a rate, `planning.roles` finds it."""

    word = "phase"
    needs = "it puts each of several traces on a GPU of its own"

    def placements(self, problem: Problem) -> Iterator[Placement]:
        """Every way to give each trace a device; none if traces share a state."""
        if problem.detail is not None:
            traces: dict[int, int] = {}
            for task, group in zip(
                problem.detail.problem.tasks, problem.detail.groups, strict=True
            ):
                if traces.setdefault(group, task.trace) != task.trace:
                    return
        yield from _by_trace(problem)


def _by_trace(problem: Problem) -> Iterator[Placement]:
    """Every way to give each trace a device; tasks of several traces go with the first."""
    phases = list(dict.fromkeys(task.phase for task in problem.tasks))
    devices = _representatives(problem, len(phases))
    if len(phases) < 2 or len(devices) ** len(phases) > 4096:
        return
    for chosen in itertools.permutations(devices, len(phases)):
        where = dict(zip(phases, chosen, strict=True))
        yield tuple(where[task.phase] for task in problem.tasks)


def _representatives(problem: Problem, most: int) -> list[int]:
    """Of the devices with the same times and memory, the first `most`."""
    room = {device: room.bytes for room in problem.rooms for device in room.devices}
    alike: dict[object, list[int]] = {}
    for device in range(len(problem.devices)):
        key = tuple(task.ns[device] for task in problem.tasks), room.get(device)
        alike.setdefault(key, []).append(device)
    return sorted(device for group in alike.values() for device in group[:most])


class AttentionStrategy(Strategy):
    """Attention on one device, the rest on another; of two devices, layer by layer."""

    word = "attention"
    needs = "it needs kernels with attention in their names, and two GPUs that can run them"

    def placements(self, problem: Problem) -> Iterator[Placement]:
        """Every pair of devices, both ways; with two devices, also attention of some layers."""
        from tessera.planning.search.attention import attention_apart

        if not any(task.kind == "attention" for task in problem.tasks):
            return
        for for_attention, other in itertools.permutations(_representatives(problem, 2), 2):
            if len(problem.devices) == 2:
                yield from attention_apart(problem, other, for_attention)
            yield tuple(
                for_attention if task.kind == "attention" else other for task in problem.tasks
            )


class RolesStrategy(Strategy):
    """Replicas that serve some traces of a mix only; `planning.roles` finds them."""

    word = "roles"
    needs = "it needs several traces, and two GPUs of which each serves other shares of them"
    in_fleets = False


class TensorParallel(Strategy):
    """Steps in equal parts over equal GPUs; fleets price it by tables of measured times."""

    word = "tensor"
    needs = "it needs several GPUs of one kind, and steps that can be cut"
    is_divided = True


class PartsStrategy(Strategy):
    """Steps in parts whose shares suit each GPU, beside whole steps and twins."""

    word = "parts"
    needs = "it needs two GPUs with a link, and steps that can be cut"
    in_fleets = False
    is_divided = True


class KernelStrategy(Strategy):
    """Each step where it serves best; with a search, the best split of requests there is."""

    word = "kernel"

    def placements(self, problem: Problem) -> Iterator[Placement]:
        """Tasks in the order of how much they gain, each to the best device with time left; and by
        trace."""
        yield from _by_trace(problem)
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


SINGLE, DP, LAYERS = Single(), DataParallel(), Layers()
PHASE, ATTENTION, KERNEL = PhaseStrategy(), AttentionStrategy(), KernelStrategy()
ROLES, TENSOR, PARTS = RolesStrategy(), TensorParallel(), PartsStrategy()
PLAN_STRATEGIES = Strategy.every()
FLEET_STRATEGIES = tuple(strategy for strategy in Strategy.every() if strategy.in_fleets)


def usual_candidates(problem: Problem) -> list[Candidate]:
    """The usual plans: each kind of device alone, and every other strategy at its best."""
    candidates: list[Candidate | None] = [
        alone_on(problem, group[0]) for group in types_of(problem) if _fits_alone(problem, group[0])
    ]
    if len(usable_devices(problem)) > 1:
        others = (strategy for strategy in PLAN_STRATEGIES if strategy != SINGLE)
        candidates += [strategy.candidate(problem) for strategy in others]
    return [
        candidate
        for candidate in candidates
        if candidate is not None and candidate.period_ns < INFINITY
    ]


def _alone(problem: Problem, device: int) -> Placement:
    return (device,) * len(problem.tasks)


def _fits_alone(problem: Problem, device: int) -> bool:
    alone = _alone(problem, device)
    return runs(problem, alone) and measure(problem, alone).fits
