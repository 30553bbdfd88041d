"""`trace`: from a PyTorch callable on a GPU to a trace that reproduces one call of it.

In: a callable and example inputs, and `TraceOptions`. Out: a `Trace`: the program, the contents of
its buffers before the call, and what PyTorch computed; `write_trace` makes files of it. Stages:

1. `TraceOptions`, `require_gpu`: refuse what cannot work.
2. `_capture`: compile the callable by its route, capture a call as a graph (`frontend.capture`).
3. `draft_program`: launches, copies and library calls of that graph, as a program (`build`).
4. `call.run`: run the graph, and keep the contents of its memory before and after.
5. `check_drawn`, `settle_roles`: check the random numbers, and set roles by reads and writes.
6. `with_hints`: hints about what launches compute, if that is known.
7. `tuned_for_slices`: code for slices of the GPU, from further captures of the call (`tune`).
8. `_without_addresses`: contents and reference, without the words that are pointers.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tessera.diagnostics import Diagnostic, ExitCode, TesseraError
from tessera.driver.run.data_files import opened_checkpoint
from tessera.driver.trace.build import Draft, draft_program, settle_roles
from tessera.driver.trace.hints import with_hints
from tessera.driver.trace.random_draws import check_drawn, state_bytes
from tessera.driver.trace.tune import check_card, slices_of, tuned_for_slices
from tessera.frontend.capture.inputs import Inputs
from tessera.frontend.capture.problems import NOT_COMPILED
from tessera.frontend.capture.raw import (
    MeasuredProduct,
    RawCapture,
    RawLaunch,
    RawMemcpy,
    RawMemset,
    RawOther,
)
from tessera.frontend.contents.checkpoint import fitting
from tessera.frontend.contents.open_contents import Bytes
from tessera.frontend.contents.write import write_contents
from tessera.frontend.machine.quantities import format_bytes
from tessera.ir.architecture import arch_number, sms_of
from tessera.ir.choices import Route
from tessera.ir.program import program as ir
from tessera.ir.program.print_trace import print_program
from tessera.ir.progress import OnProgress, StageProgress
from tessera.output import Kind, check_output, write_file

if TYPE_CHECKING:
    from tessera.frontend.capture.graphs.tuning import TunedSlice
    from tessera.frontend.capture.session import Call

FILLED = (ir.Role.WEIGHT, ir.Role.INPUT, ir.Role.STATE)
KEPT = (ir.Role.OUTPUT, ir.Role.STATE)
# The profiler's names for copies and memsets.
_MOVES = ("Memcpy", "Memset")


def trace(
    function: Callable[..., object],
    /,
    *inputs: object,
    options: TraceOptions | None = None,
    **named_inputs: object,
) -> Trace:
    """Capture one call of `function(*inputs, **named_inputs)` on the current GPU."""
    given = Inputs(plain=inputs, named=named_inputs)
    return trace_call(function, given, options or TraceOptions())


def trace_call(
    function: Callable[..., object],
    inputs: Inputs,
    options: TraceOptions,
    on_progress: OnProgress | None = None,
) -> Trace:
    """Capture one call of a function with these inputs, whatever their names.

    `on_progress` is called with each progress message.
    """
    from tessera.frontend.capture.session import on_one_gpu

    require_gpu()
    with on_one_gpu(function, inputs):
        check_card(options.tune)
        return _trace(function, inputs, options, on_progress or (lambda told: None))


def _trace(
    function: Callable[..., object], inputs: Inputs, options: TraceOptions, tell: OnProgress
) -> Trace:
    tell(StageProgress("capturing", note=f"{options.warm_ups} calls to warm up, then one"))
    call = _capture(function, inputs, options, tell)
    tell(StageProgress("finding out what every kernel was given"))
    draft = draft_program(call.raw, call.read)
    buffers = list(draft.program.declared_buffers())
    steps, size = sum(1 for _ in draft.program.work()), sum(buffer.bytes for buffer in buffers)
    tell(StageProgress("running the call", note=f"{steps} steps, {format_bytes(size)} of buffers"))
    timed = bool(call.raw.operators and call.raw.codes)
    ran = call.run(
        (buffer.name for buffer in buffers),
        data=options.data,
        timed=timed,
        unread=_saved(draft, options),
    )
    check_drawn(ran.drawn, draft.draws)
    program = with_hints(settle_roles(draft, call.raw, ran.changed), draft.analyses)
    before, after = dict(ran.before), dict(ran.after)
    if options.data and draft.random is not None and call.raw.random is not None:
        before[draft.random] = state_bytes(call.raw.random)
        after[draft.random] = state_bytes(call.raw.random, ran.drawn)
    again = partial(_capture, function, inputs, options, tell)
    tuned = tuned_for_slices(program, call, options.tune, again, tell)
    program = tuned.program
    return Trace(
        program=program,
        contents=_without_addresses(program, before, FILLED),
        reference=_without_addresses(program, after, KEPT),
        diagnostics=(*draft.findings, *call.notes, *tuned.findings),
        nodes=count_nodes(call.raw, draft.in_calls),
        products=call.products,
        times=_divided(program, ran.times),
    )


def _saved(draft: Draft, options: TraceOptions) -> frozenset[str]:
    """The buffers that no step writes and that the checkpoint has; raises TSR1187 if they
    differ."""
    if options.weights is None:
        return frozenset()
    with opened_checkpoint(options.weights, options.data_root) as checkpoint:
        assert checkpoint is not None
        return fitting(draft.program, checkpoint) - draft.written


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """How to capture. `route` chooses the compiler:

    `auto`: torch.compile, products and convolutions by Triton or a library, whichever is faster;
    `ptx`: everything by Triton; `library`: products and convolutions by the libraries; `eager`: no
    compiler; `as-is`: the callable is called unchanged.

    `archs` are other architectures to compile for. `ptx` are texts of the user's own kernels, each
    with a name for errors, for kernels whose PTX is not found otherwise. Without `data`, the
    contents of the model's memory stay on the GPU, and the trace has sizes only. Tensors of the
    checkpoint in the folder `weights` are left out of the contents; its links must lead below
    `data_root`. `tune` names slices of the GPU (`h200:84sm,h200:48sm`) that kernels are also tuned
    for.
    """

    route: str = Route.AUTO
    archs: tuple[str, ...] = ()
    warm_ups: int = 3
    ptx: tuple[tuple[str, str], ...] = ()
    data: bool = True
    weights: str | None = None
    data_root: str | None = None
    tune: str = ""

    def __post_init__(self) -> None:
        if slices_of(self.tune) and self.route == Route.EAGER:
            raise TesseraError.of("TSR6007", "by the route `eager` there is nothing to tune")
        if self.route not in [*Route]:
            raise TesseraError.of(
                "TSR6007", f"`{self.route}` is no route", hint=f"one of {', '.join(Route)}"
            )
        for arch in self.archs:
            if arch_number(arch) < 10 or sms_of(arch):
                raise TesseraError.of(
                    "TSR6007",
                    f"`{arch}` is no architecture to compile for",
                    hint="such as `--arch sm_80,sm_89`; `tessc gpus` lists those of GPUs",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNodes:
    """The nodes of the captured graph by kind. Nodes `in_calls` are part of library calls of the
    trace, among them `others` (nodes of other kinds); each remaining node is a step of its own.
    `skipped` nodes do nothing."""

    kernels: int
    memsets: int
    copies: int
    others: int
    in_calls: int
    skipped: int


@dataclass(frozen=True, slots=True)
class CallTimes:
    """The times of the kernels of the trace, and of those in library calls (`op` steps)."""

    launches_ns: float
    calls_ns: float

    @property
    def share(self) -> float:
        """The fraction of the time in library calls."""
        return self.calls_ns / (self.launches_ns + self.calls_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A captured call. Contents and reference are bytes by buffer name.

    `products` were measured to choose between Triton and a library. `times` are those of one run,
    if the trace has library calls beside launches and the times could be measured.
    """

    program: ir.Program
    contents: dict[str, Bytes]
    reference: dict[str, Bytes]
    diagnostics: tuple[Diagnostic, ...]
    nodes: GraphNodes
    products: tuple[MeasuredProduct, ...] = ()
    times: CallTimes | None = None


def _capture(
    function: Callable[..., object],
    inputs: Inputs,
    options: TraceOptions,
    tell: OnProgress = lambda told: None,
    part: TunedSlice | None = None,
) -> Call:
    """Capture the call by its route, with the first way to compile it that works.

    Measurements are made on the slice `part` of the GPU, or on the whole GPU.
    """
    from tessera.driver.trace.tile_choice import tiles_here
    from tessera.frontend.capture import routes
    from tessera.frontend.capture.compile_pool import drop_pool, pool_failed, process_counts
    from tessera.frontend.capture.graphs.tuning import tuned_on
    from tessera.frontend.capture.kept_products import made_by, with_kept
    from tessera.frontend.capture.measured import measured_products
    from tessera.frontend.capture.quiet import quiet_compiler
    from tessera.frontend.capture.session import capture
    from tessera.frontend.capture.watch import Keeper, keep_compiled

    tuned: list[str] = []

    def heard(name: str) -> None:
        tuned.append(name)
        tell(StageProgress("compiling", len(tuned), unit="products measured", note=name))

    failure, sms = None, 0 if part is None else part.sms
    counts = process_counts(for_others=bool(options.archs))
    for backends, processes in itertools.product(routes.attempts(options.route), counts):
        if failure is not None and processes != counts[0] and not pool_failed(failure):
            continue
        keeper = Keeper()
        products: list[MeasuredProduct] = []
        graphs: list[str] = []
        with (
            routes.fresh_compiler(sms=sms, processes=processes),
            quiet_compiler(heard),
            keep_compiled(keeper),
            tuned_on(part),
            routes.plain_attention(options.route),
            routes.own_kernels(options.route, made_by(options.route, backends, sms), graphs.append),
            measured_products(products, tiles_here(sms)) if backends else nullcontext(),
        ):
            try:
                call = capture(
                    routes.compiled(function, options.route, backends, alike=bool(options.tune)),
                    inputs,
                    keeper,
                    archs=options.archs,
                    given=options.ptx,
                    warm_ups=options.warm_ups,
                    copy_parts=options.route == Route.EAGER,
                )
                return replace(call, products=with_kept(graphs, products))
            except TesseraError as problem:
                failure = problem
        if processes > 1 and pool_failed(failure):
            drop_pool()
        elif failure.diagnostics[0].code != NOT_COMPILED:
            break
    raise failure or AssertionError("there is a way to try")


def _divided(program: ir.Program, times: tuple[tuple[str, float], ...]) -> CallTimes | None:
    """The times of kernels that are launches of the trace, and of those in library calls."""
    if not times:
        return None
    names = {launch.kernel for launch in program.launches()}
    own = sum(ns for name, ns in times if name in names or name.startswith(_MOVES))
    return CallTimes(own, sum(ns for _, ns in times) - own)


def _without_addresses(
    program: ir.Program, contents: dict[str, Bytes], roles: tuple[ir.Role, ...]
) -> dict[str, Bytes]:
    """The contents of buffers in these roles, without pointers, which mean nothing elsewhere."""
    wanted = {b.name for b in program.declared_buffers() if b.role in roles}
    kept = {name: content for name, content in contents.items() if name in wanted}
    for table in program.pointer_tables:
        name = program.buffers[table.buffer].name
        if name in kept:
            kept[name] = kept[name].copy()
            for word in table.words:
                kept[name][word.offset : word.offset + ir.POINTER_BYTES] = 0
    return kept


def count_nodes(raw: RawCapture, in_calls: int) -> GraphNodes:
    """The nodes of a capture by kind."""
    kinds = [type(node) for node in raw.nodes]
    return GraphNodes(
        kernels=kinds.count(RawLaunch),
        memsets=kinds.count(RawMemset),
        copies=kinds.count(RawMemcpy),
        others=kinds.count(RawOther),
        in_calls=in_calls,
        skipped=raw.skipped,
    )


def require_torch() -> None:
    """Raise unless PyTorch is installed."""
    try:
        import torch  # noqa: F401
    except ImportError as problem:
        raise _no_package(problem, "torch") from None


def require_gpu() -> None:
    """Raise unless torch can use a GPU and cuda-bindings is installed."""
    try:
        import cuda.bindings.driver  # noqa: F401
        import torch
    except ImportError as problem:
        raise _no_package(problem, "cuda,torch") from None
    if not torch.cuda.is_available():
        raise TesseraError.of(
            "TSR6000",
            "tracing needs a GPU, and torch finds none on this machine",
            hint="`--dry-run` says what would be captured",
            exit_code=ExitCode.NO_DEVICE,
        )


def _no_package(problem: ImportError, extras: str) -> TesseraError:
    module = (problem.name or "").partition(".")[0]
    package = {"cuda": "cuda-python"}.get(module, module or "torch")
    is_missing = module and isinstance(problem, ModuleNotFoundError)
    return TesseraError.of(
        "TSR6000",
        f"tracing needs the package `{package}`",
        notes=() if is_missing else (f"it cannot be imported: {problem}",),
        hint=f"pip install 'tessera-compiler[{extras}]'",
        exit_code=ExitCode.NO_DEVICE,
    )


def write_trace(
    captured: Trace, path: str | os.PathLike[str], *, data: bool = True, suffix: str = ".npz"
) -> list[str]:
    """Write the trace with its contents and reference beside it, and return the names of the files.

    `suffix` is `.npz` or `.safetensors`, which is mapped into memory when it is read. If a file
    cannot be written, files that did not exist before the call are removed.
    """
    target, program = Path(path), captured.program
    files = files_beside(target, suffix)[: 2 if captured.reference else 1] if data else ()
    if files:
        program = replace(program, resident=files[0].name)
    check_output(str(target), Kind.TRACE)
    for file in files:
        check_output(str(file), Kind.CONTENTS)
    new = [file for file in files if not file.exists()]
    try:
        for file, content in zip(files, (captured.contents, captured.reference), strict=False):
            write_contents(file, _arrays(program, content), Kind.CONTENTS)
        write_file(str(target), print_program(program).encode(), Kind.TRACE)
    except BaseException:
        for file in new:
            file.unlink(missing_ok=True)
        raise
    return [str(target), *map(str, files)]


def files_beside(trace: Path, suffix: str) -> tuple[Path, Path]:
    """The files of contents and reference beside a trace."""
    stem = trace.with_suffix("") if trace.suffix == ".ptx" else trace
    return Path(f"{stem}{suffix}"), Path(f"{stem}.ref{suffix}")


def _arrays(program: ir.Program, contents: dict[str, Bytes]) -> Iterator[tuple[ir.Buffer, Bytes]]:
    for buffer in program.declared_buffers():
        if buffer.name in contents:
            yield buffer, contents[buffer.name]
