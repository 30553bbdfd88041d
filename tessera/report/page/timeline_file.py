"""Read a timeline that `tessc run` or `tessc simulate` wrote, as JSON of the trace event format.

In: the JSON value. Out: a `GivenTimeline`. Only timelines of ours are read: a device is a process
there, and the name of a thread is that of a queue.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tessera.backend.service import EventKind
from tessera.diagnostics import TesseraError
from tessera.output import Kind, mark
from tessera.report.page.given import GivenTimeline, TimelineSpan

QUEUES = ("compute", "in", "out")


def read_timeline(value: Mapping[str, object], name: str) -> GivenTimeline:
    """The spans in a timeline, by time."""
    about = value.get("otherData")
    producer = about.get("producer") if isinstance(about, dict) else None
    if producer != mark(Kind.TIMELINE):
        raise _bad(name, "tessc has not written it")
    rows = value["traceEvents"]
    assert isinstance(rows, list)
    devices: dict[object, str] = {}
    threads: dict[tuple[object, object], str] = {}
    for row in rows:
        if not isinstance(row, dict):
            raise _bad(name, "an event is no object")
        if row.get("ph") == "M":
            own = row.get("args")
            title = own.get("name") if isinstance(own, dict) else None
            if row.get("name") == "process_name":
                devices[row.get("pid")] = str(title)
            elif row.get("name") == "thread_name":
                threads[row.get("pid"), row.get("tid")] = str(title)
    spans = [_span(row, devices, threads, name) for row in rows if row.get("ph") == "X"]
    spans.sort(key=lambda span: (span.start_ns, span.device, span.queue, span.row))
    return GivenTimeline(name=name, devices=tuple(devices.values()), spans=tuple(spans))


def _span(
    row: Mapping[str, object],
    devices: Mapping[object, str],
    threads: Mapping[tuple[object, object], str],
    name: str,
) -> TimelineSpan:
    process, thread = row.get("pid"), row.get("tid")
    queue, _, number = threads.get((process, thread), "").partition(" (")
    start, took = row.get("ts"), row.get("dur")
    about = row.get("args")
    if process not in devices or queue not in QUEUES or not isinstance(about, dict):
        raise _bad(name, "an event has no device or no queue")
    if not _is_time(start) or not _is_time(took):
        raise _bad(name, "an event has no time")
    begin = 1000.0 * float(str(start))
    return TimelineSpan(
        device=devices[process],
        queue=queue,
        row=_whole(number.rstrip(")"), 1) - 1,
        name=str(about.get("wait", row.get("name"))),
        start_ns=round(begin, 1),
        end_ns=round(begin + 1000.0 * float(str(took)), 1),
        request=_whole(about.get("request"), -1),
        step=_whole(about.get("step"), -1),
        bytes=_whole(about.get("bytes"), 0),
        peer=str(about.get("peer", "")),
        kind=_kind(row.get("cat"), queue),
    )


def _kind(category: object, queue: str) -> EventKind:
    """The kind of an event; former files have its queue there, and no waiting."""
    if category in [*EventKind]:
        return EventKind(str(category))
    return EventKind.COMPUTING if queue == "compute" else EventKind.MOVING


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value >= 0


def _whole(value: object, otherwise: int) -> int:
    if isinstance(value, str):
        return int(value) if value.isdecimal() and len(value) < 10 else otherwise
    return value if isinstance(value, int) and value >= 0 else otherwise


def _bad(name: str, why: str) -> TesseraError:
    return TesseraError.of(
        "TSR1916",
        f"a report cannot be made of the timeline `{name}`: {why}",
        hint="give one that `--timeline` of `tessc run` or `tessc simulate` wrote",
    )
