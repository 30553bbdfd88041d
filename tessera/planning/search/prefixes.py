"""Short requests built task by task: of all prefixes of a placement, the most promising are kept.

In: a `Problem`, and its groups of tasks that stay together. Out: placements of the groups, the
shortest first, by an estimate. Every kept prefix goes on with each device that the next task may
run on. What follows depends on a prefix by where its unread tensors are and where begun groups run;
of prefixes that agree in these, the one with the least estimate alone goes on. So where few tensors
are open at a time, as between the layers of a model, this is dynamic programming over them, whether
or not one task separates what is before from what comes after.

The estimate of a prefix is the latest of its ends, each with the chain that follows it at best
times. A transfer leaves when its first reader is placed, not when its tensor is made: times differ
a little from those of `search.schedule`, which judges the results.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tessera.planning.problem.problem import INFINITY, Placement, Problem, Task

_KEPT = 48
_MOST_WORK = 12_000  # tasks times devices

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]


def built_placements(problem: Problem, groups: Sequence[int]) -> list[Placement]:
    """Placements of the groups, the best first; none where the problem is too large."""
    if len(problem.tasks) * len(problem.devices) > _MOST_WORK:
        return []
    prefixes = _Prefixes(problem, groups)
    for task in range(len(problem.tasks)):
        if not prefixes.place(task):
            return []
    return prefixes.placements()


class _Prefixes:
    """The kept prefixes: the last axis of every array has an entry for each."""

    def __init__(self, problem: Problem, groups: Sequence[int]) -> None:
        self.problem, self.groups = problem, groups
        count = len(problem.devices)
        self.ns_per_byte, self.end_ns = np.zeros((count, count)), np.zeros((count, count))
        self.waits = np.full((count, count), INFINITY)
        for wire in problem.wires:
            self.ns_per_byte[wire.source, wire.target] = wire.ns_per_byte
            self.waits[wire.source, wire.target] = wire.latency_ns
            self.end_ns[wire.source, wire.target] = 2 * wire.end_ns_per_byte
        self.tails = _best_tails(problem)
        self.left = _best_left(problem)
        self.makes: list[list[int]] = [[] for _ in problem.tasks]
        self.reads: list[list[int]] = [[] for _ in problem.tasks]
        for index, tensor in enumerate(problem.tensors):
            self.makes[tensor.producer].append(index)
            for reader in tensor.consumers:
                self.reads[reader].append(index)
        self.last_read = [max(tensor.consumers) for tensor in problem.tensors]
        self.last_of = {group: task for task, group in enumerate(groups)}
        # Random numbers, whose sum stands for where tensors and begun groups are.
        random = np.random.default_rng(0)
        self.made_at = random.integers(1, 1 << 60, (len(problem.tensors), count))
        self.is_at = random.integers(1, 1 << 60, (len(problem.tensors), count))
        self.runs_at = random.integers(1, 1 << 60, (len(self.last_of), count))
        self.free, self.busy = np.zeros((count, 1)), np.zeros((count, count, 1))
        self.spent, self.estimate = np.zeros(1), np.zeros(1)
        self.open: list[int] = []  # tensors that have readers to come
        self.arrivals = np.zeros((0, count, 1))  # of these by device; infinite: not sent
        self.source = np.zeros((0, 1), dtype=np.int64)
        self.device_of: dict[int, Numbers] = {}  # of begun groups
        self.history: list[tuple[Numbers, Numbers]] = []  # prefixes before, devices

    def place(self, task: int) -> bool:
        """Extend the prefixes by a task; False if no prefix can be extended."""
        own, count = self.problem.tasks[task], len(self.estimate)
        if task and own.trace != self.problem.tasks[task - 1].trace:
            self._begin_trace(self.problem.tasks[task - 1].rate)
        before = np.tile(np.arange(count), len(own.allowed()))
        device = np.repeat(np.array(own.allowed(), dtype=np.int64), count)
        if self.groups[task] in self.device_of:
            stays = self.device_of[self.groups[task]][before] == device
            before, device = before[stays], device[stays]
        self._keep(before)
        end = self._run(task, device)
        self.estimate = np.maximum(self.estimate, end + self.tails[task])
        kept = self._most_promising(own, end)
        self._keep(kept)
        self.history.append((before[kept], device[kept]))
        return len(kept) > 0

    def placements(self) -> list[Placement]:
        """Placements of all groups, best first."""
        order = np.argsort(self.spent + self.problem.tasks[-1].rate * self.estimate, kind="stable")
        devices = np.zeros((len(self.last_of), len(order)), dtype=np.int64)
        for task, (before, device) in reversed(list(enumerate(self.history))):
            devices[self.groups[task]] = device[order]
            order = before[order]
        return [tuple(row) for row in devices.T.tolist()]

    def _begin_trace(self, rate: float) -> None:
        """Start the next trace on idle devices: requests of different traces are independent."""
        self.spent = self.spent + rate * self.estimate
        for times in (self.estimate, self.free, self.busy):
            times[:] = 0.0

    def _keep(self, rows: Numbers) -> None:
        """Keep only these prefixes, in this order."""
        self.free, self.busy = self.free[:, rows], self.busy[:, :, rows]
        self.spent, self.estimate = self.spent[rows], self.estimate[rows]
        self.arrivals, self.source = self.arrivals[:, :, rows], self.source[:, rows]
        self.device_of = {group: device[rows] for group, device in self.device_of.items()}

    def _run(self, task: int, device: Numbers) -> Array:
        """The end of a task on its device, in each prefix."""
        rows = np.arange(len(device))
        start = self.free[device, rows]
        for index in self.reads[task]:
            start = np.maximum(start, self._arrival(index, device, rows))
        times = np.array([INFINITY if ns is None else ns for ns in self.problem.tasks[task].ns])
        end: Array = start + times[device]
        self.free[device, rows] = end
        if made := self.makes[task]:
            arrivals = np.full((len(made), *self.free.shape), INFINITY)
            arrivals[:, device, rows] = end
            self.open += made
            self.arrivals = np.concatenate([self.arrivals, arrivals])
            self.source = np.concatenate([self.source, np.tile(device, (len(made), 1))])
        group = self.groups[task]
        self.device_of[group] = device
        if self.last_of[group] == task:
            del self.device_of[group]
        read = [at for at, index in enumerate(self.open) if self.last_read[index] > task]
        if len(read) < len(self.open):
            self.open = [self.open[at] for at in read]
            self.arrivals, self.source = self.arrivals[read], self.source[read]
        return end

    def _arrival(self, index: int, device: Numbers, rows: Numbers) -> Array:
        """The arrival of a tensor at its reader; it is sent there if necessary."""
        at, tensor = self.open.index(index), self.problem.tensors[index]
        source, known = self.source[at], self.arrivals[at, device, rows]
        sent = np.isinf(known)
        until = self.busy[source, device, rows]
        leaves = np.maximum(self.arrivals[at, source, rows], until)
        leaves += tensor.bytes * self.ns_per_byte[source, device]
        self.busy[source, device, rows] = np.where(sent, leaves, until)
        ends = self.problem.ends_ns(tensor)
        ends = ends + tensor.bytes * self.end_ns[source, device]
        comes = leaves + (self.waits[source, device] + ends)
        arrival: Array = np.where(sent, comes, known)
        self.arrivals[at, device, rows] = arrival
        return arrival

    def _most_promising(self, task: Task, end: Array) -> Numbers:
        """The prefixes with the least estimates, one of those that are in the same state."""
        is_there = np.isfinite(self.arrivals)
        state = (is_there * self.is_at[self.open][:, :, None]).sum(axis=(0, 1))
        for at, index in enumerate(self.open):
            state += self.made_at[index][self.source[at]]
        for group, device in self.device_of.items():
            state += self.runs_at[group][device]
        spread = self.free.mean(axis=0) + self.left[len(self.history)]
        value = self.spent + task.rate * np.maximum(self.estimate, spread)
        order = np.lexsort((end, value))
        order = order[np.isfinite(value[order])]
        _, firsts = np.unique(state[order], return_index=True)
        kept: Numbers = order[np.sort(firsts)[:_KEPT]]
        return kept


def _best_tails(problem: Problem) -> list[float]:
    """Per task the longest chain that follows its end, at best times, as if nothing were sent."""
    best = [min((ns for ns in task.ns if ns is not None), default=0.0) for task in problem.tasks]
    tails = [0.0] * len(best)
    makes: list[list[int]] = [[] for _ in best]
    for tensor in problem.tensors:
        makes[tensor.producer] += tensor.consumers
    for task in reversed(range(len(best))):
        tails[task] = max((best[n] + tails[n] for n in makes[task] if n > task), default=0.0)
    return tails


def _best_left(problem: Problem) -> list[float]:
    """Per task what follows it in its trace at best times, spread evenly over the devices."""
    left, rest, trace = [0.0] * len(problem.tasks), 0.0, -1
    for index in reversed(range(len(left))):
        task = problem.tasks[index]
        rest = rest if task.trace == trace else 0.0
        left[index], trace = rest / len(problem.devices), task.trace
        rest += min((ns for ns in task.ns if ns is not None), default=0.0)
    return left
