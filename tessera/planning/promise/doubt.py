"""The uncertainty of a plan's figures, and whether its choice is robust against it.

In: promises, whose steps have error bars. Out: the value of an objective in every draw of the error
bars, its interval, and a `Doubt`: how often the best split is ahead of the best plan without one,
and the steps that decide it. All promises of a setting share the order of draws: a step that is
slower than predicted is slower in every plan that runs it on that GPU.

The limit of a plan is computed in every draw: the loads of devices, the time of a request over the
slots, and the loads of links and memory, which do not vary. The distance of a plan from that limit
is simulated for a few draws near the ends of the interval that contains nine of ten, as many as
make the mean there certain. Large plans keep the distance that they have without errors.

The time of a split also depends on transfers and on interactions between requests. So its draws
include the error of simulated splits on GPUs. A plan without a split has an error, too. The
interval includes that error; the choice between plans does not.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, hypot, log, sqrt

import numpy as np

from tessera.ir.objectives import Objective
from tessera.ir.plan.plan import PlacedStep
from tessera.planning.problem.period_limits import LimitKind
from tessera.planning.promise.promise import Promise
from tessera.planning.promise.trial import GpuKinds, error_draws, gpu_kinds
from tessera.simulation.hardware import machine_hardware
from tessera.simulation.known_work import KnownWork
from tessera.simulation.noise import ErrorDraws, Floats, Noise, factors_of
from tessera.simulation.simulate import alone
from tessera.simulation.steady import saturate

END = 0.05
"""The share of draws below the low end of an interval, and above the high one."""

_SMALL = 600
"""Maximum steps under way at a time for which some draws are simulated."""

_FEWEST, _MOST, _MOST_ALONE = 4, 12, 48
"""Minimum and maximum number of draws simulated near each end; a request alone is cheap."""

_SURE = 0.004
"""Error of the simulated mean that is small enough."""

_SPLIT, _DISTANCE = -1, -2
"""Numbers in place of a kind: the error of a split, and the distance of plans from their limit."""


def draws(
    promise: Promise,
    objective: Objective,
    split_error: float = 0.0,
    seed: int = 0,
    machines: GpuKinds | None = None,
) -> Floats:
    """The value of the objective in every draw; `split_error` widens the draws of a split.

    To compare machines, `machines` are the kinds of GPUs of the first: draws are those of plans for
    it, and replicas have the shares that suit the times of a draw, as a plan by these would have.
    """
    nominal = promise.chosen.value(objective)
    errors = error_draws(promise.setting, seed, machines)
    limits = _limits(promise, objective, errors, replan=machines is not None)
    if limits is None:
        return np.full(errors.count, nominal)
    drawn = nominal * limits
    steps_under_way = sum(
        len(placed.steps) * replica.slots
        for replica in promise.simulated.replicas
        for placed in replica.traces
    )
    if steps_under_way <= _SMALL and machines is None:
        drawn *= _distances(promise, objective, errors, np.log(limits))
    if split_error:
        drawn *= factors_of(errors.normals_at(_SPLIT, 0), split_error)
    return drawn


def steps_of(promise: Promise) -> Iterator[tuple[int, int, float, PlacedStep]]:
    """Every step with the numbers of its replica and trace, and its runs per request there."""
    for number, replica in enumerate(promise.simulated.replicas):
        for placed in replica.traces:
            share = promise.setting.traces[placed.trace].planned.share
            for step in placed.steps:
                yield number, placed.trace, share, step


# --- what limits a plan --------------------------------------------------------------------------


def _limits(
    promise: Promise, objective: Objective, errors: ErrorDraws, *, replan: bool = False
) -> Floats | None:
    """Lower limits of the objective, as multiples of that without errors; None if unlimited.

    `replan`: replicas that are one device each get the shares that suit a draw.
    """
    replicas = promise.simulated.replicas
    more: dict[str, dict[tuple[str, float], float]] = defaultdict(lambda: defaultdict(float))
    own: list[dict[tuple[str, str, float], float]] = [defaultdict(float) for _ in replicas]
    for number, trace, share, step in steps_of(promise):
        ns, alone_ns, _ = step.times_ns
        part = replicas[number].serves(trace)
        more[step.device][step.name, step.error] += part * share * ns
        own[number][step.name, step.device, step.error] += share * alone_ns
    latency = _latency(own, promise.chosen.latency_ns, errors)
    if objective.is_of_one_request:
        return latency
    rows: list[Floats | float] = []
    shares: dict[str, float] = {}
    if replan and not splits(promise):
        for replica in replicas:
            for device in replica.lowered.devices:
                shares[device] = shares.get(device, 0.0) + replica.share
    served: Floats | float = 0.0  # of a request in a nanosecond
    now = 0.0
    for limit in promise.chosen.limits:
        match limit.kind:
            case LimitKind.DEVICE:
                kinds = more[limit.name].items()
                changes = (
                    ns * (errors.factors(name, limit.name, error) - 1.0)
                    for (name, error), ns in kinds
                )
                load = limit.ns + sum(changes)
                if shares.get(limit.name, 0.0) > 0:
                    served = served + shares[limit.name] / load
                else:
                    rows.append(load)
            case LimitKind.LINK | LimitKind.MEMORY:
                rows.append(limit.ns)
            case LimitKind.SLOTS | LimitKind.STATE:
                rows.append(limit.ns if latency is None else limit.ns * latency)
            case LimitKind.WAITING:
                continue
        now = max(now, limit.ns)
    largest = np.zeros(errors.count) + (1.0 / served if shares else 0.0)
    for row in rows:
        largest = np.maximum(largest, row)
    return largest / now if now > 0 and float(largest.min()) > 0 else None


def _latency(
    own: list[dict[tuple[str, str, float], float]], latency_ns: float, errors: ErrorDraws
) -> Floats | None:
    """The time of a request of the slowest replica: its steps one after the other, and the rest."""
    now = max((sum(kinds.values()) for kinds in own), default=0.0)
    slowest = np.zeros(errors.count)
    for kinds in own:
        drawn = sum(ns * errors.factors(*kind) for kind, ns in kinds.items())
        slowest = np.maximum(slowest, drawn)
    rest = max(0.0, latency_ns - now)
    return (slowest + rest) / (now + rest) if now + rest > 0 else None


# --- how far it is from that ---------------------------------------------------------------------


def _distances(
    promise: Promise, objective: Objective, errors: ErrorDraws, limits: Floats
) -> Floats:
    """The additional distance of a plan from its limit in every draw, relative to no errors.

    It is simulated near the ends and interpolated between them. `limits` are logarithms.
    """
    simulate = _simulator(promise, objective)
    base = simulate(None)
    if not base > 0:
        return np.ones(errors.count)
    most = _MOST_ALONE if objective.is_of_one_request else _MOST
    order = np.argsort(limits, kind="stable")
    known: list[tuple[float, float, float]] = []
    for end in (END, 1.0 - END):
        offsets: list[float] = []
        for number in range(most):
            # Alternate between both sides of the end.
            aside = (number + 1) // 2 * END / most * (1 if number % 2 else -1)
            draw = int(order[int((end + aside) * errors.count)])
            offsets.append(log(simulate(errors.draw(draw)) / base) - float(limits[draw]))
            spread = float(np.std(offsets, ddof=1)) if number else 0.0
            if number + 1 >= _FEWEST and spread <= _SURE * sqrt(number + 1):
                break
        place = float(limits[order[int(end * errors.count)]])
        known.append((place, float(np.mean(offsets)), spread))
    # Without errors, there is no additional distance.
    known.append((0.0, 0.0, (known[0][2] + known[1][2]) / 2))
    places, means, spreads = zip(*sorted(known), strict=True)
    mean, apart = np.interp(limits, places, means), np.interp(limits, places, spreads)
    # The errors of plans with a split and without one are independent.
    devices = max(len(replica.lowered.devices) for replica in promise.simulated.replicas)
    return np.asarray(np.exp(mean + apart * errors.normals_at(_DISTANCE, devices)))


def _simulator(promise: Promise, objective: Objective) -> Callable[[Noise | None], float]:
    """A function that simulates a promise with a draw of the error bars."""
    replicas = promise.simulated.replicas
    hardware = machine_hardware(
        promise.setting.machine, copies_take_memory=promise.simulated.copies_take_memory
    )
    shares = tuple(trace.planned.share for trace in promise.setting.traces)
    known = KnownWork(hardware)

    def simulate(noise: Noise | None) -> float:
        if objective.is_of_one_request:
            return alone(replicas, shares, hardware, noise=noise, known_work=known)
        return saturate(replicas, shares, hardware, noise=noise, known_work=known).period_ns

    return simulate


SURE = 0.9
"""The share of draws in which a split must be ahead to be taken."""

SPLIT_ERROR = 0.05
"""Relative error within which nine of ten splits of one model on slices of an H200 were to their
simulation, and nine of ten plans of one model without a split
(`benchmarks/results/simulated_h200.json`)."""

SLICES_ERROR = 0.09
"""Of a split over slices of one GPU: nine of ten that ran prompts and answers of large models were
as near (`benchmarks/results/gain.json`, `gain_real.json`, `gain_real_again.json`; without mixes by
phase that had no gate, which are simulated in another way since)."""

MIX_ERROR = 0.11
"""Of a mix of models without a split: nine of ten that ran prompts and answers of large models were
as near (`benchmarks/results/gain.json`, `gain_real.json`, `gain_real_again.json`)."""

_MOST_CAUSES = 3
_LEAST_INFLUENCE = 0.3


class Standing(enum.Enum):
    """A plan beside another one, in nine of ten draws; `OPEN` if the error bars do not tell."""

    AHEAD = "ahead"
    BEHIND = "behind"
    OPEN = "open"


Cause = tuple[str, str]
"""A step and a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A plan against a rival: its gain, the interval of it, how often it wins.

    `causes` are steps and devices whose times decide, the most important first. The rival may be
    for another machine: what both have in common, steps on GPUs of one kind or a part of an error
    that kinds share, cancels.
    """

    split: str
    rival: str
    gain: float
    low: float
    high: float
    wins: float
    causes: tuple[Cause, ...]

    @property
    def is_sure(self) -> bool:
        """Whether the gain exceeds the errors of the times."""
        return self.wins >= SURE

    @property
    def standing(self) -> Standing:
        """Which of the two is better, if the bar of their ratio and the figure itself say so.

        Errors are not symmetric, so the figure may lie outside of the interval of the draws.
        """
        if self.low > 0 and self.gain > 0:
            return Standing.AHEAD
        return Standing.BEHIND if self.high < 0 and self.gain < 0 else Standing.OPEN


def interval(
    promise: Promise, objective: Objective, seed: int = 0, machines: GpuKinds | None = None
) -> tuple[float, float]:
    """The interval that contains nine of ten draws of the objective's value."""
    low, high = ends_of(draws(promise, objective, _split_error(promise), seed, machines))
    nominal, more = promise.chosen.value(objective), _whole_error(promise)
    if not 0 < low <= high or not nominal > 0:
        return low, high
    # The errors are independent; they are factors, so that no time is negative.
    down, up = (hypot(log(end / nominal), log(1.0 + more)) for end in (low, high))
    return min(low, nominal * exp(-down)), max(high, nominal * exp(up))


def doubt(split: Promise, rival: Promise, objective: Objective) -> Doubt:
    """Whether a plan stays ahead of a rival within the errors of the times."""
    same = split.setting.machine == rival.setting.machine
    kinds = gpu_kinds(rival.setting.machine)
    own, against = (
        draws(made, objective, _split_error(made), machines=None if same else kinds)
        for made in (split, rival)
    )
    gains = against / own - 1.0
    low, high = ends_of(gains)
    return Doubt(
        split=split.chosen.name,
        rival=rival.chosen.name,
        gain=rival.chosen.value(objective) / split.chosen.value(objective) - 1.0,
        low=low,
        high=high,
        wins=float(np.mean(gains > 0)),
        causes=_causes((split, rival), np.log1p(gains), kinds),
    )


def ends_of(values: Floats) -> tuple[float, float]:
    """The ends of the interval that contains nine of ten values."""
    ordered, out = np.sort(values), int(END * len(values))
    return float(ordered[out]), float(ordered[-1 - out])


def _split_error(promise: Promise) -> float:
    """Relative error of a split, independent of its steps."""
    if not splits(promise):
        return 0.0
    cards = {device.name: device.card for device in promise.setting.machine.devices}
    for replica in promise.simulated.replicas:
        used = [cards[name] for name in replica.lowered.devices]
        if len(set(used)) < len(used):
            return SLICES_ERROR
    return SPLIT_ERROR


def _whole_error(promise: Promise) -> float:
    """Relative error of a plan without a split, independent of its steps."""
    if splits(promise):
        return 0.0
    return MIX_ERROR if len(promise.setting.traces) > 1 else SPLIT_ERROR


def splits(promise: Promise) -> bool:
    """Whether a request runs on several devices, or the requests of a sequence do."""
    replicas = promise.simulated.replicas
    return any(len(replica.lowered.devices) > 1 or replica.shares for replica in replicas)


def _causes(promises: Sequence[Promise], outcomes: Floats, kinds: GpuKinds) -> tuple[Cause, ...]:
    """Steps whose errors correlate with the outcome, strongest first; one device of each kind."""
    off: dict[tuple[str, str], Floats] = {}
    known: set[tuple[str, int]] = set()
    for promise in promises:
        errors = error_draws(promise.setting, kinds=kinds)
        for _, _, _, step in steps_of(promise):
            key = step.name, errors.places[step.device]
            if step.error > 0 and key not in known:
                known.add(key)
                off[step.name, step.device] = errors.normals(step.name, step.device)
    return strongest(off, outcomes)


def strongest(off: Mapping[tuple[str, str], Floats], outcomes: Floats) -> tuple[Cause, ...]:
    """Of steps on devices with their errors in every draw, those that decide the outcome most."""
    influence = {key: abs(_correlation(errors, outcomes)) for key, errors in off.items()}
    ranked = sorted(influence, key=lambda key: -influence[key])[:_MOST_CAUSES]
    return tuple(key for key in ranked if influence[key] >= _LEAST_INFLUENCE)


def _correlation(first: Floats, second: Floats) -> float:
    varies = np.ptp(first) > 0 and np.ptp(second) > 0
    return float(np.corrcoef(first, second)[0, 1]) if varies else 0.0
