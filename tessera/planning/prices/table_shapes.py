"""How sizes of work lie to each other: coordinates to interpolate along, and a roofline.

In: the sizes of a `TableKind`. Out: numbers. Between rows, and beyond them, it is not the time that
is interpolated but the time over `roofline_ns`: so a size that doubles the bytes doubles a time
that bytes decide, and leaves one alone that the launch decides.
"""

from __future__ import annotations

from math import log

from tessera.ir.plan.machine import Gpu
from tessera.ir.plan.tables import Fixed, Sizes, TableKind

_LAUNCH_NS = 2000.0
_SHARPNESS = 4.0
# Axes in the order in which they are walked, with a weight: the last two in either order. Times
# are smoother along k, queries per key, and expert parts than along the axis before.
ORDERS = {
    TableKind.GEMM: (((0, 1, 2), 4.0), ((0, 2, 1), 1.0)),
    TableKind.CONTEXT: (((0, 1, 2, 3), 4.0), ((0, 1, 3, 2), 1.0)),
    TableKind.GENERATION: (((0, 1, 2, 3), 4.0), ((0, 1, 3, 2), 1.0)),
    TableKind.MOE: (((0, 1, 2), 4.0), ((0, 2, 1), 1.0)),
}
# Whoever measured ran the same work again and again, GEMMs with a few sets of weights in turn: up
# to the first part of L2 the bytes were in it, from the second on they were not.
_IN_CACHE = {
    TableKind.GEMM: (0.15, 0.4),
    TableKind.CONTEXT: (0.4, 0.9),
    TableKind.GENERATION: (0.4, 0.9),
    TableKind.MOE: (0.4, 0.9),
}
_CACHE_SPEED = 2.0  # over memory
_ELEMENT_BYTES = {"bfloat16": 2.0, "fp8": 1.0, "w4a16_mxfp4": 0.53}
_UNITS = {"bfloat16": "bf16", "fp8": "fp8", "w4a16_mxfp4": "bf16"}


def coordinates(kind: TableKind, sizes: Sizes) -> tuple[float, ...]:
    """Where a row lies: logarithms of its sizes; for attention, of queries per key instead."""
    if kind in (TableKind.CONTEXT, TableKind.GENERATION):
        batch, length, heads, kv_heads = sizes
        return log(batch), log(length), log(kv_heads), log(heads / kv_heads)
    return tuple(log(size) for size in sizes)


def model_shape(kind: TableKind, sizes: Sizes) -> Sizes:
    """The sizes that a model decides, not its requests: rows of one such shape are alike."""
    return sizes[1:] if kind in (TableKind.GEMM, TableKind.MOE) else sizes[2:]


def operations_and_bytes(kind: TableKind, fixed: Fixed, sizes: Sizes) -> tuple[float, float]:
    """Floating-point operations, and bytes that have to be moved at least once."""
    width = _ELEMENT_BYTES.get(str(fixed[0]), 2.0)
    if kind is TableKind.GEMM:
        m, n, k = (float(size) for size in sizes)
        return 2 * m * n * k, width * (m * k + k * n) + 2 * m * n
    if kind is TableKind.MOE:
        return _expert_work(fixed, sizes, width)
    batch, length, heads, kv_heads = (float(size) for size in sizes)
    head_size, window = float(fixed[2]), float(fixed[3])
    cache_width = _ELEMENT_BYTES.get(str(fixed[1]), 2.0)
    seen = min(length, window) if window else length
    if kind is TableKind.GENERATION:
        moved = cache_width * 2 * batch * seen * kv_heads * head_size
        return 4 * batch * heads * seen * head_size, moved + 4 * batch * heads * head_size
    pairs = length * seen - (seen * seen - seen) / 2
    moved = (2 * width * heads + 2 * cache_width * kv_heads) * batch * length * head_size
    return 4 * batch * heads * pairs * head_size, moved


def _expert_work(fixed: Fixed, sizes: Sizes, width: float) -> tuple[float, float]:
    tokens, tensor_parts, expert_parts = (float(size) for size in sizes)
    _, hidden, inter, topk, experts = (float(part) if i else 0.0 for i, part in enumerate(fixed))
    rows = tokens * topk / expert_parts
    used = min(experts / expert_parts, rows)
    matrix = 3 * hidden * inter / tensor_parts
    return 2 * rows * matrix, width * used * matrix + 2 * 2 * (tokens + rows) * hidden


def roofline_ns(gpu: Gpu, kind: TableKind, fixed: Fixed, sizes: Sizes) -> float:
    """A launch, and about the longer of arithmetic and memory at the rates of the data sheet."""
    operations, moved = operations_and_bytes(kind, fixed, sizes)
    unit = _UNITS.get(str(fixed[0]), "bf16")
    rate = gpu.flops(unit) or gpu.flops("fp16") or 1e14
    low, high = (log(part) for part in _IN_CACHE[kind])
    missed = min(1.0, max(0.0, (log(moved / gpu.l2_bytes) - low) / (high - low)))
    bandwidth = gpu.memory_bandwidth * _CACHE_SPEED ** (1.0 - missed)
    parts = operations / rate * 1e9, moved / bandwidth * 1e9
    together = float(sum(part**_SHARPNESS for part in parts) ** (1 / _SHARPNESS))
    return _LAUNCH_NS + together
