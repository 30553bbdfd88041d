"""The ways to use GPUs: alone, by layers, attention apart, by kernels, in parts, in pools.

In: a `ServedModel`, what is offered, a workload. Out: `UnitWay`s of all strategies, over all groups
of GPUs that are worth trying: one GPU, two to eight of a kind, pairs of kinds.

Tensor parallelism cuts every product in parts over GPUs of one kind. It is a coarse baseline:
products have a part of their columns, attention a part of its heads, experts are cut inside; what
is left (norms and the like) every GPU does in full. Two sums over all GPUs (all-reduce) per
attention, of as many elements as the step's tokens have: as measured, or by a model of the link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tessera.driver.fleet.attention_ways import attention_ways
from tessera.driver.fleet.engines import EngineStage
from tessera.driver.fleet.kernel_ways import kernel_ways, too_many_steps
from tessera.driver.fleet.layer_ways import SAME_SIZES, all_layers, layer_ways, with_engine
from tessera.driver.fleet.model_steps import ModelStep
from tessera.driver.fleet.offered import Offered
from tessera.driver.fleet.placed_steps import Curve, Taken
from tessera.driver.fleet.pools import pool_links, pool_ways
from tessera.driver.fleet.ways import UnitWay, WaySearch, placed_way
from tessera.frontend.machine.collectives import (
    SumTime,
    all_reduce_ns,
    host_link,
    modelled_all_reduce,
)
from tessera.frontend.machine.gpus import NETWORK_LATENCY_NS, LinkKind
from tessera.ir.plan.tables import TableKind, WorkShape
from tessera.ir.program.program import LibraryCall
from tessera.planning.prices.merge_tables import table_ns
from tessera.planning.prices.work_shapes import call_shape
from tessera.planning.problem.plan_problem import RESERVED_BYTES
from tessera.planning.search.strategies import ATTENTION, KERNEL, LAYERS, PHASE, SINGLE, TENSOR

OnWay = Callable[[str], None]


def find_ways(search: WaySearch, on_way: OnWay = lambda name: None) -> list[UnitWay]:
    """All ways that fit, of all allowed strategies."""
    kinds = range(len(search.offered.kinds))
    made: list[UnitWay] = []
    bases = [name for name in search.allowed if name != PHASE] or [SINGLE, LAYERS, TENSOR]

    def keep(strategy: str, ways: Iterator[UnitWay]) -> None:
        if strategy in bases:
            on_way(strategy)
            made.extend(ways)

    singles = [way for kind in kinds if (way := _single(search, kind)) is not None]
    keep(SINGLE, iter(singles))
    keep(LAYERS, layer_ways(search, bool(singles)))
    keep(ATTENTION, attention_ways(search, bool(singles)))
    keep(TENSOR, _tensor_ways(search))
    layers = {way.gpus: way for way in made if way.strategy == LAYERS}
    keep(KERNEL, kernel_ways(search, layers, bool(singles)))
    pools: list[UnitWay] = []
    if PHASE in search.allowed and search.work.answer > 1:
        on_way(PHASE)
        pools = list(pool_ways(made, pool_links(search)))
    return [*(way for way in made if way.strategy in search.allowed), *pools]


def why_none(search: WaySearch) -> dict[str, str]:
    """Why a strategy may have no way, for reasons other than that none fits."""
    reasons: dict[str, str] = {KERNEL: too_many_steps(search)}
    kinds = search.offered.kinds
    if len(kinds) < 2:
        for strategy in (ATTENTION, KERNEL):
            reasons[strategy] = "it takes two kinds of GPUs"
    if all(kind.most < 2 for kind in kinds):
        reasons[TENSOR] = "it takes two GPUs of a kind"
    return {name: reason for name, reason in reasons.items() if reason}


def _single(search: WaySearch, kind: int) -> UnitWay | None:
    counts = search.counts((kind, 1))
    unit = search.unit(counts)
    if unit is None:
        return None
    places = {step.name: (0,) * len(step.ns) for step in search.model.steps}
    way = placed_way(search, SINGLE, counts, unit, places)
    stage = EngineStage(kind, all_layers(search.model))
    return None if way is None else with_engine(way, [stage])


# --- tensor parallelism ------------------------------------------------------------------------


def _tensor_ways(search: WaySearch) -> Iterator[UnitWay]:
    for kind in range(len(search.offered.kinds)):
        for count in SAME_SIZES:
            counts = search.counts((kind, count))
            unit = search.unit(counts)
            if unit is None:
                continue
            way = tensor_way(search, kind, count)
            if way is not None:
                named = replace(
                    way,
                    strategy=TENSOR,
                    gpus=counts,
                    names=search.names(counts),
                    chunk=search.chunk,
                )
                yield with_engine(named, [EngineStage(kind, all_layers(search.model))], count)


# --- tensor parallelism: what steps take ---------------------------------------------------------


_SUMS = 2  # per layer: after attention, and after the feed-forward part


def tensor_way(search: WaySearch, kind: int, count: int) -> UnitWay | None:
    """The way over `count` GPUs; None if sizes do not divide, or the model does not fit."""
    model, offered, work = search.model, search.offered, search.work
    points: list[list[tuple[float, Taken]]] = [[], []]
    doubt = 0.0
    for step in model.steps:
        taken = _step_ns(step, search, kind, count)
        if taken is None:
            return None
        size = step.rows if step.is_decode else step.rows * step.tokens
        points[0 if step.is_decode else 1].append((float(size), Taken(taken.ns, (taken.ns,))))
        doubt = max(doubt, taken.error)
    gpu = offered.kinds[kind].gpu
    weights = sum(model.weight_bytes.values())
    free = (gpu.memory_bytes - RESERVED_BYTES) * count - 1.05 * weights
    each = sum(model.token_bytes.values()) * (work.prompt + work.answer)
    each += sum(model.row_bytes.values())
    rows = int(free / each) if each else model.decode[-1].rows
    if free <= 0 or rows < 1:
        return None
    per_token = sum(model.token_bytes.values())
    modelled = f"sums over the GPUs by a model, which may take {doubt:.0%} more"
    return UnitWay(
        strategy="",
        gpus=(),
        names="",
        decode=Curve(tuple(points[0])),
        prefill=Curve(tuple(points[1])),
        chunk=0,
        rows=min(rows, model.decode[-1].rows),
        cache_tokens=int(free / per_token) if per_token else 1 << 40,
        widest=1.0 / count,
        doubt=doubt / (1 + doubt),
        note=modelled if doubt else "sums over the GPUs as measured in one host",
    )


def _step_ns(step: ModelStep, search: WaySearch, kind: int, count: int) -> SumTime | None:
    """The time of a step with its sums, and by which part it may be longer for them."""
    offered, work = search.offered, search.work
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
        ns = table_ns(part, gpu, search.library)
        if ns is None:  # no rows: as the whole, by the work
            ns = own / count
        total += ns * (scale if attends else 1.0)
    if not layers or not hidden:
        return None
    each = _sum_time(offered, kind, count, step.rows * step.tokens * hidden)
    sums = _SUMS * layers * each.ns
    return SumTime(total + sums, sums * each.error / (total + sums))


def _sum_time(offered: Offered, kind: int, count: int, elements: float) -> SumTime:
    """A sum over GPUs of one host: as measured, or by the model of its link.

    The link is NVLink where GPUs have it, or PCIe, and the slower one that a machine file says.
    """
    gpu = offered.kinds[kind].gpu
    link = host_link(gpu)
    pair = offered.devices(kind, 2) if offered.kinds[kind].node else []
    between = (k for k in offered.machine.links if [k.source, k.target] == pair)
    slower = next((k for k in between if k.bytes_per_second < link.port(gpu)), None)
    if slower is not None:
        name = "pcie" if slower.latency_ns < NETWORK_LATENCY_NS else "network"
        link = LinkKind(name, slower.bytes_per_second, slower.latency_ns)
    ns = all_reduce_ns(gpu.key, count, elements) if slower is None else None
    if ns is not None:
        return SumTime(ns, 0.0)
    return modelled_all_reduce(gpu, link, count, elements)


def _part(shape: WorkShape, count: int) -> WorkShape | None:
    """The part of a shape for one of `count` GPUs; None if the sizes do not divide."""
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
