"""`tessc check`: prove that a plan does what its traces say, or name what breaks it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from tessera.cli.console import Messages, page_width, write_text
from tessera.cli.given import Typed, reads_options
from tessera.cli.options import data_option, data_root_option, form_option, json_option
from tessera.cli.progress import Progress
from tessera.diagnostics import ExitCode, Severity, TesseraError
from tessera.report.diagnostics import safe

if TYPE_CHECKING:
    from tessera.driver.analyze import AnalyzeOptions
    from tessera.driver.run.open_plan import CheckOptions


@click.command(short_help="Prove a plan, or report what is wrong.")
@click.argument("file", type=click.Path(allow_dash=True))
@json_option
@data_option(
    "Take the contents that decide accesses from this file, not from the one beside a plan; "
    "of one trace of several, if it is named. May be repeated."
)
@data_root_option
@form_option
@reads_options
def check(messages: Messages, given: Typed) -> int:
    """Check FILE: a plan (`.tsp`), or a trace or PTX file; `-` reads a trace or PTX.

    The traces inside a plan are analysed again, and its launch programs are proved against them by
    code that shares nothing with the planner: for every request and every order in which the
    devices may work, each step finds the bytes that one device would have given it. Nothing is
    run. The exit code is 0 if the plan is proved, 1 if not.

    Of a trace or a PTX file the errors and warnings are shown, as by `tessc analyze`.

    \b
    Examples:
      tessc check plan.tsp
      tessc check plan.tsp --json
      tessc check trace.ptx
    """
    from tessera.driver.analyze import AnalyzeOptions
    from tessera.driver.run.open_plan import CheckOptions, is_plan

    command = given.record(CheckCommand)
    try:
        if command.file != "-" and is_plan(command.file):
            return _check_plan(messages, command, given.record(CheckOptions))
        given.refuse_others("plans", CheckCommand, AnalyzeOptions)
        return _check_trace(messages, command, given.record(AnalyzeOptions))
    except TesseraError as failure:
        if command.as_json:
            from tessera.report.check import refusal_json

            write_text(refusal_json(command.file, failure.diagnostics))
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCommand:
    """The arguments of `tessc check`: what it reads, and how it shows its result."""

    file: str
    as_json: bool = False


def _check_plan(messages: Messages, command: CheckCommand, options: CheckOptions) -> int:
    from tessera.driver.run.open_plan import check_plan_file
    from tessera.report.check import check_json, check_text

    with Progress(messages, f"reading {command.file}") as shown:
        opened = check_plan_file(command.file, options, shown.hear)
    messages.show((*opened.diagnostics, *opened.stored_addresses()))
    text = check_json(opened) if command.as_json else check_text(opened, page_width())
    write_text(text)
    return 0


def _check_trace(messages: Messages, command: CheckCommand, options: AnalyzeOptions) -> int:
    from tessera.driver.analyze import analyze
    from tessera.report import analysis as report

    with Progress(messages, f"reading {command.file}") as shown:
        analysis = analyze(command.file, options, on_progress=shown.hear)
    messages.show(analysis.diagnostics)
    counts = {
        severity: sum(diagnostic.severity is severity for diagnostic in analysis.diagnostics)
        for severity in (Severity.ERROR, Severity.WARNING)
    }
    if command.as_json:
        text = report.report_json(analysis)
    else:
        errors, warnings = counts[Severity.ERROR], counts[Severity.WARNING]
        text = f"{safe(analysis.name)}: {errors} errors, {warnings} warnings\n"
    write_text(text)
    return ExitCode.ERRORS if counts[Severity.ERROR] else 0
