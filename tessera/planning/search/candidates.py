"""A candidate: a way to serve requests, with all figures by which it is judged.

In: a `Problem`, placements and their rates. Out: a `Candidate`: replicas with shares of the
requests, period, latency, money, memory, and what limits the period. Every plan, ours or a
baseline, is made here, so all are measured alike.

The period is the largest load, and never below the time of a request over the slots nor below a
loop-carried cycle over the lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from tessera.ir.objectives import HOUR_NS, Objective, PlanFigures
from tessera.planning.problem.period_limits import Limit, LimitKind
from tessera.planning.problem.problem import INFINITY, Measure, Placement, Problem, measure
from tessera.planning.search.schedule import request_times

if TYPE_CHECKING:
    from tessera.ir.plan.plan import PlannedHandOver
    from tessera.planning.problem.role_parts import RoleMix, RolePart

Parts = tuple[tuple[Placement, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlan:
    """One copy of the model: its placement, and the share of requests it serves.

    In a plan with roles, `shares` has the share of each trace's requests, `part` the traces that it
    serves, whose tasks `placement` places, and `hand_overs` the sequences that go on elsewhere.
    """

    placement: Placement
    share: float
    measure: Measure
    shares: tuple[float, ...] = ()
    part: RolePart | None = None
    hand_overs: tuple[PlannedHandOver, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A way to serve requests. Memory is per room.

    `limits` are the loads and floors of the period, largest first: a faster plan has to relieve the
    first. `roles` are what a plan with roles was made of.
    """

    name: str
    replicas: tuple[ReplicaPlan, ...]
    period_ns: float
    latency_ns: float
    usd_per_request: float
    memory: tuple[int, ...]
    limits: tuple[Limit, ...] = ()
    roles: RoleMix | None = None

    def value(self, objective: Objective) -> float:
        """The value that the objective minimises."""
        return objective.value(self)


def one_placement(problem: Problem, name: str, placement: Placement) -> Candidate:
    """All requests go through one placement."""
    return candidate_of(problem, name, ((placement, 1.0),))


def with_rates(problem: Problem, placements: Sequence[Placement]) -> Parts:
    """Placements side by side, each with the rate that its devices reach.

    Placements on one card together get no more requests than its link to the host carries.
    """
    rates = [1.0 / max(measure(problem, placement).period_ns, 1e-9) for placement in placements]
    for room in problem.rooms:
        own = [n for n, placement in enumerate(placements) if {*placement} <= {*room.devices}]
        busy = room.host_ns * sum(rates[number] for number in own)
        for number in own:
            rates[number] /= max(1.0, busy)
    return tuple(zip(placements, rates, strict=True))


def candidate_of(problem: Problem, name: str, parts: Parts) -> Candidate:
    """A candidate from placements and their rates; rates become shares.

    Its period is infinite if it does not fit or cannot run.
    """
    measured = [measure(problem, placement) for placement, _ in parts]
    total = sum(rate for _, rate in parts)
    replicas = tuple(
        ReplicaPlan(placement=placement, share=rate / total, measure=measured_part)
        for (placement, rate), measured_part in zip(parts, measured, strict=True)
    )
    memory = tuple(
        map(sum, zip(*(measured_part.memory for measured_part in measured), strict=True))
    )
    limits = loads_of_all(problem, replicas)
    runs = max((limit.ns for limit in limits), default=0.0) < INFINITY and all(
        used <= room.bytes for used, room in zip(memory, problem.rooms, strict=True)
    )
    latency = INFINITY
    if runs:
        latency, floors = _floors(problem, replicas)
        limits += floors
    limits.sort(key=lambda limit: -limit.ns)
    period = limits[0].ns if runs and limits else 0.0 if runs else INFINITY
    return Candidate(
        name=name,
        replicas=replicas,
        period_ns=period,
        latency_ns=latency,
        usd_per_request=period * price_of(problem, replicas) / HOUR_NS,
        memory=memory,
        limits=tuple(limits),
    )


def price_of(problem: Problem, replicas: Sequence[ReplicaPlan]) -> float:
    """Dollars per hour of the cards that replicas use."""
    used = {device for replica in replicas for device in replica.placement}
    return sum(room.usd_per_hour for room in problem.rooms if used & set(room.devices))


def splits_requests(candidate: Candidate) -> bool:
    """Whether every request goes through several devices, all by the same placement."""
    return len(candidate.replicas) == 1 and len(set(candidate.replicas[0].placement)) > 1


def least_value(candidate: Candidate, objective: Objective) -> float:
    """A lower bound of a candidate's value with any slots and lanes; 0 if unknown."""
    if not candidate.period_ns > 0:
        return 0.0
    busiest, period = busiest_ns(candidate), candidate.period_ns
    return objective.value(
        PlanFigures(
            period_ns=period * busiest / period,
            usd_per_request=candidate.usd_per_request * busiest / period,
        )
    )


def busiest_ns(candidate: Candidate) -> float:
    """The period with unlimited slots and lanes."""
    return max((limit.ns for limit in candidate.limits if limit.kind.is_load), default=0.0)


def slots_needed(candidate: Candidate) -> int:
    """Requests that must be under way in the largest replica to keep the busiest load busy."""
    busiest = busiest_ns(candidate)
    share = max((replica.share for replica in candidate.replicas), default=1.0)
    if not 0 < busiest < INFINITY:
        return 1
    return max(1, ceil(candidate.latency_ns * share / busiest - 1e-9))


def loads_of_all(problem: Problem, replicas: Sequence[ReplicaPlan]) -> list[Limit]:
    """The load of every resource, over all replicas."""
    return [
        Limit(kind, name, sum(replica.measure.loads[index] * replica.share for replica in replicas))
        for index, (kind, name) in enumerate(problem.resources())
    ]


def _floors(problem: Problem, replicas: tuple[ReplicaPlan, ...]) -> tuple[float, list[Limit]]:
    """The request time of the slowest replica, and the floors from slots and lanes."""
    latency = 0.0
    floors: dict[tuple[LimitKind, str], float] = {}
    for replica in replicas:
        times = request_times(problem, replica.placement)
        latency = max(latency, times.latency_ns)
        if problem.slots is not None:
            floor = times.latency_ns * replica.share / problem.slots
            floors[LimitKind.SLOTS, ""] = max(floors.get((LimitKind.SLOTS, ""), 0.0), floor)
        for name, alone, length in times.cycles:
            lanes = 1 if alone else problem.lanes
            if lanes is not None:
                key = LimitKind.STATE, name
                floors[key] = max(floors.get(key, 0.0), length * replica.share / lanes)
    return latency, [Limit(kind, name, ns) for (kind, name), ns in floors.items()]
