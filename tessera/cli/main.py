"""The command line, `tessc`: arguments in, one call of the driver, output and an exit code out.

Data goes to standard output, everything for people to standard error. Heavy packages are imported
inside the commands that need them, so that `--help` and completion answer at once.
"""

from __future__ import annotations

import atexit
import errno
import gc
import io
import os
import shlex
import sys
import traceback
from contextlib import suppress
from typing import NoReturn

import click
from click.shell_completion import CompletionItem, get_completion_class

from tessera import codes
from tessera.cli import analyze as cli_analyze
from tessera.cli import bench as cli_bench
from tessera.cli import cache as cli_cache
from tessera.cli import check as cli_check
from tessera.cli import cluster as cli_cluster
from tessera.cli import demo as cli_demo
from tessera.cli import diff as cli_diff
from tessera.cli import doctor as cli_doctor
from tessera.cli import fleet as cli_fleet
from tessera.cli import gpus as cli_gpus
from tessera.cli import plan as cli_plan
from tessera.cli import profile as cli_profile
from tessera.cli import report as cli_report
from tessera.cli import run as cli_run
from tessera.cli import selftest as cli_selftest
from tessera.cli import serve as cli_serve
from tessera.cli import simulate as cli_simulate
from tessera.cli import trace as cli_trace
from tessera.cli.console import Messages, ReaderGone, page_width, silence, write_text
from tessera.diagnostics import ExitCode, error
from tessera.ir.version import __version__
from tessera.report import diagnostics as render
from tessera.settings import read_settings

CONTEXT: dict[str, object] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


SECTIONS = {
    "See it work": ("demo", "doctor", "explain"),
    "Look at kernels": ("analyze", "trace", "profile"),
    "Decide what runs where": ("plan", "fleet", "gpus", "simulate"),
    "Look at plans": ("report", "check", "diff"),
    "Run them": ("run", "serve", "bench", "selftest", "cluster"),
    "The shell": ("completion", "cache"),
}
"""The commands by what people want to do, as `tessc --help` lists them."""


class _Sections(click.Group):
    """A group that lists its commands by `SECTIONS`."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in SECTIONS.items():
            with formatter.section(title):
                rows = [(name, self.commands[name].get_short_help_str(100)) for name in names]
                formatter.write_dl(rows)


# --- commands ----------------------------------------------------------------------------------


@click.group(cls=_Sections, context_settings=CONTEXT)
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
      tessc demo                         see it work, without a GPU
      tessc analyze kernel.ptx           what each kernel declares and does
      tessc analyze trace.ptx --json     the same for a trace, for a program
      tessc run trace.ptx                run it here, without a GPU
      tessc plan trace.ptx --gpus a100,l40s
      tessc simulate plan.tsp            what its requests would take
      tessc fleet decode-*.ptx prefill.ptx --gpus 4xa100,4xl40s --tokens 1024:256
      tessc run plan.tsp --verify        run the plan, and compare with one device
      tessc serve plan.tsp               answer prompts over HTTP
      tessc report plan.tsp              a page to look at
      tessc explain TSR1905              what a diagnostic code means
    """
    context.obj = Messages(color)


cli.add_command(cli_analyze.analyze)


def _complete_code(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return [
        CompletionItem(entry.code, help=entry.title)
        for entry in codes.CODES
        if entry.code.startswith(incomplete.upper())
    ]


@cli.command(short_help="Explain a diagnostic code.")
@click.argument("code", required=False, shell_complete=_complete_code)
def explain(code: str | None) -> int:
    """Explain what a diagnostic CODE means and what to do; without CODE, list all codes.

    \b
    Examples:
      tessc explain TSR1905
      tessc explain 1905
      tessc explain
    """
    if code is None:
        from tessera.report.codes import codes_text

        write_text(codes_text(page_width()))
        return 0
    entry = codes.find_code(code)
    if entry is not None:
        write_text(codes.explain(entry))
        return 0
    near = ", ".join(f"`{near.code}` ({near.title})" for near in codes.near_codes(code))
    hint = f"did you mean {near}?" if near else "`tessc explain` lists all codes."
    raise click.UsageError(f"there is no code `{render.safe(code)}`; {hint}")


@cli.command(short_help="Print a shell completion script.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> int:
    """Print the script that makes SHELL complete commands, options, files, codes, GPUs and steps.

    \b
    Examples:
      tessc completion bash > ~/.local/share/bash-completion/completions/tessc
      tessc completion zsh > "${fpath[1]}/_tessc"
      tessc completion fish > ~/.config/fish/completions/tessc.fish
    """
    script = get_completion_class(shell)
    if script is None:
        raise click.UsageError(f"this version of click cannot complete for `{shell}`")
    write_text(script(cli, {}, "tessc", "_TESSC_COMPLETE").source())
    return 0


cli.add_command(cli_run.run)
cli.add_command(cli_gpus.gpus)
cli.add_command(cli_plan.plan)
cli.add_command(cli_simulate.simulate)
cli.add_command(cli_fleet.fleet)
cli.add_command(cli_serve.serve)
cli.add_command(cli_bench.bench)
cli.add_command(cli_report.report)
cli.add_command(cli_check.check)
cli.add_command(cli_diff.diff)
cli.add_command(cli_trace.trace)
cli.add_command(cli_profile.profile)
cli.add_command(cli_doctor.doctor)
cli.add_command(cli_cluster.cluster)
cli.add_command(cli_demo.demo)
cli.add_command(cli_cache.cache)
cli.add_command(cli_selftest.selftest)


# --- the process -------------------------------------------------------------------------------


def main() -> NoReturn:
    """Run the command line and exit."""
    # Commands make very many records and few cycles: searching for cycles less often is cheaper.
    gc.set_threshold(200_000, 20)
    atexit.register(_end_quietly)  # the first registered function runs last
    code, stopped = _run(sys.argv[1:])
    if stopped is not None:
        # After Ctrl-C the process ends at once: freeing a million records one by one takes seconds.
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(code)
    _let_go()
    sys.exit(code)


def _end_quietly() -> None:
    """Silence standard error at exit: Triton's library reports memory it has not freed."""
    if "triton" in sys.modules and not read_settings().traceback:
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


_BUFFERED = frozenset((io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom))


def _let_go() -> None:
    """End the process without a garbage collection.

    The memory is released as a whole. Files that a model file has written and not closed are
    flushed: in a cycle their data would be lost.
    """
    for thing in gc.get_objects():
        if type(thing) in _BUFFERED:
            with suppress(OSError, ValueError):
                thing.flush()
    gc.disable()
    gc.freeze()
    shown, is_ending = sys.unraisablehook, sys.is_finalizing

    def show(problem: sys.UnraisableHookArgs) -> None:
        # Objects that outlive the modules whose functions their ends call: locks of files, say.
        if not is_ending():
            shown(problem)

    sys.unraisablehook = show


def run(arguments: list[str]) -> int:
    """Run a command line and return the exit code; no exception escapes from here."""
    return _run(arguments)[0]


def _run(arguments: list[str]) -> tuple[int, BaseException | None]:
    """The exit code, and what interrupted the command, with all that it holds."""
    try:
        return _run_command(arguments), None
    except (click.Abort, KeyboardInterrupt) as stopped:
        return ExitCode.INTERRUPTED, stopped


def _run_command(arguments: list[str]) -> int:
    try:
        code = cli.main(arguments, prog_name="tessc", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as usage:
        usage.show()
        return usage.exit_code
    except (click.Abort, KeyboardInterrupt):
        raise
    except (ReaderGone, BrokenPipeError):
        silence(sys.stdout)
        return 0
    except OSError as problem:
        return _output_failed(problem)
    except MemoryError:
        hint = "close other programs, raise the limit of this shell (`ulimit -v`), or take less"
        Messages().show([error("TSR5020", "this machine is out of memory", hint=hint)])
        return ExitCode.FAULT
    except Exception as problem:  # ours: a user sees no traceback
        return _internal_error(problem, arguments)


def _output_failed(problem: OSError) -> int:
    """Report a failed write to standard output: input errors are reported where they arise."""
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
