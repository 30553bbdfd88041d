"""The highest rate, in requests per second, at which a unit keeps its latency limits.

In: a `UnitWay`, a `Workload`. Out: a `Capacity`: the rate, and the batch size that reaches it.
Without limits, a unit is assumed to be busy for at most 95% of the time. With limits, requests are
drawn and simulated, and bisection finds the highest rate at which the percentile is within them;
batches are as large as memory allows, or smaller.

`follow_way` follows requests through a unit with the scheduler of the engine and simulated time: a
step ends after its own time, and not before every device and link that it uses has done its earlier
work and its part of this step. If prompts are read on other GPUs than answers are made, two
schedulers run in sequence: a prompt reaches the second one when its cache has been handed over.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from tessera.driver.fleet.mix import Offer, fastest_mix
from tessera.driver.fleet.ways import Taken, UnitWay
from tessera.driver.fleet.workload import Workload
from tessera.driver.serve.batches import Sizes, StepSize, StepWork
from tessera.driver.serve.follow import FollowedText, Following, Wanted
from tessera.driver.serve.measures import Served, ServingReport
from tessera.driver.serve.step_clocks import earliest

BUSY = 0.95
"""Largest share of the time that a unit is busy."""
_LEAST_PART = 0.02
_HALVINGS = 5
_MOST_STEPS = 2_500
_FEWEST, _MOST = 100, 200
_SHOWN = 3

OnWay = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What a unit serves: `rate` requests per second in batches of `rows`; 0 if it cannot serve.

    `missed` says which limit keeps it from serving, and by how much.
    """

    way: UnitWay
    rate: float
    rows: int
    missed: str = ""
    nearest: ServingReport | None = None


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


def capacities_of(ways: Sequence[UnitWay], work: Workload, on_way: OnWay) -> list[Capacity]:
    """The capacity of each way; the rate of ways that others make useless is 0.

    A way is useless if smaller units of the same GPUs serve at least as much as it does when it
    never waits: then no mix needs it. The best of each strategy are still simulated, to be shown.
    """
    order = sorted(range(len(ways)), key=lambda n: sum(ways[n].gpus))
    bounds = [BUSY * way.most_rate(work, way.rows_of(work)) for way in ways]
    shown = _best_of_strategies(ways, bounds)
    made: dict[int, Capacity] = {}
    for done, number in enumerate(order):
        way = ways[number]
        on_way(done, len(ways))
        offers = [Offer(c.rate, float(sum(c.way.gpus)), c.way.gpus) for c in made.values()]
        if number not in shown and _are_enough(offers, way.gpus, bounds[number]):
            made[number] = Capacity(
                way=way, rate=0.0, rows=0, missed="smaller units of these GPUs serve more"
            )
        else:
            made[number] = capacity_of(way, work)
    return [made[number] for number in range(len(ways))]


def _best_of_strategies(ways: Sequence[UnitWay], bounds: Sequence[float]) -> set[int]:
    """All ways of one GPU, and the ways of each strategy that serve the most per GPU."""
    shown = {n for n, way in enumerate(ways) if sum(way.gpus) == 1}
    for strategy in dict.fromkeys(way.strategy for way in ways):
        own = [n for n, way in enumerate(ways) if way.strategy == strategy]
        own.sort(key=lambda n: -bounds[n] / sum(ways[n].gpus))
        shown |= set(own[:_SHOWN])
    return shown


def _are_enough(offers: Sequence[Offer], gpus: tuple[int, ...], rate: float) -> bool:
    mix = fastest_mix(offers, [float(n) for n in gpus]) if offers else None
    return mix is not None and mix.rate(offers) >= rate


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


def missed(report: ServingReport, work: Workload) -> str:
    """Which limit is exceeded, and by how much."""
    parts = [
        f"{name} {value / 1e6:.3g} ms at {work.percentile}, the limit is {limit / 1e6:.3g} ms"
        for name, value, limit in work.against(report)
        if value is not None and limit is not None and value > limit
    ]
    return "; ".join(parts) or "a request does not fit"


# --- requests followed through a unit ------------------------------------------------------------


BLOCK = 16
"""Tokens per block of the cache."""
BURST = 1
_ENDLESS = 1 << 40
_DECODE, _PREFILL = 0, 1


class UnitClock:
    """When steps end on the devices of a unit."""

    def __init__(self, way: UnitWay, apart: bool) -> None:
        self._way = way
        self._apart = apart
        self._free = [0.0] * len(way.decode.points[0][1].loads)
        self._events: list[tuple[float, int]] = []
        self._decodes: dict[int, Taken] = {}
        self._prefills: dict[int, Taken] = {}
        self.busy = 0.0

    def begin(self, work: StepWork, now_ns: float) -> None:
        """A batch begins a step."""
        taken = self._taken(work)
        end = now_ns + taken.ns
        if not self._apart:
            for number, load in enumerate(taken.loads):
                if load:
                    self._free[number] = max(self._free[number], now_ns) + load
                    end = max(end, self._free[number])
        self.busy += taken.ns
        heapq.heappush(self._events, (end, work.batch))

    def _taken(self, work: StepWork) -> Taken:
        if work.is_decode:
            if work.rows not in self._decodes:
                self._decodes[work.rows] = self._way.decode.at(work.rows)
            return self._decodes[work.rows]
        tokens = sum(count for _, count in work.chunks)
        if tokens not in self._prefills:
            self._prefills[tokens] = self._way.prefill_at(tokens)
        return self._prefills[tokens]

    def ended(self, until_ns: float) -> tuple[float, list[int]]:
        """The earliest of the ends."""
        return earliest(self._events, until_ns)

    def busy_ns(self) -> Mapping[str, float]:
        """The sum of the times of all steps."""
        return {"unit": self.busy}


def follow_way(way: UnitWay, wanted: Sequence[Wanted], work: Workload, rows: int) -> ServingReport:
    """Simulate requests on one unit with batches of `rows` sequences."""
    requests = _apart(way, wanted, rows) if way.apart else _together(way, wanted, rows)
    return report_of(requests, work, way.names)


def report_of(requests: Sequence[Served], work: Workload, name: str) -> ServingReport:
    """The report of served requests, whatever units served them."""
    return ServingReport(
        name=name, source="simulated", requests=requests, waiting=(), steps={}, slo=work.slo
    )


def _sizes(way: UnitWay, batches: int, rows: int, *, reads: bool, makes: bool) -> Sizes:
    steps = []
    if reads:
        steps.append(StepSize(trace=_PREFILL, rows=1, tokens=max(way.chunk, 2), context=_ENDLESS))
    if makes:
        steps.append(StepSize(trace=_DECODE, rows=rows, tokens=1, context=_ENDLESS))
    return Sizes(
        steps=tuple(steps),
        batches=batches,
        rows=rows,
        context=_ENDLESS,
        first_from_prefill=reads,
        blocks=max(1, way.cache_tokens // BLOCK) if makes else 0,
        block=BLOCK if makes else 0,
    )


def _run(
    sizes: Sizes, way: UnitWay, wanted: Sequence[Wanted], apart: bool, burst: int = BURST
) -> FollowedText:
    return Following(sizes, UnitClock(way, apart), burst=burst).run(list(wanted))


def _together(way: UnitWay, wanted: Sequence[Wanted], rows: int) -> list[Served]:
    return _run(_sizes(way, way.lanes, rows, reads=True, makes=True), way, wanted, False).requests


def _apart(way: UnitWay, wanted: Sequence[Wanted], rows: int) -> list[Served]:
    """Simulate a way whose prompts are read by some GPUs, and whose answers are made by others
    from the second token on."""
    first = [Wanted(w.at_ns, w.prompt, 1) for w in wanted]
    read = _run(_sizes(way, way.readers, 1, reads=True, makes=False), way, first, True).requests
    handed = []
    for number, (served, asked) in enumerate(zip(read, wanted, strict=True)):
        if served.is_whole and asked.answer > 1:
            handed.append((served.first_ns + way.handed_ns, number, asked))
    handed.sort(key=lambda row: (row[0], row[1]))
    # The caches and the first token have arrived, so reading the prompt takes no time here.
    there = _read_already(way)
    sizes = _sizes(there, way.lanes, rows, reads=True, makes=True)
    coming = [Wanted(at, asked.prompt, asked.answer) for at, _, asked in handed]
    made = _run(sizes, there, coming, True, burst=rows).requests
    results = [
        Served(w.at_ns, w.prompt, w.answer, r.first_ns, r.ended_ns, r.ended)
        for w, r in zip(wanted, read, strict=True)
    ]
    for (_, number, _), served in zip(handed, made, strict=True):
        results[number].ended, results[number].ended_ns = served.ended, served.ended_ns
    return results


def _read_already(way: UnitWay) -> UnitWay:
    """The way with prompts that take no time, because their caches have arrived."""
    nothing = Taken(0.0, tuple(0.0 for _ in way.decode.points[0][1].loads))
    return replace(
        way,
        prefill=replace(way.prefill, points=((1.0, nothing),)),
        chunk=1 << 30,
    )
