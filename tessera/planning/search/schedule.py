"""When the tasks of one request start and end, for a placement.

In: a `Problem` and a placement. Out: `RequestTimes`: the time of a request, and of each cycle. A
device runs its tasks in program order, one by one; a task starts when its device is free and all it
reads has arrived; a transfer starts when its tensor is made and the transfers before it on the same
pair have left, and takes its bytes, the latency and both ends. A cycle lasts from the
start of its first task to the end of its last: the next request of the same lane waits that long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tessera.planning.problem.problem import INFINITY, Placement, Problem

_NOTED = 64  # tasks from one noted course to the next


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
    starts, ends = [0.0] * len(placement), [0.0] * len(placement)
    for n, start, end in _Requests(problem).walk(placement, _Course(len(placement))):
        starts[n], ends[n] = start, end
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


class _Course:
    """How far devices and pairs are, and when tasks can start; every trace starts at 0."""

    def __init__(self, tasks: int) -> None:
        self.free: dict[tuple[int, int], float] = {}
        self.busy: dict[tuple[int, int, int], float] = {}
        self.ready = [0.0] * tasks
        self.longest: dict[int, float] = {}

    def copy(self) -> _Course:
        """An independent copy."""
        other = _Course(0)
        other.free, other.busy = self.free.copy(), self.busy.copy()
        other.ready, other.longest = self.ready.copy(), self.longest.copy()
        return other


class _Requests:
    """Precomputed data for walks over a problem's tasks."""

    def __init__(self, problem: Problem) -> None:
        self.tasks = [(task.trace, task.ns) for task in problem.tasks]
        self.rates = {task.trace: task.rate for task in problem.tasks}
        self.made: list[list[tuple[float, float, tuple[int, ...]]]] = [[] for _ in problem.tasks]
        for tensor in problem.tensors:
            ends = problem.ends_ns(tensor)
            self.made[tensor.producer].append((tensor.bytes, ends, tensor.consumers))
        self.wires = {
            (wire.source, wire.target): (
                wire.ns_per_byte,
                wire.latency_ns,
                2 * wire.end_ns_per_byte,
            )
            for wire in problem.wires
        }

    def walk(
        self, placement: Sequence[int], course: _Course, first: int = 0
    ) -> Iterator[tuple[int, float, float]]:
        """Each task from the first on with its start and end; `course` goes along."""
        free, busy, ready, longest = course.free, course.busy, course.ready, course.longest
        for index in range(first, len(placement)):
            (trace, times), place = self.tasks[index], placement[index]
            ns = times[place]
            start = max(free.get((trace, place), 0.0), ready[index])
            end = start + (INFINITY if ns is None else ns)
            free[trace, place] = end
            longest[trace] = max(longest.get(trace, 0.0), end)
            for size, ends, consumers in self.made[index]:
                arrival = {place: end}
                for target in sorted({placement[reader] for reader in consumers} - {place}):
                    wire = self.wires.get((place, target))
                    if wire is None:
                        arrival[target] = INFINITY
                        continue
                    way = trace, place, target
                    leaves = max(end, busy.get(way, 0.0)) + size * wire[0]
                    busy[way] = leaves
                    arrival[target] = leaves + (wire[1] + (ends + size * wire[2]))
                for reader in consumers:
                    ready[reader] = max(ready[reader], arrival[placement[reader]])
            yield index, start, end

    def latency(self, course: _Course) -> float:
        """The time of a request, after a whole walk."""
        return sum(end * self.rates[trace] for trace, end in course.longest.items())

    def tails(self, placement: Sequence[int]) -> list[float]:
        """For each task, the minimum time after its end if transfers never waited for each
        other."""
        tails, after = [0.0] * len(placement), dict[tuple[int, int], float]()
        for index in reversed(range(len(placement))):
            (trace, times), place = self.tasks[index], placement[index]
            tail = after.get((trace, place), 0.0)
            for size, ends, consumers in self.made[index]:
                for reader in consumers:
                    if reader > index:
                        there = placement[reader]
                        wire = self.wires.get((place, there), (INFINITY, 0.0, 0.0))
                        moved = size * wire[0] + (wire[1] + (ends + size * wire[2]))
                        way = 0.0 if there == place else moved
                        ns = self.tasks[reader][1][there]
                        tail = max(tail, way + (INFINITY if ns is None else ns) + tails[reader])
            tails[index] = tail
            ns = times[place]
            after[trace, place] = tail + (INFINITY if ns is None else ns)
        return tails


class MovedRequest:
    """The time of a request while single tasks move: walks begin near the task that moves.

    With one trace, a walk ends as soon as what is left cannot be short enough any more.
    """

    def __init__(self, problem: Problem, placement: Placement) -> None:
        base, _ = problem.in_detail(placement)
        groups = range(len(placement)) if problem.detail is None else problem.detail.groups
        self.requests = _Requests(base)
        self.members: list[list[int]] = [[] for _ in placement]
        for task, group in enumerate(groups):
            self.members[group].append(task)
        self.place = [placement[group] for group in groups]
        # The first task whose walk asks where a task is.
        self.asked = list(range(len(self.place)))
        for tensor in base.tensors:
            for reader in tensor.consumers:
                self.asked[reader] = min(self.asked[reader], tensor.producer)
        self.courses = [_Course(len(self.place))]
        self._note(0)

    def _note(self, first: int) -> None:
        """Walk the request from a noted course on, and note new ones."""
        del self.courses[first + 1 :]
        course = self.courses[first].copy()
        for index, _, _ in self.requests.walk(self.place, course, first * _NOTED):
            if (index + 1) % _NOTED == 0:
                self.courses.append(course.copy())
        self.tails = self.requests.tails(self.place) if len(course.longest) == 1 else None

    def move(self, task: int, device: int) -> None:
        """Move a task for good."""
        for member in self.members[task]:
            self.place[member] = device
        self._note(self._noted(task))

    def _noted(self, task: int) -> int:
        """The last noted course that does not ask where a task is."""
        return min(self.asked[member] for member in self.members[task]) // _NOTED

    def latency_if(self, task: int, device: int, below: float) -> float:
        """The time with a task elsewhere; infinite if it is certainly not below a limit."""
        members = self.members[task]
        place = self.place.copy()
        for member in members:
            place[member] = device
        noted, last = self._noted(task), max(members)
        course, tails = self.courses[noted].copy(), self.tails
        rate = next(iter(self.requests.rates.values()))
        most = below * (1 + 1e-10)  # sums in another order differ by rounding
        for index, _, end in self.requests.walk(place, course, noted * _NOTED):
            if tails is not None and index > last and (end + tails[index]) * rate > most:
                return INFINITY
        return self.requests.latency(course)
