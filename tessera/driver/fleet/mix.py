"""Which units to take, and how many of each: an integer program, solved to the end.

In: `Offer`s (a way to use some GPUs, its rate and cost), the number of GPUs of each kind, and the
`Roads` by which sequences are handed over. Out: a `Mix`: counts, and the hand-overs of each road.
`cheapest_mix` serves a demand for the least money; `fastest_mix` serves the most, and of equal
mixes takes the cheapest. Counts are few and whole, so HiGHS proves the optimum; its solution is
checked against the rows again, because its tolerances are not ours.

A request is served by a unit for both phases, or its prompt is read at one site and its answer made
at another. Pools are coupled by the hand-overs alone: at each site, no more leave than prompts are
read, and no more arrive than answers are made. With `shared`, a unit may divide its time: offers of
one `unit` are the same GPUs in several roles, and only their sum is whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

from tessera.driver.fleet.engines import EngineRole
from tessera.driver.fleet.whole_numbers import BoundedRow, least_cost

_CLOSE = 1e-9
_TRIES = 4
_MOST = 1_000_000


@dataclass(frozen=True, slots=True)
class Offer:
    """One unit: requests per second, dollars per hour, and how many GPUs of each kind it takes.

    In a pool (`role`), the rate is that of prompts or of answers, and `site` is where it is.
    """

    rate: float
    usd_per_hour: float
    gpus: tuple[int, ...]
    role: EngineRole = EngineRole.BOTH
    site: int = 0
    unit: int = -1


@dataclass(frozen=True, slots=True)
class Roads:
    """Between which sites sequences are handed over: pairs (from, to).

    `limits` are hand-overs per second over some of the pairs together, given by their positions.
    """

    pairs: tuple[tuple[int, int], ...] = ()
    limits: tuple[tuple[float, tuple[int, ...]], ...] = ()


NO_ROADS = Roads()


@dataclass(frozen=True, slots=True)
class Mix:
    """The count of each offer, and the hand-overs per second of each road.

    Counts are whole unless units are shared; then those of one unit add up to its number, or less.
    """

    counts: tuple[float, ...]
    handed: tuple[float, ...] = ()

    def rate(self, offers: Sequence[Offer]) -> float:
        """Requests per second of all units together."""
        whole = (n * o.rate for n, o in zip(self.counts, offers, strict=True) if _is_whole(o))
        return sum(whole) + sum(self.handed)

    def usd_per_hour(self, offers: Sequence[Offer]) -> float:
        """Dollars per hour of all units together."""
        return sum(n * o.usd_per_hour for n, o in self.units(offers))

    def gpus(self, offers: Sequence[Offer]) -> tuple[int, ...]:
        """GPUs of each kind that are taken."""
        rows = [[n * g for g in o.gpus] for n, o in self.units(offers)]
        return tuple(map(sum, zip(*rows, strict=True)))

    def units(self, offers: Sequence[Offer]) -> Iterator[tuple[int, Offer]]:
        """The number of units of each offer; of those that share units, beside the first one."""
        for own in _groups(offers):
            yield ceil(sum(self.counts[n] for n in own) - _CLOSE), offers[own[0]]

    def is_within(
        self, offers: Sequence[Offer], most: Sequence[float], roads: Roads = NO_ROADS
    ) -> bool:
        """Whether GPUs are within the limits `most`, and hand-overs within pools and roads."""
        if any(n > limit for n, limit in zip(self.gpus(offers), most, strict=True)):
            return False
        return self.carried(offers, roads) >= 1 - _CLOSE

    def carried(self, offers: Sequence[Offer], roads: Roads) -> float:
        """The part of the hand-overs that pools and roads allow, 1 at most."""
        part = 1.0
        for role, end in ((EngineRole.PROMPTS, 0), (EngineRole.ANSWERS, 1)):
            for site in {pair[end] for pair in roads.pairs}:
                own = [o.role is role and o.site == site for o in offers]
                able = sum(
                    n * o.rate for n, o, is_ in zip(self.counts, offers, own, strict=True) if is_
                )
                pairs = zip(self.handed, roads.pairs, strict=True)
                wanted = sum(f for f, pair in pairs if pair[end] == site)
                part = min(part, able / wanted if wanted > able else 1.0)
        for limit, positions in roads.limits:
            wanted = sum(self.handed[n] for n in positions)
            part = min(part, limit / wanted if wanted > limit else 1.0)
        return part


def _is_whole(offer: Offer) -> bool:
    return offer.role is EngineRole.BOTH


def _groups(offers: Sequence[Offer]) -> list[list[int]]:
    """The positions of offers that are roles of one unit; others are alone."""
    groups: dict[tuple[int, int], list[int]] = {}
    for number, offer in enumerate(offers):
        key = (offer.unit, 0) if offer.unit >= 0 else (-1, number)
        groups.setdefault(key, []).append(number)
    return list(groups.values())


def cheapest_mix(
    offers: Sequence[Offer], most: Sequence[float], demand: float, roads: Roads = NO_ROADS
) -> Mix | None:
    """The mix that serves the demand for the least money; None if no mix serves it.

    Of equally cheap mixes, one with the fewest GPUs, of these one that splits least, and of these
    one with the fewest units in pools.
    """
    if demand <= 0:
        return Mix((0,) * len(offers), (0.0,) * len(roads.pairs))
    limits = _useful(offers, most, demand)
    if not any(limits):
        return None
    price = max((o.usd_per_hour for o in offers), default=0.0) or 1.0
    size = max((sum(o.gpus) for o in offers), default=1) or 1
    # The weight of a GPU is so small that it decides only between mixes of equal price. Further
    # GPUs of a unit weigh a little more than its first, so that not splitting wins a tie.
    costs = [o.usd_per_hour / price + 1e-7 * (1.1 * sum(o.gpus) - 0.1) / size for o in offers]
    program = _MixModel(offers, most, roads, limits, 1 / demand)
    wanted = 1.0
    for _ in range(_TRIES):
        mix = program.solve(costs, wanted)
        if mix is None:
            return None
        if mix.rate(offers) >= demand * (1 - _CLOSE):
            return mix
        wanted += 1e-6
    return None


def fastest_mix(
    offers: Sequence[Offer], most: Sequence[float], roads: Roads = NO_ROADS
) -> Mix | None:
    """The mix that serves the most with the existing GPUs, and the cheapest of these."""
    limits = _useful(offers, most, inf)
    if not any(limits):
        return None
    top = max(offer.rate for offer, limit in zip(offers, limits, strict=True) if limit)
    program = _MixModel(offers, most, roads, limits, 1 / top)
    best = program.solve([0.0] * len(offers), None)
    if best is None:
        return None
    cheaper = cheapest_mix(offers, most, best.rate(offers) * (1 - 1e-7), roads)
    return best if cheaper is None else cheaper


def _useful(offers: Sequence[Offer], most: Sequence[float], demand: float) -> list[int]:
    """The largest useful count of each offer; 0 for one that smaller ones of its role replace."""
    limits = [_most_of(offer, most, demand) for offer in offers]
    for number, offer in enumerate(offers):
        if limits[number] and any(
            limits[other] and other != number and _replaces(rival, offer, other < number)
            for other, rival in enumerate(offers)
        ):
            limits[number] = 0
    return limits


def _replaces(rival: Offer, offer: Offer, first: bool) -> bool:
    """Whether some units of an offer do all that one of another does with GPUs among its own."""
    if (rival.role, rival.unit < 0) != (offer.role, offer.unit < 0) or rival.unit >= 0:
        return False
    if not _is_whole(offer) and rival.site != offer.site:
        return False
    shares = [b // a if a else inf for a, b in zip(rival.gpus, offer.gpus, strict=True)]
    times = min(shares, default=0)
    if not 1 <= times < inf or rival.usd_per_hour * times > offer.usd_per_hour * (1 + _CLOSE):
        return False
    same = times == 1 and rival.gpus == offer.gpus and rival.rate == offer.rate
    return rival.rate * times >= offer.rate and (first or not same)


def _most_of(offer: Offer, most: Sequence[float], demand: float) -> int:
    """The largest useful count of an offer."""
    if not offer.rate > 0:
        return 0
    fits = min(
        (limit / count for count, limit in zip(offer.gpus, most, strict=True) if count),
        default=inf,
    )
    needed = ceil(demand / offer.rate) if demand < inf else inf
    return int(min(fits + _CLOSE, needed, _MOST))


class _MixModel:
    """Columns: the count of each offer, the hand-overs of each road, the number of shared units."""

    def __init__(
        self,
        offers: Sequence[Offer],
        most: Sequence[float],
        roads: Roads,
        limits: Sequence[int],
        scale: float,
    ) -> None:
        self._offers, self._most, self._roads, self._limits = offers, most, roads, limits
        self._scale = scale
        self._shared = [own for own in _groups(offers) if offers[own[0]].unit >= 0]

    def _rows(self) -> Iterator[BoundedRow]:
        offers, roads, first = self._offers, self._roads, len(self._offers)
        after = first + len(roads.pairs)
        units = {n: o.gpus for n, o in enumerate(offers) if o.unit < 0}
        units |= {after + n: offers[own[0]].gpus for n, own in enumerate(self._shared)}
        for kind, limit in enumerate(self._most):
            if limit < inf:
                taken = {n: float(gpus[kind]) for n, gpus in units.items() if gpus[kind]}
                yield BoundedRow(taken, most=limit)
        for number, own in enumerate(self._shared):
            yield BoundedRow({**dict.fromkeys(own, 1.0), after + number: -1.0}, most=0.0)
        for role, end in ((EngineRole.PROMPTS, 0), (EngineRole.ANSWERS, 1)):
            for site in sorted({pair[end] for pair in roads.pairs}):
                able = {
                    n: -o.rate * self._scale
                    for n, o in enumerate(offers)
                    if o.role is role and o.site == site
                }
                over = {first + n: 1.0 for n, pair in enumerate(roads.pairs) if pair[end] == site}
                yield BoundedRow(able | over, most=0.0)
        for limit, positions in roads.limits:
            over = {first + n: 1.0 for n in positions}
            yield BoundedRow(over, most=limit * self._scale)

    def solve(self, costs: Sequence[float], wanted: float | None) -> Mix | None:
        """Counts of least cost that serve `wanted`; without it, those that serve the most."""
        offers, flows = self._offers, len(self._roads.pairs)
        served = {n: o.rate * self._scale for n, o in enumerate(offers) if _is_whole(o)}
        served |= {len(offers) + n: 1.0 for n in range(flows)}
        rows = list(self._rows())
        most: list[float] = [*self._limits, *([inf] * flows)]
        most += [sum(self._limits[n] for n in own) for own in self._shared]
        whole = [o.unit < 0 for o in offers] + [False] * flows + [True] * len(self._shared)
        if wanted is None:
            cost = [-served.get(n, 0.0) for n in range(len(most))]
        else:
            rows.append(BoundedRow(served, least=wanted))
            # In a pool a unit costs a little more, so that a tie goes to the mix without it.
            cost = [
                (0.0 if o.unit >= 0 else c) + (0.0 if _is_whole(o) else 1e-9)
                for c, o in zip(costs, offers, strict=True)
            ]
            cost += [0.0] * flows + [costs[own[0]] for own in self._shared]
        solved = least_cost(cost, rows, most, whole)
        return None if solved is None else self._read(solved.values)

    def _read(self, values: Sequence[float]) -> Mix | None:
        """The mix of a solution, with hand-overs that fit its counts; None if it takes too much."""
        offers, flows = self._offers, len(self._roads.pairs)
        counts = [
            float(round(v)) if o.unit < 0 else max(0.0, v)
            for v, o in zip(values, offers, strict=False)
        ]
        for number, own in enumerate(self._shared):
            whole = round(values[len(offers) + flows + number])
            taken = sum(counts[n] for n in own)
            for n in own:
                counts[n] *= min(1.0, whole / taken) if taken else 0.0
        handed = [max(0.0, v) / self._scale for v in values[len(offers) : len(offers) + flows]]
        mix = Mix(tuple(counts), tuple(handed))
        part = mix.carried(offers, self._roads)
        mix = replace(mix, handed=tuple(f * part for f in handed))
        return mix if mix.is_within(offers, self._most, self._roads) else None
