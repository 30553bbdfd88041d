"""Attention apart: the caches of some layers, and attention over them, on another GPU.

In: a `WaySearch`. Out: `UnitWay`s, the best for each group of GPUs. GPUs of two kinds are in pairs,
and each pair has a run of layers. Of these, the first `own` are on one GPU of the pair; of the next
`apart` it has the weights, and the other GPU the caches and attention; the rest is on the other.
Or the same from the last layer on: what is before the first layer, and after the last, is heavy.
So memory for caches, time and transfers are weighed layer by layer: with caches elsewhere, batches
grow, and every layer that is apart crosses the link twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from tessera.driver.fleet.layer_ways import segments
from tessera.driver.fleet.model_steps import ModelStep
from tessera.driver.fleet.placed_steps import GpuUnit, Ints, Places
from tessera.driver.fleet.ways import UnitWay, WaySearch, placed_way
from tessera.ir.program.program import Role
from tessera.planning.search.attention import Split, best_split
from tessera.planning.search.strategies import ATTENTION

_MOST_PAIRS = 4


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
    """The best way of each group of pairs; several pairs if no GPU suffices."""
    layers, stays = _layers(search.model.decode[-1])
    if not stays.any() or stays.all():
        return
    for kinds in combinations(range(len(search.offered.kinds)), 2):
        for count in range(1, 2 if fits_alone else _MOST_PAIRS + 1):
            unit = search.unit(search.counts(*((kind, count) for kind in kinds)))
            if unit is None or layers[-1] + 1 < count:
                break
            ways = [
                _best(search, _GpuPairs(unit, order, count, layers, stays, is_turned))
                for order in (kinds, kinds[::-1])
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


def _best(search: WaySearch, pairs: _GpuPairs) -> UnitWay | None:
    """The way of the best split."""
    ways: dict[Split, UnitWay] = {}
    counts = search.counts(*((kind, pairs.count) for kind in pairs.kinds))

    def rate(split: Split) -> float:
        places = search.places(pairs.places(split))
        way = placed_way(search, ATTENTION, counts, pairs.unit, places)
        if way is None:
            return 0.0
        ways[split] = way
        return search.rate(way)

    split = best_split(pairs.most, rate)
    return split and replace(ways[split], note=_note(search, pairs, split))


def _note(search: WaySearch, pairs: _GpuPairs, split: Split) -> str:
    own, apart = split
    name = search.offered.kinds[pairs.kinds[1]].label
    layers = f"{pairs.most} layers" + (" of each pair" if pairs.count > 1 else "")
    rest = pairs.most - own - apart
    return f"attention of {apart} of {layers} on {name}" + (
        f", {rest} whole ones there" if rest else ""
    )
