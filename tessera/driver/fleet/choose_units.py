"""Chooses units: a mix for a demand, or of all existing GPUs, checked by simulation.

In: `Capacity`s of units, the offered GPUs. Out: `FleetChoice`s, a `ServingReport` of one of them,
and a bound that no use of the GPUs beats.

The bound (`fleet_bound`): for any weights of the kinds of GPUs, a request takes no less than the
sum over its steps of the least weighted time, whatever the batches: times are linear between
traces, so no batch is better than the better of two traces. With prices as weights, the sum is the
least cost of a request. To bound the most requests, the weights are moved towards busy kinds. The
bound ignores transfers, memory, limits and the rounding to whole GPUs. Tensor parallelism cuts
steps, so its units are counted as they are, never waiting for a request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from tessera.driver.fleet.capacity import Capacity, follow_way, report_of, requests_for
from tessera.driver.fleet.mix import Mix, Offer, cheapest_mix, fastest_mix
from tessera.driver.fleet.model_steps import ModelStep, ServedModel
from tessera.driver.fleet.offered import Offered
from tessera.driver.fleet.workload import Workload
from tessera.driver.serve.follow import Wanted
from tessera.driver.serve.measures import Served, ServingReport
from tessera.planning.search.strategies import FLEET_STRATEGIES, SINGLE, TENSOR

SPLITS = tuple(strategy for strategy in FLEET_STRATEGIES if strategy != SINGLE)
_MOST_UNITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetChoice:
    """Units of some ways: a row of the report. Without `counts` there is no mix; `why` says why."""

    name: str
    units: tuple[tuple[Capacity, int], ...] = ()
    rate: float = 0.0
    usd_per_hour: float | None = None
    why: str = ""

    @property
    def splits(self) -> bool:
        """Whether a request goes through several GPUs."""
        return any(capacity.way.strategy != SINGLE for capacity, _ in self.units)

    def gpus(self, kinds: int) -> tuple[int, ...]:
        """GPUs of each kind."""
        return tuple(
            sum(n * capacity.way.gpus[kind] for capacity, n in self.units) for kind in range(kinds)
        )

    def usd_per_million(self, tokens: float, rate: float | None = None) -> float | None:
        """Dollars per million tokens of answers, at a rate in requests per second."""
        made = (self.rate if rate is None else rate) * tokens
        if self.usd_per_hour is None or made <= 0:
            return None
        return self.usd_per_hour / 3600 / made * 1e6


def _offers(capacities: Sequence[Capacity], offered: Offered) -> list[Offer]:
    prices = [kind.usd_per_hour or 0.0 for kind in offered.kinds]
    return [
        Offer(
            rate=capacity.rate,
            usd_per_hour=sum(n * p for n, p in zip(capacity.way.gpus, prices, strict=True)),
            gpus=capacity.way.gpus,
        )
        for capacity in capacities
    ]


def best_choice(
    name: str, capacities: Sequence[Capacity], offered: Offered, demand: float | None
) -> FleetChoice:
    """The best mix of some units, for a demand or with all existing GPUs."""
    offers = _offers(capacities, offered)
    most = [kind.most for kind in offered.kinds]
    mix: Mix | None = None
    if offers:
        mix = fastest_mix(offers, most) if demand is None else cheapest_mix(offers, most, demand)
    if mix is None:
        return FleetChoice(name=name, why=_why_not(capacities, offered, demand))
    units = tuple((c, n) for c, n in zip(capacities, mix.counts, strict=True) if n)
    priced = all(
        kind.usd_per_hour is not None
        for kind, n in zip(offered.kinds, mix.gpus(offers), strict=True)
        if n
    )
    return FleetChoice(
        name=name,
        units=units,
        rate=mix.rate(offers),
        usd_per_hour=mix.usd_per_hour(offers) if priced else None,
    )


def _why_not(capacities: Sequence[Capacity], offered: Offered, demand: float | None) -> str:
    if not capacities:
        return "no such split fits these GPUs"
    able = [capacity for capacity in capacities if capacity.rate > 0]
    if not able:
        nearest = min((c.missed for c in capacities if c.missed), default="")
        return nearest or "it serves nothing"
    most = best_choice("", able, offered, None)
    return f"all of them serve {most.rate:.4g} of {demand or 0:.4g} requests/s"


def rival_choices(
    capacities: Sequence[Capacity],
    offered: Offered,
    demand: float | None,
    strategies: Sequence[str],
    whys: Mapping[str, str],
) -> list[FleetChoice]:
    """The alternatives with these GPUs; `whys` says why a strategy may have no way."""
    rows = [
        best_choice(
            "data parallel",
            [c for c in capacities if c.way.strategy == SINGLE],
            offered,
            demand,
        )
    ]
    for strategy in SPLITS:
        if strategy in strategies:
            own = [c for c in capacities if c.way.strategy == strategy]
            row = best_choice(strategy, own, offered, demand)
            rows.append(row if own else replace(row, why=whys.get(strategy, row.why)))
    if len(offered.kinds) > 1:
        for number, kind in enumerate(offered.kinds):
            own = [c for c in capacities if c.way.gpus[number] == sum(c.way.gpus)]
            name = f"only {kind.label}" + (f" in {kind.node}" if kind.node else "")
            rows.append(best_choice(name + (" (there)" if kind.have else ""), own, offered, demand))
    return rows


def check_mix(
    choice: FleetChoice,
    work: Workload,
    rate: float,
    arrivals: list[Wanted] | None = None,
    seed: int = 0,
) -> ServingReport:
    """Simulate requests at a rate, dealt to units by their shares; each unit is followed alone.

    For a large fleet, only a part is simulated, with the same part of the requests.
    """
    units = [capacity for capacity, count in choice.units for _ in range(_fewer(choice, count))]
    part = sum(c.rate for c in units) / choice.rate if choice.rate else 1.0
    most = max((requests_for(c.way, work, c.rows) for c in units), default=0)
    coming = _at_rate(arrivals, rate * part) if arrivals else None
    if coming is None:
        coming = work.draw(rate * part, most * len(units), seed)
    dealt: list[list[Wanted]] = [[] for _ in units]
    share = [capacity.rate for capacity in units]
    for wanted in coming:
        behind = min(range(len(units)), key=lambda n: (len(dealt[n]) + 1) / share[n])
        dealt[behind].append(wanted)
    served: list[Served] = []
    for capacity, own in zip(units, dealt, strict=True):
        if own:
            served += follow_way(capacity.way, own, work, capacity.rows).requests
    served.sort(key=lambda request: request.came_ns)
    return report_of(served, work, choice.name)


def _fewer(choice: FleetChoice, count: int) -> int:
    total = sum(n for _, n in choice.units)
    return count if total <= _MOST_UNITS else max(1, ceil(count * _MOST_UNITS / total))


def _at_rate(arrivals: list[Wanted], rate: float) -> list[Wanted]:
    """Arrivals of a file, rescaled to a mean rate."""
    span = arrivals[-1].at_ns - arrivals[0].at_ns
    wanted = (len(arrivals) - 1) / rate * 1e9 if rate > 0 else span
    factor = wanted / span if span > 0 else 1.0
    first = arrivals[0].at_ns
    return [replace(w, at_ns=(w.at_ns - first) * factor) for w in arrivals]


# --- the bound -----------------------------------------------------------------------------------


_ROUNDS = 400

Array = NDArray[np.float64]


def fleet_bound(
    model: ServedModel,
    offered: Offered,
    work: Workload,
    capacities: Sequence[Capacity],
    demand: float | None,
) -> float | None:
    """The most requests per second, or for a demand the least dollars per hour; None if unknown."""
    request = _RequestLoad(model, work, capacities)
    if demand is not None:
        prices = [kind.usd_per_hour for kind in offered.kinds]
        if any(price is None for price in prices):
            return None
        each, _ = request.weigh(np.array(prices, dtype=float))
        least = each / 1e9 * demand  # seconds of GPUs per second, at their prices per hour
        return least if 0 < least < inf else None
    counts = np.array([kind.most for kind in offered.kinds], dtype=float)
    if not np.isfinite(counts).all():
        return None
    weights = np.where(counts > 0, 1.0, 0.0)
    weights /= weights.sum()
    best = 0.0
    for number in range(_ROUNDS):
        value, loads = request.weigh(weights / np.maximum(counts, 1.0))
        best = max(best, value)
        loads = loads / np.maximum(counts, 1.0)
        largest = float(loads.max())
        if largest <= 0:
            break
        weights = weights * np.exp(loads / largest / (1 + number / 4))
        weights /= weights.sum()
    return 1e9 / best if 0 < best < inf else None


class _RequestLoad:
    """The load of a request: times of the steps of each trace, per request, by kind of GPU."""

    def __init__(self, model: ServedModel, work: Workload, capacities: Sequence[Capacity]) -> None:
        made = max(work.answer - 1, 0.0)
        self._phases = [
            [_times(s, work) * work.prompt / (s.rows * s.tokens) for s in model.prefill],
            [_times(s, work) * made / s.rows for s in model.decode],
        ]
        ways = [c.way for c in capacities if c.way.strategy == TENSOR]
        rates = [(way, way.most_rate(work, way.rows_of(work))) for way in ways]
        self._cut = [np.array(way.gpus) * 1e9 / rate for way, rate in rates if rate > 0]

    def weigh(self, weights: Array) -> tuple[float, Array]:
        """The least weighted time of a request, and the time it then takes of each kind of GPU."""
        least, loads = 0.0, np.zeros(len(weights))
        for phase in self._phases:
            value, own = min((_weighed(t, weights) for t in phase), key=lambda pair: pair[0])
            least, loads = least + value, loads + own
        for cut in self._cut:
            value = float((cut * weights).sum())
            if value < least:
                least, loads = value, cut.astype(float)
        return least, loads


def _times(step: ModelStep, work: Workload) -> Array:
    scale = work.context / step.context if step.is_decode else 1.0
    factors = np.where(np.array(step.attends), scale, 1.0)
    times = np.array([[inf if ns is None else ns for ns in row] for row in step.ns], dtype=float)
    return times * factors[:, None]


def _weighed(times: Array, weights: Array) -> tuple[float, Array]:
    with np.errstate(invalid="ignore"):
        weighed = np.where(np.isinf(times), inf, times * weights)
    chosen = weighed.argmin(axis=1)
    loads = np.zeros(len(weights))
    np.add.at(loads, chosen, times[np.arange(len(times)), chosen])
    return float(weighed.min(axis=1).sum()), loads
