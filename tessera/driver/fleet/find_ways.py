"""The ways to use GPUs: alone, in layers, prompts apart from answers, attention apart, by kernels.

In: a `ServedModel`, what is offered, a workload. Out: `UnitWay`s of all strategies, over all groups
of GPUs that are worth a look: one GPU, two to eight of a kind, pairs of kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations

from tessera.driver.fleet.kernel_ways import kernel_ways, too_many_steps
from tessera.driver.fleet.layer_ways import SAME_SIZES, layer_ways
from tessera.driver.fleet.tensor_parallel import tensor_way
from tessera.driver.fleet.way_search import TENSOR, WaySearch, placed_way
from tessera.driver.fleet.ways import Curve, Taken, UnitWay, places_of_all
from tessera.frontend.machine.collectives import all_reduce_ns
from tessera.frontend.machine.tables import INSTALL, extra_is_missing
from tessera.ir.choices import Strategy
from tessera.ir.program.program import Role

_PHASES = ((1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (2, 2))

OnWay = Callable[[str], None]


def find_ways(search: WaySearch, on_way: OnWay = lambda name: None) -> list[UnitWay]:
    """All ways that fit, of all strategies that are allowed."""
    kinds = range(len(search.offered.kinds))
    made: list[UnitWay] = []

    def keep(strategy: str, ways: Iterator[UnitWay]) -> None:
        if strategy in search.allowed:
            on_way(strategy)
            made.extend(ways)

    singles = {kind: _single(search, kind) for kind in kinds}
    keep(Strategy.SINGLE, (way for way in singles.values() if way is not None))
    fits = any(way is not None for way in singles.values())
    keep(Strategy.LAYERS, layer_ways(search, fits))
    keep(Strategy.PHASE, _phase_ways(search, made, singles))
    keep(Strategy.ATTENTION, _attention_ways(search))
    keep(TENSOR, _tensor_ways(search))
    layers = {way.gpus: way for way in made if way.strategy == Strategy.LAYERS}
    keep(Strategy.KERNEL, kernel_ways(search, layers, fits))
    return made


def why_none(search: WaySearch) -> dict[str, str]:
    """Why a strategy may have no way, where it is not that none fits."""
    reasons = {Strategy.KERNEL.value: too_many_steps(search)}
    kinds = search.offered.kinds
    if len(kinds) < 2:
        for strategy in (Strategy.ATTENTION.value, Strategy.KERNEL.value):
            reasons[strategy] = "it takes two kinds of GPUs"
    summed = [
        kind.label
        for kind in kinds
        if any(all_reduce_ns(kind.gpu.key, n, 1.0) is not None for n in SAME_SIZES)
    ]
    if all(kind.most < 2 for kind in kinds):
        reasons[TENSOR] = "it takes two GPUs of a kind"
    elif not summed:
        reasons[TENSOR] = "no table has sums over several of these GPUs"
        if extra_is_missing():
            reasons[TENSOR] += f"; more tables: {INSTALL}"
    return {name: reason for name, reason in reasons.items() if reason}


def _single(search: WaySearch, kind: int) -> UnitWay | None:
    counts = search.counts((kind, 1))
    unit = search.unit(counts)
    if unit is None:
        return None
    places = {step.name: (0,) * len(step.ns) for step in search.model.steps}
    return placed_way(search, Strategy.SINGLE, counts, unit, places)


# --- phases ------------------------------------------------------------------------------------


def _phase_ways(
    search: WaySearch, made: Sequence[UnitWay], singles: dict[int, UnitWay | None]
) -> Iterator[UnitWay]:
    """Prompts on some GPUs, answers on others; each holds the model, alone or in layers."""
    holders = {kind: way or _smallest_holder(made, kind) for kind, way in singles.items()}
    for reader, writer in permutations(holders, 2):
        for readers, writers in _PHASES:
            yield from _phase(search, holders[reader], holders[writer], readers, writers)
    for kind, way in holders.items():
        if way is not None:
            yield from _phase(search, holders[kind], way, 1, 1)


def _smallest_holder(made: Sequence[UnitWay], kind: int) -> UnitWay | None:
    own = [w for w in made if w.strategy == Strategy.LAYERS and w.gpus[kind] == sum(w.gpus)]
    return min(own, key=lambda way: sum(way.gpus), default=None)


def _phase(
    search: WaySearch, reader: UnitWay | None, writer: UnitWay | None, readers: int, writers: int
) -> Iterator[UnitWay]:
    if reader is None or writer is None:
        return
    counts = tuple(a * readers + b * writers for a, b in zip(reader.gpus, writer.gpus, strict=True))
    if any(n > kind.most for n, kind in zip(counts, search.offered.kinds, strict=True)):
        return
    handed = _handed_ns(search, reader, writer)
    if handed is None:
        return
    yield replace(
        writer,
        strategy=Strategy.PHASE,
        gpus=counts,
        names=f"{_times(readers, reader)} > {_times(writers, writer)}",
        decode=_steady(writer.decode, writer.lanes),
        prefill=_steady(reader.prefill, reader.lanes),
        lanes=writers * writer.lanes,
        readers=readers * reader.lanes,
        apart=True,
        handed_ns=handed,
    )


def _steady(curve: Curve, lanes: int) -> Curve:
    """What steps take where all lanes of a unit are under way: its busiest device decides."""
    return Curve(
        tuple(
            (size, Taken(max(taken.ns, lanes * max(taken.loads, default=0.0)), (0.0,)))
            for size, taken in curve.points
        )
    )


def _times(count: int, way: UnitWay) -> str:
    if count == 1:
        return way.names
    return f"{count}x{way.names}" if sum(way.gpus) == 1 else f"{count}x({way.names})"


def _handed_ns(search: WaySearch, reader: UnitWay, writer: UnitWay) -> float | None:
    """What the cache of a mean prompt takes over the slowest link between the two."""
    a, b = (next(k for k, n in enumerate(way.gpus) if n) for way in (reader, writer))
    first = search.offered.devices(a, 1)
    second = search.offered.devices(b, 1, after=1 if a == b else 0)
    if not first or not second:
        return None
    ways = [
        link
        for link in search.offered.machine.links
        if link.source == first[0] and link.target == second[0]
    ]
    if not ways:
        return None
    moved = sum(search.model.token_bytes.values()) * search.work.prompt
    moved += sum(search.model.row_bytes.values())
    return ways[0].latency_ns + moved * 1e9 / ways[0].bytes_per_second


# --- attention apart ---------------------------------------------------------------------------


def _attention_ways(search: WaySearch) -> Iterator[UnitWay]:
    """Attention and its caches on one GPU, all the rest on another."""
    decode = search.model.decode[-1]
    stays = set()
    for users in decode.users(Role.STATE).values():
        stays |= set(users)
    stays |= {n for n, attends in enumerate(decode.attends) if attends}
    if not stays or len(stays) == len(decode.ns):
        return
    for first, second in permutations(range(len(search.offered.kinds)), 2):
        counts = search.counts((first, 1), (second, 1))
        unit = search.unit(counts)
        if unit is None:
            continue
        holder = unit.kinds.index(first)
        places = tuple(holder if n in stays else 1 - holder for n in range(len(decode.ns)))
        way = placed_way(
            search, Strategy.ATTENTION, counts, unit, places_of_all(search.model, places)
        )
        if way is not None:
            note = f"attention on {search.offered.kinds[first].label}"
            yield replace(way, note=note)


# --- tensor parallelism ------------------------------------------------------------------------


def _tensor_ways(search: WaySearch) -> Iterator[UnitWay]:
    for kind in range(len(search.offered.kinds)):
        for count in SAME_SIZES:
            counts = search.counts((kind, count))
            unit = search.unit(counts)
            if unit is None:
                continue
            way = tensor_way(search.model, search.offered, kind, count, search.work)
            if way is not None:
                yield replace(
                    way,
                    strategy=TENSOR,
                    gpus=counts,
                    names=search.names(counts),
                    chunk=search.chunk,
                )
