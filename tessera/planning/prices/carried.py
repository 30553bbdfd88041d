"""Times of library calls on a GPU that no table has, by the rows of the nearest GPU that one has.

In: the shape of the work, a GPU, tables of another. Out: an `Estimate`. The rows' time is
multiplied by what the model says of the two GPUs, so that errors of the model that both have in
common cancel, and what a library does beside its kernel stays. How far off that is depends on
whether the GPUs run the same kernels: of one architecture, both graphics cards, both for servers,
or neither. `benchmarks/prediction/held_out.py` leaves out each kind of work on each
GPU, and has the figures.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from math import expm1, hypot, log, log1p

from tessera.ir.architecture import arch_number
from tessera.ir.plan.machine import Gpu
from tessera.ir.plan.tables import Fixed, Sizes, TableKind
from tessera.planning.prices.device_model import GRAPHICS, Traffic
from tessera.planning.prices.libraries import LibraryTables, family
from tessera.planning.prices.library_calls import Attention, CallShape, Experts, Grouped, Product
from tessera.planning.prices.library_launches import call_ns
from tessera.planning.prices.table_lookup import (
    ELEMENT_BYTES,
    UNITS,
    Estimate,
    from_memory_ns,
    operations_and_bytes,
)


class Kinship(enum.IntEnum):
    """How alike two GPUs are."""

    ARCHITECTURE = 0
    GRAPHICS = 1
    SERVERS = 2
    NONE = 3


# Nine in ten are as near, as a logarithm.
_BARS = {
    "gemm bfloat16": (0.15, 0.3, 0.4, 0.45),
    "gemm": (0.15, 0.75, 0.9, 0.9),
    "context": (0.18, 0.42, 0.6, 0.9),
    "generation": (0.15, 0.35, 0.45, 0.55),
    "moe": (0.3, 0.6, 0.8, 1.2),
}


def kinship(first: Gpu, second: Gpu) -> Kinship:
    """How alike two GPUs are."""
    numbers = [arch_number(gpu.arch) for gpu in (first, second)]
    if numbers[0] == numbers[1] or (min(numbers) >= 90 and numbers[0] // 10 == numbers[1] // 10):
        return Kinship.ARCHITECTURE
    graphics = [number in GRAPHICS for number in numbers]
    if graphics[0] != graphics[1]:
        return Kinship.NONE
    return Kinship.GRAPHICS if graphics[0] else Kinship.SERVERS


def nearest(gpu: Gpu, others: Iterable[Gpu]) -> list[Gpu]:
    """Other GPUs, the most alike first."""

    def apart(other: Gpu) -> tuple[int, float]:
        rates = [(g.memory_bandwidth, g.flops("bf16") or 1e14) for g in (gpu, other)]
        return kinship(gpu, other), sum(abs(log(a / b)) for a, b in zip(*rates, strict=True))

    return sorted((other for other in others if other.key != gpu.key), key=apart)


def carried(
    kind: TableKind, fixed: Fixed, sizes: Sizes, gpu: Gpu, tables: LibraryTables
) -> Estimate | None:
    """The time on a GPU by the tables of another one; None if they are far from its sizes."""
    _, moved = operations_and_bytes(kind, fixed, sizes)
    there = tables.find(sizes, from_memory_ns(tables.gpu, moved))
    if there is None:
        return None
    ratio = model_ns(kind, fixed, sizes, gpu) / model_ns(kind, fixed, sizes, tables.gpu)
    bars = _BARS.get(family(kind, fixed)) or _BARS[kind.value]
    bar = hypot(log1p(there.error), bars[kinship(gpu, tables.gpu)])
    return replace(there, ns=there.ns * ratio, error=expm1(bar), between=0.0)


def bare_part(kind: TableKind, fixed: Fixed, sizes: Sizes, gpu: Gpu) -> float:
    """The part of a row that the work alone takes, without what engines do around it."""
    row = row_call(kind, fixed, sizes)
    match row:
        case Product(narrowed=True):
            alone: CallShape = replace(row, narrowed=False)
        case Attention(put=True):
            alone = replace(row, put=False)
        case _:
            return 1.0
    traffic = Traffic(cold=operations_and_bytes(kind, fixed, sizes)[1])
    return call_ns(alone, traffic, gpu, gpu.sms) / call_ns(row, traffic, gpu, gpu.sms)


@lru_cache(maxsize=1 << 12)
def model_ns(kind: TableKind, fixed: Fixed, sizes: Sizes, gpu: Gpu) -> float:
    """The model's time of the work of a row, with all bytes from memory."""
    _, moved = operations_and_bytes(kind, fixed, sizes)
    return call_ns(row_call(kind, fixed, sizes), Traffic(cold=moved), gpu, gpu.sms)


def row_call(kind: TableKind, fixed: Fixed, sizes: Sizes) -> CallShape:
    """What a row measured: engines narrow what a product in fp8 reads, and write their cache."""
    unit, width = UNITS[str(fixed[0])], ELEMENT_BYTES[str(fixed[0])]
    wide = 1 if unit == "fp8" else 2
    if kind is TableKind.GEMM:
        m, n, k = sizes
        return Product(m=m, n=n, k=k, unit=unit, width=wide, narrowed=unit == "fp8")
    if kind is TableKind.MOE:
        tokens, tensor_parts, expert_parts = sizes
        hidden, inner, chosen, experts = (int(part) for part in fixed[1:])
        inner = max(1, inner // tensor_parts)
        up = Grouped(
            tokens=tokens,
            chosen=max(1, chosen // expert_parts),
            experts=max(1, experts // expert_parts),
            n=2 * inner,
            k=hidden,
            weight_width=width,
            unit=unit,
            width=wide,
        )
        return Experts(up, replace(up, n=hidden, k=inner))
    batch, length, heads, kv_heads = sizes
    is_prompt = kind is TableKind.CONTEXT
    return Attention(
        batch=batch,
        heads=heads,
        kv_heads=kv_heads,
        queries=length if is_prompt else 1,
        keys=length,
        size=int(fixed[2]),
        causal=is_prompt,
        unit=unit,
        put=True,
    )
