"""Whether a run computed what one device computes.

In: the outcome of a run and what it started from. Out: a `Verdict`; a difference raises TSR5054
with exit code 5 and names the first launch that diverges (`compare_runs`).

On the CPU backend bytes are equal whatever devices took part, since the run on one device takes
each launch in the variant that the plan chose. It takes whole steps in the place of parts, except
where devices run parts in different variants (`one_device`). On GPUs, bytes are equal for equal
GPUs and variants without atomics on floats: one of the GPUs runs every request alone. Otherwise the
reasons are stated, and each launch of the first request of every trace runs on its device from the
inputs that it has on the CPU backend; results are compared within the tolerance of their type
(`tolerance`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tessera.backend.host_loop.dispatch import Dispatcher
from tessera.backend.known_backends import BackendName
from tessera.backend.processes.reference import Expected, Reference
from tessera.backend.service import BackendOptions, Bytes, Model, ServedTrace
from tessera.backend.unwritten import ComparedSide, filled_ranges
from tessera.diagnostics import TesseraError
from tessera.driver.run.backends import BackendChoice, find_gpus, make_backend
from tessera.driver.run.compare_runs import Verdict, compare_runs, variants_used
from tessera.driver.run.compare_steps import compare_launches, in_oldest_variant
from tessera.driver.run.one_device import graphs_of_one, model_of_one
from tessera.driver.run.options import ServingOptions
from tessera.driver.run.outcome import Outcome
from tessera.driver.run.run_plan import Prepared
from tessera.driver.run.serving import backend_options, models_of
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.launch_program import (
    PLACE_ALIGNMENT,
    AreaKind,
    DeviceProgram,
    LoweredReplica,
    Run,
)
from tessera.ir.program import program as ir
from tessera.ir.progress import OnProgress
from tessera.ir.ptx import syntax as ptx
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.dependences import Dependences
from tessera.planning.lower.lower_plan import lower_replica


def verify_run(
    outcome: Outcome, prepared: Prepared, on_progress: OnProgress | None = None
) -> Verdict:
    """Compare the results of a run with one device, and with PyTorch's recorded results."""
    from tessera.driver.run.recorded import compare_recorded

    verdict = _verify_on_one(outcome, prepared, on_progress)
    return replace(verdict, notes=(*verdict.notes, *compare_recorded(outcome, prepared)))


def _verify_on_one(outcome: Outcome, prepared: Prepared, on_progress: OnProgress | None) -> Verdict:
    models = models_of(prepared.opened, prepared.materials)
    if outcome.backend != BackendName.CPU:
        return verify_on_devices(outcome, prepared, models, on_progress)
    limit = prepared.options.max_steps
    side = ComparedSide.ONE_DEVICE if outcome.has_patterns else None
    references = [
        Reference(
            model_of_one(prepared.opened, m, on_gpu=False).traces,
            m.weights,
            m.states,
            m.fillings,
            max_steps=limit,
            unwritten=side,
            filled=filled_ranges(m.lowered),
        )
        for m in models
    ]
    verdict = compare_runs(outcome, prepared.materials, models, references, on_progress)
    return replace(verdict, notes=_compare_variants(prepared, models[0]))


def _compare_variants(prepared: Prepared, model: Model) -> tuple[str, ...]:
    """Compare the variants themselves if devices run different ones, which one GPU cannot show."""
    places: dict[str, list[str]] = {}
    for arches in variants_used(prepared).values():
        for arch, names in arches.items():
            places.setdefault(arch, []).extend(n for n in names if n not in places.get(arch, ()))
    if len(places) < 2:
        return ()
    rows = ", ".join(f"{arch} on {', '.join(names)}" for arch, names in sorted(places.items()))
    compared = compare_launches(prepared, model, in_oldest_variant(model), "its oldest variant")
    return (
        f"code for several architectures ran ({rows}); on one device each launch took the same",
        "with one variant for all, bytes need not be equal; launches that have an older one are "
        "within the tolerance of each type",
        *compared.notes(),
    )


# --- on GPUs -------------------------------------------------------------------------------------


NO_MEMORY = "TSR5102"
_FLOATS = frozenset(("f16", "f16x2", "bf16", "bf16x2", "f32", "f64"))


def verify_on_devices(
    outcome: Outcome, prepared: Prepared, models: list[Model], on_progress: OnProgress | None = None
) -> Verdict:
    """Compare a run on GPUs with one of them."""
    reasons = obstacles(prepared)
    if reasons:
        verdict = verify_launches(prepared, models, on_progress)
        return replace(verdict, notes=(*reasons, *verdict.notes))
    opened, limit_s = prepared.opened, prepared.options.limit_s
    references = []
    for model in models:
        alone = model_of_one(opened, model, on_gpu=True)
        graphs = graphs_of_one(opened, alone)
        references.append(
            AloneOn(alone, graphs, prepared.choice, limit_s, has_patterns=outcome.has_patterns)
        )
    try:
        return compare_runs(outcome, prepared.materials, models, references, on_progress)
    finally:
        for reference in references:
            reference.close()


def obstacles(prepared: Prepared) -> tuple[str, ...]:
    """Why bytes need not be equal to those of one device."""
    reasons = []
    gpus = {gpu.target: gpu.name for gpu in find_gpus()}
    kinds = {
        gpus.get(":".join(target.split(":")[:2]), target)
        for target in prepared.choice.targets.values()
    }
    if len(kinds) > 1:
        reasons.append(f"bytes need not be equal: the devices differ ({', '.join(sorted(kinds))})")
    for module, arches in variants_used(prepared).items():
        if len(arches) > 1:
            reasons.append(
                f"bytes need not be equal: module `{module}` runs as {', '.join(arches)}"
            )
    for kernel in sorted(_adding(prepared.opened.programs)):
        reasons.append(f"bytes need not be equal: kernel `{kernel}` adds floats atomically")
    return tuple(reasons)


def _adding(programs: tuple[ir.Program, ...]) -> set[str]:
    """Kernels in whose modules floats are added atomically by a function that they may reach."""
    kernels = set()
    for program in programs:
        for step in program.launches():
            module = program.modules[step.module].variants[0].ptx
            for function in module.functions():
                own = function.name == step.kernel or not function.is_entry
                if own and function.body is not None and _adds(function.body):
                    kernels.add(step.kernel)
    return kernels


def _adds(body: tuple[ptx.Statement, ...]) -> bool:
    return any(
        isinstance(statement, ptx.Instruction)
        and statement.opcode.name in ("atom", "red")
        and not _FLOATS.isdisjoint(statement.opcode.modifiers)
        for statement in ptx.walk_statements(body)
    )


class AloneOn:
    """Requests on the first device of a replica alone, through the same backend.

    Every buffer has memory of its own if there is enough. A read that the analysis missed then does
    not find the bytes of another buffer, as it may in the run, and the difference shows.
    """

    def __init__(
        self,
        model: Model,
        graphs: tuple[KernelGraph, ...],
        choice: BackendChoice,
        limit_s: float,
        *,
        has_patterns: bool = False,
    ) -> None:
        self.device = model.lowered.devices[0]
        programs = [served.program for served in model.traces]
        served = {trace.trace for trace in model.lowered.traces}
        placements = [
            [self.device for _ in program.work()] if number in served else None
            for number, program in enumerate(programs)
        ]
        lowered = lower_replica(programs, graphs, placements, slots=1, lanes=model.lowered.lanes)
        alone = replace(model, lowered=lowered)
        side = ComparedSide.ONE_DEVICE if has_patterns else None
        try:
            roomy = replace(alone, lowered=_apart(lowered, programs))
            self._requests = _requests(roomy, choice, limit_s, side)
        except TesseraError as failure:
            if failure.diagnostics[0].code != NO_MEMORY:
                raise
            self._requests = _requests(alone, choice, limit_s, side)

    def run(
        self, inputs: Mapping[str, Bytes], *, trace: int, lane: int, request: int = 0
    ) -> Expected:
        """The next request of a lane."""
        done = self._requests.submit(inputs, trace=trace, lane=lane, number=request).result()
        return Expected(done.outputs, self._requests.read_states(lane), done.printed)

    def close(self) -> None:
        """Release the device."""
        self._requests.close(wait=False)


def _apart(lowered: LoweredReplica, programs: Sequence[ir.Program]) -> LoweredReplica:
    """The programs, with separate memory for every buffer of a slot."""
    sizes: dict[str, int] = {}
    places = []
    for place in lowered.places:
        if place.kind is AreaKind.SLOT:
            start = sizes.get(place.device, 0)
            begins, ends = place.taken(programs[place.trace].buffers[place.buffer].bytes)
            sizes[place.device] = start + -(-(ends - begins) // PLACE_ALIGNMENT) * PLACE_ALIGNMENT
            place = replace(place, offset=start)
        places.append(place)
    areas = tuple(
        replace(area, bytes=sizes.get(area.device, 0)) if area.kind is AreaKind.SLOT else area
        for area in lowered.areas
    )
    return replace(lowered, places=tuple(places), areas=areas)


def _requests(
    model: Model, choice: BackendChoice, limit_s: float, unwritten: ComparedSide | None = None
) -> Dispatcher:
    """A dispatcher with the targets of all devices, so that a slice has its planned SMs."""
    asked = BackendOptions(unwritten=unwritten)
    options = backend_options(choice, ServingOptions(timeline=False), asked)
    lanes = model.lowered.lanes
    return Dispatcher(make_backend(choice, model, options), slots=1, lanes=lanes, limit_s=limit_s)


def verify_launches(
    prepared: Prepared, models: list[Model], on_progress: OnProgress | None = None
) -> Verdict:
    """Each launch on its device, from the inputs that it has on the CPU backend."""
    model = models[0]

    def alone(trace: int, step: ir.Work, before: Mapping[str, Bytes]) -> Mapping[str, Bytes]:
        limit_s = prepared.options.limit_s
        return run_step(model, prepared.choice, trace, step, before, limit_s)

    compared = compare_launches(prepared, model, alone, "the CPU backend", on_progress)
    return Verdict(
        requests=compared.requests,
        lanes=0,
        bytes=compared.bytes,
        notes=compared.notes(),
        how="launch by launch, within the tolerance of each type",
    )


def run_step(
    model: Model,
    choice: BackendChoice,
    trace: int,
    step: ir.Work,
    before: Mapping[str, Bytes],
    limit_s: float,
) -> Mapping[str, Bytes]:
    """The buffers after one step on its device, from their contents before it."""
    lowered = next(
        trace_programs for trace_programs in model.lowered.traces if trace_programs.trace == trace
    )
    device = _device_of(lowered.programs, step)
    program = model.traces[trace].program
    single = replace(
        program,
        buffers=tuple(
            b if b.role is ir.Role.VARIABLE else replace(b, role=ir.Role.STATE)
            for b in program.buffers
        ),
        steps=(replace(step, id=ir.LaunchId(0)),),
        twins=(),
    )
    graph = AnalysisManager(single).get(Dependences).graph
    arch = model.traces[trace].arches[step.id]
    small = Model(
        lowered=lower_replica([single], [graph], [[device]], slots=1, lanes=1),
        traces=(ServedTrace(name="launch", program=single, arches=(arch,)),),
        weights={},
        states=[before],
        fillings=[{}],
    )
    requests = _requests(small, choice, limit_s)
    try:
        requests.submit({}, trace=0, lane=0).result()
        return requests.read_states(0)
    finally:
        requests.close(wait=False)


def _device_of(programs: tuple[DeviceProgram, ...], step: ir.Work) -> str:
    for program in programs:
        if any(queued.operation == Run(step.id) for queued in program.operations):
            return program.device
    raise AssertionError("every step is on a device")
