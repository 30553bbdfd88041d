"""`tessc analyze`: what kernels do, and which step of a trace needs which."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from tessera.cli.complete import complete_kernel
from tessera.cli.console import Messages, page_width, write_data, write_text
from tessera.cli.given import Typed, reads_options
from tessera.cli.options import data_root_option, form_option, json_option, output_option
from tessera.cli.progress import Progress
from tessera.diagnostics import Diagnostic, ExitCode, Severity, TesseraError
from tessera.ir.options import WrongOption
from tessera.output import Kind, check_apart, check_output
from tessera.report.diagnostics import safe

if TYPE_CHECKING:
    from tessera.driver.analyze import AnalyzeOptions, Report
    from tessera.ir.graph.graph import KernelGraph

_KINDS = {"ptx": Kind.PTX, "graph": Kind.GRAPH, "dot": Kind.DOT, "html": Kind.PAGE}


@click.command(short_help="Summarise a PTX file or a trace.")
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("--full", is_flag=True, help="Print every step, edge and kernel.")
@json_option
@click.option(
    "-k",
    "--kernel",
    "kernels",
    multiple=True,
    metavar="PATTERN",
    shell_complete=complete_kernel,
    help="Only kernels and functions of that name, with their accesses in terms of parameters; "
    "`*` and `?` match. May be repeated.",
)
@click.option(
    "--emit",
    type=click.Choice(["ptx", "graph", "dot", "html"]),
    help="Print PTX, or the kernel graph (as .tsg, for Graphviz, as a page), not the report.",
)
@click.option("--dot", is_flag=True, help="The same as `--emit dot`.")
@click.option(
    "--why",
    metavar="A:B",
    help="Explain why step B depends on step A, by numbers as the report shows them.",
)
@click.option(
    "--why-not-cut",
    metavar="STEP",
    help="Say how steps can be cut into parts, and why not otherwise: a step's number, or a "
    "kernel or an operator; `*` and `?` match.",
)
@click.option(
    "--graph/--no-graph",
    default=True,
    help="Write the kernel graph of a trace to the current folder, for `tessc plan`.",
    show_default=True,
)
@data_root_option
@form_option
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings too.")
@output_option(
    "Write to this file instead of standard output, whole or not at all. Replaces only files "
    "that it has written itself.",
    dash=True,
)
@reads_options
def analyze(messages: Messages, given: Typed) -> int:
    """Summarise FILE, a PTX file or a trace; `-` reads standard input.

    Prints an overview of one screen: families of kernels, the bytes they touch, what is pinned,
    what goes by addresses from memory, warnings by kind. `--full` prints the rest: per kernel
    parameters, registers, shared and local memory, instructions by class, calls; of a trace also
    the bytes that each step reads and writes, and which steps depend on which.

    This graph is also written to the current folder, as FILE's name with the ending .tsg, for
    `tessc plan`. The last line says so. Where it cannot be written, or a file that is no graph
    has that name, a warning says so instead. `--no-graph` leaves it out.

    \b
    Examples:
      tessc analyze trace.ptx
      tessc analyze trace.ptx --full --no-graph
      tessc analyze trace.ptx --json -o report.json
      tessc analyze trace.ptx --why 3:9
      tessc analyze trace.ptx --why-not-cut linear
      tessc analyze trace.ptx --emit html -o graph.html
      tessc analyze kernel.ptx --emit ptx | ptxas -arch=sm_80 -o /dev/null -
      nvcc -ptx -o /dev/stdout kernel.cu | tessc analyze -
    """
    from tessera.driver.analyze import AnalyzeOptions, keep_graph
    from tessera.driver.analyze import analyze as find_report

    command, options = given.record(AnalyzeCommand), given.record(AnalyzeOptions)
    try:
        command.check_cuts(options)
        without = options.kernels or options.why_not_cut
        graph_file = None if without else command.graph_file()
        command.check_places(graph_file)
        with Progress(messages, f"reading {command.file}") as shown:
            report = find_report(command.file, options, on_progress=shown.hear)
        analysed = report
        report, written = keep_graph(report, graph_file)
        if options.why_not_cut is not None:
            _write_cuts(command, report)
        else:
            _write(command, report, written, described=bool(options.kernels))
    except TesseraError as failure:
        if command.as_json and command.output == "-":
            from tessera.report.analysis import failure_json

            write_text(failure_json(command.file, failure.diagnostics))
        raise
    _show_findings(messages, command, report, () if options.kernels else analysed.diagnostics)
    return _exit_code(report.diagnostics, command.strict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeCommand:
    """The arguments of `tessc analyze`: what it reads, what it shows, and where."""

    file: str
    full: bool = False
    graph: bool = True
    as_json: bool = False
    emit: str | None = None
    dot: bool = False
    why: str | None = None
    strict: bool = False
    output: str = "-"

    def __post_init__(self) -> None:
        if sum(map(bool, (self.form, self.as_json, self.why))) > 1:
            raise WrongOption("only one of {emit}, {dot}, {as_json} and {why} can be given")
        if self.full and (self.form or self.why or self.as_json):
            raise WrongOption("{full} is of the report as text only")

    def check_cuts(self, options: AnalyzeOptions) -> None:
        """Refuse a question about cuts together with another question."""
        others = self.form or self.why or self.full or options.kernels
        if options.why_not_cut is not None and others:
            raise WrongOption("{why_not_cut} goes with {as_json} alone")

    @property
    def form(self) -> str | None:
        """The form to print instead of the report."""
        return "dot" if self.dot and self.emit is None else self.emit

    @property
    def is_overview(self) -> bool:
        """Whether standard output gets one screen instead of the whole report."""
        rest = self.full or self.as_json or self.form or self.why
        return not rest and self.output == "-"

    @property
    def kind(self) -> Kind:
        """The kind of file that is written."""
        return _KINDS.get(self.form or "", Kind.REPORT)

    def graph_file(self) -> str | None:
        """The path of the kernel graph written beside a report."""
        from tessera.driver.analyze import graph_file_of

        return graph_file_of(self.file) if self.graph and not (self.form or self.why) else None

    def check_places(self, graph_file: str | None) -> None:
        """Refuse outputs that cannot be written, that replace an input, or that share a path."""
        if self.output == "-":
            return
        check_output(self.output, self.kind, (self.file,))
        if graph_file is not None:
            check_apart(
                self.output,
                graph_file,
                "this command writes its kernel graph there",
                "choose another name; `--emit graph -o FILE` writes the graph alone",
            )


def _write_cuts(command: AnalyzeCommand, report: Report) -> None:
    """Write how steps can be cut."""
    from tessera.report.cuts import cuts_json, cuts_text

    text = cuts_json(report) if command.as_json else cuts_text(report)
    write_data(text.encode(errors="replace"), command.output, command.kind)


def _write(
    command: AnalyzeCommand, report: Report, graph_file: str | None, described: bool
) -> None:
    """Write the report, or the form requested instead."""
    if command.form == "ptx":
        from tessera.report.analysis import emit_ptx

        data = emit_ptx(report.program)
    elif command.form or command.why:
        data = _graph_data(report, command)
    else:
        width = page_width(command.output)
        data = _report_data(report, command, graph_file, width, described=described)
        if graph_file is not None and command.output != "-":
            write_text(f"{_wrote(graph_file)}\n")
    write_data(data, command.output, command.kind)


def _show_findings(
    messages: Messages, command: AnalyzeCommand, report: Report, counted: tuple[Diagnostic, ...]
) -> None:
    """Show all findings, or those that the overview on the terminal does not count."""
    if command.is_overview and messages.form == "full" and not command.strict:
        from tessera.report.overview import not_counted

        messages.show(not_counted(report, counted))
    else:
        messages.show(report.diagnostics)


def _report_data(
    report: Report,
    command: AnalyzeCommand,
    written: str | None,
    width: int | None,
    *,
    described: bool,
) -> bytes:
    """The report, with the path of the kernel graph as its last line."""
    from tessera.report import analysis as texts

    if command.as_json:
        return texts.report_json(report, written).encode()
    if command.full or described:
        text = texts.report_text(report, width)
    else:
        from tessera.report.overview import overview_text

        text = overview_text(report, width)
    if described:
        text += texts.describe_kernels(report, width)
    if written is not None:
        text += f"{_wrote(written)}\n"
    return text.encode(errors="replace")


def _wrote(graph_file: str) -> str:
    return f"wrote {safe(graph_file)}, the kernel graph"


def _graph_data(report: Report, command: AnalyzeCommand) -> bytes:
    """The kernel graph in a form, or why one step depends on another."""
    from tessera.driver.analyze import with_trace
    from tessera.frontend.text.readfile import text_to_bytes
    from tessera.report.graph import why_text

    if report.graph is None:
        raise click.UsageError(f"`{safe(report.name)}` has no steps, so there is no graph")
    if command.form:
        return _graph_form(with_trace(report), command.form, report)
    first, _, second = (command.why or "").partition(":")
    count = len(report.graph.nodes)
    steps = [int(part.lstrip("#")) for part in (first, second) if part.lstrip("#").isdecimal()]
    if len(steps) != 2 or max(steps) >= count:
        wanted = f"`--why {command.why}`: give two steps of 0 to {count - 1}, such as `--why 0:1`"
        raise click.UsageError(safe(wanted))
    return text_to_bytes(why_text(report.graph, steps[0], steps[1]))


def _graph_form(graph: KernelGraph, form: str, report: Report) -> bytes:
    """The kernel graph as `.tsg` text, for Graphviz, or as a page."""
    if form == "html":
        from tessera.report.page.build import graph_page
        from tessera.report.page.render import page_html

        return page_html(graph_page(graph, report.name, report.program)).encode()
    from tessera.frontend.text.readfile import text_to_bytes
    from tessera.ir.graph.print_dot import print_dot
    from tessera.ir.graph.print_graph import print_graph

    return text_to_bytes(print_dot(graph) if form == "dot" else print_graph(graph))


def _exit_code(diagnostics: Iterable[Diagnostic], strict: bool) -> int:
    failing = (Severity.ERROR, Severity.WARNING) if strict else (Severity.ERROR,)
    return ExitCode.ERRORS if any(d.severity in failing for d in diagnostics) else 0
