"""Attention apart: the caches of some layers, and attention over them, on another GPU.

In: a `WaySearch`. Out: `UnitWay`s, the best for each group of GPUs. GPUs of two kinds are in pairs,
and each pair has a run of layers. Of these, the first `own` are on one GPU of the pair; of the next
`apart` it has the weights, and the other GPU the caches and attention; the rest is on the other.
Or the same from the last layer on: what is before the first layer, and after the last, is heavy.
So memory for caches, time and transfers are weighed layer by layer: with caches elsewhere, batches
grow, and every layer that is apart crosses the link twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np

from tessera.driver.fleet.layer_ways import segments
from tessera.driver.fleet.model_steps import ModelStep
from tessera.driver.fleet.placed_steps import GpuUnit, Ints, Places
from tessera.driver.fleet.ways import UnitWay, WaySearch, placed_way
from tessera.ir.program.program import Role
from tessera.planning.search.strategies import ATTENTION

_MOST_PAIRS = 4
_COARSE, _KEPT = 8, 3

Split = tuple[int, int]
"""Layers of a pair that one GPU has alone, and those with attention apart."""


@dataclass(frozen=True, slots=True)
class _GpuPairs:
    """So many pairs of GPUs, attention on the second kind; the layer of each step, and 1 where it
    touches a cache. `is_turned`: layers are counted from the last one on."""

    unit: GpuUnit
    kinds: tuple[int, int]
    count: int
    layers: Ints
    stays: Ints
    is_turned: bool = False

    @property
    def most(self) -> int:
        """Layers of a pair."""
        return -(-(int(self.layers[-1]) + 1) // self.count)

    def places(self, split: Split) -> Places:
        """The places of the steps of a decode trace."""
        own, apart = split
        pair = self.layers // self.most
        ends = np.minimum((pair + 1) * self.most, self.layers[-1] + 1)
        within = ends - 1 - self.layers if self.is_turned else self.layers - pair * self.most
        is_second = within >= own + apart * (1 - self.stays)
        kinds = np.array(self.unit.kinds)
        devices = np.array([np.flatnonzero(kinds == kind) for kind in self.kinds])
        return tuple(devices[is_second.astype(int), pair].tolist())


def attention_ways(search: WaySearch, fits_alone: bool) -> Iterator[UnitWay]:
    """The best ways with attention apart, both ways round; several pairs if no GPU suffices."""
    layers, stays = _layers(search.model.decode[-1])
    if not stays.any() or stays.all():
        return
    for kinds in permutations(range(len(search.offered.kinds)), 2):
        for count in range(1, 2 if fits_alone else _MOST_PAIRS + 1):
            unit = search.unit(search.counts(*((kind, count) for kind in kinds)))
            if unit is None or layers[-1] + 1 < count:
                break
            ways = [
                _climbed(search, _GpuPairs(unit, kinds, count, layers, stays, is_turned))
                for is_turned in (False, True)
            ]
            yield from sorted(filter(None, ways), key=search.rate)[-1:]


def _layers(step: ModelStep) -> tuple[Ints, Ints]:
    """The layer of each step, and 1 where it touches a cache: a layer ends after those."""
    users = {user for own in step.users(Role.STATE).values() for user in own}
    layers, stays = [], []
    layer = 0
    for segment in segments(step):
        is_cache = not users.isdisjoint(segment)
        layers += [layer] * len(segment)
        stays += [int(is_cache)] * len(segment)
        layer += is_cache
    return np.minimum(np.array(layers), max(layer - 1, 0)), np.array(stays)


def _climbed(search: WaySearch, pairs: _GpuPairs) -> UnitWay | None:
    """The best of all splits: of those on a grid, then beside the best ones of it."""
    known: dict[Split, tuple[float, UnitWay | None]] = {}
    counts = search.counts(*((kind, pairs.count) for kind in pairs.kinds))

    def best_of(splits: Iterable[Split]) -> list[Split]:
        for own, apart in splits:
            if own >= 0 and apart >= 1 and own + apart <= pairs.most and (own, apart) not in known:
                places = search.places(pairs.places((own, apart)))
                way = placed_way(search, ATTENTION, counts, pairs.unit, places)
                known[own, apart] = (0.0 if way is None else search.rate(way)), way
        return sorted(known, key=lambda split: -known[split][0])[:_KEPT]

    step = max(1, pairs.most // _COARSE)
    ladder = [*range(0, pairs.most, step), pairs.most]
    best = best_of((own, apart) for own in ladder for apart in ladder)
    while step > 1:
        step = -(-step // 2)
        moves = [(a * step, b * step) for a in (-1, 0, 1) for b in (-1, 0, 1)]
        best = best_of([(own + a, apart + b) for own, apart in best for a, b in moves])
    way = known[best[0]][1]
    return way and replace(way, note=_note(search, pairs, best[0]))


def _note(search: WaySearch, pairs: _GpuPairs, split: Split) -> str:
    own, apart = split
    name = search.offered.kinds[pairs.kinds[1]].label
    layers = f"{pairs.most} layers" + (" of each pair" if pairs.count > 1 else "")
    rest = pairs.most - own - apart
    return f"attention of {apart} of {layers} on {name}" + (
        f", {rest} whole ones there" if rest else ""
    )
