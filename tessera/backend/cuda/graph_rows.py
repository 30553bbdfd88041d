"""Work that follows in a row on one compute queue, as one graph each.

In: a tape. Out: a tape whose rows of launches, memsets and copies on one stream are graphs; what
joins queues stays calls. A graph that spans devices has inner queues that the driver picks, and
requests that change device often hold each other up in them. A graph of one row has none: it runs
on the stream that it is launched on. So each queue of each slot goes on as soon as what it waits
for is done, and the host still makes few calls.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

from tessera.backend.cuda.api import Driver, Handle
from tessera.backend.cuda.tape import Row, Tape

# A graph of fewer calls saves nothing.
LEAST_CALLS = 3

Capture = Callable[[Tape, Handle, str], Handle | None]


def with_graph_rows(driver: Driver, tape: Tape, capture: Capture) -> tuple[Tape, list[Handle]]:
    """The tape with graphs, and these; a row that cannot be captured stays as it is."""
    graphs = []
    short = Tape(kept=tape.kept)
    for row, calls in groupby(tape.calls, key=lambda call: call.row):
        same = list(calls)
        graph = _graph(tape, row, same, capture)
        if graph is None:
            short.calls.extend(same)
            continue
        graphs.append(graph)
        assert row is not None
        short.add(
            "cuGraphLaunch", driver.functions["cuGraphLaunch"], (graph, row.stream), same[0].action
        )
    return short, graphs


def _graph(tape: Tape, row: Row | None, calls: list[Any], capture: Capture) -> Handle | None:
    if row is None or len(calls) < LEAST_CALLS:
        return None
    return capture(Tape(calls=calls, kept=tape.kept), row.stream, row.device)
