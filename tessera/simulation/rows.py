"""Rows of work: nodes of a request that a device runs one after the other if nothing comes between.

In: the columns of a request's work. Out: for every node, its row and its position in that row. A
row is one event of the event loop, which makes the simulation of long programs quick. If older work
becomes ready in between, the loop cuts the row after the node that is running.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.simulation.intake import MovingRequest, RowPlace, WorkColumns
from tessera.simulation.work import COMPUTE


class WorkRow:
    """A row that a device runs: its start, the end of each node, and the number of its event."""

    __slots__ = ("count", "ends_ns", "nodes", "request")

    def __init__(
        self, request: MovingRequest, nodes: tuple[int, ...], ends_ns: list[float], count: int
    ) -> None:
        self.request = request
        self.nodes = nodes
        self.ends_ns = ends_ns
        self.count = count


def rows_of(columns: WorkColumns) -> Sequence[RowPlace | None]:
    """The row of every node; None if the node is the last of its row or in no row.

    Within a row, the only successor of a node is the next node, which waits for nothing else.
    """
    follower = [
        after[0] if kind == COMPUTE and len(after) == 1 and index != columns.gate else -1
        for index, (kind, after) in enumerate(zip(columns.kind, columns.after, strict=True))
    ]
    for index, other in enumerate(follower):
        if other >= 0 and (
            columns.kind[other] != COMPUTE
            or columns.before[other] != 1
            or columns.place[other] != columns.place[index]
        ):
            follower[index] = -1
    places: list[RowPlace | None] = [None] * len(follower)
    for first in set(range(len(follower))).difference(follower):
        row = [first]
        while follower[row[-1]] >= 0:
            row.append(follower[row[-1]])
        whole, times = tuple(row), tuple(columns.ns[node] for node in row)
        for at, node in enumerate(row[:-1]):
            places[node] = whole, times, at
    return places
