"""How far predicted times are off, drawn from their error bars.

In: the kinds of steps and the devices, in their order. Out: `ErrorDraws`: for each kind on each
device how far its time is off in every draw, and a `Noise`: all of them in one draw.

Steps of one name are of one kind. A kind and a device are known by their places alone, so nothing
depends on what they are called. For each kind on each device the draws are the same quantiles of
the normal distribution, in an order of its own (a Latin hypercube): the ends of an interval are
then much nearer to those of infinitely many draws than with draws that know nothing of each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from tessera.ir.plan.plan import Plan

Floats = NDArray[np.float64]

_NINE_IN_TEN = 1.6449
"""Standard deviations on either side that nine of ten draws are within."""

_ROUNDS = 4
_ALL = (1 << 64) - 1


class Noise:
    """How far predictions are off in one draw.

    By their error bars, of which nine in ten hold; or by a `spread` that all have.
    """

    def __init__(self, draws: ErrorDraws, number: int, spread: float | None = None) -> None:
        self._draws = draws
        self._number = number
        self._spread = spread

    def of(self, name: str, device: str, error: float) -> float:
        """The factor of a step; the same in every plan."""
        bar = spread_of(error if self._spread is None else self._spread)
        normal = float(self._draws.normals(name, device)[self._number])
        return math.exp(normal * bar - bar * bar / 2)


class ErrorDraws:
    """Draws of all error bars, a power of two, for steps and devices given in their order."""

    def __init__(
        self, steps: Iterable[str], devices: Iterable[str], count: int, seed: int = 0
    ) -> None:
        self.count = count
        self._seed = seed
        self._kinds = {name: kind for kind, name in enumerate(dict.fromkeys(steps))}
        self._devices = {name: place for place, name in enumerate(devices)}
        self._known: dict[tuple[int, int], Floats] = {}
        self._factors: dict[tuple[str, str, float], Floats] = {}

    def normals(self, name: str, device: str) -> Floats:
        """Standard deviations by which a step is off on a device, in every draw."""
        return self.normals_at(self._kinds[name], self._devices[device])

    def normals_at(self, kind: int, place: int) -> Floats:
        """Those of a kind and a place by their numbers; below zero is what is no step."""
        key = kind, place
        if key not in self._known:
            self._known[key] = _quantiles(self.count)[_order(self.count, (self._seed, *key))]
        return self._known[key]

    def factors(self, name: str, device: str, error: float) -> Floats:
        """What the time of a step is multiplied by, in every draw."""
        key = name, device, error
        if key not in self._factors:
            self._factors[key] = factors_of(self.normals(name, device), error)
        return self._factors[key]

    def draw(self, number: int, spread: float | None = None) -> Noise:
        """All of one draw."""
        return Noise(self, number, spread)


def factors_of(normals: Floats, error: float) -> Floats:
    """What a time with this error bar is multiplied by."""
    bar = spread_of(error)
    # The prediction is the mean: what many steps take together stays about the same.
    return np.exp(normals * bar - bar * bar / 2)


def spread_of(error: float) -> float:
    """The standard deviation of the logarithm, for an error bar that nine in ten are within."""
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
    return ErrorDraws(ordered, (device.name for device in plan.devices), count, seed)


def _order(count: int, key: tuple[int, ...]) -> NDArray[np.uint32]:
    """The numbers below a power of two in an order that depends on the key alone.

    Each round is a permutation: by an odd factor and a sum, then by bits further up.
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
