"""One way to use some GPUs for one model, and what it serves.

In: where each step of a trace runs (a device of the unit), the unit's machine. Out: a `UnitWay`:
the time of a decode step by its rows and of a prefill step by its tokens, their load on each device
and link, and the number of sequences that memory holds. Between the sizes of traces, times are
linear. A `WaySearch` holds the inputs of the search for ways: a model, the offered GPUs, a
workload; `placed_way` makes a way from given places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.driver.fleet.engines import EngineRole, UnitEngine
from tessera.driver.fleet.model_steps import ServedModel
from tessera.driver.fleet.offered import Offered, part_of_machine
from tessera.driver.fleet.placed_steps import (
    Curve,
    GpuUnit,
    PlacedUnit,
    Places,
    Taken,
    cache_room,
    curves,
    held_by,
    places_of_all,
)
from tessera.driver.fleet.workload import Workload
from tessera.planning.search.strategies import FLEET_STRATEGIES


@dataclass(frozen=True, slots=True)
class HandOverTime:
    """`latency_ns`, and of the link `sequence_ns` and `token_ns` for each token of the prompt."""

    latency_ns: float = 0.0
    sequence_ns: float = 0.0
    token_ns: float = 0.0

    def link_ns(self, prompt: float) -> float:
        """The time of the link, if one GPU has the whole cache."""
        return self.sequence_ns + self.token_ns * prompt


NO_HAND_OVER = HandOverTime()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitWay:
    """A unit of GPUs that serves a model by itself, or one of its phases.

    `gpus` counts them by kind. `lanes` batches are under way side by side, each with up to `rows`
    sequences and caches for `cache_tokens` tokens. In a pool (`role`), it only reads prompts or
    only makes answers; `handed` is the slowest hand-over from or to another unit, and `widest` the
    largest part of a sequence's cache on one of its GPUs. Its rate may be lower by the part
    `doubt`, beside the error of all times. `engines` are what a serving system starts for it, and
    `placed` is where its steps are, if each is on one device.
    """

    strategy: str
    gpus: tuple[int, ...]
    names: str
    decode: Curve
    prefill: Curve
    chunk: int
    rows: int
    cache_tokens: int
    lanes: int = 1
    role: EngineRole = EngineRole.BOTH
    handed: HandOverTime = NO_HAND_OVER
    widest: float = 1.0
    doubt: float = 0.0
    note: str = ""
    engines: tuple[UnitEngine, ...] = ()
    placed: PlacedUnit | None = None

    def prefill_at(self, tokens: float) -> Taken:
        """The time of a prefill step by its tokens; never less than that of a decode step."""
        least, taken = self.prefill.points[0]
        if tokens >= least:
            return self.prefill.at(tokens)
        floor = self.decode.at(1)
        own = taken.scaled(tokens / least)
        return own if own.ns >= floor.ns or self.role is EngineRole.PROMPTS else floor

    def rows_of(self, work: Workload, rows: int | None = None) -> int:
        """Sequences of a batch: as asked, and no more than memory and traces allow."""
        held = int(self.cache_tokens // max(work.prompt + work.answer, 1.0))
        return max(0, min(self.rows, held, int(self.decode.largest), rows or self.rows))

    def prompt_taken(self, work: Workload) -> Taken:
        """The time of reading a prompt, in as many steps as it takes."""
        chunks = max(1.0, work.prompt / self.chunk)
        return self.prefill_at(min(work.prompt, self.chunk)).scaled(chunks)

    def most_rate(self, work: Workload, rows: int) -> float:
        """Requests (in a pool, prompts or answers) per second if it never waits for one."""
        if rows < 1:
            return 0.0
        prefill = self.prompt_taken(work)
        decode = self.decode.at(rows).scaled(max(work.answer - 1, 0.0) / rows)
        phases = ((prefill, EngineRole.ANSWERS), (decode, EngineRole.PROMPTS))
        taken = [phase for phase, other in phases if self.role is not other]
        busiest = max(map(sum, zip(*(t.loads for t in taken), strict=True)), default=0.0)
        alone = sum(t.ns for t in taken) / self.lanes
        return 1e9 / max(busiest, alone, self.widest * self.handed.link_ns(work.prompt), 1e-9)


# --- what ways are searched with -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WaySearch:
    """The inputs of the search for ways. `allowed` are the allowed strategies.

    `library` is the library that will run, if it is known.
    """

    model: ServedModel
    offered: Offered
    work: Workload
    allowed: tuple[str, ...] = FLEET_STRATEGIES
    library: str | None = None

    def unit(self, counts: Sequence[int]) -> GpuUnit | None:
        """The GPUs of a unit; None if there are too few."""
        devices: list[int] = []
        for kind, count in enumerate(counts):
            own = self.offered.devices(kind, count)
            if len(own) < count or self.offered.kinds[kind].most < count:
                return None
            devices += own
        machine = part_of_machine(self.offered.machine, devices)
        return GpuUnit(machine=machine, kinds=tuple(self.offered.kind_of[d] for d in devices))

    def names(self, counts: Sequence[int]) -> str:
        """The name of the GPUs in reports: `2xa100+l40s`."""
        kinds = self.offered.kinds
        return "+".join(
            f"{n}x{kinds[k].label}" if n > 1 else kinds[k].label for k, n in enumerate(counts) if n
        )

    @property
    def chunk(self) -> int:
        """Tokens of the largest prefill step."""
        last = self.model.prefill[-1]
        return last.rows * last.tokens

    def places(self, decode: Sequence[int]) -> dict[str, Places]:
        """The places of every trace, from those of the steps of the decode traces."""
        in_chunks = max(prompt for prompt, _ in self.work.lengths) > self.chunk
        return places_of_all(self.model, decode, with_caches=in_chunks)

    def rate(self, way: UnitWay) -> float:
        """The most requests per second that a way serves, limits or not."""
        return way.most_rate(self.work, way.rows_of(self.work))

    def counts(self, *pairs: tuple[int, int]) -> tuple[int, ...]:
        """Counts by kind, of pairs (kind, count)."""
        counts = [0] * len(self.offered.kinds)
        for kind, count in pairs:
            counts[kind] += count
        return tuple(counts)


def placed_way(
    search: WaySearch,
    strategy: str,
    counts: tuple[int, ...],
    unit: GpuUnit,
    places: dict[str, Places],
) -> UnitWay | None:
    """The way of given places, with the number of lanes that serves the most within memory."""
    shaped = curves(search.model, places, unit, search.work)
    if shaped is None:
        return None
    used = len({place for own in places.values() for place in own})
    held = held_by(search.model, places, unit)
    best: UnitWay | None = None
    most = -1.0
    for lanes in sorted({1, used // 2, used, used + 1, 2 * used} if used > 1 else {1}):
        rows, tokens = cache_room(search.model, held, unit, search.work, lanes)
        if rows < 1:
            continue
        way = UnitWay(
            strategy=strategy,
            gpus=counts,
            names=search.names(counts),
            decode=shaped[0],
            prefill=shaped[1],
            chunk=search.chunk,
            rows=rows,
            cache_tokens=tokens,
            lanes=lanes,
            widest=max(held.tokens) / (sum(held.tokens) or 1.0) or 1.0,
            placed=PlacedUnit(unit, places),
        )
        rate = search.rate(way)
        if rate > most:
            best, most = way, rate
    return best
