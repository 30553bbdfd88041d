"""When steps end, by simulation: launch programs followed exactly, or rates derived from them.

In: a plan's replicas on some hardware. Out: a `StepClock`, which takes the step that a batch begins
and says which batch ends its step next. Batches are numbered across all replicas, those of the
first replica first, as `tessera.Runtime` numbers its sequences.

`ExactClock` follows every operation of every step. `RatedClock` takes from such simulations the
time of a step alone, its time beside more steps of its kind, and its time on every device. A device
does one thing after the other: a step ends when each of its devices has done its part of it, after
the parts of steps that began earlier, and not before it would end alone. Beside other steps of its
replica, its parts are longer by as much as these delay each other in the simulation. The order in
which a device does its parts is not modelled.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Protocol

from tessera.driver.serve.batches import StepSize, StepWork
from tessera.ir.plan.plan import Replica
from tessera.simulation.hardware import Hardware
from tessera.simulation.intake import SimulatedReplica
from tessera.simulation.known_work import work_of
from tessera.simulation.simulate import alone, with_counts
from tessera.simulation.steady import largest_load_ns, saturate
from tessera.simulation.stepwise import StepwiseLoop
from tessera.simulation.work import COMPUTE


class StepClock(Protocol):
    """Says when steps end."""

    def begin(self, work: StepWork, now_ns: float) -> None:
        """A batch begins a step."""

    def ended(self, until_ns: float) -> tuple[float, list[int]]:
        """The next time at which steps end, with their batches; none after `until_ns`."""

    def busy_ns(self) -> Mapping[str, float]:
        """Nanoseconds that each device has computed."""


def batches_of(replicas: Sequence[Replica]) -> list[tuple[int, int]]:
    """The replica and the sequence of every batch."""
    return [
        (index, sequence)
        for index, replica in enumerate(replicas)
        for sequence in range(replica.lanes)
    ]


def without_hand_overs(replicas: Sequence[Replica]) -> list[Replica]:
    """The same replicas for steps alone: the scheduler says who is handed over, and when."""
    return [replace(own, hand_overs=()) if own.hand_overs else own for own in replicas]


class ExactClock:
    """The launch programs of every step, operation by operation."""

    def __init__(self, replicas: Sequence[Replica], hardware: Hardware) -> None:
        replicas = without_hand_overs(replicas)
        works = work_of(replicas, hardware)
        self._places = batches_of(replicas)
        self._batches = {place: number for number, place in enumerate(self._places)}
        self._devices = {d for replica in replicas for d in replica.lowered.devices}
        self._loop = StepwiseLoop(
            [
                SimulatedReplica(
                    work=work,
                    slots=replica.slots,
                    sequences=replica.lanes,
                    depth=hardware.depth,
                    coming=iter(()),
                )
                for replica, work in zip(replicas, works, strict=True)
            ],
            hardware.capacities,
            hardware.neighbours,
        )

    def begin(self, work: StepWork, now_ns: float) -> None:
        """Hand the step in as a request of its trace."""
        replica, sequence = self._places[work.batch]
        self._loop.hand_in(replica, work.trace, sequence, now_ns)

    def ended(self, until_ns: float) -> tuple[float, list[int]]:
        """Follow the loop until something ends."""
        at_ns, places = self._loop.go_on(until_ns)
        return at_ns, [self._batches[place] for place in places]

    def busy_ns(self) -> Mapping[str, float]:
        """Nanoseconds that each device has computed, by the loop."""
        busy = self._loop.busy_ns()
        return {name: ns for name, ns in busy.items() if name in self._devices}


class RatedClock:
    """Ends steps by rates from simulations of each trace."""

    def __init__(
        self,
        replicas: Sequence[Replica],
        hardware: Hardware,
        traces: int,
        between: Sequence[StepSize] = (),
    ) -> None:
        """`between` says whether times of sizes that no trace has are interpolated."""
        replicas = without_hand_overs(replicas)
        self._sizes = tuple(between)
        self._places = batches_of(replicas)
        self._events: list[tuple[float, int]] = []
        self._free_ns: dict[str, float] = {}
        self._under_way = [0] * len(replicas)
        self._counts = [[0] * traces for _ in replicas]
        known: dict[object, list[tuple[list[float], float]]] = {}
        self._times: list[list[tuple[list[float], float]]] = []
        works = work_of(replicas, hardware)
        self._loads: list[list[dict[str, float]]] = []
        for replica, work in zip(replicas, works, strict=True):
            key = (
                tuple(
                    (trace, tuple((n.kind, n.ns, n.after, n.rate) for n in own.nodes))
                    for trace, own in work.items()
                ),
                (replica.slots, replica.lanes),
            )
            if key not in known:
                known[key] = [
                    _rates(replica, hardware, n, traces) if n in work else ([0.0], 0.0)
                    for n in range(traces)
                ]
            self._times.append(known[key])
            loads: list[dict[str, float]] = [{} for _ in range(traces)]
            for trace, own in work.items():
                for node in own.nodes:
                    if node.kind == COMPUTE:
                        name = node.place[0]
                        loads[trace][name] = loads[trace].get(name, 0.0) + node.ns
            self._loads.append(loads)

    def begin(self, work: StepWork, now_ns: float) -> None:
        """Begin a step, with its time given the steps under way."""
        heapq.heappush(self._events, (self.expect(work, now_ns), work.batch))

    def expect(self, work: StepWork, now_ns: float) -> float:
        """When a step that begins now ends; a caller that does not use `ended` calls `leave`."""
        replica, _ = self._places[work.batch]
        trace = work.trace
        cycles, period = self._times[replica][trace]
        beside = min(self._under_way[replica], len(cycles) - 1)
        part = 1.0
        if self._sizes:
            part = self._between(replica, work) / cycles[0] if cycles[0] else 1.0
        longer = part
        if beside and period:
            longer *= max(1.0, cycles[beside] / (beside + 1) / period)
        end_ns = now_ns + cycles[0] * part
        free = self._free_ns
        for name, load in self._loads[replica][trace].items():
            begun = free.get(name, 0.0)
            free[name] = done = (begun if begun > now_ns else now_ns) + load * longer
            if done > end_ns:
                end_ns = done
        self._under_way[replica] += 1
        self._counts[replica][trace] += 1
        return end_ns

    def leave(self, batch: int) -> None:
        """Remove an expected step that has ended, at whatever time."""
        replica = self._places[batch][0]
        self._under_way[replica] -= 1
        if not self._under_way[replica]:
            for load in self._loads[replica]:
                for name in load:
                    self._free_ns.pop(name, None)

    def _between(self, replica: int, work: StepWork) -> float:
        """The time alone of a step of exactly these rows and context, between those of traces."""
        levels: dict[int, list[tuple[float, float]]] = {}
        for size in self._sizes:
            if size.tokens == work.size.tokens:
                way = work.trace - work.size.trace
                time_ns = self._times[replica][size.trace + way][0][0]
                levels.setdefault(size.context, []).append((size.rows, time_ns))
        by_context = [
            (float(context), interpolated(sorted(points), work.rows))
            for context, points in sorted(levels.items())
        ]
        return interpolated(by_context, work.reach)

    def ended(self, until_ns: float) -> tuple[float, list[int]]:
        """The earliest of the ends."""
        at_ns, batches = earliest(self._events, until_ns)
        for number in batches:
            self._under_way[self._places[number][0]] -= 1
        return at_ns, batches

    def busy_ns(self) -> Mapping[str, float]:
        """Nanoseconds of every device that the begun steps take."""
        busy: dict[str, float] = {}
        for counts, loads in zip(self._counts, self._loads, strict=True):
            for count, load in zip(counts, loads, strict=True):
                for name, ns in load.items():
                    busy[name] = busy.get(name, 0.0) + count * ns
        return busy

    def alone_ns(self, trace: int, replica: int) -> float:
        """Nanoseconds of a step of a trace on a replica that does nothing else."""
        return self._times[replica][trace][0][0]

    def step_ns(self, trace: int, replicas: Sequence[int]) -> float:
        """Nanoseconds between two steps of a trace on these replicas together, if never idle.

        As `find_prices` needs it.
        """
        rate = sum(
            len(self._times[number][trace][0]) / (self._times[number][trace][0][-1] or 1.0)
            for number in replicas
        )
        return 1 / rate


def earliest(events: list[tuple[float, int]], until_ns: float) -> tuple[float, list[int]]:
    """Take the earliest events up to a time off a heap: their time, and their batches."""
    if not events or events[0][0] > until_ns:
        return until_ns, []
    at_ns, batch = heapq.heappop(events)
    batches = [batch]
    while events and events[0][0] == at_ns:
        batches.append(heapq.heappop(events)[1])
    return at_ns, batches


def interpolated(points: Sequence[tuple[float, float]], at: float) -> float:
    """Linear between the two points around `at`; outside of all, the value of the nearest point."""
    for (left, low), (right, high) in pairwise(points):
        if left <= at <= right:
            return low + (high - low) * (at - left) / (right - left)
    return points[0][1] if at < points[0][0] else points[-1][1]


def _rates(
    replica: Replica, hardware: Hardware, trace: int, traces: int
) -> tuple[list[float], float]:
    """The time of a step with 0, 1, ... more beside it, and its time on its busiest device."""
    shares = [float(number == trace) for number in range(traces)]
    if replica.shares:  # its steps take as long whatever part of the requests it serves
        replica = replace(replica, share=1.0, shares=())
    whole = with_counts(replica, replica.slots, replica.lanes)
    (work,) = work_of([whole], hardware)
    cycles = [alone([whole], shares, hardware)]
    for count in range(2, replica.lanes + 1):
        fewer = with_counts(replica, min(replica.slots, count), count)
        cycles.append(count * saturate([fewer], shares, hardware).period_ns / replica.share)
    load = largest_load_ns([whole], [work], shares, hardware) / replica.share
    return cycles, load
