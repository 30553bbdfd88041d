"""How far a plan's figures may be off, and whether its choice survives that.

In: promises, whose steps have error bars. Out: the interval of the period over draws of the error
bars (`planning.promise.draws`), and a `Doubt`: how often the best split is ahead of the best plan
without one, and the steps that decide it.

A split hangs on more than the times of its steps: transfers, and what requests do to each other on
their way. So its draws are also off by what simulated splits were off on GPUs. A plan without one
is off, too. The interval has that; the choice between plans does not count it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, hypot, log

import numpy as np

from tessera.ir.objectives import Objective
from tessera.planning.promise.draws import END, draws, steps_of
from tessera.planning.promise.promise import Promise
from tessera.planning.promise.trial import error_draws
from tessera.simulation.noise import Floats

SURE = 0.9
"""The share of draws in which a split must be ahead to be taken."""

SPLIT_ERROR = 0.05
"""Nine of ten splits of one model that ran on slices of an H200 were as near to their simulation,
and nine of ten plans of one model without a split (`benchmarks/results/simulated_h200.json`)."""

SLICES_ERROR = 0.09
"""Of a split over slices of one GPU: nine of ten that ran prompts and answers of large models were
as near (`benchmarks/results/gain.json`, `gain_real.json`, `gain_real_again.json`; without mixes by
phase that had no gate, which are simulated in another way since)."""

MIX_ERROR = 0.11
"""Of a mix of models without a split: nine of ten that ran prompts and answers of large models were
as near (`benchmarks/results/gain.json`, `gain_real.json`, `gain_real_again.json`)."""

_MOST_CAUSES = 3
_LEAST_INFLUENCE = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A split against the best plan without one: its gain, the interval of it, how often it wins.

    `causes` are steps and devices whose times decide, the most important first.
    """

    split: str
    rival: str
    gain: float
    low: float
    high: float
    wins: float
    causes: tuple[tuple[str, str], ...]

    @property
    def is_sure(self) -> bool:
        """Whether the gain exceeds what the times may be off."""
        return self.wins >= SURE


def interval(promise: Promise, objective: Objective, seed: int = 0) -> tuple[float, float]:
    """What nine of ten draws of the objective's value lie between."""
    low, high = _ends(draws(promise, objective, _split_error(promise), seed))
    nominal, more = promise.chosen.value(objective), _whole_error(promise)
    if not 0 < low <= high or not nominal > 0:
        return low, high
    # Errors that have nothing to do with each other; factors, so that no time is below zero.
    down, up = (hypot(log(end / nominal), log(1.0 + more)) for end in (low, high))
    return min(low, nominal * exp(-down)), max(high, nominal * exp(up))


def doubt(split: Promise, rival: Promise, objective: Objective) -> Doubt:
    """Whether a split is ahead although times may be off."""
    own, against = (draws(made, objective, _split_error(made)) for made in (split, rival))
    gains = against / own - 1.0
    low, high = _ends(gains)
    return Doubt(
        split=split.chosen.name,
        rival=rival.chosen.name,
        gain=rival.chosen.value(objective) / split.chosen.value(objective) - 1.0,
        low=low,
        high=high,
        wins=float(np.mean(gains > 0)),
        causes=_causes((split, rival), np.log1p(gains)),
    )


def _ends(values: Floats) -> tuple[float, float]:
    ordered, out = np.sort(values), int(END * len(values))
    return float(ordered[out]), float(ordered[-1 - out])


def _split_error(promise: Promise) -> float:
    """What a split may be off by, whatever is known of its steps."""
    if not splits(promise):
        return 0.0
    cards = {device.name: device.card for device in promise.setting.machine.devices}
    for replica in promise.simulated.replicas:
        used = [cards[name] for name in replica.lowered.devices]
        if len(set(used)) < len(used):
            return SLICES_ERROR
    return SPLIT_ERROR


def _whole_error(promise: Promise) -> float:
    """What a plan without a split may be off by, whatever is known of its steps."""
    if splits(promise):
        return 0.0
    return MIX_ERROR if len(promise.setting.traces) > 1 else SPLIT_ERROR


def splits(promise: Promise) -> bool:
    """Whether a request runs on several devices."""
    return any(len(replica.lowered.devices) > 1 for replica in promise.simulated.replicas)


def _causes(promises: Sequence[Promise], outcomes: Floats) -> tuple[tuple[str, str], ...]:
    """Steps whose errors go with the outcome, by how much they do."""
    influence: dict[tuple[str, str], float] = {}
    for promise in promises:
        errors = error_draws(promise.setting)
        for _, _, step in steps_of(promise):
            key = step.name, step.device
            if step.error > 0 and key not in influence:
                influence[key] = abs(_correlation(errors.normals(*key), outcomes))
    ranked = sorted(influence.items(), key=lambda entry: -entry[1])
    return tuple(key for key, value in ranked[:_MOST_CAUSES] if value >= _LEAST_INFLUENCE)


def _correlation(first: Floats, second: Floats) -> float:
    left, right = first - first.mean(), second - second.mean()
    squares = float(left @ left) * float(right @ right)
    return float(left @ right) / squares**0.5 if squares > 0 else 0.0
