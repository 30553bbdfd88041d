"""What a simulation of a plan found.

In: a `Simulation` of requests back to back, and one of requests that came. Out: records with the
figures that people ask for: rates, percentiles, what the plan claims, how it went over time.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tessera.ir.arrivals import Arrivals
from tessera.ir.notebook import frame_of
from tessera.ir.objectives import COST, Objective, PlanFigures
from tessera.ir.plan.plan import Plan, Replica
from tessera.simulation.hardware import Hardware
from tessera.simulation.journal import Journal
from tessera.simulation.options import SimulateOptions
from tessera.simulation.simulate import Simulation, percentile

if TYPE_CHECKING:
    import pandas

WINDOWS = 10
SHARES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A part of the time: requests that came and ended in it, and how many waited.

    `p50_ns` and `p99_ns` are the response times of those that came in it.
    """

    from_ns: float
    to_ns: float
    came: int
    ended: int
    p50_ns: float
    p99_ns: float
    mean_waiting: float
    most_waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A figure of the plan beside what the simulation found, in one unit."""

    name: str
    unit: str
    claimed: float
    simulated: float

    @property
    def off(self) -> float:
        """How far the simulated figure is from the claimed one, as a fraction of that."""
        return self.simulated / self.claimed - 1.0 if self.claimed else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """A simulation with times off as far as their error bars say."""

    number: int
    full: Simulation
    served: Simulation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationReport:
    """A plan, followed.

    `full` are requests back to back, in the steady state; `served` those that were asked for, by
    their arrivals or their number. `alone_ns` is the time of a request that finds everything free.
    """

    name: str
    plan: Plan
    options: SimulateOptions
    replicas: tuple[Replica, ...]
    hardware: Hardware
    arrivals: Arrivals | None
    full: Simulation
    served: Simulation | None
    alone_ns: float
    draws: tuple[Draw, ...] = ()

    def to_frame(self) -> pandas.DataFrame:
        """Requests as a pandas frame: those that were asked for, or those of the steady state."""
        followed = self.full if self.served is None else self.served
        rows = (
            {
                "trace": self.plan.traces[passage.trace].name,
                "replica": passage.replica,
                "came_ns": passage.came_ns,
                "began_ns": passage.began_ns,
                "ended_ns": passage.ended_ns,
            }
            for passage in followed.traffic.passages
        )
        return frame_of(rows, ("trace", "replica", "came_ns", "began_ns", "ended_ns"))

    @property
    def policy(self) -> str:
        """Which of the policies of the plan was followed; empty where it has none."""
        return self.replicas[0].policy

    def windows(self) -> tuple[Window, ...]:
        """How the requests that came fared over time."""
        return () if self.served is None else windows_of(self.served.traffic)

    def claims(self) -> tuple[Claim, ...]:
        """What the plan says of the policy that was followed."""
        plan, full = self.plan, self.full
        policies = [replica.policy for replica in plan.replicas]
        found = []
        if self.policy == policies[-1]:
            found.append(("rate", "requests/s", rate_of(plan.period_ns), rate_of(full.period_ns)))
        if self.policy == policies[0]:
            found.append(("latency alone", "ns", plan.latency_ns, self.alone_ns))
        if self.policy == policies[-1] and plan.loaded_latency_ns:
            found.append(("latency loaded", "ns", plan.loaded_latency_ns, full.latency_ns))
        objective = Objective.named(plan.objective)
        if objective.is_single and (plan.period_ns > 0 or objective != COST):
            usd = plan.usd_per_request * full.period_ns / (plan.period_ns or 1.0)
            reached = objective.value(
                PlanFigures(period_ns=full.period_ns, latency_ns=self.alone_ns, usd_per_request=usd)
            )
            unit = objective.unit
            found.append(("bound", unit.value, unit.shown(plan.bound), unit.shown(reached)))
        return tuple(
            Claim(name=name, unit=unit, claimed=claimed, simulated=simulated)
            for name, unit, claimed, simulated in found
        )


def rate_of(period_ns: float) -> float:
    """Requests per second; 0 where requests take no time, so that there is no rate."""
    return 1e9 / period_ns if period_ns > 0 else 0.0


def served_rate(served: Simulation) -> float:
    """Requests per second from the first that came to the last that ended."""
    passages = served.traffic.passages
    took = max(p.ended_ns for p in passages) - min(p.came_ns for p in passages)
    return len(passages) * rate_of(took)


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Of sorted values: what half, nine in ten, 99 in a hundred and all of them do not exceed."""
    return {name: percentile(values, share) for name, share in SHARES} | {
        "max": values[-1] if values else 0.0
    }


def middle(values: Sequence[float]) -> tuple[float, float]:
    """Between which nine in ten of some values are."""
    ranked = sorted(values)
    left_out = len(ranked) // 20
    return ranked[left_out], ranked[len(ranked) - 1 - left_out]


def windows_of(traffic: Journal) -> tuple[Window, ...]:
    """The time from the first request to the last in equal parts."""
    whole = traffic.ended_ns
    if whole <= 0:
        return ()
    edges = [whole * number / WINDOWS for number in range(WINDOWS + 1)]
    responses: list[list[float]] = [[] for _ in range(WINDOWS)]
    ended = [0] * WINDOWS
    for passage in traffic.passages:
        responses[_window(edges, passage.came_ns)].append(passage.ended_ns - passage.came_ns)
        ended[_window(edges, passage.ended_ns)] += 1
    means, most = _waiting(traffic.waiting, edges)
    return tuple(
        Window(
            from_ns=edges[number],
            to_ns=edges[number + 1],
            came=len(responses[number]),
            ended=ended[number],
            p50_ns=percentile(sorted(responses[number]), 0.5),
            p99_ns=percentile(sorted(responses[number]), 0.99),
            mean_waiting=means[number],
            most_waiting=most[number],
        )
        for number in range(WINDOWS)
    )


def _window(edges: Sequence[float], at_ns: float) -> int:
    return min(max(bisect.bisect_right(edges, at_ns) - 1, 0), len(edges) - 2)


def _waiting(
    moments: Sequence[tuple[float, int]], edges: Sequence[float]
) -> tuple[list[float], list[int]]:
    """How many wait in every part of the time: the mean, and the most."""
    count = len(edges) - 1
    sums, most = [0.0] * count, [0] * count
    steps = [*moments, (edges[-1], 0)]
    for (start, waiting), (end, _) in itertools.pairwise(steps):
        for number in range(_window(edges, start), _window(edges, end) + 1):
            part = min(end, edges[number + 1]) - max(start, edges[number])
            if part > 0:
                sums[number] += waiting * part
                most[number] = max(most[number], waiting)
    width = edges[1] - edges[0]
    return [total / width for total in sums], most
