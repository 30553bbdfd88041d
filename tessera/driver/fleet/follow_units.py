"""Requests followed through the units of a fleet, with the scheduler of the engine.

In: units, and requests with the unit that reads each prompt and the one that makes its answer. Out:
a `Served` per request.

Time is simulated: a step ends after its own time, and not before every device and link that it uses
has done its earlier work and its part of this step. Where a request is read by one unit and
answered by another, its cache leaves when the prompt is read (which gives the first token), and
after earlier ones on the links of both units; the answer goes on when the cache has arrived, and
the unit has a row.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from tessera.driver.fleet.engines import EngineRole
from tessera.driver.fleet.placed_steps import Taken
from tessera.driver.fleet.ways import HandOverTime, UnitWay
from tessera.driver.serve.batches import Sizes, StepSize, StepWork
from tessera.driver.serve.follow import Following, Wanted
from tessera.driver.serve.measures import Served
from tessera.driver.serve.step_clocks import earliest

BLOCK = 16
"""Tokens per block of the cache."""
_BURST = 1
_ENDLESS = 1 << 40
_DECODE, _PREFILL = 0, 1

Between = Callable[[UnitWay, UnitWay], HandOverTime]


@dataclass(frozen=True, slots=True)
class DealtRequest:
    """A request, and the units that read its prompt and make its answer, by position.

    Without a `reader` its prompt has just been read elsewhere; without a `writer`, its answer is
    made elsewhere.
    """

    wanted: Wanted
    reader: int | None
    writer: int | None


_StepLoad = tuple[float, list[tuple[int, float]]]
"""The time of a step alone, and its load on each device and link that it uses."""


def _step_load(taken: Taken) -> _StepLoad:
    return taken.ns, [(number, load) for number, load in enumerate(taken.loads) if load]


class UnitClock:
    """When steps end on the devices of a unit. Prompts in `handed` have been read elsewhere."""

    def __init__(self, way: UnitWay) -> None:
        self._way = way
        self._free = [0.0] * len(way.decode.points[0][1].loads)
        self._events: list[tuple[float, int]] = []
        self._decodes: dict[int, _StepLoad] = {}
        self._prefills: dict[int, _StepLoad] = {0: (0.0, [])}
        self.handed: set[int] = set()
        self.busy = 0.0

    @property
    def next_ns(self) -> float:
        """When the next step ends."""
        return self._events[0][0] if self._events else inf

    def begin(self, work: StepWork, now_ns: float) -> None:
        """A batch begins a step."""
        takes, loads = self._taken(work)
        end, free = now_ns + takes, self._free
        for number, load in loads:  # most of the time of a fleet with limits is spent here
            begun = free[number]
            until = free[number] = (begun if begun > now_ns else now_ns) + load
            if until > end:
                end = until
        self.busy += takes
        heapq.heappush(self._events, (end, work.batch))

    def _taken(self, work: StepWork) -> _StepLoad:
        if work.answers:
            if work.rows not in self._decodes:
                self._decodes[work.rows] = _step_load(self._way.decode.at(work.rows))
            return self._decodes[work.rows]
        tokens = sum(count for job, count in work.chunks if job.number not in self.handed)
        if tokens not in self._prefills:
            self._prefills[tokens] = _step_load(self._way.prefill_at(tokens))
        return self._prefills[tokens]

    def ended(self, until_ns: float) -> tuple[float, list[int]]:
        """The earliest of the ends."""
        return earliest(self._events, until_ns)

    def busy_ns(self) -> Mapping[str, float]:
        """The sum of the times of all steps."""
        return {"unit": self.busy}


def _sizes(way: UnitWay, rows: int) -> Sizes:
    steps = [StepSize(trace=_PREFILL, rows=1, tokens=max(way.chunk, 2), context=_ENDLESS)]
    if way.role is EngineRole.PROMPTS:
        return Sizes(
            steps=tuple(steps),
            batches=way.lanes,
            rows=1,
            context=_ENDLESS,
            first_from_prefill=True,
        )
    steps.append(StepSize(trace=_DECODE, rows=rows, tokens=1, context=_ENDLESS))
    return Sizes(
        steps=tuple(steps),
        batches=way.lanes,
        rows=rows,
        context=_ENDLESS,
        first_from_prefill=True,
        blocks=max(1, way.cache_tokens // BLOCK),
        block=BLOCK,
    )


class _UnitUnderWay:
    """One unit under way, and the requests that it has had."""

    def __init__(self, way: UnitWay, rows: int) -> None:
        self.way = way
        self.clock = UnitClock(way)
        # Caches that have arrived join without delay where nothing is read.
        burst = rows if way.role is EngineRole.ANSWERS else _BURST
        self.following = Following(_sizes(way, rows), self.clock, burst=burst)
        self.numbers: list[int] = []
        self.reads: list[int] = []
        """Its own numbers of the prompts that it has not read and will hand over."""
        self.free_ns = [0.0, 0.0]
        """When its link is free, out and in."""

    def come(self, at_ns: float, number: int, prompt: int, answer: int) -> int:
        """A request comes; returns its number here."""
        self.following.until(at_ns)
        own = len(self.numbers)
        self.numbers.append(number)
        self.following.come(own, Wanted(at_ns, prompt, answer))
        return own

    def has_read(self) -> list[tuple[int, Served]]:
        """The prompts that are read now."""
        served = self.following.result.requests
        done = [own for own in self.reads if served[own].ended]
        if done:
            self.reads = [own for own in self.reads if not served[own].ended]
        return [(self.numbers[own], served[own]) for own in done]


def follow_units(
    units: Sequence[tuple[UnitWay, int]], dealt: Sequence[DealtRequest], between: Between
) -> list[Served]:
    """Simulate requests on units with batches of so many rows each.

    `between` says what a hand-over takes from one unit to another.
    """
    made = [_UnitUnderWay(way, rows) for way, rows in units]
    handed = {d.reader for d in dealt if d.reader != d.writer}
    reading = [unit for n, unit in enumerate(made) if n in handed]
    results = [Served(d.wanted.at_ns, d.wanted.prompt, d.wanted.answer) for d in dealt]
    coming: list[tuple[float, int, bool]] = []
    for number, request in enumerate(dealt):
        at = request.wanted.at_ns
        if request.reader is None:
            results[number].first_ns = at
            assert request.writer is not None
            at = _arrival(at, None, made[request.writer], request.wanted.prompt, between)
        coming.append((at, number, request.reader is None))
    heapq.heapify(coming)
    while coming or any(unit.reads for unit in reading):
        at = coming[0][0] if coming else inf
        first = min(reading, key=lambda unit: unit.clock.next_ns, default=None)
        if first is not None and first.clock.next_ns < at:
            first.following.until(first.clock.next_ns)
            for number, read in first.has_read():
                _copy(results[number], read)
                writer = dealt[number].writer
                if read.is_whole and writer is not None and results[number].answer > 1:
                    prompt = results[number].prompt
                    then = _arrival(read.first_ns, first, made[writer], prompt, between)
                    heapq.heappush(coming, (then, number, True))
            continue
        if not coming:
            break
        _come(heapq.heappop(coming), dealt, made)
    for unit in made:
        unit.following.until(inf)
    for unit in made:
        for number, served in zip(unit.numbers, unit.following.result.requests, strict=True):
            if served.ended_ns >= results[number].ended_ns:
                _copy(results[number], served)
    return results


def _is_handed(dealt: DealtRequest) -> bool:
    return dealt.reader is not None and dealt.reader != dealt.writer


def _come(
    coming: tuple[float, int, bool], dealt: Sequence[DealtRequest], made: Sequence[_UnitUnderWay]
) -> None:
    """A request comes to the unit that reads it, or that makes its answer."""
    at, number, is_handed = coming
    request = dealt[number]
    place = request.writer if is_handed else request.reader
    assert place is not None
    unit = made[place]
    if is_handed:
        unit.clock.handed.add(len(unit.numbers))
    leaves = not is_handed and _is_handed(request)
    answer = 1 if leaves else request.wanted.answer
    own = unit.come(at, number, request.wanted.prompt, answer)
    if leaves:
        unit.reads.append(own)


def _arrival(
    at: float, source: _UnitUnderWay | None, target: _UnitUnderWay, prompt: int, between: Between
) -> float:
    """When a cache that may leave now has arrived, after earlier ones on the links of both."""
    if source is None:
        handed = target.way.handed
        return at + handed.latency_ns + handed.link_ns(prompt)
    handed = between(source.way, target.way)
    takes = handed.link_ns(prompt)
    begin = max(at, source.free_ns[0], target.free_ns[1])
    source.free_ns[0] = begin + takes * source.way.widest
    target.free_ns[1] = begin + takes * target.way.widest
    return begin + handed.latency_ns + takes * max(source.way.widest, target.way.widest)


def _copy(result: Served, served: Served) -> None:
    """What a unit did for a request: the first token is that of the unit that read the prompt."""
    if result.first_ns < 0:
        result.first_ns = served.first_ns
    result.ended, result.ended_ns = served.ended, served.ended_ns
