"""The interface of every transport.

In: bytes of one device, and a note. Out: the same bytes in the window of another device, and then
the note.

A *window* is memory of a device that others put into; it is registered once, when the transport is
made. A put is one-sided: it needs nothing of the peer's program. Puts are not ordered among
themselves, so a put carries its note, and the note is heard after its bytes are there. Who may put
where, and when, is not decided here: launch programs do that, and the checker proves them.

- `address` is what others need to reach this device, as one line of text.
- `connect` joins this device to others by their addresses, and is told every put that will come,
  so that it can be prepared; afterwards nothing is allocated.
- `put` returns when the content may be changed again, `tell` at once.
- `hear(peer, note)` is called by a thread of the transport, for one note of a peer at a time.
- `lose(peer, why, is_cut=...)` is called once per peer, when no more can come from it.
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
    """Hears that no more can come from a peer; `is_cut`: nothing arrives there any more."""

    def __call__(self, peer: str, why: str, *, is_cut: bool = False) -> None:
        """Take note of it."""


def lose_nothing(peer: str, why: str, *, is_cut: bool = False) -> None:
    """A `Lose` for who has no peers yet."""


LONGEST_NOTE = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportPlace:
    """Which transport, for whom, and how it is reached.

    `name` is that of the device, `host` of its host, `bind` the address to listen at. Peers of a
    `run` prove its `token`. Every end sends a beat after `beat_s`; after `cut_s` without a sign of
    a peer the link is cut.
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
    """A put that will come, perhaps often: to whom, where in its window, from which memory."""

    peer: str
    offset: int
    content: WindowBytes


class Transport(Protocol):
    """The ways from one device to others; the module docstring has the rules."""

    @property
    def address(self) -> str:
        """What others need to reach this device."""

    def connect(self, peers: Mapping[str, str], puts: Sequence[PlannedPut] = ()) -> None:
        """Join this device to others; raises `TransportFault` where one cannot be reached."""

    def put(self, peer: str, offset: int, content: WindowBytes, note: bytes) -> None:
        """Write into the window of a peer, and let it hear the note afterwards."""

    def tell(self, peer: str, note: bytes) -> None:
        """Let a peer hear a note."""

    def close(self) -> None:
        """End all ways."""


class TransportFault(OSError):
    """A peer that cannot be joined: who it is, and why."""

    def __init__(self, peer: str, why: str) -> None:
        super().__init__(f"{peer}: {why}")
        self.peer = peer
        self.why = why
