"""How long work takes on a GPU: a model with a few constants, fitted to measurements.

In: a `LaunchWork` (or the operations and bytes of a library call), a `Gpu` and a number of SMs.
Out: nanoseconds. A launch takes a fixed number of cycles, and then about the largest of: bytes that
miss L2, at memory bandwidth; bytes asked for, at so many per cycle and SM; arithmetic of each unit,
at a part of the data sheet's rate; instructions, at so many per cycle and SM; and the chain of one
thread (its instructions, loads and barriers one after the other) in each round of CTAs, as many as
fit on the SMs at once. Small kernels are all chain and fixed cost: that is why cycles count, and
the clock, more than bandwidth.

The constants are those of `benchmarks/durations.py --fit` on an H200. For other GPUs the same parts
of their own data sheets are taken; `calibrated_on` says which GPUs were measured.
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

    fixed_cycles: float = 2200.0
    memory: float = 0.89
    asked_per_cycle: float = 39.0
    matrix: float = 0.945
    plain: float = 0.24
    instructions_per_cycle: float = 3.6
    accesses_per_cycle: float = 0.107
    chain_cycles: float = 0.75
    load_cycles: float = 151.0
    barrier_cycles: float = 132.0
    sharpness: float = 19.7
    call_cycles: float = 2970.0
    call_memory: float = 0.8
    call_matrix: float = 0.68
    call_plain: float = 0.735
    call_tiles: float = 3.6
    reduce_cycles: float = 8400.0
    reduce_memory: float = 0.433


FITTED = Constants()
CALIBRATED_ON = ("h200",)


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
        """Bytes from memory: of warm ones none if half of L2 holds all, all beyond twice L2."""
        working = max(self.working, self.warm)
        low, high = 0.5 * gpu.l2_bytes, 2.0 * gpu.l2_bytes
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
    parts = [
        traffic.missed(gpu) / (gpu.memory_bandwidth * constants.memory),
        work.asked_bytes / (constants.asked_per_cycle * cycles),
        work.instructions / 32 / (constants.instructions_per_cycle * cycles),
        work.memory_instructions / 32 / (constants.accesses_per_cycle * cycles),
        rounds * _chain_cycles(work, constants) / clock,
    ]
    for unit, operations in work.units:
        if unit == "special":
            parts.append(operations / (_SPECIAL_PER_CYCLE * cycles))
        else:
            part = constants.plain if unit in ("fp32", "fp64") else constants.matrix
            parts.append(operations / (_rate(gpu, unit) * share * part * busy))
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
    part = constants.call_plain if plain else constants.call_matrix
    busy = min(1.0, work.tiles * constants.call_tiles / sms)
    memory = constants.reduce_memory if work.reduces else constants.call_memory
    fixed = constants.reduce_cycles if work.reduces else constants.call_cycles
    parts = [
        traffic.missed(gpu) / (gpu.memory_bandwidth * memory),
        (traffic.warm + traffic.cold) / (constants.asked_per_cycle * sms * clock),
        work.operations / (_rate(gpu, work.unit) * sms / gpu.sms * part * max(busy, 1e-3)),
    ]
    return (fixed / clock + _together(parts, constants.sharpness)) * 1e9


def _rate(gpu: Gpu, unit: str) -> float:
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
