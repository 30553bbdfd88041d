"""`trace_no_gpu`: from a callable to a trace with PTX for named GPUs, on a machine without a GPU.

In: a function that makes a callable and its inputs, and `NoGpuOptions`. Out: a `Trace` by the rules
of the capture on a GPU. The stages, in order:

1. `_recorded`: compile the callable by its route for absent GPUs, and note what one call would
   launch (`frontend.capture.no_gpu`); tiles are chosen by the model of durations (`tile_choice`).
2. `draft_program`, `settle_roles`: launches, library calls and memory as a program.
3. `with_hints`: hints about what launches compute, if that is known.
4. `_host_bytes`: contents, and the results that PyTorch computes from them on the host, if they are
   not too large. A call that draws random numbers, or uses memory without a name, gets contents
   only: the host draws other numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tessera.diagnostics import Diagnostic, ExitCode, TesseraError, warning
from tessera.driver.trace.build import draft_program, settle_roles
from tessera.driver.trace.capture_trace import FILLED, KEPT, Trace, count_nodes
from tessera.driver.trace.hints import with_hints
from tessera.driver.trace.random_draws import state_bytes
from tessera.driver.trace.tile_choice import TileChoice
from tessera.frontend.capture.inputs import Inputs
from tessera.frontend.capture.problems import NOT_COMPILED
from tessera.frontend.machine.quantities import format_bytes
from tessera.ir.choices import Route
from tessera.ir.plan.machine import Gpu
from tessera.ir.program import program as ir
from tessera.ir.progress import OnProgress, StageProgress

if TYPE_CHECKING:
    from tessera.frontend.capture.meta.record import RawRecord
    from tessera.frontend.capture.no_gpu.on_host import HostBytes

# Contents up to this size in bytes are written with a trace; larger ones are seeded by a run.
MOST_DATA = 2 << 30
Made = tuple[Callable[..., object], Inputs]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTrace:
    """A trace; `problem` is the reason if it has no reference or no contents. The reference of
    kernels that are `interpreted` comes from Triton's interpreter."""

    trace: Trace
    problem: str
    interpreted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoGpuOptions:
    """How to capture without a GPU: the GPUs and other architectures to compile for, the route, the
    user's own PTX, and whether to include contents (as in `TraceOptions`).

    With `same_bits`, calls of all sizes round float32 alike.
    """

    gpus: tuple[Gpu, ...]
    archs: tuple[str, ...] = ()
    route: str = Route.PTX
    ptx: tuple[tuple[str, str], ...] = ()
    data: bool = True
    same_bits: bool = False

    def __post_init__(self) -> None:
        if not self.gpus:
            raise TesseraError.of(
                "TSR6007",
                "without a GPU it has to be said which GPUs to compile for",
                hint="such as `--for a100,l40s`; `tessc gpus` lists them",
            )


def require_triton() -> None:
    """Raise unless Triton is installed: CPU builds of PyTorch come without it."""
    if find_spec("triton") is None:
        raise TesseraError.of(
            "TSR6000",
            "compiling kernels needs the package `triton`",
            hint="pip install 'tessera-compiler[torch,triton]'",
            exit_code=ExitCode.NO_DEVICE,
        )


def trace_no_gpu(
    make: Callable[[], Made], options: NoGpuOptions, on_progress: OnProgress | None = None
) -> HostTrace:
    """The launches of one call of the callable that `make` returns; `make` runs with fake
    tensors."""
    tell = on_progress or (lambda told: None)
    tell(StageProgress("compiling", note=", ".join(gpu.key for gpu in options.gpus)))
    record = _recorded(make, options, tell)
    tell(StageProgress("making a trace", note=f"{len(record.raw.nodes)} steps"))
    draft = draft_program(record.raw)
    program = settle_roles(draft, record.raw)
    tell(StageProgress("running the model on the host"))
    there = _host_bytes(make, record, program, options)
    roles = {buffer.name: buffer.role for buffer in program.declared_buffers()}
    before = {name: content for name, content in there.before.items() if roles.get(name) in FILLED}
    after = {name: content for name, content in there.after.items() if roles.get(name) in KEPT}
    problem = there.problem
    if before and draft.random is not None and record.raw.random is not None:
        before[draft.random] = state_bytes(record.raw.random)
        problem = problem or "it draws random numbers, and PyTorch on the host draws others"
    unknown = tuple(_unknown(program, before))
    if unknown:
        problem = problem or "what some buffers hold is not known"
    made = Trace(
        program=with_hints(program, draft.analyses),
        contents=before,
        reference=after if not problem else {},
        diagnostics=(*record.notes, *draft.findings, *unknown),
        nodes=count_nodes(record.raw, len(record.raw.operators)),
    )
    return HostTrace(trace=made, problem=problem, interpreted=there.interpreted)


def _unknown(program: ir.Program, contents: Collection[str]) -> Iterator[Diagnostic]:
    """Warnings for buffers that are read but have no contents, if other buffers have contents."""
    for buffer in program.declared_buffers():
        if contents and buffer.role in FILLED and buffer.name not in contents:
            yield warning(
                "TSR6012",
                f"what `{buffer.name}` holds is not known without a GPU: a run seeds it",
                hint="make it a buffer of the module, or an input",
            )


def _host_bytes(
    make: Callable[[], Made], record: RawRecord, program: ir.Program, options: NoGpuOptions
) -> HostBytes:
    from tessera.frontend.capture.no_gpu.on_host import HostBytes, call_on_host

    used = {buffer.name for buffer in program.declared_buffers()}
    buffers = {buffer.name: buffer for buffer in record.raw.buffers if buffer.name in used}
    size = sum(buffer.bytes for buffer in buffers.values() if buffer.lasting)
    if not options.data:
        return HostBytes(problem="they were not asked for")
    if size > MOST_DATA:
        most = format_bytes(MOST_DATA)
        return HostBytes(problem=f"they are {format_bytes(size)}, and more than {most} stay out")
    return call_on_host(make, buffers, record.returned)


def _recorded(make: Callable[[], Made], options: NoGpuOptions, tell: OnProgress) -> RawRecord:
    """The call by its route, with the first way to compile it that works."""
    from tessera.frontend.capture.no_gpu.record import CompileOrder, record_launches
    from tessera.frontend.capture.routes import attempts

    chosen: list[str] = []

    def heard(name: str) -> None:
        chosen.append(name)
        tell(StageProgress("compiling", len(chosen), unit="products", note=name))

    failure: TesseraError | None = None
    for backends in attempts(options.route):
        wanted = CompileOrder(
            gpus=options.gpus,
            archs=options.archs,
            route=options.route,
            backends=backends,
            priced=TileChoice(options.gpus),
            texts=options.ptx,
            same_bits=options.same_bits,
        )
        try:
            return record_launches(make, wanted, heard)
        except TesseraError as problem:
            failure = problem
        if failure.diagnostics[0].code != NOT_COMPILED:
            break
    raise failure or AssertionError("there is a way to try")
