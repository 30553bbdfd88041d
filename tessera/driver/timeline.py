"""A timeline of devices that Perfetto and Chrome open: a row per device and queue.

In: events, of a run or of a simulation. Out: JSON of the trace event format, or a file of it. A
device is a process there, and a queue is a thread; if operations of one queue overlap (queues of
different slots), the queue has further rows. Times are microseconds from the first event. The
category of an event is its kind. All waits have one name, because Perfetto takes the color from the
name alone; `wait` of `args` says what for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from tessera.backend.service import TimelineEvent
from tessera.ir.plan.launch_program import Queue
from tessera.output import Kind, mark, write_file

_ROWS_PER_QUEUE = 100
_Row = dict[str, object]


def write_events(events: Sequence[TimelineEvent], devices: Sequence[str], path: str) -> None:
    """Write the timeline of these devices."""
    write_file(path, timeline_json(events, devices).encode(), Kind.TIMELINE)


def timeline_json(events: Sequence[TimelineEvent], devices: Sequence[str]) -> str:
    """The text of a timeline file."""
    rows: list[_Row] = []
    origin = min((event.start_ns for event in events), default=0)
    for index, device in enumerate(devices):
        process = index + 1
        rows.append(_meta("process_name", process, 0, name=device))
        rows.append(_meta("process_sort_index", process, 0, sort_index=process))
        for number, queue in enumerate((Queue.COMPUTE, Queue.IN, Queue.OUT)):
            mine = [e for e in events if e.device == device and e.queue is queue]
            first = number * _ROWS_PER_QUEUE + 1
            rows += _queue_rows(mine, process, first, queue, origin)
    about = {"producer": mark(Kind.TIMELINE)}
    data = {"displayTimeUnit": "ms", "otherData": about, "traceEvents": rows}
    return json.dumps(data, separators=(",", ":")) + "\n"


def _queue_rows(
    events: Sequence[TimelineEvent], process: int, first: int, queue: Queue, origin: int
) -> list[_Row]:
    ends: list[int] = [0]
    rows = []
    for event in sorted(events, key=lambda event_given: (event_given.start_ns, event_given.end_ns)):
        row = next((i for i, end in enumerate(ends) if end <= event.start_ns), len(ends))
        ends[row : row + 1] = [event.end_ns]
        rows.append(_slice(event, process, first + min(row, _ROWS_PER_QUEUE - 1), origin))
    names = []
    for row in range(min(len(ends), _ROWS_PER_QUEUE)):
        name = queue.value if row == 0 else f"{queue.value} ({row + 1})"
        names.append(_meta("thread_name", process, first + row, name=name))
        names.append(_meta("thread_sort_index", process, first + row, sort_index=first + row))
    return names + rows


def _slice(event: TimelineEvent, process: int, thread: int, origin: int) -> _Row:
    about: _Row = {"request": event.request, "slot": event.slot}
    if event.step is not None:
        about["step"] = int(event.step)
    if event.bytes:
        about["bytes"] = event.bytes
    if event.peer:
        about["peer"] = event.peer
    if event.is_wait:
        about["wait"] = event.name
    return {
        "ph": "X",
        "name": event.kind.value if event.is_wait else event.name,
        "cat": event.kind.value,
        "pid": process,
        "tid": thread,
        "ts": (event.start_ns - origin) / 1000,
        "dur": (event.end_ns - event.start_ns) / 1000,
        "args": about,
    }


def _meta(kind: str, process: int, thread: int, **about: object) -> _Row:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": about}
