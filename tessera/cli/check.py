"""`tessc check`: prove that a plan does what its traces say, or name what breaks it."""

from __future__ import annotations

from dataclasses import replace

import click

from tessera.cli.console import Messages, data_root_option, form_option, write_data
from tessera.diagnostics import Severity, TesseraError
from tessera.report.diagnostics import safe


@click.command(short_help="Prove a plan right, or say what is wrong.")
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option(
    "--data",
    multiple=True,
    type=click.Path(),
    metavar="[TRACE=]PATH",
    help="Take the contents that decide accesses from this file, not from the one beside a plan; "
    "of one trace of several, if it is named. May be repeated.",
)
@data_root_option
@form_option
@click.pass_obj
def check(
    messages: Messages,
    file: str,
    as_json: bool,
    data: tuple[str, ...],
    data_root: str | None,
    form: str,
) -> int:
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
    from tessera.driver.run.open_plan import is_plan

    messages = replace(messages, form=form)
    try:
        if file != "-" and is_plan(file):
            return _check_plan(messages, file, as_json, data, data_root)
        if data:
            raise click.UsageError("`--data` is for plans only", click.get_current_context())
        return _check_trace(messages, file, as_json, data_root)
    except TesseraError as failure:
        messages.show(failure.diagnostics)
        if as_json:
            from tessera.report.check import refusal_json

            write_data(refusal_json(file, failure.diagnostics).encode(), "-")
        return failure.exit_code


def _check_plan(
    messages: Messages, file: str, as_json: bool, data: tuple[str, ...], data_root: str | None
) -> int:
    from tessera.driver.run.open_plan import open_plan
    from tessera.report.check import check_json, check_text

    with messages.waiting(file):
        opened = open_plan(file, data=data, data_root=data_root)
    messages.show((*opened.diagnostics, *opened.stored_addresses()))
    text = check_json(opened) if as_json else check_text(opened)
    write_data(text.encode(errors="replace"), "-")
    return 0


def _check_trace(messages: Messages, file: str, as_json: bool, data_root: str | None) -> int:
    from tessera.driver import analyze as driver
    from tessera.report import analysis as report

    with messages.waiting(file):
        analysis = driver.analyze(file, data_root=data_root)
    messages.show(analysis.diagnostics)
    counts = {
        severity: sum(diagnostic.severity is severity for diagnostic in analysis.diagnostics)
        for severity in (Severity.ERROR, Severity.WARNING)
    }
    if as_json:
        text = report.report_json(analysis)
    else:
        errors, warnings = counts[Severity.ERROR], counts[Severity.WARNING]
        text = f"{safe(analysis.name)}: {errors} errors, {warnings} warnings\n"
    write_data(text.encode(errors="replace"), "-")
    return 1 if counts[Severity.ERROR] else 0
