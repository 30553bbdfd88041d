"""What steps hand to each other: the tensors of a kernel graph.

In: a `KernelGraph`. Out: tensors. A tensor is what one step writes of a buffer and the same others
read: regions that overlap are cut into pieces that do not, since bytes are sent once to a device.
So no plan sends less than a problem counts with, and its bound is below every plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tessera.ir.arrays import Ranges
from tessera.ir.graph.graph import Edge, KernelGraph
from tessera.ir.graph.region import Region
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import region_bytes
from tessera.planning.problem.problem import Tensor


def tensors_of(graph: KernelGraph, first: int, rate: float) -> Iterator[Tensor]:
    """The tensors of a graph, whose first step is task `first`."""
    written: dict[tuple[int, int], dict[Region, list[Edge]]] = {}
    for edge in graph.edges:
        if edge.moves_bytes and not edge.carried and edge.source != edge.target:
            by_region = written.setdefault((edge.source, edge.buffer), {})
            by_region.setdefault(edge.region, []).append(edge)
    for (source, number), by_region in written.items():
        buffer = graph.buffers[number]
        taken: set[int] = set()
        for readers, size in _pieces(by_region, buffer.bytes):
            yield Tensor(
                name=f"{buffer.name}@#{source}",
                bytes=size,
                producer=first + source,
                consumers=tuple(first + reader for reader in readers),
                # What one step reads of what another wrote in a buffer goes in one transfer.
                count=int(taken.isdisjoint(readers)),
                rate=rate,
            )
            taken.update(readers)


def _pieces(
    by_region: Mapping[Region, Sequence[Edge]], size: int
) -> list[tuple[tuple[int, ...], int]]:
    """Sets of readers, and the bytes that just these read.

    Where sets meet, those with the fewest readers come first: a reader of bytes that no other reads
    has a transfer of its own, which brings what it shares with others too.
    """
    regions = [({int(edge.target) for edge in edges}, edges) for edges in by_region.values()]
    pieces = [(readers, max(edge.bytes for edge in edges)) for readers, edges in regions]
    if len(pieces) > 1:
        ranges = [region_bytes(region, size) for region in by_region]
        if sum(map(intervals.size, ranges)) > intervals.size(intervals.union(ranges)):
            apart: list[tuple[set[int], Ranges]] = []
            for (readers, _), own in zip(pieces, ranges, strict=True):
                apart = _apart(apart, readers, own)
            pieces = [(readers, intervals.size(own)) for readers, own in apart]
    joined: dict[tuple[int, ...], int] = {}
    for readers, count in pieces:
        key = tuple(sorted(readers))
        joined[key] = joined.get(key, 0) + count
    met = len({reader for key in joined for reader in key}) < sum(map(len, joined))
    by_readers = sorted(joined.items(), key=lambda entry: (len(entry[0]), -entry[1]))
    return by_readers if met else list(joined.items())


def _apart(
    pieces: list[tuple[set[int], Ranges]], readers: set[int], own: Ranges
) -> list[tuple[set[int], Ranges]]:
    """Pieces that do not overlap, with one more region."""
    made = []
    for others, there in pieces:
        both = intervals.intersect(there, own)
        for who, what in ((others | readers, both), (others, intervals.subtract(there, both))):
            if intervals.size(what):
                made.append((who, what))
        own = intervals.subtract(own, both)
    return [*made, (readers, own)] if intervals.size(own) else made
