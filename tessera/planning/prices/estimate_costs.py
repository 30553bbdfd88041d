"""The estimated duration of each step on each device, its error, and where it cannot run.

In: a `Program`, its `KernelGraph`, a `Machine`. Out: `Costs`. The work of a launch is counted
(`count_work`: loops included), that of a library call comes from the table of operators, bytes come
from the graph; `device_model` turns them into a time. Weights and state are assumed not to be
cached unless all of them fit in half of L2: a request touches each of them once. Durations for GPUs
that the model was fitted on are marked `model`, others `sheet`; the error bar is wider for those,
and for kernels with branches on data.

A step is barred from a device that has no code for it, too little shared memory for a block, or,
where blocks wait for each other, not enough room for all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, log, prod, sqrt

from tessera.ir.architecture import (
    CLUSTERS_FROM,
    THREADS_PER_CTA,
    arch_number,
    limits_of,
    runs_on,
    sms_of,
)
from tessera.ir.graph.access import AddressClass, NeedKind
from tessera.ir.graph.graph import KernelGraph, Node
from tessera.ir.graph.region import Region
from tessera.ir.operators.records import OperatorMismatch
from tessera.ir.operators.table import bind
from tessera.ir.plan.costs import (
    Barred,
    Cost,
    Costs,
    CostSource,
    Duration,
    LaunchWork,
    SharedError,
    StepCosts,
)
from tessera.ir.plan.machine import Device, Gpu, Machine
from tessera.ir.program.program import (
    Launch,
    LibraryCall,
    ModuleVariant,
    Program,
    Role,
    Work,
    for_arch,
)
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import regions_bytes
from tessera.planning.prices.call_shapes import call_shape_of, put_bytes, routed_bytes
from tessera.planning.prices.count_work import LaunchCounts
from tessera.planning.prices.device_model import CALIBRATED_ON, Traffic, launch_ns, resident_ctas
from tessera.planning.prices.expert_routing import UNEVEN, UNIFORM
from tessera.planning.prices.library_calls import CallShape, Experts, Grouped, Plain, routed
from tessera.planning.prices.library_launches import call_ns
from tessera.planning.prices.routed_launches import routed_product, visiting_work
from tessera.wording import Wording

# Relative error of a time: nine of ten left-out measurements are nearer. For GPUs that the model
# was fitted on see `benchmarks/prediction/fit_durations.py`; for others
# `benchmarks/prediction/direction.py`, where short rows are known less well. No kernel that was
# measured for the model has code for tensor memory.
_ERROR = 0.3
_ELSEWHERE = 1.1
_WITH_TENSOR_MEMORY = 1.4
_TENSOR_MEMORY = (100, 103)
_ADDED_NS = 8_000.0
_UNSURE = 2.0  # factor on the error if branches depend on data, or the arithmetic is unknown
# Part of the variance that guesses for all GPUs have in common: the least of all pairs of GPUs, in
# products and attention of the tables.
_SHARED = 0.3
PERSISTENT = (Role.WEIGHT, Role.STATE, Role.VARIABLE)
_ROUTINGS = (UNIFORM, UNEVEN)  # what requests choose is between these
_GATHERS = ("embedding", "index", "gather", "select", "take")


def estimate_costs(program: Program, graph: KernelGraph, machine: Machine) -> Costs:
    """A cost per step and device."""
    estimator = _Estimator(program, graph, machine)
    return Costs(
        tuple(
            estimator.step(work, node)
            for work, node in zip(program.work(), graph.nodes, strict=True)
        )
    )


def distinct_bytes(
    graph: KernelGraph, node: Node, persistent: bool | None = None, *, direct: bool = False
) -> int:
    """The bytes that a step may touch, each counted once, in persistent or in other buffers.

    `direct`: only bytes whose addresses do not come from data.
    """
    regions: dict[int, list[Region]] = {}
    for access in node.accesses:
        if direct and access.address is not AddressClass.DIRECT:
            continue
        role = graph.buffers[access.buffer].role
        if persistent is not None and (role in PERSISTENT) != persistent:
            continue
        regions.setdefault(int(access.buffer), []).append(access.region)
    return sum(
        _bytes_of(tuple(some), graph.buffers[buffer].bytes) for buffer, some in regions.items()
    )


@lru_cache(maxsize=4096)
def _bytes_of(regions: tuple[Region, ...], size: int) -> int:
    """The bytes of regions of one buffer; cached, since equal layers have equal regions."""
    return intervals.size(regions_bytes(regions, size))


def usable_variants(
    program: Program, launch: Launch, device_arch: str
) -> tuple[ModuleVariant, ...]:
    """The newest code for a launch that runs on a GPU: one variant for each number of SMs."""
    usable = [
        variant
        for variant in program.modules[launch.module].variants
        if runs_on(variant.arch, device_arch)
    ]

    def age(variant: ModuleVariant) -> tuple[int, str]:
        return arch_number(variant.arch), variant.arch.partition(":")[0]

    newest = max(map(age, usable), default=None)
    return tuple(variant for variant in usable if age(variant) == newest)


def best_variant(
    program: Program, launch: Launch, device_arch: str, sms: int = 0, whole: int = 0
) -> ModuleVariant | None:
    """The newest code for a launch that runs on a GPU; None if there is none.

    If code is tuned for several numbers of SMs, the number nearest to that of the device by ratio
    is chosen. Code without a number of SMs counts as tuned for the `whole` GPU.
    """

    def distance(variant: ModuleVariant) -> tuple[float, int]:
        tuned = sms_of(variant.arch)
        here = sms or whole
        return (abs(log((tuned or whole) / here)) if here and (tuned or whole) else 0.0), tuned

    return min(usable_variants(program, launch, device_arch), key=distance, default=None)


class _Estimator:
    """One program on one machine; equal launches are counted once. Private and mutable."""

    def __init__(self, program: Program, graph: KernelGraph, machine: Machine) -> None:
        self.program, self.graph, self.machine = program, graph, machine
        self.persistent = sum(b.bytes for b in graph.buffers if b.role in PERSISTENT)
        self.counted = LaunchCounts()
        self.calls: dict[object, StepCosts] = {}

    def step(self, work: Work, node: Node) -> StepCosts:
        """The costs of one step on all devices; equal calls of a program are priced once."""
        moved = _DistinctBytes(
            *(float(distinct_bytes(self.graph, node, kept)) for kept in (False, True)),
            *(float(distinct_bytes(self.graph, node, kept, direct=True)) for kept in (False, True)),
        )
        if not isinstance(work, LibraryCall):
            return self._priced(work, node, moved)
        key = _call_key(work), moved
        if key not in self.calls:
            self.calls[key] = self._priced(work, node, moved)
        return replace(self.calls[key], step=node.id, name=node.name)

    def _priced(self, work: Work, node: Node, moved: _DistinctBytes) -> StepCosts:
        gathered = None
        if isinstance(work, LibraryCall):
            gathered = _gathered_bytes(work, call_shape_of(work, moved.total)[0])
        costs: list[Cost] = []
        known: dict[tuple[str, int], tuple[Cost, LaunchWork | None]] = {}
        seen: LaunchWork | None = None
        for device in self.machine.devices:
            gpu = self.machine.gpu_of(device)
            key = gpu.key, device.sms
            if key not in known:
                known[key] = self._cost(work, node, moved, gpu, device)
            costs.append(known[key][0])
            seen = seen or known[key][1]
        return StepCosts(
            step=node.id,
            name=node.name,
            on_device=tuple(costs),
            memory_bytes=min(moved.looked_up(seen).total, gathered or inf),
            work=seen,
        )

    def _cost(
        self, work: Work, node: Node, moved: _DistinctBytes, gpu: Gpu, device: Device
    ) -> tuple[Cost, LaunchWork | None]:
        if not isinstance(work, Launch):
            call, sure = call_shape_of(work, moved.total)
            times = []
            for routing in _ROUTINGS if isinstance(call, Grouped | Experts) else _ROUTINGS[:1]:
                shape = routed(call, routing)
                limit = _gathered_bytes(work, shape) if isinstance(work, LibraryCall) else None
                traffic = moved.traffic(gpu, self.persistent, limit)
                times.append(call_ns(shape, traffic, gpu, device.sms))
            return model_duration(times, gpu, sure=sure), None
        variant = best_variant(self.program, work, gpu.arch, device.sms, gpu.sms)
        if variant is None:
            archs = ", ".join(other.arch for other in self.program.modules[work.module].variants)
            return Barred(Wording(f"no code for {gpu.arch}: the module has {archs}")), None
        launch = for_arch(work, variant.arch)
        counted = self.counted.of(variant, launch, moved.total)
        if reason := _too_large(launch, counted, node, gpu, device):
            return Barred(Wording(reason)), None
        if counted is None:
            traffic = moved.traffic(gpu, self.persistent, None)
            touched = moved.total
            unknown = Plain(touched / 4, touched, touched)
            return model_duration(
                [call_ns(unknown, traffic, gpu, device.sms)], gpu, sure=False
            ), None
        works = [counted]
        if not counted.sure:
            product = routed_product(self.program, launch, node, counted.shared_bytes)
            works = (
                [visiting_work(*product, routing) for routing in _ROUTINGS] if product else works
            )
        times = []
        for done in works:
            # A launch moves no more bytes than it requests; data-dependent branches may raise that.
            limit = done.asked_bytes * (1.0 if done.sure else _UNSURE) or None
            traffic = moved.looked_up(done).traffic(gpu, self.persistent, limit)
            times.append(launch_ns(done, traffic, gpu, device.sms))
        return model_duration(times, gpu, sure=works[0].sure), works[0]


def _call_key(call: LibraryCall) -> object:
    """What a call does, whatever its buffers are; which of its operands share one counts."""
    order: dict[int, int] = {}
    return (
        call.operator,
        call.attributes,
        *(
            tuple(
                (
                    order.setdefault(operand.pointer.buffer, len(order)),
                    operand.pointer.offset,
                    operand.dtype,
                    operand.shape,
                    operand.strides,
                )
                for operand in operands
            )
            for operands in (call.reads, call.writes)
        ),
    )


@dataclass(frozen=True, slots=True)
class _DistinctBytes:
    """Distinct bytes of a step: of buffers private to a request, and of weights and state.

    `direct` are the bytes of either that it touches regardless of data. It may touch any of the
    others, and looks some of them up.
    """

    private: float
    persistent: float
    direct_private: float
    direct_persistent: float

    @property
    def total(self) -> float:
        """All distinct bytes."""
        return self.private + self.persistent

    def looked_up(self, work: LaunchWork | None) -> _DistinctBytes:
        """The bytes with indirect ones limited to those that its threads request, if known."""
        others = self.total - self.direct_private - self.direct_persistent
        # Which accesses of a loop of unknown length are looked up is not counted apart.
        most = 0.0 if work is None else work.indexed_bytes if work.sure else work.asked_bytes
        if not 0 < most < others:
            return self
        part = most / others
        return replace(
            self,
            private=self.direct_private + (self.private - self.direct_private) * part,
            persistent=self.direct_persistent + (self.persistent - self.direct_persistent) * part,
        )

    def traffic(self, gpu: Gpu, everything: float, limit: float | None) -> Traffic:
        """The bytes that are not cached; `limit` is the maximum that the step requests."""
        total = self.total
        part = 1.0 if limit is None or total <= limit else limit / total
        if everything <= gpu.l2_bytes / 2:
            return Traffic(warm=total * part, working=total * part + everything)
        return Traffic(warm=self.private * part, cold=self.persistent * part)


def error_of(ns: float, gpu: Gpu) -> float:
    """Relative error of the model's time of a launch on a GPU."""
    if gpu.key in CALIBRATED_ON:
        return _ERROR
    newer = arch_number(gpu.arch) in _TENSOR_MEMORY
    return (_WITH_TENSOR_MEMORY if newer else _ELSEWHERE) + _ADDED_NS / max(ns, 1_000.0)


def model_duration(times: list[float], gpu: Gpu, *, sure: bool) -> Duration:
    """The middle of times that differ by what is not known, which the bar includes."""
    source = CostSource.MODEL if gpu.key in CALIBRATED_ON else CostSource.SHEET
    ns = sqrt(min(times) * max(times))
    error = error_of(ns, gpu) * (1.0 if sure else _UNSURE)
    error = (1.0 + error) * (max(times) / ns) - 1.0
    return Duration(ns=ns, source=source, error=error, shared=SharedError(_SHARED))


def _too_large(
    launch: Launch, counted: LaunchWork | None, node: Node, gpu: Gpu, device: Device
) -> str:
    """Why a launch cannot run on a device; empty if it can."""
    shared = launch.shared_bytes if counted is None else counted.shared_bytes
    limit = limits_of(gpu.arch).cta_shared_bytes
    if shared > limit:
        return f"{shared} bytes of shared memory per block, {gpu.arch} has {limit}"
    threads = prod(launch.block)
    if threads > THREADS_PER_CTA:
        return f"{threads} threads per block, at most {THREADS_PER_CTA} can run"
    kinds = {need.kind for need in node.needs}
    cluster = launch.cluster is not None or NeedKind.CLUSTER in kinds
    if cluster and arch_number(gpu.arch) < CLUSTERS_FROM:
        return f"a launch in clusters, {gpu.arch} has none"
    if launch.cooperative or NeedKind.GRID in kinds or NeedKind.WAIT in kinds:
        most = device.sms * resident_ctas(gpu, threads, shared)
        if prod(launch.grid) > most:
            what = "a cooperative launch" if launch.cooperative else "a launch that waits inside"
            return f"{what} of {prod(launch.grid)} blocks; at most {most} fit at once"
    return ""


def _gathered_bytes(call: LibraryCall, shape: CallShape) -> float | None:
    """Bytes of calls that touch a part of their operands: experts, or rows of a table."""
    try:
        bound = bind(call)
    except OperatorMismatch:
        return None
    put = put_bytes(bound) or routed_bytes(bound, shape)
    if put is not None:
        return put
    if not any(word in call.operator for word in _GATHERS):
        return None
    return 2.0 * sum(prod(operand.shape) * operand.dtype.bytes for operand in call.writes)


def variant_on(program: Program, work: Work, gpu: Gpu, sms: int | None = None) -> str:
    """The code of a launch that runs on a number of SMs of a GPU; empty if there is none."""
    if not isinstance(work, Launch):
        return ""
    variant = best_variant(program, work, gpu.arch, sms or gpu.sms, gpu.sms)
    return "" if variant is None else variant.arch


def variants_on(program: Program, work: Work, gpu: Gpu, sms: int) -> tuple[str, ...]:
    """All code of a launch that plans may run on `sms` SMs of a GPU, nearest number of SMs first.

    Only the first for a module with variables, which a device holds once.
    """
    nearest = variant_on(program, work, gpu, sms)
    if not nearest or not isinstance(work, Launch):
        return ()
    usable = usable_variants(program, work, gpu.arch)
    if any(v.space in ("global", "const") for variant in usable for v in variant.ptx.variables()):
        return (nearest,)
    return (nearest, *(variant.arch for variant in usable if variant.arch != nearest))
