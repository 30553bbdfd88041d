"""Random errors of predicted times, drawn from their error bars.

In: the kinds of steps, in order, and the kind of GPU of each device, by number. Out: `ErrorDraws`,
the error of each kind of step on each kind of GPU in every draw, and `Noise`, all errors of one
draw.

Steps with the same name are of one kind; a step is as far off on one GPU as on another of its kind.
Kinds are identified by position alone, so nothing depends on their names. For each kind of step on
each kind of GPU the draws are the same quantiles of the normal distribution, in an order of its own
(a Latin hypercube). The ends of an interval then approach those of infinitely many draws much
faster than with independent draws. A part of an error may be common to kinds of GPUs
(`SharedError`): that part has one order for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache
from math import sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from tessera.ir.plan.costs import SharedError
from tessera.ir.plan.plan import Plan

Floats = NDArray[np.float64]

_NINE_IN_TEN = 1.6449
"""Standard deviations on either side of the mean that contain nine of ten draws."""

_ROUNDS = 4
_GROUP = -1
"""The first of the numbers in place of a kind of GPU, for groups of kinds."""
_ALL = (1 << 64) - 1


class Noise:
    """The errors of all predictions in one draw.

    Errors follow the error bars, of which nine in ten hold, or a `spread` common to all
    predictions.
    """

    def __init__(self, draws: ErrorDraws, number: int, spread: float | None = None) -> None:
        self._draws = draws
        self._number = number
        self._spread = spread

    def of(self, name: str, device: str, error: float) -> float:
        """The factor on the time of a step; the same in every plan."""
        bar = spread_of(error if self._spread is None else self._spread)
        normal = float(self._draws.normals(name, device)[self._number])
        return math.exp(normal * bar - bar * bar / 2)


class ErrorDraws:
    """Draws of all error bars for ordered steps; the count is a power of two.

    `places` has the number of the kind of GPU of each device, `shared` what errors have in common
    by step and device.
    """

    def __init__(
        self,
        steps: Iterable[str],
        places: Mapping[str, int],
        count: int,
        seed: int = 0,
        shared: Mapping[tuple[str, str], SharedError] | None = None,
    ) -> None:
        self.count = count
        self._seed = seed
        self._kinds = {name: kind for kind, name in enumerate(dict.fromkeys(steps))}
        self.places = places
        self._shared = shared or {}
        self._mixed: dict[tuple[str, str], Floats] = {}
        self._known: dict[tuple[int, int], Floats] = {}
        self._factors: dict[tuple[str, str, float], Floats] = {}

    def normals(self, name: str, device: str) -> Floats:
        """The error of a step on a device in every draw, in standard deviations."""
        own = self.normals_at(self._kinds[name], self.places[device])
        common = self._shared.get((name, device))
        if common is None:
            return own
        key = name, device
        if key not in self._mixed:
            others = self.normals_at(self._kinds[name], _GROUP - common.group)
            self._mixed[key] = sqrt(common.part) * others + sqrt(1.0 - common.part) * own
        return self._mixed[key]

    def normals_at(self, kind: int, place: int) -> Floats:
        """The errors of a kind at a place, by number; a negative kind is not a step."""
        key = kind, place
        if key not in self._known:
            self._known[key] = _quantiles(self.count)[_order(self.count, (self._seed, *key))]
        return self._known[key]

    def factors(self, name: str, device: str, error: float) -> Floats:
        """The factor on the time of a step, in every draw."""
        key = name, device, error
        if key not in self._factors:
            self._factors[key] = factors_of(self.normals(name, device), error)
        return self._factors[key]

    def draw(self, number: int, spread: float | None = None) -> Noise:
        """The errors of one draw."""
        return Noise(self, number, spread)


def factors_of(normals: Floats, error: float) -> Floats:
    """The factors on a time with this error bar."""
    bar = spread_of(error)
    # The prediction is the mean, so the total time of many steps stays about the same.
    return np.exp(normals * bar - bar * bar / 2)


def spread_of(error: float) -> float:
    """The standard deviation of the logarithm for an error bar that contains nine in ten times."""
    return math.log1p(error) / _NINE_IN_TEN


def draws_of_plan(plan: Plan, count: int, seed: int = 0) -> ErrorDraws:
    """Draws for the steps of a plan, in the order of its traces, and for its devices."""
    steps = {
        (placed.trace, step.step): step.name
        for replica in plan.replicas
        for placed in replica.traces
        for step in placed.steps
    }
    ordered = (steps[key] for key in sorted(steps))
    gpus = {card.name: card.gpu for card in plan.cards}
    kinds = [(gpus[device.card], device.sms) for device in plan.devices]
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    places = {d.name: numbers[kind] for d, kind in zip(plan.devices, kinds, strict=True)}
    return ErrorDraws(ordered, places, count, seed)


def _order(count: int, key: tuple[int, ...]) -> NDArray[np.uint32]:
    """The numbers below a power of two in an order that depends on the key alone.

    Each round is a permutation: multiply by an odd factor and add, then mix in higher bits.
    """
    mask, shift = np.uint32(count - 1), np.uint32(max(1, count.bit_length() // 2))
    order = np.arange(count, dtype=np.uint32)
    for number in range(_ROUNDS):
        drawn = _mixed((*key, number))
        order *= np.uint32(drawn & 0xFFFFFFFF | 1)
        order += np.uint32(drawn >> 32)
        order &= mask
        order ^= order >> shift
    return order


def _mixed(key: tuple[int, ...]) -> int:
    """64 bits of a key (splitmix64)."""
    mixed = 0
    for part in key:
        mixed = (mixed + part + 0x9E3779B97F4A7C15) & _ALL
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _ALL
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _ALL
        mixed ^= mixed >> 31
    return mixed


@cache
def _quantiles(count: int) -> Floats:
    normal = NormalDist()
    return np.array([normal.inv_cdf((number + 0.5) / count) for number in range(count)])
