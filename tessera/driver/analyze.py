"""The pipelines behind the commands: straight lines from a file to a result.

`load` reads a trace or a PTX file; `analyze` summarises it; `run` runs it on the CPU backend. All
raise `TesseraError` where the input cannot be used, and return findings that are no errors with
the result.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tessera.diagnostics import Diagnostic, ExitCode, Source, TesseraError, error
from tessera.frontend.cache.module_cache import ModuleCache
from tessera.frontend.ptx.read_ptx import load_module, parse_source
from tessera.frontend.text.bulk import collector_paused
from tessera.frontend.text.readfile import STDIN_NAME, read_source
from tessera.frontend.text.sniff import sniff_format
from tessera.frontend.trace.read_trace import examine_trace
from tessera.ir.program.program import (
    Buffer,
    BufferId,
    KnownContents,
    Launch,
    LibraryCall,
    Memcpy,
    Memset,
    Program,
    Role,
)
from tessera.ir.ptx import syntax as ptx
from tessera.passes.kernel_facts.summarise_program import ProgramSummary, summarise_program
from tessera.settings import read_settings

if TYPE_CHECKING:
    from tessera.backend.ptx_executor.run import RunResult
    from tessera.frontend.contents.open_contents import Bytes, Contents
    from tessera.ir.graph.graph import KernelGraph
    from tessera.passes.base import AnalysisManager

WORK = (Launch, Memset, Memcpy, LibraryCall)
# A request starts with these; outputs and temporaries start out poisoned, unless the file has them.
_FILLED = (Role.WEIGHT, Role.INPUT, Role.STATE)


@dataclass(frozen=True, slots=True)
class Report:
    """What `analyze` finds out about one file."""

    name: str
    program: Program
    summary: ProgramSummary
    diagnostics: tuple[Diagnostic, ...] = ()
    graph: KernelGraph | None = None


def load(path: str | os.PathLike[str]) -> Program:
    """Read a trace or a PTX file; `-` is standard input."""
    return read_program(read_source(path))[0]


def analyze(path: str | os.PathLike[str], *, data_root: str | None = None) -> Report:
    """Summarise a trace or a PTX file; for a trace with steps also find its kernel graph.

    The trace's file of contents may be a link that leads to a file below `data_root`.
    """
    source = read_source(path)
    program, diagnostics = read_program(source)
    graph: KernelGraph | None = None
    if any(isinstance(step, WORK) for step in program.steps):
        # Imported here because it needs NumPy, which `--help` shall not wait for.
        from tessera.passes.dependences.dependences import Dependences
        from tessera.passes.dependences.stored_addresses import stored_addresses

        with collector_paused():
            folder = os.path.dirname(source.name) or "."
            manager = analysis_manager(program, folder, data_root)
            found = manager.get(Dependences)
            stored = stored_addresses(program, found.graph)
        graph, diagnostics = found.graph, (*diagnostics, *found.diagnostics, *stored)
    diagnostics = (*diagnostics, *_layout_warnings(program))
    return Report(source.name, program, summarise_program(program), diagnostics, graph)


def _layout_warnings(program: Program) -> tuple[Diagnostic, ...]:
    """Kernels that depend on how fragments are laid out; most programs have no fragments."""
    texts = [variant.text for module in program.modules for variant in module.variants]
    if all(text and "wmma" not in text for text in texts):
        return ()
    from tessera.passes.kernel_facts.fragment_layout import layout_warnings

    return tuple(layout_warnings(program))


def analysis_manager(
    program: Program,
    folder: str,
    data_root: str | None = None,
    open_data: Callable[[], Contents] | None = None,
) -> AnalysisManager:
    """The analyses of a program; contents of weights in `folder` count where they decide accesses.

    They may be in a file below `data_root` that a link there leads to, or in what `open_data`
    opens. A file of contents that is missing or cannot be used is left to whoever needs it.
    """
    from tessera.passes.dependences.access_regions import AccessRegions

    manager = _remembering(program)
    tried: set[int] = set()
    opener = open_data or partial(_open_contents, program, folder, data_root)
    while program.resident is not None or open_data is not None:
        wanted = [b for b in manager.get(AccessRegions).wanted if b not in tried]
        tried.update(wanted)
        found = _look_up(program, opener, wanted) if wanted else ()
        if not found:
            break
        program = replace(program, known=(*program.known, *found))
        manager = _remembering(program)
    return manager


def _open_contents(program: Program, folder: str, data_root: str | None) -> Contents:
    from tessera.frontend.contents.open_contents import open_contents

    return open_contents(program, folder, root=data_root)


def _remembering(program: Program) -> AnalysisManager:
    """The analyses of a program, with what the cache holds of its kernels."""
    from tessera.frontend.cache.analysis_cache import AnalysisCache
    from tessera.passes.base import AnalysisManager
    from tessera.passes.dependences.access_regions import AccessRegions

    settings = read_settings()
    folder = settings.cache_dir if settings.use_cache else None
    store = None if folder is None else AnalysisCache(folder)
    manager = AnalysisManager(program)
    manager.provide(AccessRegions.remembering(program, store))
    return manager


def _look_up(
    program: Program, open_data: Callable[[], Contents], wanted: list[BufferId]
) -> tuple[KnownContents, ...]:
    from tessera.frontend.contents.known_contents import known_contents

    try:
        with open_data() as contents:
            return tuple(known_contents(program, contents, wanted))
    except TesseraError:
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How to run a trace on one device."""

    arch: str | None = None
    seed: int = 0
    max_steps: int | None = None
    data: str | None = None
    data_root: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """A trace that ran to its end: the bytes it leaves, and what each launch did."""

    name: str
    program: Program
    result: RunResult
    seconds: float
    diagnostics: tuple[Diagnostic, ...] = ()

    def kept(self) -> Iterator[tuple[Buffer, Bytes]]:
        """The outputs and states of the trace with their bytes, in file order."""
        for buffer in self.program.buffers:
            if buffer.name in self.result.buffers:
                yield buffer, self.result.buffers[buffer.name]


def run(
    path: str | os.PathLike[str],
    options: RunOptions | None = None,
    on_step: Callable[[int, int], None] | None = None,
) -> RunReport:
    """Run one trace on one CPU device; `on_step` hears of steps done and steps in all."""
    from tessera.backend.ptx_executor.launch_state import DEFAULT_STEPS
    from tessera.backend.ptx_executor.run import run_program

    options = options or RunOptions()
    source = read_source(path)
    program, diagnostics = read_program(source)
    _check_runnable(program, source, options.arch)
    diagnostics = (*diagnostics, *_layout_warnings(program))
    started = time.perf_counter()
    try:
        with _open_data(program, source, options) as contents:
            given = {
                buffer.name: contents.read(buffer)
                for buffer in program.buffers
                if buffer.role in _FILLED or contents.is_given(buffer)
            }
        result = run_program(
            program,
            given,
            arch=options.arch,
            on_step=on_step,
            max_steps=DEFAULT_STEPS if options.max_steps is None else options.max_steps,
        )
    except MemoryError:
        found = error("TSR5020", "the machine has no memory for the buffers of the trace")
        raise TesseraError(found, exit_code=ExitCode.FAULT) from None
    seconds = time.perf_counter() - started
    return RunReport(
        name=source.name, program=program, result=result, seconds=seconds, diagnostics=diagnostics
    )


def write_outputs(report: RunReport, path: str | os.PathLike[str]) -> None:
    """Write outputs and states by buffer name, to a `.npz` or `.safetensors` file."""
    from tessera.frontend.contents.write import write_contents

    write_contents(path, report.kept())


def _open_data(program: Program, source: Source, options: RunOptions) -> Contents:
    from tessera.frontend.contents.open_contents import open_contents, open_contents_file

    if options.data is not None:
        return open_contents_file(program, options.data, seed=options.seed, root=options.data_root)
    folder = os.path.dirname(source.name) or "."
    return open_contents(program, folder, seed=options.seed, root=options.data_root)


def _check_runnable(program: Program, source: Source, arch: str | None) -> None:
    if not any(isinstance(step, WORK) for step in program.steps):
        raise TesseraError(
            error(
                "TSR5040",
                f"there is nothing to run in `{source.name}`",
                notes=("it has no launch, memset or memcpy record",),
                hint="a trace is PTX with `//!` records; `tessc analyze` summarises plain PTX",
            )
        )
    known = sorted({v.arch for module in program.modules for v in module.variants})
    if arch is not None and arch not in known:
        raise TesseraError(
            error(
                "TSR5041",
                f"no module of `{source.name}` has a variant for `{arch}`",
                hint=f"choose one of: {', '.join(known)}",
            )
        )


def with_trace(report: Report) -> KernelGraph:
    """The graph of a report, which then names its trace as it is seen from the current folder."""
    assert report.graph is not None
    if report.name == STDIN_NAME:
        return report.graph
    from tessera.ir.graph.graph import TraceReference
    from tessera.ir.program.print_trace import print_program
    from tessera.ir.text_digest import text_digest

    try:
        # Where links lead to: whoever reads a graph does not follow them.
        path = os.path.relpath(os.path.realpath(report.name), os.path.realpath("."))
    except ValueError:
        path = os.path.basename(report.name)
    digest = text_digest(print_program(report.program))
    path = path.replace(os.sep, "/")
    return replace(report.graph, trace=TraceReference(path=path, digest=digest))


def read_program(source: Source) -> tuple[Program, tuple[Diagnostic, ...]]:
    """The program in a text, with what is odd about it but no error."""
    if found := sniff_format(source):
        raise TesseraError(found)
    settings = read_settings()
    cache = ModuleCache(settings.cache_dir) if settings.use_cache and settings.cache_dir else None
    warnings: list[Diagnostic] = []

    def parse(part: Source) -> ptx.Module:
        module, found = load_module(part, cache)
        warnings.extend(found)
        if settings.verify:
            _check_printing(module)
        return module

    reading = examine_trace(source, parse)
    if reading.program is None:
        raise TesseraError((*reading.diagnostics, *warnings))
    return reading.program, (*reading.diagnostics, *warnings)


def _check_printing(module: ptx.Module) -> None:
    """Under `TESSERA_VERIFY`: the law of every level, that printing loses nothing."""
    from tessera.ir.ptx.print_ptx import print_module

    name = "<printed>" if module.source is None else f"<printed {module.source.name}>"
    if parse_source(Source(name, print_module(module))) != module:
        raise RuntimeError(f"reading {name} does not give the module that was printed")
