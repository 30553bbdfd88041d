"""Options of commands that price steps on GPUs: prices, memory, measured times, tables."""

from __future__ import annotations

from collections.abc import Callable

import click

from tessera.cli.complete import complete_price


def gpu_options(command: Callable[..., object]) -> Callable[..., object]:
    """`--price`, `--memory`, `--profile` and `--tables` of a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = (
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
)
