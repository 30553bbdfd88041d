"""Contention between slices of one card, for each placement.

In: a `PlanSetting` whose profile has times beside neighbours, and candidates. Out: the same
candidates with times that fit them. A step was measured beside a neighbour that only computes and
beside one that moves as many bytes as it can. In a plan the neighbours are in between: the time is
interpolated by the bytes that they draw in a period, as a fraction of the bytes that the measuring
neighbour drew. The measuring neighbour saturates the memory from half of the SMs on. The period
depends on the times, and the bytes drawn depend on the period, so the computation is iterated a few
times.

Measured on an H200: attention over caches takes up to 7% longer beside products, products mostly up
to 12% (28% in the worst of 24 pairs) beside it; beside a neighbour that only moves memory both take
up to 90% longer. Of 12 pairs the times of this rule are within 8%. Whole plans take longer than
pairs of their steps say: slices that are all busy for long lower the clock and fill the L2 cache.
On the other hand, two requests on one device fill each other's gaps. The profile measures both
effects: it runs requests for a long time on a slice and on the rest of the GPU at once, or on a
whole GPU, one at a time and two at a time. With these figures the simulation accounts for the
number of requests on a device, and for whether its neighbours compute. Without them, slices use
`TOGETHER`, which is about the value in five profiles of an H200 for their own traces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tessera.ir.plan.costs import Costs, Duration, MeasuredTogether
from tessera.ir.plan.machine import Device, Machine
from tessera.ir.program.program import Program, Role
from tessera.planning.given.setting import Attempt, PlanSetting
from tessera.planning.prices.adjust_costs import Crowd, beside_neighbours, in_crowds
from tessera.planning.problem.limits import ENDLESS
from tessera.planning.problem.problem import INFINITY, Problem, SharedLoad, contract
from tessera.planning.roles.role_candidate import shared_again
from tessera.planning.roles.shares import trace_problems
from tessera.planning.search.candidates import Candidate, ReplicaPlan, candidate_of, with_rates
from tessera.planning.search.plans import Choice, first_of_names
from tessera.planning.search.solve import lower_bound

_START = 0.5
_ROUNDS = 4
_SEARCHES = 2
_SATURATES = 0.5  # fraction of the SMs of a card
# At best, two requests that fill each other's gaps take as long as one.
_LEAST_SHARE = 0.5
TOGETHER = 1.10

Search = Callable[[Problem], Choice | None]
Crowds = Sequence[tuple[Crowd, ...]]
"""Per trace and device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A candidate with self-consistent times; `shares` as in `beside_neighbours`."""

    setting: PlanSetting
    attempt: Attempt
    candidate: Candidate
    shares: tuple[float, ...]


def has_neighbours(setting: PlanSetting) -> bool:
    """Whether times are known to depend on the work of neighbours."""
    if not setting.options.aim.is_rate:
        return False
    return any(_measured_together(setting)) or any(
        isinstance(cost, Duration) and cost.beside is not None
        for costs in setting.costs
        for step in costs.steps
        for cost in step.on_device
    )


def settle(setting: PlanSetting, attempt: Attempt, candidate: Candidate) -> Settled:
    """A candidate with self-consistent times, which depend only on its placements."""
    machine = setting.machine
    shares = (_START,) * len(machine.devices)
    crowds = [_beside(machine, candidate, own) for own in find_crowds(setting)]
    for _ in range(_ROUNDS):
        settled = _at(setting, attempt, candidate, shares, crowds)
        shares = _drawn(machine, settled.attempt.planning.problem, settled.candidate)
    return settled


def settle_all(
    setting: PlanSetting, attempt: Attempt, choice: Choice, search: Search | None
) -> Choice:
    """The best candidate of each name with self-consistent times, ranked; without a search, the
    first stays first.

    The search is repeated with the times of its best placement.
    """
    pool: dict[object, Settled] = {}
    for candidate in choice.candidates:  # of those with the same placements, the first
        if _key(candidate) not in pool:
            pool[_key(candidate)] = settle(setting, attempt, candidate)
    again = search is not None and not choice.ended.is_cut_short
    for _ in range(_SEARCHES if again else 0):
        split = [placed for placed in pool.values() if len(placed.candidate.replicas) == 1]
        best = min(split, key=_period, default=None)
        searched = None if best is None or search is None else search(_with_copies(attempt, best))
        fresh = (
            [candidate for candidate in searched.candidates if _key(candidate) not in pool]
            if searched
            else []
        )
        pool |= {_key(candidate): settle(setting, attempt, candidate) for candidate in fresh}
    settled = list(pool.values())
    first, rest = ([], settled) if search is not None else (settled[:1], settled[1:])
    fastest = first_of_names(placed.candidate for placed in (*first, *sorted(rest, key=_period)))
    # A bound: no device slows another down, and requests always fill each other's gaps.
    apart = [tuple(replace(crowd, lonely=True) for crowd in own) for own in find_crowds(setting)]
    idle = _at(setting, attempt, fastest[0], (0.0,) * len(setting.machine.devices), apart)
    least = lower_bound(idle.attempt.planning.problem) if search is not None else choice.bound
    least = min(least, *(candidate.period_ns for candidate in fastest))
    return replace(choice, candidates=fastest, bound=least)


def _with_copies(attempt: Attempt, settled: Settled) -> Problem:
    """The problem with the times of a placement, including what copies take from steps."""
    return replace(settled.attempt.planning.problem, wires=attempt.planning.problem.wires)


def _key(candidate: Candidate) -> object:
    return tuple(replica.placement for replica in candidate.replicas)


def _period(settled: Settled) -> float:
    return settled.candidate.period_ns


def _at(
    setting: PlanSetting,
    attempt: Attempt,
    candidate: Candidate,
    shares: Sequence[float],
    crowds: Crowds,
) -> Settled:
    """A candidate with the times for these shares of the neighbours and these crowds."""
    planning = attempt.planning
    costs = tuple(
        in_crowds(beside_neighbours(costs, shares), own)
        for costs, own in zip(setting.costs, crowds, strict=True)
    )
    detail = planning.problem.detail
    assert detail is not None, "steps were joined to tasks"
    steps = [step for trace_costs in costs for step in trace_costs.steps]
    tasks = tuple(
        replace(
            task,
            ns=tuple(cost.ns if isinstance(cost, Duration) else None for cost in step.on_device),
        )
        for task, step in zip(detail.problem.tasks, steps, strict=True)
    )
    # The slowdown by copies is part of the crowds: the same for all slices of the card.
    wires = tuple(replace(wire, end_ns_per_byte=0.0) for wire in detail.problem.wires)
    problem = contract(replace(detail.problem, tasks=tasks, wires=wires), detail.groups)
    if candidate.roles is not None:
        candidate = shared_again(problem, candidate, ENDLESS)
    else:
        parts = with_rates(problem, [replica.placement for replica in candidate.replicas])
        candidate = candidate_of(problem, candidate.name, parts)
    return Settled(
        setting=replace(setting, costs=costs),
        attempt=replace(attempt, planning=replace(planning, problem=problem)),
        candidate=candidate,
        shares=tuple(shares),
    )


def _beside(machine: Machine, candidate: Candidate, crowds: Sequence[Crowd]) -> tuple[Crowd, ...]:
    """The crowds of devices whose neighbours a candidate may not use."""
    used = {place for replica in candidate.replicas for place in replica.placement}
    beside = []
    for device, crowd in zip(machine.devices, crowds, strict=True):
        others = {other.id for other in machine.slices_of(device.card)} - {device.id}
        beside.append(replace(crowd, lonely=bool(others) and not others & used))
    return tuple(beside)


def find_crowds(setting: PlanSetting) -> Crowds:
    """Crowds by trace and device: how much longer it takes than its steps while all are busy."""
    machine = setting.machine
    crowds = []
    for costs, trace, known in zip(
        setting.costs, setting.traces, _measured_together(setting), strict=True
    ):
        own = []
        for device, ns in zip(machine.devices, _side_by_side(machine, costs), strict=True):
            measured = known.get((machine.gpu_of(device).key, device.sms))
            if measured is not None and ns:
                own.append(_crowd(measured, ns, _host_ns(machine, device, trace.program)))
            elif len(machine.slices_of(device.card)) > 1:
                own.append(Crowd(TOGETHER, TOGETHER))
            else:
                own.append(Crowd())
        crowds.append(tuple(own))
    return crowds


def _crowd(measured: MeasuredTogether, ns: float, host_ns: float) -> Crowd:
    """The crowd from a measurement of requests whose steps take `ns` nanoseconds.

    Requests one at a time also wait for the host; two at a time hide that."""
    crowded = measured.ns / ns
    steady = ns if measured.steady_ns is None else measured.steady_ns - host_ns
    alone = max(steady / ns, crowded)
    return Crowd(max(crowded, _LEAST_SHARE * alone), alone)


def _host_ns(machine: Machine, device: Device, program: Program) -> float:
    """Transfer time in ns of inputs and outputs between the host and a device."""
    moved = [b.bytes for b in program.buffers if b.role in (Role.INPUT, Role.OUTPUT)]
    rate = machine.gpu_of(device).pcie_bandwidth
    return sum(machine.transfer_ns + size * 1e9 / rate for size in moved)


def _measured_together(setting: PlanSetting) -> list[dict[tuple[str, int], MeasuredTogether]]:
    """Time of a request per trace, by GPU and SMs, while all devices run the same trace.

    For a mix, this is the nearest known figure.
    """
    devices = {
        (setting.machine.gpu_of(device).key, device.sms) for device in setting.machine.devices
    }
    return [
        {
            (row.gpu, row.sms): row
            for profile in setting.profiles
            if profile.program_digest == trace.planned.digest
            for row in profile.together
            if (row.gpu, row.sms) in devices
        }
        for trace in setting.traces
    ]


def _side_by_side(machine: Machine, costs: Costs) -> list[float]:
    """Time of a trace on each device while all devices run it; 0 where it cannot run."""
    moved = sum(step.memory_bytes for step in costs.steps) * 1e9
    moves_ns = [moved / machine.gpu_of(device).memory_bandwidth for device in machine.devices]
    shares: Sequence[float] = (_START,) * len(machine.devices)
    for _ in range(_ROUNDS):
        steps = beside_neighbours(costs, shares).steps
        times = []
        for device in machine.devices:
            here = [step.on_device[device.id] for step in steps]
            can = all(isinstance(cost, Duration) for cost in here)
            times.append(sum(cost.ns for cost in here if isinstance(cost, Duration)) * can)
        busy = zip(moves_ns, times, strict=True)
        shares = _shares(machine, [ns / whole if whole else 0.0 for ns, whole in busy])
    return times


def _drawn(machine: Machine, problem: Problem, candidate: Candidate) -> tuple[float, ...]:
    """Bandwidth that the neighbours of each device draw, relative to the measuring neighbour."""
    if not 0 < candidate.period_ns < INFINITY:
        return (_START,) * len(machine.devices)
    moving = [0.0] * len(machine.devices)
    for load in problem.shared:
        for replica in candidate.replicas:
            for ns, place in _moving(problem, load, replica):
                if place in load.devices:
                    moving[place] += ns / candidate.period_ns
    return _shares(machine, moving)


def _moving(
    problem: Problem, load: SharedLoad, replica: ReplicaPlan
) -> Iterator[tuple[float, int]]:
    """Memory traffic of a replica's tasks per request of the plan, and their devices."""
    part = replica.part
    if part is None:
        rows = zip(load.ns, replica.placement, strict=True)
        yield from ((ns * replica.share, place) for ns, place in rows)
        return
    for trace, own in enumerate(trace_problems(problem)):
        if trace in part.traces:
            ns_of = next(other.ns for other in own.shared if other.name == load.name)
            for ns, place in zip(ns_of, part.steps_of(trace), strict=True):
                yield ns * replica.shares[trace], place


def _shares(machine: Machine, moving: Sequence[float]) -> tuple[float, ...]:
    """Bandwidth that neighbours of each device draw, from the time that each moves memory."""
    shares = []
    for device in machine.devices:
        sms = machine.gpu_of(device).sms
        most = min(1.0, (sms - device.sms) / (_SATURATES * sms))
        slices = machine.slices_of(device.card)
        others = sum(moving[other.id] for other in slices if other != device)
        shares.append(min(1.0, others / most) if most > 0 else 0.0)
    return tuple(shares)
