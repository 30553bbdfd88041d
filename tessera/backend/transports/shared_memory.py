"""The transport between processes of one host: bytes in shared memory, notes over a socket.

In: the same as for `sockets`; the window is memory without a name (`shared_window`). Out: a
`Transport`. The address says where the window can be mapped. A peer on another host, or on this
host under another name, is reached by the socket alone, so this transport serves both cases.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np

from tessera.backend.transports.sockets import SocketTransport
from tessera.backend.transports.transport import (
    Hear,
    Lose,
    PlannedPut,
    Transport,
    TransportPlace,
    WindowBytes,
)

_BOOT = "/proc/sys/kernel/random/boot_id"


def shared_window(size: int) -> tuple[WindowBytes, int]:
    """Memory that other processes of this host can map, and its descriptor (-1 if they cannot).

    Raises `OSError` if the host has no room for it.
    """
    make = getattr(os, "memfd_create", None)
    if make is None or not os.path.exists(_BOOT):
        return np.zeros(size, np.uint8), -1
    descriptor: int = make("tessera-window")
    os.posix_fallocate(descriptor, 0, size)
    return np.frombuffer(mmap.mmap(descriptor, size), np.uint8), descriptor


class SharedMemoryTransport(SocketTransport):
    """Sockets, and mapped windows of peers on the same host."""

    def __init__(
        self,
        place: TransportPlace,
        window: WindowBytes,
        descriptor: int,
        outgoing: WindowBytes,
        hear: Hear,
        lose: Lose,
    ) -> None:
        """`outgoing` is the memory of all puts, for transports that register memory."""
        super().__init__(place, window, hear, lose)
        self._descriptor = descriptor
        self._host_id = f"{place.host} {_system_id()}"
        self._mapped: dict[str, WindowBytes] = {}

    @property
    def address(self) -> str:
        """The place of the window, and the address at which the socket listens."""
        place = ""
        if self._descriptor >= 0:
            place = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        return json.dumps([self._host_id, place, super().address])

    def connect(self, peers: Mapping[str, str], puts: Sequence[PlannedPut] = ()) -> None:
        """Map the windows that are on this host, and connect."""
        given = {peer: json.loads(address) for peer, address in peers.items()}
        super().connect({peer: str(address[2]) for peer, address in given.items()})
        for peer, (host, place, _) in given.items():
            if place and host == self._host_id:
                with suppress(OSError):
                    self._mapped[peer] = _map(place)

    def put(self, peer: str, offset: int, content: WindowBytes, note: bytes) -> None:
        """Copy the bytes into the window of the peer, or send them."""
        window = self._mapped.get(peer)
        if window is None:
            super().put(peer, offset, content, note)
        else:
            window[offset : offset + len(content)] = content
            self.tell(peer, note)

    def close(self) -> None:
        """Close the connections, and unmap the windows of peers."""
        super().close()
        self._mapped.clear()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _map(place: str) -> WindowBytes:
    descriptor = os.open(place, os.O_RDWR)
    try:
        return np.frombuffer(mmap.mmap(descriptor, 0), np.uint8)
    finally:
        os.close(descriptor)


def _system_id() -> str:
    """An id of this boot of the system and its process namespace."""
    try:
        with open(_BOOT) as stream:
            boot = stream.read().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


_: type[Transport] = SharedMemoryTransport
