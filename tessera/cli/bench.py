"""`tessc bench`: requests for text at the times of real arrivals, against a plan that runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from tessera.backend.known_backends import BackendName
from tessera.cli.console import Messages, form_option, page_width, write_data
from tessera.cli.given import Typed, reads_options
from tessera.cli.hosts_given import on_hosts
from tessera.cli.progress import Progress
from tessera.cli.text_requests import TextCommand, engine_options, text_options
from tessera.cli.types import finite_number, speed

if TYPE_CHECKING:
    from tessera.driver.serve.policies import SwitchRule


@click.command(short_help="Send a plan requests for text, and say what they took.")
@click.argument("file", type=click.Path(), metavar="PLAN")
@click.option(
    "--arrivals",
    metavar="FILE|poisson:RATE/s[:COUNT]",
    help="When requests come and how long they are, as for `tessc simulate`.",
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    callback=finite_number,
    metavar="FACTOR",
    help="Let them come so many times as fast.",
)
@click.option("--requests", type=click.IntRange(1), metavar="N", help="Take the first N arrivals.")
@click.option(
    "--seed", type=click.IntRange(0), metavar="N", help="Seed of random arrivals and prompts; 0."
)
@text_options
@engine_options
@click.option(
    "--throttle",
    "throttle_bytes_per_s",
    callback=speed,
    metavar="SPEED",
    help="Slow transfers between devices down to this speed, such as 12.5GB/s.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@form_option
@reads_options
def bench(messages: Messages, given: Typed) -> int:
    """Run PLAN (`.tsp`) against requests for text that come at given times.

    The report is that of `tessc simulate --steps`, with measured times: TTFT, TPOT, end to end,
    goodput, how many waited when. Prompts are drawn by the seed.

    \b
    Examples:
      tessc simulate plan.tsp --steps names --arrivals poisson:2/s:50 --tokens 24:8
      tessc bench plan.tsp --steps names --arrivals poisson:2/s:50 --tokens 24:8
    """
    from tessera.driver.serve.bench_text import bench_text
    from tessera.driver.serve.engine import Engine
    from tessera.report.serving import serving_json, serving_text

    command = given.record(BenchCommand)
    arriving, written = given.record(TextCommand).prepare(given)
    with (
        on_hosts(command.hosts, command.address) as hosts,
        Engine(
            command.file,
            steps=None if command.steps == "names" else command.steps,
            burst=arriving.burst,
            backend=command.backend,
            slots=command.slots,
            sequences=command.sequences,
            policy=command.policy,
            switch=command.switch,
            weights=command.weights,
            hosts=hosts,
            throttle_bytes_per_s=command.throttle_bytes_per_s,
        ) as engine,
        Progress(messages, f"running {command.file}") as shown,
    ):
        messages.show(engine.diagnostics)
        report = bench_text(engine, command.file, arriving, shown.hear)
    show = serving_json(report) if command.as_json else ""
    text = show or serving_text(report, written, page_width())
    write_data(text.encode(errors="replace"), "-")
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchCommand:
    """Which plan is run, and how."""

    file: str
    steps: str | None = None
    backend: str = BackendName.AUTO
    slots: int | None = None
    sequences: int | None = None
    policy: str | None = None
    switch: SwitchRule | None = None
    weights: str | None = None
    hosts: str | None = None
    address: str | None = None
    throttle_bytes_per_s: float | None = None
    as_json: bool = False
