"""How far a plan's figures may be off, and whether its choice survives that.

In: promises, whose steps have error bars. Out: the interval of the period over draws of the error
bars, and a `Doubt`: how often the best split is ahead of the best plan without one, and the steps
that decide it. Both are drawn with the same errors, since a step that is slower than predicted is
so in every plan that runs it on that GPU.

A split hangs on more than the times of its steps: transfers, and what requests do to each other on
their way. So its draws are also off by what simulated splits were off on GPUs. A plan without one
is off, too. The interval has that; the choice between plans does not count it.

Small plans are simulated for every draw. Of large ones the loads are drawn, and the period is as
far above the largest load as it is without errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, hypot, log

from tessera.driver.plan.promise import Promise
from tessera.driver.simulate.hardware import machine_hardware
from tessera.driver.simulate.known_work import KnownWork
from tessera.driver.simulate.noise import Noise
from tessera.driver.simulate.simulate import alone
from tessera.driver.simulate.steady import saturate
from tessera.ir.choices import Objective
from tessera.ir.plan.plan import PlacedStep

DRAWS = 20
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

_SMALL = 600
"""Steps under way at a time, up to which every draw is simulated."""

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


def interval(promise: Promise, objective: str) -> tuple[float, float]:
    """What nine of ten draws of the objective's value lie between."""
    values = sorted(draws(promise, objective))
    low, high = values[len(values) // 20], values[-1 - len(values) // 20]
    nominal, more = promise.chosen.value(objective), _whole_error(promise)
    if not 0 < low <= high or not nominal > 0:
        return low, high
    # Errors that have nothing to do with each other; factors, so that no time is below zero.
    down, up = (hypot(log(end / nominal), log(1.0 + more)) for end in (low, high))
    return min(low, nominal * exp(-down)), max(high, nominal * exp(up))


def doubt(split: Promise, rival: Promise, objective: str) -> Doubt:
    """Whether a split is ahead although times may be off."""
    pairs = list(zip(draws(split, objective), draws(rival, objective), strict=True))
    gains = [against / own - 1.0 for own, against in pairs]
    ordered = sorted(gains)
    return Doubt(
        split=split.chosen.name,
        rival=rival.chosen.name,
        gain=rival.chosen.value(objective) / split.chosen.value(objective) - 1.0,
        low=ordered[len(ordered) // 20],
        high=ordered[-1 - len(ordered) // 20],
        wins=sum(gain > 0 for gain in gains) / len(gains),
        causes=_causes((split, rival), [log(1.0 + gain) for gain in gains]),
    )


def draws(promise: Promise, objective: str) -> list[float]:
    """The value of the objective for every draw, in an order that all promises share."""
    nominal = promise.chosen.value(objective)
    size = sum(
        len(placed.steps) * replica.slots
        for replica in promise.simulated.replicas
        for placed in replica.traces
    )
    if size <= _SMALL:
        simulate = _simulator(promise, objective)
        base = simulate(None)
        drawn = (simulate(noise_of(seed)) for seed in range(DRAWS))
    else:
        kinds = _kinds_of_steps(promise)
        base = _largest_load(promise, {}, None)
        drawn = (_largest_load(promise, kinds, noise_of(seed)) for seed in range(DRAWS))
    more = _split_error(promise)
    return [
        (nominal * value / base if base > 0 else nominal)
        * noise_of(seed).of("a split", "the simulation", more)
        for seed, value in enumerate(drawn)
    ]


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


@cache
def noise_of(seed: int) -> Noise:
    """One draw of all error bars: the same for every plan."""
    return Noise(seed)


def _simulator(promise: Promise, objective: str) -> Callable[[Noise | None], float]:
    """What simulates a promise with a draw of the error bars."""
    replicas = promise.simulated.replicas
    hardware = machine_hardware(
        promise.setting.machine, copies_take_memory=promise.simulated.copies_take_memory
    )
    shares = tuple(trace.planned.share for trace in promise.setting.traces)
    known = KnownWork(hardware)

    def simulate(noise: Noise | None) -> float:
        if objective == Objective.LATENCY:
            return alone(replicas, shares, hardware, noise=noise, known_work=known)
        return saturate(replicas, shares, hardware, noise=noise, known_work=known).period_ns

    return simulate


def _kinds_of_steps(promise: Promise) -> dict[tuple[str, str, float], float]:
    """What steps take per request by name, device and error bar: these are off alike."""
    kinds: dict[tuple[str, str, float], float] = {}
    for weight, step in _weighted(promise):
        key = step.name, step.device, step.error
        kinds[key] = kinds.get(key, 0.0) + weight * step.predicted_ns
    return kinds


def _largest_load(
    promise: Promise, kinds: Mapping[tuple[str, str, float], float], noise: Noise | None
) -> float:
    """The largest load of a device; what transfers take stays."""
    machine = promise.setting.machine
    loads = dict.fromkeys((device.name for device in machine.devices), 0.0)
    for replica in promise.searched.replicas:
        for device in machine.devices:
            loads[device.name] += replica.measure.loads[device.id] * replica.share
    if noise is not None:
        for (name, place, error), ns in kinds.items():
            loads[place] += ns * (noise.of(name, place, error) - 1.0)
    return max(loads.values(), default=0.0)


def _weighted(promise: Promise) -> Iterator[tuple[float, PlacedStep]]:
    """Every step with how often it runs per request."""
    for replica in promise.simulated.replicas:
        for placed in replica.traces:
            share = replica.share * promise.setting.traces[placed.trace].planned.share
            for step in placed.steps:
                yield share, step


def _causes(promises: Sequence[Promise], outcomes: Sequence[float]) -> tuple[tuple[str, str], ...]:
    """Steps whose errors go with the outcome, by how much they do."""
    errors: dict[tuple[str, str], float] = {}
    for promise in promises:
        for _, step in _weighted(promise):
            errors[step.name, step.device] = step.error
    influence = {}
    for (name, device), error in errors.items():
        factors = [log(noise_of(seed).of(name, device, error)) for seed in range(DRAWS)]
        influence[name, device] = abs(_correlation(factors, outcomes))
    ranked = sorted(influence.items(), key=lambda entry: -entry[1])
    return tuple(key for key, value in ranked[:_MOST_CAUSES] if value >= _LEAST_INFLUENCE)


def _correlation(first: Sequence[float], second: Sequence[float]) -> float:
    count = len(first)
    mean_first, mean_second = sum(first) / count, sum(second) / count
    both = sum((a - mean_first) * (b - mean_second) for a, b in zip(first, second, strict=True))
    squares = sum((a - mean_first) ** 2 for a in first) * sum(
        (b - mean_second) ** 2 for b in second
    )
    return both / squares**0.5 if squares > 0 else 0.0
