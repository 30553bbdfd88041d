"""Work in a row: what a device does one after the other for a request, if nothing comes between.

In: the columns of a request's work. Out: for every node the row it stands in and its place there.
A row is one event of the event loop, which is what makes long programs quick to follow. Where older
work comes in between, the loop cuts the row at the end of what is being done.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.simulation.intake import MovingRequest, RowPlace, WorkColumns
from tessera.simulation.work import COMPUTE


class WorkRow:
    """A row that a device does: its beginning, the end of each node, the number of its event."""

    __slots__ = ("count", "ends_ns", "nodes", "request")

    def __init__(
        self, request: MovingRequest, nodes: tuple[int, ...], ends_ns: list[float], count: int
    ) -> None:
        self.request = request
        self.nodes = nodes
        self.ends_ns = ends_ns
        self.count = count


def rows_of(columns: WorkColumns) -> Sequence[RowPlace | None]:
    """The row of every node, where more than the node alone is left of it.

    Of a row, only the next node waits for a node, and it waits for nothing else.
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
