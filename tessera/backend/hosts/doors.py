"""Ways between devices of different replicas, through which states are handed over.

In: messages of the driver. Out: bytes of states, by the transport of the run, from the process of
one device to that of another; the driver hears only that they have arrived. A door has two ends.
Bytes go in pieces, each into one half of the window in turn, and the end that takes them says when
a half is free again. Sizes of pieces are powers of two, so that all puts are known when ends join.
An end that has failed is not used again: the two may differ about the pieces that have arrived.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np

from tessera.backend.hosts.messages import CloseDoor, DoorMessage, JoinDoor, OpenDoor, SendParts
from tessera.backend.processes.messages import PartsDone
from tessera.backend.service import Bytes, StateParts
from tessera.backend.transports.choice import open_transport
from tessera.backend.transports.shared_memory import shared_window
from tessera.backend.transports.transport import PlannedPut, TransportPlace
from tessera.diagnostics import TesseraError

PIECE_BYTES, LEAST_BYTES = 4 << 20, 64 << 10
_HALVES = 2
_WAIT_S = 10.0
_NOTE = b"."


class Door:
    """One end of a way."""

    def __init__(self, place: TransportPlace, peer: str, *, sends: bool) -> None:
        size = _HALVES * PIECE_BYTES
        self._window, descriptor = shared_window(1 if sends else size)
        self._outgoing = np.zeros(size if sends else 1, np.uint8)
        self._peer = peer
        self._changed = threading.Condition()
        self._heard = self._done = 0
        self._lost = ""
        self._transport = open_transport(
            place, self._window, descriptor, self._outgoing, self._hear, self._lose
        )
        self._puts = [
            PlannedPut(peer, start, self._outgoing[start : start + size])
            for start in (range(0, size, PIECE_BYTES) if sends else ())
            for size in _sizes()
        ]

    @property
    def address(self) -> str:
        """What the other end needs to reach this one."""
        return self._transport.address

    def join(self, address: str) -> None:
        """Join the other end, which does the same."""
        self._transport.connect({self._peer: address}, self._puts)

    def send(self, content: Bytes) -> None:
        """Send bytes to the other end."""
        for first in range(0, content.nbytes, PIECE_BYTES):
            self._await(self._done - _HALVES + 1)
            piece = content[first : first + PIECE_BYTES]
            size = next(size for size in _sizes() if size >= piece.nbytes)
            start = self._done % _HALVES * PIECE_BYTES
            region = self._outgoing[start : start + size]
            region[: piece.nbytes] = piece
            self._transport.put(self._peer, start, region, _NOTE)
            self._done += 1

    def take(self, size: int) -> Bytes:
        """So many bytes from the other end."""
        content = np.empty(size, np.uint8)
        for first in range(0, size, PIECE_BYTES):
            self._await(self._done + 1)
            piece = content[first : first + PIECE_BYTES]
            start = self._done % _HALVES * PIECE_BYTES
            piece[:] = self._window[start : start + piece.nbytes]
            self._done += 1
            self._transport.tell(self._peer, _NOTE)
        return content

    def close(self) -> None:
        """Close this end."""
        self._transport.close()

    def _hear(self, peer: str, note: bytes) -> None:
        with self._changed:
            self._heard += 1
            self._changed.notify_all()

    def _lose(self, peer: str, why: str, *, is_cut: bool = False) -> None:
        with self._changed:
            self._lost = why or "the other end is gone"
            self._changed.notify_all()

    def _await(self, count: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._heard >= count or bool(self._lost), _WAIT_S)
            if self._heard < count:
                raise OSError(self._lost or "the other end does not answer")


def _sizes() -> Iterator[int]:
    size = LEAST_BYTES
    while size <= PIECE_BYTES:
        yield size
        size *= 2


class DoorKeeper:
    """The doors of a device. Each message is obeyed by a thread of its own, which answers it."""

    def __init__(
        self,
        answer: Callable[[PartsDone], None],
        read: Callable[[int, StateParts], Bytes],
        write: Callable[[int, StateParts, Bytes], None],
    ) -> None:
        self._answer = answer
        self._read, self._write = read, write
        self._doors: dict[str, Door] = {}

    def obey(self, message: DoorMessage) -> None:
        """Begin to do what a message says."""
        threading.Thread(target=self._do, args=(message,), daemon=True).start()

    def _do(self, message: DoorMessage) -> None:
        if isinstance(message, CloseDoor):
            self._doors.pop(message.door).close()
            return
        try:
            answer = self._answer_to(message)
        except (OSError, TesseraError):
            answer = PartsDone(is_done=False)
        self._answer(answer)

    def _answer_to(self, message: OpenDoor | JoinDoor | SendParts) -> PartsDone:
        if isinstance(message, OpenDoor):
            door = Door(message.place, message.peer, sends=message.sends)
            self._doors[message.door] = door
            return PartsDone(address=door.address)
        door = self._doors[message.door]
        if isinstance(message, JoinDoor):
            door.join(message.address)
        elif message.sends:
            door.send(self._read(message.lane, message.parts))
        else:
            size = sum(end - start for _, ranges in message.parts for start, end in ranges)
            self._write(message.lane, message.parts, door.take(size))
        return PartsDone()

    def close(self) -> None:
        """Close all doors."""
        for door in self._doors.values():
            door.close()
        self._doors.clear()
