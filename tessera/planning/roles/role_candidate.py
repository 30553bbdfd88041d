"""A candidate with roles: parts of a mix with their shares, measured like all others.

In: a `Problem` of a mix, a `RoleMix` and `TraceShares`. Out: a `Candidate`, whose replicas serve
some traces each.
"""

from __future__ import annotations

from tessera.ir.objectives import HOUR_NS
from tessera.ir.plan.plan import PlannedHandOver
from tessera.planning.problem.limits import SearchWatch
from tessera.planning.problem.period_limits import Limit, LimitKind
from tessera.planning.problem.problem import Measure, Problem, memory_of
from tessera.planning.problem.role_parts import RoleMix
from tessera.planning.roles.shares import (
    TraceShares,
    best_shares,
    hand_over_loads,
    handed_bytes,
    loads_of,
    rates_of,
    trace_problems,
)
from tessera.planning.search.candidates import Candidate, ReplicaPlan, loads_of_all, price_of
from tessera.planning.search.schedule import request_times


def role_candidate(problem: Problem, name: str, mix: RoleMix, shares: TraceShares) -> Candidate:
    """The candidate of some parts of a mix, with their shares of each trace."""
    alone, rates = trace_problems(problem), rates_of(problem)
    replicas, times_ns = [], []
    for number, own in zip(shares.taken, shares.shares, strict=True):
        part = mix.parts[number]
        share = sum(rate * value for rate, value in zip(rates, own, strict=True))
        loads = [0.0] * len(problem.resources())
        for trace, ns in loads_of(alone, part).items():
            loads = [sum_ns + own[trace] * more for sum_ns, more in zip(loads, ns, strict=True)]
        hand_overs, moved = _hand_overs(problem, mix, shares, number, own)
        loads = [sum_ns + more for sum_ns, more in zip(loads, moved, strict=True)]
        per_request = tuple(ns / share for ns in loads)
        replicas.append(
            ReplicaPlan(
                placement=part.placement,
                share=share,
                measure=Measure(
                    loads=per_request,
                    memory=memory_of(part.planning.problem, part.placement),
                    transfers=0,
                    fits=True,
                    period_ns=max(per_request),
                ),
                shares=own,
                part=part,
                hand_overs=hand_overs,
            )
        )
        times = {t: request_times(alone[t], part.steps_of(t)).latency_ns for t in part.traces}
        times_ns.append(times)
    limits = loads_of_all(problem, replicas)
    if problem.slots is not None:
        busy = [
            sum(own[trace] * ns for trace, ns in times.items())
            for own, times in zip(shares.shares, times_ns, strict=True)
        ]
        limits.append(Limit(LimitKind.SLOTS, "", max(busy) / problem.slots))
    limits.sort(key=lambda limit: -limit.ns)
    period = limits[0].ns
    kept = RoleMix(
        parts=tuple(mix.parts[number] for number in shares.taken), sequences=mix.sequences
    )
    return Candidate(
        name=name,
        replicas=tuple(replicas),
        period_ns=period,
        latency_ns=sum(
            max(times.get(trace, 0.0) for times in times_ns) for trace in range(len(rates))
        ),
        usd_per_request=period * price_of(problem, replicas) / HOUR_NS,
        memory=tuple(map(sum, zip(*(r.measure.memory for r in replicas), strict=True))),
        limits=tuple(limits),
        roles=kept,
    )


def _hand_overs(
    problem: Problem, mix: RoleMix, shares: TraceShares, number: int, own: tuple[float, ...]
) -> tuple[tuple[PlannedHandOver, ...], list[float]]:
    """The hand-overs after requests of a part, and their load per unit of the mix."""
    rates, begun = rates_of(problem), mix.sequences.begun
    every = sum(rate * count for rate, count in zip(rates, begun, strict=True))
    # Of all sequences, those that begin here.
    here = sum(rate * count * value for rate, count, value in zip(rates, begun, own, strict=True))
    expected = []
    loads = [0.0] * len(problem.resources())
    for source, target, flow in shares.handed:
        if source != number or not here:
            continue
        moved = handed_bytes(mix, mix.parts[source], mix.parts[target]) or {}
        part = min(1.0, flow * every / here)
        for resource, ns in enumerate(hand_over_loads(problem, moved) or ()):
            loads[resource] += part * here * ns
        expected += [
            PlannedHandOver(
                trace=trace,
                source=problem.devices[pair[0]],
                target=problem.devices[pair[1]],
                bytes=size,
                part=part * begun[trace],
            )
            for trace, value in enumerate(own)
            if value and begun[trace]
            for pair, size in moved.items()
        ]
    return tuple(expected), loads


def shared_again(problem: Problem, candidate: Candidate, watch: SearchWatch) -> Candidate:
    """The replicas of a candidate with roles, shared by the times of another problem."""
    assert candidate.roles is not None
    shares = best_shares(problem, candidate.roles, watch, all_taken=True)
    if shares is None:
        return candidate
    return role_candidate(problem, candidate.name, candidate.roles, shares)
