"""Options that several commands share, each declared once, and the checks of their values.

In: nothing. Out: decorators for click commands. A value that click has no type for is read by a
callback here; a value that a callback refuses is a usage error. `together` makes one decorator of
several options, in the order of the help text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite
from typing import TYPE_CHECKING

import click

from tessera.cli.complete import complete_gpus, complete_price
from tessera.frontend.machine.quantities import parse_bandwidth

if TYPE_CHECKING:
    from tessera.driver.hosts.kept_hosts import KeptHosts

Option = Callable[[Callable[..., object]], Callable[..., object]]
"""A decorator that adds an option to a command."""

DEFAULT_LINK = "100Gb/s"


def together(*options: Option) -> Option:
    """Several options as one decorator, in this order."""

    def add(command: Callable[..., object]) -> Callable[..., object]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


# --- values ------------------------------------------------------------------------------------


def finite(
    _context: click.Context, _parameter: click.Parameter, value: float | None
) -> float | None:
    """A finite number, if a value was typed."""
    if value is not None and not isfinite(value):
        raise click.BadParameter("it must be a finite number")
    return value


def _speed(_context: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    """A bandwidth in bytes per second, from a value with its unit, if typed."""
    bytes_per_s = None if value is None else parse_bandwidth(value)
    if value is not None and not bytes_per_s:
        raise click.BadParameter("it takes a speed, such as 12.5GB/s")
    return bytes_per_s


# --- what many commands have -------------------------------------------------------------------


def output_option(
    text: str, default: str | None = None, *, dash: bool = False, required: bool = False
) -> Option:
    """`-o`: the output path of a command; with `dash`, `-` is standard output."""
    return click.option(
        "-o",
        "--output",
        type=click.Path(allow_dash=dash),
        default=default,
        show_default=default is not None,
        required=required,
        metavar="PATH",
        help=text,
    )


def data_option(text: str) -> Option:
    """`--data`: files of contents, for all traces or for one of them."""
    kind = click.Path()
    return click.option("--data", multiple=True, type=kind, metavar="[TRACE=]PATH", help=text)


def seconds_option(name: str, field: str, text: str) -> Option:
    """A finite time above 0, in seconds."""
    kind = click.FloatRange(min=0, min_open=True)
    return click.option(name, field, type=kind, callback=finite, metavar="SECONDS", help=text)


def sequences_option(most: int | None, text: str) -> Option:
    """`--sequences`, and `--lanes`, its old spelling."""
    kind = click.IntRange(1, most)
    return click.option("--sequences", "--lanes", "sequences", type=kind, metavar="N", help=text)


json_option = click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
form_option = click.option(
    "--format",
    "form",
    type=click.Choice(["full", "concise", "json"]),
    default="full",
    show_default=True,
    help="How to show errors and warnings on standard error.",
)
data_root_option = click.option(
    "--data-root",
    type=click.Path(exists=True, file_okay=False),
    metavar="FOLDER",
    help="Follow files of contents that are links, as in caches of model hubs, to files below "
    "this folder.",
)
weights_option = click.option(
    "--weights",
    type=click.Path(),
    metavar="FOLDER",
    help="Take weights by name from the safetensors files of this checkpoint, as "
    "`save_pretrained` writes it; they are mapped, not copied.",
)
throttle_option = click.option(
    "--throttle",
    "throttle_bytes_per_s",
    callback=_speed,
    metavar="SPEED",
    help="Slow transfers between devices down to this speed, such as 12.5GB/s.",
)
timeline_option = click.option(
    "--timeline",
    "timeline_file",
    type=click.Path(),
    metavar="PATH",
    help="Write what every device did when, as a file that Perfetto opens.",
)


# --- GPUs to plan for --------------------------------------------------------------------------


def machine_options(gpus_text: str) -> Option:
    """`--gpus`, `--machine` and `--link`: the GPUs that a plan or a fleet is for."""
    return together(
        click.option("--gpus", metavar="LIST", help=gpus_text, shell_complete=complete_gpus),
        click.option(
            "--machine",
            type=click.Path(),
            metavar="PATH",
            help="A machine file, in TOML, or what `tessc selftest` wrote.",
        ),
        click.option(
            "--link",
            metavar="LINK",
            default=DEFAULT_LINK,
            show_default=True,
            help="nvlink, pcie4, a bandwidth, or none.",
        ),
    )


library_option = click.option(
    "--library",
    metavar="NAME",
    help="The library whose kernels will run: vllm, trtllm or sglang. Without it, bars cover "
    "all of them.",
)

priced_options = together(
    click.option(
        "--price",
        "prices",
        multiple=True,
        metavar="GPU=USD",
        help="Price per hour.",
        shell_complete=complete_price,
    ),
    click.option(
        "--memory",
        multiple=True,
        metavar="GPU=SIZE",
        help="Memory, such as `l40s=40GB`.",
        shell_complete=complete_price,
    ),
    click.option(
        "--profile",
        "profiles",
        multiple=True,
        type=click.Path(),
        metavar="PATH",
        help="Measured times, in JSON. May be repeated; later files win.",
    ),
    click.option(
        "--tables/--no-tables",
        default=True,
        show_default=True,
        help="Look times up in tables of measured kernels, where GPU and sizes are in one.",
    ),
    library_option,
)


# --- hosts -------------------------------------------------------------------------------------


def hosts_options(text: str) -> Option:
    """`--hosts` and `--address`: where the processes of a run come from."""
    return together(
        click.option("--hosts", type=click.Path(), metavar="PATH", help=text),
        click.option(
            "--address",
            metavar="HOST:PORT|PATH",
            help="With `--hosts`: use a running Ray cluster, or the one that `tessc cluster up` "
            "wrote to this file. The cluster is left running.",
        ),
    )


@contextmanager
def on_hosts(
    hosts: str | KeptHosts | None, address: str | None
) -> Iterator[str | KeptHosts | None]:
    """The file of hosts, or processes of a cluster, if one is named."""
    if address is None:
        yield hosts
        return
    if not isinstance(hosts, str):
        raise click.UsageError("`--address` goes with `--hosts`, which says what is on which host")
    from tessera.driver.hosts.kept_hosts import KeptHosts

    with KeptHosts(hosts, address=address) as kept:
        yield kept
