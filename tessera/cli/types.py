"""Checks of values that click has no type for; what they refuse is wrong usage."""

from __future__ import annotations

from math import isfinite

import click

from tessera.frontend.machine.quantities import parse_bandwidth


def finite(
    _context: click.Context, _parameter: click.Parameter, value: float | None
) -> float | None:
    """A finite number of seconds, if one was typed."""
    if value is not None and not isfinite(value):
        raise click.BadParameter("it must be a finite number of seconds")
    return value


def finite_number(
    _context: click.Context, _parameter: click.Parameter, value: float | None
) -> float | None:
    """A finite number, if one was typed."""
    if value is not None and not isfinite(value):
        raise click.BadParameter("it must be a finite number")
    return value


def speed(_context: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    """A bandwidth with its unit in bytes per second, if one was typed."""
    bytes_per_s = None if value is None else parse_bandwidth(value)
    if value is not None and not bytes_per_s:
        raise click.BadParameter("it takes a speed, such as 12.5GB/s")
    return bytes_per_s
