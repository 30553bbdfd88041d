"""`tessc run`: run a trace or a plan and keep what it computes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import TYPE_CHECKING

import click

from tessera.backend.known_backends import BackendName
from tessera.cli.console import Messages, ReaderGone, page_width, silence, write_text
from tessera.cli.given import Typed, reads_options
from tessera.cli.options import (
    data_option,
    data_root_option,
    form_option,
    hosts_options,
    json_option,
    on_hosts,
    seconds_option,
    sequences_option,
    throttle_option,
    timeline_option,
    weights_option,
)
from tessera.cli.progress import Progress

if TYPE_CHECKING:
    from tessera.driver.run.options import KeepOptions, PlanRunOptions
    from tessera.driver.run.run_trace import RunOptions

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
@click.option(
    "--arch", metavar="ARCH", help="Run this variant of a trace's modules, such as sm_90a."
)
@data_option(
    "Take the contents of buffers from this file instead of the one the trace names; of one "
    "trace of a plan's several, if it is named. May be repeated."
)
@data_root_option
@weights_option
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
    help="Where to run a plan; auto takes the GPUs if all are here, the CPU if none is.",
)
@click.option(
    "--map",
    "targets",
    metavar="MAP",
    help="What stands for the devices of a plan: `a100=cuda:0,l40s=cuda:1:48sm` or `a100=cpu`.",
)
@hosts_options("Run a plan on processes of the hosts in this file; its commands are run.")
@click.option(
    "--retry",
    is_flag=True,
    help="With `--hosts`: replay requests that were lost with a host, where they have no states.",
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
@sequences_option(None, "Copies of a plan's states, one per sequence.")
@click.option(
    "--policy", metavar="NAME", help="Which of the policies of a plan to serve with; the last one."
)
@timeline_option
@throttle_option
@seconds_option(
    "--time-limit",
    "limit_s",
    "Give up when no device has worked on a request for this long; 60 unless given.",
)
@json_option
@form_option
@reads_options
def run(messages: Messages, given: Typed) -> int:
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
    from tessera.driver.run.open_plan import is_plan
    from tessera.driver.run.options import KeepOptions, PlanRunOptions
    from tessera.driver.run.run_trace import RunOptions

    command = given.record(RunCommand)
    with terminable():
        if command.file != "-" and (is_plan(command.file) or command.file.endswith(".tsp")):
            given.refuse_others("traces", RunCommand, PlanRunOptions, KeepOptions)
            options = given.record(PlanRunOptions)
            with on_hosts(options.hosts, command.address) as hosts:
                placed = replace(options, hosts=hosts)
                return _run_plan(messages, command, placed, given.record(KeepOptions))
        if command.address is not None:
            raise click.UsageError("`--address` is for plans, with `--hosts`")
        if command.file == "-" or os.path.exists(command.file):
            make = "; `tessc plan` makes a plan of a trace"
            given.refuse_others("plans", RunCommand, RunOptions, hint=make)
        return _run_trace(messages, command, given.record(RunOptions))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCommand:
    """What `tessc run` reads, where results go, and how the report is shown."""

    file: str
    outputs: str | None = None
    address: str | None = None
    as_json: bool = False


def _run_trace(messages: Messages, command: RunCommand, options: RunOptions) -> int:
    from tessera.driver.run.run_trace import check_outputs, run_trace, write_outputs
    from tessera.report.trace_run import ran_json, ran_text

    if command.outputs is not None:
        check_outputs(command.file, options, command.outputs)
    with Progress(messages, f"reading {command.file}") as shown:
        report = run_trace(command.file, options, shown.hear)
    if command.outputs is not None:
        write_outputs(report, command.outputs)
    messages.show(report.diagnostics)
    as_text = report.result.output + ran_text(report, command.outputs, page_width())
    write_text(ran_json(report) if command.as_json else as_text)
    return 0


def _run_plan(
    messages: Messages, command: RunCommand, options: PlanRunOptions, keep: KeepOptions
) -> int:
    from tessera.driver.run.keep_run import prepare_kept, run_kept
    from tessera.report.run import run_json, run_text

    with Progress(messages, f"reading {command.file}") as shown:
        prepared = prepare_kept(command.file, options, keep, shown.hear)
    messages.show(prepared.notes)
    with Progress(messages, "starting the devices") as shown:
        kept = run_kept(prepared, keep, shown.hear)
    messages.show([d for d in kept.outcome.diagnostics if d not in prepared.notes])
    messages.show(kept.problems)
    if command.as_json:
        text = run_json(kept.outcome, kept.verdict)
    else:
        printed = "".join(done.printed for done in kept.outcome.done.values())
        text = printed + run_text(kept.outcome, kept.verdict, kept.written, page_width())
    messages.show(kept.outcome.fault)
    try:
        write_text(text)
    except (OSError, ReaderGone):
        if not kept.exit_code:
            raise
        silence(sys.stdout)  # the exit code of the run matters more
    return kept.exit_code


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM and SIGHUP end a run as Ctrl-C does: job queues and closed terminals send them.

    A second signal within moments counts as the same one, because `timeout` sends SIGTERM twice: it
    must not prevent finished results from being written. Ignored signals (`nohup`) stay ignored.
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
