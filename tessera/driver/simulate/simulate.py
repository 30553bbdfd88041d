"""`simulate`: what a plan's launch programs take, request by request.

In: a `Plan` and a `Hardware`, how many slots and sequences, when requests come, a seed for noise.
Out: a `Simulation`: rate, latencies, how busy everything was.

Requests come back to back (`saturate`), and the rate is that of the steady state; or at given
times (`arrive`). Replicas get their shares of the requests; where they come back to back, the
replica that is slowest for its share sets the rate of all.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tessera.driver.simulate.events import Coming, EventLoop, Passage, SimulatedReplica, Traffic
from tessera.driver.simulate.hardware import Hardware
from tessera.driver.simulate.work import RequestWork, request_work
from tessera.ir.plan.plan import Plan, Replica

ROUNDS = 12
"""Requests per slot that are followed for a steady state."""

LEAST_REQUESTS = 24
WARM_UP = 1 / 3
"""The share of requests that do not count, because the first ones find everything free."""

_NINE_IN_TEN = 1.6449
"""Standard deviations on either side that nine of ten draws are within."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What came out. `period_ns` is the time between two requests of the whole plan.

    `latencies_ns` are from the beginning of a request to its end, `responses_ns` from when it came;
    both of the requests that count, sorted. `busy` is the share of the time, by device and path.
    """

    period_ns: float
    latencies_ns: tuple[float, ...]
    responses_ns: tuple[float, ...]
    busy: Mapping[str, float]
    traffic: Traffic

    @property
    def latency_ns(self) -> float:
        """The median."""
        return percentile(self.latencies_ns, 0.5)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of sorted values that so large a share of them does not exceed; 0 of none."""
    if not values:
        return 0.0
    return values[max(0, math.ceil(share * len(values)) - 1)]


def saturate(
    plan: Plan,
    hardware: Hardware,
    *,
    policy: str | None = None,
    requests: int | None = None,
    seed: int | None = None,
    timeline: bool = False,
) -> Simulation:
    """Requests back to back, as many under way as there are slots."""
    replicas = replicas_of(plan, policy)
    works = work_of(replicas, hardware, seed)
    shares = tuple(trace.share for trace in plan.traces)
    enough = [
        requests or max(LEAST_REQUESTS, ROUNDS * replica.slots * hardware.depth)
        for replica in replicas
    ]
    loop = EventLoop(
        [
            SimulatedReplica(
                work=work,
                slots=replica.slots,
                sequences=replica.lanes,
                depth=hardware.depth,
                coming=always(shares, replica.lanes),
            )
            for replica, work in zip(replicas, works, strict=True)
        ],
        hardware.capacities,
        keep_timeline=timeline,
    )
    traffic = loop.run(enough)
    periods = []
    counted: list[Passage] = []
    for index, replica in enumerate(replicas):
        own = [passage for passage in traffic.passages if passage.replica == index]
        steady = own[int(WARM_UP * len(own)) :]
        counted += steady
        periods.append(replica.share * steady_period(steady))
    return _summary(max(periods, default=0.0), counted, traffic)


def steady_period(passages: Sequence[Passage]) -> float:
    """The mean time between two ends."""
    if len(passages) < 2:
        return passages[0].ended_ns if passages else 0.0
    return (passages[-1].ended_ns - passages[0].ended_ns) / (len(passages) - 1)


def alone(plan: Plan, hardware: Hardware, *, policy: str | None = None) -> float:
    """The time of a request that finds everything free: the mean of the traces, by their shares.

    Of several replicas it is the slowest one's.
    """
    slowest = 0.0
    replicas = replicas_of(plan, policy)
    whole = sum(trace.share for trace in plan.traces)
    for work in work_of(replicas, hardware):
        mean = 0.0
        for number, trace in enumerate(plan.traces):
            coming = iter((Coming(0.0, number, 0),))
            loop = EventLoop(
                [SimulatedReplica(work=work, slots=1, sequences=1, depth=1, coming=coming)],
                hardware.capacities,
            )
            passage = loop.run().passages[0]
            mean += trace.share / whole * (passage.ended_ns - passage.began_ns)
        slowest = max(slowest, mean)
    return slowest


def arrive(
    plan: Plan,
    hardware: Hardware,
    times_ns: Iterable[float],
    *,
    policy: str | None = None,
    seed: int | None = None,
    timeline: bool = False,
) -> Simulation:
    """Requests that come at these times, in order; dealt to replicas and traces by their shares."""
    replicas = replicas_of(plan, policy)
    works = work_of(replicas, hardware, seed)
    shares = tuple(trace.share for trace in plan.traces)
    lines: list[list[Coming]] = [[] for _ in replicas]
    sequences = [sequence_turns(shares, replica.lanes) for replica in replicas]
    served = [0] * len(replicas)
    for at_ns in times_ns:
        number = most_behind(served, [replica.share for replica in replicas])
        served[number] += 1
        trace, sequence = next(sequences[number])
        lines[number].append(Coming(at_ns, trace, sequence))
    loop = EventLoop(
        [
            SimulatedReplica(
                work=work,
                slots=replica.slots,
                sequences=replica.lanes,
                depth=hardware.depth,
                coming=iter(line),
            )
            for replica, work, line in zip(replicas, works, lines, strict=True)
        ],
        hardware.capacities,
        keep_timeline=timeline,
        keep_waiting=True,
    )
    traffic = loop.run()
    ended = [passage.ended_ns for passage in traffic.passages]
    period = (max(ended) - min(ended)) / (len(ended) - 1) if len(ended) > 1 else sum(ended)
    return _summary(period, traffic.passages, traffic)


def _summary(period_ns: float, counted: Sequence[Passage], traffic: Traffic) -> Simulation:
    return Simulation(
        period_ns=period_ns,
        latencies_ns=tuple(sorted(p.ended_ns - p.began_ns for p in counted)),
        responses_ns=tuple(sorted(p.ended_ns - p.came_ns for p in counted)),
        busy={
            name: ns / traffic.ended_ns if traffic.ended_ns else 0.0
            for name, ns in traffic.busy_ns.items()
        },
        traffic=traffic,
    )


# --- what is simulated --------------------------------------------------------------------------


def replicas_of(plan: Plan, policy: str | None) -> tuple[Replica, ...]:
    """The replicas of a policy; of the last one in the plan where none is named."""
    policies = list(dict.fromkeys(replica.policy for replica in plan.replicas))
    wanted = policies[-1] if policy is None and policies else policy
    return tuple(replica for replica in plan.replicas if replica.policy == wanted)


def work_of(
    replicas: Sequence[Replica], hardware: Hardware, seed: int | None = None
) -> list[dict[int, RequestWork]]:
    """The work of a request of every trace, on every replica."""
    factors = _Noise(seed)
    works = []
    for replica in replicas:
        work = {}
        for placed, lowered in zip(replica.traces, replica.lowered.traces, strict=True):
            step_ns = [0.0] * (1 + max((step.step for step in placed.steps), default=-1))
            for step in placed.steps:
                factor = factors.of(step.name, step.device, step.error)
                step_ns[step.step] = step.predicted_ns * factor
            work[lowered.trace] = request_work(lowered, step_ns, hardware)
        works.append(work)
    return works


class _Noise:
    """How far predictions are off: steps of one name on one device are off alike."""

    def __init__(self, seed: int | None) -> None:
        self._random = None if seed is None else random.Random(seed)
        self._known: dict[tuple[str, str], float] = {}

    def of(self, name: str, device: str, error: float) -> float:
        if self._random is None or error <= 0:
            return 1.0
        key = name, device
        if key not in self._known:
            self._known[key] = self._random.gauss(0.0, 1.0)
        return math.exp(self._known[key] * math.log1p(error) / _NINE_IN_TEN)


# --- who comes when -----------------------------------------------------------------------------


def always(shares: Sequence[float], sequences: int) -> Iterator[Coming]:
    """Requests without end, as `tessc run` makes them."""
    for trace, sequence in sequence_turns(shares, sequences):
        yield Coming(-1.0, trace, sequence)


def sequence_turns(shares: Sequence[float], sequences: int) -> Iterator[tuple[int, int]]:
    """Trace and sequence of one request after the other: sequences take turns, traces by share."""
    counts = [[0] * len(shares) for _ in range(sequences)]
    number = 0
    while True:
        sequence = number % sequences
        trace = most_behind(counts[sequence], shares)
        counts[sequence][trace] += 1
        yield trace, sequence
        number += 1


def most_behind(counts: Sequence[int], shares: Sequence[float]) -> int:
    """Who has the least of what is due; of equals the first."""
    if len(counts) == 1:
        return 0
    due = sum(counts) + 1
    whole = sum(shares)
    return max(range(len(counts)), key=lambda i: (shares[i] / whole * due - counts[i], -i))
