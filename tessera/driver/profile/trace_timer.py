"""Measures a trace on devices of this machine: its graph, its contents, its backends.

In: a `Program` and `ProfileOptions`. Out: a `TraceTimer`; `measure` and `together` give the times
of a device. `profile` is the pipeline around it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

from tessera.backend.service import DEFAULT_LIMIT_S
from tessera.diagnostics import Diagnostic, ExitCode, TesseraError, error
from tessera.driver.analyses import analysis_manager
from tessera.driver.card_names import is_card
from tessera.driver.run.data_files import opened_checkpoint
from tessera.frontend.contents.open_contents import open_contents, open_contents_file
from tessera.frontend.machine.gpus import GpuEntry
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.options import WrongOption
from tessera.ir.plan.machine import Gpu
from tessera.ir.program.program import Launch, Program, Role, Work
from tessera.ir.program.seeded import LazyContents, Seeded
from tessera.passes.dependences.dependences import Dependences
from tessera.planning.lower.lower_plan import lower_replica
from tessera.planning.prices.estimate_costs import variant_on, variants_on

if TYPE_CHECKING:
    from tessera.backend.cuda.api import Driver, GpuFacts
    from tessera.backend.cuda.backend import CudaBackend
    from tessera.backend.cuda.measure.profile import Profiler
    from tessera.backend.cuda.measure.times import DeviceTimes, StepTimes
    from tessera.backend.service import Model

    VariantTimes = dict[int, dict[str, StepTimes]]

_DEVICE, _BESIDE = "measured", "beside"
_LEAST_SLICE = 8
_FILLED = (Role.WEIGHT, Role.INPUT, Role.STATE)


def timer_of(
    program: Program, path: str | os.PathLike[str], options: ProfileOptions, driver: Driver
) -> TraceTimer:
    """The timer of a trace, with its contents."""
    graph = analysis_manager(program, _folder(path), options.data_root).get(Dependences).graph
    return TraceTimer(driver, program, graph, _contents(program, path, options), options)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions:
    """What to measure, and how often."""

    devices: str
    repeats: int = 9
    data: str | None = None
    data_root: str | None = None
    weights: str | None = None
    seed: int = 0
    limit_s: float = DEFAULT_LIMIT_S

    def __post_init__(self) -> None:
        if not 0 < self.limit_s < inf:
            raise WrongOption("the time limit {limit_s} must be a finite number of seconds above 0")


@dataclass(frozen=True, slots=True)
class TraceTimer:
    """Measures a trace on any device."""

    driver: Driver
    program: Program
    graph: KernelGraph
    given: LazyContents
    options: ProfileOptions
    # By GPU, SMs and slots: the time of the trace while the rest of the GPU runs it too.
    known: dict[tuple[str, int, int], float | None] = field(default_factory=dict)
    # By GPU and SMs: the fastest variant of every step there.
    fastest: dict[tuple[str, int], tuple[str, ...]] = field(default_factory=dict)

    def is_seeded(self) -> bool:
        """Whether some weights are random numbers."""
        weights = (buffer for buffer in self.program.buffers if buffer.role is Role.WEIGHT)
        sources = (self.given.source(buffer.name) for buffer in weights)
        return any(isinstance(source, Seeded) and not source.is_zero for source in sources)

    def arches(self, gpu: Gpu, sms: int) -> tuple[str, ...]:
        """The variant of every step on `sms` SMs of a GPU: the fastest, or that for the nearest
        number of SMs if nothing was measured yet."""
        if (gpu.key, sms) in self.fastest:
            return self.fastest[gpu.key, sms]
        work = tuple(self.program.work())
        arches = tuple(variant_on(self.program, step, gpu, sms) for step in work)
        for step, arch in zip(work, arches, strict=True):
            if isinstance(step, Launch) and not arch:
                raise TesseraError(_no_variant(step, gpu), exit_code=ExitCode.NO_DEVICE)
        return arches

    def try_variants(self, entry: GpuEntry, ordinal: int) -> VariantTimes:
        """Times of every variant of the steps that have several on a device.

        `arches` gives the fastest after this.
        """
        gpu, sms = entry.gpu, entry.sms or entry.gpu.sms
        nearest = self.arches(gpu, sms)
        choices = [variants_on(self.program, step, gpu, sms) for step in self.program.work()]
        several = [number for number, codes in enumerate(choices) if len(codes) > 1]
        times: VariantTimes = {number: {} for number in several}
        for turn in range(max((len(choices[number]) for number in several), default=0)):
            steps = frozenset(number for number in several if turn < len(choices[number]))
            tried = {number: choices[number][turn] for number in steps}
            self.fastest[gpu.key, sms] = tuple(tried.get(n, arch) for n, arch in enumerate(nearest))
            with self._profiler(entry, ordinal) as profiler:
                for timed in profiler.measure_steps(steps):
                    times[timed.step][tried[timed.step]] = timed
        self.fastest[gpu.key, sms] = tuple(
            _fastest(times[number]) if number in times else arch
            for number, arch in enumerate(nearest)
        )
        return times

    def measure(
        self, entry: GpuEntry, ordinal: int, on_step: Callable[[int, int], None]
    ) -> DeviceTimes:
        """Everything on one device."""
        with self._profiler(entry, ordinal) as profiler:
            return profiler.measure(on_step)

    @contextmanager
    def _profiler(self, entry: GpuEntry, ordinal: int) -> Iterator[Profiler]:
        from tessera.backend.cuda.measure.profile import Profiler

        targets, options = _targets(entry, ordinal), self.options
        with self._backends(entry.gpu, targets, [tuple(targets)], 1, least=1) as (backend,):
            profiler = Profiler(
                backend, self.graph, self.given, repeats=options.repeats, limit_s=options.limit_s
            )
            try:
                yield profiler
            finally:
                profiler.close()

    def together(self, entry: GpuEntry, ordinal: int, slots: int) -> float | None:
        """Nanoseconds of a request on a device that is busy for long with `slots` requests, while
        the rest of its GPU is busy too.

        None if memory does not suffice, or there is no graph.
        """
        from tessera.backend.cuda.measure.together import together_ns

        targets, gpu = _targets(entry, ordinal), entry.gpu
        sms = entry.sms or gpu.sms
        keys = [(gpu.key, sms, slots), (gpu.key, gpu.sms - sms, slots)][: len(targets)]
        if keys[0] not in self.known:
            times: tuple[float | None, ...] | None = None
            wanted = [(name,) for name in targets]
            with self._backends(gpu, targets, wanted, slots, least=0) as every:
                if len(every) == len(wanted):
                    times = together_ns(every, self.given, self.options.limit_s)
            # If both are of one size, the first counts.
            self.known.update(
                zip(reversed(keys), reversed(times or (None,) * len(keys)), strict=True)
            )
        return self.known[keys[0]]

    @contextmanager
    def _backends(
        self,
        gpu: Gpu,
        targets: Mapping[str, str],
        wanted: Sequence[tuple[str, ...]],
        slots: int,
        *,
        least: int,
    ) -> Iterator[list[CudaBackend]]:
        """Backends with the trace on the first of each of these devices.

        At least `least` backends, and as many more as memory allows.
        """
        from tessera.backend.cuda.api import DriverError
        from tessera.backend.cuda.backend import CudaBackend
        from tessera.backend.cuda.faults import run_fault
        from tessera.backend.cuda.measure.stopwatch import Stalled
        from tessera.backend.cuda.tape import Refused
        from tessera.backend.cuda.targets import parse_target
        from tessera.backend.service import BackendOptions

        placed = BackendOptions(targets=targets, timeline=False)
        backends: list[CudaBackend] = []
        is_stuck = False
        try:
            for devices in wanted:
                with suppress(TesseraError) if len(backends) >= least else nullcontext():
                    sms = parse_target(targets[devices[0]]).sms or gpu.sms
                    model = self._model(gpu, sms, devices, slots)
                    backends.append(CudaBackend(model, placed, driver=self.driver))
            yield backends
        except Stalled:
            is_stuck = True
            raise
        except Refused as refused:
            raise backends[0].replica.refused(refused, 0) from None
        except DriverError as problem:
            raise run_fault(problem) from None
        finally:
            for backend in () if is_stuck else backends:
                backend.close()

    def _model(self, gpu: Gpu, sms: int, devices: tuple[str, ...], slots: int) -> Model:
        """The whole trace on the first of some devices."""
        from tessera.backend.service import Model, ServedTrace

        arches = self.arches(gpu, sms)
        placement = [devices[0]] * len(arches)
        lowered = lower_replica([self.program], [self.graph], [placement], slots=slots, lanes=slots)
        return Model(
            lowered=replace(lowered, devices=devices),
            traces=(ServedTrace(name="trace", program=self.program, arches=arches),),
            weights=self.given,
            states=(self.given,) * slots,
            fillings=({},),
        )


def _fastest(times: Mapping[str, StepTimes]) -> str:
    """The fastest variant; the first of equal ones."""
    return min(times, key=lambda code: times[code].middle_ns())


def _folder(path: str | os.PathLike[str]) -> str:
    return os.path.dirname(os.fspath(path)) or "."


def _contents(
    program: Program, path: str | os.PathLike[str], options: ProfileOptions
) -> LazyContents:
    opened = (
        open_contents(program, _folder(path), seed=options.seed, root=options.data_root)
        if options.data is None
        else open_contents_file(program, options.data, seed=options.seed, root=options.data_root)
    )
    with (
        opened as contents,
        opened_checkpoint(options.weights, options.data_root) as checkpoint,
    ):
        if checkpoint is not None:
            contents.take_weights(program, checkpoint)
        filled = (buffer for buffer in program.buffers if buffer.role in _FILLED)
        return LazyContents({buffer.name: contents.source(buffer) for buffer in filled})


def _targets(entry: GpuEntry, ordinal: int) -> dict[str, str]:
    """The targets of the measured device and of the rest of its GPU, if it has a rest."""
    if entry.sms is None:
        return {_DEVICE: f"cuda:{ordinal}"}
    measured = {_DEVICE: f"cuda:{ordinal}:{entry.sms}sm"}
    left = entry.gpu.sms - entry.sms
    return measured | ({_BESIDE: f"cuda:{ordinal}:{left}sm"} if left >= _LEAST_SLICE else {})


def _no_variant(step: Work, gpu: Gpu) -> Diagnostic:
    return error(
        "TSR5055",
        f"step #{step.id} has no code that runs on {gpu.name} ({gpu.arch})",
        step.span,
        hint="trace the model with `--for` this GPU",
    )


def find_card(gpu: Gpu, there: Sequence[GpuFacts]) -> int:
    """The GPU of this machine that is a model of the table, with as many SMs."""
    for facts in there:
        if is_card(gpu, facts):
            return facts.ordinal
    cards = ", ".join(f"{facts.name} ({facts.sms} SMs)" for facts in there) or "no GPU"
    raise TesseraError(
        error(
            "TSR5055",
            f"there is no {gpu.name} ({gpu.sms} SMs) in this machine",
            notes=(f"it has {cards}",),
            hint="profile on a machine that has one; `tessc plan` takes several profiles",
        ),
        exit_code=ExitCode.NO_DEVICE,
    )


@contextmanager
def open_contexts(driver: Driver, ordinals: Sequence[int]) -> Iterator[None]:
    """Keep contexts open inside; contexts that hang or have faulted end with the process."""
    from tessera.backend.cuda.api import DriverError
    from tessera.backend.cuda.faults import start_failed
    from tessera.backend.cuda.measure.stopwatch import Stalled

    retained: list[int] = []
    stuck = False
    try:
        for ordinal in ordinals:
            try:
                driver.retain(ordinal)
            except DriverError as problem:
                raise start_failed(problem, f"a context on cuda:{ordinal}") from None
            retained.append(ordinal)
        yield
    except Stalled:
        stuck = True
        raise
    finally:
        for ordinal in () if stuck else retained:
            with suppress(DriverError):
                driver.release(ordinal)
