"""`simulate`: what a plan's launch programs take, request by request.

In: a `Plan` and a `Hardware`, how many slots and sequences, when requests come, a seed for noise.
Out: a `Simulation`: rate, latencies, how busy everything was.

Requests come back to back (`saturate`), and the rate is that of the steady state; or at given
times (`arrive`). Replicas get their shares of the requests; where they come back to back, the
replica that is slowest for its share sets the rate of all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from tessera.driver.simulate.events import EventLoop, places_of
from tessera.driver.simulate.hardware import Hardware
from tessera.driver.simulate.intake import Coming, SimulatedReplica
from tessera.driver.simulate.journal import Journal, Passage
from tessera.driver.simulate.known_work import KnownWork, shape_of, work_of
from tessera.driver.simulate.noise import Noise
from tessera.driver.simulate.turns import always, most_behind, sequence_turns
from tessera.driver.simulate.work import WIRE, RequestWork
from tessera.ir.plan.plan import Plan, Replica

LEAST_ROUNDS = 6
MOST_ROUNDS = 16
"""Rounds that are followed for a steady state, if none repeats; a round is some requests per slot.

More than the least only while one more changes the period by more than `_SETTLED`.
"""

_SETTLED = 1e-3
_RARE = 1 / 64
_LONG_ROUND = 24
"""Requests of a round, above which the least rounds say enough."""


LEAST_ROUND = 6
STEADY = 1e-4
"""Two rounds that take so nearly the same time are a steady state."""


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
    traffic: Journal

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
    replicas: Sequence[Replica],
    shares: Sequence[float],
    hardware: Hardware,
    *,
    noise: Noise | None = None,
    timeline: bool = False,
    known_work: KnownWork | None = None,
    most_rounds: int = MOST_ROUNDS,
) -> Simulation:
    """Requests back to back, as many under way as there are slots; `shares` are of the traces.

    Replicas that have nothing to do with each other are followed apart, those that are alike once.
    With few rounds, what does not repeat is a little off.
    """
    works = (known_work or KnownWork(hardware)).of(replicas, noise)
    known: dict[object, Simulation] = {}
    period = 0.0
    latencies: list[float] = []
    busy: dict[str, float] = {}
    traffics = []
    for group in groups_of(works, hardware.neighbours):
        members = [replicas[index] for index in group]
        own = [works[index] for index in group]
        key = shape_of(members, own, hardware)
        if timeline or key not in known:
            known[key] = _saturate(members, own, shares, hardware, timeline, most_rounds)
        simulation = known[key]
        period = max(period, simulation.period_ns)
        latencies += simulation.latencies_ns
        traffic = _traffic_of(group, places_of(own), simulation.traffic)
        busy |= _busy(traffic)
        traffics.append(traffic)
    return Simulation(
        period_ns=period,
        latencies_ns=tuple(sorted(latencies)),
        responses_ns=tuple(sorted(latencies)),
        busy=busy,
        traffic=_joined(traffics),
    )


def _saturate(
    replicas: Sequence[Replica],
    works: Sequence[Mapping[int, RequestWork]],
    shares: Sequence[float],
    hardware: Hardware,
    timeline: bool,
    most_rounds: int,
) -> Simulation:
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
        hardware.neighbours,
        keep_timeline=timeline,
    )
    most = max(replica.share for replica in replicas)
    # One that gets next to no requests is not waited for: its load counts below.
    rounds = [
        round_of(replica, shares, hardware.depth) if replica.share >= _RARE * most else 0
        for replica in replicas
    ]
    parts = [replica.share for replica in replicas]
    period = 0.0
    if max(rounds, default=0) > _LONG_ROUND:
        most_rounds = min(most_rounds, LEAST_ROUNDS)
    for number in range(1, most_rounds + 1):
        loop.run([number * count for count in rounds])
        ends = [loop.ends_of(index) for index in range(len(rounds))]
        repeated = _repeated(ends, rounds, number)
        # What does not repeat counts without its first third.
        last = repeated or number - number // 3
        before, period = period, _period(ends, rounds, parts, number, last)
        is_settled = abs(period - before) <= _SETTLED * period
        if repeated or (number >= LEAST_ROUNDS and is_settled):
            break
    # Work that was put off or done ahead makes a round differ from the steady state.
    period = max(period, largest_load_ns(replicas, works, shares, hardware))
    traffic = loop.traffic()
    began = [_before(own, (number - last) * count) for own, count in zip(ends, rounds, strict=True)]
    counted = [p for p in traffic.passages if p.ended_ns > began[p.replica]]
    return _summary(period, counted, traffic)


def _period(
    ends: Sequence[Sequence[float]],
    rounds: Sequence[int],
    parts: Sequence[float],
    number: int,
    last: int,
) -> float:
    """Nanoseconds per request of the plan over the last of so many rounds."""
    return max(
        part * (own[number * count - 1] - _before(own, (number - last) * count)) / (last * count)
        for own, count, part in zip(ends, rounds, parts, strict=True)
        if count
    )


def _before(ends: Sequence[float], count: int) -> float:
    """When so many requests had ended."""
    return ends[count - 1] if count else 0.0


def _repeated(ends: Sequence[Sequence[float]], rounds: Sequence[int], number: int) -> int:
    """How many rounds at the end of so many are those before them once more; 0: none are.

    Every request of them has to end as much later as the others. The first round finds everything
    free and does not count.
    """
    for last in range(1, (number - 1) // 2 + 1):
        shifts: list[float] = []
        for own, count in zip(ends, rounds, strict=True):
            if not count:
                continue
            span, end = last * count, number * count
            shifts = [own[at] - own[at - span] for at in range(end - span, end)]
            if not _is_near(min(shifts), max(shifts)):
                break
        else:
            return last
    return 0


def largest_load_ns(
    replicas: Sequence[Replica],
    works: Sequence[Mapping[int, RequestWork]],
    shares: Sequence[float],
    hardware: Hardware,
) -> float:
    """The longest time that a device, a capacity or the host of a replica is at work per request:
    no period is shorter."""
    loads: dict[str, float] = {}
    handed = [0.0] * len(replicas)
    for index, (replica, work) in enumerate(zip(replicas, works, strict=True)):
        for trace, own in work.items():
            part = replica.share * shares[trace] / sum(shares)
            handed[index] += part * own.host_ns
            for node in own.nodes:
                for name in node.place:
                    used = node.rate / hardware.capacities[name] if node.kind == WIRE else 1.0
                    loads[name] = loads.get(name, 0.0) + part * node.least_ns * used
    return max(*handed, *loads.values(), 0.0)


def round_of(replica: Replica, shares: Sequence[float], depth: int) -> int:
    """Requests after which things may repeat: some for every slot, of every trace its share."""
    count = max(LEAST_ROUND, 2 * replica.slots * depth)
    if len(shares) > 1:
        parts = [Fraction(share / sum(shares)).limit_denominator(64) for share in shares]
        turn = replica.lanes * math.lcm(*(part.denominator for part in parts))
        if turn <= 4 * count:
            return -(-count // turn) * turn
        rarest = min(share for share in shares if share > 0) / sum(shares)
        count = max(count, math.ceil(min(4 * count, 2 / rarest)))
    return count


def _is_near(left: float, right: float) -> bool:
    return abs(left - right) <= STEADY * max(left, right)


def groups_of(
    works: Sequence[Mapping[int, RequestWork]], neighbours: Mapping[str, Sequence[str]]
) -> list[list[int]]:
    """Replicas that share a device or a capacity, or slow each other down on a card, together."""
    groups: list[tuple[set[str], list[int]]] = []
    for index, work in enumerate(works):
        nodes = [node for own in work.values() for node in own.nodes]
        places = {name for node in nodes for name in node.place}
        slowed = {name for n in nodes if n.quiet_ns != n.alone_ns for name in n.place}
        places.update(*(neighbours.get(name, ()) for name in slowed))
        members = [index]
        apart = []
        for others, group in groups:
            if places & others:
                places |= others
                members = group + members
            else:
                apart.append((others, group))
        groups = [*apart, (places, sorted(members))]
    return [group for _, group in sorted(groups, key=lambda entry: entry[1])]


def _traffic_of(group: Sequence[int], places: Sequence[str], traffic: Journal) -> Journal:
    """The traffic of a group as that of these replicas of the plan, on these places."""
    return replace(
        traffic,
        passages=tuple(replace(p, replica=group[p.replica]) for p in traffic.passages),
        busy_ns=dict(zip(places, traffic.busy_ns.values(), strict=True)),
        timeline=tuple(replace(busy, replica=group[busy.replica]) for busy in traffic.timeline),
    )


def _joined(traffics: Sequence[Journal]) -> Journal:
    """What went on side by side."""
    return Journal(
        passages=tuple(sorted((p for t in traffics for p in t.passages), key=lambda p: p.ended_ns)),
        busy_ns={name: ns for traffic in traffics for name, ns in traffic.busy_ns.items()},
        ended_ns=max((traffic.ended_ns for traffic in traffics), default=0.0),
        operations=sum(traffic.operations for traffic in traffics),
        timeline=tuple(busy for traffic in traffics for busy in traffic.timeline),
    )


def alone(
    replicas: Sequence[Replica],
    shares: Sequence[float],
    hardware: Hardware,
    *,
    noise: Noise | None = None,
    known_work: KnownWork | None = None,
) -> float:
    """The time of a request that finds everything free: the mean of the traces, by their shares.

    Of several replicas it is the slowest one's.
    """
    slowest = 0.0
    whole = sum(shares)
    works = (known_work or KnownWork(hardware)).of(replicas, noise)
    known: dict[object, float] = {}
    for replica, work in zip(replicas, works, strict=True):
        key = shape_of([replica], [work], hardware)
        if key not in known:
            mean = 0.0
            for trace, share in enumerate(shares):
                coming = iter((Coming(0.0, trace, 0),))
                loop = EventLoop(
                    [SimulatedReplica(work=work, slots=1, sequences=1, depth=1, coming=coming)],
                    hardware.capacities,
                    hardware.neighbours,
                )
                loop.run()
                mean += share / whole * loop.traffic().ended_ns
            known[key] = mean
        slowest = max(slowest, known[key])
    return slowest


def arrive(
    replicas: Sequence[Replica],
    shares: Sequence[float],
    hardware: Hardware,
    times_ns: Iterable[float],
    *,
    noise: Noise | None = None,
    timeline: bool = False,
) -> Simulation:
    """Requests that come at these times, in order; dealt to replicas and traces by their shares."""
    works = work_of(replicas, hardware, noise)
    lines: list[list[Coming]] = [[] for _ in replicas]
    sequences = [sequence_turns(shares, replica.lanes) for replica in replicas]
    served = [0] * len(replicas)
    for age, at_ns in enumerate(times_ns):
        number = most_behind(served, [replica.share for replica in replicas])
        served[number] += 1
        trace, sequence = next(sequences[number])
        lines[number].append(Coming(at_ns, trace, sequence, age))
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
        hardware.neighbours,
        keep_timeline=timeline,
        keep_waiting=True,
    )
    loop.run()
    traffic = loop.traffic()
    ended = [passage.ended_ns for passage in traffic.passages]
    period = (max(ended) - min(ended)) / (len(ended) - 1) if len(ended) > 1 else sum(ended)
    return _summary(period, traffic.passages, traffic)


def _summary(period_ns: float, counted: Sequence[Passage], traffic: Journal) -> Simulation:
    return Simulation(
        period_ns=period_ns,
        latencies_ns=tuple(sorted(p.ended_ns - p.began_ns for p in counted)),
        responses_ns=tuple(sorted(p.ended_ns - p.came_ns for p in counted)),
        busy=_busy(traffic),
        traffic=traffic,
    )


def _busy(traffic: Journal) -> dict[str, float]:
    """The share of the time that each place was at work."""
    whole = traffic.ended_ns
    return {name: ns / whole if whole else 0.0 for name, ns in traffic.busy_ns.items()}


# --- what is simulated --------------------------------------------------------------------------


def replicas_of(plan: Plan, policy: str | None) -> tuple[Replica, ...]:
    """The replicas of a policy; of the last one in the plan where none is named."""
    policies = list(dict.fromkeys(replica.policy for replica in plan.replicas))
    wanted = policies[-1] if policy is None and policies else policy
    return tuple(replica for replica in plan.replicas if replica.policy == wanted)


def shares_of(plan: Plan) -> tuple[float, ...]:
    """The shares of the traces."""
    return tuple(trace.share for trace in plan.traces)
