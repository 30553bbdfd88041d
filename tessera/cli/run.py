"""`tessc run`: run a trace or a plan and keep what it computes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import isfinite
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, cast

import click

from tessera.backend.known_backends import BackendName
from tessera.cli.console import (
    Forgiving,
    Messages,
    ReaderGone,
    at_terminal,
    data_root_option,
    form_option,
    page_width,
    sequences_of,
    sequences_options,
    silence,
    write_data,
)
from tessera.diagnostics import ExitCode, TesseraError, error
from tessera.output import Kind, check_output, is_same_place

if TYPE_CHECKING:
    from tessera.driver.run.outcome import Outcome
    from tessera.driver.run.run_plan import PlanRunOptions

_ENDS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_SAME_WISH_S = 2.0


@click.command(short_help="Run a trace or a plan.")
@click.argument("file", type=click.Path(allow_dash=True))
@click.option(
    "--outputs",
    type=click.Path(),
    metavar="PATH",
    help="Write outputs and states, by buffer name, to this `.npz` or `.safetensors` file.",
)
@click.option("--arch", metavar="ARCH", help="Run this variant of a trace's modules, say sm_90a.")
@click.option(
    "--data",
    multiple=True,
    type=click.Path(),
    metavar="[TRACE=]PATH",
    help="Take the contents of buffers from this file instead of the one the trace names; of one "
    "trace of a plan's several, if it is named. May be repeated.",
)
@data_root_option
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Seed of the contents of inputs, weights and states that no file gives.",
)
@click.option(
    "--max-steps",
    type=click.IntRange(1),
    metavar="N",
    help="Stop a launch after this many scheduler steps: it is taken to loop for ever.",
)
@click.option(
    "--requests",
    type=click.IntRange(1),
    metavar="N",
    help="Run this many requests of a plan, each with its own inputs; 8 unless `--inputs` has "
    "a number of them.",
)
@click.option(
    "--backend",
    type=click.Choice([name.value for name in BackendName]),
    help="Where to run a plan; auto takes the GPUs if all are there, the CPU if there is none.",
)
@click.option(
    "--map",
    "mapping",
    metavar="MAP",
    help="What stands for the devices of a plan: `a100=cuda:0,l40s=cuda:1:48sm` or `a100=cpu`.",
)
@click.option(
    "--verify",
    is_flag=True,
    help="Run every request on one device too, and compare; also with what PyTorch computed, if "
    "the capture recorded it.",
)
@click.option(
    "--inputs",
    type=click.Path(),
    metavar="PATH",
    help="Take inputs of requests from this file; a leading axis counts requests.",
)
@click.option("--slots", type=click.IntRange(1), metavar="N", help="Requests of a plan in flight.")
@sequences_options(None, "Copies of a plan's states, one per sequence.")
@click.option("--policy", metavar="NAME", help="Which of the policies of a plan to serve with.")
@click.option(
    "--timeline",
    type=click.Path(),
    metavar="PATH",
    help="Write what every device did when, as a file that Perfetto opens.",
)
@click.option(
    "--throttle",
    metavar="SPEED",
    help="Slow transfers between devices down to this speed, such as 12.5GB/s.",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Give up when no device does anything for a request for so long; 60 unless given.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@form_option
@click.pass_obj
def run(messages: Messages, /, file: str, form: str, as_json: bool, **given: Any) -> int:
    """Run FILE, a trace or a plan (`.tsp`); `-` reads a trace from standard input.

    A trace runs on one virtual device of the CPU backend: launches, memsets and memcpys in file
    order, modules in the variant for the oldest architecture unless `--arch` says otherwise. What
    kernels print goes to standard output, before the report.

    A plan runs on all its devices at once, several requests in flight. It is checked first, as by
    `tessc check`. Without GPUs every device is a process of the CPU backend.

    \b
    Examples:
      tessc run trace.ptx --outputs out.npz
      tessc run plan.tsp --requests 32 --verify
      tessc run plan.tsp --map a100=cuda:0:84sm,l40s=cuda:0:48sm --timeline run.json
    """
    messages = replace(messages, form=form)
    from tessera.driver.run.open_plan import is_plan

    try:
        with terminable():
            if file != "-" and (is_plan(file) or file.endswith(".tsp")):
                _refuse(given, ("arch",), "traces")
                return _run_plan(messages, file, as_json, given)
            if file == "-" or os.path.exists(file):
                _refuse(given, _ONLY_PLANS, "plans")
            return _run_trace(messages, file, as_json, given)
    except TesseraError as failure:
        messages.show(failure.diagnostics)
        return failure.exit_code


_ONLY_PLANS = (
    "requests",
    "backend",
    "mapping",
    "verify",
    "inputs",
    "slots",
    "sequences",
    "lanes",
    "policy",
    "timeline",
    "throttle",
    "time_limit",
)


def _refuse(given: dict[str, object], names: tuple[str, ...], kind: str) -> None:
    """An option that would have no effect is more likely a slip than a wish."""
    for name in names:
        if given[name]:
            option = "map" if name == "mapping" else name.replace("_", "-")
            make = "; `tessc plan` makes a plan of a trace" if kind == "plans" else ""
            message = f"`--{option}` is for {kind} only{make}"
            raise click.UsageError(message, click.get_current_context())


# --- traces ------------------------------------------------------------------------------------


def _run_trace(messages: Messages, file: str, as_json: bool, given: dict[str, Any]) -> int:
    from tessera.driver.run.run_trace import RunOptions, run_trace, write_outputs
    from tessera.frontend.contents.write import check_format
    from tessera.report.trace_run import ran_json, ran_text

    outputs, data = given["outputs"], given["data"]
    if len(data) > 1:
        raise click.UsageError("a trace has one file of contents: give `--data` once")
    if outputs is not None:
        check_format(outputs)
        check_output(outputs, Kind.RESULTS, (file, *data))
    options = RunOptions(
        arch=given["arch"],
        seed=given["seed"],
        max_steps=given["max_steps"],
        data=data[0] if data else None,
        data_root=given["data_root"],
    )
    with progress(messages, "steps") as on_step:
        report = run_trace(file, options, on_step)
    if outputs is not None:
        if report.program.resident is not None:
            resident = os.path.join(os.path.dirname(file), report.program.resident)
            check_output(outputs, Kind.RESULTS, [resident])
        write_outputs(report, outputs)
    messages.show(report.diagnostics)
    if as_json:
        text = ran_json(report)
    else:
        text = report.result.output + ran_text(report, outputs, page_width())
    write_data(text.encode(errors="replace"), "-")
    return 0


# --- plans -------------------------------------------------------------------------------------


def _run_plan(messages: Messages, file: str, as_json: bool, given: dict[str, Any]) -> int:
    from tessera.driver.run.data_files import data_paths
    from tessera.driver.run.recorded import check_recorded, files_of
    from tessera.driver.run.run_plan import prepare_run, run_prepared
    from tessera.driver.run.verify import verify_run
    from tessera.report import run as report_run

    if given["timeline"] == "-":
        raise click.UsageError("`--timeline` names a file: the report is on standard output")
    targets = _targets(given, (file, *data_paths(given["data"]), given["inputs"]))
    with messages.waiting(file):
        prepared = prepare_run(file, _plan_options(given))
        for path, kind in targets:
            check_output(path, kind, files_of(prepared))
        if given["verify"]:
            check_recorded(prepared)
    messages.show(prepared.notes)
    with progress(messages, "requests") as on_progress:
        outcome = run_prepared(prepared, on_progress)
    verdict, code, written = None, outcome.exit_code, []
    for write, path in ((_write_outputs, given["outputs"]), (_write_timeline, given["timeline"])):
        try:
            if path is not None:
                write(outcome, path)
                written.append(path)
        except TesseraError as failure:
            messages.show(failure.diagnostics)
            code = code or failure.exit_code
    if given["verify"] and outcome.done and code != ExitCode.INTERRUPTED:
        try:
            with progress(messages, "requests verified") as on_progress:
                verdict = verify_run(outcome, prepared, on_progress)
        except KeyboardInterrupt:
            messages.show([error("TSR5056", "interrupted before all requests were verified")])
            code = ExitCode.INTERRUPTED
        except TesseraError as failure:
            messages.show(failure.diagnostics)
            code = code or failure.exit_code
    if as_json:
        text = report_run.run_json(outcome, verdict)
    else:
        printed = "".join(done.printed for done in outcome.done.values())
        text = printed + report_run.run_text(outcome, verdict, written, page_width())
    messages.show(outcome.fault)
    try:
        write_data(text.encode(errors="replace"), "-")
    except (OSError, ReaderGone):
        if not code:
            raise
        silence(sys.stdout)  # how the run ended counts for more
    return code


def _targets(given: dict[str, Any], inputs: tuple[str | None, ...]) -> list[tuple[str, Kind]]:
    """The files that a run is to write, once they may be written."""
    from tessera.frontend.contents.write import check_format

    kinds = (("outputs", Kind.RESULTS), ("timeline", Kind.TIMELINE))
    targets = [(given[name], kind) for name, kind in kinds if given[name] is not None]
    if given["outputs"] is not None:
        check_format(given["outputs"])
    for path, kind in targets:
        check_output(path, kind, inputs)
    if len(targets) > 1 and is_same_place(targets[0][0], targets[1][0]):
        raise click.UsageError("`--outputs` and `--timeline` name the same file")
    return targets


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM and SIGHUP end a run as Ctrl-C does: job queues and closed terminals send them.

    What follows within moments is the same wish: `timeout` sends SIGTERM twice. It must not keep
    what has finished from being written. Signals that are ignored (`nohup`) stay so.
    """
    raised_s = -_SAME_WISH_S

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal raised_s
        before_s, raised_s = raised_s, time.monotonic()
        if raised_s - before_s >= _SAME_WISH_S:
            raise KeyboardInterrupt

    usual = {signal.SIG_DFL, signal.default_int_handler}
    ours = [signal_number for signal_number in _ENDS if signal.getsignal(signal_number) in usual]
    if threading.current_thread() is not threading.main_thread():
        ours = []
    before = {signal_number: signal.signal(signal_number, stop) for signal_number in ours}
    try:
        yield
    finally:
        for signal_number, handler in before.items():
            signal.signal(signal_number, handler)


def _plan_options(given: dict[str, Any]) -> PlanRunOptions:
    from tessera.backend.service import DEFAULT_LIMIT_S
    from tessera.driver.run.backends import parse_map
    from tessera.driver.run.run_plan import PlanRunOptions
    from tessera.frontend.machine.quantities import parse_bandwidth

    throttle = None if given["throttle"] is None else parse_bandwidth(given["throttle"])
    if given["throttle"] is not None and not throttle:
        raise click.UsageError("`--throttle` takes a speed, such as 12.5GB/s")
    if not isfinite(given["time_limit"] or 0.0):
        raise click.UsageError("`--time-limit` must be a finite number of seconds")
    return PlanRunOptions(
        requests=given["requests"],
        backend=given["backend"] or "auto",
        targets=parse_map(given["mapping"]),
        slots=given["slots"],
        sequences=sequences_of(given),
        policy=given["policy"],
        inputs=given["inputs"],
        data=given["data"] or None,
        data_root=given["data_root"],
        seed=given["seed"],
        max_steps=given["max_steps"],
        limit_s=given["time_limit"] or DEFAULT_LIMIT_S,
        throttle_bytes_per_s=throttle,
    )


def _write_outputs(outcome: Outcome, path: str) -> None:
    """What has finished, also of a run that ended early."""
    from tessera.driver.run.results import write_results

    write_results(outcome, path)


def _write_timeline(outcome: Outcome, path: str) -> None:
    from tessera.driver.run.timeline import timeline_json

    replicas = outcome.opened.replicas
    devices = list(dict.fromkeys(d for replica in replicas for d in replica.lowered.devices))
    write_data(timeline_json(outcome.events(), devices).encode(), path, Kind.TIMELINE)


@contextmanager
def progress(messages: Messages, what: str) -> Iterator[Any]:
    """A bar on standard error, if that is a terminal."""
    if not at_terminal() or messages.form == "json":
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        "running",
        BarColumn(),
        MofNCompleteColumn(),
        what,
        TimeElapsedColumn(),
        "left",
        TimeRemainingColumn(),
    )
    console = Console(file=cast("IO[str]", Forgiving()))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("run", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
