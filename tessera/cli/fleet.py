"""`tessc fleet`: which GPUs, how many, and how each is used, for requests for text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import click

from tessera.cli.console import Messages, page_width, write_text
from tessera.cli.given import Typed, reads_options
from tessera.cli.options import (
    data_root_option,
    form_option,
    json_option,
    machine_options,
    output_option,
    priced_options,
)
from tessera.cli.progress import Progress
from tessera.cli.text_options import arrivals_options, slo_option, tokens_option
from tessera.ir.options import WrongOption
from tessera.output import check_folder, write_folder

_RATE = re.compile(r"([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+)(?:/(s|min|h))?")
_PER = {"s": 1.0, "min": 60.0, "h": 3600.0}
_MOST = re.compile(r"([A-Za-z0-9][\w .-]*)=([0-9]{1,6})")
_DIGITS = 24
_README = "README.md"


def _rate(_context: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    match = _RATE.fullmatch(value.strip()) if len(value) <= _DIGITS else None
    if match is None:
        raise click.BadParameter("it takes requests per time, such as 20/s, 90/min or 0.5/s")
    return float(match[1]) / _PER[match[2] or "s"]


def _most(
    _context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[tuple[str, int], ...] | None:
    limits = []
    for text in value:
        match = _MOST.fullmatch(text.strip())
        if match is None:
            raise click.BadParameter("it takes a GPU and a number, such as h100=2")
        limits.append((match[1].lower(), int(match[2])))
    return tuple(limits) or None


@click.command(short_help="Choose GPUs, and how to use them, for requests for text.")
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...|hf:CONFIG")
@machine_options(
    "The GPUs to choose from, such as `4xa100,4xl40s`. With `--demand` a kind without a "
    "number may be taken as often as needed."
)
@click.option("--have", metavar="LIST", help="GPUs that you have already: they cost nothing more.")
@click.option(
    "--most", multiple=True, callback=_most, metavar="GPU=N", help="What is scarce: at most N."
)
@tokens_option
@arrivals_options("How long requests are and how they come: a file of Azure, BurstGPT or Mooncake.")
@click.option(
    "--demand",
    callback=_rate,
    metavar="RATE",
    help="Requests to serve, such as 20/s: find the cheapest GPUs for it. Without it, use the "
    "GPUs that are given for as many as they serve.",
)
@slo_option
@click.option(
    "--percentile",
    type=click.Choice(["p50", "p90", "p99"]),
    help="The share of requests that keeps the limits.  [default: p99]",
)
@click.option(
    "--strategies",
    metavar="LIST",
    help="Only these: single,layers,phase,attention,tensor,kernel.",
)
@priced_options
@click.option(
    "--context",
    type=click.IntRange(1),
    metavar="N",
    help="Tokens that the attention of decode traces goes over, where they do not say.",
)
@json_option
@click.option(
    "--emit",
    type=click.Choice(["vllm", "dynamo", "tessc"]),
    help="Also write what starts the answer with this system, to the folder `-o` (default "
    "`fleet_vllm` and so on).",
)
@click.option(
    "--model",
    metavar="NAME",
    help="With `--emit`: the checkpoint, by its name or folder. Default: the folder of CONFIG, if "
    "weights are there.",
)
@output_option("The folder for `--emit`.")
@data_root_option
@form_option
@reads_options
def fleet(messages: Messages, given: Typed) -> int:
    """Choose GPUs for a language model: which, how many, and how each is used.

    TRACEs are decode steps of one model at several batch sizes, and prefill steps; a config file
    (`hf:PATH/config.json`) makes them itself. Units of GPUs (one GPU, layers over several, prompts
    apart from answers, attention apart, tensor parallel, kernel by kernel) are priced, and the
    cheapest units that serve the demand within the limits are chosen and simulated with arrivals.
    Without `--demand` the GPUs that are given are used for as many requests as they serve. The
    answer may be not to split, to use one kind alone, or to buy nothing.

    \b
    Examples:
      tessc fleet decode-*.ptx prefill.ptx --gpus 4xa100,4xl40s --tokens 1024:256
      tessc fleet decode-*.ptx prefill.ptx --gpus a100,l40s,h100 --most h100=2 --tokens 1024:256
            --demand 20/s --slo ttft=1s,tpot=50ms
      tessc fleet hf:llama/config.json --have 4xl40s --gpus h100 --arrivals conv.csv --demand 5/s
      tessc fleet hf:llama/config.json --gpus 4xa100 --tokens 1024:256 --emit vllm
    """
    from tessera.driver.fleet.emit.commands import WRITTEN_BY
    from tessera.driver.fleet.emit.emit_fleet import emit_fleet
    from tessera.driver.fleet.make_fleet import fleet as plan_fleet
    from tessera.driver.fleet.options import FleetOptions
    from tessera.driver.serve.measures import Slo
    from tessera.report.fleet import fleet_json, fleet_text
    from tessera.report.fleet_start import start_page

    command = given.record(FleetCommand)
    limits, names = Slo(**(command.slo or {})), command.chosen_strategies()
    options = given.having(slo=limits, strategies=names).record(FleetOptions)
    folder = command.folder()
    with Progress(messages, "reading") as shown:
        report = plan_fleet(command.traces, options, shown.hear)
    messages.show(report.diagnostics)
    emitted = None
    try:
        if command.emit is not None:
            emitted = emit_fleet(report, command.emit, command.traces, command.model, folder)
            page = start_page(report, emitted)
            files = {name: text.encode() for name, text in (*emitted.files, (_README, page))}
            write_folder(folder, files, WRITTEN_BY.encode())
    finally:
        if command.as_json:
            write_text(fleet_json(report, emitted))
        else:
            write_text(fleet_text(report, page_width(), emitted, folder))
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCommand:
    """What `tessc fleet` reads, and how the report is shown."""

    traces: tuple[str, ...]
    slo: dict[str, float] | None = None
    strategies: str | None = None
    as_json: bool = False
    emit: str | None = None
    model: str | None = None
    output: str | None = None

    def __post_init__(self) -> None:
        if self.emit is None and (self.model or self.output):
            raise WrongOption("{model} and {output} are for {emit}")
        if self.emit is not None and self.output == "-":
            raise WrongOption("{emit} writes to a folder, not to standard output")
        names = [str(Path(name)) for name in self.traces]
        if len(set(names)) < len(names):
            raise WrongOption("a trace is given twice")

    def folder(self) -> str:
        """The folder of `--emit`, once it is known that it can be written to."""
        folder = self.output or f"fleet_{self.emit}"
        if self.emit is not None:
            check_folder(folder)
        return folder

    def chosen_strategies(self) -> tuple[str, ...] | None:
        """The named strategies; None means all."""
        if self.strategies is None:
            return None
        return tuple(part.strip() for part in self.strategies.split(","))
