"""Many devices and many tasks: runs of tasks, one for each device, the best for every mix of types.

In: a `Problem` and its types. Out: a placement. Tasks are in an order, and each device gets a run
of them. With a limit on the loads, how far a run of each type reaches from each task is known, and
further is never worse. So the furthest that a number of devices of each type reach together is
found exactly, whatever their order. The least limit at which they reach the end is found by
halving. Transfers are left out of the limit: the caller measures the placement.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from tessera.planning.problem.problem import INFINITY, Placement, Problem

Groups = tuple[tuple[int, ...], ...]
_Counts = tuple[int, ...]
_MOST_COUNTS = 20_000
_HALVINGS = 12
_NEAR = 1.002


class _Runs:
    """The reach of a run of tasks, by type and first task, within a limit and its memory."""

    def __init__(self, problem: Problem, groups: Groups, order: Sequence[int]) -> None:
        rooms = {device: room.bytes for room in problem.rooms for device in room.devices}
        self.order = order
        self.groups = groups
        self.rooms = [rooms.get(group[0], INFINITY) for group in groups]
        self.times = [
            [
                INFINITY if (ns := problem.tasks[task].ns[group[0]]) is None
                else ns * problem.tasks[task].rate
                for task in order
            ]
            for group in groups
        ]  # fmt: skip
        self.sizes = [resident.bytes for resident in problem.residents]
        held: list[list[int]] = [[] for _ in problem.tasks]
        for index, resident in enumerate(problem.residents):
            for task in set(resident.users):
                held[task].append(index)
        self.held = [held[task] for task in order]

    def finite(self) -> Iterator[list[float]]:
        """For each position, the times on the types that can run its task."""
        for own in zip(*self.times, strict=True):
            yield [ns for ns in own if ns < INFINITY]

    def reaches(self, kind: int, limit: float) -> list[int]:
        """For each position of the order, the first one that a run from there does not reach."""
        times, room, count = self.times[kind], self.rooms[kind], len(self.order)
        users: dict[int, int] = {}
        reached = []
        end, load, used = 0, 0.0, 0
        for begin in range(count):
            if end < begin:
                end, load, used, users = begin, 0.0, 0, {}
            while end < count:
                new = [r for r in self.held[end] if not users.get(r)]
                more = sum(self.sizes[r] for r in new)
                if load + times[end] > limit or used + more > room:
                    break
                load += times[end]
                used += more
                for resident in self.held[end]:
                    users[resident] = users.get(resident, 0) + 1
                end += 1
            reached.append(end)
            if end > begin:
                load -= times[begin]
                for resident in self.held[begin]:
                    users[resident] -= 1
                    if not users[resident]:
                        used -= self.sizes[resident]
        return [*reached, count]

    def sequence(self, limit: float, most: int) -> list[int] | None:
        """Types in the order of their runs that reach the end, with at most `most` runs."""
        reaches = [self.reaches(kind, limit) for kind in range(len(self.groups))]
        sizes = [len(group) for group in self.groups]
        states = 1
        for size in sizes:
            states *= size + 1
        if states > _MOST_COUNTS:
            return self._in_blocks(reaches, sizes, most)
        count = len(self.order)
        level: dict[_Counts, int] = {(0,) * len(sizes): 0}
        came: list[dict[_Counts, int]] = []
        for _ in range(min(most, sum(sizes))):
            following: dict[_Counts, int] = {}
            last: dict[_Counts, int] = {}
            for counts, place in level.items():
                for kind, size in enumerate(sizes):
                    if counts[kind] == size:
                        continue
                    used = (*counts[:kind], counts[kind] + 1, *counts[kind + 1 :])
                    end = reaches[kind][place]
                    if end > following.get(used, -1):
                        following[used], last[used] = end, kind
            came.append(last)
            level = following
            for counts, place in level.items():
                if place == count:
                    return _walked_back(came, counts)
        return None

    def _in_blocks(self, reaches: list[list[int]], sizes: list[int], most: int) -> list[int] | None:
        """As `sequence`, with all devices of a type next to each other."""
        for kinds in itertools.islice(itertools.permutations(range(len(sizes))), 24):
            runs: list[int] = []
            place = 0
            for kind in kinds:
                for _ in range(sizes[kind]):
                    if place == len(self.order) or len(runs) == most:
                        break
                    place = reaches[kind][place]
                    runs.append(kind)
            if place == len(self.order):
                return runs
        return None

    def place(self, limit: float, sequence: Sequence[int]) -> Placement:
        """The placement of these runs."""
        reaches = {kind: self.reaches(kind, limit) for kind in set(sequence)}
        free: list[Iterator[int]] = [iter(group) for group in self.groups]
        placement = [0] * len(self.order)
        begin = 0
        for kind in sequence:
            end, device = reaches[kind][begin], next(free[kind])
            for position in range(begin, end):
                placement[self.order[position]] = device
            begin = end
        return tuple(placement)


def _walked_back(came: list[dict[_Counts, int]], counts: _Counts) -> list[int]:
    """The types of the runs that led to these counts."""
    sequence = []
    for last in reversed(came):
        kind = last[counts]
        sequence.append(kind)
        counts = (*counts[:kind], counts[kind] - 1, *counts[kind + 1 :])
    return sequence[::-1]


def best_runs(
    problem: Problem, groups: Groups, order: Sequence[int], least: float, most: int
) -> Placement | None:
    """Runs with the smallest maximum load on at most `most` devices; None if the tasks do not fit.

    `least` is a bound on that load.
    """
    runs = _Runs(problem, groups, order)
    low, high = least, max(least, _even_load(runs))
    longest = sum(max(own, default=0.0) for own in runs.finite())
    sequence = runs.sequence(high, most)
    while sequence is None:
        if high > longest:
            return None
        low, high = high, high * 1.25
        sequence = runs.sequence(high, most)
    for _ in range(_HALVINGS):
        if high <= low * _NEAR:
            break
        middle = (low + high) / 2
        trial = runs.sequence(middle, most)
        if trial is None:
            low = middle
        else:
            sequence, high = trial, middle
    return runs.place(high, sequence)


def _even_load(runs: _Runs) -> float:
    """The load of each device if the fastest times of all tasks are spread evenly."""
    total = sum(min(own, default=0.0) for own in runs.finite())
    return max(total / sum(map(len, runs.groups)), 1.0)
