"""How long work takes on a GPU: a model with a few constants, fitted to measurements.

In: a `LaunchWork` (or the operations and bytes of a library call), a `Gpu` and a number of SMs.
Out: nanoseconds. A launch takes a fixed number of cycles, and then about the largest of: bytes that
miss L2, at memory bandwidth; bytes asked for, and bytes of shared memory, at so many per cycle and
SM; narrow accesses, whose lanes may get in each other's way; arithmetic of each unit, at a part of
the data sheet's rate; instructions, at so many per cycle and SM; and the chain of one
thread (its instructions, loads and barriers one after the other) in each round of CTAs, as many as
fit on the SMs at once. Small kernels are all chain and fixed cost: that is why cycles count, and
the clock, more than bandwidth.

The constants are those of `benchmarks/durations.py --fit` on an H200. For other GPUs the same parts
of their own data sheets are taken, or what tables say that they reach (`SUSTAINED`);
`CALIBRATED_ON` says which GPUs were measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from tessera.ir.architecture import WARP, arch_number, limits_of
from tessera.ir.plan.costs import LaunchWork
from tessera.ir.plan.machine import Gpu

_SPECIAL_PER_CYCLE = 16.0  # per SM


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """What is fitted. Parts are fractions of the data sheet; cycles are per SM clock."""

    fixed_cycles: float = 2260.0
    memory: float = 0.89
    asked_per_cycle: float = 43.0
    matrix: float = 0.67
    plain: float = 0.945
    instructions_per_cycle: float = 3.4
    accesses_per_cycle: float = 0.048
    shared_per_cycle: float = 110.0
    chain_cycles: float = 0.88
    load_cycles: float = 150.0
    barrier_cycles: float = 69.0
    sharpness: float = 4.1
    call_cycles: float = 2970.0
    call_asked: float = 41.0
    call_sharpness: float = 4.7
    call_memory: float = 0.8
    call_matrix: float = 0.68
    call_plain: float = 0.735
    call_tiles: float = 3.6
    reduce_cycles: float = 8400.0
    reduce_memory: float = 0.433


FITTED = Constants()
CALIBRATED_ON = ("h200",)


@dataclass(frozen=True, slots=True)
class Sustained:
    """Parts of a data sheet that large products reach on a GPU by published measurements."""

    memory: float
    matrix: float


# `benchmarks/direction.py` has the source of these; GPUs without an entry take the fitted parts.
SUSTAINED = {
    "a100-80g-sxm": Sustained(memory=0.78, matrix=0.95),
    "l40s": Sustained(memory=0.78, matrix=0.74),
}


def parts_of(gpu: Gpu, memory: float, matrix: float) -> Sustained:
    """The parts for a GPU: its own where tables say so, or the given ones."""
    return SUSTAINED.get(gpu.like or gpu.key) or Sustained(memory, matrix)


def resident_ctas(gpu: Gpu, threads: int, shared_bytes: int) -> int:
    """CTAs that one SM holds at once, by threads and shared memory; 0 if not even one."""
    limits = limits_of(gpu.arch)
    by_threads = limits.threads // max(-(-threads // WARP) * WARP, WARP)
    # The system keeps 1 KiB of shared memory for each CTA from sm_80 on.
    reserved = 1024 if arch_number(gpu.arch) >= 80 else 0
    by_shared = limits.shared_bytes // (shared_bytes + reserved or 1)
    return min(by_threads, by_shared, limits.ctas)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Distinct bytes of a step: `cold` ones are in no cache, `warm` ones are where L2 has room.

    `working` are the bytes that take turns in L2: those of the step, unless more is said.
    """

    warm: float = 0.0
    cold: float = 0.0
    working: float = 0.0

    def missed(self, gpu: Gpu) -> float:
        """Bytes from memory: of warm ones none if half of L2 holds all, all beyond 1.4 times L2."""
        working = max(self.working, self.warm)
        low, high = 0.5 * gpu.l2_bytes, 1.4 * gpu.l2_bytes
        part = min(1.0, max(0.0, working - low) / (high - low)) if working > 0 else 0.0
        return self.cold + self.warm * part


def launch_ns(
    work: LaunchWork, traffic: Traffic, gpu: Gpu, sms: int, constants: Constants = FITTED
) -> float:
    """The time of a launch on so many SMs of a GPU."""
    clock = gpu.clock_mhz * 1e6
    share = sms / gpu.sms
    fit = max(1, resident_ctas(gpu, work.threads // max(work.ctas, 1), work.shared_bytes))
    waves = work.ctas / sms
    busy = waves / ceil(waves) if waves < fit else 1.0
    rounds = ceil(work.ctas / (sms * fit))
    cycles = sms * clock * busy
    reached = parts_of(gpu, constants.memory, constants.matrix)
    parts = [
        traffic.missed(gpu) / (gpu.memory_bandwidth * reached.memory),
        work.asked_bytes / (constants.asked_per_cycle * cycles),
        work.instructions / 32 / (constants.instructions_per_cycle * cycles),
        work.memory_instructions / 32 / (constants.accesses_per_cycle * cycles),
        work.shared_traffic / (constants.shared_per_cycle * cycles),
        rounds * _chain_cycles(work, constants) / clock,
    ]
    arithmetic = 0.0  # of one warp, one after the other: scores before weights before sums
    for unit, operations in work.units:
        if unit == "special":
            arithmetic += operations / (_SPECIAL_PER_CYCLE * cycles)
        else:
            part = constants.plain if unit in ("fp32", "fp64") else reached.matrix
            arithmetic += operations / (unit_rate(gpu, unit) * share * part * busy)
    parts.append(arithmetic)
    return (constants.fixed_cycles / clock + _together(parts, constants.sharpness)) * 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class CallWork:
    """A library call: operations of a unit; `tiles` are pieces of 128 by 128 of its result.

    `reduces`: results hang on whole rows, so that kernels make several passes.
    """

    operations: float = 0.0
    unit: str = "fp32"
    tiles: float = 1.0
    reduces: bool = False


def call_ns(
    work: CallWork, traffic: Traffic, gpu: Gpu, sms: int, constants: Constants = FITTED
) -> float:
    """The time of a library call on so many SMs of a GPU."""
    clock = gpu.clock_mhz * 1e6
    plain = work.unit in ("fp32", "fp64")
    reached = parts_of(gpu, constants.call_memory, constants.call_matrix)
    part = constants.call_plain if plain else reached.matrix
    busy = min(1.0, work.tiles * constants.call_tiles / sms)
    memory = constants.reduce_memory if work.reduces else reached.memory
    fixed = constants.reduce_cycles if work.reduces else constants.call_cycles
    parts = [
        traffic.missed(gpu) / (gpu.memory_bandwidth * memory),
        (traffic.warm + traffic.cold) / (constants.call_asked * sms * clock),
        work.operations / (unit_rate(gpu, work.unit) * sms / gpu.sms * part * max(busy, 1e-3)),
    ]
    return (fixed / clock + _together(parts, constants.call_sharpness)) * 1e9


def unit_rate(gpu: Gpu, unit: str) -> float:
    """Operations per second; a card without the unit does the work on the next plainer one."""
    for candidate in (
        unit,
        {"bf16": "fp16"}.get(unit, ""),
        "fp16" if unit == "fp8" else "",
        "fp32",
    ):
        if candidate and (rate := gpu.flops(candidate)):
            return rate
    return 1e12


def _chain_cycles(work: LaunchWork, constants: Constants) -> float:
    return (
        work.chain * constants.chain_cycles
        + work.chain_loads * constants.load_cycles
        + work.chain_barriers * constants.barrier_cycles
    )


def _together(parts: list[float], sharpness: float) -> float:
    """About the largest; things that take the same time get in each other's way."""
    top = max(parts)
    if top <= 0:
        return 0.0
    return float(top * sum((part / top) ** sharpness for part in parts) ** (1 / sharpness))
