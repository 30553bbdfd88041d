"""Tensor parallelism over GPUs of one kind: every product cut in parts, sums over all GPUs.

In: a `ServedModel`, a kind of GPU and how many. Out: a `UnitWay`, where tables have both the
products in parts and the sums (all-reduce). A coarse baseline: products have a part of their
columns, attention a part of its heads, experts are cut inside; what is left (norms and the like)
every GPU does in full. Two sums per attention, of as many elements as the step's tokens have.
"""

from __future__ import annotations

from tessera.driver.fleet.model_steps import ModelStep, ServedModel
from tessera.driver.fleet.offered import Offered
from tessera.driver.fleet.ways import Curve, Taken, UnitWay
from tessera.driver.fleet.workload import Workload
from tessera.frontend.machine.collectives import all_reduce_ns
from tessera.ir.plan.tables import TableKind, WorkShape
from tessera.ir.program.program import LibraryCall
from tessera.planning.prices.tables import table_ns
from tessera.planning.prices.work_shapes import call_shape
from tessera.planning.problem.plan_problem import RESERVED_BYTES

_SUMS = 2  # per layer: after attention, and after the feed-forward part


def tensor_way(
    model: ServedModel, offered: Offered, kind: int, count: int, work: Workload
) -> UnitWay | None:
    """The way over so many GPUs; None where tables lack something, or it does not fit."""
    points: list[list[tuple[float, Taken]]] = [[], []]
    for step in model.steps:
        ns = _step_ns(step, offered, kind, count, work)
        if ns is None:
            return None
        size = step.rows if step.is_decode else step.rows * step.tokens
        points[0 if step.is_decode else 1].append((float(size), Taken(ns, (ns,))))
    gpu = offered.kinds[kind].gpu
    weights = sum(model.weight_bytes.values())
    free = (gpu.memory_bytes - RESERVED_BYTES) * count - 1.05 * weights
    each = sum(model.token_bytes.values()) * (work.prompt + work.answer)
    each += sum(model.row_bytes.values())
    rows = int(free / each) if each else model.decode[-1].rows
    if free <= 0 or rows < 1:
        return None
    per_token = sum(model.token_bytes.values())
    return UnitWay(
        strategy="",
        gpus=(),
        names="",
        decode=Curve(tuple(points[0])),
        prefill=Curve(tuple(points[1])),
        chunk=0,
        rows=min(rows, model.decode[-1].rows),
        cache_tokens=int(free / per_token) if per_token else 1 << 40,
        note="sums over the GPUs as measured in one host",
    )


def _step_ns(
    step: ModelStep, offered: Offered, kind: int, count: int, work: Workload
) -> float | None:
    gpu = offered.kinds[kind].gpu
    scale = work.context / step.context if step.is_decode else 1.0
    total, layers = 0.0, 0
    hidden = 0
    for call, times, attends in zip(step.trace.program.work(), step.ns, step.attends, strict=True):
        own = times[kind]
        if own is None:
            return None
        shape = call_shape(call) if isinstance(call, LibraryCall) else None
        layers += attends
        if shape is None:
            total += own
            continue
        part = _part(shape, count)
        if part is None:
            return None
        if shape.kind is TableKind.GEMM:
            hidden = hidden or shape.sizes[2]
        ns = table_ns(part, gpu)
        if ns is None:  # no rows: as the whole, by the work
            ns = own / count
        total += ns * (scale if attends else 1.0)
    if not layers or not hidden:
        return None
    elements = step.rows * step.tokens * hidden
    each = all_reduce_ns(gpu.key, count, elements)
    return None if each is None else total + _SUMS * layers * each


def _part(shape: WorkShape, count: int) -> WorkShape | None:
    """What one of so many GPUs computes; None where it does not come out even."""
    sizes = list(shape.sizes)
    if shape.kind is TableKind.GEMM:
        if sizes[1] % count:
            return None
        sizes[1] //= count
    elif shape.kind is TableKind.MOE:
        sizes[1] *= count
    else:
        if sizes[2] % count:
            return None
        sizes[2] //= count
        sizes[3] = max(1, sizes[3] // count)
    return WorkShape(shape.kind, shape.fixed, tuple(sizes))
