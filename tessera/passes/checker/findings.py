"""The findings of the plan checker: one diagnostic per broken rule, with its operations.

In: operations and ranges. Out: a list of diagnostics of limited length: one fault often shows in
many places, and the first few are enough to find it. If the plan comes from a text, diagnostics
point to the operations in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tessera.diagnostics import Diagnostic, Label, Span, error
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.launch_program import (
    Await,
    AwaitPut,
    Credit,
    Fill,
    Free,
    Operation,
    Put,
    Queue,
    Queued,
    Receive,
    Record,
    Run,
    Send,
    Transfer,
)

MOST = 20


Locate = Callable[[object], Span | None]
"""Gives the position of a record in the text of its plan, if the plan comes from a text."""


def nowhere(_: object) -> Span | None:
    """The plan comes from no text."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """An operation with its place: `position` on its queue, `number` in its device's program."""

    device: str
    position: int
    number: int
    record: Queued

    @property
    def queue(self) -> Queue:
        """The queue that does the operation."""
        return self.record.queue

    @property
    def operation(self) -> Operation:
        """The operation itself."""
        return self.record.operation


@dataclass(frozen=True, slots=True)
class Said:
    """An operation in words."""

    what: str
    op: Op

    def __str__(self) -> str:
        op = self.op
        return f"{self.what} (operation {op.number} of `{op.device}`, {op.queue.value} queue)"


@dataclass(slots=True)
class Findings:
    """The faults found so far."""

    locate: Locate = nowhere
    found: list[Diagnostic] = field(default_factory=list)
    left_out: int = 0

    def add(
        self,
        code: str,
        headline: str,
        *notes: str | Said,
        at: object = None,
        hint: str | None = None,
    ) -> None:
        """Add a fault; past the limit, only count it. `at` is the record to blame."""
        if len(self.found) >= MOST:
            self.left_out += 1
            return
        labels = []
        words = []
        for note in notes:
            span = self.locate(note.op.record) if isinstance(note, Said) else None
            if isinstance(note, Said) and span is not None:
                labels.append(Label(span, f"{note.what}, on `{note.op.device}`"))
            else:
                words.append(str(note))
        if (span := self.locate(at)) is not None:
            labels.append(Label(span))
        last = labels.pop() if labels else None
        self.found.append(
            error(
                code,
                headline,
                None if last is None else last.span,
                "" if last is None else last.text,
                secondary=tuple(labels),
                notes=tuple(words),
                hint=hint,
            )
        )

    @property
    def count(self) -> int:
        """The number of faults, including those left out."""
        return len(self.found) + self.left_out

    def result(self) -> tuple[Diagnostic, ...]:
        """All diagnostics; an empty result is the proof."""
        if not self.left_out:
            return tuple(self.found)
        more = f"{self.left_out} more are not shown"
        last = replace(self.found[-1], notes=(*self.found[-1].notes, more))
        return (*self.found[:-1], last)


@dataclass(frozen=True, slots=True)
class Names:
    """Names of the steps, buffers and transfers of one trace, for messages."""

    graph: KernelGraph
    transfers: dict[int, Transfer]

    def step(self, step: int) -> str:
        """`#3 m.copy`."""
        return f"`#{step} {self.graph.nodes[step].name}`"

    def buffer(self, buffer: int) -> str:
        """The name of a buffer."""
        return f"`{self.graph.buffers[buffer].name}`"

    def version(self, version: int) -> str:
        """The origin of a version of some bytes, in words."""
        return "their first contents" if version < 0 else f"what step {self.step(version)} leaves"

    def transfer(self, transfer: int) -> str:
        """`transfer 4 of x from a to b`."""
        record = self.transfers[transfer]
        name = record.names(self.buffer)
        return f"transfer {transfer} of {name} from `{record.source}` to `{record.target}`"

    def op(self, op: Op) -> Said:
        """An operation in words: what it does, and its device, queue and number."""
        match op.operation:
            case Run(step):
                what = f"step {self.step(step)}"
            case Fill(buffer, _):
                what = f"the fill of {self.buffer(buffer)}"
            case Free(buffer):
                what = f"the free of {self.buffer(buffer)}"
            case Send(transfer):
                what = f"the send of {self.transfer(transfer)}"
            case Receive(transfer):
                what = f"the receive of {self.transfer(transfer)}"
            case Put(transfer, landing):
                what = f"the put of {self.transfer(transfer)} into landing {landing}"
            case AwaitPut(transfer, landing):
                what = f"the wait for {self.transfer(transfer)} in landing {landing}"
            case Credit(landing):
                what = f"the credit of landing {landing}"
            case Record(event):
                what = f"the record of event {event}"
            case Await(event):
                what = f"the wait for event {event}"
        return Said(what, op)
