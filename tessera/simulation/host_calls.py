"""What the host does for a request: calls that hand it over to its GPUs, bytes in and out.

In: a `LoweredTrace`. Out: numbers, by what the CUDA backend does: a request on one device is one
graph; over several devices every row of launches is one or, if it is short, a call each, events
and copies are calls, and each device has some more for its queues and priorities.
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
"""Calls that take as long as everything else that the host does for a request."""
SHORT_ROW = 3
"""Launches in a row that are one graph; fewer are a call each."""
CALLS_OF_DEVICE = 9
"""Its queues begin and end."""
CALLS_OF_PRIORITY = 4
"""The compute queue goes on with a higher priority: events, and a row that is cut in two."""
MOST_PRIORITIES = 5
CALLS_OF_TRANSFER = 5
"""A copy, and events by which both ends wait for each other."""


def host_calls(lowered: LoweredTrace) -> int:
    """The calls of one request."""
    working = [
        program
        for program in lowered.programs
        if any(isinstance(queued.operation, Run) for queued in program.operations)
    ]
    if len(working) < 2:
        return CALLS_OF_REQUEST + 1
    moves = sum(
        1 if HOST in (transfer.source, transfer.target) else CALLS_OF_TRANSFER
        for transfer in lowered.transfers
    )
    return CALLS_OF_REQUEST + moves + sum(map(_calls, working))


def host_bytes(lowered: LoweredTrace) -> int:
    """The bytes of one request that the host copies: its inputs and its outputs."""
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
