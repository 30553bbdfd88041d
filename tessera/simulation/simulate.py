"""`simulate`: the time that a plan's launch programs take, request by request.

In: a `Plan` and a `Hardware`, the numbers of slots and sequences, arrival times, a seed for noise.
Out: a `Simulation`: rate, latencies, and the busy share of every place.

One request runs alone (`alone`), or requests arrive at given times (`arrive`) and are dealt to
replicas by share. `steady` handles back-to-back requests. Programs do not depend on the numbers of
slots and sequences; areas do (`with_counts`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tessera.ir.plan.launch_program import AreaKind, LoweredReplica, with_area_counts
from tessera.ir.plan.plan import Plan, Replica, memory_on
from tessera.simulation.events import EventLoop
from tessera.simulation.hardware import Hardware
from tessera.simulation.intake import Coming, SimulatedReplica, most_behind, sequence_turns
from tessera.simulation.journal import Journal, Passage
from tessera.simulation.known_work import KnownWork, shape_of, work_of
from tessera.simulation.noise import Noise


def with_counts(replica: Replica, slots: int, lanes: int) -> Replica:
    """The same launch programs with other numbers of slots and sequences."""
    lowered: LoweredReplica = replica.lowered
    areas = with_area_counts(lowered.areas, slots, lanes)
    return replace(
        replica,
        slots=slots,
        lanes=lanes,
        lowered=replace(lowered, slots=slots, lanes=lanes, areas=areas),
    )


def runs_alone(replica: Replica) -> bool:
    """Whether requests write module variables, which exist once: then there is only one slot."""
    variables = {
        (place.trace, place.buffer, place.device)
        for place in replica.lowered.places
        if place.kind is AreaKind.MODULE
    }
    return any((h.trace, h.buffer, h.device) in variables for h in replica.lowered.homes)


def overfull(plan: Plan, replicas: Sequence[Replica]) -> Iterator[tuple[str, int, int]]:
    """Cards whose areas exceed their memory, with the bytes needed and the bytes available."""
    for card in plan.cards:
        devices = [device.name for device in plan.devices if device.card == card.name]
        used = sum(memory_on(replicas, device) for device in devices)
        if used > card.capacity_bytes:
            yield card.name, used, card.capacity_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """Figures of a simulation. `period_ns` is the time between two requests of the whole plan.

    `latencies_ns` run from the begin of a request to its end, `responses_ns` from its arrival; both
    are sorted and cover the counted requests. `busy` is the busy share of the time, by device and
    path.
    """

    period_ns: float
    latencies_ns: tuple[float, ...]
    responses_ns: tuple[float, ...]
    busy: Mapping[str, float]
    traffic: Journal

    @property
    def latency_ns(self) -> float:
        """The median latency."""
        return percentile(self.latencies_ns, 0.5)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest sorted value that a `share` of the values does not exceed; 0 if empty."""
    if not values:
        return 0.0
    return values[max(0, math.ceil(share * len(values)) - 1)]


def alone(
    replicas: Sequence[Replica],
    shares: Sequence[float],
    hardware: Hardware,
    *,
    noise: Noise | None = None,
    known_work: KnownWork | None = None,
) -> float:
    """The time of a request on an idle machine: the mean over the traces that a replica serves,
    weighted by their shares.

    With several replicas, the time of the slowest one.
    """
    slowest = 0.0
    works = (known_work or KnownWork(hardware)).of(replicas, noise)
    known: dict[object, float] = {}
    for replica, work in zip(replicas, works, strict=True):
        key = shape_of([replica], [work], hardware) if len(replicas) > 1 else None
        if key not in known:
            mean = 0.0
            own = replica.own_shares(shares)
            for trace in work:
                coming = iter((Coming(0.0, trace, 0),))
                loop = EventLoop(
                    [SimulatedReplica(work=work, slots=1, sequences=1, depth=1, coming=coming)],
                    hardware.capacities,
                    hardware.neighbours,
                )
                loop.run()
                mean += own[trace] / sum(own) * loop.traffic().ended_ns
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
    """Simulate requests at these times, in order, dealt to replicas and traces by share."""
    works = work_of(replicas, hardware, noise)
    lines: list[list[Coming]] = [[] for _ in replicas]
    sequences = [sequence_turns(replica.own_shares(shares), replica.lanes) for replica in replicas]
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
    return summary(period, traffic.passages, traffic)


def summary(period_ns: float, counted: Sequence[Passage], traffic: Journal) -> Simulation:
    """The figures of the counted requests."""
    return Simulation(
        period_ns=period_ns,
        latencies_ns=tuple(sorted(p.ended_ns - p.began_ns for p in counted)),
        responses_ns=tuple(sorted(p.ended_ns - p.came_ns for p in counted)),
        busy=busy_shares(traffic),
        traffic=traffic,
    )


def busy_shares(traffic: Journal) -> dict[str, float]:
    """The share of the time that each place was busy."""
    whole = traffic.ended_ns
    return {name: ns / whole if whole else 0.0 for name, ns in traffic.busy_ns.items()}


# --- what is simulated --------------------------------------------------------------------------


def shares_of(plan: Plan) -> tuple[float, ...]:
    """The shares of the traces."""
    return tuple(trace.share for trace in plan.traces)
