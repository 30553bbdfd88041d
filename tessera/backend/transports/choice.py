"""The transport that a run over hosts is to use: the one place that knows the classes.

In: a name, as a file of hosts has it. Out: a `Transport`, not yet connected. The device's window is
memory that others of its host can map.
"""

from __future__ import annotations

from dataclasses import dataclass

from tessera.backend.transports.shared_memory import SharedMemoryTransport
from tessera.backend.transports.sockets import BEAT_S
from tessera.backend.transports.transport import Hear, Lose, Transport, WindowBytes
from tessera.diagnostics import ExitCode, TesseraError, error
from tessera.ir.plan.hosts import INSTALL_HOSTS


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportPlace:
    """Which transport, for whom, and how it is reached."""

    kind: str
    name: str
    host: str
    bind: str
    token: str
    run: str
    beat_s: float = BEAT_S


def open_transport(
    place: TransportPlace,
    window: WindowBytes,
    descriptor: int,
    outgoing: WindowBytes,
    hear: Hear,
    lose: Lose,
) -> Transport:
    """The transport of a device; `outgoing` has all that it will put."""
    if place.kind != "nixl":
        return SharedMemoryTransport(
            place.name,
            window,
            descriptor,
            hear,
            lose,
            token=place.token,
            run=place.run,
            bind=place.bind,
            host=place.host,
            beat_s=place.beat_s,
        )
    from tessera.backend.transports.nixl import NixlTransport, missing_nixl

    missing = missing_nixl()
    if missing:
        raise TesseraError(
            error("TSR5071", f"transfers are by NIXL, and {missing}", hint=INSTALL_HOSTS),
            ExitCode.NO_DEVICE,
        )
    return NixlTransport(
        place.name,
        window,
        descriptor,
        outgoing,
        hear,
        lose,
        token=place.token,
        run=place.run,
        bind=place.bind,
        host=place.host,
        beat_s=place.beat_s,
    )
