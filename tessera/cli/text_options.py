"""Options of commands that take requests for text: `simulate`, `bench`, `serve` and `fleet`.

In: nothing. Out: decorators for click commands, and what `bench` and `serve` make of them: the
requests that come (`TextCommand`) and the engine that answers them (`EngineCommand`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from tessera.backend.known_backends import BackendName
from tessera.cli.given import Typed
from tessera.cli.options import (
    Option,
    finite,
    hosts_options,
    on_hosts,
    sequences_option,
    together,
    weights_option,
)
from tessera.frontend.machine.quantities import parse_time_ns
from tessera.ir.options import WrongOption
from tessera.output import Kind, check_output

if TYPE_CHECKING:
    from tessera.driver.serve.engine import Engine
    from tessera.driver.serve.options import ArrivingText
    from tessera.driver.serve.policies import SwitchRule

_MOST_DIGITS = 12
"""Most digits of a number of tokens: more than any context has."""


def _tokens(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> tuple[int, int] | None:
    if value is None:
        return None
    first, mark, second = value.partition(":")
    parts = [
        int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else 0
        for text in (first, second)
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


def arrivals_options(text: str, requests: str = "Take the first N arrivals.") -> Option:
    """`--arrivals`, `--speed`, `--requests` and `--seed`: when requests come."""
    kind = click.FloatRange(min=0, min_open=True)
    faster = "Let arrivals come this many times as fast."
    return together(
        click.option("--arrivals", metavar="FILE|poisson:RATE/s[:COUNT]", help=text),
        click.option("--speed", type=kind, callback=finite, metavar="FACTOR", help=faster),
        click.option("--requests", type=click.IntRange(1), metavar="N", help=requests),
        click.option(
            "--seed", type=click.IntRange(0), metavar="N", help="Seed of all that is random; 0."
        ),
    )


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
    help="Prefill steps between two decode steps of a batch, at most.  [default: 1]",
)
reuse_option = click.option(
    "--no-reuse",
    "reuse",
    flag_value=False,
    default=None,
    help="Compute every prompt from its beginning, also where blocks of the cache hold it.",
)
switch_option = click.option(
    "--switch",
    callback=_rule,
    metavar="window=TIME,high=X,low=X,dwell=TIME",
    help="When requests are given the policy for throughput and when the one for latency, for "
    "plans with both (docs/concepts/switching.md).",
)
text_options = together(
    steps_option,
    tokens_option,
    slo_option,
    burst_option,
    reuse_option,
    click.option(
        "--arrivals-out",
        type=click.Path(),
        metavar="PATH",
        help="Also write the requests as Mooncake's lines of JSON.",
    ),
)
engine_options = together(
    click.option(
        "--backend",
        type=click.Choice([name.value for name in BackendName]),
        help="Where to run the plan, as for `tessc run`.",
    ),
    hosts_options("Run the plan on processes of the hosts in this file; its commands are run."),
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
        """The requests, which are written to a file first if asked."""
        from tessera.driver.serve.measures import Slo
        from tessera.driver.serve.options import ArrivingText

        if self.arrivals_out is not None:
            check_output(self.arrivals_out, Kind.ARRIVALS, (self.file, self.arrivals))
        arriving = given.having(slo=Slo(**(self.slo or {}))).record(ArrivingText)
        arrivals = arriving.read()
        arriving = replace(arriving, arrivals=arrivals)
        if self.arrivals_out is None:
            return arriving, ()
        from tessera.frontend.arrivals.write_mooncake import write_mooncake

        wanted = arriving.wanted(arrivals)
        write_mooncake(self.arrivals_out, ((w.at_ns, w.prompt, w.answer, w.pieces) for w in wanted))
        return arriving, (self.arrivals_out,)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCommand:
    """Which plan answers requests for text, and where and how it runs."""

    file: str
    steps: str | None = None
    burst: int = 1
    reuse: bool = True
    backend: str = BackendName.AUTO
    slots: int | None = None
    sequences: int | None = None
    policy: str | None = None
    switch: SwitchRule | None = None
    weights: str | None = None
    hosts: str | None = None
    address: str | None = None
    throttle_bytes_per_s: float | None = None
    data: tuple[str, ...] = ()

    @contextmanager
    def engine(self, **more: Any) -> Iterator[Engine]:
        """The engine of the plan, while it is needed; `more` are further arguments of it."""
        from tessera.driver.serve.engine import Engine

        with (
            on_hosts(self.hosts, self.address) as hosts,
            Engine(
                self.file,
                steps=None if self.steps == "names" else self.steps,
                burst=self.burst,
                reuse=self.reuse,
                backend=self.backend,
                slots=self.slots,
                sequences=self.sequences,
                policy=self.policy,
                switch=self.switch,
                weights=self.weights,
                hosts=hosts,
                throttle_bytes_per_s=self.throttle_bytes_per_s,
                data=list(self.data) or None,
                **more,
            ) as engine,
        ):
            yield engine
