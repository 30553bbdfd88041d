"""When the tasks of one request start and end, for a placement.

In: a `Problem` and a placement. Out: `RequestTimes`: the time of a request, and of each cycle. A
device runs its tasks in program order, one by one; a task starts when its device is free and all it
reads has arrived; a transfer starts when its tensor is made and the transfers before it on the same
pair have left, and takes the wire's latency, `transfer_ns` and its bytes. A cycle lasts from the
start of its first task to the end of its last: the next request of the same lane waits that long.
"""

from __future__ import annotations

from dataclasses import dataclass

from tessera.passes.placement.problem import INFINITY, Placement, Problem, Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTimes:
    """Per unit of the mix: the sum over traces of how often each runs times its request's time."""

    latency_ns: float
    cycles: tuple[tuple[str, bool, float], ...] = ()  # (name, alone, nanoseconds)


def latency_of(problem: Problem, placement: Placement) -> float:
    """Nanoseconds from the start of a request to the end of its last task."""
    return request_times(problem, placement).latency_ns


def request_times(problem: Problem, placement: Placement) -> RequestTimes:
    """The time of a request and of its cycles."""
    problem, placement = problem.in_detail(placement)
    starts, ends = _walk(problem, placement)
    longest: dict[int, float] = {}
    for task, end in zip(problem.tasks, ends, strict=True):
        longest[task.trace] = max(longest.get(task.trace, 0.0), end)
    rates = {task.trace: task.rate for task in problem.tasks}
    cycles: dict[tuple[str, bool, int], float] = {}
    for cycle in problem.cycles:
        key = cycle.name, cycle.alone, problem.tasks[cycle.first].trace
        cycles[key] = max(cycles.get(key, 0.0), ends[cycle.last] - starts[cycle.first])
    shared: dict[tuple[str, bool], float] = {}
    for (name, alone, trace), length in cycles.items():
        shared[name, alone] = shared.get((name, alone), 0.0) + length * rates[trace]
    return RequestTimes(
        latency_ns=sum(longest[trace] * rates[trace] for trace in longest),
        cycles=tuple((name, alone, length) for (name, alone), length in shared.items()),
    )


def _walk(problem: Problem, placement: Placement) -> tuple[list[float], list[float]]:
    """When each task starts and ends; every trace starts at 0 on free devices."""
    wires = {(wire.source, wire.target): wire for wire in problem.wires}
    made: dict[int, list[Tensor]] = {}
    for tensor in problem.tensors:
        made.setdefault(tensor.producer, []).append(tensor)
    free: dict[tuple[int, int], float] = {}
    busy: dict[tuple[int, int, int], float] = {}
    ready = [0.0] * len(placement)
    starts, ends = [], []
    for index, (task, place) in enumerate(zip(problem.tasks, placement, strict=True)):
        ns = task.ns[place]
        start = max(free.get((task.trace, place), 0.0), ready[index])
        end = start + (INFINITY if ns is None else ns)
        free[task.trace, place] = end
        starts.append(start)
        ends.append(end)
        for tensor in made.get(index, ()):
            arrival = {place: end}
            for target in sorted({placement[reader] for reader in tensor.consumers} - {place}):
                wire = wires.get((place, target))
                if wire is None:
                    arrival[target] = INFINITY
                    continue
                way = task.trace, place, target
                leaves = max(end, busy.get(way, 0.0)) + tensor.bytes * wire.ns_per_byte
                busy[way] = leaves
                delay = wire.latency_ns + problem.transfer_ns * tensor.count
                arrival[target] = leaves + delay
            for reader in tensor.consumers:
                ready[reader] = max(ready[reader], arrival[placement[reader]])
    return starts, ends
