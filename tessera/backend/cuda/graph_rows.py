"""Work that follows in a row on one compute queue, as one graph each.

In: a tape. Out: a tape whose rows of launches, memsets and copies on one stream are graphs; what
joins queues stays calls. A graph that spans devices has inner queues that the driver picks, and
requests that change device often hold each other up in them: on an H200 plans of slices took up to
60% longer (`benchmarks/results/simulated_h200.json`). A graph of one row has none: it runs on the
stream that it is launched on. So each queue of each slot goes on as soon as what it waits for is
done, and the host still makes few calls. Transfers stay copies, and so do short rows: with graphs
for them too, plans took up to 28% longer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from tessera.backend.cuda.api import Driver, Handle
from tessera.backend.cuda.tape import QueueRow, Tape, TapeCall

LEAST_CALLS = 3

Capture = Callable[[Tape, Handle, str], Handle | None]


def with_graph_rows(driver: Driver, tape: Tape, capture: Capture) -> tuple[Tape, list[Handle]]:
    """The tape with graphs, and these; a row that cannot be captured stays as it is."""
    graphs = []
    short = Tape(kept=tape.kept)
    launch = driver.functions["cuGraphLaunch"]
    for row, group in groupby(tape.calls, key=lambda call: call.row):
        calls = list(group)
        graph = _graph(tape, row, calls, capture)
        if row is None or graph is None:
            short.calls.extend(calls)
        else:
            graphs.append(graph)
            given = graph, row.stream
            short.calls.append(TapeCall("cuGraphLaunch", launch, given, calls[0].action))
    return short, graphs


def _graph(
    tape: Tape, row: QueueRow | None, calls: Sequence[TapeCall], capture: Capture
) -> Handle | None:
    if row is None or len(calls) < LEAST_CALLS:
        return None
    return capture(Tape(calls=list(calls), kept=tape.kept), row.stream, row.device)
