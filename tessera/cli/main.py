"""The command line, `tessc`: arguments in, one call of the driver, output and an exit code out.

Data goes to standard output, everything for people to standard error. Heavy packages are imported
inside the commands that need them, so that `--help` and completion answer at once.
"""

from __future__ import annotations

import difflib
import errno
import gc
import shlex
import sys
import traceback
from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.shell_completion import CompletionItem, get_completion_class

from tessera import codes
from tessera.cli import check as cli_check
from tessera.cli import doctor as cli_doctor
from tessera.cli import gpus as cli_gpus
from tessera.cli import plan as cli_plan
from tessera.cli import profile as cli_profile
from tessera.cli import run as cli_run
from tessera.cli import trace as cli_trace
from tessera.cli.console import (
    Messages,
    ReaderGone,
    data_root_option,
    form_option,
    page_width,
    silence,
    write_data,
)
from tessera.diagnostics import Diagnostic, ExitCode, Severity, TesseraError, error, warning
from tessera.ir.version import __version__
from tessera.output import Kind, check_apart, check_output, is_regular, write_file
from tessera.report import diagnostics as render
from tessera.settings import read_settings

if TYPE_CHECKING:
    from tessera.driver.analyze import Report


CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


# --- commands ----------------------------------------------------------------------------------


@click.group(context_settings=CONTEXT)
@click.version_option(__version__, "-V", "--version", message="tessc %(version)s")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Colour in messages; auto is on at a terminal unless NO_COLOR is set.",
)
@click.pass_context
def cli(context: click.Context, color: str) -> None:
    """Compile traces of GPU kernel launches into plans that run them across different GPUs.

    A file is PTX, as nvcc, NVRTC, Triton and Numba write it, or a trace: PTX with `//!` records
    that list buffers and launches.

    \b
    Examples:
      tessc analyze kernel.ptx           what each kernel declares and does
      tessc analyze trace.ptx --json     the same for a trace, for a program
      tessc run trace.ptx                run it here, without a GPU
      tessc plan trace.ptx --gpus a100,l40s
      tessc run plan.tsp --verify        run the plan, and compare with one device
      tessc explain TSR1905              what a diagnostic code means
    """
    context.obj = Messages(color)


@cli.command(short_help="Summarise a PTX file or a trace.")
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option(
    "-k",
    "--kernel",
    "kernels",
    multiple=True,
    metavar="PATTERN",
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
@data_root_option
@form_option
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings too.")
@click.option(
    "-o",
    "--output",
    type=click.Path(allow_dash=True),
    default="-",
    metavar="PATH",
    help="Write there instead of standard output; all of it or nothing. Replaces only what it has "
    "written itself.",
)
@click.pass_obj
def analyze(
    messages: Messages,
    file: str,
    as_json: bool,
    kernels: tuple[str, ...],
    emit: str | None,
    dot: bool,
    why: str | None,
    data_root: str | None,
    form: str,
    strict: bool,
    output: str,
) -> int:
    """Summarise FILE, a PTX file or a trace; `-` reads standard input.

    Per kernel: parameters, registers, shared and local memory, instructions by class, calls.
    For a trace also its buffers and launches, the bytes that each step reads and writes, and
    which steps depend on which; this graph is also written to the current folder, as FILE's
    name with the ending .tsg, for `tessc plan`. The last line says so. Where it cannot be written,
    or a file that is no graph has that name, a warning says so instead.

    \b
    Examples:
      tessc analyze kernel.ptx
      tessc analyze trace.ptx --json -o report.json
      tessc analyze trace.ptx --why 3:9
      tessc analyze trace.ptx --emit html -o graph.html
      tessc analyze kernel.ptx --emit ptx | ptxas -arch=sm_80 -o /dev/null -
      nvcc -ptx -o /dev/stdout kernel.cu | tessc analyze -
    """
    from tessera.driver import analyze as driver
    from tessera.report import analysis as report

    emit = "dot" if dot and emit is None else emit
    if sum(map(bool, (emit, as_json, why))) > 1:
        raise click.UsageError("only one of `--emit`, `--dot`, `--json` and `--why` can be given")
    messages = replace(messages, form=form)
    kind = _KINDS.get(emit or "", Kind.REPORT)
    graph_file = None if emit or why or kernels else _graph_file(file)
    try:
        if output != "-":
            check_output(output, kind, (file,))
        if output != "-" and graph_file is not None:
            check_apart(
                output,
                graph_file,
                "this command writes its kernel graph there",
                "choose another name; `--emit graph -o FILE` writes the graph alone",
            )
        with messages.waiting(file):
            analysis = driver.analyze(file, data_root=data_root)
        if kernels:
            _check_patterns(kernels, report.function_names(analysis))
            analysis = report.only(analysis, kernels)
        if emit == "ptx":
            from tessera.report import emitted

            data = emitted.emit_ptx(analysis.program)
        elif emit or why:
            data = _graph_data(analysis, emit, why)
        else:
            analysis, written = _keep_graph(analysis, graph_file)
            width = page_width(output)
            data = _report_data(analysis, written, as_json, width, described=bool(kernels))
            if written is not None and output != "-":
                write_data(f"{_wrote(written)}\n".encode(errors="replace"), "-")
        write_data(data, output, kind)
    except TesseraError as failure:
        messages.show(failure.diagnostics)
        if as_json and output == "-":
            write_data(report.failure_json(file, failure.diagnostics).encode(), "-")
        return failure.exit_code
    messages.show(analysis.diagnostics)
    return _exit_code(analysis.diagnostics, strict)


_KINDS = {"ptx": Kind.PTX, "graph": Kind.GRAPH, "dot": Kind.DOT, "html": Kind.PAGE}


def _report_data(
    analysis: Report, written: str | None, as_json: bool, width: int | None, *, described: bool
) -> bytes:
    """The report with, as its last line, where the kernel graph is."""
    from tessera.report import analysis as report

    if as_json:
        return report.report_json(analysis, written).encode()
    text = report.report_text(analysis, width)
    if described:
        from tessera.report import emitted

        text += emitted.describe_kernels(analysis, width)
    if written is not None:
        text += f"\n{_wrote(written)}\n"
    return text.encode(errors="replace")


def _wrote(graph_file: str) -> str:
    return f"wrote {render.safe(graph_file)}, the kernel graph"


def _graph_file(file: str) -> str | None:
    """Where the kernel graph of a trace goes; none of a pipe, whose trace nobody finds again."""
    return f"{Path(file).stem}.tsg" if file != "-" and is_regular(file) else None


def _keep_graph(analysis: Report, graph_file: str | None) -> tuple[Report, str | None]:
    """Write the kernel graph, and say where; what keeps it from that is a warning."""
    if analysis.graph is None or graph_file is None:
        return analysis, None
    try:
        if not is_regular(graph_file):
            raise TesseraError(error("TSR1911", "it is no plain file"))
        check_output(graph_file, Kind.GRAPH, (analysis.name,))
        write_file(graph_file, _graph_data(analysis, "graph", None), Kind.GRAPH)
    except TesseraError as failure:
        reason = failure.diagnostics[0]
        why = reason.headline.removeprefix(f"cannot write `{graph_file}`: ")
        missed = warning(
            "TSR1912",
            f"the kernel graph was not written to `{graph_file}`: {why}",
            hint="name the trace when you call `tessc plan`, or write the graph elsewhere with "
            "`--emit graph -o FILE`",
        )
        return replace(analysis, diagnostics=(*analysis.diagnostics, missed)), None
    return analysis, graph_file


def _graph_data(analysis: Report, emit: str | None, why: str | None) -> bytes:
    """The kernel graph in a form, or why one step depends on another."""
    from tessera.driver import analyze as driver
    from tessera.report import emitted

    if analysis.graph is None:
        raise click.UsageError(f"`{render.safe(analysis.name)}` has no steps, so there is no graph")
    if emit:
        return emitted.emit_graph(driver.with_trace(analysis), emit, analysis.name)
    first, _, second = (why or "").partition(":")
    count = len(analysis.graph.nodes)
    steps = [int(part.lstrip("#")) for part in (first, second) if part.lstrip("#").isdecimal()]
    if len(steps) != 2 or max(steps) >= count:
        raise click.UsageError(
            render.safe(f"`--why {why}`: give two steps of 0 to {count - 1}, such as `--why 0:1`")
        )
    return emitted.explain_edge(analysis.graph, steps[0], steps[1])


def _check_patterns(patterns: Iterable[str], names: Iterable[str]) -> None:
    """A pattern that matches nothing is more likely a slip than a wish."""
    known = tuple(names)
    for pattern in patterns:
        if any(fnmatchcase(name, pattern) for name in known):
            continue
        near = difflib.get_close_matches(pattern, known, n=1)
        hint = f"; did you mean `{near[0]}`?" if near else ""
        raise click.UsageError(
            render.safe(f"no kernel or function matches `{pattern}`{hint}"),
            click.get_current_context(),
        )


def _exit_code(diagnostics: Iterable[Diagnostic], strict: bool) -> int:
    failing = (Severity.ERROR, Severity.WARNING) if strict else (Severity.ERROR,)
    return ExitCode.ERRORS if any(d.severity in failing for d in diagnostics) else 0


def _complete_code(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return [
        CompletionItem(entry.code, help=entry.title)
        for entry in codes.CODES
        if entry.code.startswith(incomplete.upper())
    ]


@cli.command(short_help="Say what a diagnostic code means.")
@click.argument("code", required=False, shell_complete=_complete_code)
def explain(code: str | None) -> int:
    """Say what a diagnostic CODE means and what to do; without CODE, list all codes.

    \b
    Examples:
      tessc explain TSR1905
      tessc explain 1905
      tessc explain
    """
    if code is None:
        from tessera.report.codes import codes_text

        write_data(codes_text(page_width()).encode(), "-")
        return 0
    entry = codes.find_code(code)
    if entry is not None:
        write_data(codes.explain(entry).encode(), "-")
        return 0
    near = ", ".join(f"`{near.code}` ({near.title})" for near in codes.near_codes(code))
    hint = f"did you mean {near}?" if near else "`tessc explain` lists all codes."
    raise click.UsageError(f"there is no code `{render.safe(code)}`; {hint}")


@cli.command(short_help="Print a shell completion script.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> int:
    """Print the script that makes SHELL complete commands, options, files and codes.

    \b
    Examples:
      tessc completion bash > ~/.local/share/bash-completion/completions/tessc
      tessc completion zsh > "${fpath[1]}/_tessc"
      tessc completion fish > ~/.config/fish/completions/tessc.fish
    """
    script = get_completion_class(shell)
    if script is None:
        raise click.UsageError(f"this version of click cannot complete for `{shell}`")
    write_data(script(cli, {}, "tessc", "_TESSC_COMPLETE").source().encode(), "-")
    return 0


cli.add_command(cli_run.run)
cli.add_command(cli_gpus.gpus)
cli.add_command(cli_plan.plan)
cli.add_command(cli_check.check)
cli.add_command(cli_trace.trace)
cli.add_command(cli_profile.profile)
cli.add_command(cli_doctor.doctor)


# --- the process -------------------------------------------------------------------------------


def main() -> NoReturn:
    """Run the command line and exit."""
    # Commands make very many records and hardly a cycle: looking for cycles less often is cheaper.
    gc.set_threshold(50_000)
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run a command line and give back the exit code; nothing escapes from here."""
    try:
        code = cli.main(arguments, prog_name="tessc", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as usage:
        usage.show()
        return usage.exit_code
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    except (ReaderGone, BrokenPipeError):
        silence(sys.stdout)
        return 0
    except OSError as problem:
        return _output_failed(problem)
    except MemoryError:
        hint = "close other programs, raise the limit of this shell (`ulimit -v`), or take less"
        Messages().show([error("TSR5020", "this machine is out of memory", hint=hint)])
        return ExitCode.FAULT
    except Exception as problem:
        return _internal_error(problem, arguments)


def _output_failed(problem: OSError) -> int:
    """Input errors are reported where they arise; what is left is standard output."""
    if problem.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG, errno.EBADF):
        return _internal_error(problem, sys.argv[1:])
    reason = (problem.strerror or str(problem)).lower()
    Messages().show([error("TSR1911", f"cannot write standard output: {reason}")])
    silence(sys.stdout)
    return ExitCode.ERRORS


def _internal_error(problem: Exception, arguments: list[str]) -> int:
    if read_settings().traceback:
        traceback.print_exception(problem)
    command = shlex.join(["tessc", *arguments])
    Messages().show(
        [
            error(
                "TSR9000",
                f"internal error: {type(problem).__name__}: {problem}",
                notes=(f"tessera {__version__}, command: `{command}`",),
                hint="keep the input file and run the command again with `TESSERA_TRACEBACK=1`; "
                "please report both",
            )
        ]
    )
    return ExitCode.INTERNAL
