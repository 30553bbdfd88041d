"""The planning problem, apart from PTX: tasks, tensors, what fills memory, devices and channels.

In: nothing. Out: frozen records that `plan_problem` builds from a graph, a machine and costs, and
that model, search, baselines and latency share; and `measure`, what one placement costs.

A placement gives each task a device. In the steady state every resource is busy for its load per
request: a device for its tasks and for `transfer_ns` at each end of a transfer, a channel for the
bytes that cross it, a shared load for what slices of one card draw from its memory together. The
period is the largest load. A tensor goes to a device once, however many tasks read it there. A
resident (weight, state, buffer) fills memory on every device where one of its users runs. Tasks
that must stay together are one task already: `contract` does that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

Placement = tuple[int, ...]

INFINITY = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is placed as one: nanoseconds per device, None where it cannot run.

    `phase` and `kind` are labels for baselines: the trace it is from, and `attention` or not.
    `rate` is how often it runs per unit of the mix: 1 where one trace is planned.
    """

    name: str
    ns: tuple[float | None, ...]
    phase: str = ""
    kind: str = ""
    rate: float = 1.0

    def allowed(self) -> tuple[int, ...]:
        """The devices that can run it."""
        return tuple(device for device, ns in enumerate(self.ns) if ns is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """Bytes that one task makes and others read. `count` transfers move it, one if contiguous."""

    name: str
    bytes: float
    producer: int
    consumers: tuple[int, ...]
    count: int = 1
    rate: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """Bytes on every device where a user of it runs."""

    name: str
    bytes: int
    users: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The memory of a card: one capacity for all its devices."""

    name: str
    bytes: int
    devices: tuple[int, ...]
    usd_per_hour: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """The way from one device to another; a pair without one is not connected."""

    source: int
    target: int
    ns_per_byte: float
    latency_ns: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipe:
    """A capacity that the transfers between some pairs share."""

    name: str
    ns_per_byte: float
    pairs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLoad:
    """Time per task that the tasks on these devices take from one thing they share."""

    name: str
    devices: tuple[int, ...]
    ns: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Everything a placement is judged by. Tasks are in program order.

    `slots` is how many requests may be under way in a replica; None is as many as it takes.
    """

    devices: tuple[str, ...]
    tasks: tuple[Task, ...]
    tensors: tuple[Tensor, ...] = ()
    residents: tuple[Resident, ...] = ()
    rooms: tuple[Room, ...] = ()
    wires: tuple[Wire, ...] = ()
    pipes: tuple[Pipe, ...] = ()
    shared: tuple[SharedLoad, ...] = ()
    transfer_ns: float = 0.0
    slots: int | None = None

    def resources(self) -> tuple[str, ...]:
        """The names of all loads, in the order of `Measure.loads`."""
        return (
            *self.devices,
            *(pipe.name for pipe in self.pipes),
            *(load.name for load in self.shared),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What a placement costs: loads in nanoseconds per request, bytes per room."""

    loads: tuple[float, ...]
    memory: tuple[int, ...]
    transfers: int
    fits: bool
    period_ns: float


def transfers_of(problem: Problem, placement: Placement) -> tuple[tuple[int, int, int], ...]:
    """Every transfer as (tensor, from, to), in order."""
    found = []
    for index, tensor in enumerate(problem.tensors):
        source = placement[tensor.producer]
        targets = sorted({placement[task] for task in tensor.consumers} - {source})
        found += [(index, source, target) for target in targets]
    return tuple(found)


def measure(problem: Problem, placement: Placement) -> Measure:
    """Loads, memory and period of a placement; the period is infinite where one cannot run."""
    loads = [0.0] * len(problem.resources())
    pipes = len(problem.devices)
    shared = pipes + len(problem.pipes)
    for task, device in zip(problem.tasks, placement, strict=True):
        ns = task.ns[device]
        loads[device] += INFINITY if ns is None else ns * task.rate
    for index, load in enumerate(problem.shared):
        inside = set(load.devices)
        loads[shared + index] = sum(
            ns for ns, device in zip(load.ns, placement, strict=True) if device in inside
        )
    wires = {(wire.source, wire.target) for wire in problem.wires}
    through: dict[tuple[int, int], list[int]] = {}
    for index, pipe in enumerate(problem.pipes):
        for pair in pipe.pairs:
            through.setdefault(pair, []).append(index)
    moves = transfers_of(problem, placement)
    for tensor, source, target in moves:
        moved = problem.tensors[tensor]
        for end in (source, target):
            loads[end] += problem.transfer_ns * moved.count * moved.rate
            if (source, target) not in wires:
                loads[end] = INFINITY
        for index in through.get((source, target), ()):
            loads[pipes + index] += moved.bytes * moved.rate * problem.pipes[index].ns_per_byte
    memory = memory_of(problem, placement)
    return Measure(
        loads=tuple(loads),
        memory=memory,
        transfers=len(moves),
        fits=all(used <= room.bytes for used, room in zip(memory, problem.rooms, strict=True)),
        period_ns=max(loads, default=0.0),
    )


def memory_of(problem: Problem, placement: Placement) -> tuple[int, ...]:
    """Bytes in use per room."""
    room_of = {device: index for index, room in enumerate(problem.rooms) for device in room.devices}
    memory = [0] * len(problem.rooms)
    for resident in problem.residents:
        for device in {placement[task] for task in resident.users}:
            if device in room_of:
                memory[room_of[device]] += resident.bytes
    return tuple(memory)


def restrict(problem: Problem, devices: tuple[int, ...]) -> Problem:
    """The same problem, with no task allowed on other devices than these."""
    kept = set(devices)
    tasks = tuple(
        replace(task, ns=tuple(ns if d in kept else None for d, ns in enumerate(task.ns)))
        for task in problem.tasks
    )
    return replace(problem, tasks=tasks)


def contract(problem: Problem, groups: tuple[int, ...]) -> Problem:
    """The problem with the tasks of each group as one; `groups[task]` counts from 0, all used.

    A group runs where all its tasks can. Tensors inside a group vanish, those of one producer to
    one set of consumers become one.
    """
    members: list[list[int]] = [[] for _ in range(max(groups, default=-1) + 1)]
    for task, group in enumerate(groups):
        members[group].append(task)
    tasks = tuple(_merged(problem, group) for group in members)
    merged: dict[tuple[int, tuple[int, ...], float], list[Tensor]] = {}
    for tensor in problem.tensors:
        producer = groups[tensor.producer]
        consumers = tuple(sorted({groups[task] for task in tensor.consumers} - {producer}))
        if consumers:
            merged.setdefault((producer, consumers, tensor.rate), []).append(tensor)
    tensors = tuple(
        Tensor(
            name=found[0].name,
            bytes=sum(tensor.bytes for tensor in found),
            producer=producer,
            consumers=consumers,
            count=sum(tensor.count for tensor in found),
            rate=rate,
        )
        for (producer, consumers, rate), found in merged.items()
    )
    by_users: dict[tuple[int, ...], list[Resident]] = {}
    for resident in problem.residents:
        users = tuple(sorted({groups[task] for task in resident.users}))
        if users:
            by_users.setdefault(users, []).append(resident)
    residents = tuple(
        Resident(name=found[0].name, bytes=sum(r.bytes for r in found), users=users)
        for users, found in by_users.items()
    )
    shared = tuple(
        replace(load, ns=tuple(sum(load.ns[task] for task in group) for group in members))
        for load in problem.shared
    )
    return replace(problem, tasks=tasks, tensors=tensors, residents=residents, shared=shared)


def _merged(problem: Problem, group: list[int]) -> Task:
    first = problem.tasks[group[0]]
    columns = zip(*(problem.tasks[task].ns for task in group), strict=True)
    ns = tuple(
        None if any(value is None for value in column) else sum(v for v in column if v is not None)
        for column in columns
    )
    return replace(first, ns=ns)
