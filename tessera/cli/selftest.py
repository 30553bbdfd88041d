"""`tessc selftest`: try the GPUs of this machine, and write one file to send in."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import click

from tessera.cli.console import Messages, page_width, silence, write_text
from tessera.cli.given import Typed, reads_options
from tessera.cli.options import finite, form_option, output_option, seconds_option
from tessera.cli.progress import Progress
from tessera.cli.run import terminable
from tessera.diagnostics import ExitCode, TesseraError, error
from tessera.ir.options import WrongOption
from tessera.ir.progress import StageProgress
from tessera.output import Kind, check_output
from tessera.report.diagnostics import safe


@click.command(short_help="Try the GPUs of this machine (about ten minutes).")
@click.option(
    "--backend",
    type=click.Choice(["cuda", "cpu"]),
    default="cuda",
    show_default=True,
    help="GPUs, or processes of the CPU backend as a rehearsal.",
)
@click.option(
    "--devices",
    "--gpus",
    "devices",
    metavar="LIST",
    help="What to try: GPUs and slices, such as `a100,l40s` or `h200:84sm,h200:48sm`; all GPUs "
    "that are here unless given.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    callback=finite,
    help="What all parts may take together.",
)
@click.option(
    "--models",
    metavar="LIST",
    help="Which models to try: some of prefill, decode, towers; all unless given.",
)
@click.option(
    "--size",
    type=click.Choice(["usual", "small"]),
    help="How large they are; usual on GPUs, small on the CPU.",
)
@click.option(
    "--placements",
    type=click.IntRange(1, 10_000),
    default=200,
    show_default=True,
    help="Random placements to compare, at most.",
)
@click.option(
    "--skip",
    multiple=True,
    type=click.Choice(["links", "profile", "bytes", "plans"]),
    help="Leave a part out. May be repeated.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Seed of all that is random.",
)
@seconds_option(
    "--time-limit", "limit_s", "Give up when no device has worked for this long; 60 unless given."
)
@output_option("Where to write what was found.", "selftest.json")
@form_option
@reads_options
def selftest(messages: Messages, given: Typed) -> int:
    """Try the GPUs of this machine, and write one file to send in.

    Copies and exchanges between all devices are timed, the steps of small models that come with
    it are profiled, random placements are compared with one device to the byte, and a few plans are
    measured beside what is predicted. The file has versions, names of GPUs and what was measured,
    but no host name and no path. It is written after every part: an interrupted test goes on with
    the same command. The exit code is 5 if bytes differ, 6 if anything else failed.

    \b
    Examples:
      tessc selftest
      tessc selftest --devices h200:84sm,h200:48sm -o slices.json
      tessc selftest --backend cpu --minutes 2
    """
    from tessera.driver.selftest.options import SelftestOptions
    from tessera.driver.selftest.run_selftest import run_selftest
    from tessera.report.selftest import selftest_text

    command = given.record(SelftestCommand)
    options = given.having(models=command.models_listed()).record(SelftestOptions)
    check_output(command.output, Kind.SELFTEST)
    begun: list[str] = []
    with terminable(), Progress(messages, "looking at the devices") as shown:

        def hear(told: StageProgress) -> None:
            if told.stage not in begun:
                begun.append(told.stage)
                _tell(f"self-test: {told.stage}")
            shown.hear(told)

        try:
            document = run_selftest(command.output, options, hear)
        except KeyboardInterrupt:
            raise _interrupted(command.output) from None
    write_text(selftest_text(document, page_width()))
    return document.exit_code()


@dataclass(frozen=True, slots=True, kw_only=True)
class SelftestCommand:
    """Which models `tessc selftest` tries, and where it writes to."""

    output: str
    models: str | None = None

    def __post_init__(self) -> None:
        if self.output == "-":
            raise WrongOption("{output} names a file: the report is on standard output")

    def models_listed(self) -> tuple[str, ...]:
        """The named models; empty means all."""
        names = () if self.models is None else self.models.split(",")
        return tuple(name.strip() for name in names)


def _tell(text: str) -> None:
    """Print a line of progress; a closed terminal is no error."""
    try:
        click.echo(text, err=True)
    except OSError:
        silence(sys.stderr)


def _interrupted(path: str) -> TesseraError:
    stopped = error(
        "TSR5056",
        "the self-test was interrupted",
        notes=(f"`{safe(path)}` has what was done",),
        hint="the same command goes on",
    )
    return TesseraError(stopped, exit_code=ExitCode.INTERRUPTED)
