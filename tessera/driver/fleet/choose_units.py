"""Chooses units: a mix for a demand, or of all existing GPUs, checked by simulation.

In: `Capacity`s of units, the offered GPUs, the links between pools. Out: `FleetChoice`s, and a
`ServingReport` of one of them.

`UnitChooser.simplest` takes the simplest kind of mix over which the gain of the best is within the
error of the times: GPUs that serve by themselves, GPUs in pools, units of several GPUs, such units
in pools, and units that serve both phases with separate shares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, inf

from tessera.driver.fleet.capacity import Capacity, UnitRates, report_of, requests_for
from tessera.driver.fleet.engines import EngineRole
from tessera.driver.fleet.follow_units import DealtRequest, follow_units
from tessera.driver.fleet.mix import NO_ROADS, Mix, Offer, Roads, cheapest_mix, fastest_mix
from tessera.driver.fleet.offered import Offered
from tessera.driver.fleet.pools import PoolLinks
from tessera.driver.fleet.workload import Workload
from tessera.driver.serve.follow import Wanted
from tessera.driver.serve.measures import ServingReport
from tessera.planning.search.strategies import FLEET_STRATEGIES, PHASE, ROLES, SINGLE

NOISE = 0.05
"""Smaller relative differences are within the error of looked-up and interpolated times."""
_WHOLE = 1e-6
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
        return self.hands_over or any(c.way.strategy != SINGLE for c, _ in self.units)

    @property
    def doubt(self) -> float:
        """The part by which its rate may be lower, beside the error of all times."""
        rates = [(n * c.rate, c.way.doubt) for c, n in self.units]
        return sum(rate * doubt for rate, doubt in rates) / (sum(r for r, _ in rates) or 1.0)

    @property
    def hands_over(self) -> bool:
        """Whether units have roles, so that sequences are handed over."""
        return any(c.way.role is not EngineRole.BOTH for c, _ in self.units)

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


@dataclass(frozen=True, slots=True)
class UnitChooser:
    """What choices are made with: GPUs, links between pools, and the demand, if there is one.

    `rates` finds what units serve that have only a bound so far.
    """

    offered: Offered
    links: PoolLinks
    demand: float | None
    rates: UnitRates | None = None

    def best(self, name: str, capacities: Sequence[Capacity], shared: bool = False) -> FleetChoice:
        """The best mix of some units. `shared`: they may divide their time between roles."""
        own, offers, mix = self._solved(capacities, shared)
        while mix is not None and self.rates is not None:
            taken = [c for c, n in zip(own, mix.counts, strict=True) if n and c.is_bound]
            if not taken:
                break
            for capacity in taken:
                self.rates.follow(capacity)
            own, offers, mix = self._solved(capacities, shared)
        if mix is None:
            return FleetChoice(name=name, why=self._why_not(capacities))
        priced = all(
            kind.usd_per_hour is not None
            for kind, n in zip(self.offered.kinds, mix.gpus(offers), strict=True)
            if n
        )
        return FleetChoice(
            name=name,
            units=tuple(_units(own, offers, mix)),
            rate=mix.rate(offers),
            usd_per_hour=mix.usd_per_hour(offers) if priced else None,
        )

    def _solved(
        self, capacities: Sequence[Capacity], shared: bool
    ) -> tuple[list[Capacity], list[Offer], Mix | None]:
        """The best mix by what is known of units, and those of them that serve something."""
        known = capacities if self.rates is None else map(self.rates.known, capacities)
        own = [c for c in known if c.rate > 0]
        offers, roads = self._offers(own, shared)
        most = [kind.most for kind in self.offered.kinds]
        if not offers:
            return own, offers, None
        if self.demand is None:
            return own, offers, fastest_mix(offers, most, roads)
        return own, offers, cheapest_mix(offers, most, self.demand, roads)

    def _offers(self, capacities: Sequence[Capacity], shared: bool) -> tuple[list[Offer], Roads]:
        prices = [kind.usd_per_hour or 0.0 for kind in self.offered.kinds]
        pools = any(c.way.role is not EngineRole.BOTH for c in capacities)
        sites, roads = [0] * len(capacities), NO_ROADS
        if pools:
            sites, roads = self.links.roads([c.way for c in capacities])
        units: dict[tuple[object, ...], int] = {}
        offers = []
        for capacity, site in zip(capacities, sites, strict=True):
            way = capacity.way
            key = way.strategy, way.gpus, way.note
            offers.append(
                Offer(
                    rate=capacity.rate,
                    usd_per_hour=sum(n * p for n, p in zip(way.gpus, prices, strict=True)),
                    gpus=way.gpus,
                    role=way.role,
                    site=site,
                    unit=units.setdefault(key, len(units)) if shared else -1,
                )
            )
        return offers, roads

    def _why_not(self, capacities: Sequence[Capacity]) -> str:
        if not capacities:
            return "no such split fits these GPUs"
        known = capacities if self.rates is None else list(map(self.rates.known, capacities))
        able = [capacity for capacity in known if capacity.rate > 0]
        if not able:
            nearest = min((c.missed for c in known if c.missed), default="")
            return nearest or "no unit keeps the limits"
        most = replace(self, demand=None).best("", able)
        if not most.units:
            return "no unit that reads prompts is linked to one that makes answers"
        return f"all of them serve {most.rate:.4g} of {self.demand or 0:.4g} requests/s"

    def gain(self, choice: FleetChoice, plain: FleetChoice) -> float:
        """How much more a choice serves than a plain one, or how much less it costs."""
        if self.demand is None:
            return choice.rate / plain.rate - 1 if plain.rate else inf
        if choice.usd_per_hour is None or plain.usd_per_hour is None or not plain.usd_per_hour:
            return 0.0
        return 1 - choice.usd_per_hour / plain.usd_per_hour

    def simplest(self, capacities: Sequence[Capacity], shared: bool = True) -> FleetChoice:
        """The simplest of the mixes that are as good as the best, within the error of the times."""
        alone = [c for c in capacities if c.way.strategy == SINGLE]
        sure = [c for c in capacities if not c.way.doubt]
        sets = [sort(own) for own in (alone, sure, capacities) for sort in (_whole, _pooled, list)]
        made = [self.best("this mix", own) for own in sets if own]
        made += [self.best("this mix", capacities, shared=True)] if shared else []
        able = [choice for choice in made if choice.units]
        return next(
            (c for c in able if all(self.gain(o, c) < NOISE + o.doubt for o in able)), made[-1]
        )


def _whole(capacities: Sequence[Capacity]) -> list[Capacity]:
    return [c for c in capacities if c.way.role is EngineRole.BOTH]


def _pooled(capacities: Sequence[Capacity]) -> list[Capacity]:
    return [c for c in capacities if c.way.role is not EngineRole.BOTH]


def _units(
    capacities: Sequence[Capacity], offers: Sequence[Offer], mix: Mix
) -> Iterator[tuple[Capacity, int]]:
    """The units of a mix: whole ones by role, then those that divide their time."""
    parts: dict[int, list[int]] = {}
    for number, (capacity, count) in enumerate(zip(capacities, mix.counts, strict=True)):
        if floor(count + _WHOLE):
            yield capacity, floor(count + _WHOLE)
        if count - floor(count + _WHOLE) > _WHOLE:
            parts.setdefault(offers[number].unit, []).append(number)
    for own in parts.values():
        rest = [mix.counts[n] - floor(mix.counts[n] + _WHOLE) for n in own]
        yield _shared_unit([capacities[n] for n in own], rest), ceil(sum(rest) - _WHOLE)


def _shared_unit(capacities: Sequence[Capacity], parts: Sequence[float]) -> Capacity:
    """A unit with a part of the time for each role; whole, if there is one role."""
    if len(capacities) == 1:
        return capacities[0]
    count = ceil(sum(parts) - _WHOLE)
    shares = [
        sum(part / count * c.served[n] for c, part in zip(capacities, parts, strict=True))
        for n in range(3)
    ]
    makers = [c for c in capacities if c.way.role is not EngineRole.PROMPTS]
    way = replace(
        makers[0].way, role=EngineRole.SHARES, engines=(), handed=capacities[-1].way.handed
    )
    return Capacity(
        way=way,
        rate=shares[0] + max(shares[1:]),
        rows=min(c.rows for c in makers),
        shares=(shares[0], shares[1], shares[2]),
    )


def rival_choices(
    capacities: Sequence[Capacity],
    chooser: UnitChooser,
    strategies: Sequence[str],
    whys: Mapping[str, str],
) -> list[FleetChoice]:
    """The alternatives with these GPUs; `whys` says why a strategy may have no way."""
    whole = _whole(capacities)
    single = [c for c in whole if c.way.strategy == SINGLE]
    rows = [chooser.best("data parallel", single)]
    if not single:
        why = "no GPU holds the model by itself"
        rows = [replace(rows[0], why=why if SINGLE in strategies else "it is left out")]
    for strategy in SPLITS:
        if strategy in strategies:
            own = [c for c in whole if c.way.strategy == strategy]
            if strategy == PHASE:
                own = _pooled(capacities)
            row = chooser.best(strategy, own)
            rows.append(row if own else replace(row, why=whys.get(strategy, row.why)))
    if PHASE in strategies:
        rows.append(chooser.best(ROLES, capacities, shared=True))
    offered = chooser.offered
    if len(offered.kinds) > 1:
        for number, kind in enumerate(offered.kinds):
            own = [c for c in capacities if c.way.gpus[number] == sum(c.way.gpus)]
            name = f"only {kind.label}" + (f" in {kind.node}" if kind.node else "")
            rows.append(chooser.best(name + (" (there)" if kind.have else ""), own))
    return rows


# --- the check -----------------------------------------------------------------------------------


def check_mix(
    choice: FleetChoice,
    work: Workload,
    rate: float,
    links: PoolLinks,
    arrivals: list[Wanted] | None = None,
    seed: int = 0,
) -> ServingReport:
    """Simulate requests at a rate, dealt to units by their shares, with all hand-overs.

    For a large fleet, only a part is simulated, with the same part of the requests.
    """
    units = [capacity for capacity, count in choice.units for _ in range(_fewer(choice, count))]
    part = _simulated(choice, units)
    most = max((requests_for(c.way, work, c.rows) for c in units), default=0)
    coming = _at_rate(arrivals, rate * part) if arrivals else None
    if coming is None:
        coming = work.draw(rate * part, most * len(units), seed)
    dealt = list(_dealt(units, coming, links))
    served = follow_units([(c.way, c.rows) for c in units], dealt, links.known)
    return report_of(served, work, choice.name)


def _simulated(choice: FleetChoice, units: Sequence[Capacity]) -> float:
    """The part of the requests that some of the units serve: the larger of both phases."""
    parts = []
    for phase in (1, 2):
        able = [n * (c.served[0] + c.served[phase]) for c, n in choice.units]
        parts.append(sum(c.served[0] + c.served[phase] for c in units) / (sum(able) or 1.0))
    return max(parts)


def _dealt(
    units: Sequence[Capacity], coming: Sequence[Wanted], links: PoolLinks
) -> Iterator[DealtRequest]:
    """Requests with their units: each goes to the unit that is furthest behind its share."""
    counts = [[0, 0, 0] for _ in units]
    rates = [capacity.served for capacity in units]

    def behind(places: Sequence[tuple[int, int]]) -> tuple[int, int]:
        unit, role = min(places, key=lambda at: (counts[at[0]][at[1]] + 1) / rates[at[0]][at[1]])
        counts[unit][role] += 1
        return unit, role

    able = [[(n, role) for n, own in enumerate(rates) if own[role] > 0] for role in range(3)]
    # Its own answers, if it has a share of them and nothing else is linked.
    writers = {
        reader: [
            (n, 2)
            for n, _ in able[2]
            if n != reader and links.between(units[reader].way, units[n].way) is not None
        ]
        or [(reader, 2)]
        for reader, _ in able[1]
    }
    for wanted in coming:
        reader, role = behind([*able[0], *able[1]])
        writer = behind(writers[reader])[0] if role else reader
        yield DealtRequest(wanted, reader, writer)


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
