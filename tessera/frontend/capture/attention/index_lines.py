"""Affine forms of indices: what the elements of a tensor of whole numbers are.

In: nodes of a recorded graph. Out: an `IndexLine` for what a node makes of another one. Used by
`masks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch.fx import Node

from tessera.frontend.capture.graphs.graph_nodes import call_of, is_plain_index, shape_of, value_of


@dataclass(frozen=True, slots=True)
class HeldValue:
    """The value of a tensor with one element, when `used` runs; None: not used yet."""

    value: Node
    used: Node | None
    factor: int


@dataclass(frozen=True, slots=True)
class IndexLine:
    """`constant` + the sum of `slopes` times indices (one per dimension) + unknowns."""

    slopes: tuple[int, ...]
    constant: int = 0
    terms: tuple[HeldValue, ...] = ()


def wide(slopes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Slopes for more dimensions in front."""
    return ((0,) * rank + slopes)[-rank:] if rank else ()


def flat(line: IndexLine, shape: Sequence[int]) -> IndexLine:
    """A line without slopes along dimensions of size 1: they may be repeated later."""
    slopes = zip(wide(line.slopes, len(shape)), shape, strict=True)
    return replace(line, slopes=tuple(slope if size > 1 else 0 for slope, size in slopes))


def difference(first: IndexLine, second: IndexLine, less: int = 0) -> IndexLine:
    """`first` - `second` - `less`."""
    rank = max(len(first.slopes), len(second.slopes))
    pairs = zip(wide(first.slopes, rank), wide(second.slopes, rank), strict=True)
    turned = tuple(replace(term, factor=-term.factor) for term in second.terms)
    return IndexLine(
        tuple(a - b for a, b in pairs),
        first.constant - second.constant - less,
        _sum_of_terms((*first.terms, *turned)),
    )


def _sum_of_terms(terms: tuple[HeldValue, ...]) -> tuple[HeldValue, ...]:
    """Unknowns added up; those that cancel are gone."""
    totals: dict[tuple[object, object], HeldValue] = {}
    for term in terms:
        key = (term.value, term.used)
        before = totals[key].factor if key in totals else 0
        totals[key] = replace(term, factor=term.factor + before)
    return tuple(term for term in totals.values() if term.factor)


def moved_line(node: object, line: IndexLine) -> IndexLine | None:
    """A line through a node that only adds, drops or repeats dimensions, or changes the type."""
    name, arguments = call_of(node)
    shape, value = shape_of(node), value_of(node)
    if shape is None or value is None or value.dtype.is_floating_point:
        return None
    before = shape_of(arguments[0])
    if before is None:
        return None
    slopes = wide(line.slopes, len(before))
    if name in ("to", "long", "int", "contiguous", "clone", "type"):
        kept = value.dtype in (torch.int64, torch.int32, torch.bool)
        return replace(line, slopes=slopes) if kept else None
    if name == "expand":
        return replace(line, slopes=wide(slopes, len(shape)))
    if name in ("getitem", "unsqueeze", "view", "reshape", "squeeze"):
        if not (line.terms or any(slopes)):
            return IndexLine((0,) * len(shape), line.constant)  # the same wherever it is read
        starts = _starts(arguments[1], len(before)) if name == "getitem" else None
        if starts is not None:
            moved = sum(slope * start for slope, start in zip(slopes, starts, strict=True))
            return replace(line, slopes=slopes, constant=line.constant + moved)
        if name == "getitem" and not is_plain_index(arguments[1]):
            return None
        return _with_ones(line, slopes, before, shape)
    return None


def _starts(index: object, rank: int) -> list[int] | None:
    """The starts of an index that slices every dimension, counted from the front."""
    if not isinstance(index, tuple) or len(index) != rank:
        return None
    starts = []
    for part in index:
        if not isinstance(part, slice) or part.step not in (None, 1):
            return None
        start = 0 if part.start is None else part.start
        if not isinstance(start, int) or start < 0:
            return None
        starts.append(start)
    return starts


def _with_ones(
    line: IndexLine, slopes: tuple[int, ...], before: tuple[int, ...], after: tuple[int, ...]
) -> IndexLine | None:
    """A line where dimensions of size 1 come or go, and no others."""
    rest = [(slope, size) for slope, size in zip(slopes, before, strict=True) if size != 1]
    if [size for size in after if size != 1] != [size for _, size in rest]:
        return None
    left = iter(rest)
    return replace(line, slopes=tuple(0 if size == 1 else next(left)[0] for size in after))
