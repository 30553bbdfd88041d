"""`device_model.launch_ns` for many launches on one GPU at once: the same sums, over arrays.

`benchmarks/prediction/fit_durations.py` fits constants with it, and refuses to if it differs from
the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np

from tessera.ir.architecture import WARP
from tessera.ir.plan.costs import LaunchWork
from tessera.ir.plan.machine import Gpu
from tessera.planning.prices.device_model import (
    SHARED_PER_CYCLE,
    SPECIAL_PER_CYCLE,
    WAIT_BARRIERS,
    Constants,
    Traffic,
    resident_ctas,
    unit_rate,
)

Array = np.ndarray[Any, np.dtype[np.float64]]


class Launches:
    """Launches on slices of a GPU that the model takes the fitted parts of the sheet for."""

    def __init__(
        self, given: Sequence[tuple[LaunchWork, Traffic, int]], gpu: Gpu, matrix: float
    ) -> None:
        works = [work for work, _, _ in given]
        self.gpu, self.clock = gpu, gpu.clock_mhz * 1e6
        self.sms = _array(sms for _, _, sms in given)
        self.ctas = _array(max(work.ctas, 1) for work in works)
        self.counts = {
            name: _array(getattr(work, name) for work in works)
            for name in (
                "instructions",
                "memory_instructions",
                "asked_bytes",
                "shared_traffic",
                "chain_loads",
                "chain_barriers",
                "chain_waits",
            )
        }
        self.arithmetic = _array(self._arithmetic(work, matrix) for work in works)
        self.uneven = _array(
            max(1.0, work.chain / (work.instructions / max(work.threads, 1)))
            if work.instructions > 0
            else 1.0
            for work in works
        )
        self.fit = _array(
            max(1, resident_ctas(gpu, w.threads // max(w.ctas, 1), w.shared_bytes, w.registers))
            for w in works
        )
        self.rounds = np.ceil(self.ctas / (self.sms * self.fit))
        self.most = _array(ceil(max(w.ctas, 1) / sms) for w, _, sms in given)
        self.missed = _array(traffic.missed(gpu) for _, traffic, _ in given)
        moved = _array(traffic.warm + traffic.cold for _, traffic, _ in given)
        self.part = np.divide(self.missed, moved, out=np.zeros_like(moved), where=moved > 0)

    def _arithmetic(self, work: LaunchWork, matrix: float) -> float:
        cycles = 0.0
        for unit, operations in work.units:
            part = 1.0 if unit in ("fp32", "fp64") else matrix
            rate = unit_rate(self.gpu, unit) * part / (self.gpu.sms * self.clock)
            cycles += operations / (SPECIAL_PER_CYCLE if unit == "special" else rate)
        return cycles

    def ns(self, constants: Constants) -> Array:
        """The time of each launch."""
        c, counts = constants, self.counts
        own = [
            counts["instructions"] / WARP / c.instructions_per_cycle,
            self.arithmetic,
            counts["memory_instructions"] / WARP / c.accesses_per_cycle,
            counts["shared_traffic"] / SHARED_PER_CYCLE,
        ]
        taken = np.minimum(c.asked_per_cycle, c.cache_per_cycle * self.gpu.sms / self.sms)
        each = _together([*own, counts["asked_bytes"] / taken], c.sharpness) / self.ctas
        waits = (
            counts["chain_loads"] * (c.load_cycles + c.missed_load_cycles * self.part)
            + (counts["chain_barriers"] + WAIT_BARRIERS * counts["chain_waits"]) * c.barrier_cycles
        )
        chain = waits + c.own_part * sum(own) / self.ctas * self.uneven
        whole = _together(
            [self.most * each, self.most * c.begin_cycles, self.rounds * chain], c.sharpness
        )
        whole = whole + c.tail * (self.uneven - 1.0) * np.minimum(chain, self.fit * each)
        memory = self.missed / (self.gpu.memory_bandwidth * c.memory) * self.clock
        begin = c.fixed_cycles + c.miss_cycles * self.part
        dispatch = c.dispatch_cycles * self.ctas
        parts = [whole, memory, dispatch]
        return np.asarray((begin + _together(parts, c.sharpness)) / self.clock * 1e9)


def _array(values: Any) -> Array:
    return np.array(list(values), dtype=np.float64)


def _together(parts: list[Array], sharpness: float) -> Array:
    top = np.maximum(np.max(parts, axis=0), 1e-12)
    total = sum((part / top) ** sharpness for part in parts)
    return np.asarray(top * total ** (1 / sharpness))
