"""Units that are chosen: a mix for a demand or of all GPUs that are there, checked by simulation.

In: `Capacity`s of units, what is offered. Out: `FleetChoice`s, and a `ServingReport` of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from tessera.driver.fleet.capacity import Capacity, requests_for
from tessera.driver.fleet.follow_ways import follow_way, report_of
from tessera.driver.fleet.mix import Mix, Offer, cheapest_mix, fastest_mix
from tessera.driver.fleet.offered import Offered
from tessera.driver.fleet.way_search import TENSOR
from tessera.driver.fleet.workload import Workload
from tessera.driver.serve.follow import Wanted
from tessera.driver.serve.measures import Served, ServingReport
from tessera.ir.choices import Strategy

SPLITS = (
    Strategy.LAYERS.value,
    Strategy.PHASE.value,
    Strategy.ATTENTION.value,
    TENSOR,
    Strategy.KERNEL.value,
)
_MOST_UNITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetChoice:
    """Units of some ways: a row of the report. No `counts`: there is none, and `why` says so."""

    name: str
    units: tuple[tuple[Capacity, int], ...] = ()
    rate: float = 0.0
    usd_per_hour: float | None = None
    why: str = ""

    @property
    def splits(self) -> bool:
        """Whether a request goes through several GPUs."""
        return any(capacity.way.strategy != Strategy.SINGLE for capacity, _ in self.units)

    def gpus(self, kinds: int) -> tuple[int, ...]:
        """GPUs of each kind."""
        return tuple(
            sum(n * capacity.way.gpus[kind] for capacity, n in self.units) for kind in range(kinds)
        )

    def usd_per_million(self, tokens: float, rate: float | None = None) -> float | None:
        """Dollars per million tokens of answers, when it serves so many requests per second."""
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
    """The best mix of some units, for a demand or with all that is there."""
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
    """What else one could do with these GPUs; `whys` says why a strategy may have no way."""
    rows = [
        best_choice(
            "data parallel",
            [c for c in capacities if c.way.strategy == Strategy.SINGLE],
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
    """Requests at a rate, dealt to units by their shares, each followed by itself.

    Of large fleets a part is followed, with as large a part of the requests.
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
    """Arrivals of a file, as fast as the rate asks for in the mean."""
    span = arrivals[-1].at_ns - arrivals[0].at_ns
    wanted = (len(arrivals) - 1) / rate * 1e9 if rate > 0 else span
    factor = wanted / span if span > 0 else 1.0
    first = arrivals[0].at_ns
    return [replace(w, at_ns=(w.at_ns - first) * factor) for w in arrivals]
