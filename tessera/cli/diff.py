"""`tessc diff`: what differs between two plans, and why their numbers do."""

from __future__ import annotations

from dataclasses import dataclass

import click

from tessera.cli.console import Messages, page_width, write_data, write_text
from tessera.cli.given import Typed, reads_options
from tessera.cli.options import form_option, json_option, output_option
from tessera.cli.progress import Progress
from tessera.ir.options import WrongOption
from tessera.output import Kind, check_output


@click.command(short_help="Compare two plans.")
@click.argument("first", type=click.Path())
@click.argument("second", type=click.Path())
@json_option
@output_option("Also write a page there.")
@form_option
@reads_options
def diff(messages: Messages, given: Typed) -> int:
    """Compare the plans FIRST and SECOND.

    What moved: steps by kernel and device, slots, memory, transfers. Why the numbers changed: the
    first plan is simulated again with one thing after the other taken from the second one.

    \b
    Examples:
      tessc diff before.tsp after.tsp
      tessc diff before.tsp after.tsp -o diff.html
    """
    from tessera.driver.diff_plans import diff as compare
    from tessera.report.diff import diff_json, diff_text

    command = given.record(DiffCommand)
    if command.output is not None:
        check_output(command.output, Kind.PAGE, (command.first, command.second))
    with Progress(messages, f"reading {command.first}") as shown:
        differing = compare(command.first, command.second, shown.hear)
    if command.output is not None:
        from tessera.report.page.diff_page import diff_page
        from tessera.report.page.render import page_html

        write_data(page_html(diff_page(differing)).encode(), command.output, Kind.PAGE)
    as_text = diff_text(differing, command.output, page_width())
    write_text(diff_json(differing) if command.as_json else as_text)
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffCommand:
    """The arguments of `tessc diff`: what it reads, and where its page goes."""

    first: str
    second: str
    as_json: bool = False
    output: str | None = None

    def __post_init__(self) -> None:
        if self.output == "-":
            raise WrongOption("{output} names a file: the report is on standard output")
