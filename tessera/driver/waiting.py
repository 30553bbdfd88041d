"""What a timeline says of waiting: before which transfers, and how devices spent their time.

In: the events of a request and the programs of its trace. Out: events in which an end waits, and
sums.

An end of a transfer waits from when its queue has come to the transfer until bytes move: for the
other end, for the link, or for a queue that is busy with another request. A queue has come to an
operation when the one before it has ended and so has what the events before it stand for. Both are
known by the programs, whatever ran them. Where a run has no event per step, what ended last on the
device before the transfer counts. Transfers with the host are not looked at.

In sums every moment counts once: as computing if the device computes, else as moving, else as
waiting, else as idle.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tessera.backend.service import EventKind, TimelineEvent
from tessera.ir.plan.launch_program import (
    HOST,
    Await,
    AwaitPut,
    DeviceProgram,
    LoweredTrace,
    Put,
    Queue,
    Receive,
    Record,
    Run,
    Send,
)

_Moment = tuple[int, bool]
"""A time, and whether steps that have no event may have ended after it."""


def waits_of(events: Sequence[TimelineEvent], lowered: LoweredTrace) -> Iterator[TimelineEvent]:
    """The waits before the transfers of one request."""
    if not events:
        return
    began = min(event.start_ns for event in events)
    by_device: dict[str, list[TimelineEvent]] = defaultdict(list)
    for event in events:
        by_device[event.device].append(event)
    for program in lowered.programs:
        yield from _QueueMoments(program, by_device[program.device], began).find()


class _QueueMoments:
    """The operations of a device for a request, each with the moment at which its queue comes."""

    def __init__(self, program: DeviceProgram, events: Sequence[TimelineEvent], began: int) -> None:
        self._program, self._began = program, began
        self._steps = {int(e.step): e for e in events if e.step is not None}
        self._moves: dict[int, list[TimelineEvent]] = defaultdict(list)
        for event in events:
            if event.transfer is not None:
                self._moves[event.transfer].append(event)
        self._ends = sorted(e.end_ns for e in events if e.kind is EventKind.COMPUTING)
        self._recorded: dict[int, _Moment] = {}

    def find(self) -> Iterator[TimelineEvent]:
        # A wait may stand before the record that it waits for, and a record after a wait.
        before: dict[int, _Moment] | None = None
        while before != self._recorded:
            before = dict(self._recorded)
            waits = list(self._walk())
        yield from waits

    def _walk(self) -> Iterator[TimelineEvent]:
        at: dict[Queue, _Moment] = dict.fromkeys(Queue, (self._began, False))
        for queued in self._program.operations:
            reached = at[queued.queue]
            match queued.operation:
                case Record(event):
                    self._recorded[event] = reached
                case Await(event):
                    other = self._recorded.get(event, (self._began, False))
                    at[queued.queue] = max(reached[0], other[0]), reached[1] or other[1]
                case Run(step):
                    ran = self._steps.get(step)
                    at[queued.queue] = (reached[0], True) if ran is None else (ran.end_ns, False)
                case Send(number) | Receive(number) | Put(number) | AwaitPut(number):
                    own = self._moves.get(number)
                    if own:
                        yield from self._before(own, reached)
                        at[queued.queue] = max(event.end_ns for event in own), False
                case _:
                    pass

    def _before(self, own: Sequence[TimelineEvent], reached: _Moment) -> Iterator[TimelineEvent]:
        """The waits of an end; time that its start takes from the compute queue lies between."""
        moves = (e for e in own if e.queue is not Queue.COMPUTE and not e.is_wait)
        moved = next(moves, None)
        if moved is None or moved.peer == HOST:
            return
        since, is_later = reached
        if is_later:
            ended = bisect_right(self._ends, moved.start_ns)
            since = max(since, self._ends[ended - 1] if ended else since)
        begins = (e for e in own if e.queue is Queue.COMPUTE and e.end_ns <= moved.start_ns)
        for begin in (*begins, moved):
            if since < begin.start_ns:
                yield replace(
                    moved,
                    name=f"wait to {moved.name}",
                    start_ns=since,
                    end_ns=begin.start_ns,
                    bytes=0,
                    is_wait=True,
                )
            since = max(since, begin.end_ns)


# --- sums --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TimeSpent:
    """Nanoseconds of a device or queue, each counted once; together they are the whole time."""

    computing_ns: float
    moving_ns: float
    waiting_ns: float
    idle_ns: float


Piece = tuple[EventKind, float, float]
"""What a queue did from a start to an end."""


def time_spent(pieces: Iterable[Piece], whole_ns: float) -> TimeSpent:
    """How a time was spent on what was done in it."""
    spans: dict[EventKind, list[tuple[float, float]]] = {kind: [] for kind in EventKind}
    for kind, start, end in pieces:
        spans[kind].append((start, end))
    sums, covered = [], 0.0
    known: list[tuple[float, float]] = []
    for kind in EventKind:
        known += spans[kind]
        total = _covered(known)
        sums.append(total - covered)
        covered = total
    computing, moving, waiting = sums
    return TimeSpent(computing, moving, waiting, whole_ns - covered)


TimeByPlace = Mapping[str, tuple[TimeSpent, Mapping[Queue, TimeSpent]]]
"""How each device spent its time, and each of its queues."""


def time_by_place(
    events: Iterable[TimelineEvent], devices: Iterable[str], whole_ns: float
) -> TimeByPlace:
    """How each device spent a time in which events took place."""
    pieces: dict[str, dict[Queue, list[Piece]]] = {
        name: {queue: [] for queue in Queue} for name in devices
    }
    for event in events:
        pieces[event.device][event.queue].append((event.kind, event.start_ns, event.end_ns))
    return {
        name: (
            time_spent((piece for own in queues.values() for piece in own), whole_ns),
            {queue: time_spent(own, whole_ns) for queue, own in queues.items()},
        )
        for name, queues in pieces.items()
    }


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """The time that spans cover together."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total
