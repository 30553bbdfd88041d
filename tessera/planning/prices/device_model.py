"""The duration of work on a GPU: a model with a few constants, fitted to measurements.

In: a `LaunchWork`, the bytes that it moves, a `Gpu` and a number of SMs. Out: nanoseconds.

A CTA needs a multiprocessor for its instructions, its arithmetic, its shared memory and the bytes
that it asks L2 for: about the longest of these times, multiplied by the CTAs of the SM that has the
most. Dispatching and starting a CTA also takes cycles, which matter if CTAs are many and small. A
CTA also has a chain of dependent work: loads (longer if they miss L2), barriers, waits for copies
and matrix instructions under way, and a part of its own instructions and arithmetic, since its
warps wait for each other. As many CTAs as threads, registers and shared memory allow run their
chains at once; the others wait for the next round. CTAs that do more than the mean leave a tail.
The memory time is that of the bytes that miss L2, at a fraction of the data sheet's bandwidth. A
launch takes about the longer of the two, after a fixed time and the latency of the first bytes from
memory. Small kernels consist of chain and fixed cost, so for them cycles and the clock matter more
than bandwidth.

The constants are those of `benchmarks/prediction/fit_durations.py --fit` on an H200. Other GPUs use
the same fractions of their own data sheets, or the fractions that tables show (`SUSTAINED`).
`CALIBRATED_ON` lists the measured GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from statistics import median

from tessera.ir.architecture import WARP, arch_number, limits_of
from tessera.ir.plan.costs import LaunchWork
from tessera.ir.plan.machine import Gpu

SPECIAL_PER_CYCLE = 16.0  # per SM
FAST_SPECIAL = {103: 2.0}  # Blackwell Ultra has twice the units for exponentials
SHARED_PER_CYCLE = 128.0
WAIT_BARRIERS = 2.0  # a wait for copies or matrix instructions under way, in barriers
_REGISTERS = 65536  # per SM, in all architectures of the table
_REGISTER_STEP = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The fitted constants. Parts are fractions of the data sheet; cycles are of the SM clock."""

    fixed_cycles: float = 2267.0
    miss_cycles: float = 1623.0
    memory: float = 0.95
    matrix: float = 0.95
    asked_per_cycle: float = 63.6
    cache_per_cycle: float = 42.9
    instructions_per_cycle: float = 3.7
    accesses_per_cycle: float = 0.219
    load_cycles: float = 149.0
    missed_load_cycles: float = 207.0
    barrier_cycles: float = 119.0
    dispatch_cycles: float = 1.02  # to dispatch a CTA
    begin_cycles: float = 90.0  # to start a CTA on an SM
    own_part: float = 0.112
    tail: float = 0.807
    sharpness: float = 2.61


FITTED = Constants()
CALIBRATED_ON = ("h200",)
_FITTED_MHZ = 1980.0


@dataclass(frozen=True, slots=True)
class Sustained:
    """Fractions of a data sheet that a GPU reaches.

    `clock` is the fraction of its clock that a fully busy GPU keeps, relative to that of an H200.
    """

    memory: float
    matrix: float
    clock: float = 1.0


# `benchmarks/prediction/direction.py` has the source of these; GPUs without an entry take the
# fitted parts.
SUSTAINED = {
    "a100-80g-sxm": Sustained(memory=0.8, matrix=0.95, clock=0.94),
    "l40s": Sustained(memory=0.85, matrix=0.95, clock=0.66),
    "rtx-pro-6000-blackwell-server": Sustained(memory=0.95, matrix=0.95, clock=0.78),
}
# B200 and B300 are two dies, and each has an L2 as large and wide as that of an H100 or more; they
# have 1.12 times its SMs in all.
_TWO_DIES = (100, 103)
L2_WIDTH = dict.fromkeys(_TWO_DIES, 2.0 / 1.12)
# Architectures of graphics cards: many SMs at a high clock share little power, which grows with
# about the cube of the clock. So the sustained clock grows with the cube root of the watts per
# TFLOP/s of the data sheet, and reaches the clock of the sheet at `GRAPHICS_WATTS`.
GRAPHICS = (86, 89, 120, 121)
GRAPHICS_WATTS = 3.05
_USUAL_CLOCK = 0.7

# Launch overhead before CTAs run, in nanoseconds, by architecture: the smallest products in
# published tables, less the cycles of their CTA on an H200 (`benchmarks/prediction/direction.py`).
# It does not scale with the clock. A Hopper GPU uses the fitted cycles; an architecture that is not
# listed uses the value of similar ones, or else the median of all.
LAUNCH_NS = {80: 659.0, 89: 836.0, 100: 407.0, 103: 447.0, 120: 843.0}
_HOPPER = 90
# The shortest of 1,890 launches on an H200 took 1082 ns (`benchmarks/results/h200_rows.jsonl.xz`).
LEAST_NS = 1050.0


def launch_cycles(gpu: Gpu, constants: Constants) -> float:
    """Cycles of a launch before its CTAs run."""
    number = arch_number(gpu.arch)
    if number == _HOPPER:
        return constants.fixed_cycles
    ns = LAUNCH_NS.get(number)
    if ns is None:
        alike = next((kind for kind in (GRAPHICS, _TWO_DIES) if number in kind), ())
        known = [LAUNCH_NS[other] for other in alike if other in LAUNCH_NS]
        fitted = constants.fixed_cycles / _FITTED_MHZ * 1e3
        ns = median(known or [*LAUNCH_NS.values(), fitted])
    return ns * gpu.clock_mhz / 1e3


def parts_of(gpu: Gpu, memory: float, matrix: float) -> Sustained:
    """The sustained fractions of a GPU: its own if tables have them, else the given ones."""
    if own := SUSTAINED.get(gpu.like or gpu.key):
        return own
    return Sustained(memory, matrix, _kept_clock(gpu))


def _kept_clock(gpu: Gpu) -> float:
    """The fraction of its clock that a fully busy GPU without an entry keeps."""
    if arch_number(gpu.arch) not in GRAPHICS:
        return 1.0
    if not gpu.watts:
        return _USUAL_CLOCK
    each = gpu.watts / (unit_rate(gpu, "bf16") / 1e12)
    return float(min(1.0, (each / GRAPHICS_WATTS) ** (1 / 3)))


def resident_ctas(gpu: Gpu, threads: int, shared_bytes: int, registers: int = 0) -> int:
    """Number of CTAs that one SM holds at once, possibly 0. `registers` is per thread."""
    limits = limits_of(gpu.arch)
    whole = max(-(-threads // WARP) * WARP, WARP)
    # The system keeps 1 KiB of shared memory for each CTA from sm_80 on.
    reserved = 1024 if arch_number(gpu.arch) >= 80 else 0
    by_shared = limits.shared_bytes // (shared_bytes + reserved or 1)
    most = min(limits.threads // whole, by_shared, limits.ctas)
    if registers:
        taken = -(-registers // _REGISTER_STEP) * _REGISTER_STEP
        return min(most, _REGISTERS // (taken * whole))
    return most


def held_part(gpu: Gpu) -> float:
    """The fraction of L2 that holds repeatedly accessed bytes.

    Where L2 has two partitions, the same bytes may be in both; graphics cards have one.
    """
    return 0.8 if arch_number(gpu.arch) in GRAPHICS else 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Distinct bytes of a step: `cold` bytes are not cached, `warm` bytes are in L2 if it has room.

    `working` is the working set in L2: the bytes of the step unless given.
    """

    warm: float = 0.0
    cold: float = 0.0
    working: float = 0.0

    def missed(self, gpu: Gpu) -> float:
        """Bytes from memory: no warm bytes if L2 holds all, all beyond 1.4 times its size."""
        working = max(self.working, self.warm)
        low, high = held_part(gpu) * gpu.l2_bytes, 1.4 * gpu.l2_bytes
        part = min(1.0, max(0.0, working - low) / (high - low)) if working > 0 else 0.0
        return self.cold + self.warm * part


def launch_ns(
    work: LaunchWork, traffic: Traffic, gpu: Gpu, sms: int, constants: Constants = FITTED
) -> float:
    """The time of a launch on `sms` SMs of a GPU."""
    clock = gpu.clock_mhz * 1e6
    missed = traffic.missed(gpu)
    moved = traffic.warm + traffic.cold
    part = missed / moved if moved > 0 else 0.0
    reached = parts_of(gpu, constants.memory, constants.matrix)
    memory = missed / (gpu.memory_bandwidth * reached.memory) * clock
    on_sms = _sm_cycles(work, gpu, sms, part, reached, constants)
    begin = launch_cycles(gpu, constants) + constants.miss_cycles * part
    dispatch = constants.dispatch_cycles * work.ctas
    cycles = begin + _together([on_sms, memory, dispatch], constants.sharpness)
    return max(cycles / clock * 1e9, LEAST_NS)


def _sm_cycles(
    work: LaunchWork, gpu: Gpu, sms: int, missing: float, reached: Sustained, constants: Constants
) -> float:
    """Cycles of the SM with the most work, without the time of memory."""
    ctas = max(work.ctas, 1)
    arithmetic = 0.0  # of one warp, sequentially: scores before weights before sums
    for unit, operations in work.units:
        if unit == "special":
            fast = FAST_SPECIAL.get(arch_number(gpu.arch), 1.0)
            arithmetic += operations / (SPECIAL_PER_CYCLE * fast)
        else:
            part = 1.0 if unit in ("fp32", "fp64") else reached.matrix
            arithmetic += operations * gpu.sms * gpu.clock_mhz * 1e6 / (unit_rate(gpu, unit) * part)
    own = [
        work.instructions / WARP / constants.instructions_per_cycle,
        arithmetic,
        work.memory_instructions / WARP / constants.accesses_per_cycle,
        work.shared_traffic / SHARED_PER_CYCLE,
    ]
    # The L2 bandwidth that an SM can use, and its share of that of the whole GPU.
    given = constants.cache_per_cycle * L2_WIDTH.get(arch_number(gpu.arch), 1.0)
    taken = min(constants.asked_per_cycle, given * gpu.sms / sms)
    asked = work.asked_bytes / taken
    each = _together([*own, asked], constants.sharpness) / ctas / reached.clock
    mean = work.instructions / max(work.threads, 1)
    uneven = max(1.0, work.chain / mean) if mean > 0 else 1.0
    load = constants.load_cycles + constants.missed_load_cycles * missing
    stops = work.chain_barriers + WAIT_BARRIERS * work.chain_waits
    waits = work.chain_loads * load + stops * constants.barrier_cycles
    chain = waits + constants.own_part * sum(own) / ctas * uneven
    threads = work.threads // ctas
    fit = max(1, resident_ctas(gpu, threads, work.shared_bytes, work.registers))
    rounds = ceil(ctas / (sms * fit))
    most = ceil(ctas / sms)
    parts = [most * each, most * constants.begin_cycles, rounds * chain]
    whole = _together(parts, constants.sharpness)
    return whole + constants.tail * (uneven - 1.0) * min(chain, fit * each)


def unit_rate(gpu: Gpu, unit: str) -> float:
    """Operations per second; a card without the unit uses the next simpler unit."""
    for candidate in (
        unit,
        {"bf16": "fp16"}.get(unit, ""),
        "fp16" if unit == "fp8" else "",
        "fp32",
    ):
        if candidate and (rate := gpu.flops(candidate)):
            return rate
    return 1e12


def _together(parts: list[float], sharpness: float) -> float:
    """A smooth maximum: parts that take about the same time slow each other down."""
    top = max(parts)
    if top <= 0:
        return 0.0
    return float(top * sum((part / top) ** sharpness for part in parts) ** (1 / sharpness))
