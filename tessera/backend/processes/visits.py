"""A request on one virtual device: its progress, its next operations, and its waits.

In: programs of queues. Out: records for `engine`, and the fault of a request that waits forever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

from tessera.backend.service import ServiceFault, TimelineEvent
from tessera.diagnostics import error
from tessera.ir.plan.launch_program import DeviceEventId, LandingId, Operation, Queue, TransferId
from tessera.ir.program import program as ir


@dataclass(frozen=True, slots=True)
class Seat:
    """The copies of the areas that a request uses."""

    trace: int
    slot: int
    lane: int


@dataclass(slots=True)
class Visit:
    """A request on this device."""

    number: int
    seat: Seat
    queues: dict[Queue, tuple[Operation, ...]]
    at: dict[Queue, int] = field(default_factory=lambda: dict.fromkeys(Queue, 0))
    taken: set[Queue] = field(default_factory=set)
    recorded: set[DeviceEventId] = field(default_factory=set)
    arrived: set[TransferId] = field(default_factory=set)
    held: set[LandingId] = field(default_factory=set)
    events: list[TimelineEvent] = field(default_factory=list)
    printed: list[tuple[int, str]] = field(default_factory=list)
    present: set[ir.BufferId] = field(default_factory=set)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do here."""
        return all(self.at[queue] == len(self.queues[queue]) for queue in Queue)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWait:
    """The operation that a queue runs or waits for in a request, and the next step on the device.

    `is_transfer`: it moves bytes from or to another device, or waits for them.
    """

    request: int
    text: str
    step: ir.LaunchId | None
    name: str
    is_transfer: bool = False


@dataclass(frozen=True, slots=True)
class ReadyOperation:
    """The operation at the head of a queue, ready to run."""

    visit: Visit
    queue: Queue
    operation: Operation


def step_name(program: ir.Program, step: ir.Work) -> str:
    """The name of a step: its kernel, operator or kind."""
    match step:
        case ir.Launch():
            return f"{program.modules[step.module].name}.{step.kernel}"
        case ir.Memset():
            return "memset"
        case ir.Memcpy():
            return "memcpy"
        case ir.LibraryCall():
            return step.operator
        case _:
            assert_never(step)


def stall_fault(
    waits: Sequence[tuple[str, tuple[QueueWait, ...]]], request: int | None, how_long: str
) -> ServiceFault:
    """The fault of a request without progress; None stands for the first waiting request."""
    rows = [(device, wait) for device, own in waits for wait in own]
    rows.sort(key=lambda row: (row[1].request != request, row[1].request, not row[1].is_transfer))
    notes = tuple(f"device `{d}`, request {wait.request}: {wait.text}" for d, wait in rows[1:8])
    device, first = rows[0] if rows else (None, None)
    what = "nothing is known to wait" if first is None else first.text
    return ServiceFault(
        error(
            "TSR5052",
            f"nothing has happened {how_long}: {what}",
            notes=notes,
            hint="`tessc check` proves or refutes that a plan can get stuck",
        ),
        device=device,
        request=request if first is None else first.request,
        step=None if first is None else first.step,
        name="" if first is None else first.name,
    )
