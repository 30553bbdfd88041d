"""`tessc simulate`: follow the launch programs of a plan through time, without running them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from tessera.cli.console import Messages, page_width, write_text
from tessera.cli.folder_options import folder_options, with_folder
from tessera.cli.given import Typed, reads_options
from tessera.cli.options import (
    form_option,
    json_option,
    library_option,
    sequences_option,
    throttle_option,
    timeline_option,
)
from tessera.cli.progress import Progress
from tessera.cli.text_options import TextCommand, arrivals_options, switch_option, text_options
from tessera.ir.options import WrongOption
from tessera.output import Kind, check_output

if TYPE_CHECKING:
    from tessera.driver.waiting import TimeByPlace
    from tessera.ir.plan.plan import Plan
    from tessera.simulation.options import SimulateOptions
    from tessera.simulation.report import SimulationReport


@click.command(short_help="Simulate the requests of a plan.")
@click.argument("file", type=click.Path(allow_dash=True), metavar="PLAN|FOLDER")
@folder_options
@arrivals_options(
    "Let requests come at the times of this file (Azure, BurstGPT or Mooncake, also with "
    "gzip), or at random. Without it they come back to back.",
    "Take the first N arrivals; without `--arrivals`, follow N requests back to back.",
)
@click.option("--slots", type=click.IntRange(1), metavar="N", help="Requests in flight.")
@sequences_option(None, "Copies of the states, one per sequence.")
@click.option(
    "--policy",
    metavar="NAME",
    help="Which of the policies of the plan to follow; the last one, or both for requests for "
    "text.",
)
@switch_option
@click.option(
    "--foresee",
    "foresees",
    is_flag=True,
    default=None,
    help="Switch by what will come in place of what came: the best that a rule could do.",
)
@click.option(
    "--backend",
    type=click.Choice(["cuda", "cpu"]),
    help="By whose rules: GPUs, or the processes of the CPU backend. The times of steps are those "
    "of the plan.  [default: cuda]",
)
@throttle_option
@click.option(
    "--noise",
    is_flag=True,
    default=None,
    help="Also draw the times of steps from their error bars, 20 times, and say how far the "
    "figures spread.",
)
@timeline_option
@text_options
@click.option(
    "--between",
    type=click.Choice(["fit", "interpolate"]),
    help="What a step of a size takes that no trace has, with `--steps`: the time of the smallest "
    "trace that holds it, as it would run, or a time between the traces'.  [default: fit]",
)
@click.option(
    "--clock",
    type=click.Choice(["auto", "exact", "rates"]),
    help="With `--steps`: follow every operation of every step, or go by the rates of steps.  "
    "[default: auto]",
)
@library_option
@json_option
@form_option
@reads_options
def simulate(messages: Messages, given: Typed) -> int:
    """Simulate the launch programs of PLAN (`.tsp`), or of FOLDER, and report what requests take.

    FOLDER is a model folder, as for `tessc serve`. Nothing is run, and the plan is not proved again
    (`tessc check` does that). The plan's own times
    and links are used, by the rules in docs/concepts/simulation.md. Requests come back to back, and
    with `--arrivals` also at the times of a file. With `--steps` (or NAME.steps.json beside the
    plan) arrivals are requests for text: prompts and answers become prefill and decode steps.

    \b
    Examples:
      tessc simulate plan.tsp
      tessc simulate plan.tsp --arrivals poisson:20/s --noise
      tessc simulate plan.tsp --arrivals AzureLLMInferenceTrace_code.csv.gz --speed 10
      tessc simulate plan.tsp --requests 32 --slots 4 --timeline simulated.json
      tessc simulate plan.tsp --steps names --arrivals conv.csv.gz --slo ttft=1s,tpot=50ms
    """
    from tessera.report.simulation import simulation_json, simulation_text
    from tessera.simulation.options import SimulateOptions
    from tessera.simulation.simulate_plan import simulate as follow

    given = with_folder(messages, given).having(weights=None)
    command = given.record(SimulateCommand)
    if command.is_text:
        return _simulate_text(messages, given, command)
    given.refuse_others(
        "requests for text", SimulateCommand, SimulateOptions, hint="; it needs `--steps`"
    )
    options = command.complete(given.record(SimulateOptions))
    with Progress(messages, f"simulating {command.file}") as shown:
        report = follow(command.plan(), options, shown.hear)
    written, spent = _write_timeline(command, report)
    as_text = simulation_text(report, written, page_width(), spent)
    write_text(simulation_json(report, spent) if command.as_json else as_text)
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateCommand:
    """What `tessc simulate` reads, where its timeline goes, and how the report is shown."""

    file: str
    timeline_file: str | None = None
    as_json: bool = False
    arrivals: str | None = None
    steps: str | None = None
    library: str | None = None

    @property
    def is_text(self) -> bool:
        """Whether arrivals are requests for text: a declaration is given, or is beside the plan."""
        if self.steps is not None:
            return True
        from tessera.driver.serve.steps import declaration_beside

        return self.arrivals is not None and declaration_beside(self.file) is not None

    def __post_init__(self) -> None:
        if self.timeline_file == "-":
            raise WrongOption("{timeline_file} names a file: the report is on standard output")
        if self.library is None:
            return
        from tessera.ir.plan.tables import LIBRARIES

        if self.library not in LIBRARIES:
            raise WrongOption(f"{{library}} is one of {', '.join(LIBRARIES)}")

    def plan(self) -> Plan | str:
        """The plan, with the times of a library if one is named."""
        if self.library is None:
            return self.file
        from tessera.driver.price_again import by_library
        from tessera.simulation.simulate_plan import read_followed

        return by_library(*read_followed(self.file), self.library)

    def complete(self, options: SimulateOptions) -> SimulateOptions:
        """The options, after a check that a timeline can be written."""
        arrivals = options.arrivals if isinstance(options.arrivals, str) else None
        if self.file == "-" == arrivals:
            raise WrongOption("the plan and {arrivals} cannot both be standard input")
        if self.timeline_file is None:
            return options
        check_output(self.timeline_file, Kind.TIMELINE, (self.file, arrivals))
        return replace(options, timeline=True)


def _simulate_text(messages: Messages, given: Typed, command: SimulateCommand) -> int:
    """Simulate requests for text."""
    from tessera.driver.serve.options import ArrivingText, TextSimulationOptions
    from tessera.driver.serve.simulate_text import simulate_text
    from tessera.report.serving import serving_json, serving_text

    given.refuse_others(
        "requests of one step each", TextCommand, TextSimulationOptions, ArrivingText
    )
    arriving, written = given.record(TextCommand).prepare(given)
    options = given.record(TextSimulationOptions)
    with Progress(messages, f"simulating {command.file}") as shown:
        report = simulate_text(command.file, arriving, options, shown.hear)
    as_text = serving_text(report, written, page_width())
    write_text(serving_json(report) if command.as_json else as_text)
    return 0


def _write_timeline(
    command: SimulateCommand, report: SimulationReport
) -> tuple[tuple[str, ...], TimeByPlace | None]:
    if command.timeline_file is None:
        return (), None
    from tessera.driver.simulated_timeline import timeline_events
    from tessera.driver.timeline import write_events
    from tessera.driver.waiting import time_by_place

    replicas = report.replicas
    devices = list(dict.fromkeys(d for replica in replicas for d in replica.lowered.devices))
    events = timeline_events(report)
    write_events(events, devices, command.timeline_file)
    first = min((event.start_ns for event in events), default=0)
    whole_ns = max((event.end_ns for event in events), default=0) - first
    return (command.timeline_file,), time_by_place(events, devices, whole_ns)
