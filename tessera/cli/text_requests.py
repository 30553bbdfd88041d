"""Options of commands that take requests for text: `simulate`, `bench` and `serve`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import click

from tessera.backend.known_backends import BackendName
from tessera.cli.console import sequences_option, weights_option
from tessera.cli.given import Typed
from tessera.cli.hosts_given import ADDRESS_HELP
from tessera.driver.options import WrongOption
from tessera.frontend.machine.quantities import parse_time_ns
from tessera.output import Kind, check_output

if TYPE_CHECKING:
    from tessera.driver.serve.options import ArrivingText
    from tessera.driver.serve.policies import SwitchRule

_DIGITS = 12
"""Of a number of tokens: more than any context."""

_Command = TypeVar("_Command", bound=Callable[..., object])


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCommand:
    """What requests for text are read from, and where they are written to."""

    file: str
    arrivals: str | None = None
    arrivals_out: str | None = None
    slo: dict[str, float] | None = None
    as_json: bool = False

    def __post_init__(self) -> None:
        if self.arrivals is None:
            raise WrongOption("requests for text come by {arrivals}")

    def prepare(self, given: Typed) -> tuple[ArrivingText, tuple[str, ...]]:
        """The requests; they are written first where that is asked for."""
        from tessera.driver.serve.measures import Slo
        from tessera.driver.serve.options import ArrivingText

        if self.arrivals_out is not None:
            check_output(self.arrivals_out, Kind.ARRIVALS, (self.file, self.arrivals))
        typed = replace(given, values=given.values | {"slo": Slo(**(self.slo or {}))})
        arriving = typed.record(ArrivingText)
        arrivals = arriving.read()
        arriving = replace(arriving, arrivals=arrivals)
        if self.arrivals_out is None:
            return arriving, ()
        from tessera.frontend.arrivals.write_mooncake import write_mooncake

        wanted = arriving.wanted(arrivals)
        write_mooncake(self.arrivals_out, ((w.at_ns, w.prompt, w.answer) for w in wanted))
        return arriving, (self.arrivals_out,)


steps_option = click.option(
    "--steps",
    metavar="FILE|names",
    help="What the inputs of the traces are, for plans that generate text (docs/guides/serve.md); "
    "`names`: what they are named after. Without it, NAME.steps.json beside the plan.",
)
burst_option = click.option(
    "--burst",
    type=click.IntRange(1),
    metavar="N",
    help="At most so many prefill steps between two decode steps of a batch.  [default: 1]",
)


def _tokens(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> tuple[int, int] | None:
    if value is None:
        return None
    first, mark, second = value.partition(":")
    parts = [
        int(text) if text.isdecimal() and len(text) <= _DIGITS else 0 for text in (first, second)
    ]
    if not (mark and all(parts)):
        raise click.BadParameter("it takes two numbers above 0, such as 512:128")
    return parts[0], parts[1]


def _limits(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> dict[str, float] | None:
    if value is None:
        return None
    limits = {}
    for part in value.split(","):
        name, _, text = part.strip().partition("=")
        limit = parse_time_ns(text)
        if name not in ("ttft", "tpot") or name in limits or not limit:
            raise click.BadParameter("it takes limits such as ttft=500ms,tpot=50ms")
        limits[name] = limit
    return {f"{name}_ns": limit for name, limit in limits.items()}


tokens_option = click.option(
    "--tokens",
    callback=_tokens,
    metavar="IN:OUT",
    help="Tokens of prompt and answer, where the arrivals do not say: 512:128.",
)
slo_option = click.option(
    "--slo",
    callback=_limits,
    metavar="ttft=TIME,tpot=TIME",
    help="Limits that a good request keeps: ttft=500ms,tpot=50ms.",
)


def _rule(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> SwitchRule | None:
    if value is None:
        return None
    from tessera.driver.serve.policies import SwitchRule

    amounts: dict[str, float] = {}
    for part in value.split(","):
        name, _, text = part.strip().partition("=")
        key = {"window": "window_ns", "dwell": "dwell_ns"}.get(name, name)
        amount = parse_time_ns(text) if key != name else _number(text)
        if key not in ("window_ns", "dwell_ns", "high", "low") or key in amounts or amount is None:
            raise click.BadParameter("it takes such as window=3s,high=0.6,low=0.4,dwell=2s")
        amounts[key] = amount
    return SwitchRule(**amounts)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


switch_option = click.option(
    "--switch",
    callback=_rule,
    metavar="window=TIME,high=X,low=X,dwell=TIME",
    help="When requests are given the policy for throughput and when the one for latency, for "
    "plans with both (docs/concepts/switching.md).",
)


def engine_options(command: _Command) -> _Command:
    """Where and how a plan runs that answers requests for text."""
    for option in reversed(
        (
            click.option(
                "--backend",
                type=click.Choice([name.value for name in BackendName]),
                help="Where to run the plan, as for `tessc run`.",
            ),
            click.option(
                "--hosts",
                type=click.Path(),
                metavar="PATH",
                help="Run the plan on processes of the hosts in this file; its commands are run.",
            ),
            click.option("--address", metavar="HOST:PORT|PATH", help=ADDRESS_HELP),
            click.option("--slots", type=click.IntRange(1), metavar="N", help="Steps in flight."),
            sequences_option(None, "Copies of the states: batches that go side by side."),
            click.option(
                "--policy",
                metavar="NAME",
                help="Serve with this policy of the plan alone; without it both of two are ready.",
            ),
            switch_option,
            weights_option,
        )
    ):
        command = option(command)
    return command


def text_options(command: _Command) -> _Command:
    """Options of requests for text that come at given times."""
    for option in reversed(
        (
            steps_option,
            tokens_option,
            slo_option,
            burst_option,
            click.option(
                "--arrivals-out",
                type=click.Path(),
                metavar="PATH",
                help="Also write the requests as Mooncake's lines of JSON.",
            ),
        )
    ):
        command = option(command)
    return command
