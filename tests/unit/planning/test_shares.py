"""Shares of devices against enumeration: the least time, within memory."""

from __future__ import annotations

import itertools
import random

import pytest

from tessera.planning.division.chains import ShareClass
from tessera.planning.division.shares import best_shares
from tests.helpers.share import share

_GAP = 2.5e-3


def _random_case(seed: int) -> tuple[list[ShareClass], list[float], list[float]]:
    draw = random.Random(seed)
    devices = draw.choice((2, 2, 3))
    classes = [
        ShareClass(
            chains=tuple(((0, step),) for step in range(draw.randint(1, 4))),
            units=draw.randint(2, 7 if devices == 2 else 4),
            fixed_ns=tuple(draw.uniform(0, 5) for _ in range(devices)),
            ns=tuple(draw.uniform(10, 100) for _ in range(devices)),
            bytes=draw.randint(0, 50),
            lane_bytes=draw.randint(0, 10),
        )
        for _ in range(draw.randint(1, 3))
    ]
    total = sum((one.bytes + 2 * one.lane_bytes) * len(one.chains) for one in classes)
    room = [draw.uniform(0.3, 1.1) * total for _ in range(devices)]
    return classes, [draw.uniform(0, 50) for _ in range(devices)], room


def _deals(units: int, devices: int) -> list[tuple[int, ...]]:
    rows = itertools.product(range(units + 1), repeat=devices)
    return [row for row in rows if sum(row) == units]


def _value(
    classes: list[ShareClass],
    counts: tuple[tuple[int, ...], ...],
    fixed_ns: list[float],
    room: list[float],
    *,
    is_rate: bool,
) -> float:
    """The time of shares, infinite if they do not fit; written anew, not taken from the planner."""
    held, loads, request = [0.0] * len(room), list(fixed_ns), 0.0
    for one, row in zip(classes, counts, strict=True):
        times = []
        for device, units in enumerate(row):
            share = units / one.units
            held[device] += share * (one.bytes + 2 * one.lane_bytes) * len(one.chains)
            times.append(one.fixed_ns[device] + share * one.ns[device] if units else 0.0)
            loads[device] += times[-1] * len(one.chains)
        request += max(times) * len(one.chains)
    if any(used > size * (1 + 1e-6) for used, size in zip(held, room, strict=True)):
        return float("inf")
    return max(loads) if is_rate else request


@pytest.mark.parametrize("seed", share(range(24)))
def test_shares_are_the_best_of_all(seed: int) -> None:
    classes, fixed, room = _random_case(seed)
    is_rate = seed % 2 == 1
    found = best_shares(classes, fixed, room, is_rate=is_rate, lanes=2)
    every = itertools.product(*(_deals(one.units, len(room)) for one in classes))
    best = min(_value(classes, counts, fixed, room, is_rate=is_rate) for counts in every)
    if found is None:
        assert best == float("inf")
    else:
        value = _value(classes, found, fixed, room, is_rate=is_rate)
        assert best <= value <= best * (1 + _GAP)
