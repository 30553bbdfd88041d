"""Local search over placements: move one task at a time, keeping all loads up to date.

In: a `Problem` and placements to start from. Out: a placement that no single move improves, in
Fiduccia and Mattheyses' manner, on a p-norm of the loads. A low p sees all resources, a high one
only the busiest; p rises from round to round. Memory comes first: a move may never raise the bytes
over capacity, so a start that fits stays fitting, and one that does not is repaired if it can be.

`State` is private and mutable; it never leaves the passes of the planner.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from tessera.planning.problem.limits import ENDLESS, SearchWatch
from tessera.planning.problem.problem import INFINITY, Placement, Problem
from tessera.planning.problem.task_index import UNCONNECTED, Int64s, TaskIndex

POWERS = (60.0, 400.0, 3000.0)
_MOST_KEPT = 20_000  # moves whose changes are kept; each takes a kilobyte or two

Change = list[tuple[int, float]]


class State:
    """A placement with the loads and memory that it causes. States of a problem share `index`."""

    def __init__(
        self, problem: Problem, placement: Sequence[int], index: TaskIndex | None = None
    ) -> None:
        devices = len(problem.devices)
        self.index = index = index or TaskIndex(problem)
        self.problem = problem
        self.place = list(placement)
        self.ns, self.allowed, self.source = index.ns, index.allowed, index.source
        self.makes, self.reads, self.holds = index.makes, index.reads, index.holds
        self.size, self.room_of, self.capacity = index.size, index.room_of, index.capacity
        self.pipes, self.tax, self.bytes = index.pipes, index.tax, index.bytes
        self.shared = index.shared
        self.memory = [0.0] * len(problem.rooms)
        place = np.array(self.place, dtype=np.int64)
        readers = _counts(index.read_by, place, len(problem.tensors), devices)
        users = _counts(index.used_by, place, len(problem.residents), devices)
        self.readers: list[list[int]] = readers.tolist()
        self.users: list[list[int]] = users.tolist()
        self.loads = self._loads(place)
        change: Change = []
        for tensor, target in zip(*(some.tolist() for some in readers.nonzero()), strict=True):
            source = self.place[self.source[tensor]]
            if target != source:
                self._transfer(change, tensor, source, target, 1.0)
        for resource, delta in change:
            self.loads[resource] += delta
        for resident, device in zip(*(some.tolist() for some in users.nonzero()), strict=True):
            if self.room_of[device] >= 0:
                self.memory[self.room_of[device]] += self.size[resident]

    def _loads(self, place: Int64s) -> list[float]:
        """The loads of tasks, without transfers."""
        devices = len(self.problem.devices)
        loads = [0.0] * len(self.problem.resources())
        own = self.index.times[np.arange(len(place)), place]
        loads[:devices] = np.bincount(place, weights=own, minlength=devices).tolist()
        for task, device in enumerate(self.place if self.problem.shared else ()):
            for resource, ns in self.shared[device]:
                loads[resource] += ns[task]
        return loads

    def _transfer(self, change: Change, tensor: int, g: int, h: int, sign: float) -> None:
        taxes = self.tax.get((g, h))
        if taxes is None:
            change.append((g, sign * UNCONNECTED))
            return
        tax = sign * taxes[tensor]
        if tax:
            change.append((g, tax))
            change.append((h, tax))
        size = sign * self.bytes[tensor]
        for resource, per_byte in self.pipes[g][h]:
            change.append((resource, size * per_byte))

    def change(self, task: int, to: int) -> Change:
        """How the loads change if a task moves."""
        here = self.place[task]
        ns = self.ns[task]
        change: Change = [(here, -ns[here]), (to, ns[to])]
        for resource, shares in self.shared[here]:
            change.append((resource, -shares[task]))
        for resource, shares in self.shared[to]:
            change.append((resource, shares[task]))
        for tensor in self.makes[task]:
            for target, count in enumerate(self.readers[tensor]):
                if count:
                    if target != here:
                        self._transfer(change, tensor, here, target, -1.0)
                    if target != to:
                        self._transfer(change, tensor, to, target, 1.0)
        place, source, readers = self.place, self.source, self.readers
        for tensor in self.reads[task]:
            origin = place[source[tensor]]
            counts = readers[tensor]
            if counts[here] == 1 and here != origin:
                self._transfer(change, tensor, origin, here, -1.0)
            if counts[to] == 0 and to != origin:
                self._transfer(change, tensor, origin, to, 1.0)
        return change

    def memory_change(self, task: int, to: int) -> tuple[float, float]:
        """Bytes freed where the task is, and bytes added where it goes."""
        here = self.place[task]
        freed = added = 0.0
        for resident in self.holds[task]:
            counts = self.users[resident]
            if counts[here] == 1:
                freed += self.size[resident]
            if counts[to] == 0:
                added += self.size[resident]
        return freed, added

    def excess(self) -> float:
        """Bytes over capacity, in all."""
        pairs = zip(self.memory, self.capacity, strict=True)
        return sum(used - room for used, room in pairs if used > room)

    def excess_after(self, task: int, to: int, before: float) -> float:
        """Bytes over capacity, in all, if a task moves; `before` are those now."""
        freed, added = self.memory_change(task, to)
        if not freed and not added:
            return before
        source, target = self.room_of[self.place[task]], self.room_of[to]
        if before == 0.0 and source != target:  # only the target can come to be over
            over = self.memory[target] + added - self.capacity[target] if target >= 0 else 0.0
            return max(over, 0.0)
        memory = self.memory.copy()
        if source >= 0:
            memory[source] -= freed
        if target >= 0:
            memory[target] += added
        pairs = zip(memory, self.capacity, strict=True)
        return sum(used - room for used, room in pairs if used > room)

    def move(self, task: int, to: int, change: Change) -> None:
        """Move a task; `change` is what `change(task, to)` gave."""
        here = self.place[task]
        freed, added = self.memory_change(task, to)
        if self.room_of[here] >= 0:
            self.memory[self.room_of[here]] -= freed
        if self.room_of[to] >= 0:
            self.memory[self.room_of[to]] += added
        for resource, delta in change:
            self.loads[resource] += delta
        for tensor in self.reads[task]:
            self.readers[tensor][here] -= 1
            self.readers[tensor][to] += 1
        for resident in self.holds[task]:
            self.users[resident][here] -= 1
            self.users[resident][to] += 1
        self.place[task] = to

    def period(self) -> float:
        """The largest load."""
        return max(self.loads, default=0.0)


def _counts(pairs: tuple[Int64s, Int64s], place: Int64s, rows: int, devices: int) -> Int64s:
    """Per set and device how many of its members are there."""
    numbers, members = pairs
    counts = np.bincount(numbers * devices + place[members], minlength=rows * devices)
    return counts.reshape(rows, devices)


def improve(
    problem: Problem,
    start: Sequence[int],
    powers: tuple[float, ...] = POWERS,
    max_sweeps: int = 40,
    *,
    index: TaskIndex | None = None,
) -> Placement:
    """The best placement met while moving single tasks downhill from a start."""
    state = State(problem, start, index)
    offers = Offers(state)
    best, best_rank = tuple(state.place), _rank(state)
    for power in powers:
        for _ in range(max_sweeps):
            moved = _sweep(state, power, offers)
            rank = _rank(state)
            if rank < best_rank:
                best, best_rank = tuple(state.place), rank
            if not moved:
                break
    return best


def _rank(state: State) -> tuple[float, float]:
    return state.excess(), state.period()


class Offers:
    """A cache of the changes by moves, each valid until another move affects it."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.keeps = len(state.place) * len(state.problem.devices) <= _MOST_KEPT
        self.known: list[dict[int, tuple[Change, Change]]] = [{} for _ in state.place]

    def change(self, task: int, to: int) -> tuple[Change, Change]:
        """How the loads change if a task moves: as `State.change` has it, and by resource."""
        known = self.known[task].get(to)
        if known is None:
            change = self.state.change(task, to)
            deltas: dict[int, float] = {}
            for resource, delta in change:
                deltas[resource] = deltas.get(resource, 0.0) + delta
            known = change, list(deltas.items())
            if self.keeps:
                self.known[task][to] = known
        return known

    def move(self, task: int, to: int, change: Change) -> None:
        """Move a task, and drop the cached changes that it invalidates."""
        state, here, known = self.state, self.state.place[task], self.known
        state.move(task, to, change)
        if not self.keeps:
            return
        known[task].clear()
        for tensor in state.makes[task]:
            for reader in state.index.readers[tensor]:
                known[reader].clear()
        for tensor in state.reads[task]:
            counts = state.readers[tensor]
            if counts[here] <= 1 or counts[to] <= 2:  # where more read it, one says nothing
                known[state.source[tensor]].clear()
                for reader in state.index.readers[tensor]:
                    known[reader].clear()


def _sweep(state: State, power: float, offers: Offers) -> bool:
    """Offer every task every other device once; true if one moved."""
    moved = False
    tight = any(sum(state.size) * len(room.devices) > room.bytes for room in state.problem.rooms)
    excess, largest = state.excess(), state.period()
    for task, allowed in enumerate(state.allowed):
        for to in allowed:
            if to == state.place[task]:
                continue
            after = state.excess_after(task, to, excess) if tight else excess
            if after > excess:
                continue
            change, deltas = offers.change(task, to)
            if after < excess or norm_falls(state.loads, deltas, power, largest):
                offers.move(task, to, change)
                excess, largest = state.excess(), state.period()
                moved = True
    return moved


def norm_falls(loads: list[float], deltas: Change, power: float, largest: float) -> bool:
    """Whether a change of loads lowers their p-norm, by more than rounding.

    Each resource is in `deltas` once; `largest` is the largest load before.
    """
    for resource, delta in deltas:
        if loads[resource] + delta > largest:
            largest = loads[resource] + delta
    if largest <= 0.0:
        return False
    before = after = 0.0
    for resource, delta in deltas:
        load = loads[resource]
        before += (load / largest) ** power
        load += delta
        if load > 0.0:
            after += (load / largest) ** power
    return after < before * (1 - 1e-9) - 1e-300


def shake(
    problem: Problem,
    start: Placement,
    patterns: Sequence[Placement],
    *,
    kicks: int,
    enough: float,
    watch: SearchWatch = ENDLESS,
) -> Placement:
    """Disturb a run of tasks, improve, keep what is better; the same for the same input.

    Half of the runs are taken from a pattern, half put on another device each. Stops when the
    period is short `enough`.
    """
    rng = random.Random(len(problem.tasks))
    best = start
    index = TaskIndex(problem)
    rank = _rank(State(problem, best, index))
    for _ in range(kicks):
        if rank <= (0.0, enough) or watch.over():
            break
        first = rng.randrange(len(best))
        run = range(first, min(first + rng.choice((3, 6, 12, 24)), len(best)))
        pattern = rng.choice(patterns)
        swap = rng.random() < 0.5
        trial = list(best)
        for task in run:
            others = [d for d in problem.tasks[task].allowed() if d != best[task]]
            trial[task] = rng.choice(others) if swap and others else pattern[task]
        improved = improve(problem, trial, POWERS[1:], max_sweeps=4, index=index)
        found_rank = _rank(State(problem, improved, index))
        if found_rank < rank:
            best, rank = improved, found_rank
    return best


def splice(
    problem: Problem, first: Sequence[int], second: Sequence[int], index: TaskIndex | None = None
) -> Placement:
    """The best of all placements with a prefix of tasks from one and the rest from another."""
    state = State(problem, second, index)
    best, best_rank = 0, _rank(state)
    differing = [task for task in range(len(first)) if first[task] != second[task]]
    for task in differing:
        state.move(task, first[task], state.change(task, first[task]))
        rank = _rank(state)
        if rank < best_rank:
            best, best_rank = task + 1, rank
    return (*first[:best], *second[best:])


def splice_all(
    problem: Problem,
    patterns: Iterable[Placement],
    most: int = 12,
    *,
    index: TaskIndex | None = None,
) -> list[Placement]:
    """The patterns, and the best splices of neighbours among them, without repeats."""
    kept = list(dict.fromkeys(patterns))[:most]
    index = index or TaskIndex(problem)
    spliced = [splice(problem, a, b, index) for a, b in pairwise(kept)]
    spliced += [splice(problem, b, a, index) for a, b in pairwise(kept)]
    return list(dict.fromkeys([*kept, *spliced]))


def best_of(
    problem: Problem, placements: Iterable[Sequence[int]], index: TaskIndex | None = None
) -> Placement | None:
    """The fitting placement with the shortest period, the first of equals; None without one."""
    chosen: Placement | None = None
    shortest = INFINITY
    for placement in placements:
        state = State(problem, placement, index)
        index = state.index
        if state.excess() == 0 and state.period() < min(shortest, UNCONNECTED):
            chosen, shortest = tuple(placement), state.period()
    return chosen
