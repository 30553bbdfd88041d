"""`tessc plan`: place the steps of traces on GPUs, and say what that is predicted to bring."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tessera.cli.complete import complete_rule, complete_step
from tessera.cli.console import Messages, page_width, write_data, write_text
from tessera.cli.given import Typed, reads_options
from tessera.cli.options import (
    data_root_option,
    form_option,
    json_option,
    machine_options,
    output_option,
    priced_options,
    sequences_option,
)
from tessera.cli.progress import PlanProgress
from tessera.cli.text_options import slo_option
from tessera.diagnostics import ExitCode, warning
from tessera.ir.choices import Ending
from tessera.ir.objectives import OBJECTIVES
from tessera.ir.options import WrongOption
from tessera.output import Kind, check_folder, check_output, write_folder
from tessera.report import diagnostics as render

DEFAULT_OUTPUT = "plan.tsp"
DEFAULT_FOLDER = "plan_cuda"

if TYPE_CHECKING:
    from tessera.driver.plan import PlanOptions, PlanReport


class StrategyChoice(click.Choice[str]):
    """Names of strategies, read on first use: other commands do not import the planner."""

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that `--strategy` takes."""
        from tessera.planning.search.strategies import PLAN_STRATEGIES

        return PLAN_STRATEGIES

    @choices.setter
    def choices(self, given: object) -> None:
        pass


@click.command(short_help="Place the steps of traces on GPUs.")
@click.argument(
    "traces", nargs=-1, type=click.Path(allow_dash=True), metavar="[TRACE[,TRACE]...[:SHARE]]..."
)
@machine_options("The GPUs, such as `a100,l40s` or `2xa100`.")
@click.option(
    "--objective",
    type=click.Choice([*OBJECTIVES]),
    default="throughput",
    show_default=True,
    help="What to make best.",
)
@click.option(
    "--strategy",
    type=StrategyChoice(()),
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
@sequences_option(4096, "Sets of state, one per sequence; default as many as slots.")
@click.option(
    "--gap",
    type=click.FloatRange(0.0, 1.0),
    default=0.001,
    show_default=True,
    help="Stop when the plan is proven to be this near the best.",
)
@click.option(
    "--time-limit",
    "seconds",
    type=click.FloatRange(0.0, min_open=True),
    metavar="SECONDS",
    help="End the search by the clock; by default only counts end it.",
)
@priced_options
@click.option(
    "--states-alike",
    is_flag=True,
    help="For latency+throughput: both policies have states on the same devices, so that a "
    "sequence may change between them; says what that costs.",
)
@click.option(
    "--pin",
    "pins",
    multiple=True,
    metavar="STEP=GPU",
    help="Run these steps only on this GPU.",
    shell_complete=complete_rule,
)
@click.option(
    "--forbid",
    "forbids",
    multiple=True,
    metavar="STEP=GPU",
    help="Never run these steps on this GPU.",
    shell_complete=complete_rule,
)
@click.option(
    "--cut",
    "cuts",
    multiple=True,
    metavar="STEP:AXIS=SHARES",
    help="Cut steps into parts: `gemm:x=0.6,0.4`, `12:x=96,32` (CTAs), `gemm:x=0.6@a100,0.4@l40s`.",
)
@click.option(
    "--twin",
    "twins",
    multiple=True,
    metavar="STEP[=GPUS]",
    help="Let every GPU (or these) do these steps, each for itself.",
)
@click.option(
    "--explain",
    "steps",
    multiple=True,
    metavar="STEP",
    help="Explain why a step, such as `k17`, is on its GPU.",
    shell_complete=complete_step,
)
@slo_option
@json_option
@click.option(
    "--emit",
    type=click.Choice(["lp", "launch", "cuda-python"]),
    help="Print the integer program or the launch programs (to `-o`, if given), or write a Python "
    "program per device to the folder `-o` (default `plan_cuda`), and write no plan.",
)
@output_option(
    f"Where to write the plan (default {DEFAULT_OUTPUT}), or what `--emit` makes; `-` is "
    "standard output, in place of the report.",
    dash=True,
)
@data_root_option
@form_option
@reads_options
def plan(messages: Messages, given: Typed) -> int:
    """Place the steps of TRACEs on GPUs, within their memory.

    Prints the plan beside what one GPU, data parallelism and other splits would give, with a bound
    that no plan beats, and writes it to a file. If splitting does not pay, the plan does not split.
    Several traces are planned together; SHARE says how many requests of each there are. Without
    TRACE, the one kernel graph (.tsg) in this folder is taken. Ctrl-C keeps the best plan so far:
    it is proved and written, and the exit code is 130; a second one ends without a plan. A plan is
    written before it is compared with other GPUs.

    Commas join traces of one step of a language model at several sizes: the plan takes the batch
    that memory and `--slo tpot=TIME` allow, and SHARE says how often a text takes the step.
    `hf:CONFIG:SHARE`, or a model folder, makes the traces, with SHARE tokens of answer for each
    prompt.

    \b
    Examples:
      tessc plan trace.ptx --gpus a100,l40s
      tessc plan prefill.ptx:1 decode.ptx:512 --gpus h100,rtx-pro-6000
      tessc plan decode-b8.ptx,decode-b64.ptx:256 prefill.ptx:1 --gpus a100,l40s --slo tpot=50ms
      tessc plan trace.ptx --gpus 2xa100,l40s --objective cost --price a100=1.80
      tessc plan trace.ptx --gpus h200:84sm,h200:48sm --explain k17
      tessc plan trace.ptx --gpus a100,l40s --cut gemm:x=0.6@a100,0.4@l40s --twin norm
    """
    from tessera.driver.plan import PlanOptions, emit_lp
    from tessera.driver.plan import plan as make_plan

    command = given.record(PlanCommand)
    options = given.having(tpot_ns=command.tpot_ns()).record(PlanOptions)
    options.check_one_machine()
    target = command.target(options)
    traces = _traces(command.traces)
    if command.emit == "lp":
        write_data(emit_lp(traces, options).encode(), target, Kind.MODEL)
        return 0
    proved: list[PlanReport] = []
    with PlanProgress(messages) as watch:

        def keep(report: PlanReport) -> None:
            if command.emit is None and target != "-":
                _write_plan(report, target)
            proved.append(report)
            watch.keep()

        try:
            planned = make_plan(
                traces,
                options,
                watch.listen(),
                compare=command.emit is None,
                pareto=command.pareto,
                on_proved=keep,
            )
        except KeyboardInterrupt:
            if not proved:
                raise
            planned = _cut_short(proved[-1])
    _report(messages, command, planned, target)
    return ExitCode.INTERRUPTED if watch.interrupted and command.emit is None else 0


_EMITTED = {None: Kind.PLAN, "lp": Kind.MODEL, "launch": Kind.PROGRAMS}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCommand:
    """The arguments of `tessc plan`: what it reads, what it shows, and where."""

    traces: tuple[str, ...] = ()
    pareto: bool = False
    steps: tuple[str, ...] = ()
    as_json: bool = False
    emit: str | None = None
    output: str | None = None
    slo: dict[str, float] | None = None

    def tpot_ns(self) -> float | None:
        """The limit on the time per token."""
        limits = dict(self.slo or {})
        limit = limits.pop("tpot_ns", None)
        if limits:
            raise WrongOption("a plan takes a limit on the time per token: `--slo tpot=50ms`")
        return limit

    def __post_init__(self) -> None:
        if self.emit == "cuda-python" and self.output == "-":
            raise WrongOption("`--emit cuda-python` writes to a folder, not to standard output")

    def target(self, options: PlanOptions) -> str:
        """The output path of the command, once it is known to be writable."""
        usual = {None: DEFAULT_OUTPUT, "cuda-python": DEFAULT_FOLDER}.get(self.emit, "-")
        output = usual if self.output is None else self.output
        if self.emit == "cuda-python":
            check_folder(output)
        elif output != "-":
            named = (part for name in self.traces for part in (name, name.rpartition(":")[0]))
            machine = options.machine if isinstance(options.machine, str) else None
            others = (machine, options.placement, *options.profiles)
            check_output(output, _EMITTED[self.emit], (*named, *others))
        return output


def _write_plan(planned: PlanReport, target: str) -> None:
    from tessera.ir.plan.print_plan import print_plan

    write_data(print_plan(planned.plan).encode("utf-8", "surrogateescape"), target, Kind.PLAN)


def _cut_short(proved: PlanReport) -> PlanReport:
    """The report of a proved plan, without the interrupted comparisons."""
    if Ending(proved.plan.ended).is_cut_short:
        return proved  # its text says so
    left_out = warning(
        "TSR3019",
        "an interrupt ended the comparisons: the plan is proved and kept",
        hint="the same command, not interrupted, also says what other GPUs would bring",
    )
    return replace(proved, diagnostics=(*proved.diagnostics, left_out))


def _report(messages: Messages, command: PlanCommand, planned: PlanReport, target: str) -> None:
    """Write the plan, or the requested form, and show the report."""
    from tessera.report import plan as report_plan
    from tessera.report import plan_json as report_plan_json

    explained = [report_plan.explain_text(planned, s, page_width()) for s in command.steps]
    messages.show(planned.diagnostics)
    if command.emit == "launch":
        write_data(report_plan.launch_text(planned.plan).encode(), target, Kind.PROGRAMS)
    elif command.emit == "cuda-python":
        _write_programs(planned, target)
    elif target == "-":
        _write_plan(planned, target)
    elif command.as_json:
        write_text(report_plan_json.plan_json(planned, command.steps))
    else:
        write_text(report_plan.plan_text(planned, target, page_width()) + "".join(explained))


def _write_programs(planned: PlanReport, folder: str) -> None:
    """A Python program per device, and what they share."""
    from tessera.driver.cuda_python import WRITTEN_BY, cuda_python_files

    files = cuda_python_files(planned.plan, planned.setting)
    data = {name: text.encode("utf-8", "surrogateescape") for name, text in files.items()}
    write_folder(folder, data, WRITTEN_BY.encode())
    runs = (Path(folder, name) for name in files if Path(name).name == "run.py")
    said = ", ".join(f"`python {render.safe(str(path))} --help`" for path in runs)
    write_text(f"programs written to {render.safe(folder)}: {said}\n")


def _traces(given: tuple[str, ...]) -> tuple[str, ...]:
    """The traces as typed, those that a config file stands for, or the kernel graph here."""
    if not given:
        return (_only_graph(),)
    if len(given) == 1 and Path(given[0], "config.json").is_file():
        given = (f"hf:{given[0]}",)
    if not any(name.startswith("hf:") for name in given):
        return given
    if len(given) > 1:
        raise WrongOption("a config file makes all traces itself: give nothing beside it")
    from tessera.driver.fleet.config_steps import write_steps

    folder = tempfile.TemporaryDirectory()
    click.get_current_context().call_on_close(folder.cleanup)
    return write_steps(given[0], folder.name)


def _only_graph() -> str:
    """The one kernel graph in this folder."""
    from tessera.driver.plan import graphs_in

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
