"""Sections that draw timelines: of one period, of a simulation, of a run.

In: a `GivenTimeline`. Out: a `PageSection` of columns. Transfers are joined to what they came from
and went to: a launch, the send, the receive, a launch. Time in which an end of a transfer waits is
a span of its own; sums say how each device spent its time. Gaps of a compute queue say what it
waited for, as far as the timeline shows that. If there are very many spans, those too short to be
seen are merged.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, replace

from tessera.backend.service import EventKind
from tessera.driver.waiting import Piece, time_spent
from tessera.frontend.machine.quantities import format_bytes, format_time
from tessera.report.page.given import GivenTimeline, TimelineSpan
from tessera.report.page.graph_section import NumberedTable
from tessera.report.page.model import PageSection
from tessera.report.page.timeline_file import QUEUES

MOST_SPANS = 40_000
_KINDS = tuple(EventKind)
_MOST_JOINS = 20_000
_MOST_GAPS = 4_000
_LEAST_GAP = 0.004


def timeline_section(
    timeline: GivenTimeline, number: int, title: str, note: str = ""
) -> PageSection:
    """The section of one timeline."""
    spans = timeline.spans
    end = max((span.end_ns for span in spans), default=0.0)
    kept = _merged(spans, end)
    joins = list(_joins(kept)) if len(kept) == len(spans) else []
    places = sorted({(s.device, s.queue, s.row) for s in kept}, key=_Rank(timeline.devices))
    row_of = {place: index for index, place in enumerate(places)}
    names, reasons = NumberedTable(), NumberedTable()
    done = [span for span in spans if span.kind is not EventKind.WAITING]
    gaps = [
        [row_of[row], round(start), round(stop), reasons.number(why)]
        for row, start, stop, why in _gaps(done, end)
        if row in row_of
    ]
    data = {
        "headline": _headline(timeline, end),
        "devices": list(timeline.devices),
        "end": round(end),
        "rows": [[timeline.devices.index(device), queue, row] for device, queue, row in places],
        "names": names.values,
        "spans": {
            "row": [row_of[s.device, s.queue, s.row] for s in kept],
            "start": [round(s.start_ns) for s in kept],
            "ns": [round(s.end_ns) - round(s.start_ns) for s in kept],
            "name": [names.number(s.name) for s in kept],
            "request": [s.request for s in kept],
            "step": [s.step for s in kept],
            "bytes": [s.bytes for s in kept],
            "kind": [_KINDS.index(s.kind) for s in kept],
        },
        "spent": _spent(timeline, end),
        "joins": joins[:_MOST_JOINS],
        "gaps": gaps[:_MOST_GAPS],
        "reasons": reasons.values,
        "merged": len(spans) - len(kept),
    }
    return PageSection(kind="timeline", id=f"timeline-{number}", title=title, data=data, note=note)


def _spent(timeline: GivenTimeline, end: float) -> list[list[object]]:
    """Rows of a device and its time computing, moving, waiting and idle."""
    pieces: dict[str, list[Piece]] = {device: [] for device in timeline.devices}
    for span in timeline.spans:
        pieces[span.device].append((span.kind, span.start_ns, span.end_ns))
    sums = {device: time_spent(own, end) for device, own in pieces.items()}
    return [[device, *map(round, astuple(own))] for device, own in sums.items()]


def _headline(timeline: GivenTimeline, end: float) -> str:
    requests = len({span.request for span in timeline.spans if span.request >= 0})
    moved = sum(span.bytes for span in timeline.spans if span.queue == "out" and span.peer)
    took = format_time(end)
    sent = f", {format_bytes(moved)} sent" if moved else ""
    return f"{took} with {requests:,} request{'s' * (requests != 1)} under way{sent}"


class _Rank:
    """Rows by device, then queue, then number."""

    def __init__(self, devices: Sequence[str]) -> None:
        self._places = {name: index for index, name in enumerate(devices)}

    def __call__(self, place: tuple[str, str, int]) -> tuple[int, int, int]:
        return self._places[place[0]], QUEUES.index(place[1]), place[2]


def _merged(spans: Sequence[TimelineSpan], end: float) -> list[TimelineSpan]:
    """The spans; neighbours that are too short to be told apart become one."""
    if len(spans) <= MOST_SPANS:
        return list(spans)
    rows: dict[tuple[str, str, int, EventKind], list[TimelineSpan]] = defaultdict(list)
    for span in spans:
        rows[span.device, span.queue, span.row, span.kind].append(span)
    least = end * len(rows) / MOST_SPANS
    found: list[TimelineSpan] = []
    for own in rows.values():
        count, first, done = 0, own[0], 0.0
        for span in own:
            near = span.end_ns - first.start_ns <= least and span.start_ns - done <= least
            if count and near:
                count, done = count + 1, max(done, span.end_ns)
                continue
            if count:
                found.append(_together(first, done, count))
            count, first, done = 1, span, span.end_ns
        found.append(_together(first, done, count))
    return sorted(found, key=lambda span: (span.start_ns, span.end_ns))


def _together(first: TimelineSpan, end: float, count: int) -> TimelineSpan:
    if count == 1:
        return first
    return replace(first, name=f"{count} operations", end_ns=end, step=-1, bytes=0)


# --- transfers -----------------------------------------------------------------------------------


def _joins(spans: Sequence[TimelineSpan]) -> Iterator[list[int]]:
    """Pairs of spans: launch and send, send and receive, receive and launch."""
    computing = _Computing(spans)
    receives: dict[tuple[int, str, str, str], list[int]] = defaultdict(list)
    for index, span in enumerate(spans):
        if span.queue == "in" and span.kind is EventKind.MOVING:
            receives[span.request, span.peer, span.device, _moved(span)].append(index)
    for index, span in enumerate(spans):
        if span.kind is EventKind.WAITING:
            continue
        if span.queue == "out":
            before = computing.last_before(span)
            if before is not None:
                yield [before, index]
            waiting = receives.get((span.request, span.device, span.peer, _moved(span)))
            if waiting:
                yield [index, waiting.pop(0)]
        elif span.queue == "in":
            after = computing.first_after(span)
            if after is not None:
                yield [index, after]


def _moved(span: TimelineSpan) -> str:
    """The name of what a transfer moves, equal at both of its ends."""
    verb, to = ("send", "to") if span.queue == "out" else ("receive", "from")
    return span.name.removeprefix(f"{verb} ").removesuffix(f" {to} {span.peer}")


class _Computing:
    """Compute spans by device and request, to find neighbours of a transfer."""

    def __init__(self, spans: Sequence[TimelineSpan]) -> None:
        self._by: dict[tuple[str, int], list[tuple[float, float, int]]] = defaultdict(list)
        for index, span in enumerate(spans):
            if span.queue == "compute":
                self._by[span.device, span.request].append((span.start_ns, span.end_ns, index))
        for own in self._by.values():
            own.sort()

    def last_before(self, span: TimelineSpan) -> int | None:
        """The compute span of the same request and device that ended last before a span began."""
        own = self._by.get((span.device, span.request), [])
        at = bisect.bisect_left(own, (span.start_ns + 1, 0.0, 0)) - 1
        while at >= 0 and own[at][1] > span.start_ns + 1:
            at -= 1
        return own[at][2] if at >= 0 else None

    def first_after(self, span: TimelineSpan) -> int | None:
        """The compute span that began first after a span ended."""
        own = self._by.get((span.device, span.request), [])
        at = bisect.bisect_left(own, (span.end_ns - 1, 0.0, 0))
        return own[at][2] if at < len(own) else None


# --- gaps ----------------------------------------------------------------------------------------

_Gap = tuple[tuple[str, str, int], float, float, str]


def _gaps(spans: Sequence[TimelineSpan], end: float) -> Iterator[_Gap]:
    """Times in which the compute queue of a device did nothing, and why."""
    by_device: dict[str, list[TimelineSpan]] = defaultdict(list)
    arrivals: dict[tuple[str, int], list[TimelineSpan]] = defaultdict(list)
    for span in spans:
        if span.queue == "compute":
            by_device[span.device].append(span)
        elif span.queue == "in":
            arrivals[span.device, span.request].append(span)
    least = _LEAST_GAP * end
    for device, own in by_device.items():
        own.sort(key=lambda span: span.start_ns)
        seen: set[int] = set()
        done = 0.0
        for span in own:
            if span.start_ns - done > least:
                is_first = span.request not in seen
                why = _why(span, done, arrivals, is_first=is_first, at_start=not seen)
                yield (device, "compute", 0), done, span.start_ns, why
            seen.add(span.request)
            done = max(done, span.end_ns)
        if end - done > least:
            yield (device, "compute", 0), done, end, "no further work in this time"


def _why(
    span: TimelineSpan,
    since: float,
    arrivals: Mapping[tuple[str, int], Sequence[TimelineSpan]],
    *,
    is_first: bool,
    at_start: bool,
) -> str:
    """Why a gap ended: what came last before the launch that ends it."""
    waited = span.start_ns - since
    brought = [
        own
        for own in arrivals.get((span.device, span.request), ())
        if since < own.end_ns <= span.start_ns + 1 and span.start_ns - own.end_ns <= 0.25 * waited
    ]
    if brought:
        last = max(brought, key=lambda own: own.end_ns)
        source = last.peer or "the host"
        return f"waits for `{_moved(last)}` from `{source}`, for request {span.request}"
    if at_start and since == 0.0:
        return f"request {span.request} has not come here yet"
    if is_first:
        return f"no request is ready; request {span.request} is the next"
    return "waits for the host, an event or memory; the timeline does not say which"
