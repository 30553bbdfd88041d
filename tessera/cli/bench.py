"""`tessc bench`: requests for text at the times of real arrivals, against a plan that runs."""

from __future__ import annotations

import click

from tessera.cli.console import Messages, page_width, write_text
from tessera.cli.folder_options import folder_options, with_folder
from tessera.cli.given import Typed, reads_options
from tessera.cli.options import form_option, json_option, throttle_option
from tessera.cli.progress import Progress
from tessera.cli.text_options import (
    EngineCommand,
    TextCommand,
    arrivals_options,
    engine_options,
    text_options,
)


@click.command(short_help="Send a plan requests for text, and measure them.")
@click.argument("file", type=click.Path(), metavar="PLAN|FOLDER")
@folder_options
@arrivals_options("When requests come and how long they are, as for `tessc simulate`.")
@text_options
@engine_options
@throttle_option
@json_option
@form_option
@reads_options
def bench(messages: Messages, given: Typed) -> int:
    """Run PLAN (`.tsp`), or the model in FOLDER, against requests for text at given times.

    The report is that of `tessc simulate --steps`, with measured times: TTFT, TPOT, end to end,
    goodput, how many waited when. Prompts are drawn by the seed.

    \b
    Examples:
      tessc simulate plan.tsp --steps names --arrivals poisson:2/s:50 --tokens 24:8
      tessc bench plan.tsp --steps names --arrivals poisson:2/s:50 --tokens 24:8
    """
    from tessera.driver.serve.bench_text import bench_text
    from tessera.report.serving import serving_json, serving_text

    given = with_folder(messages, given)
    command, requests = given.record(EngineCommand), given.record(TextCommand)
    arriving, written = requests.prepare(given)
    with (
        command.engine(ttft_ns=arriving.slo.ttft_ns, tpot_ns=arriving.slo.tpot_ns) as engine,
        Progress(messages, f"running {command.file}") as shown,
    ):
        messages.show(engine.diagnostics)
        report = bench_text(engine, command.file, arriving, shown.hear)
    as_text = serving_text(report, written, page_width())
    write_text(serving_json(report) if requests.as_json else as_text)
    return 0
