"""`tessc run`: run a trace and keep what it computes."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from tessera.diagnostics import TesseraError
from tessera.messages import Messages, form_option, write_data

if TYPE_CHECKING:
    from tessera.driver import RunReport


@click.command(short_help="Run a trace on the CPU backend.")
@click.argument("file", type=click.Path(allow_dash=True))
@click.option(
    "--outputs",
    type=click.Path(),
    metavar="PATH",
    help="Write outputs and states, by buffer name, to this `.npz` or `.safetensors` file.",
)
@click.option("--arch", metavar="ARCH", help="Run this variant of the modules, such as sm_90a.")
@click.option(
    "--data",
    type=click.Path(),
    metavar="PATH",
    help="Take the contents of buffers from this file instead of the one the trace names.",
)
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
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@form_option
@click.pass_obj
def run(
    messages: Messages,
    file: str,
    outputs: str | None,
    arch: str | None,
    data: str | None,
    seed: int,
    max_steps: int | None,
    as_json: bool,
    form: str,
) -> int:
    """Run the trace FILE on one virtual device of the CPU backend; `-` reads standard input.

    Launches, memsets and memcpys run in file order. What the kernels print goes to standard
    output, before the report. A module with several variants runs the one for the oldest
    architecture unless `--arch` says otherwise.

    \b
    Examples:
      tessc run trace.ptx --outputs out.npz
      tessc run trace.ptx --arch sm_90a --data contents.npz
    """
    from tessera import driver

    messages = replace(messages, form=form)
    options = driver.RunOptions(arch=arch, seed=seed, max_steps=max_steps, data=data)
    try:
        with _progress(messages) as on_step:
            report = driver.run(file, options, on_step)
        if outputs is not None:
            driver.write_outputs(report, outputs)
    except TesseraError as failure:
        messages.show(failure.diagnostics)
        return failure.exit_code
    messages.show(report.diagnostics)
    text = _json(report) if as_json else report.result.output + _text(report, outputs)
    write_data(text.encode(errors="replace"), "-")
    return 0


@contextmanager
def _progress(messages: Messages) -> Iterator[Any]:
    """A bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty() or messages.form == "json":
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    columns = ("running", BarColumn(), MofNCompleteColumn(), "steps", TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("run", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _kept(report: RunReport) -> list[dict[str, Any]]:
    return [
        {
            "name": buffer.name,
            "role": buffer.role.value,
            "bytes": buffer.bytes,
            "dtype": None if buffer.dtype is None else buffer.dtype.value,
            "shape": None if buffer.shape is None else list(buffer.shape),
            "sha256": hashlib.sha256(content.tobytes()).hexdigest(),
        }
        for buffer, content in report.kept()
    ]


def _json(report: RunReport) -> str:
    launches = [
        {"id": record.id, "kernel": record.kernel, "steps": record.result.steps}
        for record in report.result.launches
    ]
    data = {
        "schema": "tessera-run/1",
        "trace": report.name,
        "backend": "cpu",
        "seconds": round(report.seconds, 3),
        "launches": launches,
        "buffers": _kept(report),
        "printed": report.result.output,
    }
    return json.dumps(data, indent=2) + "\n"


def _text(report: RunReport, outputs: str | None) -> str:
    count = len(report.result.launches)
    launches = "1 launch" if count == 1 else f"{count} launches"
    lines = [f"ran {launches} of {report.name} on the CPU backend in {report.seconds:.2f} s"]
    kept = _kept(report)
    width = max((len(row["name"]) for row in kept), default=0)
    for row in kept:
        shape = "" if row["shape"] is None else " " + "x".join(map(str, row["shape"]))
        kind = "" if row["dtype"] is None else f", {row['dtype']}{shape}"
        digest = row["sha256"][:16]
        size = f"{row['bytes']} bytes{kind}"
        lines.append(f"  {row['role']:<6} {row['name']:<{width}}  {size}, sha256 {digest}")
    if outputs is not None:
        lines.append(f"wrote {outputs}")
    return "\n".join(lines) + "\n"
