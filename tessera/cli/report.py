"""`tessc report`: one page to look at, from any of the files that other commands write."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

import click

from tessera.cli.console import Messages, write_data, write_text
from tessera.cli.given import Typed, reads_options
from tessera.cli.options import data_root_option, form_option, output_option
from tessera.cli.progress import Progress
from tessera.ir.options import WrongOption
from tessera.output import Kind, check_output
from tessera.report.diagnostics import safe


@click.command(short_help="Make a page to look at.")
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(allow_dash=True), metavar="FILE..."
)
@click.option("--title", metavar="TEXT", help="What the page is called; the name of its file.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the data of the page as JSON, and write no page."
)
@output_option(
    "Where to write the page (default report.html); `-` is standard output. Replaces only "
    "pages that it has written itself.",
    dash=True,
)
@data_root_option
@form_option
@reads_options
def report(messages: Messages, given: Typed) -> int:
    """Make one page of FILEs, which belong together, with a section for all that they say.

    A FILE is a trace, a kernel graph (.tsg), a plan (.tsp), a profile, a timeline, the JSON of
    `tessc plan`, `tessc run` or `tessc simulate`, or a page of this command, to which the other
    files add. What a file holds is seen from its beginning. The page needs no other file and no
    network.

    \b
    Examples:
      tessc report trace.ptx
      tessc report plan.tsp -o plan.html
      tessc report plan.tsp plan.json run.json timeline.json
      tessc report plan.html simulated.json -o more.html
    """
    from tessera.report.page.build import build_page
    from tessera.report.page.inputs import read_given
    from tessera.report.page.render import page_html, page_json

    command = given.record(ReportCommand)
    if not command.as_json and command.place != "-":
        check_output(command.place, Kind.PAGE, command.files)
    with Progress(messages, f"reading {safe(command.files[0])}") as shown:
        files = read_given(
            command.files, data_root=command.data_root, command=command.text(), tell=shown.stage
        )
        shown.stage("drawing")
        page = build_page(files, command.title)
    if command.as_json:
        write_text(page_json(page))
        return 0
    write_data(page_html(page).encode(), command.place, Kind.PAGE)
    if command.place != "-":
        write_text(f"wrote {safe(command.place)}\n")
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportCommand:
    """What `tessc report` reads, and where the page goes."""

    files: tuple[str, ...]
    title: str | None = None
    as_json: bool = False
    output: str | None = None
    data_root: str | None = None

    def __post_init__(self) -> None:
        if self.as_json and self.output is not None:
            raise WrongOption("{output} is for the page, which {as_json} does not write")
        if self.files.count("-") > 1:
            raise WrongOption("only one file can be standard input")

    @property
    def place(self) -> str:
        """Where the page is written."""
        return "report.html" if self.output is None else self.output

    def text(self) -> str:
        """The command, as it can be typed again."""
        return shlex.join(["tessc", "report", *self.files, "-o", self.place])
