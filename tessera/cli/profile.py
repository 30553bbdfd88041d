"""`tessc profile`: measure the steps of a trace on the GPUs of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from tessera.cli.console import Messages, page_width, write_text
from tessera.cli.given import Typed, reads_options
from tessera.cli.options import (
    data_root_option,
    form_option,
    output_option,
    seconds_option,
    weights_option,
)
from tessera.cli.progress import Progress
from tessera.output import Kind, check_output, write_file
from tessera.report.diagnostics import safe
from tessera.report.table import fitted


@click.command(short_help="Measure the steps of a trace on GPUs (needs a GPU).")
@click.argument("file", type=click.Path())
@click.option(
    "--devices",
    required=True,
    metavar="LIST",
    help="What to measure on: GPUs and slices, such as `h200,h200:84sm,h200:48sm`.",
)
@output_option("Where to write the profile.", "profile.json")
@click.option(
    "--repeats",
    type=click.IntRange(3, 1000),
    default=9,
    show_default=True,
    help="How often each time is taken; the median counts.",
)
@click.option("--data", type=click.Path(), metavar="PATH", help="Contents of the buffers.")
@data_root_option
@weights_option
@seconds_option("--time-limit", "limit_s", "Give up when a step takes longer; 60 unless given.")
@form_option
@reads_options
def profile(messages: Messages, given: Typed) -> int:
    """Measure every step of the trace FILE on GPUs and slices of GPUs.

    Each step is timed with its data in the caches and not, and on a slice also beside work that
    computes and work that moves memory on the rest of the GPU. `tessc plan --profile` reads the
    result; profiles of several machines add up.

    \b
    Examples:
      tessc profile trace.ptx --devices h200,h200:84sm,h200:48sm -o profile.json
      tessc plan trace.ptx --gpus h200:84sm,h200:48sm --profile profile.json
    """
    from tessera.driver.profile import profile_trace as driver

    command, options = given.record(ProfileCommand), given.record(driver.ProfileOptions)
    check_output(command.output, Kind.PROFILE, (command.file, options.data))
    with Progress(messages, f"reading {command.file}") as shown:
        measured = driver.profile(command.file, options, shown.hear)
    write_file(command.output, driver.profile_text(measured).encode(), Kind.PROFILE)
    write_text(f"{_text(measured)}wrote {safe(command.output)}\n")
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileCommand:
    """What `tessc profile` reads and writes."""

    file: str
    output: str


def _text(measured: dict[str, Any]) -> str:
    from tessera.frontend.machine.quantities import format_time

    machine = measured["machine"]
    head = f"measured on {machine['gpu']}, medians of {machine['repeats']}\n"
    lines = []
    for whole in measured["wholes"]:
        rows = [r for r in measured["rows"] if (r["gpu"], r["sms"]) == (whole["gpu"], whole["sms"])]
        total = sum(row["ns"] for row in rows)
        lines.append(
            f"  {whole['gpu']}, {whole['sms']} SMs: {len(rows)} steps, {format_time(total)} in all;"
            f" the whole trace takes {format_time(whole['ns'])}\n"
        )
    return fitted(head + "".join(lines), page_width())
