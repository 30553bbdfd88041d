"""Bounds without a solver, on the period and on the time of one request.

In: a `Problem`. Out: nanoseconds. The period is bounded by times alone, as if nothing had to be
moved or stored. With any weights w of the devices that add up to one, no plan is
faster than the sum over tasks of the least w[g] * time[k, g]: a period is at least the weighted sum
of the devices' loads. That holds for plans that share requests among placements, too. The weights
are moved towards busy devices for some rounds; for two devices the best are found exactly.

A request takes no less: a device does its tasks one by one. It takes no less than any chain of
tasks, either, with the transfers between them: on each device a task ends no earlier than after the
latest of what it reads has come there from wherever that is soonest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tessera.planning.problem.problem import INFINITY, Problem, Tensor

_ROUNDS = 60
_HALVINGS = 60

Array = NDArray[np.float64]


def spread_bound(problem: Problem) -> float:
    """No plan has a shorter period."""
    if not problem.tasks:
        return 0.0
    times = np.array(
        [[INFINITY if ns is None else ns * task.rate for ns in task.ns] for task in problem.tasks]
    )
    times = times[:, np.isfinite(times).any(axis=0)]
    if not np.isfinite(times).any(axis=1).all():
        return INFINITY
    if times.shape[1] == 2:
        return _of_two(times)
    return _of_many(times)


def request_bound(problem: Problem) -> float:
    """No request of a problem with one trace is shorter."""
    count = len(problem.devices)
    per_byte, waits = np.zeros((count, count)), np.full((count, count), INFINITY)
    np.fill_diagonal(waits, 0.0)
    for wire in problem.wires:
        per_byte[wire.source, wire.target] = wire.ns_per_byte
        waits[wire.source, wire.target] = wire.latency_ns
    tax = problem.transfer_ns * (1.0 - np.eye(count))
    reads: list[list[Tensor]] = [[] for _ in problem.tasks]
    for tensor in problem.tensors:
        for reader in tensor.consumers:
            reads[reader].append(tensor)
    ends = np.zeros((len(problem.tasks), count))
    longest = 0.0
    for index, task in enumerate(problem.tasks):
        start = np.zeros(count)
        for tensor in reads[index]:
            ways = tensor.bytes * per_byte + waits + tensor.count * tax
            start = np.maximum(start, (ends[tensor.producer][:, None] + ways).min(axis=0))
        ends[index] = start + [INFINITY if ns is None else ns for ns in task.ns]
        longest = max(longest, float(ends[index].min()))
    rate = problem.tasks[0].rate if problem.tasks else 1.0
    return max(longest, spread_bound(problem) / rate if rate > 0 else 0.0)


def _of_two(times: Array) -> float:
    """The weights at which both devices are busy for as long, by halving."""
    best, low, high = 0.0, 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        value, loads = _weighed(times, np.array([middle, 1 - middle]))
        best = max(best, value)
        if loads[0] > loads[1]:
            low = middle
        else:
            high = middle
    return best


def _of_many(times: Array) -> float:
    weights = np.full(times.shape[1], 1 / times.shape[1])
    best = 0.0
    for number in range(_ROUNDS):
        value, loads = _weighed(times, weights)
        best = max(best, value)
        largest = float(loads.max())
        if largest <= 0:
            break
        weights = weights * np.exp(loads / largest / (1 + number / 4))
        weights /= weights.sum()
    return best


def _weighed(times: Array, weights: Array) -> tuple[float, Array]:
    """The bound of some weights, and the loads where every task is where it weighs least."""
    with np.errstate(invalid="ignore"):
        weighed = np.where(np.isinf(times), INFINITY, times * weights)
    chosen = weighed.argmin(axis=1)
    loads = np.zeros(times.shape[1])
    np.add.at(loads, chosen, times[np.arange(len(times)), chosen])
    return float(weighed.min(axis=1).sum()), loads
