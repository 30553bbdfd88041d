"""Splits by layers: a run of steps for each GPU, as even as memory allows.

In: a `WaySearch`. Out: `UnitWay`s, the best order of kinds for each group of GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, permutations

from tessera.driver.fleet.engines import EngineStage, UnitEngine
from tessera.driver.fleet.model_steps import ModelStep, ServedModel
from tessera.driver.fleet.offered import LARGEST_UNIT
from tessera.driver.fleet.placed_steps import GpuUnit, Places, places_of_all
from tessera.driver.fleet.ways import UnitWay, WaySearch, placed_way
from tessera.ir.program.program import Role
from tessera.planning.search.strategies import LAYERS, even_runs

SAME_SIZES = (2, 4, 8)
_SIZES = (1, 2, 3, 4, 6, 8)
_LARGE_SIZES = (4, 8, LARGEST_UNIT)
_LARGEST = 8
_ENOUGH = 3
_MOST_FULL = 0.97
"""Share of the memory of a GPU that steps may fill."""
_FEWEST = 4
_MORE = (1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0)
"""Sequences that even runs leave room for: a few, then more than fitted beside these runs."""

_NUMBER = re.compile(r"\d+")

Group = tuple[tuple[int, int], ...]
"""Kinds and counts, in the order in which their GPUs take the steps."""


def layer_ways(search: WaySearch, fits_alone: bool) -> Iterator[UnitWay]:
    """The best split by layers of each group of GPUs; only small groups if one GPU suffices."""
    kinds = range(len(search.offered.kinds))
    groups: list[Group] = [((kind, n),) for kind in kinds for n in SAME_SIZES]
    largest = _LARGEST if not fits_alone else _ENOUGH
    groups += [
        ((a, m), (b, n))
        for a, b in permutations(kinds, 2)
        for m in _SIZES
        for n in _SIZES
        if m + n <= largest
    ]
    best = _best_layers(search, groups)
    if not best and not fits_alone:
        best = _best_layers(search, _large_groups(search))
    yield from best.values()


def _best_layers(search: WaySearch, groups: Iterable[Group]) -> dict[tuple[int, ...], UnitWay]:
    """The best split of each of the groups that hold the model."""
    best: dict[tuple[int, ...], UnitWay] = {}
    for group in groups:
        way = _layers(search, group)
        if way is None:
            continue
        known = best.get(way.gpus)
        if known is None or search.rate(way) > search.rate(known):
            best[way.gpus] = way
    return best


def _large_groups(search: WaySearch) -> Iterator[Group]:
    """Groups for models that do not fit eight GPUs: up to sixteen of a kind, of several kinds."""
    kinds = search.offered.kinds
    for size in _LARGE_SIZES:
        for number in range(1, len(kinds) + 1):
            for order in permutations(range(len(kinds)), number):
                yield tuple((kind, int(min(size, kinds[kind].most))) for kind in order)


def _layers(search: WaySearch, group: Sequence[tuple[int, int]]) -> UnitWay | None:
    """Runs of steps, as even as memory for some number of sequences allows: the best number.

    GPUs of the first kind take the first runs.
    """
    counts = search.counts(*group)
    unit = search.unit(counts)
    if unit is None:
        return None
    devices = [d for kind, _ in group for d, k in enumerate(unit.kinds) if k == kind]
    best: UnitWay | None = None
    tried: set[Places] = set()
    fewest = float(_FEWEST)
    for factor in _MORE:
        cut = _even_cut(search, unit, devices, fewest * factor)
        if cut is None:
            break
        way = None if cut in tried else placed_way(search, LAYERS, counts, unit, search.places(cut))
        tried.add(cut)
        if way is None:
            continue
        layers = stage_layers(search.model.decode[-1], cut, devices)
        stages = [EngineStage(unit.kinds[d], n) for d, n in zip(devices, layers, strict=True)]
        if best is None or search.rate(way) > search.rate(best):
            best = with_engine(way, stages)
        if factor == _MORE[0]:
            fewest = float(way.rows * way.lanes)
    return best


def _even_cut(
    search: WaySearch, unit: GpuUnit, devices: Sequence[int], sequences: float
) -> Places | None:
    """Even runs that fit beside the caches of so many sequences."""
    cards = (unit.machine.cards[unit.machine.devices[device].card] for device in devices)
    rooms = [_MOST_FULL * card.memory_bytes for card in cards]
    times, sizes = _weighted(search, sequences)
    parts = segments(search.model.decode[-1])
    kinds = range(len(times[0]))
    summed = [[sum(times[n][kind] for n in part) for kind in kinds] for part in parts]
    cut = even_runs(
        [[row[unit.kinds[device]] for device in devices] for row in summed],
        sum(max(row) for row in summed) or 1.0,
        [sum(sizes[n] for n in part) for part in parts],
        rooms,
    )
    if cut is None:
        return None
    return tuple(devices[at] for part, at in zip(parts, cut, strict=True) for _ in part)


def with_engine(way: UnitWay, stages: Sequence[EngineStage], tensor: int = 1) -> UnitWay:
    """A way that is one engine."""
    engine = UnitEngine(stages=tuple(stages), tensor=tensor, lanes=way.lanes, rows=way.rows)
    return replace(way, engines=(engine,))


def stage_layers(step: ModelStep, places: Sequence[int], devices: Sequence[int]) -> list[int]:
    """How many layers each of the devices has, by the numbers in the names of states.

    A layer is where the last step with one of its states is. All 0 if the names do not say it, or
    if layers are not in the order of the devices.
    """
    states = {name: max(users) for name, users in step.users(Role.STATE).items()}
    numbers = [[int(n) for n in _NUMBER.findall(name)] for name in states]
    count = min(map(len, numbers), default=0)
    varied = [n for n in range(count) if len({own[n] for own in numbers}) > 1]
    if not count:
        return [0] * len(devices)
    last: dict[int, int] = {}
    for own, user in zip(numbers, states.values(), strict=True):
        layer = own[varied[0] if varied else 0]
        last[layer] = max(last.get(layer, 0), user)
    firsts = [min((n for n, at in last.items() if places[at] == d), default=-1) for d in devices]
    sizes = [end - first for first, end in pairwise((0, *firsts[1:], max(last) + 1))]
    return sizes if min(sizes) > 0 and min(firsts) >= 0 else [0] * len(devices)


def all_layers(model: ServedModel) -> int:
    """The layers of a model; 0 if they are not known."""
    step = model.decode[-1]
    return stage_layers(step, [0] * len(step.ns), [0])[0]


def segments(step: ModelStep) -> list[list[int]]:
    """Runs of steps that no cut goes through: those from the first user of a state to the last."""
    last = list(range(len(step.ns)))
    for users in step.users(Role.STATE).values():
        last[min(users)] = max(last[min(users)], max(users))
    segments: list[list[int]] = []
    end = -1
    for number in range(len(step.ns)):
        if number > end:
            segments.append([])
        segments[-1].append(number)
        end = max(end, last[number])
    return segments


def _weighted(search: WaySearch, sequences: float) -> tuple[list[list[float]], list[float]]:
    """Times and bytes per step of the decode trace.

    Times are per kind and request, and include those of the matching prefill steps; bytes are those
    that a step keeps in memory with so many sequences.
    """
    model, work = search.model, search.work
    decode, prefill = model.decode[-1], model.prefill[-1]
    steps = max(work.answer - 1, 0.0) / decode.rows
    reads = work.prompt / (prefill.rows * prefill.tokens)
    index = _follow_index(model, prefill)
    kinds = range(len(search.offered.kinds))
    times = [[(row[k] or 0.0) * steps for k in kinds] for row in decode.ns]
    for step, row in enumerate(prefill.ns):
        for k in kinds:
            times[index[step]][k] += (row[k] or 0.0) * reads
    sizes = [0.0] * len(decode.ns)
    each = work.prompt + work.answer
    for name, users in decode.users(Role.WEIGHT).items():
        sizes[users[0]] += model.weight_bytes[name]
    for name, users in decode.users(Role.STATE).items():
        kept = model.token_bytes.get(name, 0.0) * each + model.row_bytes.get(name, 0.0)
        sizes[users[0]] += sequences * kept
    return times, sizes


def _follow_index(model: ServedModel, step: ModelStep) -> list[int]:
    """For each step of a prefill trace, the step of the decode trace that it belongs to."""
    decode = model.decode[-1]
    places = places_of_all(model, range(len(decode.ns)))
    return list(places[step.name])
