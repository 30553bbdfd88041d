"""Host work of a request: the calls that hand it over to its GPUs, and its input and output bytes.

In: a `LoweredTrace`. Out: counts of calls and bytes as in the CUDA backend. A request on one device
is one graph, and so is one on slices of one GPU that meet often. Otherwise, a row of launches is
one graph or, if it is short, one call per launch; events and copies are calls; each device has a
few more calls for its queues and priorities.
"""

from __future__ import annotations

from itertools import groupby

from tessera.ir.plan.launch_program import (
    HOST,
    Await,
    DeviceProgram,
    Fill,
    Free,
    LoweredTrace,
    Queue,
    Record,
    Run,
)

CALLS_OF_REQUEST = 40
"""Fixed host work per request, expressed as a number of calls."""
SHORT_ROW = 3
"""Minimum number of consecutive launches that become one graph; fewer are one call each."""
CALLS_OF_DEVICE = 9
"""Calls per device to begin and end its queues."""
CALLS_OF_PRIORITY = 4
"""Calls to raise the priority of the compute queue: events, and a row that is cut in two."""
MOST_PRIORITIES = 5
CALLS_OF_TRANSFER = 5
"""Calls per copy: the copy, and the events by which both ends wait for each other."""


def host_calls(lowered: LoweredTrace, *, is_one_graph: bool = False) -> int:
    """Number of host calls of one request."""
    working = [
        program
        for program in lowered.programs
        if any(isinstance(queued.operation, Run) for queued in program.operations)
    ]
    own = sum(HOST in (transfer.source, transfer.target) for transfer in lowered.transfers)
    between = len(lowered.transfers) - own
    if len(working) < 2:
        return CALLS_OF_REQUEST + 1
    if is_one_graph:  # the driver takes about as long for each transfer in it as for a call
        return CALLS_OF_REQUEST + 1 + between
    moves = own + CALLS_OF_TRANSFER * between
    return CALLS_OF_REQUEST + moves + sum(map(_calls, working))


def host_bytes(lowered: LoweredTrace) -> int:
    """Number of bytes that the host copies for one request: its inputs and its outputs."""
    return sum(t.size for t in lowered.transfers if HOST in (t.source, t.target))


def _calls(program: DeviceProgram) -> int:
    kinds = [type(q.operation) for q in program.operations]
    events = sum(kind in (Record, Await, Fill) for kind in kinds)
    compute = (
        isinstance(operation, Run)
        for operation in program.on(Queue.COMPUTE)
        if not isinstance(operation, Free)
    )
    rows = [len(list(row)) for is_run, row in groupby(compute) if is_run]
    rises = min(sum(rows), MOST_PRIORITIES) - 1
    launches = sum(1 + (1 if row >= SHORT_ROW else row) for row in rows)
    return CALLS_OF_DEVICE + CALLS_OF_PRIORITY * rises + events + launches
