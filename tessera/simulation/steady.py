"""`saturate`: the steady-state rate of launch programs with back-to-back requests.

In: replicas on some hardware. Out: a `Simulation` whose rate is that of the steady state.

Requests are simulated in rounds until a round repeats an earlier one. With several replicas, the
one that is slowest relative to its share sets the rate of all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from tessera.ir.plan.plan import Replica
from tessera.simulation.events import EventLoop
from tessera.simulation.hardware import Hardware
from tessera.simulation.intake import SimulatedReplica, always, places_of
from tessera.simulation.journal import Journal
from tessera.simulation.known_work import KnownWork, shape_of
from tessera.simulation.noise import Noise
from tessera.simulation.simulate import Simulation, busy_shares, summary
from tessera.simulation.work import COMPUTE, WIRE, RequestWork

LEAST_ROUNDS = 6
LEAST_MEASURED = 4
MOST_ROUNDS = 16
"""Rounds simulated for a steady state if none repeats; a round is a few requests per slot.

More than the minimum are simulated only while another round changes the period by more than
`_SETTLED`. Fewer suffice if the work of the busiest device is measured.
"""

_LARGE = 5_000
"""Nodes under way above which work is measured, because requests are slow to simulate."""

_SETTLED = 1e-3
_RARE = 1 / 64
_LONG_ROUND = 24
"""Requests per round above which the minimum number of rounds suffices."""

LEAST_ROUND = 6
STEADY = 1e-4
"""Relative difference of two rounds up to which they count as a steady state."""


def saturate(
    replicas: Sequence[Replica],
    shares: Sequence[float],
    hardware: Hardware,
    *,
    noise: Noise | None = None,
    timeline: bool = False,
    known_work: KnownWork | None = None,
) -> Simulation:
    """Simulate back-to-back requests with all slots in use; `shares` are those of the traces."""
    works = (known_work or KnownWork(hardware)).of(replicas, noise)
    return Saturation(replicas, works, shares, hardware, timeline=timeline).follow()


class Saturation:
    """Replicas with back-to-back requests, simulated as far as requested.

    Independent replicas are simulated separately, and identical ones only once.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        works: Sequence[Mapping[int, RequestWork]],
        shares: Sequence[float],
        hardware: Hardware,
        *,
        timeline: bool = False,
    ) -> None:
        self._groups: list[tuple[list[int], list[str], _SteadyLoop]] = []
        known: dict[object, _SteadyLoop] = {}
        groups = groups_of(works, hardware.neighbours)
        for group in groups:
            members = [replicas[index] for index in group]
            own = [works[index] for index in group]
            is_new = timeline or len(groups) == 1
            key = None if is_new else shape_of(members, own, hardware)
            if is_new or key not in known:
                known[key] = _SteadyLoop(members, own, shares, hardware, timeline)
            self._groups.append((group, places_of(own), known[key]))

    def follow(self, most_rounds: int = MOST_ROUNDS) -> Simulation:
        """Simulate until the rate is steady; after few rounds, the rate may be approximate."""
        period = 0.0
        latencies: list[float] = []
        busy: dict[str, float] = {}
        traffics = []
        for group, places, loop in self._groups:
            simulation = loop.follow(most_rounds)
            period = max(period, simulation.period_ns)
            latencies += simulation.latencies_ns
            traffic = _traffic_of(group, places, simulation.traffic)
            busy |= busy_shares(traffic)
            traffics.append(traffic)
        return Simulation(
            period_ns=period,
            latencies_ns=tuple(sorted(latencies)),
            responses_ns=tuple(sorted(latencies)),
            busy=busy,
            traffic=_joined(traffics),
        )

    def period_ns(self, most_rounds: int) -> float:
        """The period only, from at most `most_rounds` rounds."""
        return max((loop.period_ns(most_rounds) for _, _, loop in self._groups), default=0.0)


class _SteadyLoop:
    """Replicas that share resources, simulated round by round until the rounds repeat."""

    def __init__(
        self,
        replicas: Sequence[Replica],
        works: Sequence[Mapping[int, RequestWork]],
        shares: Sequence[float],
        hardware: Hardware,
        timeline: bool,
    ) -> None:
        self._loop = EventLoop(
            [
                SimulatedReplica(
                    work=work,
                    slots=replica.slots,
                    sequences=replica.lanes,
                    depth=hardware.depth,
                    coming=always(replica.own_shares(shares), replica.lanes),
                )
                for replica, work in zip(replicas, works, strict=True)
            ],
            hardware.capacities,
            hardware.neighbours,
            keep_timeline=timeline,
        )
        self._work = None
        if _under_way(replicas, works) > _LARGE and not self._loop.shares_devices:
            self._work = _busiest_devices(works, [r.own_shares(shares) for r in replicas])
        per_slot = 2 if self._work is None else 1
        most = max(replica.share for replica in replicas)
        # A replica with almost no requests is not waited for; its load counts all the same.
        self._rounds = [
            round_of(replica, replica.own_shares(shares), hardware.depth, per_slot)
            if replica.share >= _RARE * most
            else 0
            for replica in replicas
        ]
        self._parts = [replica.share for replica in replicas]
        self._load_ns = largest_load_ns(replicas, works, shares, hardware)
        self._least_rounds = LEAST_ROUNDS if self._work is None else LEAST_MEASURED
        self._most_rounds = MOST_ROUNDS
        if max(self._rounds, default=0) > _LONG_ROUND:
            self._most_rounds = self._least_rounds
        self._number = self._last = 0
        self._period_ns = 0.0
        self._is_settled = False
        self._ends: list[list[float]] = []
        self._done: list[tuple[float, list[float]]] = [(0.0, [0.0] * len(replicas))]

    def _go_on(self, most_rounds: int) -> None:
        rounds = self._rounds
        while self._number < min(most_rounds, self._most_rounds) and not self._is_settled:
            self._number += 1
            number = self._number
            self._loop.run([number * count for count in rounds])
            ends = self._ends = [self._loop.ends_of(index) for index in range(len(rounds))]
            repeated = _repeated(ends, rounds, number)
            before = self._period_ns
            if repeated or self._work is None:
                # Without repetition, all rounds but the first third count.
                self._last = repeated or number - number // 3
                self._period_ns = _period(ends, rounds, self._parts, number, self._last)
            else:
                self._last = max(1, number - 1)
                self._period_ns = self._measured(self._work)
            is_near = abs(self._period_ns - before) <= _SETTLED * self._period_ns
            self._is_settled = bool(repeated) or (number >= self._least_rounds and is_near)

    def _measured(self, work: Sequence[tuple[str, float]]) -> float:
        """Nanoseconds per request of the plan, by the work that the busiest device of each replica
        has done in all rounds but the first.

        The ends of requests vary. The work of that device, which includes requests under way, grows
        evenly, and it does not run ahead of what the other devices can follow.
        """
        busy_ns = self._loop.busy_ns()
        done = [busy_ns[device] / ns for device, ns in work]
        self._done.append((self._loop.now_ns, done))
        since_ns, before = self._done[self._number - self._last]
        periods = []
        for part, first, after, count in zip(self._parts, before, done, self._rounds, strict=True):
            if count and after > first:
                periods.append(part * (self._loop.now_ns - since_ns) / (after - first))
            elif count and after > 0:  # done ahead, with the first round: all before counts
                periods.append(part * self._loop.now_ns / after)
            elif count:  # no request so far was of a trace that the device works for
                periods.append(part * self._loop.now_ns / (count * self._number))
        return max(periods)

    def period_ns(self, most_rounds: int) -> float:
        """Nanoseconds per request of the plan.

        Deferred work or work done ahead makes a round differ from the steady state.
        """
        self._go_on(most_rounds)
        return max(self._period_ns, self._load_ns)

    def follow(self, most_rounds: int) -> Simulation:
        """Simulate, and give the period with the requests that count for it."""
        period = self.period_ns(most_rounds)
        traffic = self._loop.traffic()
        first = self._number - self._last
        began = [
            _before(own, first * count) for own, count in zip(self._ends, self._rounds, strict=True)
        ]
        counted = [p for p in traffic.passages if p.ended_ns > began[p.replica]]
        return summary(period, counted, traffic)


def _under_way(replicas: Sequence[Replica], works: Sequence[Mapping[int, RequestWork]]) -> int:
    """Number of nodes in all slots."""
    return sum(
        replica.slots * max((len(request.nodes) for request in work.values()), default=0)
        for replica, work in zip(replicas, works, strict=True)
    )


def _busiest_devices(
    works: Sequence[Mapping[int, RequestWork]], shares: Sequence[Sequence[float]]
) -> list[tuple[str, float]] | None:
    """The busiest device of each replica with its time per request; None if they share one."""
    busiest = []
    devices: list[str] = []
    for work, of_trace in zip(works, shares, strict=True):
        own: dict[str, float] = {}
        for trace, request in work.items():
            part = of_trace[trace] / sum(of_trace)
            for node in request.nodes:
                if node.kind == COMPUTE:
                    own[node.place[0]] = own.get(node.place[0], 0.0) + part * node.ns
        devices += own
        busiest.append(max(own.items(), key=lambda entry: entry[1], default=("", 0.0)))
    apart = len(set(devices)) == len(devices)
    return busiest if apart and all(ns > 0 for _, ns in busiest) else None


def _period(
    ends: Sequence[Sequence[float]],
    rounds: Sequence[int],
    parts: Sequence[float],
    number: int,
    last: int,
) -> float:
    """Nanoseconds per request of the plan over the last rounds."""
    return max(
        part * (own[number * count - 1] - _before(own, (number - last) * count)) / (last * count)
        for own, count, part in zip(ends, rounds, parts, strict=True)
        if count
    )


def _before(ends: Sequence[float], count: int) -> float:
    """The time at which `count` requests had ended."""
    return ends[count - 1] if count else 0.0


def _repeated(ends: Sequence[Sequence[float]], rounds: Sequence[int], number: int) -> int:
    """Number of final rounds that repeat the rounds before them; 0 if none do.

    Every request of a repeated round ends later by the same time. The first round starts on an idle
    machine and does not count.
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
    """The largest load per request of a device, capacity or host: a lower bound of the period."""
    loads: dict[str, float] = {}
    handed = [0.0] * len(replicas)
    for index, (replica, work) in enumerate(zip(replicas, works, strict=True)):
        for trace, own in work.items():
            part = replica.serves(trace) * shares[trace] / sum(shares)
            handed[index] += part * own.host_ns
            for node in own.nodes:
                for name in node.place:
                    used = node.rate / hardware.capacities[name] if node.kind == WIRE else 1.0
                    loads[name] = loads.get(name, 0.0) + part * node.least_ns * used
    return max(*handed, *loads.values(), 0.0)


def round_of(replica: Replica, shares: Sequence[float], depth: int, per_slot: int = 2) -> int:
    """Requests per round, after which the state may repeat: `per_slot` per slot, by share."""
    count = max(LEAST_ROUND, per_slot * replica.slots * depth)
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
    """Groups of replicas that share a device or a capacity, or slow each other down on a card."""
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
    """The journal of a group, renumbered to these replicas and places of the plan."""
    return replace(
        traffic,
        passages=tuple(replace(p, replica=group[p.replica]) for p in traffic.passages),
        busy_ns=dict(zip(places, traffic.busy_ns.values(), strict=True)),
        timeline=tuple(replace(busy, replica=group[busy.replica]) for busy in traffic.timeline),
    )


def _joined(traffics: Sequence[Journal]) -> Journal:
    """The union of journals of groups that ran side by side."""
    return Journal(
        passages=tuple(sorted((p for t in traffics for p in t.passages), key=lambda p: p.ended_ns)),
        busy_ns={name: ns for traffic in traffics for name, ns in traffic.busy_ns.items()},
        ended_ns=max((traffic.ended_ns for traffic in traffics), default=0.0),
        operations=sum(traffic.operations for traffic in traffics),
        timeline=tuple(busy for traffic in traffics for busy in traffic.timeline),
    )
