"""Layers: runs of steps that repeat, so that a picture shows only one of them.

In: a key per step, equal for steps that look alike. Out: `Layer` records that do not overlap. A
layer is a range whose keys repeat with a period. Candidate periods are the distances between equal
short runs of keys. The search takes the period that covers the most steps (the shortest among
equals), and repeats with the steps before and after it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from tessera.ir.graph.graph import KernelGraph

_RUNS = (1, 2, 4, 8, 16)  # lengths of the short runs of keys
_MOST_PERIODS = 16  # of each length, the most frequent ones
_LEAST_HIDDEN = 3  # a layer that hides fewer steps is not worth a box
_NUMBER = re.compile(r"_?[0-9]+\Z")


@dataclass(frozen=True, slots=True)
class Layer:
    """`times` equal runs of `length` steps, one after the other, starting at step `first`."""

    first: int
    length: int
    times: int

    @property
    def end(self) -> int:
        """The step after the last."""
        return self.first + self.length * self.times

    def shown(self, step: int) -> int:
        """The step of the first run that is shown for this step."""
        return self.first + (step - self.first) % self.length


def graph_layers(graph: KernelGraph) -> tuple[Layer, ...]:
    """The layers of a graph: steps with equal family and numbers of pins and accesses match."""
    return find_layers(
        [(kernel_family(node.name), len(node.pins), len(node.accesses)) for node in graph.nodes]
    )


def kernel_family(step: str) -> str:
    """The name of a step without its module and the number that compilers put at its end."""
    name = step.rpartition(".")[2]
    return _NUMBER.sub("", name) or name


def find_layers(keys: Sequence[Hashable]) -> tuple[Layer, ...]:
    """The layers of steps with these keys, in their order."""
    numbers: dict[Hashable, int] = {}
    steps = [numbers.setdefault(key, len(numbers)) for key in keys]
    layers: list[Layer] = []
    rest = [(0, len(steps))]
    while rest:
        start, end = rest.pop()
        layer = _widest(steps, start, end)
        if layer is not None:
            layers.append(layer)
            rest += [(start, layer.first), (layer.end, end)]
    return tuple(sorted(layers, key=lambda layer: layer.first))


def _widest(steps: list[int], start: int, end: int) -> Layer | None:
    best: Layer | None = None
    for period in sorted(_periods(steps, start, end)):
        run = 0  # consecutive steps that equal the step one period later
        for step in range(start, end - period + 1):
            if step < end - period and steps[step] == steps[step + period]:
                run += 1
                continue
            layer = Layer(step - run, period, run // period + 1)
            hidden = layer.length * (layer.times - 1)
            if hidden >= _LEAST_HIDDEN and (
                best is None or layer.end - layer.first > best.end - best.first
            ):
                best = layer
            run = 0
    return best


def _periods(steps: list[int], start: int, end: int) -> set[int]:
    periods: set[int] = set()
    for length in _RUNS:
        seen: dict[tuple[int, ...], int] = {}
        gaps: Counter[int] = Counter()
        for step in range(start, end - length + 1):
            run = tuple(steps[step : step + length])
            if run in seen:
                gaps[step - seen[run]] += 1
            seen[run] = step
        periods.update(gap for gap, _ in gaps.most_common(_MOST_PERIODS))
    return periods
