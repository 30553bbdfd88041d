"""`analyze`: from a trace or a PTX file to the accesses of its kernels and its kernel graph.

In: a path. Out: a `Report`. The stages, in order:

1. `read_program`: the text, as a `Program` (`frontend.trace`, `frontend.ptx`).
2. `analysis_manager`: which bytes every launch reads and writes (`passes.dependences`), with the
   contents of weights if they decide that.
3. `Dependences`: which step has to wait for which: the kernel graph.
4. `stored_addresses`, `layout_findings`: warnings of problems that the graph does not show.
5. `summarise_program`: parameters, registers and instructions of every kernel;
   `_select_kernels`: only the requested kernels.
6. `cuts_of`: how the requested steps can be cut into parts (`passes.division`).

`keep_graph` then writes the kernel graph to a `.tsg` file in the current folder, named as the
trace, for `tessc plan`. A failure to write it is only a warning (TSR1911), because the user asked
for the report.

Raises `TesseraError` if the file cannot be used; findings that are not errors are in the report.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from tessera.diagnostics import Diagnostic, TesseraError, error, warning
from tessera.driver.analyses import analysis_manager, layout_findings
from tessera.driver.load import read_program
from tessera.frontend.text.bulk import collector_paused
from tessera.frontend.text.readfile import STDIN_NAME, read_source, text_to_bytes
from tessera.ir.notebook import frame_of
from tessera.ir.notebook_pages import html_of
from tessera.ir.options import WrongOption
from tessera.ir.program.program import Program
from tessera.ir.program.step_names import meant_name, named_steps
from tessera.ir.progress import OnProgress
from tessera.output import Kind, check_output, is_regular, write_file
from tessera.passes.kernel_facts.summarise_program import (
    FunctionSummary,
    ProgramSummary,
    summarise_program,
)

if TYPE_CHECKING:
    import pandas

    from tessera.ir.graph.graph import KernelGraph
    from tessera.passes.division.legal_cuts import StepCuts


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeOptions:
    """How to analyse. A trace's file of contents may be a link to a file below `data_root`.

    `kernels` are patterns: the report then has only matching kernels and functions, and no graph.
    `why_not_cut` is a step's number, or a pattern of kernels and operators: the report then says
    how these steps can be cut.
    """

    kernels: tuple[str, ...] = ()
    why_not_cut: str | None = None
    data_root: str | None = None


def analyze(
    path: str | os.PathLike[str],
    options: AnalyzeOptions | None = None,
    *,
    data_root: str | None = None,
    on_progress: OnProgress | None = None,
) -> Report:
    """Summarise a trace or a PTX file; for a trace with steps also find its kernel graph.

    `data_root` is short for options that set nothing else. `on_progress` is called with the
    progress.
    """
    options = options or AnalyzeOptions(data_root=data_root)
    source = read_source(path)
    program, diagnostics = read_program(source)
    graph: KernelGraph | None = None
    cuts: tuple[StepCuts, ...] = ()
    chosen = _chosen_steps(program, options.why_not_cut)
    if any(program.work()):
        # Imported here because it imports NumPy, which would slow down `--help`.
        from tessera.passes.dependences.dependences import Dependences
        from tessera.passes.dependences.stored_addresses import stored_addresses

        with collector_paused():
            folder = os.path.dirname(source.name) or "."
            root = options.data_root
            manager = analysis_manager(program, folder, root, on_progress=on_progress)
            dependences = manager.get(Dependences)
            graph = dependences.graph
            diagnostics += (*dependences.diagnostics, *stored_addresses(program, graph))
            if chosen:
                from tessera.passes.division.legal_cuts import cuts_of

                cuts = cuts_of(manager, chosen)
    diagnostics += layout_findings(program)
    summary = summarise_program(program)
    if options.kernels:
        summary, graph = _select_kernels(summary, options.kernels), None
    return Report(source.name, program, summary, diagnostics, graph, cuts)


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `analyze` for one file."""

    name: str
    program: Program
    summary: ProgramSummary
    diagnostics: tuple[Diagnostic, ...] = ()
    graph: KernelGraph | None = None
    cuts: tuple[StepCuts, ...] = ()

    def _repr_html_(self) -> str:
        return html_of(self)

    def to_frame(self) -> pandas.DataFrame:
        """Steps as a pandas frame; for a file without steps, its kernels."""
        if self.graph is not None:
            return self.graph.to_frame()
        rows = (
            {
                "module": variant.module,
                "arch": variant.arch,
                "kernel": kernel.name,
                "parameters": len(kernel.parameters),
                "shared_bytes": kernel.shared_bytes,
                "instructions": kernel.instructions,
            }
            for variant in self.summary.variants
            for kernel in variant.summary.kernels
        )
        columns = ("module", "arch", "kernel", "parameters", "shared_bytes", "instructions")
        return frame_of(rows, columns)


def with_trace(report: Report) -> KernelGraph:
    """The graph of a report, with the path of its trace relative to the current folder."""
    assert report.graph is not None
    if report.name == STDIN_NAME:
        return report.graph
    from tessera.ir.graph.graph import TraceReference
    from tessera.ir.program.print_trace import program_digest

    try:
        # Links are resolved, because readers of a graph do not follow them.
        path = os.path.relpath(os.path.realpath(report.name), os.path.realpath("."))
    except ValueError:
        path = os.path.basename(report.name)
    digest = program_digest(report.program)
    path = path.replace(os.sep, "/")
    return replace(report.graph, trace=TraceReference(path=path, digest=digest))


def graph_file_of(path: str) -> str | None:
    """The path for the kernel graph of a trace; none for a pipe, which cannot be read again."""
    return f"{Path(path).stem}.tsg" if path != "-" and is_regular(path) else None


def keep_graph(report: Report, graph_file: str | None) -> tuple[Report, str | None]:
    """Write the kernel graph; returns the report, with a warning on failure, and the file."""
    if report.graph is None or graph_file is None:
        return report, None
    from tessera.ir.graph.print_graph import print_graph

    try:
        if not is_regular(graph_file):
            raise TesseraError(error("TSR1911", "it is no plain file"))
        check_output(graph_file, Kind.GRAPH, (report.name,))
        write_file(graph_file, text_to_bytes(print_graph(with_trace(report))), Kind.GRAPH)
    except TesseraError as failure:
        reason = str(failure.diagnostics[0].headline).removeprefix(f"cannot write `{graph_file}`: ")
        missed = warning(
            "TSR1911",
            f"the kernel graph was not written to `{graph_file}`: {reason}",
            hint="name the trace when you call `tessc plan`, or write the graph elsewhere with "
            "`--emit graph -o FILE`",
        )
        return replace(report, diagnostics=(*report.diagnostics, missed)), None
    return report, graph_file


def _chosen_steps(program: Program, wanted: str | None) -> tuple[int, ...]:
    """The steps of a number, or of a pattern of kernels and operators."""
    if wanted is None:
        return ()
    work = tuple(program.work())
    if not work:
        raise WrongOption(
            "there are no steps, so nothing can be cut: {why_not_cut}", f" `{wanted}`"
        )
    steps = named_steps(program, wanted)
    if not steps and wanted.removeprefix("#").isdecimal():
        raise WrongOption("{why_not_cut}", f" `{wanted}`: steps are #0 to #{len(work) - 1}")
    if not steps:
        near = meant_name(program, wanted)
        hint = f"; did you mean `{near}`?" if near else ""
        raise WrongOption("{why_not_cut}", f" `{wanted}`: no step has that name{hint}")
    return steps


def _select_kernels(summary: ProgramSummary, patterns: tuple[str, ...]) -> ProgramSummary:
    """The summary with only the kernels and functions whose names match."""
    _check_patterns(summary, patterns)

    def kept(functions: tuple[FunctionSummary, ...]) -> tuple[FunctionSummary, ...]:
        return tuple(f for f in functions if any(fnmatchcase(f.name, p) for p in patterns))

    variants = tuple(
        replace(
            variant,
            summary=replace(
                variant.summary,
                kernels=kept(variant.summary.kernels),
                functions=kept(variant.summary.functions),
            ),
        )
        for variant in summary.variants
    )
    return replace(summary, variants=variants)


def _check_patterns(summary: ProgramSummary, patterns: tuple[str, ...]) -> None:
    names = [
        function.name
        for variant in summary.variants
        for function in (*variant.summary.kernels, *variant.summary.functions)
    ]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = difflib.get_close_matches(pattern, names, n=1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise WrongOption("no kernel or function matches", f" `{pattern}`{hint}")
