"""The memory of a device in cells: bytes on which operations of different queues may conflict.

In: the places of the buffers that transfers touch, and of those that share bytes with them. Out:
the cells of every grain of these buffers. A buffer that shares no bytes has a cell for each of its
grains. Where buffers overlap, bytes that belong to the same grain of each of them are one cell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from tessera.ir.plan.launch_program import AreaKind, Place
from tessera.passes.byte_sets.intervals import distinct
from tessera.planning.lower.grains import Grains, TraceBytes

_REST = -1
"""The number of the bytes of a buffer that are in none of its grains."""


class Cells:
    """The cells of the watched buffers of one device."""

    def __init__(
        self, trace: TraceBytes, places: Mapping[int, Place], watched: Collection[int]
    ) -> None:
        self.count = 0
        self._of: dict[int, dict[int, tuple[int, ...]]] = {}
        for group in _groups(trace, places, watched):
            if len(group) == 1:
                grains = range(_REST, len(trace.grains[group[0]].bytes))
                self._of[group[0]] = {grain: (self.count + grain + 1,) for grain in grains}
                self.count += len(grains)
            elif all(_is_whole(trace, buffer) for buffer in group):
                self._number(trace, places, group)
            else:
                self._cut(trace, places, group)

    def of(self, buffer: int, grains: Grains) -> tuple[int, ...]:
        """The cells of grains of a buffer."""
        cells = self._of[buffer]
        if len(grains) == 1:
            return cells[grains[0]]
        return tuple(dict.fromkeys(cell for grain in grains for cell in cells[grain]))

    def whole(self, buffer: int) -> tuple[int, ...]:
        """All cells of a buffer."""
        return self.of(buffer, tuple(self._of[buffer]))

    def _number(self, trace: TraceBytes, places: Mapping[int, Place], group: Sequence[int]) -> None:
        """Number the cells of buffers of one grain each: a cell is the bytes between two edges."""
        spans = [_span(trace, places, buffer) for buffer in group]
        edges = sorted({edge for span in spans for edge in span})
        at = {edge: cell for cell, edge in enumerate(edges, self.count)}
        for buffer, (start, end) in zip(group, spans, strict=True):
            self._of[buffer] = {0: tuple(range(at[start], at[end]))}
        self.count += len(edges)

    def _cut(self, trace: TraceBytes, places: Mapping[int, Place], group: Sequence[int]) -> None:
        spans = [_span(trace, places, buffer) for buffer in group]
        moved = {
            buffer: [ranges + np.int64(start) for ranges in trace.grains[buffer].bytes]
            for buffer, (start, _) in zip(group, spans, strict=True)
        }
        ranges = [r.ravel() for own in moved.values() for r in own]
        edges = distinct(np.concatenate([*ranges, np.array(spans, dtype=np.int64).ravel()]))
        kinds = np.zeros(len(edges), dtype=np.int64)  # kind of the bytes between two edges
        count = 1
        inside = {}
        for buffer, span in zip(group, spans, strict=True):
            low, high = np.searchsorted(edges, span)
            change = np.zeros(high - low + 1, dtype=np.int64)
            for grain, own in enumerate(moved[buffer], start=1):
                first, last = (np.searchsorted(edges, own) - low).T
                change[first] += grain
                change[last] -= grain
            grain_of = np.cumsum(change[:-1]) + _REST
            inside[buffer] = low, high, grain_of
            if len(edges) > 2 * len(group):
                both = kinds[low:high] * (grain_of.max(initial=0) + 2) + grain_of + 1
                _, alike = np.unique(both, return_inverse=True)
                kinds[low:high] = count + alike
                count += len(alike)
        if len(edges) <= 2 * len(group):
            kinds = np.arange(len(edges))
        _, kinds = np.unique(kinds, return_inverse=True)
        kinds = kinds.ravel() + self.count
        self.count += len(edges)
        for buffer, (low, high, grain_of) in inside.items():
            own_kinds = kinds[low:high]
            _, firsts = np.unique((grain_of + 1) * self.count + own_kinds, return_index=True)
            firsts.sort()
            cells: dict[int, list[int]] = {}
            for grain, cell in zip(
                grain_of[firsts].tolist(), own_kinds[firsts].tolist(), strict=True
            ):
                cells.setdefault(grain, []).append(cell)
            self._of[buffer] = {grain: tuple(own) for grain, own in cells.items()}


def _is_whole(trace: TraceBytes, buffer: int) -> bool:
    """Whether a buffer is one grain."""
    grains = trace.grains[buffer].bytes
    size = trace.program.buffers[buffer].bytes
    return len(grains) == 1 and grains[0].tolist() == [[0, size]]


def _span(trace: TraceBytes, places: Mapping[int, Place], buffer: int) -> tuple[int, int]:
    return places[buffer].taken(trace.program.buffers[buffer].bytes)


def _groups(
    trace: TraceBytes, places: Mapping[int, Place], watched: Collection[int]
) -> Iterator[list[int]]:
    """Groups of buffers that overlap."""
    group: list[int] = []
    reach = 0
    private = [b for b in watched if places[b].kind is AreaKind.SLOT]
    for buffer in sorted(private, key=lambda one: (places[one].offset, one)):
        start, end = _span(trace, places, buffer)
        if group and start >= reach:
            yield group
            group = []
        group.append(buffer)
        reach = max(reach, end)
    if group:
        yield group
    yield from ([b] for b in watched if places[b].kind is not AreaKind.SLOT)
