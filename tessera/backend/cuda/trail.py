"""Progress of devices in a request: words of pinned memory that outlive a context.

In: the steps that a tape runs. Out: calls that write the words, and the meaning of the words.
`EXACT`: the compute stream writes the number of every step before the step runs, and a final value
after the last step; this takes 2.6 us per step on an H200. `ROWS`: it writes the number of the
first step of each row, which runs as one graph. `MARKS`: a separate stream writes a mark beside the
steps of a graph once all earlier steps are done; a mark takes 0.2 to 0.4 us but may come late, so
it shows only what is certainly done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import assert_never

from tessera.backend.cuda.api import Bytes
from tessera.backend.cuda.issue_order import Action, Do, Hold, Mark, Move, steps_of
from tessera.backend.cuda.queued_work import step_name
from tessera.backend.cuda.tape_writer import TapeWriter
from tessera.ir.plan.launch_program import HOST, Queue, Run
from tessera.ir.program.program import Work

# Steps between marks in a graph: a mark for every step costs the measured models up to 0.4%, so
# this interval costs far less than 1%.
MARK_EVERY = 4
_SHOWN = 4


class TrailKind(Enum):
    """How a tape records its progress."""

    NONE = "none"
    EXACT = "exact"
    ROWS = "rows"
    MARKS = "marks"


@dataclass(slots=True)
class Trail:
    """Words of pinned memory, by stage and device."""

    words: dict[tuple[int, str], int] = field(default_factory=dict)
    views: dict[int, dict[str, memoryview]] = field(default_factory=dict)

    def add(self, stage: int, device: str, address: int, view: Bytes) -> None:
        """The word of a device in a stage."""
        self.words[stage, device] = address
        word = self.views.setdefault(stage, {})[device] = view.data.cast("I")
        word[0] = 0

    def words_of(self, stage: int) -> Iterable[memoryview]:
        """The words of a stage."""
        return self.views.get(stage, {}).values()

    def look(self, stage: int) -> tuple[int, ...]:
        """The current values of the words of a stage, to detect changes."""
        return tuple(view[0] for view in self.words_of(stage))

    def possible(
        self, stage: int, kind: TrailKind, order: Sequence[Action]
    ) -> dict[str, list[int]]:
        """By device, the steps that it may be running; devices without any are left out.

        If a device has reached a step that waits for other devices, the awaited steps are done too,
        although the words of those devices may not show it yet.
        """
        seen = {device: view[0] - 1 for device, view in self.views.get(stage, {}).items()}
        earlier = _earlier(order)
        done = {step for at in seen.values() if at >= 0 for step in earlier[at]}
        possible = {}
        for device, at in seen.items():
            own = steps_of(order, device)
            reached = own[own.index(at) :] if at >= 0 else own
            steps = [at] * (at >= 0) if kind is TrailKind.EXACT else reached
            possible[device] = [step for step in steps if step not in done]
        return {device: steps for device, steps in possible.items() if steps}


def _earlier(order: Sequence[Action]) -> dict[int, frozenset[int]]:
    """By step, the steps that are done when it begins, by the order of queues and events."""
    earlier: dict[int, frozenset[int]] = {}
    queues: dict[tuple[str, Queue], frozenset[int]] = {}
    events: dict[tuple[str, int], frozenset[int]] = {}

    def behind(*places: tuple[str, Queue]) -> frozenset[int]:
        return frozenset().union(*(queues.get(place, frozenset()) for place in places))

    for action in order:
        match action:
            case Do(device, Run(step)):
                place = device, Queue.COMPUTE
                earlier[int(step)] = behind(place)
                queues[place] = behind(place) | {int(step)}
            case Do():
                continue
            case Mark(device, queue, event):
                events[device, int(event)] = behind((device, queue))
            case Hold(device, queue, event):
                queues[device, queue] = behind((device, queue)) | events[device, int(event)]
            case Move(transfer):
                ends = (transfer.source, Queue.OUT), (transfer.target, Queue.IN)
                both = behind(*(end for end in ends if end[0] != HOST))
                queues.update({end: both for end in ends if end[0] != HOST})
            case _:
                assert_never(action)
    return earlier


@dataclass(frozen=True, slots=True)
class DevicePosition:
    """A device in a request, and the steps that it may be running."""

    request: int
    device: str
    steps: tuple[Work, ...]

    def text(self) -> str:
        """The position in words."""
        names = [f"#{step.id} `{step_name(step)}`" for step in self.steps[:_SHOWN]]
        rest = len(self.steps) - len(names)
        more = f" or one of {rest} after that" if rest else ""
        where = f"step {' or '.join(names)}{more}"
        return f"device `{self.device}` was in request {self.request}, {where}"


class TrailWriter:
    """Writes the trail of one tape."""

    def __init__(
        self, writer: TapeWriter, words: Mapping[tuple[int, str], int], kind: TrailKind, stage: int
    ) -> None:
        self._writer = writer
        self._stage = stage
        self._words = {} if kind is TrailKind.NONE else words
        self._kind = kind
        self._run: dict[str, int] = {}

    def before(self, device: str, step: Work) -> None:
        """Note that a step is next on a device."""
        run = self._run[device] = self._run.get(device, -1) + 1
        word = self._words.get((self._stage, device))
        if word is None:
            return
        match self._kind:
            case TrailKind.MARKS if run % MARK_EVERY == 0:
                self._mark(device, word, int(step.id) + 1)
            case TrailKind.ROWS if not self._goes_on(device):
                self._write(device, word, int(step.id) + 1)
            case TrailKind.EXACT:
                self._write(device, word, int(step.id) + 1)

    def _goes_on(self, device: str) -> bool:
        """Whether the last written call is work on the same queue."""
        calls, stream = self._writer.tape.calls, self._writer.stream(device, Queue.COMPUTE)
        return bool(calls) and calls[-1].row == (device, stream)

    def _mark(self, device: str, word: int, value: int) -> None:
        writer = self._writer
        here = writer.event(device, "mark", writer.slot)
        marks = writer.around.streams.marks(device, writer.slot)
        writer.call(device, "cuEventRecord", here, writer.stream(device, Queue.COMPUTE))
        writer.call(device, "cuStreamWaitEvent", marks, here, 0)
        writer.call(device, "cuMemsetD32Async", word, value, 1, marks)

    def _write(self, device: str, word: int, value: int) -> None:
        stream = self._writer.stream(device, Queue.COMPUTE)
        self._writer.call(device, "cuStreamWriteValue32", stream, word, value, 0)

    def finish(self, root: tuple[str, Queue]) -> None:
        """Note that all steps of the request are written: the root waits for the marks too."""
        writer, streams = self._writer, self._writer.around.streams
        for device in self._run:
            word = self._words.get((self._stage, device))
            if word is None:
                continue
            if self._kind is TrailKind.EXACT:
                self._write(device, word, 0)
            elif self._kind is TrailKind.MARKS:
                ended = writer.event(device, "end", writer.slot, "marks")
                writer.call(device, "cuEventRecord", ended, streams.marks(device, writer.slot))
                writer.wait(*root, ended)
