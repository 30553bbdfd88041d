"""A bound for many tasks and devices, from the fraction of each kind of task on each device type.

In: a `Problem`. Out: an `IntegerModel` without integers, and its bound. Tasks with equal times and
bytes are one kind, so the model has a few dozen columns where a model of all tasks has tens of
thousands. Transfers are free in it. Any placement, or any sharing of requests among placements,
maps to a solution with the same device loads and no more memory: take the fraction of each kind
that it has on each type. So no plan has a shorter period than the model.

The model also has slots. A request takes at least the time of a chain of tasks, each of which reads
a result of the previous one, plus a transfer wherever two neighbours are on devices of different
types. A replica serves at most as many requests in this time as it has slots, and there are at most
as many replicas as the memory holds copies.
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
    """A lower bound of the period; infinite if the memory does not hold the tasks.

    `slots` is the maximum number of slots of a replica; None means no limit.
    """
    relaxed = relax(build_class_model(problem, slots), watch)
    return INFINITY if relaxed is None else relaxed.bound_ns


def build_class_model(problem: Problem, slots: int | None) -> IntegerModel:
    """Rows: every kind is placed; loads of types; memory; time of a request over the slots."""
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
                # Hops onto this type: its readers, less the producers on it.
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
    """Number of copies of everything that memory holds, at most the number of devices."""
    needed = sum(resident.bytes for resident in problem.residents if resident.users)
    if not needed or {d for room in problem.rooms for d in room.devices} != set(
        range(len(problem.devices))
    ):
        return len(problem.devices)
    held = sum(room.bytes for room in problem.rooms)
    return max(1, min(len(problem.devices), held // needed))


def _kinds(problem: Problem, firsts: list[int]) -> list[_Kind]:
    """The kind of each task: times on types, those in the chain, bytes.

    A resident shared by several tasks is counted with the first: it is in memory in any case.
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
    """Hops of the chain between neighbours: the kinds of both tasks and the transfer time.

    The number of hops between types is bounded by the number of tasks of both kinds on each type.
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
        del after[tensor.producer]  # one tensor between two tasks is enough
    return hops


def _times(ns: Times, rate: float, firsts: list[int]) -> Times:
    return tuple(None if (own := ns[device]) is None else own * rate for device in firsts)


def _longest_chain(problem: Problem) -> list[int]:
    """Tasks that a request runs one after the other, each reading from the one before it.

    Empty for traces that are planned together, since a request belongs to one of them.
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
