"""Model graphs for planner benchmarks and tests: dense, MoE, SSM, DiT and multimodal.

Each kernel has operations, bytes moved, weights and a tensor it hands on; its time on a GPU is the
larger of compute and memory time plus a fixed cost in cycles, off by a seeded factor per kernel
class and GPU, since real kernels do not follow the data sheet alike on all GPUs. Sizes are those
of an 8B model at a batch; `kernels` chooses the number of layers.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tessera.frontend.machine.gpus import machine_of
from tessera.ir.plan.machine import Machine
from tessera.planning.problem.problem import Pipe, Problem, Resident, Room, Task, Tensor, Wire

FAMILIES = ("dense", "moe", "ssm", "dit", "multimodal")
WIDTH = 4096
FIXED_CYCLES = 6000.0


@dataclass
class Draft:
    """A graph as it grows. Tensors: name -> (bytes, producer, consumers)."""

    rng: random.Random
    tasks: list[tuple[str, str, str, float, float]] = field(default_factory=list)
    tensors: list[tuple[float, int, list[int]]] = field(default_factory=list)
    residents: list[tuple[int, list[int]]] = field(default_factory=list)

    def kernel(
        self,
        label: str,
        phase: str,
        flops: float,
        moved: float,
        reads: list[int],
        out: float,
        weight: int = 0,
        state: int = 0,
    ) -> int:
        """Add a kernel; `reads` are tensors, the result is the tensor it makes."""
        index = len(self.tasks)
        self.tasks.append((f"{label}.{index}", label, phase, flops, moved + weight))
        for tensor in reads:
            self.tensors[tensor][2].append(index)
        for size in (weight, state):
            if size:
                self.residents.append((size, [index]))
        self.tensors.append((out, index, []))
        return len(self.tensors) - 1


def _attention(draft: Draft, phase: str, x: int, rows: int, context: int) -> int:
    hidden = rows * WIDTH * 2
    norm = draft.kernel("norm", phase, rows * WIDTH * 4, 2 * hidden, [x], hidden)
    qkv_weight = WIDTH * WIDTH * 3
    qkv = draft.kernel(
        "gemm",
        phase,
        2.0 * rows * WIDTH * WIDTH * 1.5,
        3 * hidden,
        [norm],
        1.5 * hidden,
        qkv_weight,
    )
    rope = draft.kernel("rope", phase, rows * WIDTH * 6, 3 * hidden, [qkv], 1.5 * hidden)
    cache = context * 1024 * 2 * 2
    attended = draft.kernel(
        "attention",
        phase,
        4.0 * rows * WIDTH * max(context // max(rows, 1), 128),
        cache + 2 * hidden,
        [rope],
        hidden,
        0,
        cache,
    )
    projected = draft.kernel(
        "gemm", phase, 2.0 * rows * WIDTH * WIDTH, 2 * hidden, [attended], hidden, WIDTH * WIDTH * 2
    )
    return draft.kernel("add", phase, rows * WIDTH, 3 * hidden, [projected, x], hidden)


def _mlp(draft: Draft, phase: str, x: int, rows: int) -> int:
    hidden = rows * WIDTH * 2
    wide = 3.5 * hidden
    weight = round(WIDTH * WIDTH * 3.5) * 2
    norm = draft.kernel("norm", phase, rows * WIDTH * 4, 2 * hidden, [x], hidden)
    flops = 2.0 * rows * WIDTH * WIDTH * 3.5
    gate = draft.kernel("gemm", phase, flops, hidden + wide, [norm], wide, weight)
    up = draft.kernel("gemm", phase, flops, hidden + wide, [norm], wide, weight)
    act = draft.kernel("silu", phase, rows * WIDTH * 14, 3 * wide, [gate, up], wide)
    down = draft.kernel("gemm", phase, flops, hidden + wide, [act], hidden, weight)
    return draft.kernel("add", phase, rows * WIDTH, 3 * hidden, [down, x], hidden)


def _moe(draft: Draft, phase: str, x: int, rows: int) -> int:
    hidden = rows * WIDTH * 2
    norm = draft.kernel("norm", phase, rows * WIDTH * 4, 2 * hidden, [x], hidden)
    route = draft.kernel("router", phase, 2.0 * rows * WIDTH * 64, hidden, [norm], rows * 64)
    gather = draft.kernel("gather", phase, 0, 3 * hidden, [norm, route], 2 * hidden)
    outs = []
    for _ in range(4):
        weight = WIDTH * 1024 * 2
        up = draft.kernel(
            "expert", phase, rows * WIDTH * 1024.0, hidden, [gather], hidden / 4, 4 * weight
        )
        act = draft.kernel("silu", phase, rows * 1024 * 4, hidden, [up], hidden / 4)
        outs.append(
            draft.kernel(
                "expert", phase, rows * WIDTH * 1024.0, hidden, [act], hidden / 2, 4 * weight
            )
        )
    merged = draft.kernel("scatter", phase, rows * WIDTH * 4, 4 * hidden, [*outs, route], hidden)
    return draft.kernel("add", phase, rows * WIDTH, 3 * hidden, [merged, x], hidden)


def _ssm(draft: Draft, phase: str, x: int, rows: int) -> int:
    hidden = rows * WIDTH * 2
    norm = draft.kernel("norm", phase, rows * WIDTH * 4, 2 * hidden, [x], hidden)
    flops = 4.0 * rows * WIDTH * WIDTH
    inner = draft.kernel("gemm", phase, flops, 3 * hidden, [norm], 2 * hidden, WIDTH * WIDTH * 4)
    conv = draft.kernel("conv", phase, rows * WIDTH * 16, 4 * hidden, [inner], 2 * hidden)
    step = draft.kernel(
        "gemm", phase, rows * WIDTH * 320.0, hidden, [conv], hidden / 8, WIDTH * 320
    )
    scan = draft.kernel(
        "scan",
        phase,
        rows * WIDTH * 400.0,
        6 * hidden,
        [conv, step],
        2 * hidden,
        0,
        64 * WIDTH * 32,
    )
    gate = draft.kernel("silu", phase, rows * WIDTH * 8, 4 * hidden, [scan, inner], 2 * hidden)
    out = draft.kernel("gemm", phase, flops, 3 * hidden, [gate], hidden, WIDTH * WIDTH * 4)
    return draft.kernel("add", phase, rows * WIDTH, 3 * hidden, [out, x], hidden)


def _layer(draft: Draft, family: str, phase: str, x: int, rows: int, context: int) -> int:
    if family == "ssm":
        return _ssm(draft, phase, x, rows)
    x = _attention(draft, phase, x, rows, context)
    return _moe(draft, phase, x, rows) if family == "moe" else _mlp(draft, phase, x, rows)


def _phases(family: str) -> list[tuple[str, int, int]]:
    """(name, rows, context) of the parts of a step."""
    if family == "dit":
        return [("step", 4096, 4096)]
    if family == "multimodal":
        return [("vision", 576, 576), ("decode", 64, 64 * 2048)]
    return [("prefill", 2048, 2048), ("decode", 64, 64 * 2048)]


def draft_graph(family: str, kernels: int, seed: int = 0) -> Draft:
    """A graph of about `kernels` kernels."""
    draft = Draft(random.Random(f"{family}{kernels}{seed}"))
    phases = _phases(family)
    for phase, rows, context in phases:
        hidden = rows * WIDTH * 2
        start = len(draft.tasks)
        x = draft.kernel("embed", phase, 0, 2 * hidden, [], hidden)
        limit = start + kernels // len(phases) - 2
        while True:
            before = len(draft.tasks)
            x = _layer(draft, family, phase, x, rows, context)
            if len(draft.tasks) + (len(draft.tasks) - before) > limit:
                break
        draft.kernel("head", phase, 2.0 * rows * WIDTH * 8192, hidden, [x], rows, WIDTH * 16384)
    _share_weights(draft, len(phases))
    return draft


def _share_weights(draft: Draft, phases: int) -> None:
    """The phases of one model use the same weights: pair them up by position."""
    if phases != 2 or len(draft.residents) % 2:
        return
    half = len(draft.residents) // 2
    pairs = zip(draft.residents[:half], draft.residents[half:], strict=True)
    if all(a[0] == b[0] for a, b in pairs):
        draft.residents = [
            (a[0], a[1] + b[1])
            for a, b in zip(draft.residents[:half], draft.residents[half:], strict=True)
        ]


def _durations(draft: Draft, machine: Machine, seed: int) -> list[tuple[float, ...]]:
    rng = random.Random(f"times{seed}")
    labels = sorted({label for _, label, _, _, _ in draft.tasks})
    cards = sorted({card.gpu.key for card in machine.cards})
    factor = {(label, key): rng.uniform(1.1, 1.9) for label in labels for key in cards}
    found = []
    for _, label, _, flops, moved in draft.tasks:
        row = []
        for device in machine.devices:
            gpu = machine.gpu_of(device)
            share = device.sms / gpu.sms
            unit = "fp16" if label in ("gemm", "expert", "attention", "head") else "fp32"
            rate = (gpu.flops(unit) or gpu.flops("fp32") or 1e12) * share
            fixed = FIXED_CYCLES / gpu.clock_mhz * 1e3
            busy = max(flops / rate, moved / gpu.memory_bandwidth) * 1e9
            row.append(fixed + busy * factor[label, gpu.key])
        found.append(tuple(row))
    return found


def model_graph(
    family: str,
    kernels: int,
    gpus: str = "a100,l40s",
    link: str = "100Gb/s",
    seed: int = 0,
    memory_scale: float = 1.0,
) -> Problem:
    """A planning problem of one family; `memory_scale` below 1: a card holds that share of it."""
    draft = draft_graph(family, kernels, seed)
    machine = machine_of(gpus, link)
    times = _durations(draft, machine, seed)
    total = sum(size for size, _ in draft.residents)
    fitting = [max(card.memory_bytes, total) for card in machine.cards]
    return Problem(
        devices=tuple(device.name for device in machine.devices),
        tasks=tuple(
            Task(name=name, ns=ns, phase=phase, kind=label)
            for (name, label, phase, _, _), ns in zip(draft.tasks, times, strict=True)
        ),
        tensors=tuple(
            Tensor(name=f"t{index}", bytes=size, producer=made, consumers=tuple(readers))
            for index, (size, made, readers) in enumerate(draft.tensors)
            if readers
        ),
        residents=tuple(
            Resident(name=f"w{index}", bytes=size, users=tuple(users))
            for index, (size, users) in enumerate(draft.residents)
        ),
        rooms=tuple(
            Room(
                name=card.name,
                bytes=round(total * memory_scale) if memory_scale < 1 else capacity,
                devices=tuple(d.id for d in machine.slices_of(card.id)),
                usd_per_hour=card.usd_per_hour or 1.0,
            )
            for card, capacity in zip(machine.cards, fitting, strict=True)
        ),
        wires=tuple(
            Wire(
                source=one.source,
                target=one.target,
                ns_per_byte=1e9 / one.bytes_per_second,
                latency_ns=one.latency_ns,
            )
            for one in machine.links
        ),
        pipes=tuple(
            Pipe(name=one.name, ns_per_byte=1e9 / one.bytes_per_second, pairs=one.pairs)
            for one in machine.channels
        ),
        transfer_ns=machine.transfer_ns,
    )
