"""The planning problem, independent of PTX: tasks, tensors, residents, devices and channels.

In: nothing. Out: frozen records that `plan_problem` builds from a graph, a machine and costs, and
that model, search, baselines and latency share; and `measure`, the cost of one placement.

A placement gives each task a device. In the steady state every resource is busy for its load per
request: a device for its tasks and for the time of transfers at each end (`transfer_ns`, and a time
per byte if the wire has one: slices of one card share their memory with copies), a channel for the
bytes that cross it, a shared load for the memory traffic of all slices of one card. The period is
the largest load. A tensor is sent to a device once, however many tasks read it there. A resident
(weight, state, buffer) fills memory on every device where one of its users runs. Tasks that must
stay together are one task already: `contract` does that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tessera.planning.problem.period_limits import LimitKind

Placement = tuple[int, ...]

INFINITY = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A unit of placement: nanoseconds per device, None where it cannot run.

    `phase` and `kind` are labels for baselines: the trace it is from, and `attention` or not.
    `rate` is the number of runs per unit of the mix: 1 if one trace is planned. `trace` is its
    trace: a request is one run through the tasks of one trace.
    """

    name: str
    ns: tuple[float | None, ...]
    phase: str = ""
    kind: str = ""
    rate: float = 1.0
    trace: int = 0

    def allowed(self) -> tuple[int, ...]:
        """The devices that can run the task."""
        return tuple(device for device, ns in enumerate(self.ns) if ns is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """Bytes that one task writes and others read. At least `count` transfers move it, less than one
    if others may go with it. `again`: a device may do the task itself, too."""

    name: str
    bytes: float
    producer: int
    consumers: tuple[int, ...]
    count: float = 1.0
    rate: float = 1.0
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """Bytes in memory on every device where one of their users runs."""

    name: str
    bytes: int
    users: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The memory of a card: one capacity for all its devices.

    `host_ns` is the time for which inputs and outputs of a request occupy its link to the host.
    """

    name: str
    bytes: int
    devices: tuple[int, ...]
    usd_per_hour: float = 0.0
    host_ns: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """The connection from one device to another; a pair without a wire is not connected.

    `end_ns_per_byte` is the time per byte that the tasks at both of its ends lose.
    """

    source: int
    target: int
    ns_per_byte: float
    latency_ns: float = 0.0
    end_ns_per_byte: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipe:
    """A capacity that the transfers between some pairs share."""

    name: str
    ns_per_byte: float
    pairs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLoad:
    """Time per task that the tasks on these devices take from one shared resource."""

    name: str
    devices: tuple[int, ...]
    ns: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """The wait of a lane's next request: from the start of one task to the end of another.

    Cycles of one name share a state, so a lane runs them one after the other. `alone`: all lanes
    share it, so requests run one after the other.
    """

    name: str
    first: int
    last: int
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Detail:
    """The problem before tasks were joined, and the joint task of each of its tasks."""

    problem: Problem
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The problem by which placements are judged. Tasks are in program order.

    `slots` is the maximum number of requests under way in a replica, `lanes` the number of copies
    of the state; None means no limit. If joint tasks interleave with others, `detail` has the
    order: times of a request and cycles come from there.
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
    lanes: int | None = None
    cycles: tuple[Cycle, ...] = ()
    detail: Detail | None = None

    def in_detail(self, placement: Placement) -> tuple[Problem, Placement]:
        """The problem before tasks were joined, and the device of each of its tasks."""
        if self.detail is None:
            return self, placement
        return self.detail.problem, tuple(placement[group] for group in self.detail.groups)

    def tax_ns(self, tensor: Tensor, wire: Wire) -> float:
        """Time that moving a tensor over a wire takes from the tasks at each of its ends."""
        by_bytes = tensor.bytes * wire.end_ns_per_byte
        return (self.transfer_ns * tensor.count + by_bytes) * tensor.rate

    def ends_ns(self, tensor: Tensor) -> float:
        """Time of both ends of a tensor's transfers, which overlap, whatever goes with it."""
        return self.transfer_ns * (max(1.0, tensor.count) + 1)

    def resources(self) -> tuple[tuple[LimitKind, str], ...]:
        """The kinds and names of all loads, in the order of `Measure.loads`."""
        return (
            *((LimitKind.DEVICE, name) for name in self.devices),
            *((LimitKind.LINK, pipe.name) for pipe in self.pipes),
            *((LimitKind.MEMORY, load.name) for load in self.shared),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """The cost of a placement: loads in nanoseconds per request, bytes per room."""

    loads: tuple[float, ...]
    memory: tuple[int, ...]
    transfers: int
    fits: bool
    period_ns: float


def runs(problem: Problem, placement: Placement) -> bool:
    """Whether every task can run where it is put."""
    return all(
        task.ns[device] is not None for task, device in zip(problem.tasks, placement, strict=True)
    )


def transfers_of(problem: Problem, placement: Placement) -> tuple[tuple[int, int, int], ...]:
    """Every transfer as (tensor, from, to), in order."""
    transfers = []
    for index, tensor in enumerate(problem.tensors):
        source = placement[tensor.producer]
        targets = {placement[task] for task in tensor.consumers}
        if len(targets) > 1 or source not in targets:
            targets.discard(source)
            transfers += [(index, source, target) for target in sorted(targets)]
    return tuple(transfers)


def measure(problem: Problem, placement: Placement) -> Measure:
    """Loads, memory and period of a placement; the period is infinite if it cannot run."""
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
    wires = {(wire.source, wire.target): wire for wire in problem.wires}
    through: dict[tuple[int, int], list[int]] = {}
    for index, pipe in enumerate(problem.pipes):
        for pair in pipe.pairs:
            through.setdefault(pair, []).append(index)
    moves = transfers_of(problem, placement)
    for tensor, source, target in moves:
        moved = problem.tensors[tensor]
        wire = wires.get((source, target))
        tax = INFINITY if wire is None else problem.tax_ns(moved, wire)
        for end in (source, target):
            loads[end] += tax
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
        users = resident.users
        devices = (placement[users[0]],) if len(users) == 1 else {placement[t] for t in users}
        for device in devices:
            if device in room_of:
                memory[room_of[device]] += resident.bytes
    return tuple(memory)


def part_of(problem: Problem, tasks: Sequence[int]) -> Problem:
    """The problem of some of its tasks, without anything that they share with others."""
    number = {task: index for index, task in enumerate(tasks)}
    tensors = []
    for tensor in problem.tensors:
        readers = tuple(number[task] for task in tensor.consumers if task in number)
        if tensor.producer in number and readers:
            tensors.append(replace(tensor, producer=number[tensor.producer], consumers=readers))
    residents = []
    for resident in problem.residents:
        users = tuple(number[task] for task in resident.users if task in number)
        if users:
            residents.append(replace(resident, users=users))
    return replace(
        problem,
        tasks=tuple(problem.tasks[task] for task in tasks),
        tensors=tuple(tensors),
        residents=tuple(residents),
        shared=tuple(
            replace(load, ns=tuple(load.ns[task] for task in tasks)) for load in problem.shared
        ),
        cycles=(),
        detail=None,
    )


def keep_devices(problem: Problem, devices: Sequence[int]) -> Problem:
    """The problem with only these devices, in this order; times of requests are not kept."""
    number = {device: index for index, device in enumerate(devices)}
    inside = number.keys()
    return replace(
        problem,
        devices=tuple(problem.devices[device] for device in devices),
        tasks=tuple(
            replace(task, ns=tuple(task.ns[device] for device in devices)) for task in problem.tasks
        ),
        rooms=tuple(
            replace(room, devices=tuple(number[d] for d in room.devices if d in number))
            for room in problem.rooms
            if inside & set(room.devices)
        ),
        wires=tuple(
            replace(wire, source=number[wire.source], target=number[wire.target])
            for wire in problem.wires
            if {wire.source, wire.target} <= inside
        ),
        pipes=tuple(
            replace(pipe, pairs=pairs)
            for pipe in problem.pipes
            if (pairs := tuple((number[a], number[b]) for a, b in pipe.pairs if {a, b} <= inside))
        ),
        shared=tuple(
            replace(load, devices=tuple(number[d] for d in load.devices if d in number))
            for load in problem.shared
            if inside & set(load.devices)
        ),
        detail=None,
        cycles=(),
    )


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
    one set of consumers become one. Cycles stay those of the tasks: see `detail`.
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
            name=joined[0].name,
            bytes=sum(tensor.bytes for tensor in joined),
            producer=producer,
            consumers=consumers,
            count=sum(tensor.count for tensor in joined),
            rate=rate,
        )
        for (producer, consumers, rate), joined in merged.items()
    )
    by_users: dict[tuple[int, ...], list[Resident]] = {}
    for resident in problem.residents:
        users = tuple(sorted({groups[task] for task in resident.users}))
        if users:
            by_users.setdefault(users, []).append(resident)
    residents = tuple(
        Resident(name=alike[0].name, bytes=sum(r.bytes for r in alike), users=users)
        for users, alike in by_users.items()
    )
    shared = tuple(
        replace(load, ns=tuple(sum(load.ns[task] for task in group) for group in members))
        for load in problem.shared
    )
    return replace(
        problem,
        tasks=tasks,
        tensors=tensors,
        residents=residents,
        shared=shared,
        detail=Detail(problem, groups),
    )


def _merged(problem: Problem, group: list[int]) -> Task:
    """One task for several; for traces at different rates, with the time per unit of the mix."""
    members = [problem.tasks[task] for task in group]
    first = members[0]
    rate = first.rate if all(task.rate == first.rate for task in members) else 1.0
    columns = zip(*(task.ns for task in members), strict=True)
    ns = tuple(
        None
        if any(value is None for value in column)
        else sum(v * task.rate / rate for v, task in zip(column, members, strict=True) if v)
        for column in columns
    )
    kind = next((task.kind for task in members if task.kind), "")
    return replace(first, ns=ns, rate=rate, kind=kind)
