"""Transfers from a GPU to devices of other hosts: through pinned memory, posted by the host.

In: launch programs, the host of every device, a transport. Out: the places where the bytes of these
transfers lie in transit, on both hosts.

The source's stream copies the bytes into `outgoing` and writes the number of the request into a
word. A thread sees the word and puts the bytes, with a note that has the number, into the window of
the target's host. There the note sets another word; the target's stream waits until that word has
come to its number, and copies the bytes. Numbers and regions are those of `process_ways`. A word
takes its numbers in order, so a late note of an earlier request changes nothing. A transfer that a
GPU starts by itself on a network card would need no thread, and would replace `_post`.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Mapping

import numpy as np

from tessera.backend.cuda.api import Bytes, Driver, host_view
from tessera.backend.transports.transport import Lose, PlannedPut, Transport, lose_nothing
from tessera.ir.plan.launch_program import HOST, PLACE_ALIGNMENT, LoweredReplica, Transfer

_NOTE = struct.Struct("<qqqI")
"""The slot, the trace, the transfer, and the number of the request."""
WORD_MASK = 0xFFFFFFFF
_WORD_BYTES = 4
_LOOK_S, _REST_S = 2e-5, 1e-3
_END_S = 1.0
_Key = tuple[int, int, int]


class FarWays:
    """The transfers between a device and devices of other hosts."""

    def __init__(
        self, driver: Driver, lowered: LoweredReplica, device: str, hosts: Mapping[str, str]
    ) -> None:
        """Lay out the windows; the current context is that of the device."""
        self._driver = driver
        self._device = device
        self._hosts = hosts
        self._transfers = {
            (slot, trace.trace, int(transfer.id)): transfer
            for slot in range(lowered.slots)
            for trace in lowered.traces
            for transfer in trace.transfers
            if HOST not in (transfer.source, transfer.target) and self.is_far(transfer)
        }
        self._offsets: dict[_Key, int] = {}
        sizes = {target: self._lay_out(target) for target in lowered.devices}
        self._leaving = [k for k, t in self._transfers.items() if t.source == device]
        self._coming = {
            k: n for n, k in enumerate(k for k, t in self._transfers.items() if t.target == device)
        }
        self._blocks: list[int] = []
        self._window_at, self.window = self._pinned(sizes[device])
        starts, at = [], 0
        for key in self._leaving:
            starts.append(at)
            at += _aligned(self._transfers[key].size)
        self._outgoing_at, self.outgoing = self._pinned(at)
        self._starts = dict(zip(self._leaving, starts, strict=True))
        self._left_at, left = self._pinned(_WORD_BYTES * len(self._leaving))
        self._arrived_at, arrived = self._pinned(_WORD_BYTES * len(self._coming))
        self._left, self._arrived = left.view(np.uint32), arrived.view(np.uint32)
        self._transport: Transport | None = None
        self._lose: Lose = lose_nothing
        self._over = threading.Event()
        self._posting: threading.Thread | None = None
        self.under_way = 0

    def __bool__(self) -> bool:
        """Whether this device has transfers to or from devices of other hosts."""
        return bool(self._leaving or self._coming)

    def is_far(self, transfer: Transfer) -> bool:
        """Whether a transfer between devices leaves its host."""
        return self._hosts.get(transfer.source) != self._hosts.get(transfer.target)

    def _lay_out(self, target: str) -> int:
        """Lay out the window of a device, the same in all processes; returns its bytes."""
        at = 0
        for key, transfer in self._transfers.items():
            if transfer.target == target:
                self._offsets[key] = at
                at += _aligned(transfer.size)
        return at

    def _pinned(self, size: int) -> tuple[int, Bytes]:
        address = self._driver.allocate_host(max(size, PLACE_ALIGNMENT))
        self._blocks.append(address)
        view = host_view(address, max(size, PLACE_ALIGNMENT))
        view[:] = 0
        return address, view[:size]

    def puts(self) -> list[PlannedPut]:
        """Every put that requests may make."""
        return [PlannedPut(*self._put(key)) for key in self._leaving]

    def _put(self, key: _Key) -> tuple[str, int, Bytes]:
        transfer, start = self._transfers[key], self._starts[key]
        return transfer.target, self._offsets[key], self.outgoing[start : start + transfer.size]

    def attach(self, transport: Transport, lose: Lose) -> None:
        """Send bytes over this transport from now on; lost peers are reported."""
        self._transport, self._lose = transport, lose
        self._posting = threading.Thread(target=self._post, daemon=True)
        self._posting.start()

    def place(self, trace: int, slot: int, transfer: Transfer) -> tuple[int, int]:
        """The place of a transfer's bytes on this host, and the word that signals them."""
        key = slot, trace, int(transfer.id)
        if transfer.source == self._device:
            word = self._leaving.index(key)
            return self._outgoing_at + self._starts[key], self._left_at + _WORD_BYTES * word
        word = self._coming[key]
        return self._window_at + self._offsets[key], self._arrived_at + _WORD_BYTES * word

    def hear(self, peer: str, note: bytes) -> None:
        """The bytes of a transfer have arrived: release the stream that waits for them."""
        try:
            *key, number = _NOTE.unpack(note)
            word = self._coming[key[0], key[1], key[2]]
        except (struct.error, KeyError):
            self._lose(peer, "it sent a note that cannot be read")
            return
        if self._transfers[key[0], key[1], key[2]].source != peer:
            self._lose(peer, "it sent bytes of another device")
        elif number == (int(self._arrived[word]) + 1) & WORD_MASK:
            self._arrived[word] = number

    def _post(self) -> None:
        """Put the bytes that streams have copied into pinned memory."""
        rows = [(*self._put(key), key) for key in self._leaving]
        assert self._transport is not None
        posted = self._left.copy()
        while not self._over.is_set():
            fresh = np.flatnonzero(self._left != posted)
            for word in fresh:
                posted[word] = number = self._left[word]
                peer, offset, content, key = rows[word]
                try:
                    self._transport.put(peer, offset, content, _NOTE.pack(*key, int(number)))
                except OSError as problem:
                    self._lose(peer, (problem.strerror or str(problem)).lower())
            if not len(fresh):
                time.sleep(_LOOK_S if self.under_way else _REST_S)

    def close(self) -> None:
        """Close the transport and free the memory; no work may be under way."""
        self._over.set()
        if self._posting is not None:
            self._posting.join(_END_S)
        if self._transport is not None:
            self._transport.close()
        for address in self._blocks:
            self._driver.free_host(address)
        self._blocks.clear()


def _aligned(size: int) -> int:
    return -(-size // PLACE_ALIGNMENT) * PLACE_ALIGNMENT
