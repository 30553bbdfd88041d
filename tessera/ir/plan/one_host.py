"""Launch programs for several hosts, changed to run on one: sends and receives replace puts.

In: a `LoweredReplica` that the checker has proved. Out: the same replica without landings. The
proof holds for it too: it concludes nothing from credits, and treats both ends of a put as one.
"""

from __future__ import annotations

from dataclasses import replace

from tessera.ir.plan.launch_program import (
    AwaitPut,
    Credit,
    DeviceProgram,
    LoweredReplica,
    Operation,
    Put,
    Queued,
    Receive,
    Send,
)


def on_one_host(lowered: LoweredReplica) -> LoweredReplica:
    """The same programs without puts."""
    if not lowered.landings:
        return lowered
    traces = tuple(
        replace(trace, programs=tuple(map(_program, trace.programs))) for trace in lowered.traces
    )
    return replace(lowered, traces=traces, landings=())


def _program(program: DeviceProgram) -> DeviceProgram:
    kept = tuple(
        Queued(queued.queue, _sent(queued.operation))
        for queued in program.operations
        if not isinstance(queued.operation, Credit)
    )
    return replace(program, operations=kept)


def _sent(operation: Operation) -> Operation:
    match operation:
        case Put(transfer):
            return Send(transfer)
        case AwaitPut(transfer):
            return Receive(transfer)
        case _:
            return operation
