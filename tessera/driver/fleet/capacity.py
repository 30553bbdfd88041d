"""The highest rate, in requests per second, at which a unit keeps its latency limits.

In: a `UnitWay`, a `Workload`. Out: a `Capacity`: the rate, and the batch size that reaches it.
Without limits, a unit is assumed to be busy for at most 95% of the time. With limits, requests are
drawn and simulated, and bisection finds the highest rate at which the percentile is within them;
batches are as large as memory allows, or smaller.

Units of pools have their own limit: TTFT where prompts are read, TPOT where answers are made. There
the time per token includes the slowest hand-over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

from tessera.driver.fleet.engines import EngineRole
from tessera.driver.fleet.follow_units import DealtRequest, follow_units
from tessera.driver.fleet.ways import NO_HAND_OVER, UnitWay
from tessera.driver.fleet.workload import Workload
from tessera.driver.serve.follow import Wanted
from tessera.driver.serve.measures import Served, ServingReport

BUSY = 0.95
"""Largest share of the time that a unit is busy."""
_LEAST_PART = 0.02
_HALVINGS = 5
_MOST_STEPS = 2_500
_FEWEST, _MOST = 100, 200

_ROLES = EngineRole.BOTH, EngineRole.PROMPTS, EngineRole.ANSWERS

OnWay = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What a unit serves: `rate` requests per second in batches of `rows`; 0 if it cannot serve.

    In a pool, the rate is that of prompts or of answers. A unit with several roles has what it does
    per second in `shares`: whole requests, prompts alone, answers alone. `missed` says which limit
    keeps it from serving, and by how much. `is_bound`: it serves no more than that.
    """

    way: UnitWay
    rate: float
    rows: int
    missed: str = ""
    nearest: ServingReport | None = None
    shares: tuple[float, float, float] = (0.0, 0.0, 0.0)
    is_bound: bool = False

    @property
    def served(self) -> tuple[float, float, float]:
        """Whole requests, prompts alone and answers alone per second."""
        role = self.way.role
        if role is EngineRole.SHARES:
            return self.shares
        both, reads, makes = (self.rate * (role is own) for own in _ROLES)
        return both, reads, makes


def capacity_of(way: UnitWay, work: Workload) -> Capacity:
    """The rate that a unit can serve."""
    most = way.rows_of(work)
    if most < 1:
        return Capacity(way=way, rate=0.0, rows=0, missed="no sequence fits its memory")
    slo = work.slo
    if slo.ttft_ns is None and slo.tpot_ns is None:
        return Capacity(way=way, rate=BUSY * way.most_rate(work, most), rows=most)
    best = Capacity(way=way, rate=0.0, rows=most)
    for rows in _batches(way, work, most):
        if best.rate >= BUSY * way.most_rate(work, rows):
            continue
        tried = _within(way, work, rows)
        if tried.rate > best.rate or best.nearest is None:
            best = tried if tried.rate >= best.rate else best
    return best


class UnitRates:
    """What units serve, found where it matters.

    Without limits, all of it is known. With limits, a unit first has a bound on its rate; what it
    serves is found when a mix would take it (`follow`). So the best mix takes only units whose
    rates are known, and no unit that was not followed would make it better.
    """

    def __init__(self, ways: Sequence[UnitWay], work: Workload, on_way: OnWay) -> None:
        self._work, self._on_way = work, on_way
        self._known: dict[int, Capacity] = {}
        self._first = [_bounded(way, work) for way in ways]

    def known(self, capacity: Capacity) -> Capacity:
        """The capacity, as far as it is known by now."""
        return self._known.get(id(capacity.way), capacity)

    def follow(self, capacity: Capacity) -> Capacity:
        """What a unit serves, by simulation."""
        key = id(capacity.way)
        if key not in self._known:
            self._on_way(len(self._known), len(self._first))
            self._known[key] = capacity_of(capacity.way, self._work)
        return self._known[key]

    def all(self) -> tuple[Capacity, ...]:
        """All units, as far as they are known; a rate may be a bound."""
        return tuple(map(self.known, self._first))

    def shown(self) -> tuple[Capacity, ...]:
        """All units; the rate is 0 if no mix would take one, so that it was not followed."""
        return tuple(replace(c, rate=0.0, missed=_UNUSED) if c.is_bound else c for c in self.all())


_UNUSED = "not followed: other units serve at least as much"
_SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_SLACK = 1.1  # times are linear between traces only


def _bounded(way: UnitWay, work: Workload) -> Capacity:
    """What a unit serves, or with limits no more than.

    Tokens of a batch that keeps the time per token come no faster than those of the largest batch
    whose step does. Where prompts are read between these steps, they take no more of the time than
    the limit leaves beside a step of one sequence. Requests that do not keep it may come faster.
    """
    rows, tpot = way.rows_of(work), work.slo.tpot_ns
    if rows < 1 or (tpot is None and work.slo.ttft_ns is None):
        return capacity_of(way, work)
    rate = BUSY * way.most_rate(work, rows)
    if tpot is not None and way.role is not EngineRole.PROMPTS:
        fits = [n for n in range(1, rows + 1) if way.decode.at(n).ns <= tpot]
        kept = way.most_rate(work, max(fits)) if fits else 0.0
        if way.role is EngineRole.BOTH:
            left = max(0.0, 1 - way.decode.at(1).ns / (_SLACK * tpot))
            kept = min(kept, left * way.lanes * 1e9 / max(way.prompt_taken(work).ns, 1e-9))
        rate = min(rate, kept * _SLACK / _SHARES[work.percentile])
    return Capacity(way=way, rate=rate, rows=rows, is_bound=True)


def requests_for(way: UnitWay, work: Workload, rows: int) -> int:
    """The number of requests to draw: enough for a percentile, but not too many steps."""
    each = max(work.answer / max(rows, 1), 1.0)
    return int(min(_MOST, max(_FEWEST, _MOST_STEPS / each)))


def _batches(way: UnitWay, work: Workload, most: int) -> list[int]:
    """The largest batch, and powers of two whose steps keep the limit on the time per token.

    A looser limit tries all batches that a tighter one does, so that it never serves less.
    """
    limit = inf if work.slo.tpot_ns is None else work.slo.tpot_ns
    powers = [1 << n for n in range(most.bit_length())]
    if way.role is EngineRole.PROMPTS:
        return [most]
    return sorted({most, *(n for n in powers if way.decode.at(n).ns <= limit)}, reverse=True)


def _within(way: UnitWay, work: Workload, rows: int) -> Capacity:
    """The highest rate within the limits, in batches of `rows` sequences."""
    whole = BUSY * way.most_rate(work, rows)
    count = requests_for(way, work, rows)
    low, high = 0.0, 1.0
    if whole <= 0:
        return Capacity(way=way, rate=0.0, rows=rows)
    first = _followed(way, work, rows, whole * _LEAST_PART, count)
    if not work.is_kept(first):
        return Capacity(way=way, rate=0.0, rows=rows, missed=missed(first, work), nearest=first)
    if work.is_kept(_followed(way, work, rows, whole, count)):
        return Capacity(way=way, rate=whole, rows=rows, nearest=first)
    low = _LEAST_PART
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if work.is_kept(_followed(way, work, rows, whole * middle, count)):
            low = middle
        else:
            high = middle
    return Capacity(way=way, rate=whole * low, rows=rows, nearest=first)


def _followed(way: UnitWay, work: Workload, rows: int, rate: float, count: int) -> ServingReport:
    return follow_way(way, work.draw(rate, count), work, rows)


def follow_way(way: UnitWay, wanted: Sequence[Wanted], work: Workload, rows: int) -> ServingReport:
    """Simulate requests on one unit with batches of `rows` sequences."""
    reader = None if way.role is EngineRole.ANSWERS else 0
    writer = None if way.role is EngineRole.PROMPTS else 0
    dealt = [DealtRequest(w, reader, writer) for w in wanted]
    served = follow_units([(way, rows)], dealt, lambda a, b: NO_HAND_OVER)
    return report_of(served, work, way.names)


def report_of(requests: Sequence[Served], work: Workload, name: str) -> ServingReport:
    """The report of served requests, whatever units served them."""
    return ServingReport(
        name=name, source="simulated", requests=requests, waiting=(), steps={}, slo=work.slo
    )


def missed(report: ServingReport, work: Workload) -> str:
    """Which limit is exceeded, and by how much."""
    parts = [
        f"{name} {value / 1e6:.3g} ms at {work.percentile}, the limit is {limit / 1e6:.3g} ms"
        for name, value, limit in work.against(report)
        if value is not None and limit is not None and value > limit
    ]
    return "; ".join(parts) or "a request does not fit"
