"""Attention apart, layer by layer: caches of some layers on another device than their weights.

In: a `Problem` and two devices. Out: a placement. The first `own` layers are on one device; of the
next `apart` it has everything but caches and attention over them, which are on the other device;
the rest is on the other. Or the same from the last layer on. With caches elsewhere more of them
fit, and every layer that is apart crosses the link twice: `best_split` weighs that, for plans and
for units of fleets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tessera.planning.problem.problem import Placement, Problem, runs
from tessera.planning.search.single_moves import State

_COARSE, _KEPT = 8, 3

Split = tuple[int, int]
"""Layers that one device has alone, and those with attention apart."""


def best_split(most: int, rate: Callable[[Split], float]) -> Split | None:
    """The best split of so many layers: of those on a grid, then beside the best ones of it.

    `rate` is 0 for a split that does not fit. None if no split does.
    """
    known: dict[Split, float] = {}

    def best_of(splits: Iterable[Split]) -> list[Split]:
        for own, apart in splits:
            if own >= 0 and apart >= 1 and own + apart <= most and (own, apart) not in known:
                known[own, apart] = rate((own, apart))
        return sorted(known, key=lambda split: -known[split])[:_KEPT]

    step = max(1, most // _COARSE)
    ladder = [*range(0, most, step), most]
    best = best_of((own, apart) for own in ladder for apart in ladder)
    while step > 1:
        step = -(-step // 2)
        moves = [(a * step, b * step) for a in (-1, 0, 1) for b in (-1, 0, 1)]
        best = best_of([(own + a, apart + b) for own, apart in best for a, b in moves])
    return next((split for split in best if known[split] > 0), None)


@dataclass(frozen=True, slots=True)
class AttentionLayers:
    """The layer of each task, and whether it holds a cache. A layer ends after such a task."""

    layers: tuple[int, ...]
    stays: tuple[bool, ...]

    @property
    def count(self) -> int:
        """The number of layers."""
        return max(self.layers) + 1

    def placement(self, split: Split, first: int, second: int, is_turned: bool) -> Placement:
        """The placement of a split; `is_turned`: layers are counted from the last one on."""
        own, apart = split
        last = self.count - 1
        places = []
        for layer, stays in zip(self.layers, self.stays, strict=True):
            number = last - layer if is_turned else layer
            places.append(second if number >= own + (0 if stays else apart) else first)
        return tuple(places)


def attention_layers(problem: Problem) -> AttentionLayers | None:
    """The layers of a problem by its caches: attention that is joined with what fills the cache.

    None if there is none: then attention has no place of its own.
    """
    if problem.detail is None:
        return None
    detail, groups = problem.detail.problem, problem.detail.groups
    members: dict[int, list[int]] = {}
    for task, group in enumerate(groups):
        members.setdefault(group, []).append(task)
    caches = [group for group, own in members.items() if problem.tasks[group].kind and len(own) > 1]
    if not caches or len(caches) == len(problem.tasks):
        return None
    number = {group: layer for layer, group in enumerate(caches)}
    layers = [0] * len(problem.tasks)
    done: dict[int, int] = {}
    for task, group in reversed(list(enumerate(groups))):
        trace = detail.tasks[task].trace
        if group in number:
            done[trace] = number[group]
        layers[group] = number.get(group, done.get(trace, len(caches) - 1))
    return AttentionLayers(tuple(layers), tuple(g in number for g in range(len(problem.tasks))))


def attention_apart(problem: Problem, first: int, second: int) -> list[Placement]:
    """The best placements that fit, with layers counted from the first and from the last one on."""
    layers = attention_layers(problem)
    if layers is None:
        return []
    index = State(problem, (first,) * len(problem.tasks)).index
    made = []
    for is_turned in (False, True):

        def rate(split: Split, is_turned: bool = is_turned) -> float:
            placement = layers.placement(split, first, second, is_turned)
            if not runs(problem, placement):
                return 0.0
            state = State(problem, placement, index)
            return 1.0 / max(state.period(), 1e-9) if state.excess() == 0 else 0.0

        split = best_split(layers.count, rate)
        if split is not None:
            made.append(layers.placement(split, first, second, is_turned))
    return made
