"""The transport between devices of one process: copies.

In: a name and a window. Out: a `Transport`; its address is its name in the hub that all share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera.backend.transports.transport import (
    Hear,
    PlannedPut,
    Transport,
    TransportFault,
    WindowBytes,
)


class InProcessTransport:
    """A device in a hub of devices."""

    def __init__(
        self, hub: dict[str, InProcessTransport], name: str, window: WindowBytes, hear: Hear
    ) -> None:
        self._hub = hub
        self._name = name
        self.window = window
        self.hear = hear
        hub[name] = self

    @property
    def address(self) -> str:
        """Its name."""
        return self._name

    def connect(self, peers: Mapping[str, str], puts: Sequence[PlannedPut] = ()) -> None:
        """All in the hub are joined already."""
        for peer, address in peers.items():
            if address not in self._hub:
                raise TransportFault(peer, "it is not in this process")

    def put(self, peer: str, offset: int, content: WindowBytes, note: bytes) -> None:
        """Copy, then tell."""
        self._hub[peer].window[offset : offset + len(content)] = content
        self.tell(peer, note)

    def tell(self, peer: str, note: bytes) -> None:
        """The peer hears it in this thread."""
        self._hub[peer].hear(self._name, note)

    def close(self) -> None:
        """Leave the hub."""
        self._hub.pop(self._name, None)


_: type[Transport] = InProcessTransport
