"""A bound for many tasks and devices: how much of each kind of task is on each type of device.

In: a `Problem`. Out: an `IntegerModel` without integers, and its bound.
Tasks that take the same times and bytes are one kind, so the model has some dozen columns where
that of all tasks has tens of thousands. Transfers are free in it. Any placement, or any sharing of
requests among placements, is a solution of it with the same loads of devices and no more memory:
take how much of each kind it has on each type. So no plan has a shorter period than the model's.

Slots are in it, too. A request takes no less than the tasks of a chain, each of which reads what
the one before it makes, and where these are on devices of two types, the way between them. So with
so many slots a replica serves no more than that many requests in this time, and there are no more
replicas than the memory holds copies.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np

from tessera.planning.bound.model import PERIOD, IntegerModel, ModelBuilder, in_units, period_scale
from tessera.planning.bound.relax import relax
from tessera.planning.problem.device_types import aggregate
from tessera.planning.problem.limits import ENDLESS, SearchWatch
from tessera.planning.problem.problem import INFINITY, Problem

Times = tuple[float | None, ...]
_Kind = tuple[Times, Times, int]


def class_bound(problem: Problem, slots: int | None, watch: SearchWatch = ENDLESS) -> float:
    """No plan has a shorter period; infinite if the memory does not hold the tasks.

    `slots` are the most that a replica has; None is as many as it takes.
    """
    relaxed = relax(build_class_model(problem, slots), watch)
    return INFINITY if relaxed is None else relaxed.bound_ns


def build_class_model(problem: Problem, slots: int | None) -> IntegerModel:
    """Rows: every kind is somewhere; times of types; memory; times of a request, over slots."""
    merged, groups = aggregate(problem)
    builder = ModelBuilder()
    builder.column("T", np.inf)
    scale = period_scale(merged)
    devices: list[dict[int, float]] = [{PERIOD: -1.0} for _ in groups]
    rooms: list[dict[int, float]] = [{} for _ in merged.rooms]
    room_of = {device: index for index, room in enumerate(merged.rooms) for device in room.devices}
    request: dict[int, float] = {}
    kinds = _kinds(problem, [group[0] for group in groups])
    members = Counter(kinds)
    columns: dict[_Kind, dict[int, int]] = {}
    for number, kind in enumerate(members):
        times, chained, size = kind
        columns[kind] = {}
        for device, ns in enumerate(times):
            if ns is None:
                continue
            column = builder.column(f"n[{number},{merged.devices[device]}]", 1.0)
            columns[kind][device] = column
            devices[device][column] = in_units(members[kind] * ns / len(groups[device]), scale)
            if device in room_of:
                capacity = max(merged.rooms[room_of[device]].bytes, 1)
                rooms[room_of[device]][column] = members[kind] * size / capacity
            request[column] = in_units(members[kind] * (chained[device] or 0.0), scale)
        terms = dict.fromkeys(columns[kind].values(), 1.0)
        builder.at_most(f"all[{number}]", terms, 1.0, least=1.0)
    for name, terms in zip(merged.devices, devices, strict=True):
        builder.at_most(f"device[{name}]", terms, 0.0)
    for room, terms in zip(merged.rooms, rooms, strict=True):
        builder.at_most(f"room[{room.name}]", terms, 1.0)
    if slots is not None:
        most = slots * most_replicas(problem)
        for (made, read, least), count in _hops(problem, kinds).items():
            for type_, column in columns[read].items():
                # How many readers are on this type, and at most how many of their producers.
                hop = builder.column(f"hops[{len(builder.columns)}]", float(count))
                terms = {column: float(members[read]), hop: -1.0}
                if type_ in columns[made]:
                    own = columns[made][type_]
                    terms[own] = terms.get(own, 0.0) - members[made]
                builder.at_most("hops", terms, float(members[read] - count))
                request[hop] = in_units(least, scale)
        builder.at_most("slots", {PERIOD: -float(most), **request}, 0.0)
    return builder.finish(merged, scale)


def most_replicas(problem: Problem) -> int:
    """How often memory holds everything once; no more than there are devices."""
    needed = sum(resident.bytes for resident in problem.residents if resident.users)
    if not needed or {d for room in problem.rooms for d in room.devices} != set(
        range(len(problem.devices))
    ):
        return len(problem.devices)
    held = sum(room.bytes for room in problem.rooms)
    return max(1, min(len(problem.devices), held // needed))


def _kinds(problem: Problem, firsts: list[int]) -> list[_Kind]:
    """The kind of each task: times on types, those in the chain, bytes.

    What several tasks hold together is counted with the first of them: it is there in any case.
    """
    sizes = [0] * len(problem.tasks)
    for resident in problem.residents:
        if resident.users:
            sizes[resident.users[0]] += resident.bytes
    detail, groups = problem, tuple(range(len(problem.tasks)))
    if problem.detail is not None:
        detail, groups = problem.detail.problem, problem.detail.groups
    chained: list[list[float]] = [[0.0] * len(firsts) for _ in problem.tasks]
    for task in _longest_chain(detail):
        own = chained[groups[task]]
        for kind, device in enumerate(firsts):
            own[kind] += (detail.tasks[task].ns[device] or 0.0) * detail.tasks[task].rate
    return [
        (_times(task.ns, task.rate, firsts), tuple(chained[number]), sizes[number])
        for number, task in enumerate(problem.tasks)
    ]


def _hops(problem: Problem, kinds: list[_Kind]) -> Counter[tuple[_Kind, _Kind, float]]:
    """What the chain reads from one task to the next: their kinds, and how long it is under way.

    How many of them go from one type to another is bounded by how many tasks of both kinds are on
    each type.
    """
    detail, groups = problem, tuple(range(len(problem.tasks)))
    if problem.detail is not None:
        detail, groups = problem.detail.problem, problem.detail.groups
    chain = _longest_chain(detail)
    after = dict(pairwise(reversed(chain)))
    rate = {(wire.ns_per_byte, wire.latency_ns) for wire in problem.wires}
    hops: Counter[tuple[_Kind, _Kind, float]] = Counter()
    for tensor in detail.tensors:
        reader = after.get(tensor.producer)
        if reader not in tensor.consumers or groups[reader] == groups[tensor.producer]:
            continue
        way = min((tensor.bytes * per_byte + latency for per_byte, latency in rate), default=0.0)
        least = (way + problem.transfer_ns * tensor.count) * detail.tasks[reader].rate
        hops[kinds[groups[tensor.producer]], kinds[groups[reader]], least] += 1
        del after[tensor.producer]  # of several tensors between two tasks one is enough
    return hops


def _times(ns: Times, rate: float, firsts: list[int]) -> Times:
    return tuple(None if (own := ns[device]) is None else own * rate for device in firsts)


def _longest_chain(problem: Problem) -> list[int]:
    """Tasks that a request runs one after the other, each reading from the one before it.

    Of traces that are planned together none: a request is of one of them.
    """
    if len({task.trace for task in problem.tasks}) > 1:
        return []
    least = [min((ns for ns in task.ns if ns is not None), default=0.0) for task in problem.tasks]
    before: list[set[int]] = [set() for _ in least]
    for tensor in problem.tensors:
        for reader in tensor.consumers:
            if tensor.producer < reader:
                before[reader].add(tensor.producer)
    length, came = list(least), [-1] * len(least)
    for task, producers in enumerate(before):
        for producer in sorted(producers):
            if length[producer] + least[task] > length[task]:
                length[task], came[task] = length[producer] + least[task], producer
    chain = []
    task = int(np.argmax(length)) if length else -1
    while task >= 0:
        chain.append(task)
        task = came[task]
    return chain
