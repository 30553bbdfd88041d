"""Choose a plan: our placement, every baseline and every way to share requests, side by side.

In: a `Problem`, an objective and options. Out: a `Choice`: the best candidate, all others, and a
bound. A candidate is a list of replicas, each with devices, a placement and its share of the
requests; so data parallelism (one device each), copies of a placement and one placement over all
devices have one form. What is best is picked from a list that holds the baselines, so no plan is
worse than one of them.

Equal devices make copies: with counts that share a divisor, the problem is solved for one such part
and repeated. With many devices, the bound comes from the problem in which all devices of a type are
one (`aggregate`), and placements are found by expanding its solution and by local search.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from math import gcd

from tessera.passes.partition_baselines import STRATEGIES, best_baseline, runs
from tessera.passes.partition_latency import latency_of, solve_latency
from tessera.passes.partition_problem import (
    INFINITY,
    Measure,
    Pipe,
    Placement,
    Problem,
    Room,
    measure,
    restrict,
)
from tessera.passes.partition_search import best_of, improve
from tessera.passes.partition_solve import Solution, SolveOptions, lower_bound, solve

OBJECTIVES = ("throughput", "latency", "cost")
_DIRECT_DEVICES = 3  # with more, the integer program is solved for types, not for devices
_HOUR_NS = 3600e9


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlan:
    """One copy of the model: its placement, and the share of requests it serves."""

    placement: Placement
    share: float
    measure: Measure


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A way to serve requests. Memory is per room; `usd` is per request."""

    name: str
    replicas: tuple[ReplicaPlan, ...]
    period_ns: float
    latency_ns: float
    usd: float
    memory: tuple[int, ...]

    def value(self, objective: str) -> float:
        """What the objective minimises."""
        return {"throughput": self.period_ns, "latency": self.latency_ns, "cost": self.usd}[
            objective
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The best candidate first; `bound` is in the unit of the objective, `ended` as in `solve`."""

    objective: str
    candidates: tuple[Candidate, ...]
    bound: float
    ended: str
    duals: tuple[tuple[str, float], ...] = ()

    @property
    def best(self) -> Candidate:
        """The candidate to run."""
        return self.candidates[0]

    @property
    def gap(self) -> float:
        """How far the best is above the bound, as a fraction of it."""
        value = self.best.value(self.objective)
        return max(0.0, value / self.bound - 1.0) if self.bound > 0 else 0.0


def choose(
    problem: Problem, objective: str = "throughput", options: SolveOptions | None = None
) -> Choice | None:
    """The best plan found, with all others; None if nothing fits (see `partition_infeasible`)."""
    options = options or SolveOptions()
    if not all(task.allowed() for task in problem.tasks):
        return None
    found = list(_baselines(problem))
    bound, ended = 0.0, "gap"
    duals: tuple[tuple[str, float], ...] = ()
    starts = tuple(c.replicas[0].placement for c in found if len(c.replicas) == 1)
    if objective == "latency":
        fastest = solve_latency(problem, starts)
        bound = fastest.bound_ns
        if fastest.placement is not None:
            found.append(_one(problem, "tessera", fastest.placement))
    elif objective == "cost":
        extra, bound, ended = _cheapest(problem, options)
        found += extra
    else:
        solved = solve_many(problem, options, starts)
        bound, ended, duals = solved.relaxation_ns, solved.ended, solved.duals
        if solved.placement is not None:
            found.append(_one(problem, "tessera", solved.placement))
        found += _copies(problem, options)
    usable = [one for one in found if one.value(objective) < INFINITY]
    if not usable:
        return None
    # Equal ones stay in the order above: "do not split" wins a draw.
    ranked = sorted(usable, key=lambda one: one.value(objective))
    bound = min(bound, ranked[0].value(objective))
    return Choice(
        objective=objective, candidates=tuple(ranked), bound=bound, ended=ended, duals=duals
    )


# --- candidates ------------------------------------------------------------------------------


def _one(problem: Problem, name: str, placement: Placement) -> Candidate:
    return _candidate(problem, name, ((placement, 1.0),))


def _candidate(
    problem: Problem, name: str, parts: tuple[tuple[Placement, float], ...]
) -> Candidate:
    """A candidate from placements and their rates; rates become shares."""
    measured = [measure(problem, placement) for placement, _ in parts]
    total = sum(rate for _, rate in parts)
    replicas = tuple(
        ReplicaPlan(placement=placement, share=rate / total, measure=found)
        for (placement, rate), found in zip(parts, measured, strict=True)
    )
    period = max(
        sum(r.measure.loads[resource] * r.share for r in replicas)
        for resource in range(len(problem.resources()))
    )
    memory = tuple(map(sum, zip(*(found.memory for found in measured), strict=True)))
    if any(used > room.bytes for used, room in zip(memory, problem.rooms, strict=True)):
        period = INFINITY
    latency = INFINITY
    if period < INFINITY:
        times = [latency_of(problem, placement) for placement, _ in parts]
        latency = max(times)
        if problem.slots is not None:
            pairs = zip(times, replicas, strict=True)
            period = max(period, *(time * r.share / problem.slots for time, r in pairs))
    used = {device for placement, _ in parts for device in placement}
    price = sum(r.usd_per_hour for r in problem.rooms if used & set(r.devices))
    return Candidate(
        name=name, replicas=replicas, period_ns=period, latency_ns=latency,
        usd=period * price / _HOUR_NS, memory=memory,
    )  # fmt: skip


def _baselines(problem: Problem) -> list[Candidate]:
    """What people would do: each strategy at its best, each device alone, all of them apart."""
    found = []
    for device, name in enumerate(problem.devices):
        alone = (device,) * len(problem.tasks)
        if runs(problem, alone) and measure(problem, alone).fits:
            found.append(_one(problem, f"single:{name}", alone))
    parts = tuple((one.replicas[0].placement, 1.0 / max(one.period_ns, 1e-9)) for one in found)
    # One of each type stands for all.
    first = {group[0] for group in types_of(problem)}
    found = [one for one in found if one.replicas[0].placement[0] in first]
    if len(parts) > 1:
        found.append(_candidate(problem, "dp", parts))
    if len(problem.devices) > 1:
        for strategy in STRATEGIES[1:]:
            placement = best_baseline(problem, strategy)
            if placement is not None:
                found.append(_one(problem, strategy, placement))
    return [one for one in found if one.period_ns < INFINITY]


def _copies(problem: Problem, options: SolveOptions) -> list[Candidate]:
    """Plans for parts of the devices, side by side; parts that are alike share one plan."""
    counts = [len(group) for group in types_of(problem)]
    found = []
    for number in sorted({gcd(*counts), min(counts), max(counts)} - {1}):
        rates = _parts_with_rates(problem, options, equal_parts(problem, number))
        if len(rates) > 1:
            found.append(_candidate(problem, f"{len(rates)} replicas", rates))
    return [one for one in found if one.period_ns < INFINITY]


def _parts_with_rates(
    problem: Problem, options: SolveOptions, parts: tuple[tuple[int, ...], ...]
) -> tuple[tuple[Placement, float], ...]:
    """A placement and a rate for each part that can serve requests."""
    kinds = {d: index for index, group in enumerate(types_of(problem)) for d in group}
    solved: dict[tuple[int, ...], tuple[tuple[int, ...], Placement | None]] = {}
    found = []
    for part in parts:
        shape = tuple(kinds[device] for device in part)
        if shape not in solved:
            inside = restrict(problem, part)
            usable = all(task.allowed() for task in inside.tasks)
            plan = solve_many(inside, options, ()).placement if usable else None
            solved[shape] = part, plan
        model, placement = solved[shape]
        if placement is None:
            continue
        other = dict(zip(model, part, strict=True))
        copied = tuple(other[device] for device in placement)
        found.append((copied, 1.0 / max(measure(problem, copied).period_ns, 1e-9)))
    return tuple(found)


def types_of(problem: Problem) -> tuple[tuple[int, ...], ...]:
    """Devices that are alike: same times for all tasks, same memory, alone on their card."""
    rooms = {d: room for room in problem.rooms for d in room.devices}
    groups: dict[object, list[int]] = {}
    for device in range(len(problem.devices)):
        room = rooms.get(device)
        alone = room is None or len(room.devices) == 1
        key = (
            tuple(task.ns[device] for task in problem.tasks),
            None if room is None else room.bytes,
            None if alone else device,
        )
        groups.setdefault(key, []).append(device)
    return tuple(tuple(group) for group in groups.values())


def equal_parts(problem: Problem, number: int) -> tuple[tuple[int, ...], ...]:
    """The devices of each type dealt to parts as evenly as can be; empty parts are left out."""
    parts: list[list[int]] = [[] for _ in range(number)]
    for group in types_of(problem):
        for part in range(number):
            first, last = (len(group) * n // number for n in (part, part + 1))
            parts[part] += group[first:last]
    return tuple(tuple(part) for part in parts if part)


# --- many devices ----------------------------------------------------------------------------


def solve_many(problem: Problem, options: SolveOptions, starts: tuple[Placement, ...]) -> Solution:
    """As `solve`; with many devices, by types, expansion and local search."""
    usable = {device for task in problem.tasks for device in task.allowed()}
    if len(usable) <= _DIRECT_DEVICES:
        return solve(problem, options, starts)
    merged, groups = aggregate(problem)
    found = solve(merged, options)
    bound = found.relaxation_ns
    trials = list(starts)
    if found.placement is not None:
        trials += _expansions(problem, groups, found.placement)
    best = best_of(problem, [improve(problem, one) for one in trials[:8]] + trials)
    period = INFINITY if best is None else measure(problem, best).period_ns
    return Solution(
        placement=best, period_ns=period, bound_ns=min(bound, period),
        relaxation_ns=min(bound, period), ended="search", duals=found.duals,
    )  # fmt: skip


def aggregate(problem: Problem) -> tuple[Problem, tuple[tuple[int, ...], ...]]:
    """The problem with one device per type, n times as fast and large: no plan beats its bound."""
    groups = types_of(problem)
    of = {device: index for index, group in enumerate(groups) for device in group}
    tasks = tuple(
        replace(
            task,
            ns=tuple(
                None if (ns := task.ns[group[0]]) is None else ns / len(group) for group in groups
            ),
        )
        for task in problem.tasks
    )
    rooms: dict[tuple[int, ...], list[Room]] = {}
    for room in problem.rooms:
        rooms.setdefault(tuple(sorted({of[d] for d in room.devices})), []).append(room)
    merged_rooms = tuple(
        replace(found[0], bytes=sum(room.bytes for room in found), devices=devices)
        for devices, found in rooms.items()
    )
    ends = {(of[wire.source], of[wire.target]) for wire in problem.wires}
    pairs = sorted((a, b) for a, b in ends if a != b)
    wires = tuple(
        min(
            (
                replace(w, source=source, target=target)
                for w in problem.wires
                if (of[w.source], of[w.target]) == (source, target)
            ),
            key=lambda wire: (wire.ns_per_byte, wire.latency_ns),
        )
        for source, target in pairs
    )
    merged = replace(
        problem,
        devices=tuple(f"{len(group)}x {problem.devices[group[0]]}" for group in groups),
        tasks=tasks,
        rooms=merged_rooms,
        wires=wires,
        pipes=_merged_pipes(problem, of, groups),
        shared=(),
        transfer_ns=problem.transfer_ns / max(len(group) for group in groups),
    )
    return merged, groups


def _merged_pipes(
    problem: Problem, of: dict[int, int], groups: tuple[tuple[int, ...], ...]
) -> tuple[Pipe, ...]:
    """What a type can send and receive in all; left out where some way is not bounded."""
    found = []
    for end, way in enumerate(("out", "in")):
        for index in range(len(groups)):
            crossing = {
                pair
                for wire in problem.wires
                if of[(pair := (wire.source, wire.target))[end]] == index
                and of[pair[1 - end]] != index
            }
            pipes = [
                pipe
                for pipe in problem.pipes
                if len({pair[end] for pair in pipe.pairs}) == 1
                and of[pipe.pairs[0][end]] == index
                and crossing & set(pipe.pairs)
            ]
            covered = {pair for pipe in pipes for pair in pipe.pairs}
            if not pipes or not crossing <= covered or any(p.ns_per_byte <= 0 for p in pipes):
                continue
            found.append(
                Pipe(
                    name=f"type {index} {way}",
                    ns_per_byte=1.0 / sum(1.0 / pipe.ns_per_byte for pipe in pipes),
                    pairs=tuple(sorted({(of[a], of[b]) for a, b in crossing})),
                )
            )
    return tuple(found)


def _expansions(
    problem: Problem, groups: tuple[tuple[int, ...], ...], typed: Placement
) -> list[Placement]:
    """Each type's tasks over its devices: in runs of equal time, forwards and interleaved."""
    found = []
    for group_order in (1, -1):
        place = [0] * len(typed)
        for index, group in enumerate(groups):
            members = [task for task, kind in enumerate(typed) if kind == index]
            total = sum(problem.tasks[task].ns[group[0]] or 0.0 for task in members)
            done = 0.0
            for task in members:
                ns = problem.tasks[task].ns[group[0]] or 0.0
                slot = int((done + ns / 2) / max(total, 1e-12) * len(group))
                place[task] = group[::group_order][min(slot, len(group) - 1)]
                done += ns
        found.append(tuple(place))
    return found


# --- cost --------------------------------------------------------------------------------------


def _cheapest(problem: Problem, options: SolveOptions) -> tuple[list[Candidate], float, str]:
    """Plans for subsets of the cards, a bound on the money per request, and how it ended."""
    found: list[Candidate] = []
    least, bound, ended = INFINITY, INFINITY, "gap"
    for cards in _subsets(problem):
        devices = tuple(sorted(d for card in cards for d in problem.rooms[card].devices))
        part = restrict(problem, devices)
        if any(not task.allowed() for task in part.tasks):
            continue
        price = sum(problem.rooms[card].usd_per_hour for card in cards) / _HOUR_NS
        floor = lower_bound(aggregate_if_many(part)) * price
        bound = min(bound, floor)
        if floor >= least:
            continue
        inside = _within(part, devices)
        solved = solve_many(part, options, tuple(c.replicas[0].placement for c in inside))
        if solved.placement is not None:
            inside.append(_one(problem, "tessera", solved.placement))
        ended = solved.ended if solved.ended != "gap" else ended
        found += inside
        least = min([least, *(one.usd for one in inside)])
    return found, bound, ended


def aggregate_if_many(problem: Problem) -> Problem:
    """The problem itself, or with many devices the one by types."""
    usable = {device for task in problem.tasks for device in task.allowed()}
    return problem if len(usable) <= _DIRECT_DEVICES else aggregate(problem)[0]


def _within(part: Problem, devices: tuple[int, ...]) -> list[Candidate]:
    """The baselines that use no other devices than these."""
    return [
        one
        for one in _baselines(part)
        if all(set(replica.placement) <= set(devices) for replica in one.replicas)
    ]


def _subsets(problem: Problem) -> list[tuple[int, ...]]:
    """Sets of cards, few first; of cards that are alike only how many are used matters."""
    alike: dict[object, list[int]] = {}
    for index, room in enumerate(problem.rooms):
        columns = tuple(tuple(task.ns[d] for task in problem.tasks) for d in room.devices)
        alike.setdefault((columns, room.bytes, room.usd_per_hour), []).append(index)
    counts = itertools.product(*(range(len(group) + 1) for group in alike.values()))
    found = [
        tuple(card for group, n in zip(alike.values(), chosen, strict=True) for card in group[:n])
        for chosen in counts
    ]
    return sorted((one for one in found if one), key=lambda one: (len(one), one))
