"""Folds of a program: repeated runs of steps, for pictures that fold them.

In: a name per step, in order (any hashable values). Out: a tree of `Fold`s that together cover all
steps. A model of 32 layers repeats the same names 32 times; each repetition is a fold, and very
many adjacent folds are bundled. A long run without repetition is cut into pieces of equal length.

`layers` finds the repetitions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, sqrt

from tessera.ir.graph.layers import find_layers

_LEAST_FOLD = 3
_MOST_PLAIN = 48
_MOST_SIDE_BY_SIDE = 64


@dataclass(frozen=True, slots=True)
class Fold:
    """Steps `first` to `end` (exclusive) under one label; a fold without `inner` holds steps."""

    first: int
    end: int
    label: str
    inner: tuple[Fold, ...] = ()


def fold_steps(names: Sequence[Hashable]) -> tuple[Fold, ...]:
    """Folds in order; a step outside every fold is shown by itself."""
    return tuple(_bundled(list(_folds(names)), len(names)))


def _folds(names: Sequence[Hashable]) -> Iterator[Fold]:
    done, count = 0, 0
    for layer in find_layers(names):
        if layer.length < _LEAST_FOLD:
            continue
        yield from _pieces(done, layer.first)
        folds = []
        for place in range(layer.first, layer.end, layer.length):
            end = place + layer.length
            inner = tuple(_pieces(place, end)) if layer.length > 2 * _MOST_PLAIN else ()
            count += 1
            folds.append(Fold(place, end, f"layer {count}", inner))
        yield from _bundled(folds, layer.end - layer.first)
        done = layer.end
    yield from _pieces(done, len(names))


def _pieces(first: int, end: int) -> Iterator[Fold]:
    """Folds of steps that do not repeat; none for a few steps."""
    if end - first <= _MOST_PLAIN:
        return
    size = _MOST_PLAIN // 2
    pieces = [
        Fold(at, min(at + size, end), f"steps {at} to {min(at + size, end) - 1}")
        for at in range(first, end, size)
    ]
    yield from _bundled(pieces, end - first)


def _bundled(folds: list[Fold], steps: int) -> list[Fold]:
    """At most `_MOST_SIDE_BY_SIDE` folds on one level; more are bundled into parent folds."""
    if len(folds) <= _MOST_SIDE_BY_SIDE or steps <= _MOST_PLAIN:
        return folds
    size = ceil(sqrt(len(folds)))
    bundles = []
    for at in range(0, len(folds), size):
        part = folds[at : at + size]
        if len(part) == 1:
            bundles.append(part[0])
            continue
        label = _label_of(part)
        bundles.append(Fold(part[0].first, part[-1].end, label, tuple(part)))
    return bundles


def _label_of(part: list[Fold]) -> str:
    first, last = part[0].label, part[-1].label
    if first.startswith("layer") and last.startswith("layer"):
        return f"layers {first.split()[1]} to {last.split()[-1]}"
    return f"steps {part[0].first} to {part[-1].end - 1}"
