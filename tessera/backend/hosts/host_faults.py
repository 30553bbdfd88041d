"""Faults of runs over hosts: they name the host, the device and the operation.

In: what the driver knows of a device. Out: `ServiceFault`s. If a device was between two operations
at its last beat, the fault names the operation that is due from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from tessera.backend.hosts.device_link import DeviceLink
from tessera.backend.hosts.messages import Beat
from tessera.backend.processes.device_group import Underway
from tessera.backend.processes.visits import QueueWait
from tessera.backend.service import Model, ServiceFault
from tessera.diagnostics import ExitCode, error
from tessera.ir.plan.launch_program import HOST
from tessera.ir.program.program import LaunchId

_KILLED = (-9, 137)
"""Exit codes of a killed process: by signal, or as shells report it."""

_MOST_NOTES = 4
START_HINT = "`tessc doctor --hosts FILE` tries every host"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastSeen:
    """The activity of a device when it was last heard of; `name` is the name of the step."""

    request: int | None = None
    step: LaunchId | None = None
    name: str = ""
    waits: Sequence[QueueWait] = ()

    def notes(self) -> tuple[str, ...]:
        """The operations that the device was running."""
        return tuple(f"request {wait.request}: {wait.text}" for wait in self.waits[:_MOST_NOTES])


def waits_of(
    model: Model, underway: Mapping[int, Underway], device: str, beat: Beat
) -> Sequence[QueueWait]:
    """The operations that a device was running at its last beat, or what is due from it."""
    waits = [wait for wait in beat.waits if wait.request in underway]
    return waits or [_due(model, sent, device) for sent in underway.values()]


def _due(model: Model, sent: Underway, device: str) -> QueueWait:
    """The operation of a device that a request still waits for."""
    request = sent.request
    lowered = next(own for own in model.lowered.traces if own.trace == request.trace)
    buffers = model.traces[request.trace].program.buffers
    own = [transfer for transfer in lowered.transfers if transfer.source == device]
    names = [t.names(lambda buffer: f"`{buffers[buffer].name}`") for t in own]
    named = list(zip(names, own, strict=True))
    ways = [f"{name} to `{t.target}`" for name, t in named if t.target != HOST]
    ways += [f"output {name}" for name, t in named if t.target == HOST]
    more = f" and {len(ways) - 3} more" if len(ways) > 3 else ""
    if device in sent.done:
        text = "done there, under way on other devices"
    elif ways:
        text = f"it was to send {', '.join(ways[:3])}{more}"
    else:
        text = "the driver waits for its end there"
    return QueueWait(request=request.number, text=text, step=None, name="")


def where(link: DeviceLink) -> str:
    """`device `a` on host `b``."""
    return f"device `{link.device}` on host `{link.host.name}`"


def not_started(link: DeviceLink) -> ServiceFault:
    """A process ended before it could take requests."""
    said = link.said()
    command = " ".join(link.host.command)
    notes: tuple[str, ...] = (f"it said: {said}",) if said else ()
    notes += (f"the command of the host is `{command}`",) if command else ()
    return ServiceFault(
        error(
            "TSR5071",
            f"the process of {where(link)} cannot be started: it {link.ended()}",
            notes=notes,
            hint=START_HINT,
        ),
        device=link.device,
        exit_code=ExitCode.NO_DEVICE,
    )


def no_command(device: str, host: str, command: str, problem: OSError) -> ServiceFault:
    """The command of a host cannot be run."""
    reason = (problem.strerror or str(problem)).lower()
    return ServiceFault(
        error(
            "TSR5071",
            f"the process of device `{device}` on host `{host}` cannot be started: {reason}",
            notes=(f"command: `{command}`",),
            hint="`command` and `python` in the file of hosts say what is run",
        ),
        device=device,
        exit_code=ExitCode.NO_DEVICE,
    )


def other_version(link: DeviceLink, theirs: str, ours: str) -> ServiceFault:
    """A host has another version of Tessera."""
    return ServiceFault(
        error(
            "TSR5071",
            f"host `{link.host.name}` has version {theirs} of Tessera, and this is {ours}",
            hint="install the same version on every host; `python` in the file of hosts says which "
            "interpreter is taken",
        ),
        device=link.device,
        exit_code=ExitCode.NO_DEVICE,
    )


def gone(link: DeviceLink, seen: LastSeen) -> ServiceFault:
    """A process has ended."""
    said, ended = link.said(), link.ended()
    notes: tuple[str, ...] = (f"it said: {said}",) if said else ()
    if link.process.poll() in _KILLED:
        notes += ("a host that is short of memory ends processes so: `dmesg` there says it",)
    return _lost(f"the process of {where(link)} {ended}", link.device, seen, notes)


def silent(link: DeviceLink, seconds: float, seen: LastSeen) -> ServiceFault:
    """A process has sent no sign of life for `seconds`."""
    headline = f"{where(link)} has not answered for {seconds:.1f} s"
    return _lost(headline, link.device, seen, ())


def cut(link: DeviceLink, peer: DeviceLink, why: str, seen: LastSeen) -> ServiceFault:
    """Two running processes have lost their connection."""
    headline = f"{where(link)} has lost {where(peer)}: {why}"
    return _lost(headline, peer.device, seen, ())


def not_joined(link: DeviceLink, peer: DeviceLink, why: str) -> ServiceFault:
    """Two processes could not connect at the start."""
    alone = [end.host.name for end in (link, peer) if ip_address(end.host.address).is_loopback]
    own = f"; that of host `{alone[0]}` is one that only itself reaches" if alone else ""
    return ServiceFault(
        error(
            "TSR5071",
            f"{where(link)} cannot reach {where(peer)}: {why}",
            hint=f"`address` in the file of hosts is where the others reach a host{own}",
        ),
        device=peer.device,
        exit_code=ExitCode.NO_DEVICE,
    )


def _lost(headline: str, device: str, seen: LastSeen, notes: tuple[str, ...]) -> ServiceFault:
    return ServiceFault(
        error("TSR5072", headline, notes=(*seen.notes(), *notes)),
        device=device,
        request=seen.request,
        step=seen.step,
        name=seen.name,
    )
