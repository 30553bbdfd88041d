"""Device types: identical devices, equal parts, and the problem with one device per type.

In: a `Problem`. Out: its types; the devices dealt to parts; the problem in which each type is one
device, as fast and large as all devices of the type together. That problem is small, and its bound
holds for every plan.
"""

from __future__ import annotations

from dataclasses import replace

from tessera.planning.problem.problem import Pipe, Problem, Room, Wire

DIRECT_DEVICES = 3  # with more, the integer program is solved for types, not for devices


def usable_devices(problem: Problem) -> tuple[int, ...]:
    """The devices that some task can run on."""
    return tuple(sorted({device for task in problem.tasks for device in task.allowed()}))


def types_of(problem: Problem) -> tuple[tuple[int, ...], ...]:
    """Groups of identical devices: same times for all tasks, same memory, alone on their card."""
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


def may_fit(problem: Problem) -> bool:
    """Whether all rooms together hold each resident once; without it no placement fits."""
    roomed = {device for room in problem.rooms for device in room.devices}
    if roomed != set(range(len(problem.devices))):
        return True
    needed = sum(resident.bytes for resident in problem.residents if resident.users)
    return needed <= sum(room.bytes for room in problem.rooms)


def equal_parts(problem: Problem, number: int) -> tuple[tuple[int, ...], ...]:
    """The devices of each type dealt to parts as evenly as possible; empty parts are left out."""
    parts: list[list[int]] = [[] for _ in range(number)]
    for group in types_of(problem):
        for part in range(number):
            first, last = (len(group) * n // number for n in (part, part + 1))
            parts[part] += group[first:last]
    return tuple(tuple(part) for part in parts if part)


def aggregate(problem: Problem) -> tuple[Problem, tuple[tuple[int, ...], ...]]:
    """The problem with one device per type, n times as fast and large: its bound is valid."""
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
        replace(merged_rooms[0], bytes=sum(room.bytes for room in merged_rooms), devices=devices)
        for devices, merged_rooms in rooms.items()
    )
    ends = {(of[wire.source], of[wire.target]) for wire in problem.wires}
    pairs = sorted((a, b) for a, b in ends if a != b)
    wires = tuple(_merged_wire(problem, of, groups, pair) for pair in pairs)
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


def _merged_wire(
    problem: Problem,
    of: dict[int, int],
    groups: tuple[tuple[int, ...], ...],
    pair: tuple[int, int],
) -> Wire:
    """The fastest wire between two types, with the time per byte over all devices of a type."""
    wires = [wire for wire in problem.wires if (of[wire.source], of[wire.target]) == pair]
    fastest = min(wires, key=lambda wire: (wire.ns_per_byte, wire.latency_ns))
    most = max(len(groups[end]) for end in pair)
    end_ns = min(wire.end_ns_per_byte for wire in wires) / most
    return replace(fastest, source=pair[0], target=pair[1], end_ns_per_byte=end_ns)


def _merged_pipes(
    problem: Problem, of: dict[int, int], groups: tuple[tuple[int, ...], ...]
) -> tuple[Pipe, ...]:
    """Total send and receive capacity of a type; left out if any of its wires is unbounded."""
    merged = []
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
            merged.append(
                Pipe(
                    name=f"type {index} {way}",
                    ns_per_byte=1.0 / sum(1.0 / pipe.ns_per_byte for pipe in pipes),
                    pairs=tuple(sorted({(of[a], of[b]) for a, b in crossing})),
                )
            )
    return tuple(merged)
