"""Requests followed through units, by the scheduler of the engine; the time is simulated.

In: a `UnitWay`, requests. Out: a `ServingReport`. The clock goes by what steps take of a unit's
devices: a step ends after its own time, and not before every device and link that it uses has done
what came before, and its own part. Where prompts are read apart, two schedulers follow each other:
what the first has read comes to the second when the cache has been handed over.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tessera.driver.fleet.ways import Taken, UnitWay
from tessera.driver.fleet.workload import Workload
from tessera.driver.serve.follow import FollowedText, Following, Wanted
from tessera.driver.serve.measures import Served, ServingReport
from tessera.driver.serve.scheduler import Sizes, StepSize, StepWork

BLOCK = 16
"""Tokens of a block of the cache."""
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
        events = self._events
        if not events or events[0][0] > until_ns:
            return until_ns, []
        at_ns, batch = heapq.heappop(events)
        batches = [batch]
        while events and events[0][0] == at_ns:
            batches.append(heapq.heappop(events)[1])
        return at_ns, batches

    def busy_ns(self) -> Mapping[str, float]:
        """How long steps took, one by one."""
        return {"unit": self.busy}


def follow_way(way: UnitWay, wanted: Sequence[Wanted], work: Workload, rows: int) -> ServingReport:
    """What requests take on one unit with batches of so many sequences."""
    requests = _apart(way, wanted, rows) if way.apart else _together(way, wanted, rows)
    return report_of(requests, work, way.names)


def report_of(requests: Sequence[Served], work: Workload, name: str) -> ServingReport:
    """The figures of requests that were served, by whatever units."""
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
    """Prompts are read by some GPUs; then others make the answers, from the second token on."""
    first = [Wanted(w.at_ns, w.prompt, 1) for w in wanted]
    read = _run(_sizes(way, way.readers, 1, reads=True, makes=False), way, first, True).requests
    handed = []
    for number, (served, asked) in enumerate(zip(read, wanted, strict=True)):
        if served.is_whole and asked.answer > 1:
            handed.append((served.first_ns + way.handed_ns, number, asked))
    handed.sort(key=lambda row: (row[0], row[1]))
    # Their caches are there, and so is the first token: reading takes no time any more.
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
    """The same, with prompts that take no time: their caches are there."""
    nothing = Taken(0.0, tuple(0.0 for _ in way.decode.points[0][1].loads))
    return replace(
        way,
        prefill=replace(way.prefill, points=((1.0, nothing),)),
        chunk=1 << 30,
    )
