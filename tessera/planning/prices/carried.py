"""Times of library calls on a GPU that no table has, by the rows of GPUs that tables have.

In: the shape of the work, a GPU, tables of others. Out: an `Estimate`. The rows' time is
multiplied by what the model says of the two GPUs, so that errors of the model that both have in
common cancel, and what a library does beside its kernel stays. A GPU of the same architecture runs
the same kernels, and counts alone. Without one, the mean over GPUs of several architectures counts.
`benchmarks/prediction/held_out.py` leaves out each kind of work on each GPU, and has the figures.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import exp, expm1, hypot, log, log1p

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
    GRAPHICS = 1  # both are graphics cards
    INSTRUCTIONS = 2  # matrix units of both are driven by warps, with `mma.sync`
    SERVERS = 3
    NONE = 4


# Nine in ten are as near, as a logarithm: of one architecture, and from GPUs of others. They are
# the `bars` of `benchmarks/results/held_out.json`. Neither the regime of a row, nor how far its
# sources are apart, nor other operators on the same GPU tell where they are nearer.
_BARS = {
    "gemm bfloat16": (0.13, 0.34),
    "gemm fp8": (0.13, 0.45),
    "context": (0.12, 0.36),
    "generation": (0.11, 0.4),
    "moe": (0.13, 0.36),
}
_ALIKE = 4.0  # weight of a graphics card for another one; others have 1
_OWN_MATRIX_UNITS = (
    90  # from there on, but for graphics cards, they are driven by other instructions
)
_MOST_SOURCES = 3


def kinship(first: Gpu, second: Gpu) -> Kinship:
    """How alike two GPUs are."""
    numbers = [arch_number(gpu.arch) for gpu in (first, second)]
    if numbers[0] == numbers[1] or (min(numbers) >= 90 and numbers[0] // 10 == numbers[1] // 10):
        return Kinship.ARCHITECTURE
    graphics = [number in GRAPHICS for number in numbers]
    if all(graphics):
        return Kinship.GRAPHICS
    if all(number in GRAPHICS or number < _OWN_MATRIX_UNITS for number in numbers):
        return Kinship.INSTRUCTIONS
    return Kinship.NONE if any(graphics) else Kinship.SERVERS


def nearest(gpu: Gpu, others: Iterable[Gpu]) -> list[Gpu]:
    """Other GPUs, the most alike first."""

    def apart(other: Gpu) -> tuple[int, float]:
        rates = [(g.memory_bandwidth, g.flops("bf16") or 1e14) for g in (gpu, other)]
        return kinship(gpu, other), sum(abs(log(a / b)) for a, b in zip(*rates, strict=True))

    return sorted((other for other in others if other.key != gpu.key), key=apart)


def sources_of(gpu: Gpu, others: Iterable[Gpu], has_rows: Callable[[Gpu], bool]) -> list[Gpu]:
    """Of other GPUs that have rows, one of the same architecture, or the nearest of a few others.

    Where architectures differ, so does what libraries run. Each such difference is in the rows of
    one architecture, so that the mean of several has less of it.
    """
    apart: list[Gpu] = []
    for other in nearest(gpu, others):
        known = any(kinship(other, first) is Kinship.ARCHITECTURE for first in apart)
        if known or len(apart) == _MOST_SOURCES or not has_rows(other):
            continue
        apart.append(other)
        if kinship(gpu, other) is Kinship.ARCHITECTURE:
            break
    return apart


def carried(
    kind: TableKind, fixed: Fixed, sizes: Sizes, gpu: Gpu, sources: Sequence[LibraryTables]
) -> Estimate | None:
    """The time on a GPU by the tables of others; None if all are far from its sizes."""
    _, moved = operations_and_bytes(kind, fixed, sizes)
    total, value, error = 0.0, 0.0, 0.0
    here = model_ns(kind, fixed, sizes, gpu)
    for tables in sources:
        there = tables.find(sizes, from_memory_ns(tables.gpu, moved))
        if there is None:
            continue
        weight = _ALIKE if kinship(gpu, tables.gpu) is Kinship.GRAPHICS else 1.0
        total += weight
        value += weight * log(there.ns / model_ns(kind, fixed, sizes, tables.gpu))
        error += weight * log1p(there.error)
    if not total:
        return None
    bars = _BARS.get(family(kind, fixed)) or _BARS[kind.value]
    alike = kinship(gpu, sources[0].gpu) is Kinship.ARCHITECTURE
    bar = hypot(error / total, bars[0 if alike else 1])
    return Estimate(here * exp(value / total), expm1(bar))


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
