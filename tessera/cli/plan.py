"""`tessc plan`: place the steps of traces on GPUs, and say what that is predicted to bring."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tessera.cli.console import (
    Messages,
    at_terminal,
    data_root_option,
    form_option,
    sequences_of,
    sequences_options,
    write_data,
)
from tessera.cli.progress import PlanWatch
from tessera.diagnostics import ExitCode, TesseraError, error
from tessera.ir.choices import Objective, Strategy
from tessera.output import Kind, check_folder, check_output, write_folder
from tessera.report import diagnostics as render

DEFAULT_LINK = "100Gb/s"
DEFAULT_OUTPUT = "plan.tsp"
DEFAULT_FOLDER = "plan_cuda"

if TYPE_CHECKING:
    from tessera.driver.plan.make_plan import PlanOptions, PlanReport
    from tessera.ir.plan.machine import Machine


@click.command(short_help="Place the steps of traces on GPUs.")
@click.argument("traces", nargs=-1, type=click.Path(allow_dash=True), metavar="[TRACE[:PART]]...")
@click.option("--gpus", metavar="LIST", help="The GPUs, such as `a100,l40s` or `2xa100`.")
@click.option("--machine", type=click.Path(), metavar="PATH", help="A machine file, in TOML.")
@click.option(
    "--link", default=DEFAULT_LINK, show_default=True, help="nvlink, pcie4, a bandwidth, or none."
)
@click.option(
    "--objective",
    type=click.Choice([choice.value for choice in Objective]),
    default="throughput",
    show_default=True,
    help="What to make best.",
)
@click.option(
    "--strategy",
    type=click.Choice([choice.value for choice in Strategy]),
    help="Take the best plan of this form instead.",
)
@click.option(
    "--placement", metavar="random:SEED|PATH", help="Take this placement instead, for experiments."
)
@click.option("--pareto", is_flag=True, help="Also list the plans that none beats in everything.")
@click.option(
    "--slots",
    type=click.IntRange(1, 64),
    help="Requests under way; default as many as pay and fit.",
)
@sequences_options(4096, "Sets of state, one per sequence; default as many as slots.")
@click.option(
    "--gap",
    type=click.FloatRange(0.0, 1.0),
    default=0.001,
    show_default=True,
    help="Stop when the plan is proven to be this near the best.",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(0.0, min_open=True),
    metavar="SECONDS",
    help="End the search by the clock; by default only counts end it.",
)
@click.option("--price", "prices", multiple=True, metavar="GPU=USD", help="Price per hour.")
@click.option("--memory", multiple=True, metavar="GPU=SIZE", help="Memory, such as `l40s=40GB`.")
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    type=click.Path(),
    metavar="PATH",
    help="Measured times, in JSON. May be repeated; later files win.",
)
@click.option("--pin", "pins", multiple=True, metavar="STEP=GPU", help="Run steps only there.")
@click.option(
    "--forbid", "forbids", multiple=True, metavar="STEP=GPU", help="Never run them there."
)
@click.option("--explain", "steps", multiple=True, metavar="STEP", help="Say why `k17` is there.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option(
    "--emit",
    type=click.Choice(["lp", "launch", "cuda-python"]),
    help="Print the integer program or the launch programs (to `-o`, if given), or write a Python "
    "program per device to the folder `-o` (default `plan_cuda`), and write no plan.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(allow_dash=True),
    metavar="PATH",
    help=f"Where to write the plan (default {DEFAULT_OUTPUT}), or what `--emit` makes; `-` is "
    "standard output, in place of the report.",
)
@data_root_option
@form_option
@click.pass_obj
def plan(messages: Messages, /, form: str, **given: Any) -> int:
    """Place the steps of TRACEs on GPUs, within their memory.

    Prints the plan beside what one GPU, data parallelism and other splits would give, with a bound
    that no plan beats, and writes it to a file. If splitting does not pay, the plan does not split.
    Several traces are planned together; PART says how many requests of each there are. Without
    TRACE, the one kernel graph (.tsg) in this folder is taken. Ctrl-C keeps the best plan so far:
    it is written, and the exit code is 130.

    \b
    Examples:
      tessc plan trace.ptx --gpus a100,l40s
      tessc plan prefill.ptx:1 decode.ptx:512 --gpus h100,rtx-pro-6000
      tessc plan trace.ptx --gpus 2xa100,l40s --objective cost --price a100=1.80
      tessc plan trace.ptx --gpus h200:84sm,h200:48sm --explain k17
    """
    if (given["gpus"] is None) == (given["machine"] is None):
        raise click.UsageError("give the GPUs with either `--gpus` or `--machine`")
    overrides = given["prices"] or given["memory"] or given["link"] != DEFAULT_LINK
    if given["machine"] is not None and overrides:
        raise click.UsageError("a machine file says links, prices and memory itself")
    if given["strategy"] is not None and given["placement"] is not None:
        raise click.UsageError("`--strategy` and `--placement` exclude each other")
    if given["objective"] == Objective.PAIR and (given["strategy"] or given["placement"]):
        raise click.UsageError(f"`--objective {Objective.PAIR}` needs a search")
    if given["emit"] == "cuda-python" and given["output"] == "-":
        raise click.UsageError("`--emit cuda-python` writes to a folder, not to standard output")
    if not isfinite(given["gap"]) or not isfinite(given["time_limit"] or 0.0):
        raise click.UsageError("`--gap` and `--time-limit` must be finite numbers")
    messages = replace(messages, form=form)
    watch = PlanWatch(visible=at_terminal() and form != "json")
    try:
        target = _target(given)
        return _plan(messages, given, watch, target)
    except TesseraError as failure:
        messages.show(failure.diagnostics)
        return failure.exit_code


_EMITTED = {None: Kind.PLAN, "lp": Kind.MODEL, "launch": Kind.PROGRAMS}


def _target(given: dict[str, Any]) -> str:
    """Where the command writes to, once it may write there."""
    emit, chosen = given["emit"], given["output"]
    usual = {None: DEFAULT_OUTPUT, "cuda-python": DEFAULT_FOLDER}.get(emit, "-")
    output = usual if chosen is None else str(chosen)
    if emit == "cuda-python":
        check_folder(output)
        return output
    if output != "-":
        named = (part for name in given["traces"] for part in (name, name.rpartition(":")[0]))
        others = (given["machine"], given["placement"], *given["profiles"])
        check_output(output, _EMITTED[emit], (*named, *others))
    return output


def _plan(messages: Messages, given: dict[str, Any], watch: PlanWatch, output: str) -> int:
    from tessera.driver.plan import make_plan as planning
    from tessera.ir.plan.print_plan import print_plan
    from tessera.report import plan as report_plan
    from tessera.report import plan_json as report_plan_json
    from tessera.report.analysis import safe_lines

    traces = given["traces"] or (_only_graph(),)
    options = _options(given)
    if given["emit"] == "lp":
        write_data(planning.emit_lp(traces, options).encode(), output, Kind.MODEL)
        return 0
    with watch:
        planned = planning.plan(
            traces, options, watch.listen(), compare=given["emit"] is None, pareto=given["pareto"]
        )
    explained = [report_plan.explain_text(planned, step) for step in given["steps"]]
    if given["emit"] == "launch":
        messages.show(planned.diagnostics)
        write_data(report_plan.launch_text(planned.plan).encode(), output, Kind.PROGRAMS)
        return 0
    if given["emit"] == "cuda-python":
        messages.show(planned.diagnostics)
        return _write_programs(planned, output)
    write_data(print_plan(planned.plan).encode("utf-8", "surrogateescape"), output, Kind.PLAN)
    messages.show(planned.diagnostics)
    if output == "-":
        return ExitCode.INTERRUPTED if watch.interrupted else 0
    if given["as_json"]:
        text = report_plan_json.plan_json(planned, given["steps"])
    else:
        text = safe_lines(report_plan.plan_text(planned, output) + "".join(explained))
    write_data(text.encode(errors="replace"), "-")
    return ExitCode.INTERRUPTED if watch.interrupted else 0


def _write_programs(planned: PlanReport, folder: str) -> int:
    """A Python program per device, and what they share."""
    from tessera.driver.plan.cuda_python import WRITTEN_BY, cuda_python_files

    files = cuda_python_files(planned.plan, planned.setting)
    data = {name: text.encode("utf-8", "surrogateescape") for name, text in files.items()}
    write_folder(folder, data, WRITTEN_BY.encode())
    runs = (Path(folder, name) for name in files if Path(name).name == "run.py")
    said = ", ".join(f"`python {render.safe(str(path))} --help`" for path in runs)
    write_data(f"programs written to {render.safe(folder)}: {said}\n".encode(errors="replace"), "-")
    return 0


def _only_graph() -> str:
    """The one kernel graph in this folder."""
    from tessera.driver.plan.make_plan import graphs_in

    graphs = graphs_in(".")
    if len(graphs) == 1:
        return graphs[0]
    if not graphs:
        raise click.UsageError(
            "name a trace: there is no kernel graph (.tsg) in this folder, as `tessc analyze` "
            "writes them"
        )
    listed = "\n".join(f"  {render.safe(name)}" for name in graphs)
    raise click.UsageError(f"name a trace: there are several kernel graphs here:\n{listed}")


def _options(given: dict[str, Any]) -> PlanOptions:
    from tessera.driver.plan.make_plan import PlanOptions

    machine = given["machine"]
    return PlanOptions(
        gpus=given["gpus"] or "",
        machine=None if machine is None else _machine(machine),
        link=given["link"],
        objective=given["objective"],
        strategy=given["strategy"],
        placement=given["placement"],
        slots=given["slots"],
        sequences=sequences_of(given),
        gap=given["gap"],
        seconds=given["time_limit"],
        prices=tuple(_price(text) for text in given["prices"]),
        memory=tuple(_memory(text) for text in given["memory"]),
        profiles=given["profiles"],
        pins=given["pins"],
        forbids=given["forbids"],
        data_root=given["data_root"],
    )


def _machine(path: str) -> Machine:
    from tessera.frontend.machine.machine_file import parse_machine
    from tessera.frontend.text.readfile import read_source

    return parse_machine(read_source(path).text, path)


def _price(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise _bad_override("--price", text, "a100=1.80") from None


def _memory(text: str) -> tuple[str, int]:
    from tessera.frontend.machine.quantities import parse_bytes

    name, _, value = text.partition("=")
    size = parse_bytes(value)
    if size is None:
        raise _bad_override("--memory", text, "l40s=40GB")
    return name, size


def _bad_override(option: str, text: str, example: str) -> TesseraError:
    return TesseraError(
        error(
            "TSR3004", f"`{option} {text}` is not well formed", hint=f"write `{option} {example}`"
        )
    )
