"""The outcome of a run: results per request, and its figures.

In: completions. Out: `Outcome` and `Figures`. Busy time is the union of the operations of a
device's compute queue. A transfer is hidden while the device at its end (the source of a send, the
target of a receive) computes. Transfers from and to the host count in bytes, not in time, except
in `time`, where every moment of a device counts once (`driver.waiting`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tessera.backend.known_backends import BackendName
from tessera.backend.service import Bytes, Completion, EventKind, TimelineEvent
from tessera.diagnostics import Diagnostic
from tessera.driver.run.digests import Sums
from tessera.driver.run.open_plan import OpenPlan
from tessera.driver.run.schedule import Turn
from tessera.driver.waiting import TimeByPlace, time_by_place, waits_of
from tessera.ir.notebook import frame_of
from tessera.ir.plan.launch_program import HOST, Queue

if TYPE_CHECKING:
    import pandas

Span = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A run in numbers, from the start of its first request to the end of its last.

    Between batches of requests the devices wait for the command, which makes inputs: no figure
    includes that time. `command_s` is the time in seconds that the command took for inputs and
    digests. `hidden` is a share, None if nothing moved between devices. `time` says how devices,
    and each of their queues, spent theirs.
    """

    seconds: float
    command_s: float
    requests_per_s: float
    latency_ns: Mapping[str, float]
    busy: Mapping[str, float]
    bytes_between: int
    bytes_from_host: int
    bytes_to_host: int
    transfer_ns: int
    hidden: float | None
    time: TimeByPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A run of a plan. `done` has a completion for every request that finished, by number.

    `states` are those of every sequence at the end; None if the run did not complete. `fault` is
    the error that ended it early. `begins` are the first requests of batches. `digests` are those
    of outputs that were not kept. `has_patterns`: unwritten memory held patterns
    (`backend.unwritten`), also in outputs.
    """

    opened: OpenPlan
    backend: BackendName
    turns: tuple[Turn, ...]
    done: Mapping[int, Completion]
    states: tuple[Mapping[str, Bytes], ...] | None
    seconds: float
    fault: tuple[Diagnostic, ...] = ()
    exit_code: int = 0
    diagnostics: tuple[Diagnostic, ...] = ()
    begins: tuple[int, ...] = ()
    command_s: float = 0.0
    digests: Mapping[int, Sums] = field(default_factory=dict)
    has_patterns: bool = False

    def to_frame(self) -> pandas.DataFrame:
        """The requests that finished, as a pandas frame."""
        names = [trace.name for trace in self.opened.plan.traces]
        done = ((turn, self.done[turn.request]) for turn in self.turns if turn.request in self.done)
        rows = (
            {
                "request": turn.request,
                "trace": names[turn.trace],
                "sequence": turn.sequence,
                "started_ns": completion.started_ns,
                "ended_ns": completion.ended_ns,
                "latency_ns": completion.ended_ns - completion.started_ns,
            }
            for turn, completion in done
        )
        columns = ("request", "trace", "sequence", "started_ns", "ended_ns", "latency_ns")
        return frame_of(rows, columns)

    def events(self) -> list[TimelineEvent]:
        """All events, with the waits before transfers, by time."""
        programs = [
            {lowered.trace: lowered for lowered in replica.lowered.traces}
            for replica in self.opened.replicas
            for _ in range(replica.lowered.lanes)
        ]
        events = [event for completion in self.done.values() for event in completion.events]
        for turn in self.turns:
            if turn.request in self.done:
                lowered = programs[turn.sequence][turn.trace]
                events += waits_of(self.done[turn.request].events, lowered)
        return sorted(events, key=lambda event: (event.start_ns, event.device, event.queue.value))

    def _waited_ns(self) -> int:
        """Nanoseconds between batches, in which no request was under way."""
        waited = 0
        for begin in self.begins[1:]:
            before = [done.ended_ns for number, done in self.done.items() if number < begin]
            after = [done.started_ns for number, done in self.done.items() if number >= begin]
            waited += max(0, min(after, default=0) - max(before, default=0)) if before else 0
        return waited

    def figures(self) -> Figures:
        """The figures of the run; if it did not complete, of the requests that finished."""
        events = self.events()
        waited_ns = self._waited_ns()
        first = min((event.start_ns for event in events), default=0)
        last = max((event.end_ns for event in events), default=0) - waited_ns
        computing = spans_by_device(e for e in events if e.queue is Queue.COMPUTE)
        moving = spans_by_device(e for e in events if e.kind is EventKind.MOVING and _between(e))
        moved = sum(map(total, moving.values()))
        covered = sum(
            total(overlap(spans, computing.get(device, []))) for device, spans in moving.items()
        )
        devices = [name for replica in self.opened.replicas for name in replica.lowered.devices]
        begun = min((completion.started_ns for completion in self.done.values()), default=0)
        ended = max((completion.ended_ns for completion in self.done.values()), default=0)
        seconds = (ended - begun - waited_ns) / 1e9
        return Figures(
            seconds=seconds,
            command_s=self.command_s,
            requests_per_s=len(self.done) / seconds if seconds > 0 else 0.0,
            latency_ns=percentiles(
                [completion.ended_ns - completion.started_ns for completion in self.done.values()]
            ),
            busy={
                name: total(computing.get(name, [])) / (last - first) if last > first else 0.0
                for name in dict.fromkeys(devices)
            },
            bytes_between=sum(e.bytes for e in events if e.queue is Queue.OUT and _between(e)),
            bytes_from_host=sum(e.bytes for e in events if e.queue is Queue.IN and not _between(e)),
            bytes_to_host=sum(e.bytes for e in events if e.queue is Queue.OUT and not _between(e)),
            transfer_ns=moved,
            hidden=covered / moved if moved else None,
            time=time_by_place(events, dict.fromkeys(devices), last - first),
        )


def _between(event: TimelineEvent) -> bool:
    """Whether an event is a transfer between devices."""
    return event.peer != HOST


def percentiles(values: Sequence[int]) -> dict[str, float]:
    """The 50th, 90th and 99th percentile and the largest, by nearest rank."""
    if not values:
        return {}
    ranked = sorted(values)
    ranks = {f"p{p}": float(ranked[-(-p * len(ranked) // 100) - 1]) for p in (50, 90, 99)}
    return {**ranks, "max": float(ranked[-1])}


def spans_by_device(events: Iterable[TimelineEvent]) -> dict[str, list[Span]]:
    """The time that events of a device cover, as disjoint spans in order."""
    covered: dict[str, list[Span]] = {}
    for event in sorted(events, key=lambda event_given: event_given.start_ns):
        spans = covered.setdefault(event.device, [])
        if spans and event.start_ns <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], event.end_ns))
        else:
            spans.append((event.start_ns, event.end_ns))
    return covered


def overlap(left: Sequence[Span], right: Sequence[Span]) -> list[Span]:
    """Nanoseconds that both lists of spans cover."""
    both = []
    i = j = 0
    while i < len(left) and j < len(right):
        start, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < end:
            both.append((start, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return both


def total(spans: Iterable[Span]) -> int:
    """Nanoseconds that spans cover together."""
    return sum(end - start for start, end in spans)
