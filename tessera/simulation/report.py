"""The result of simulating a plan.

In: a `Simulation` of back-to-back requests, and one of requests with arrival times. Out: records
with rates, percentiles, comparisons with the claims of the plan, and figures over time.
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
    """An interval of time: the requests that arrived and ended in it, and how many waited.

    `p50_ns` and `p99_ns` are response times of the requests that arrived in it.
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
    """A figure claimed by the plan beside the simulated one, in the same unit."""

    name: str
    unit: str
    claimed: float
    simulated: float

    @property
    def off(self) -> float:
        """Deviation of the simulated figure from the claimed one, as a fraction of the claim."""
        return self.simulated / self.claimed - 1.0 if self.claimed else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """A simulation with times drawn from their error bars."""

    number: int
    full: Simulation
    served: Simulation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationReport:
    """The simulation of a plan.

    `full` simulates back-to-back requests in the steady state; `served` simulates the requests
    given by arrivals or number. `alone_ns` is the time of a request on an idle machine.
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
        """Requests as a pandas frame: those of `served` if present, else of the steady state."""
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
        """The policy of the plan that was simulated; empty if the plan has none."""
        return self.replicas[0].policy

    def windows(self) -> tuple[Window, ...]:
        """Figures of the arriving requests over time."""
        return () if self.served is None else windows_of(self.served.traffic)

    def claims(self) -> tuple[Claim, ...]:
        """The claims of the plan for the simulated policy."""
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
    """Requests per second; 0 if requests take no time, because there is no rate then."""
    return 1e9 / period_ns if period_ns > 0 else 0.0


def served_rate(served: Simulation) -> float:
    """Requests per second between the first arrival and the last end."""
    passages = served.traffic.passages
    took = max(p.ended_ns for p in passages) - min(p.came_ns for p in passages)
    return len(passages) * rate_of(took)


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """The 50th, 90th and 99th percentile and the maximum of sorted values."""
    return {name: percentile(values, share) for name, share in SHARES} | {
        "max": values[-1] if values else 0.0
    }


def middle(values: Sequence[float]) -> tuple[float, float]:
    """The interval that contains the middle nine in ten of the values."""
    ranked = sorted(values)
    left_out = len(ranked) // 20
    return ranked[left_out], ranked[len(ranked) - 1 - left_out]


def windows_of(traffic: Journal) -> tuple[Window, ...]:
    """Equal windows from the first request to the last."""
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
    """Number of waiting requests in every window: the mean and the maximum."""
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
