"""The interface of every transport.

In: bytes of one device, and a note. Out: the same bytes in the window of another device, followed
by the note.

A *window* is memory of a device that others put into; it is registered once, when the transport is
made. A put is one-sided: the peer's program takes no part in it. Puts are not ordered among
themselves, so a put carries its note, and the note is heard after its bytes have arrived. Launch
programs decide which device puts where and when, and the checker proves them.

- `address` is what others need to reach this device, as one line of text.
- `connect` joins this device to others by their addresses, and gets the list of all planned puts to
  prepare them; nothing is allocated afterwards.
- `put` returns when the content may be changed again, `tell` at once.
- `hear(peer, note)` is called by a thread of the transport, for one note of a peer at a time.
- `lose(peer, why, is_cut=...)` is called once per peer, when nothing more can arrive from it.
- `close` may be called at any time, more than once; a put under way ends with `OSError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

WindowBytes = npt.NDArray[np.uint8]
Hear = Callable[[str, bytes], None]


class Lose(Protocol):
    """Called when a peer is lost; `is_cut`: its process may run, but the link to it is cut."""

    def __call__(self, peer: str, why: str, *, is_cut: bool = False) -> None:
        """Handle the loss of a peer."""


def lose_nothing(peer: str, why: str, *, is_cut: bool = False) -> None:
    """A `Lose` that does nothing, for a transport without peers."""


LONGEST_NOTE = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportPlace:
    """The kind of a transport, its device and its address.

    `name` is the name of the device, `host` the name of its host, and `bind` the address to listen
    at. Peers of a `run` prove its `token`. Every end sends a beat each `beat_s` seconds; a link
    without a sign of its peer for `cut_s` seconds counts as cut.
    """

    kind: str = "tcp"
    name: str
    host: str = ""
    bind: str = "127.0.0.1"
    token: str
    run: str
    beat_s: float = 0.1
    cut_s: float = 0.4


@dataclass(frozen=True, slots=True)
class PlannedPut:
    """A put that may be repeated: its peer, the offset in the peer's window, and its memory."""

    peer: str
    offset: int
    content: WindowBytes


class Transport(Protocol):
    """The links from one device to others; the module docstring has the rules."""

    @property
    def address(self) -> str:
        """The text that others need to reach this device."""

    def connect(self, peers: Mapping[str, str], puts: Sequence[PlannedPut] = ()) -> None:
        """Join this device to others; raises `TransportFault` if one cannot be reached."""

    def put(self, peer: str, offset: int, content: WindowBytes, note: bytes) -> None:
        """Write into the window of a peer, and send the note afterwards."""

    def tell(self, peer: str, note: bytes) -> None:
        """Send a note to a peer."""

    def close(self) -> None:
        """Close all links."""


class TransportFault(OSError):
    """A peer that cannot be joined, and why."""

    def __init__(self, peer: str, why: str) -> None:
        super().__init__(f"{peer}: {why}")
        self.peer = peer
        self.why = why
