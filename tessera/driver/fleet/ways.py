"""One way to use some GPUs for one model, and the times of its steps there.

In: where each step of a trace runs (a device of the unit), the unit's machine. Out: a `UnitWay`:
the time of a decode step by its rows and of a prefill step by its tokens, their load on each device
and link, and the number of sequences that memory holds. Between the sizes of traces, times are
linear. Steps of a trace follow one another; the time of attention in a decode step is proportional
to the context. A `WaySearch` holds the inputs of the search for ways: a model, the offered GPUs, a
workload; `placed_way` makes a way from given places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import inf

from tessera.driver.fleet.engines import EngineRole, UnitEngine
from tessera.driver.fleet.model_steps import ModelStep, ServedModel
from tessera.driver.fleet.offered import Offered, part_of_machine
from tessera.driver.fleet.workload import Workload
from tessera.ir.plan.machine import Machine
from tessera.ir.program.program import Role
from tessera.planning.problem.plan_problem import RESERVED_BYTES
from tessera.planning.search.strategies import FLEET_STRATEGIES


@dataclass(frozen=True, slots=True)
class Taken:
    """The time of a step alone, and its load on each device and channel of the unit."""

    ns: float
    loads: tuple[float, ...]

    def scaled(self, factor: float) -> Taken:
        """Scaled by a factor."""
        return Taken(self.ns * factor, tuple(load * factor for load in self.loads))


@dataclass(frozen=True, slots=True)
class Curve:
    """Times of steps by size, at some sizes; linear between them."""

    points: tuple[tuple[float, Taken], ...]

    def at(self, size: float) -> Taken:
        """The time of a step of a size; beyond the largest and below the smallest, theirs."""
        for (low, first), (high, second) in pairwise(self.points):
            if low <= size <= high:
                part = (size - low) / (high - low)
                loads = zip(first.loads, second.loads, strict=True)
                return Taken(
                    first.ns + (second.ns - first.ns) * part,
                    tuple(a + (b - a) * part for a, b in loads),
                )
        return self.points[0][1] if size < self.points[0][0] else self.points[-1][1]

    @property
    def largest(self) -> float:
        """The largest size that a trace has."""
        return self.points[-1][0]


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
    `doubt`, beside the error of all times. `engines` are what a serving system starts for it.
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


Places = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUnit:
    """The GPUs of a unit: its own machine, and the kind of each of its devices."""

    machine: Machine
    kinds: tuple[int, ...]

    def loads(self) -> int:
        """The number of resources that can be busy: devices and channels."""
        return len(self.kinds) + len(self.machine.channels)


def taken_by(step: ModelStep, places: Places, unit: GpuUnit, work: Workload) -> Taken | None:
    """The time of a trace with each of its steps on a device of the unit; None if it cannot run.

    A transfer takes `transfer_ns` of both devices, and the link for its bytes.
    """
    machine = unit.machine
    loads = [0.0] * unit.loads()
    scale = work.context / step.context if step.is_decode else 1.0
    total = 0.0
    for times, attends, place in zip(step.ns, step.attends, places, strict=True):
        ns = times[unit.kinds[place]]
        if ns is None:
            return None
        ns *= scale if attends else 1.0
        loads[place] += ns
        total += ns
    ways = {(int(k.source), int(k.target)): k for k in machine.links}
    through: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for number, channel in enumerate(machine.channels, len(unit.kinds)):
        for a, b in channel.pairs:
            through.setdefault((a, b), []).append((number, 1e9 / channel.bytes_per_second))
    crossing = step.tensors if len(set(places)) > 1 else ()
    for tensor in crossing:
        source = places[tensor.producer]
        for target in sorted({places[task] for task in tensor.consumers} - {source}):
            link = ways.get((source, target))
            if link is None:
                return None
            tax = machine.transfer_ns * tensor.count
            loads[source] += tax
            loads[target] += tax
            total += 2 * tax + link.latency_ns + tensor.bytes * 1e9 / link.bytes_per_second
            for number, per_byte in through.get((source, target), ()):
                loads[number] += tensor.bytes * per_byte
    return Taken(total, tuple(loads))


@dataclass(frozen=True, slots=True)
class HeldBytes:
    """Bytes on each device of a unit: weights, caches per token, states per row, the rest."""

    weights: tuple[float, ...]
    tokens: tuple[float, ...]
    rows: tuple[float, ...]
    beside: tuple[float, ...]


def held_by(model: ServedModel, places: Mapping[str, Places], unit: GpuUnit) -> HeldBytes:
    """The bytes that devices hold: weights and states are wherever a step that touches them runs.

    Buffers between steps are estimated as twice the bytes that the largest step touches; only
    launch programs give the exact size.
    """
    count = len(unit.kinds)
    weights: list[set[str]] = [set() for _ in range(count)]
    states: list[set[str]] = [set() for _ in range(count)]
    beside = [0.0] * count
    for step in model.steps:
        where = places[step.name]
        for role, sets in ((Role.WEIGHT, weights), (Role.STATE, states)):
            for name, users in step.users(role).items():
                for device in {where[user] for user in users}:
                    sets[device].add(name)
        for size, device in zip(_touched(step), where, strict=True):
            beside[device] = max(beside[device], 2.0 * size)
    return HeldBytes(
        tuple(float(sum(model.weight_bytes[name] for name in own)) for own in weights),
        tuple(sum(model.token_bytes.get(name, 0.0) for name in own) for own in states),
        tuple(sum(model.row_bytes.get(name, 0.0) for name in own) for own in states),
        tuple(beside),
    )


def cache_room(
    model: ServedModel, held: HeldBytes, unit: GpuUnit, work: Workload, lanes: int
) -> tuple[int, int]:
    """Sequences and cache tokens that memory holds for each lane; 0 if weights do not fit."""
    room_rows, room_tokens = inf, inf
    each = work.prompt + work.answer
    for device in range(len(unit.kinds)):
        card = unit.machine.cards[unit.machine.devices[device].card]
        free = card.memory_bytes - RESERVED_BYTES - held.weights[device]
        free -= lanes * held.beside[device]
        if free < 0:
            return 0, 0
        tokens = held.tokens[device]
        alone = held.rows[device] + tokens * each
        if alone:
            room_rows = min(room_rows, free / lanes / alone)
        if tokens:
            share = tokens * each / alone
            room_tokens = min(room_tokens, free / lanes * share / tokens)
    most = int(model.decode[-1].rows)
    fits = most if room_rows == inf else int(min(room_rows, most))
    return fits, int(min(room_tokens, 1e12))


@lru_cache(maxsize=64)
def _touched(step: ModelStep) -> tuple[int, ...]:
    """The bytes private to a request that each step of a trace touches."""
    graph = step.trace.graph
    private = {
        int(buffer.id)
        for buffer in graph.buffers
        if buffer.role in (Role.TEMP, Role.INPUT, Role.OUTPUT)
    }
    return tuple(
        sum(
            graph.buffers[buffer].bytes
            for buffer in {int(access.buffer) for access in node.accesses} & private
        )
        for node in graph.nodes
    )


@lru_cache(maxsize=64)
def _leader(first: ModelStep, step: ModelStep) -> tuple[int, ...]:
    """For each step of a prefill trace, the step of a decode trace that it is placed with.

    That step shares a state or a weight; a step with neither is placed with the step before it.
    """
    known: dict[str, int] = {}
    for role in (Role.WEIGHT, Role.STATE):
        for name, users in first.users(role).items():
            known[name] = users[0]
    graph = step.trace.graph
    leaders: list[int] = []
    for node in graph.nodes:
        held = [graph.buffers[access.buffer] for access in node.accesses]
        names = [b.name for role in (Role.STATE, Role.WEIGHT) for b in held if b.role is role]
        listed = [name for name in names if name in known]
        before = leaders[-1] if leaders else 0
        leaders.append(known[listed[0]] if listed else before)
    return tuple(leaders)


def follow_weights(model: ServedModel, decode: Sequence[int], step: ModelStep) -> Places:
    """The places of a prefill trace: with the decode steps that share its states or weights."""
    return tuple(decode[leader] for leader in _leader(model.decode[-1], step))


def places_of_all(model: ServedModel, decode: Sequence[int]) -> dict[str, Places]:
    """The places of every trace, from those of the decode traces, which are alike."""
    return {
        step.name: tuple(decode) if step.is_decode else follow_weights(model, decode, step)
        for step in model.steps
    }


def curves(
    model: ServedModel, places: Mapping[str, Places], unit: GpuUnit, work: Workload
) -> tuple[Curve, Curve] | None:
    """Times of decode and prefill steps by size; None if a step cannot run."""
    made: list[list[tuple[float, Taken]]] = [[], []]
    for step in model.steps:
        taken = taken_by(step, places[step.name], unit, work)
        if taken is None:
            return None
        size = step.rows if step.is_decode else step.rows * step.tokens
        made[0 if step.is_decode else 1].append((float(size), taken))
    return Curve(tuple(made[0])), Curve(tuple(made[1]))


# --- what ways are searched with -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WaySearch:
    """The inputs of the search for ways. `allowed` are the allowed strategies."""

    model: ServedModel
    offered: Offered
    work: Workload
    allowed: tuple[str, ...] = FLEET_STRATEGIES

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

    def rate(self, way: UnitWay) -> float:
        """The most requests per second that a way serves."""
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
    for lanes in sorted({1, used, used + 1, 2 * used} if used > 1 else {1}):
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
        )
        if best is None or search.rate(way) > search.rate(best):
            best = way
    return best
