"""Changes to memory, names and copies of a lowered replica that provably change nothing.

Each function is a kind of change and says why; `plan_harmless` has the table.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TypeVar

from tessera.ir.plan.launch_program import (
    HOST,
    AreaKind,
    Free,
    LoweredReplica,
    Operation,
    Place,
    Run,
)
from tessera.ir.program.program import Role
from tests.helpers.plan_cases import Case
from tests.helpers.plan_harmless_operations import (
    Changed,
    exchanged,
    on_each,
    some_ops,
    with_ops,
    with_trace,
)

T = TypeVar("T")


def _room(replica: LoweredReplica, device: str, kind: AreaKind, more: int) -> LoweredReplica:
    """The replica with a larger area."""
    areas = tuple(
        replace(area, bytes=-(-area.bytes // 256) * 256 + more)
        if (area.device, area.kind) == (device, kind)
        else area
        for area in replica.areas
    )
    return replace(replica, areas=areas)


def larger_areas(rng: random.Random, case: Case, replica: LoweredReplica) -> Changed | None:
    """Memory that nobody uses; all places of an area may move up into it."""
    if not replica.areas:
        return None
    area, more = rng.choice(replica.areas), 256 * rng.randrange(1, 5)
    made = _room(replica, area.device, area.kind, more)
    if rng.random() < 0.6:
        places = tuple(
            replace(place, offset=place.offset + more)
            if (place.device, place.kind) == (area.device, area.kind)
            else place
            for place in replica.places
        )
        made = replace(made, places=places)
    return case, made


def memory_of_its_own(rng: random.Random, case: Case, replica: LoweredReplica) -> Changed | None:
    """A place in a slot goes behind all others: nobody shares its bytes. It may become whole."""
    rows = [n for n, place in enumerate(replica.places) if place.kind is AreaKind.SLOT]
    if not rows:
        return None
    at = rng.choice(rows)
    place = replica.places[at]
    return case, behind(replica, at, replace(place, first=0, end=None), case)


def behind(replica: LoweredReplica, at: int, place: Place, case: Case) -> LoweredReplica:
    """A place with new memory at the end of its area; `at` is the one that it replaces."""
    size = case.programs[place.trace].buffers[place.buffer].bytes
    area = next(a for a in replica.areas if (a.device, a.kind) == (place.device, place.kind))
    start = -(-area.bytes // 256) * 256
    made = _room(replica, place.device, place.kind, -(-size // 256) * 256)
    moved = replace(place, offset=start)
    return replace(made, places=(*replica.places[:at], moved, *replica.places[at + 1 :]))


def more_places(rng: random.Random, case: Case, replica: LoweredReplica) -> Changed | None:
    """A buffer gets memory on a device where nothing touches it."""
    names = {
        (place.device, case.programs[place.trace].buffers[place.buffer].name)
        for place in replica.places
    }
    kinds = {
        Role.WEIGHT: AreaKind.WEIGHTS,
        Role.STATE: AreaKind.LANE,
        **dict.fromkeys((Role.INPUT, Role.OUTPUT, Role.TEMP), AreaKind.SLOT),
    }
    has_area = {(area.device, area.kind) for area in replica.areas}
    tables = {
        (number, buffer)
        for number, program in enumerate(case.programs)
        for table in program.pointer_tables
        for buffer in (table.buffer, *(word.target.buffer for word in table.words))
    }
    spots = [
        Place(trace=trace.trace, buffer=one.id, device=device, kind=kinds[one.role], offset=0)
        for trace in replica.traces
        for one in case.programs[trace.trace].buffers
        for device in replica.devices
        if one.role in kinds
        and (device, one.name) not in names
        and (device, kinds[one.role]) in has_area
        and (trace.trace, one.id) not in tables
    ]
    return (case, behind(replica, len(replica.places), rng.choice(spots), case)) if spots else None


def exchanged_places(rng: random.Random, case: Case, replica: LoweredReplica) -> Changed | None:
    """Two weights, or two states, of one size in each other's place, for all traces."""

    def key(place: Place) -> object:
        size = case.programs[place.trace].buffers[place.buffer].bytes
        return place.device, place.kind, place.first, place.end, size

    lasting = [p for p in replica.places if p.kind in (AreaKind.WEIGHTS, AreaKind.LANE)]
    pairs = [
        (one, other)
        for one in lasting
        for other in lasting
        if one.offset < other.offset and key(one) == key(other)
    ]
    if not pairs:
        return None
    one, other = rng.choice(pairs)
    offsets = {one.offset: other.offset, other.offset: one.offset}
    places = tuple(
        replace(p, offset=offsets.get(p.offset, p.offset))
        if (p.device, p.kind) == (one.device, one.kind)
        else p
        for p in replica.places
    )
    return case, replace(replica, places=places)


def fewer_frees(rng: random.Random, case: Case, replica: LoweredReplica) -> Changed | None:
    """No `free` of a buffer that shares bytes with no other of its trace."""
    chosen = some_ops(rng, replica)
    if chosen is None:
        return None
    at, number, ops = chosen
    trace = replica.traces[at]
    device, rows = trace.programs[number].device, []
    taken = {
        place.buffer: place.taken(case.programs[place.trace].buffers[place.buffer].bytes)
        for place in replica.places
        if (place.trace, place.device, place.kind) == (trace.trace, device, AreaKind.SLOT)
    }
    for n, queued in enumerate(ops):
        if isinstance(queued.operation, Free):
            start, end = taken[queued.operation.buffer]
            others = [span for b, span in taken.items() if b != queued.operation.buffer]
            if not any(first < end and start < last for first, last in others):
                rows.append(n)
    if not rows:
        return None
    gone = rng.choice(rows)
    return case, with_ops(replica, at, number, ops[:gone] + ops[gone + 1 :])


def more_copies(rng: random.Random, case: Case, replica: LoweredReplica) -> Changed | None:
    """A slot or a lane more, with memory."""
    has_variables = any(one.role is Role.VARIABLE for p in case.programs for one in p.buffers)
    kind = AreaKind.LANE if rng.random() < 0.5 or has_variables else AreaKind.SLOT
    has_tables = any(program.pointer_tables for program in case.programs)
    if has_tables:
        return None
    areas = tuple(
        replace(a, count=a.count + 1, bytes=-(-a.bytes // 256) * 256) if a.kind is kind else a
        for a in replica.areas
    )
    counts = {"slots": replica.slots + 1} if kind is AreaKind.SLOT else {"lanes": replica.lanes + 1}
    return case, replace(replica, areas=areas, **counts)


def other_gate(rng: random.Random, case: Case, replica: LoweredReplica) -> Changed | None:
    """When the next request begins is advice."""
    at = rng.randrange(len(replica.traces))
    trace = replica.traces[at]
    gate = rng.choice([None, rng.randrange(len(case.graphs[trace.trace].nodes))])
    return case, with_trace(replica, at, replace(trace, gate=gate))


def other_names(rng: random.Random, case: Case, replica: LoweredReplica) -> Changed | None:
    """Devices have each other's names, everywhere."""
    mixed = rng.sample(replica.devices, len(replica.devices))
    names = {HOST: HOST, **dict(zip(replica.devices, mixed, strict=True))}

    def ends(one: T) -> T:
        return replace(one, source=names[one.source], target=names[one.target])

    def own(one: T) -> T:
        return replace(one, device=names[one.device])

    traces = tuple(
        replace(
            trace,
            transfers=tuple(map(ends, trace.transfers)),
            programs=tuple(map(own, trace.programs)),
        )
        for trace in replica.traces
    )
    made = replace(
        replica,
        devices=tuple(mixed),
        areas=tuple(map(own, replica.areas)),
        places=tuple(map(own, replica.places)),
        homes=tuple(map(own, replica.homes)),
        landings=tuple(map(ends, replica.landings)),
        traces=traces,
    )
    placements = tuple(tuple(names[device] for device in row) for row in case.placements)
    return replace(case, placements=placements), made


def exchanged_twins(rng: random.Random, case: Case, replica: LoweredReplica) -> Changed | None:
    """Two twins, which are one step, on each other's device."""
    groups = [
        (at, group)
        for at, trace in enumerate(replica.traces)
        for group in case.graphs[trace.trace].twins
    ]
    if not groups:
        return None
    at, group = rng.choice(groups)
    one, other = rng.sample(group, 2)
    steps = {one: other, other: one}

    def change(number: int, operation: Operation) -> Operation:
        if number == at and isinstance(operation, Run):
            return Run(steps.get(operation.step, operation.step))
        return operation

    placements = list(case.placements)
    trace = replica.traces[at].trace
    placements[trace] = exchanged(placements[trace], int(one), int(other))
    made = replace(replica, traces=on_each(replica, change))
    return replace(case, placements=tuple(placements)), made
