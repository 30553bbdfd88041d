"""Random planning problems, and an enumeration that shares no code with the planner."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tessera.ir.objectives import Objective, PlanFigures
from tessera.planning.problem.problem import (
    Cycle,
    Pipe,
    Problem,
    Resident,
    Room,
    SharedLoad,
    Task,
    Tensor,
    Wire,
)

HOUR_NS = 3600e9


def random_problem(seed: int, tasks: int, devices: int) -> Problem:
    """A chain with branches. Links, memory and the tax are tight in many of them."""
    rng = random.Random(seed)
    speed = [rng.uniform(0.6, 1.6) for _ in range(devices)]
    made = []
    for index in range(tasks):
        base = rng.choice([1.0, 10.0, 40.0, 100.0]) * rng.uniform(0.5, 2.0)
        ns: list[float | None] = [base * s * rng.uniform(0.3, 3.0) for s in speed]
        if rng.random() < 0.1:
            ns[rng.randrange(devices)] = None
        made.append(Task(name=f"k{index}", ns=tuple(ns)))
    tensors = []
    for index in range(tasks - 1):
        readers = {index + 1} if rng.random() < 0.8 else set()
        readers |= {rng.randrange(index + 1, tasks) for _ in range(rng.randrange(2))}
        if readers:
            size = rng.choice([1, 10, 100]) * rng.uniform(1, 3)
            tensors.append(
                Tensor(
                    name=f"t{index}", bytes=size, producer=index, consumers=tuple(sorted(readers))
                )
            )
    residents = []
    for index in range(rng.randrange(tasks, 2 * tasks)):
        users = {rng.randrange(tasks) for _ in range(rng.choice([1, 1, 1, 1, 2]))}
        residents.append(
            Resident(name=f"w{index}", bytes=rng.randrange(20, 100), users=tuple(sorted(users)))
        )
    total = sum(r.bytes for r in residents)
    fraction = rng.choice([0.6, 0.75, 1.0])
    rooms = tuple(
        Room(
            name=f"g{d}",
            bytes=int(total * fraction) + 1,
            devices=(d,),
            usd_per_hour=rng.uniform(0.5, 3.0),
        )
        for d in range(devices)
    )
    per_byte = rng.choice([0.03, 0.2, 0.6])
    pairs = [(g, h) for g in range(devices) for h in range(devices) if g != h]
    return Problem(
        devices=tuple(f"g{d}" for d in range(devices)),
        tasks=tuple(made),
        tensors=tuple(tensors),
        residents=tuple(residents),
        rooms=rooms,
        wires=tuple(
            Wire(
                source=g,
                target=h,
                ns_per_byte=per_byte,
                latency_ns=rng.uniform(0, 10),
                end_ns_per_byte=end_ns_per_byte(seed, g, h),
            )
            for g, h in pairs
        ),
        pipes=tuple(
            pipe
            for d in range(devices)
            for pipe in (
                Pipe(
                    name=f"g{d}.out",
                    ns_per_byte=per_byte,
                    pairs=tuple(p for p in pairs if p[0] == d),
                ),
                Pipe(
                    name=f"g{d}.in",
                    ns_per_byte=per_byte,
                    pairs=tuple(p for p in pairs if p[1] == d),
                ),
            )
        ),
        transfer_ns=rng.choice([0.0, 2.0]),
    )


def end_ns_per_byte(seed: int, source: int, target: int) -> float:
    """In every third problem some wires take time of both ends for each byte."""
    if seed % 3:
        return 0.0
    return random.Random(f"{seed} {source} {target}").choice([0.0, 0.05, 0.4])


def every_placement(problem: Problem) -> Iterator[tuple[int, ...]]:
    """All placements that can run and fit in memory."""
    options = [[d for d, ns in enumerate(task.ns) if ns is not None] for task in problem.tasks]
    for placement in itertools.product(*options):
        if fits(problem, placement):
            yield placement


def fits(problem: Problem, placement: tuple[int, ...]) -> bool:
    """Whether the bytes on every card stay within its memory."""
    for room in problem.rooms:
        used = 0
        for device in room.devices:
            for resident in problem.residents:
                if any(placement[task] == device for task in resident.users):
                    used += resident.bytes
        if used > room.bytes:
            return False
    return True


def period(problem: Problem, placement: tuple[int, ...]) -> float:
    """The busiest resource, from the definitions."""
    busy: dict[str, float] = {}
    for task, device in zip(problem.tasks, placement, strict=True):
        value = task.ns[device]
        assert value is not None
        busy[f"device {device}"] = busy.get(f"device {device}", 0.0) + value
    for load in problem.shared:
        busy[load.name] = sum(
            ns for ns, device in zip(load.ns, placement, strict=True) if device in load.devices
        )
    for tensor in problem.tensors:
        source = placement[tensor.producer]
        for target in {placement[c] for c in tensor.consumers} - {source}:
            taken = problem.transfer_ns * tensor.count
            for wire in problem.wires:
                if (wire.source, wire.target) == (source, target):
                    taken += tensor.bytes * wire.end_ns_per_byte
            for end in (source, target):
                key = f"device {end}"
                busy[key] = busy.get(key, 0.0) + taken
            for pipe in problem.pipes:
                if (source, target) in pipe.pairs:
                    cost = tensor.bytes * pipe.ns_per_byte
                    busy[pipe.name] = busy.get(pipe.name, 0.0) + cost
    return max(busy.values())


def walk(problem: Problem, placement: tuple[int, ...]) -> tuple[list[float], list[float]]:
    """When tasks start and end, by stepping through them in order, from the definitions."""
    begun: list[float] = []
    done: list[float] = []
    arrives: dict[tuple[int, int], float] = {}
    left: dict[tuple[int, int], float] = {}
    for task, device in enumerate(placement):
        earlier = [done[k] for k in range(task) if placement[k] == device]
        inputs = [
            arrives[index, device]
            for index, tensor in enumerate(problem.tensors)
            if task in tensor.consumers
        ]
        duration = problem.tasks[task].ns[device]
        assert duration is not None
        begun.append(max([0.0, *earlier, *inputs]))
        done.append(begun[-1] + duration)
        for index, tensor in enumerate(problem.tensors):
            if tensor.producer != task:
                continue
            arrives[index, device] = done[task]
            for wire in problem.wires:
                wanted = any(placement[c] == wire.target for c in tensor.consumers)
                if wire.source != device or not wanted:
                    continue
                start = max(done[task], left.get((device, wire.target), 0.0))
                sent = start + tensor.bytes * wire.ns_per_byte
                left[device, wire.target] = sent
                ends = 2 * (problem.transfer_ns + tensor.bytes * wire.end_ns_per_byte)
                arrives[index, wire.target] = sent + wire.latency_ns + ends
    return begun, done


def makespan(problem: Problem, placement: tuple[int, ...]) -> float:
    """When one request ends."""
    return max(walk(problem, placement)[1])


def value(problem: Problem, placement: tuple[int, ...], objective: Objective) -> float:
    """What an objective is for one placement, floors of the period and all."""
    begun, done = walk(problem, placement)
    found = period(problem, placement)
    if problem.slots is not None:
        found = max(found, max(done) / problem.slots)
    if problem.lanes is not None:
        for cycle in problem.cycles:
            found = max(found, (done[cycle.last] - begun[cycle.first]) / problem.lanes)
    used = [room for room in problem.rooms if set(room.devices) & set(placement)]
    usd = found * sum(room.usd_per_hour for room in used) / HOUR_NS
    return objective.value(PlanFigures(period_ns=found, latency_ns=max(done), usd_per_request=usd))


def constrained(seed: int, tasks: int, devices: int) -> Problem:
    """A random problem with slices that share memory, pins, slots, lanes and cycles."""
    rng = random.Random(seed * 7919 + 1)
    problem = random_problem(seed, tasks, devices)
    if rng.random() < 0.3:
        first, second, *others = problem.rooms
        shared = replace(first, bytes=first.bytes + second.bytes // 2, devices=(0, 1))
        load = SharedLoad(
            name="bandwidth",
            devices=(0, 1),
            ns=tuple(
                rng.uniform(0.2, 0.9) * min(v for v in task.ns if v is not None)
                for task in problem.tasks
            ),
        )
        problem = replace(problem, rooms=(shared, *others), shared=(load,))
    if rng.random() < 0.3:
        pinned = rng.randrange(tasks)
        chosen = rng.choice(problem.tasks[pinned].allowed())
        ns = tuple(v if d == chosen else None for d, v in enumerate(problem.tasks[pinned].ns))
        made = list(problem.tasks)
        made[pinned] = replace(made[pinned], ns=ns)
        problem = replace(problem, tasks=tuple(made))
    if rng.random() < 0.5:
        problem = replace(problem, slots=rng.choice([1, 2, 3]))
    if rng.random() < 0.4:
        ends = sorted(rng.sample(range(tasks), 2))
        cycle = Cycle(name="s", first=ends[0], last=ends[1])
        problem = replace(problem, lanes=rng.choice([1, 2]), cycles=(cycle,))
    return problem


def layered(seed: int, layers: int, width: int = 4) -> Problem:
    """Equal layers of a few tasks: what a model looks like to the planner."""
    rng = random.Random(seed)
    shape = [(rng.uniform(5, 60), rng.uniform(5, 60)) for _ in range(width)]
    sizes = [rng.uniform(1, 60) for _ in range(width)]
    base = random_problem(seed, 2, 2)
    count = layers * width
    tensors = []
    for index in range(count - 1):
        readers = {index + 1}
        if index % width == width - 1 and index + width < count:
            readers.add(index + width)
        size = sizes[index % width]
        tensors.append(
            Tensor(name=f"t{index}", bytes=size, producer=index, consumers=tuple(sorted(readers)))
        )
    weight = [rng.randrange(10, 50) for _ in range(width)]
    total = layers * sum(weight)
    rooms = tuple(
        replace(room, bytes=int(total * rng.choice([0.55, 0.7, 1.0])) + 1) for room in base.rooms
    )
    return replace(
        base,
        tasks=tuple(Task(name=f"k{n}", ns=shape[n % width]) for n in range(count)),
        tensors=tuple(tensors),
        residents=tuple(
            Resident(name=f"w{n}", bytes=weight[n % width], users=(n,)) for n in range(count)
        ),
        rooms=rooms,
    )


def shortest_period(problem: Problem) -> float:
    """The best of all placements on two devices, all at once; for loads and memory alone."""
    count = len(problem.tasks)
    on_second = (np.arange(1 << count)[:, None] >> np.arange(count)) & 1
    times = np.array([task.ns for task in problem.tasks], dtype=float)
    busy = np.stack([(1 - on_second) @ times[:, 0], on_second @ times[:, 1]])
    pipes = {pipe.name: np.zeros(1 << count) for pipe in problem.pipes}
    by_byte = {(wire.source, wire.target): wire.end_ns_per_byte for wire in problem.wires}
    for tensor in problem.tensors:
        made = on_second[:, tensor.producer]
        read = on_second[:, list(tensor.consumers)]
        for pair, goes in (
            ((0, 1), (made == 0) & (read == 1).any(axis=1)),
            ((1, 0), (made == 1) & (read == 0).any(axis=1)),
        ):
            busy += goes * (problem.transfer_ns + tensor.bytes * by_byte[pair])
            for pipe in problem.pipes:
                if pair in pipe.pairs:
                    pipes[pipe.name] += goes * tensor.bytes * pipe.ns_per_byte
    found = np.max([*busy, *pipes.values()], axis=0)
    for device, room in enumerate(problem.rooms):
        used = np.zeros(1 << count)
        for resident in problem.residents:
            used += (on_second[:, list(resident.users)] == device).any(axis=1) * resident.bytes
        found[used > room.bytes] = np.inf
    return float(found.min())
