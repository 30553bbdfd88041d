"""`profile`: measure every step of a trace on GPUs and slices of GPUs of this machine.

In: a trace and a list of devices (`h200,h200:84sm`). Out: a profile, as the JSON that
`tessc plan --profile` reads: for every step and device a time with its spread, cold and warm caches
told apart, beside a busy neighbour for slices, and transfers by size.

The time that plans use lies between warm and cold: at the same share of the way for all steps, such
that they add up to what the whole trace takes. Where that takes longer than all steps cold, the
rest is what it takes to get from one step to the next (another kernel, other code): every step has
an equal part of it. The same holds for the times beside a neighbour.

What a request takes on a device when it and the rest of its GPU are busy for long, with two
requests each, is measured too (`together_ns`), where there is memory for that.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

from tessera.backend.service import DEFAULT_LIMIT_S, Bytes
from tessera.diagnostics import ExitCode, TesseraError, error
from tessera.driver.analyze import analysis_manager, load
from tessera.driver.plan.assemble import variant_on
from tessera.frontend.contents.open_contents import open_contents, open_contents_file
from tessera.frontend.machine.gpus import GpuEntry, parse_gpus
from tessera.frontend.machine.profile import SCHEMA
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.machine import Gpu
from tessera.ir.program.print_trace import print_program
from tessera.ir.program.program import Launch, LibraryCall, Program, Role, Work
from tessera.ir.text_digest import text_digest
from tessera.passes.dependences.dependences import Dependences
from tessera.passes.lowering.plan import lower_replica

if TYPE_CHECKING:
    from tessera.backend.cuda.api import Driver, GpuFacts
    from tessera.backend.cuda.backend import CudaBackend
    from tessera.backend.cuda.measure.profile import DeviceTimes
    from tessera.backend.service import Model

_DEVICE, _BESIDE = "measured", "beside"
_LEAST_SLICE = 8
# With so many requests under way a slice is busy all the time.
_SLOTS = 2
# Words of a GPU's name: its memory, its form, and those that tell no model apart.
_WORD = re.compile(r"[a-z0-9]+")
_MEMORY = re.compile(r"[0-9]+gb")
_FORM = re.compile(r"sxm[0-9]*|pcie")
_MAKERS = frozenset({"nvidia", "tesla", "geforce", "aws", "edition", "generation"})
_LEAST_NS = 0.1
_FILLED = (Role.WEIGHT, Role.INPUT, Role.STATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions:
    """What to measure, and how often."""

    devices: str
    repeats: int = 9
    data: str | None = None
    data_root: str | None = None
    seed: int = 0
    limit_s: float = DEFAULT_LIMIT_S


def profile(
    path: str | os.PathLike[str],
    options: ProfileOptions,
    on_step: Callable[[int, int], None] | None = None,
    driver: Driver | None = None,
) -> dict[str, Any]:
    """The profile of a trace as JSON data; `on_step` hears of steps done and steps in all."""
    from tessera.backend.cuda.doctor import driver_version
    from tessera.backend.cuda.targets import open_driver

    if not isfinite(options.limit_s) or options.limit_s <= 0:
        raise ValueError("the time limit must be a finite number of seconds above zero")
    program = load(path)
    # What is named twice is measured once.
    named = {(entry.gpu.key, entry.sms): entry for entry in parse_gpus(options.devices)}
    entries = tuple(named.values())
    driver = open_driver(driver)
    there = driver.gpus()
    places = [find_card(entry.gpu, there) for entry in entries]
    bench = bench_of(program, path, options, driver)
    rows: list[dict[str, Any]] = []
    transfers: list[dict[str, Any]] = []
    wholes: list[dict[str, Any]] = []
    count = len(bench.graph.nodes) * len(entries)
    with _contexts(driver, places):
        for place, (entry, ordinal) in enumerate(zip(entries, places, strict=True)):

            def tell(done: int, total: int, before: int = place) -> None:
                if on_step is not None:
                    on_step(before * total + done, count)

            times = bench.measure(entry, ordinal, tell)
            share, gap_ns = _share(times)
            rows += _rows(bench, entry.gpu, times, share, gap_ns)
            device = {"gpu": entry.gpu.key, "sms": times.sms}
            whole = {
                **device,
                "card": there[ordinal].name,
                "ns": times.whole_ns,
                "cold_share": round(share, 3),
                "gap_ns": round(gap_ns, 1),
                "clock_mhz": times.clock_mhz,
            }
            together = bench.together(entry, ordinal)
            wholes.append(whole | ({} if together is None else {"together_ns": together}))
            transfers += [
                {**device, "kind": one.kind, "bytes": one.bytes, "ns": _rounded(one.ns)}
                for one in times.transfers
            ]
    used = there[places[0]]
    machine = {
        "gpu": used.name,
        "cuda": driver.version(),
        "driver": driver_version(),
        "sms": used.sms,
        "repeats": options.repeats,
    }
    return {
        "schema": SCHEMA,
        "program": program_digest(program),
        "machine": machine,
        "rows": rows,
        "wholes": wholes,
        "transfers": transfers,
    }


def profile_text(data: dict[str, Any]) -> str:
    """The profile as its file holds it: a row per line."""
    parts = []
    for key, value in data.items():
        if isinstance(value, list):
            lines = ",\n".join("  " + json.dumps(row) for row in value)
            parts.append(f"{json.dumps(key)}: [\n{lines}\n]")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{" + ",\n".join(parts) + "}\n"


def program_digest(program: Program) -> str:
    """The digest by which plans and profiles know a trace."""
    return text_digest(print_program(program))


def _folder(path: str | os.PathLike[str]) -> str:
    return os.path.dirname(os.fspath(path)) or "."


def find_card(gpu: Gpu, there: Sequence[GpuFacts]) -> int:
    """The GPU of this machine that a name of the table means: of that model, with as many SMs."""
    for facts in there:
        if _is_model(gpu.name, facts.name) and facts.sms == gpu.sms:
            return facts.ordinal
    found = ", ".join(f"{facts.name} ({facts.sms} SMs)" for facts in there) or "no GPU"
    raise TesseraError(
        error(
            "TSR6009",
            f"there is no {gpu.name} ({gpu.sms} SMs) in this machine",
            notes=(f"it has {found}",),
            hint="profile on a machine that has one; `tessc plan` takes several profiles",
        ),
        exit_code=ExitCode.NO_DEVICE,
    )


def _is_model(wanted: str, there: str) -> bool:
    """Whether a GPU's own name (`NVIDIA A100-SXM4-80GB`) is that of a model of the table.

    All that tells models apart has to be in it. Memory and form (SXM, PCIe) count where it has
    them: some names do without.
    """
    model, own = (set(_WORD.findall(text.lower())) for text in (wanted, there))
    for kind in (_MEMORY, _FORM):
        ours, theirs = ({w for w in words if kind.fullmatch(w)} for words in (model, own))
        if ours and theirs and not ours & theirs:
            return False
        model -= ours
    return model - _MAKERS <= own


@contextmanager
def _contexts(driver: Driver, ordinals: Sequence[int]) -> Iterator[None]:
    """Contexts stay open in between; what hangs or has faulted is left to the process's end."""
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


def _contents(
    program: Program, path: str | os.PathLike[str], options: ProfileOptions
) -> dict[str, Bytes]:
    opened = (
        open_contents(program, _folder(path), seed=options.seed, root=options.data_root)
        if options.data is None
        else open_contents_file(program, options.data, seed=options.seed, root=options.data_root)
    )
    with opened as contents:
        return {b.name: contents.read(b) for b in program.buffers if b.role in _FILLED}


def bench_of(
    program: Program, path: str | os.PathLike[str], options: ProfileOptions, driver: Driver
) -> Bench:
    """What measures a trace, with its contents."""
    graph = analysis_manager(program, _folder(path), options.data_root).get(Dependences).graph
    return Bench(driver, program, graph, _contents(program, path, options), options)


@dataclass(frozen=True, slots=True)
class Bench:
    """What all devices measure."""

    driver: Driver
    program: Program
    graph: KernelGraph
    given: dict[str, Bytes]
    options: ProfileOptions
    # By GPU and SMs: what the trace takes while the rest of the GPU is busy with it too.
    known: dict[tuple[str, int], float | None] = field(default_factory=dict)

    def arches(self, gpu: Gpu) -> tuple[str, ...]:
        """The variant of every step on a GPU."""
        work = tuple(self.program.work())
        arches = tuple(variant_on(self.program, step, gpu.arch) for step in work)
        for step, arch in zip(work, arches, strict=True):
            if isinstance(step, Launch) and not arch:
                raise TesseraError(_no_variant(step, gpu), exit_code=ExitCode.NO_DEVICE)
        return arches

    def measure(
        self, entry: GpuEntry, ordinal: int, on_step: Callable[[int, int], None]
    ) -> DeviceTimes:
        """Everything on one device."""
        from tessera.backend.cuda.measure.profile import Profiler

        targets, options = _targets(entry, ordinal), self.options
        with self._backends(entry.gpu, targets, [tuple(targets)], 1, least=1) as (backend,):
            profiler = Profiler(
                backend, self.graph, self.given, repeats=options.repeats, limit_s=options.limit_s
            )
            try:
                return profiler.measure(on_step)
            finally:
                profiler.close()

    def together(self, entry: GpuEntry, ordinal: int) -> float | None:
        """What a request takes on a device while it and the rest of its GPU are busy for long.

        None where there is no memory for that, or no graph.
        """
        from tessera.backend.cuda.measure.together import together_ns

        targets, gpu = _targets(entry, ordinal), entry.gpu
        sms = entry.sms or gpu.sms
        keys = [(gpu.key, sms), (gpu.key, gpu.sms - sms)][: len(targets)]
        if any(isinstance(step, LibraryCall) for step in self.program.work()):
            return None  # no graph holds them
        if keys[0] not in self.known:
            found: tuple[float | None, ...] | None = None
            wanted = [(name,) for name in targets]
            with self._backends(gpu, targets, wanted, _SLOTS, least=0) as every:
                if len(every) == len(wanted):
                    found = together_ns(every, self.given, self.options.limit_s)
            # The first counts if both are of one size.
            self.known.update(
                zip(reversed(keys), reversed(found or (None,) * len(keys)), strict=True)
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

        So many at least, and as many more as there is memory for.
        """
        from tessera.backend.cuda.api import DriverError
        from tessera.backend.cuda.backend import CudaBackend
        from tessera.backend.cuda.faults import run_fault
        from tessera.backend.cuda.measure.stopwatch import Stalled
        from tessera.backend.cuda.tape import Refused
        from tessera.backend.service import BackendOptions

        placed = BackendOptions(targets=targets, timeline=False)
        found: list[CudaBackend] = []
        is_stuck = False
        try:
            for devices in wanted:
                with suppress(TesseraError) if len(found) >= least else nullcontext():
                    model = self._model(gpu, devices, slots)
                    found.append(CudaBackend(model, placed, driver=self.driver))
            yield found
        except Stalled:
            is_stuck = True
            raise
        except Refused as refused:
            raise found[0].replica.refused(refused, 0) from None
        except DriverError as problem:
            raise run_fault(problem) from None
        finally:
            for one in () if is_stuck else found:
                one.close()

    def _model(self, gpu: Gpu, devices: tuple[str, ...], slots: int) -> Model:
        """The whole trace on the first of some devices."""
        from tessera.backend.service import Model, ServedTrace

        arches = self.arches(gpu)
        placement = [devices[0]] * len(arches)
        lowered = lower_replica([self.program], [self.graph], [placement], slots=slots, lanes=slots)
        return Model(
            lowered=replace(lowered, devices=devices),
            traces=(ServedTrace(name="trace", program=self.program, arches=arches),),
            weights=self.given,
            states=(self.given,) * slots,
            fillings=({},),
        )


def _targets(entry: GpuEntry, ordinal: int) -> dict[str, str]:
    """What is measured, and the rest of its GPU, where there is one."""
    if entry.sms is None:
        return {_DEVICE: f"cuda:{ordinal}"}
    found = {_DEVICE: f"cuda:{ordinal}:{entry.sms}sm"}
    left = entry.gpu.sms - entry.sms
    return found | ({_BESIDE: f"cuda:{ordinal}:{left}sm"} if left >= _LEAST_SLICE else {})


def _no_variant(step: Work, gpu: Gpu) -> Any:
    return error(
        "TSR6009",
        f"step #{step.id} has no code that runs on {gpu.name} ({gpu.arch})",
        step.span,
        hint="trace the model with `--for` this GPU",
    )


def _share(times: DeviceTimes) -> tuple[float, float]:
    """How far from warm to cold the steps are when the whole trace runs, and what is left of it
    for each step beyond that.
    """
    warm = sum(step.alone.warm_ns for step in times.steps)
    cold = sum(step.alone.cold_ns for step in times.steps)
    if times.whole_ns > cold:
        return 1.0, (times.whole_ns - cold) / max(len(times.steps), 1)
    if cold <= warm:
        return 0.0, 0.0
    return min(max((times.whole_ns - warm) / (cold - warm), 0.0), 1.0), 0.0


def _rows(
    bench: Bench, gpu: Gpu, times: DeviceTimes, share: float, gap_ns: float
) -> list[dict[str, Any]]:
    rows = []
    arches = bench.arches(gpu)
    for step in times.steps:
        alone = step.alone
        row: dict[str, Any] = {
            "step": step.step,
            "name": bench.graph.nodes[step.step].name,
            "gpu": gpu.key,
            "sms": times.sms,
            "ns": _rounded(alone.at(share) + gap_ns),
            "error": round(max(alone.spread, 0.02), 4),
            "warm_ns": _rounded(alone.warm_ns),
            "cold_ns": _rounded(alone.cold_ns),
        }
        if arches[step.step]:
            row["variant"] = arches[step.step]
        for key, pair in (("compute", step.beside_compute), ("memory", step.beside_memory)):
            if pair is not None:
                row[f"beside_{key}_ns"] = _rounded(pair.at(share) + gap_ns)
        rows.append(row)
    return rows


def _rounded(ns: float) -> float:
    """A time as its file holds it: never none at all, which no plan could use."""
    return max(round(ns, 1), _LEAST_NS)
