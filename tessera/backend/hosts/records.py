"""What driver and device processes tell each other, as the records of `ControlChannel`.

In: records of the backends. Out: JSON values and bytes; and back. What comes from the other end is
checked where it is used: a name or a number that is not there is a fault of that host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera.backend.hosts.channel import Head, Part
from tessera.backend.processes.visits import QueueWait
from tessera.backend.service import BackendOptions, TimelineEvent
from tessera.backend.unwritten import ComparedSide
from tessera.diagnostics import Diagnostic, Severity
from tessera.ir.plan.launch_program import Queue
from tessera.ir.program.program import LaunchId
from tessera.wording import Wording


def event_row(event: TimelineEvent) -> list[object]:
    """An event as a row."""
    step = -1 if event.step is None else int(event.step)
    return [
        event.queue.value,
        event.name,
        event.start_ns,
        event.end_ns,
        step,
        event.bytes,
        event.peer,
    ]


def states_record(
    pieces: Mapping[str, Sequence[tuple[int, Part]]],
) -> tuple[Head, list[Part]]:
    """The states of a sequence on a device: pieces by name, with where they start."""
    rows = [(name, start, piece) for name in sorted(pieces) for start, piece in pieces[name]]
    head: Head = {
        "kind": "states",
        "names": [name for name, _, _ in rows],
        "starts": [start for _, start, _ in rows],
    }
    return head, [piece for _, _, piece in rows]


def event_of(
    row: Sequence[object], device: str, slot: int, request: int, ahead_ns: int
) -> TimelineEvent:
    """The event of a row; the clock of its host is so far ahead of ours."""
    queue, name, start, end, step, size, peer = row
    return TimelineEvent(
        device=device,
        queue=Queue(str(queue)),
        slot=slot,
        request=request,
        name=str(name),
        start_ns=int(str(start)) - ahead_ns,
        end_ns=int(str(end)) - ahead_ns,
        step=None if int(str(step)) < 0 else LaunchId(int(str(step))),
        bytes=int(str(size)),
        peer=str(peer),
    )


def wait_row(wait: QueueWait) -> list[object]:
    """What a queue waits for, as a row."""
    step = -1 if wait.step is None else int(wait.step)
    return [wait.request, wait.text, step, wait.name, wait.is_transfer]


def wait_of(row: Sequence[object]) -> QueueWait:
    """What a queue waits for."""
    request, text, step, name, is_transfer = row
    at = int(str(step))
    return QueueWait(
        request=int(str(request)),
        text=str(text),
        step=None if at < 0 else LaunchId(at),
        name=str(name),
        is_transfer=bool(is_transfer),
    )


def diagnostic_head(diagnostic: Diagnostic) -> Head:
    """A diagnostic without its texts; the place that it blames is a note."""
    where = () if diagnostic.primary is None else (f"at {diagnostic.primary.span}",)
    return {
        "code": diagnostic.code,
        "headline": str(diagnostic.headline),
        "notes": [*diagnostic.notes, *where],
        "hint": diagnostic.hint,
    }


def diagnostic_of(head: Head) -> Diagnostic:
    """The diagnostic of a record."""
    hint = head.get("hint")
    return Diagnostic(
        code=str(head["code"]),
        severity=Severity.ERROR,
        headline=Wording(str(head["headline"])),
        notes=tuple(map(str, head["notes"])),
        hint=None if hint is None else str(hint),
    )


def options_head(options: BackendOptions) -> Head:
    """What the process of a device needs of the options. With `targets` it is on a GPU."""
    return {
        "targets": dict(options.targets),
        "max_steps": options.max_steps,
        "throttle": options.throttle_bytes_per_s,
        "timeline": options.timeline,
        "rows": options.rows,
        "unwritten": options.unwritten,
    }


def options_of(head: Head) -> BackendOptions:
    """The options of a record."""
    return BackendOptions(
        targets={str(device): str(target) for device, target in head["targets"].items()},
        max_steps=head["max_steps"],
        throttle_bytes_per_s=head["throttle"],
        timeline=bool(head["timeline"]),
        rows=bool(head["rows"]),
        unwritten=None if head["unwritten"] is None else ComparedSide(head["unwritten"]),
    )


def named_parts(contents: Mapping[str, Part]) -> tuple[list[str], list[Part]]:
    """Names, and the bytes under them in the same order."""
    names = sorted(contents)
    return names, [contents[name] for name in names]
