"""What lies between the times alone and what a plan reaches: which limit takes how much.

In: a `Promise`. Out: nanoseconds per request, part by part. The first part is a bound of times
alone: every step where it serves best, shared evenly, nothing sent or stored. The others are what
each further limit adds, in an order: together they are the period of the simulation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tessera.planning.bound.bounds import spread_bound
from tessera.planning.problem.period_limits import LimitKind
from tessera.planning.problem.problem import Problem, measure
from tessera.planning.promise.promise import Promise
from tessera.planning.search.candidates import Candidate, busiest_ns

TIMES_ALONE = "the times alone"
NO_PLAN = "memory, links and slots, with any plan"
WHOLE = "steps and requests stay whole, and where memory puts them"
SENDING = "what sending takes of the GPUs and links"
FEW_SLOTS = "slots: a request takes longer than they cover"
WAITS = "requests wait for each other"

_HELD = (LimitKind.SLOTS, LimitKind.STATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """The parts of a period, the times alone first; of the split or plan that is named."""

    name: str
    parts: tuple[tuple[str, float], ...]

    @property
    def reached(self) -> float:
        """How much of what the times alone allow is reached."""
        total = sum(ns for _, ns in self.parts)
        return self.parts[0][1] / total if total > 0 else 1.0


def find_losses(promise: Promise, bound_ns: float) -> Losses:
    """The parts of what a candidate takes; no plan takes less than `bound_ns`."""
    problem, candidate = promise.attempt.planning.problem, promise.chosen
    held = max((limit.ns for limit in candidate.limits if limit.kind in _HELD), default=0.0)
    levels = (
        (TIMES_ALONE, min(spread_bound(problem), candidate.period_ns)),
        (NO_PLAN, min(bound_ns, candidate.period_ns)),
        (WHOLE, _largest_load(replace(problem, tensors=()), candidate)),
        (SENDING, busiest_ns(promise.searched)),
        (FEW_SLOTS, held),
        (WAITS, candidate.period_ns),
    )
    parts, reached = [], 0.0
    for name, ns in levels:
        level = min(ns, candidate.period_ns)
        if level > reached:
            parts.append((name, level - reached))
            reached = level
    return Losses(name=candidate.name, parts=tuple(parts))


def _largest_load(problem: Problem, candidate: Candidate) -> float:
    """The load of the busiest resource, over all replicas."""
    loads = [0.0] * len(problem.resources())
    for replica in candidate.replicas:
        for index, ns in enumerate(measure(problem, replica.placement).loads):
            loads[index] += ns * replica.share
    return max(loads, default=0.0)
