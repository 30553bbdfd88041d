"""The estimated duration of each step on each device, its error, and where it cannot run.

In: a `Program`, its `KernelGraph`, a `Machine`. Out: `Costs`. The work of a launch is counted
(`count_work`: loops included), that of a library call comes from the table of operators, bytes come
from the graph; `device_model` turns them into a time. Weights and state are assumed not to be
cached unless all of them fit in half of L2: a request touches each of them once. Durations for GPUs
that the model was fitted on are marked `model`, others `sheet`. The error bar of a library call is
that of its family (`model_bars`); of others it is wider on GPUs that the model was not fitted on,
and for kernels with branches on data.

A step is barred from a device that has no code for it, too little shared memory for a block, or,
where blocks wait for each other, not enough room for all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import expm1, inf, log, prod, sqrt

from tessera.frontend.machine.gpu_table import gpu_table
from tessera.ir.architecture import (
    CLUSTERS_FROM,
    THREADS_PER_CTA,
    arch_number,
    limits_of,
    runs_on,
    sms_of,
)
from tessera.ir.graph.access import NeedKind
from tessera.ir.graph.graph import KernelGraph, Node
from tessera.ir.operators.records import OperatorMismatch
from tessera.ir.operators.table import bind
from tessera.ir.plan.costs import (
    Barred,
    Costs,
    CostSource,
    Duration,
    FloorMark,
    LaunchWork,
    SharedError,
    StepCosts,
    StepNeeds,
)
from tessera.ir.plan.machine import Gpu, Machine
from tessera.ir.program.program import (
    Launch,
    LibraryCall,
    ModuleVariant,
    Program,
    Work,
    for_arch,
)
from tessera.ir.program.routing import Routing
from tessera.planning.prices.call_shapes import (
    call_shape_of,
    operations_of,
    put_bytes,
    routed_bytes,
)
from tessera.planning.prices.count_work import launch_work
from tessera.planning.prices.device_model import CALIBRATED_ON, launch_ns, resident_ctas
from tessera.planning.prices.expert_routing import UNIFORM, possible_routings
from tessera.planning.prices.floors import in_order
from tessera.planning.prices.library_calls import CallShape, Experts, Grouped, Plain, routed
from tessera.planning.prices.library_launches import call_ns
from tessera.planning.prices.model_bars import model_bar
from tessera.planning.prices.routed_launches import routed_product, visiting_work
from tessera.planning.prices.step_bytes import PERSISTENT, UNSURE, StepBytes
from tessera.wording import Wording

# Relative error of a launch: nine of ten left-out measurements are nearer. For GPUs that the model
# was fitted on see `benchmarks/prediction/fit_durations.py`; for others
# `benchmarks/prediction/direction.py`, where short rows are known less well. No kernel that was
# measured for the model has code for tensor memory.
_ERROR = 0.3
_ELSEWHERE = 1.1
_WITH_TENSOR_MEMORY = 1.4
_TENSOR_MEMORY = (100, 103)
_ADDED_NS = 8_000.0
# Part of the variance that guesses for all GPUs have in common: the least of all pairs of GPUs, in
# products and attention of the tables.
_SHARED = 0.3
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
    """One program on one machine. Private and mutable."""

    def __init__(self, program: Program, graph: KernelGraph, machine: Machine) -> None:
        self.program, self.graph, self.machine = program, graph, machine
        self.persistent = sum(b.bytes for b in graph.buffers if b.role in PERSISTENT)
        self.calls: dict[object, StepCosts] = {}

    def step(self, work: Work, node: Node) -> StepCosts:
        """The costs of one step on all devices; equal calls of a program are priced once."""
        moved = StepBytes.of(self.graph, node)
        if not isinstance(work, LibraryCall):
            return self._priced(work, node, moved)
        key = _call_key(work), moved
        if key not in self.calls:
            self.calls[key] = self._priced(work, node, moved)
        return replace(self.calls[key], step=node.id, name=node.name)

    def _priced(self, work: Work, node: Node, moved: StepBytes) -> StepCosts:
        gathered, inside = None, 0.0
        if isinstance(work, LibraryCall):
            shape, _ = call_shape_of(work, moved.total)
            gathered = _gathered_bytes(work, shape)
            inside = shape.inside if isinstance(shape, Experts) else 0.0
        guesses: dict[tuple[str, int], _Guess | Barred] = {}

        def guess(gpu: Gpu, sms: int) -> _Guess | Barred:
            if (gpu.key, sms) not in guesses:
                guesses[gpu.key, sms] = self._guess(work, node, moved, gpu, sms)
            return guesses[gpu.key, sms]

        own = [(self.machine.gpu_of(device), device.sms) for device in self.machine.devices]
        made = [guess(gpu, sms) for gpu, sms in own]
        first = next((one for one in made if isinstance(one, _Guess)), None)
        needs = None if first is None else first.needs
        factors = {} if needs is None else self._order(guess, needs)
        return StepCosts(
            step=node.id,
            name=node.name,
            on_device=tuple(
                one.cost(gpu, factors.get(gpu.key, 1.0)) if isinstance(one, _Guess) else one
                for one, (gpu, _) in zip(made, own, strict=True)
            ),
            memory_bytes=inside
            + min(moved.looked_up(None if first is None else first.work).total, gathered or inf),
            work=None if first is None else first.work,
            needs=needs,
        )

    def _order(
        self, guess: Callable[[Gpu, int], _Guess | Barred], needs: StepNeeds
    ) -> dict[str, float]:
        """Factors on guesses, with which they are in the order of GPUs: those of the table, and
        those of the machine.
        """
        gpus = gpu_table() | {card.gpu.key: card.gpu for card in self.machine.cards}
        times = {}
        for key, gpu in gpus.items():
            made = guess(gpu, gpu.sms)
            if isinstance(made, _Guess):
                times[key] = made.ns
        ordered = in_order(list(times.values()), [gpus[key] for key in times], needs)
        return {key: ns / times[key] for key, ns in zip(times, ordered, strict=True)}

    def _guess(
        self, work: Work, node: Node, moved: StepBytes, gpu: Gpu, sms: int
    ) -> _Guess | Barred:
        """The model's time of a step on a GPU."""
        if not isinstance(work, Launch):
            call, sure = call_shape_of(work, moved.total)
            times, needs = [], StepNeeds()
            experts = call.up if isinstance(call, Experts) else call
            laws: tuple[Routing, ...] = (UNIFORM,)
            if isinstance(experts, Grouped):
                laws = possible_routings(self.program.routing, experts.experts)
            for routing in laws:
                shape = routed(call, routing)
                limit = _gathered_bytes(work, shape) if isinstance(work, LibraryCall) else None
                times.append(call_ns(shape, moved.traffic(gpu, self.persistent, limit), gpu, sms))
                needs = moved.needs(self.persistent, limit, operations_of(shape, work), sure)
                needs = replace(needs, routed=isinstance(experts, Grouped))
            middle = sqrt(min(times) * max(times))
            bar = model_bar(call, needs.cold + needs.warm, middle, gpu) if sure else None
            spread = isinstance(call, Plain) and call.dims > 1  # counted, but never measured
            return _Guess(times, sure and not spread, needs, bar=bar)
        variant = best_variant(self.program, work, gpu.arch, sms, gpu.sms)
        if variant is None:
            archs = ", ".join(other.arch for other in self.program.modules[work.module].variants)
            return Barred(Wording(f"no code for {gpu.arch}: the module has {archs}"))
        launch = for_arch(work, variant.arch)
        counted = launch_work(variant, launch, moved.total)
        if reason := _too_large(launch, counted, node, gpu, sms):
            return Barred(Wording(reason))
        if counted is None:
            touched = moved.total
            unknown = Plain(touched / 4, touched, touched)
            traffic = moved.traffic(gpu, self.persistent, None)
            return _Guess([call_ns(unknown, traffic, gpu, sms)], False, StepNeeds())
        works, is_routed = [counted], False
        if not counted.sure:
            product = routed_product(self.program, launch, node, counted.shared_bytes)
            if product is not None:
                is_routed = True
                laws = possible_routings(self.program.routing, product[0].experts)
                works = [visiting_work(*product, routing) for routing in laws]
        times, needs = [], StepNeeds()
        for done in works:
            # A launch moves no more bytes than it requests; data-dependent branches may raise that.
            limit = done.asked_bytes * (1.0 if done.sure else UNSURE) or None
            read = moved.looked_up(done)
            times.append(launch_ns(done, read.traffic(gpu, self.persistent, limit), gpu, sms))
            units = tuple((u, n) for u, n in done.units if u != "special" and len(works) == 1)
            needs = read.needs(self.persistent, limit, units, done.sure)
            needs = replace(needs, routed=is_routed)
        return _Guess(times, works[0].sure, needs, works[0])


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
class _Guess:
    """Times of a step by the model, which differ by what is not known, and what it needs."""

    times: list[float]
    sure: bool
    needs: StepNeeds
    work: LaunchWork | None = None
    bar: float | None = None

    @property
    def ns(self) -> float:
        """The middle of the times, by ratio."""
        return sqrt(min(self.times) * max(self.times))

    def cost(self, gpu: Gpu, factor: float) -> Duration:
        """A duration; the factor keeps the order of GPUs."""
        made = model_duration(self.times, gpu, sure=self.sure, bar=self.bar)
        if abs(factor - 1.0) < 1e-9:
            return made
        why = "moved, as the model puts two GPUs in the wrong order"
        error = max(made.error, max(factor, 1 / factor) - 1.0)
        mark = FloorMark.ORDERED
        return replace(made, ns=made.ns * factor, error=error, mark=mark, origin=why)


def error_of(ns: float, gpu: Gpu) -> float:
    """Relative error of the model's time of a launch on a GPU."""
    if gpu.key in CALIBRATED_ON:
        return _ERROR
    newer = arch_number(gpu.arch) in _TENSOR_MEMORY
    return (_WITH_TENSOR_MEMORY if newer else _ELSEWHERE) + _ADDED_NS / max(ns, 1_000.0)


def model_duration(
    times: list[float], gpu: Gpu, *, sure: bool, bar: float | None = None
) -> Duration:
    """The middle of times that differ by what is not known, which the bar includes.

    `bar` is that of the family of a library call, as a logarithm.
    """
    source = CostSource.MODEL if gpu.key in CALIBRATED_ON else CostSource.SHEET
    ns = sqrt(min(times) * max(times))
    error = error_of(ns, gpu) * (1.0 if sure else UNSURE) if bar is None else expm1(bar)
    error = (1.0 + error) * (max(times) / ns) - 1.0
    return Duration(ns=ns, source=source, error=error, shared=SharedError(_SHARED))


def _too_large(launch: Launch, counted: LaunchWork | None, node: Node, gpu: Gpu, sms: int) -> str:
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
        most = sms * resident_ctas(gpu, threads, shared)
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
