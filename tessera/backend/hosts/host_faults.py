"""What is said of a run over hosts that stops: which host, which device, which operation.

In: what the driver knows of a device. Out: `ServiceFault`s.
"""

from __future__ import annotations

from ipaddress import ip_address

from tessera.backend.hosts.device_link import DeviceLink
from tessera.backend.hosts.last_seen import LastSeen
from tessera.backend.service import ServiceFault
from tessera.diagnostics import ExitCode, error

_KILLED = (-9, 137)
"""Exit codes of a process that was killed, by signal or as shells say it."""

START_HINT = "`tessc doctor --hosts FILE` tries every host"


def where(link: DeviceLink) -> str:
    """`device `a` on host `b``."""
    return f"device `{link.device}` on host `{link.host.name}`"


def not_started(link: DeviceLink) -> ServiceFault:
    """A process that ended before it could take requests."""
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
    """A host whose command cannot be run."""
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
    """A host with another Tessera."""
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
    """A process that has ended."""
    said, ended = link.said(), link.ended()
    notes: tuple[str, ...] = (f"it said: {said}",) if said else ()
    if link.process.poll() in _KILLED:
        notes += ("a host that is short of memory ends processes so: `dmesg` there says it",)
    return _lost(f"the process of {where(link)} {ended}", link.device, seen, notes)


def silent(link: DeviceLink, seconds: float, seen: LastSeen) -> ServiceFault:
    """A process that says nothing."""
    headline = f"{where(link)} has not answered for {seconds:.1f} s"
    return _lost(headline, link.device, seen, ())


def cut(link: DeviceLink, peer: DeviceLink, why: str, seen: LastSeen) -> ServiceFault:
    """Two processes that are there and cannot reach each other."""
    headline = f"{where(link)} has lost {where(peer)}: {why}"
    return _lost(headline, peer.device, seen, ())


def not_joined(link: DeviceLink, peer: DeviceLink, why: str) -> ServiceFault:
    """Two processes that have not found each other."""
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
