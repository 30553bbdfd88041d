"""How long each step takes on each device, from the data sheet and what the analysis knows.

In: a `Program`, its `KernelGraph`, a `Machine`. Out: `Costs`. The model: a fixed cost in cycles,
plus the larger of memory time and arithmetic time. Memory time is the distinct bytes of
the step, at L2 speed if they fit in L2, else at memory speed. Arithmetic is the floating-point and
matrix instructions of the kernel's text times the threads, stretched where the last wave of blocks
leaves SMs idle. Trip counts are not known here: a kernel with a loop is charged for one round of
arithmetic, so its time is a lower bound where arithmetic rules, and its error bar says so. Nothing
is calibrated; every duration is marked `sheet`.

A step is barred from a device that has no code for it, too little shared memory for a block, or,
for a cooperative launch, not enough room for all blocks at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from math import ceil, prod

from tessera.ir import ptx
from tessera.ir.costs import Barred, Cost, Costs, CostSource, Duration, StepCosts
from tessera.ir.graph import KernelGraph, Node
from tessera.ir.machine import Device, Machine
from tessera.ir.opcodes import Kind, meaning_of
from tessera.ir.program import Launch, LibraryCall, Program, Work, for_arch
from tessera.ir.region import region_intervals

FIXED_CYCLES = 4000.0
L2_SPEEDUP = 3.0
_STRAIGHT_ERROR = 0.5
_LOOP_ERROR = 2.0
_SHARED_BYTES = {70: 98304, 72: 98304, 75: 65536, 80: 166912, 86: 101376, 87: 166912,
                 89: 101376, 90: 232448, 100: 232448, 103: 232448, 120: 101376}  # fmt: skip
_THREADS_PER_SM = {75: 1024, 86: 1536, 87: 1536, 89: 1536, 120: 1536}
_ARCH = re.compile(r"sm_(\d+)([af]?)\Z")
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)\Z")


def estimate_costs(program: Program, graph: KernelGraph, machine: Machine) -> Costs:
    """A cost per step and device."""
    steps = []
    for work, node in zip(program.work(), graph.nodes, strict=True):
        moved = float(distinct_bytes(graph, node))
        costs = tuple(_cost(program, work, moved, machine, device) for device in machine.devices)
        steps.append(StepCosts(step=node.id, name=node.name, on_device=costs, memory_bytes=moved))
    return Costs(tuple(steps))


def distinct_bytes(graph: KernelGraph, node: Node) -> int:
    """The bytes a step may touch, each counted once."""
    spans: dict[int, list[tuple[int, int]]] = {}
    for access in node.accesses:
        size = graph.buffers[access.buffer].bytes
        spans.setdefault(int(access.buffer), []).extend(region_intervals(access.region, size))
    total = 0
    for found in spans.values():
        end = 0
        for first, last in sorted(found):
            total += max(0, last - max(first, end))
            end = max(end, last)
    return total


def runs_on(arch: str, device_arch: str) -> bool:
    """Whether code for one architecture runs on a GPU of another.

    Plain code runs on that generation and later ones; `a` code on its own alone; `f` code on later
    ones of the same major number.
    """
    code, gpu = _ARCH.match(arch), _ARCH.match(device_arch)
    if code is None or gpu is None:
        return False
    wanted, have = int(code[1]), int(gpu[1])
    if code[2] == "a":
        return wanted == have
    if code[2] == "f":
        return wanted <= have and wanted // 10 == have // 10
    return wanted <= have


def _cost(program: Program, work: Work, moved: float, machine: Machine, device: Device) -> Cost:
    if not isinstance(work, Launch):
        # The arithmetic of a library call is not counted.
        error = _LOOP_ERROR if isinstance(work, LibraryCall) else _STRAIGHT_ERROR
        return _timed(machine, device, moved, 0.0, 0.0, 1.0, error)
    gpu = machine.gpu_of(device)
    module = program.modules[work.module]
    usable = [v for v in module.variants if runs_on(v.arch, gpu.arch)]
    if not usable:
        archs = ", ".join(variant.arch for variant in module.variants)
        return Barred(f"no code for {gpu.arch}: the module has {archs}")
    variant = max(usable, key=lambda v: (_number(v.arch), v.arch))
    launch = for_arch(work, variant.arch)
    if reason := _too_large(launch, gpu.arch, device):
        return Barred(reason)
    plain, matrix, loops = _operations(variant.ptx, launch.kernel)
    threads = float(prod(launch.grid) * prod(launch.block))
    waves = prod(launch.grid) / device.sms
    idle = ceil(waves) / waves if waves > 1 else 1 / max(waves, 1 / device.sms)
    error = _LOOP_ERROR if loops else _STRAIGHT_ERROR
    return _timed(machine, device, moved, plain * threads, matrix * threads, idle, error)


def _number(arch: str) -> int:
    found = _ARCH.match(arch)
    return int(found[1]) if found else 0


def _too_large(launch: Launch, arch: str, device: Device) -> str:
    number = _number(arch)
    limit = _SHARED_BYTES.get(number, 49152)
    if launch.shared_bytes > limit:
        return f"{launch.shared_bytes} bytes of shared memory per block, {arch} has {limit}"
    if launch.cooperative:
        threads = _THREADS_PER_SM.get(number, 2048)
        most = device.sms * (threads // prod(launch.block))
        if prod(launch.grid) > most:
            return f"a cooperative launch of {prod(launch.grid)} blocks; at most {most} fit"
    return ""


def _operations(module: ptx.Module, kernel: str) -> tuple[float, float, bool]:
    """Per thread: floating-point operations, matrix operations; and whether there is a loop."""
    body = next(
        (
            item.body
            for item in module.items
            if isinstance(item, ptx.Function) and item.name == kernel and item.body is not None
        ),
        None,
    )
    if body is None:
        return 0.0, 0.0, True
    plain = matrix = 0.0
    loops = False
    seen: set[str] = set()
    for statement in _flat(body):
        if isinstance(statement, ptx.Label):
            seen.add(statement.name)
        if not isinstance(statement, ptx.Instruction):
            continue
        meaning = meaning_of(statement)
        kind = None if meaning is None else meaning.kind
        if statement.opcode.name == "bra":
            targets = {o.name for o in statement.operands if isinstance(o, ptx.Name)}
            loops = loops or bool(targets & seen)
        elif kind is Kind.TENSOR:
            matrix += _matrix_operations(statement.opcode.modifiers)
        elif kind in (Kind.FLOAT, Kind.SPECIAL_FUNCTION):
            plain += 2.0 if statement.opcode.name in ("fma", "mad") else 1.0
    return plain, matrix, loops


def _flat(statements: Iterable[ptx.Statement]) -> Iterator[ptx.Statement]:
    for statement in statements:
        if isinstance(statement, ptx.Block):
            yield from _flat(statement.statements)
        else:
            yield statement


def _matrix_operations(modifiers: tuple[str, ...]) -> float:
    """Operations of one matrix instruction, per thread of the warp (or four) that issues it."""
    for modifier in modifiers:
        if found := _SHAPE.match(modifier):
            rows, columns, depth = (int(part) for part in found.groups())
            return 2.0 * rows * columns * depth / (128 if rows >= 64 else 32)
    return 0.0


def _timed(
    machine: Machine,
    device: Device,
    moved: float,
    plain: float,
    matrix: float,
    idle: float,
    error: float,
) -> Duration:
    gpu = machine.gpu_of(device)
    share = device.sms / gpu.sms
    fp32 = gpu.flops("fp32") or 1.0
    # A card without matrix units for the type does the work on its plain ones.
    half = gpu.flops("fp16") or fp32
    bandwidth = gpu.memory_bandwidth * (L2_SPEEDUP if moved <= gpu.l2_bytes else 1.0)
    memory = moved / bandwidth
    arithmetic = (plain / (fp32 * share) + matrix / (half * share)) * idle
    fixed = FIXED_CYCLES / (gpu.clock_mhz * 1e6)
    seconds = fixed + max(memory, arithmetic)
    return Duration(ns=seconds * 1e9, source=CostSource.SHEET, error=error)
