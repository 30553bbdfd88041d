"""Launch programs as text: the part of a `.tsp` file with the operations of every device.

In: a `LoweredReplica`. Out: lines, one record or operation each. Byte ranges that repeat at a
stride are written as one, `0:64+256*128`: 128 times 64 bytes, 256 apart; a second `+stride*count`
repeats all of that. `frontend.plan.tsp` expands them to the same ranges.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import assert_never

from tessera.ir.plan.launch_program import (
    Await,
    AwaitPut,
    Bytes,
    Credit,
    DeviceProgram,
    Fill,
    Free,
    LoweredReplica,
    LoweredTrace,
    Operation,
    Put,
    Queued,
    Receive,
    Record,
    Run,
    Send,
)

NO_BYTES = "none"
PORTION_END = ";"
_LEAST_ROWS = 3  # fewer ranges are written one by one, which is just as short
_LEVELS = 3

_Shape = tuple[int, tuple[tuple[int, int], ...]]
"""Width of a range, and the strides and counts at which it repeats, innermost first."""


def lowered_lines(lowered: LoweredReplica) -> Iterator[str]:
    """Areas, places, homes, landings, then per trace its transfers and programs."""
    for area in lowered.areas:
        yield (
            f"area device={_quoted(area.device)} kind={_quoted(area.kind.value)}"
            f" bytes={area.bytes} count={area.count}"
        )
    for place in lowered.places:
        yield (
            f"place trace={place.trace} buffer={place.buffer} device={_quoted(place.device)}"
            f" kind={_quoted(place.kind.value)} offset={place.offset}"
            + (f" first={place.first}" if place.first else "")
            + ("" if place.end is None else f" end={place.end}")
        )
    for home in lowered.homes:
        yield (
            f"home trace={home.trace} buffer={home.buffer} device={_quoted(home.device)}"
            f" bytes={bytes_text(home.bytes)}"
        )
    for landing in lowered.landings:
        yield (
            f"landing {landing.id} source={_quoted(landing.source)}"
            f" target={_quoted(landing.target)} bytes={landing.bytes}"
        )
    for trace in lowered.traces:
        yield from _trace_lines(trace)


def _trace_lines(trace: LoweredTrace) -> Iterator[str]:
    gate = "" if trace.gate is None else f" gate={trace.gate}"
    yield f"request trace={trace.trace}{gate}"
    for transfer in trace.transfers:
        yield (
            f"  transfer {transfer.id} buffer={','.join(str(p.buffer) for p in transfer.portions)}"
            f" source={_quoted(transfer.source)} target={_quoted(transfer.target)}"
            f" bytes={PORTION_END.join(bytes_text(p.bytes) for p in transfer.portions)}"
        )
    for program in trace.programs:
        yield from (f"  {line}" for line in program_lines(program))


def program_lines(program: DeviceProgram) -> Iterator[str]:
    """The operations of one device for a request."""
    yield f"program device={_quoted(program.device)}"
    for queued in program.operations:
        yield f"  {operation_text(queued)}"


def operation_text(queued: Queued) -> str:
    """An operation on its queue: `compute launch 3`."""
    return f"{queued.queue.value} {_operation(queued.operation)}"


def _operation(operation: Operation) -> str:
    match operation:
        case Run():
            return f"launch {operation.step}"
        case Fill():
            return f"fill buffer={operation.buffer} bytes={bytes_text(operation.bytes)}"
        case Free():
            return f"free buffer={operation.buffer}"
        case Send():
            return f"send {operation.transfer}"
        case Receive():
            return f"recv {operation.transfer}"
        case Put():
            return f"put {operation.transfer} landing={operation.landing}"
        case AwaitPut():
            return f"wait {operation.transfer} landing={operation.landing}"
        case Credit():
            return f"credit {operation.landing}"
        case Record():
            return f"record {operation.event}"
        case Await():
            return f"wait {operation.event}"
        case _:
            assert_never(operation)


def bytes_text(ranges: Bytes) -> str:
    """Byte ranges as text; ranges at a regular stride are written as one."""
    items: list[tuple[int, _Shape]] = [(start, (end - start, ())) for start, end in ranges]
    for level in range(_LEVELS):
        items = _fold(items, _LEAST_ROWS if level == 0 else 2)
    return ",".join(_item_text(*item) for item in items) or NO_BYTES


def _item_text(start: int, shape: _Shape) -> str:
    width, dimensions = shape
    return f"{start}:{start + width}" + "".join(f"+{s}*{n}" for s, n in dimensions)


def _fold(items: list[tuple[int, _Shape]], least: int) -> list[tuple[int, _Shape]]:
    """Join neighbours of one shape at one stride, from the left."""
    folded: list[tuple[int, _Shape]] = []
    at = 0
    while at < len(items):
        start, shape = items[at]
        count = _run(items, at)
        if count < least:
            count = 1
        else:
            width, dimensions = shape
            stride = items[at + 1][0] - start
            shape = (width, (*dimensions, (stride, count)))
        folded.append((start, shape))
        at += count
    return folded


def _run(items: list[tuple[int, _Shape]], at: int) -> int:
    """The number of items from `at` on with the shape of the first and a constant stride."""
    start, shape = items[at]
    if at + 1 == len(items):
        return 1
    stride = items[at + 1][0] - start
    count = 1
    while at + count < len(items) and items[at + count] == (start + count * stride, shape):
        count += 1
    return count


def _quoted(text: str) -> str:
    return json.dumps(text)
