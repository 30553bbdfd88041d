"""Layers of a program: which runs of steps repeat, for pictures that fold them.

In: a name per step, in order (any values that can be compared will do). Out: a tree of `Fold`s
that together cover all steps. A model of 32 layers repeats the same names 32 times; each time is
a fold, and very many folds side by side are bundled. What repeats nothing is cut into pieces of
equal length where it is long.

The period of a repetition is a distance between a name and one of its next occurrences, so only
the most frequent such distances are tried: the work grows with the number of steps alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, sqrt

_NEXT = 8
_MOST_PERIODS = 24
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
    """Folds in order; steps that are in none stand for themselves."""
    layers = [0]
    return tuple(_bundled(list(_folds(names, 0, len(names), layers)), len(names)))


def _folds(names: Sequence[Hashable], first: int, end: int, layers: list[int]) -> Iterator[Fold]:
    found = _best_repeat(names, first, end)
    if found is None:
        yield from _pieces(first, end)
        return
    start, period, count = found
    if start > first:
        yield from _folds(names, first, start, layers)
    folds = []
    for number in range(count):
        place = start + number * period
        inner = tuple(_pieces(place, place + period)) if period > 2 * _MOST_PLAIN else ()
        layers[0] += 1
        folds.append(Fold(place, place + period, f"layer {layers[0]}", inner))
    yield from _bundled(folds, count * period)
    if start + count * period < end:
        yield from _folds(names, start + count * period, end, layers)


def _pieces(first: int, end: int) -> Iterator[Fold]:
    """Steps without a repetition: left alone where they are few."""
    if end - first <= _MOST_PLAIN:
        return
    size = _MOST_PLAIN // 2
    pieces = [
        Fold(at, min(at + size, end), f"steps {at} to {min(at + size, end) - 1}")
        for at in range(first, end, size)
    ]
    yield from _bundled(pieces, end - first)


def _bundled(folds: list[Fold], steps: int) -> list[Fold]:
    """At most so many side by side; more are put into folds of their own."""
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


def _best_repeat(names: Sequence[Hashable], first: int, end: int) -> tuple[int, int, int] | None:
    """Start, period and count of the repetition that covers the most steps."""
    if end - first < 2 * _LEAST_FOLD:
        return None
    best: tuple[int, int, int] | None = None
    for period in sorted(_periods(names, first, end)):
        start, length = _longest(names, first, end, period)
        count = (length + period) // period
        if count < 2 or length < period:
            continue
        if best is None or count * period > best[1] * best[2]:
            best = start, period, count
    return best


def _periods(names: Sequence[Hashable], first: int, end: int) -> list[int]:
    """Frequent distances from a name to its next occurrences."""
    places: dict[Hashable, list[int]] = {}
    for at in range(first, end):
        places.setdefault(names[at], []).append(at)
    distances: Counter[int] = Counter()
    for own in places.values():
        for step in range(1, min(_NEXT, len(own) - 1) + 1):
            distances.update(b - a for a, b in zip(own, own[step:], strict=False))
    usable = {d: c for d, c in distances.items() if d >= _LEAST_FOLD and 2 * d <= end - first}
    ranked = sorted(usable, key=lambda distance: (-usable[distance] * distance, distance))
    return ranked[:_MOST_PERIODS]


def _longest(names: Sequence[Hashable], first: int, end: int, period: int) -> tuple[int, int]:
    """Where the longest run begins in which every name comes again after `period`, and its size."""
    best_start, best, run = first, 0, 0
    for at in range(first, end - period):
        run = run + 1 if names[at] == names[at + period] else 0
        if run > best:
            best_start, best = at - run + 1, run
    return best_start, best


def kernel_family(name: str) -> str:
    """A kernel's name without its module and the number that compilers put behind it."""
    own = name.rpartition(".")[2]
    return own.rstrip("0123456789").rstrip("_") or own
