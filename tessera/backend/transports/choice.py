"""Makes the transport of a run over hosts; only this module knows the classes.

In: a name from a hosts file. Out: a `Transport`, not yet connected. Other processes of the host can
map the device's window.
"""

from __future__ import annotations

from tessera.backend.transports.shared_memory import SharedMemoryTransport
from tessera.backend.transports.transport import (
    Hear,
    Lose,
    Transport,
    TransportPlace,
    WindowBytes,
)
from tessera.diagnostics import ExitCode, TesseraError, error
from tessera.ir.plan.hosts import INSTALL_HOSTS


def open_transport(
    place: TransportPlace,
    window: WindowBytes,
    descriptor: int,
    outgoing: WindowBytes,
    hear: Hear,
    lose: Lose,
) -> Transport:
    """The transport of a device; `outgoing` is the memory of all its puts."""
    try:
        return _kind(place.kind)(place, window, descriptor, outgoing, hear, lose)
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise _refused(
            f"host `{place.host}` cannot listen at its address `{place.bind}`: {reason}",
            "`address` in the file of hosts is one of the host's own",
        ) from None


def _kind(name: str) -> type[SharedMemoryTransport]:
    if name != "nixl":
        return SharedMemoryTransport
    from tessera.backend.transports.nixl import NixlTransport, missing_nixl

    missing = missing_nixl()
    if missing:
        raise _refused(f"transfers are by NIXL, and {missing}", INSTALL_HOSTS)
    return NixlTransport


def _refused(headline: str, hint: str) -> TesseraError:
    return TesseraError(error("TSR5071", headline, hint=hint), ExitCode.NO_DEVICE)
