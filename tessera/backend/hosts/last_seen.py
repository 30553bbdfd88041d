"""What a device was doing when it was last heard of.

In: its last beat, and the requests that are under way. Out: a `LastSeen`. A device that was between
two operations when it last beat is named with what is due from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tessera.backend.hosts.channel import Head
from tessera.backend.hosts.driver_side import SentRequest
from tessera.backend.hosts.records import wait_of
from tessera.backend.processes.visits import QueueWait, step_name
from tessera.backend.service import Model
from tessera.ir.plan.launch_program import HOST
from tessera.ir.program.program import LaunchId

_MOST_NOTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LastSeen:
    """What a device was doing when it was last heard of; `name` is that of the step."""

    request: int | None = None
    step: LaunchId | None = None
    name: str = ""
    waits: Sequence[QueueWait] = ()

    def notes(self) -> tuple[str, ...]:
        """The operations that it was at."""
        return tuple(f"request {wait.request}: {wait.text}" for wait in self.waits[:_MOST_NOTES])


def last_seen(
    model: Model, underway: Mapping[int, SentRequest], device: str, beat: Head
) -> LastSeen:
    """Of a device with this last beat."""
    request, step = beat.get("launch") or (None, None)
    waits = tuple(wait_of(row) for row in beat.get("waits", ()))
    waits = tuple(wait for wait in waits if wait.request in underway)
    if request is None:
        request = min(underway, default=None)
    return LastSeen(
        request=request,
        step=None if step is None else LaunchId(step),
        name=_step_name(model, underway, request, step),
        waits=waits or tuple(_due(model, sent, device) for sent in underway.values()),
    )


def _step_name(
    model: Model, underway: Mapping[int, SentRequest], request: int | None, step: int | None
) -> str:
    if request is None or step is None or request not in underway:
        return ""
    program = model.traces[underway[request].request.trace].program
    work = list(program.work())
    return step_name(program, work[step]) if 0 <= step < len(work) else ""


def _due(model: Model, sent: SentRequest, device: str) -> QueueWait:
    """What a request still waits for from a device."""
    request = sent.request
    if device in sent.done:
        return _wait(request.number, "done there, under way on other devices")
    lowered = next(own for own in model.lowered.traces if own.trace == request.trace)
    buffers = model.traces[request.trace].program.buffers
    own = [transfer for transfer in lowered.transfers if transfer.source == device]
    ways = [f"`{buffers[t.buffer].name}` to `{t.target}`" for t in own if t.target != HOST]
    ways += [f"output `{buffers[t.buffer].name}`" for t in own if t.target == HOST]
    if not ways:
        return _wait(request.number, "the driver waits for its end there")
    more = f" and {len(ways) - 3} more" if len(ways) > 3 else ""
    return _wait(request.number, f"it was to send {', '.join(ways[:3])}{more}")


def _wait(request: int, text: str) -> QueueWait:
    return QueueWait(request=request, text=text, step=None, name="")
