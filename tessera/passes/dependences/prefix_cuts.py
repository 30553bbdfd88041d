"""The number of bytes that cross each cut of a program into a first and a second part.

In: a kernel graph. Out: per cut (after step 0, after step 1, ...) the bytes that steps before it
write and steps after it need. A version of a byte counts once, however many steps read it. The
bytes that a request starts with (inputs, weights, state) are not counted.
"""

from __future__ import annotations

from tessera.ir.graph.graph import Edge, KernelGraph
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import region_bytes


def prefix_cuts(graph: KernelGraph) -> tuple[int, ...]:
    """The bytes that cross the cut after each step except the last."""
    changes = [0] * (len(graph.nodes) + 1)
    groups: dict[tuple[int, int], list[Edge]] = {}
    for edge in graph.edges:
        if edge.moves_bytes and not edge.carried:
            groups.setdefault((edge.source, edge.buffer), []).append(edge)
    for (source, buffer), edges in groups.items():
        needed = intervals.EMPTY
        size = graph.buffers[buffer].bytes
        # From the last reader back: the set of bytes needed after each cut only grows.
        counted = 0
        for edge in sorted(edges, key=lambda e: -e.target):
            needed = intervals.union([needed, region_bytes(edge.region, size)])
            grown = intervals.size(needed) - counted
            changes[source] += grown
            changes[edge.target] -= grown
            counted += grown
    total = 0
    crossing: list[int] = []
    for change in changes[: max(len(graph.nodes) - 1, 0)]:
        total += change
        crossing.append(total)
    return tuple(crossing)
