"""Random planning problems, and an enumeration that shares no code with the planner."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from tessera.passes.partition_problem import Pipe, Problem, Resident, Room, Task, Tensor, Wire


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
            name=f"g{d}", bytes=int(total * fraction) + 1, devices=(d,),
            usd_per_hour=rng.uniform(0.5, 3.0),
        )
        for d in range(devices)
    )  # fmt: skip
    per_byte = rng.choice([0.03, 0.2, 0.6])
    pairs = [(g, h) for g in range(devices) for h in range(devices) if g != h]
    return Problem(
        devices=tuple(f"g{d}" for d in range(devices)),
        tasks=tuple(made),
        tensors=tuple(tensors),
        residents=tuple(residents),
        rooms=rooms,
        wires=tuple(
            Wire(source=g, target=h, ns_per_byte=per_byte, latency_ns=rng.uniform(0, 10))
            for g, h in pairs
        ),
        pipes=tuple(
            pipe
            for d in range(devices)
            for pipe in (
                Pipe(name=f"g{d}.out", ns_per_byte=per_byte,
                     pairs=tuple(p for p in pairs if p[0] == d)),
                Pipe(name=f"g{d}.in", ns_per_byte=per_byte,
                     pairs=tuple(p for p in pairs if p[1] == d)),
            )
        ),
        transfer_ns=rng.choice([0.0, 2.0]),
    )  # fmt: skip


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
            for end in (source, target):
                key = f"device {end}"
                busy[key] = busy.get(key, 0.0) + problem.transfer_ns * tensor.count
            for pipe in problem.pipes:
                if (source, target) in pipe.pairs:
                    cost = tensor.bytes * pipe.ns_per_byte
                    busy[pipe.name] = busy.get(pipe.name, 0.0) + cost
    return max(busy.values())


def makespan(problem: Problem, placement: tuple[int, ...]) -> float:
    """When one request ends, by stepping through its tasks in order, from the definitions."""
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
        done.append(max([0.0, *earlier, *inputs]) + duration)
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
                arrives[index, wire.target] = sent + wire.latency_ns + problem.transfer_ns
    return max(done)
