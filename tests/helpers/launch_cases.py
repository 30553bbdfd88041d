"""Random launch programs and hardware for the two simulators, free of deadlock.

A trace is a random order of things to do, from first to last. Each goes on its queue, or, as a
transfer, on two; an event may make a later thing wait for an earlier one of the same device. So
whatever comes first of what is not done can always be done.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tessera.ir.plan.launch_program import (
    HOST,
    Await,
    Bytes,
    DeviceEventId,
    DeviceProgram,
    Fill,
    Free,
    LoweredReplica,
    LoweredTrace,
    Operation,
    Portion,
    Queue,
    Queued,
    Receive,
    Record,
    Run,
    Send,
    Transfer,
    TransferId,
)
from tessera.ir.plan.plan import PlacedStep, PlacedTrace, Plan, PlannedTrace, Replica
from tessera.ir.program.program import BufferId, LaunchId
from tessera.planning.lower.lower_plan import lower_replica
from tessera.simulation.hardware import Hardware, Path
from tests.helpers.plan_cases import random_case


@dataclass(frozen=True)
class Case:
    """A plan, what it runs on, how many requests follow each other, and when they may come."""

    plan: Plan
    hardware: Hardware
    requests: int
    times_ns: tuple[float, ...]


class Numbers:
    """Where durations come from: any, or a few whole ones so that much happens at one moment."""

    def __init__(self, rng: random.Random, ties: bool) -> None:
        self.rng, self.ties = rng, ties

    def ns(self, most: float) -> float:
        if self.ties:
            return float(self.rng.choice([0, 1, 1, 2, 2, 3]))
        return self.rng.uniform(0.0, most)

    def some_ns(self, most: float) -> float:
        """Often nothing at all."""
        return self.rng.choice([0.0, self.ns(most)])

    def rate(self) -> float:
        """In bytes per second."""
        return self.rng.choice([1e9, 5e8, 2.5e8]) if self.ties else self.rng.uniform(3e8, 2e9)

    def bytes(self) -> tuple[tuple[int, int], ...]:
        first = self.rng.choice([1, 2, 3]) if self.ties else self.rng.randint(1, 60)
        if self.rng.random() < 0.7:
            return ((0, first),)
        return ((0, first), (first + 4, first + 4 + self.rng.randint(1, 3)))


def random_launches(seed: int, *, ties: bool = False, lowered: bool = False) -> Case:
    """One to two replicas of one to three traces; if `lowered`, the compiler made the programs."""
    rng = random.Random(seed)
    numbers = Numbers(rng, ties)
    devices = [f"g{n}" for n in range(rng.randint(1, 4))]
    replicas = rng.choice([1, 1, 2])
    groups = [devices] * replicas
    if replicas == 2 and len(devices) > 1 and rng.random() < 0.6:
        half = rng.randint(1, len(devices) - 1)
        groups = [devices[:half], devices[half:]]
    if lowered:
        made = [_lowered_replica(rng, seed + 1000 * n) for n in range(replicas)]
        made = [replace(one, traces=one.traces[: len(made[0].traces)]) for one in made]
        made = made[:1] * replicas
        devices = sorted({device for one in made for device in one.devices})
    else:
        traces = rng.randint(1, 3)
        made = [_replica(numbers, group, traces) for group in groups]
    shares = [rng.choice([1.0, 0.5, rng.uniform(0.1, 1.0)]) for _ in made[0].traces]
    plan = plan_of(made, [rng.uniform(0.2, 1.0) for _ in made], shares, numbers)
    requests = rng.randint(3, 14)
    gap = rng.choice([0.5, 20.0, 100.0])
    now, times = 0.0, []
    for _ in range(requests):
        now += float(rng.randint(0, 3)) if ties else rng.expovariate(1.0 / gap)
        times.append(now)
    return Case(plan, random_hardware(numbers, devices), requests, tuple(times))


def _lowered_replica(rng: random.Random, seed: int) -> LoweredReplica:
    case = random_case(seed)
    made = lower_replica(
        case.programs,
        case.graphs,
        case.placements,
        slots=rng.randint(1, 6),
        lanes=rng.randint(1, 6),
        # Each device is a host of its own, or all are on one.
        hosts=rng.choice(({}, {device: device for part in case.placements for device in part})),
    )
    return replace(made, traces=tuple(_gated(rng, trace) for trace in made.traces))


def _replica(numbers: Numbers, devices: Sequence[str], traces: int) -> LoweredReplica:
    rng = numbers.rng
    return LoweredReplica(
        devices=tuple(devices),
        slots=rng.randint(1, 6),
        lanes=rng.randint(1, 6),
        areas=(),
        places=(),
        homes=(),
        traces=tuple(random_trace(numbers, devices, trace) for trace in range(traces)),
    )


def random_trace(numbers: Numbers, devices: Sequence[str], trace: int) -> LoweredTrace:
    """Things to do in a random order, with events between the queues of a device."""
    rng = numbers.rng
    operations: dict[str, list[Queued]] = {device: [] for device in devices}
    events: dict[str, list[DeviceEventId]] = {device: [] for device in devices}
    transfers: list[Transfer] = []

    def put(device: str, queue: Queue, operation: Operation) -> None:
        if events[device] and rng.random() < 0.5:
            event = rng.choice(events[device][-3:])
            operations[device].append(Queued(queue, Await(event)))
        operations[device].append(Queued(queue, operation))
        if rng.random() < 0.6:
            event = DeviceEventId(len(events[device]))
            events[device].append(event)
            operations[device].append(Queued(queue, Record(event)))

    steps = 0
    for _ in range(rng.randint(0, 12)):
        device = rng.choice(devices)
        kind = rng.choice(["run", "run", "run", "fill", "free", "in", "out", "move", "move"])
        others = [other for other in devices if other != device]
        if kind == "run":
            put(device, Queue.COMPUTE, Run(LaunchId(steps)))
            steps += 1
        elif kind == "fill":
            put(device, Queue.COMPUTE, Fill(BufferId(0), numbers.bytes()))
        elif kind == "free":
            put(device, rng.choice(list(Queue)), Free(BufferId(0)))
        elif kind in ("in", "out") or others:
            ends = {"in": (HOST, device), "out": (device, HOST)}
            source, target = ends.get(kind) or (device, rng.choice(others))
            number = TransferId(len(transfers))
            transfers.append(
                Transfer(
                    id=number,
                    source=source,
                    target=target,
                    portions=_portions(numbers.bytes(), HOST in (source, target)),
                )
            )
            if source != HOST:
                put(source, Queue.OUT, Send(number))
            if target != HOST:
                put(target, Queue.IN, Receive(number))
    programs = tuple(
        DeviceProgram(device=device, operations=tuple(operations[device])) for device in devices
    )
    return _gated(rng, LoweredTrace(trace=trace, transfers=tuple(transfers), programs=programs))


def _portions(found: Bytes, with_host: bool) -> tuple[Portion, ...]:
    """Each range as bytes of a buffer of its own, where that may be."""
    rows = [found] if with_host else [(span,) for span in found]
    return tuple(Portion(BufferId(number), row) for number, row in enumerate(rows))


def _gated(rng: random.Random, trace: LoweredTrace) -> LoweredTrace:
    steps = [step for _, step in steps_of(trace)]
    return replace(trace, gate=rng.choice(steps)) if steps and rng.random() < 0.4 else trace


def steps_of(trace: LoweredTrace) -> list[tuple[str, int]]:
    """Device and number of every step."""
    return [
        (program.device, int(queued.operation.step))
        for program in trace.programs
        for queued in program.operations
        if isinstance(queued.operation, Run)
    ]


def plan_of(
    replicas: Sequence[LoweredReplica],
    shares: Sequence[float],
    trace_shares: Sequence[float],
    numbers: Numbers,
) -> Plan:
    """A plan with these programs; nothing but shares and times of steps matters here."""
    placed = tuple(
        Replica(
            share=share,
            slots=lowered.slots,
            lanes=lowered.lanes,
            traces=tuple(_placed(trace, numbers) for trace in lowered.traces),
            lowered=lowered,
        )
        for lowered, share in zip(replicas, shares, strict=True)
    )
    return Plan(
        objective="throughput",
        strategy="kernel",
        period_ns=1.0,
        latency_ns=1.0,
        usd_per_request=0.0,
        bound=0.0,
        gap=0.0,
        ended="",
        link="",
        machine_digest="",
        options="",
        cards=(),
        devices=(),
        traces=tuple(
            PlannedTrace(name=f"t{n}", share=share, digest="", text="")
            for n, share in enumerate(trace_shares)
        ),
        replicas=placed,
        baselines=(),
    )


def _placed(trace: LoweredTrace, numbers: Numbers) -> PlacedTrace:
    steps = tuple(
        PlacedStep(
            step=step,
            name=f"k{step}",
            device=device,
            arch="",
            predicted_ns=numbers.ns(50.0),
            error=0.0,
            source="",
        )
        for device, step in steps_of(trace)
    )
    return PlacedTrace(trace=trace.trace, steps=steps, transfers=())


def on_slices(case: Case, seed: int) -> Case:
    """The same where devices are slices of two cards, and times depend on what else is there."""
    rng = random.Random(seed)
    devices = sorted({device for one in case.plan.replicas for device in one.lowered.devices})
    cards = {device: rng.randrange(2) for device in devices}
    neighbours = {
        device: tuple(other for other in devices if other != device and cards[other] == card)
        for device, card in cards.items()
    }

    def slower(step: PlacedStep) -> PlacedStep:
        alone = step.predicted_ns * rng.choice([1.0, 1.25, 1.5, 2.0])
        quiet = alone * rng.choice([1.0, 0.75, 0.5])
        return replace(step, alone_ns=alone, quiet_ns=quiet) if rng.random() < 0.8 else step

    replicas = tuple(
        replace(
            one,
            traces=tuple(replace(own, steps=tuple(map(slower, own.steps))) for own in one.traces),
        )
        for one in case.plan.replicas
    )
    return replace(
        case,
        plan=replace(case.plan, replicas=replicas),
        hardware=replace(case.hardware, neighbours=neighbours),
    )


def random_hardware(numbers: Numbers, devices: Sequence[str]) -> Hardware:
    """Ways between all devices and to the host, over capacities of their own and of several."""
    rng = numbers.rng
    capacities = {f"shared {n}": numbers.rate() * rng.choice([1, 1, 2]) for n in range(3)}
    paths = {}
    for source in (HOST, *devices):
        for target in (HOST, *devices):
            if source == target:
                continue
            shares = [name for name in list(capacities)[:3] if rng.random() < 0.35]
            rate = min([numbers.rate(), *(capacities[name] for name in shares)])
            rate *= rng.choice([1.0, 1.0, 0.5, 0.25])
            if rng.random() < 0.7:
                own = f"{source} to {target}"
                capacities[own] = rate * rng.choice([1.0, 1.0, 2.0, 2.5])
                shares.append(own)
            taxed = HOST not in (source, target) and rng.random() < 0.7
            paths[source, target] = Path(
                bytes_per_second=rate,
                latency_ns=numbers.some_ns(10.0),
                shares=tuple(shares),
                tax_ns=numbers.some_ns(5.0) if taxed else 0.0,
                tax_ns_per_byte=float(rng.choice([0, 0, 1])) if taxed else 0.0,
            )
    return Hardware(
        paths=paths,
        capacities=capacities,
        fill_ns_per_byte={device: float(rng.choice([0, 1, 2])) for device in devices},
        fill_ns=numbers.some_ns(4.0),
        buffered=rng.random() < 0.5,
        depth=rng.randint(1, 3),
        host_call_ns=rng.choice([0.0, 0.0, 0.5, 2.0]),
        host_byte_ns=rng.choice([0.0, 0.1, 2.0]),
    )
