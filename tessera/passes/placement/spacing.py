"""How far apart requests should begin.

In: a `Problem`, a placement, slots. Out: a `Spacing`: the task after which the next request may
begin, and the period that follows. Requests that begin together go from device to device together:
on each of them they wait for each other while the others idle, and nothing breaks the pattern. A
gate does: the next request begins when the one before has ended a certain task.

Which task is found by trial. Several requests are followed through the devices: a device runs one
task at a time, whichever came first, and the tasks of a request on it in program order; a transfer
takes its time on its way, where it waits for those before it. Times are also tried with an error,
since a gate that serves only for exact times is none. Many short tasks on one device count as one.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tessera.passes.placement.problem import INFINITY, Placement, Problem, measure

GOOD_ENOUGH = 1.01
MOST_GATES = 24
MOST_EVENTS = 300_000
_ERROR = 0.05
_ROUNDS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Spacing:
    """The task that is the gate, None where none is needed, and nanoseconds per request."""

    gate: int | None
    period_ns: float


@dataclass(frozen=True, slots=True)
class Stop:
    """A stay of a request at a device or on a wire: where, how long, and what comes after it.

    `delay_ns` passes between its end and what comes after.
    """

    place: tuple[int, ...]
    ns: float
    task: int | None
    before: int
    delay_ns: float
    after: tuple[int, ...]


def find_spacing(problem: Problem, placement: Placement, slots: int) -> Spacing:
    """The gate that gives the shortest period for one trace on several devices.

    The period is never shorter than that of `measure`: infinite where the placement cannot run.
    """
    problem, placement = problem.in_detail(placement)
    least = measure(problem, placement).period_ns
    if not least < INFINITY:
        return Spacing(gate=None, period_ns=least)
    stops = stops_of(problem, placement)
    least = max(least, _busiest(stops))
    requests = slots * _ROUNDS
    stops = in_fewer(stops, MOST_EVENTS // (MOST_GATES * requests))
    if slots < 2 or len(set(placement)) < 2 or 4 * requests * len(stops) > MOST_EVENTS:
        return Spacing(gate=None, period_ns=least)

    def judged(gate: int | None) -> float:
        return max(least, *(follow(stops, slots, requests, gate, seed) for seed in (None, 1)))

    best = Spacing(gate=None, period_ns=judged(None))
    trials = MOST_EVENTS // (2 * requests * len(stops))
    for gate in _gates(stops, least, min(MOST_GATES, trials)):
        if best.period_ns <= GOOD_ENOUGH * least:
            break
        period = judged(gate)
        if period < best.period_ns:
            best = Spacing(gate=gate, period_ns=period)
    return best


def stops_of(problem: Problem, placement: Placement) -> list[Stop]:
    """The stays of one request, tasks first."""
    wires = {(wire.source, wire.target): wire for wire in problem.wires}
    after: list[list[int]] = [[] for _ in placement]
    before = [0] * len(placement)
    last: dict[int, int] = {}
    moves: list[Stop] = []
    for task, place in enumerate(placement):
        if place in last:
            after[last[place]].append(task)
            before[task] += 1
        last[place] = task
    for tensor in problem.tensors:
        source = placement[tensor.producer]
        for target in sorted({placement[reader] for reader in tensor.consumers} - {source}):
            wire = wires[source, target]
            # The first reader waits; those behind it on the device come after it anyway.
            reader = min(task for task in tensor.consumers if placement[task] == target)
            after[tensor.producer].append(len(placement) + len(moves))
            before[reader] += 1
            moves.append(
                Stop(
                    (source, target),
                    tensor.bytes * wire.ns_per_byte,
                    None,
                    1,
                    wire.latency_ns + problem.transfer_ns * tensor.count,
                    (reader,),
                )
            )
    tasks = [
        Stop(
            (place,),
            problem.tasks[task].ns[place] or 0.0,
            task,
            before[task],
            0.0,
            tuple(after[task]),
        )
        for task, place in enumerate(placement)
    ]
    return tasks + moves


def in_fewer(stops: list[Stop], most: int) -> list[Stop]:
    """About so many stays, where tasks that nobody else waits for can be taken together.

    The last of them stands for all. They stay short against what a request does on a device.
    """
    if len(stops) <= most:
        return stops
    longest = 2 * sum(stop.ns for stop in stops if stop.task is not None) / max(most, 1)
    numbers: dict[int, int] = {}
    joined: list[Stop] = []
    taken = [False] * len(stops)
    for first, stop in enumerate(stops):
        if taken[first]:
            continue
        last, ns = stop, stop.ns
        while stop.task is not None and len(last.after) == 1:
            following = stops[last.after[0]]
            single = following.place == stop.place and following.before == 1
            if not single or ns + following.ns > longest:
                break
            taken[last.after[0]] = True
            last, ns = following, ns + following.ns
        numbers[first] = len(joined)
        joined.append(replace(last, ns=ns, before=stop.before))
    return [replace(stop, after=tuple(numbers[number] for number in stop.after)) for stop in joined]


def _busiest(stops: Sequence[Stop]) -> float:
    loads: dict[tuple[int, ...], float] = {}
    for stop in stops:
        loads[stop.place] = loads.get(stop.place, 0.0) + stop.ns
    return max(loads.values(), default=0.0)


def _gates(stops: Sequence[Stop], least: float, most: int) -> list[int]:
    """Tasks to try: spread over what a request does alone in the time of one period."""
    order, time = [], 0.0
    for stop in stops:
        if stop.task is None or time > least:
            break
        time += stop.ns
        order.append(stop.task)
    step = max(1, -(-len(order) // max(most, 1)))
    chosen = order[step - 1 :: step]
    # The most promising first: about half a period apart.
    middle = {task: abs(place - len(order) / 2) for place, task in enumerate(order)}
    return sorted(chosen, key=lambda task: middle[task])


def follow(
    stops: Sequence[Stop], slots: int, requests: int, gate: int | None, seed: int | None
) -> float:
    """Nanoseconds per request in the steady state, `slots` requests under way."""
    return _Following(stops, slots, gate, seed).period(requests)


class _Following:
    """Requests on their way."""

    def __init__(
        self, stops: Sequence[Stop], slots: int, gate: int | None, seed: int | None
    ) -> None:
        self.stops = stops
        self.gate = gate
        self.free_slots = slots
        self.is_open = True
        self.random = None if seed is None else random.Random(seed)
        self.events: list[tuple[float, int, int, int]] = []
        self.count = 0
        self.begun = 0
        self.missing: dict[int, list[int]] = {}
        self.left: dict[int, int] = {}
        self.queues: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        self.busy: set[tuple[int, ...]] = set()
        self.done: list[float] = []

    def period(self, requests: int) -> float:
        self._begin_all(0.0)
        while self.events and len(self.done) < requests:
            time, _, request, number = heapq.heappop(self.events)
            if number >= 0:
                self._arrive(time, request, number)
            else:
                self._end(time, request, ~number)
        # Requests may end in bunches: so many of them that it does not matter.
        first = len(self.done) // 4
        return (self.done[-1] - self.done[first]) / (len(self.done) - 1 - first)

    def _begin_all(self, time: float) -> None:
        while self.free_slots and self.is_open:
            request, self.begun = self.begun, self.begun + 1
            self.free_slots -= 1
            self.is_open = self.gate is None
            self.missing[request] = [stop.before for stop in self.stops]
            self.left[request] = len(self.stops)
            for number, stop in enumerate(self.stops):
                if not stop.before:
                    self._push(time, request, number)

    def _push(self, time: float, request: int, number: int) -> None:
        self.count += 1
        heapq.heappush(self.events, (time, self.count, request, number))

    def _arrive(self, time: float, request: int, number: int) -> None:
        place = self.stops[number].place
        self.queues.setdefault(place, []).append((request, number))
        self._serve(time, place)

    def _serve(self, time: float, place: tuple[int, ...]) -> None:
        if place in self.busy or not self.queues[place]:
            return
        request, number = self.queues[place].pop(0)
        ns = self.stops[number].ns
        if self.random is not None:
            ns *= 1 + _ERROR * self.random.uniform(-1, 1)
        self.busy.add(place)
        self._push(time + ns, request, ~number)

    def _end(self, time: float, request: int, number: int) -> None:
        stop = self.stops[number]
        self.busy.discard(stop.place)
        missing = self.missing[request]
        for follower in stop.after:
            missing[follower] -= 1
            if not missing[follower]:
                self._push(time + stop.delay_ns, request, follower)
        self.left[request] -= 1
        if self.gate is not None and stop.task == self.gate and request == self.begun - 1:
            self.is_open = True
        if not self.left[request]:
            self.done.append(time)
            self.free_slots += 1
            del self.missing[request], self.left[request]
        self._begin_all(time)
        self._serve(time, stop.place)
