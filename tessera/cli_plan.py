"""`tessc plan`: place the steps of a trace on GPUs, and say what that is predicted to bring."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from tessera.diagnostics import TesseraError, error
from tessera.messages import Messages, form_option, write_data

DEFAULT_LINK = "100Gb/s"

if TYPE_CHECKING:
    from tessera.ir.machine import Machine
    from tessera.planning import PlanReport


@click.command(short_help="Place the steps of a trace on GPUs.")
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("--gpus", metavar="LIST", help="The GPUs, such as `a100,l40s` or `2xa100`.")
@click.option("--machine", type=click.Path(), metavar="PATH", help="A machine file, in TOML.")
@click.option(
    "--link", default=DEFAULT_LINK, show_default=True, help="nvlink, pcie4, or a bandwidth."
)
@click.option(
    "--objective",
    type=click.Choice(["throughput", "latency", "cost"]),
    default="throughput",
    show_default=True,
    help="What to make best.",
)
@click.option(
    "--slots", type=click.IntRange(1, 64), help="Requests under way; default 4 if they fit."
)
@click.option(
    "--gap",
    type=click.FloatRange(0.0, 1.0),
    default=0.001,
    show_default=True,
    help="Stop when the plan is proven to be this near the best.",
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
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.option("--emit", type=click.Choice(["lp"]), help="Print the integer program, and no plan.")
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    default="plan.tsp",
    show_default=True,
    metavar="PATH",
    help="Where to write the plan.",
)
@form_option
@click.pass_obj
def plan(
    messages: Messages,
    file: str,
    gpus: str | None,
    machine: str | None,
    link: str,
    objective: str,
    slots: int | None,
    gap: float,
    prices: tuple[str, ...],
    memory: tuple[str, ...],
    profiles: tuple[str, ...],
    pins: tuple[str, ...],
    forbids: tuple[str, ...],
    as_json: bool,
    emit: str | None,
    output: str,
    form: str,
) -> int:
    """Place the steps of the trace FILE on GPUs, within their memory.

    Prints the plan beside what one GPU, data parallelism and other splits would give, with a bound
    that no plan beats, and writes it to a file. If splitting does not pay, the plan does not split.
    Without `--profile`, durations come from data sheets: take predictions with care.

    \b
    Examples:
      tessc plan trace.ptx --gpus a100,l40s
      tessc plan trace.ptx --gpus 2xa100,l40s --objective cost --price a100=1.80
      tessc plan trace.ptx --gpus h200:84sm,h200:48sm --json
    """
    from tessera import planning
    from tessera.ir.plan_text import print_plan

    if (gpus is None) == (machine is None):
        raise click.UsageError("give the GPUs with either `--gpus` or `--machine`")
    if machine is not None and (prices or memory or link != DEFAULT_LINK):
        raise click.UsageError("a machine file says links, prices and memory itself")
    messages = replace(messages, form=form)
    try:
        options = planning.PlanOptions(
            gpus=gpus or "",
            machine=None if machine is None else _machine(machine),
            link=link,
            objective=objective,
            slots=slots,
            gap=gap,
            prices=tuple(_price(one) for one in prices),
            memory=tuple(_memory(one) for one in memory),
            profiles=profiles,
            pins=pins,
            forbids=forbids,
        )
        if emit == "lp":
            write_data(planning.emit_lp(file, options).encode(), "-")
            return 0
        report = planning.plan(file, options)
        write_data(print_plan(report.plan).encode(), output)
    except TesseraError as failure:
        messages.show(failure.diagnostics)
        return failure.exit_code
    messages.show(report.diagnostics)
    text = _json(report) if as_json else _text(report, output)
    write_data(text.encode(errors="replace"), "-")
    return 0


def _machine(path: str) -> Machine:
    from tessera.frontend.machine_file import parse_machine
    from tessera.frontend.readfile import read_source

    return parse_machine(read_source(path).text, path)


def _price(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise _bad_override("--price", text, "a100=1.80") from None


def _memory(text: str) -> tuple[str, int]:
    from tessera.frontend.quantities import parse_bytes

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


def _json(report: PlanReport) -> str:
    data = {"schema": "tessera-plan/1", **asdict(report.plan)}
    return json.dumps(data, indent=2, default=lambda kind: kind.value) + "\n"


def _text(report: PlanReport, output: str) -> str:
    from tessera.frontend.gpus import describe_card
    from tessera.frontend.quantities import format_bytes

    plan = report.plan
    lines = [f"machine, joined by {plan.link}:"]
    lines += [f"  {describe_card(card)}" for card in report.machine.cards]
    sources = ", ".join(f"{count} from {source.value}" for source, count in report.sources)
    lines.append(f"durations: {sources}")
    split = any(len(r.lowered.devices) > 1 for r in plan.replicas)
    said = "" if split else ": splitting a request does not pay"
    lines.append(
        f"plan: {plan.strategy}, for {plan.objective}, {plan.replicas[0].slots} slots{said}"
    )
    lines.append(f"  proven within {plan.gap:.2%} of the best (search ended by {plan.ended})")
    for number, replica in enumerate(plan.replicas):
        transfers = [move for placed in replica.traces for move in placed.transfers]
        moved = sum(transfer.bytes for transfer in transfers)
        lines.append(
            f"  replica {number}: {replica.share:.1%} of requests, {len(transfers)} transfers, "
            f"{format_bytes(moved)} moved"
        )
        for device in replica.lowered.devices:
            steps = [step for placed in replica.traces for step in placed.steps]
            here = [step for step in steps if step.device == device]
            spent = sum(step.predicted_ns for step in here)
            lines.append(f"    {device}: {len(here)} steps, {spent / 1e3:.1f} us")
    for card in plan.cards:
        used, room = format_bytes(card.used_bytes), format_bytes(card.capacity_bytes)
        lines.append(f"  memory of {card.name}: {used} of {room}")
    lines.append("")
    lines += _table(report)
    lines.append(f"wrote {output}")
    return "\n".join(lines) + "\n"


def _table(report: PlanReport) -> list[str]:
    plan = report.plan
    rows = [("", "requests/s", "latency us", "usd per million")]
    every = [
        (f"{plan.strategy} (this plan)", plan.period_ns, plan.latency_ns, plan.usd_per_request),
        *((b.name, b.period_ns, b.latency_ns, b.usd_per_request) for b in plan.baselines),
    ]
    for name, period, latency, usd in every:
        rate = 1e9 / period if period else 0.0
        rows.append((name, f"{rate:.1f}", f"{latency / 1e3:.1f}", f"{usd * 1e6:.4f}"))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return [
        f"  {row[0]:<{widths[0]}}  " + "  ".join(map(str.rjust, row[1:], widths[1:]))
        for row in rows
    ]
