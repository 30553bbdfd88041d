"""Offsets of transfers in the windows of devices, and the exchanges of devices and driver.

In: launch programs. Out: offsets, the same on every host; an `Exchange` over a transport, for
`DeviceEngine`; and an exchange for the driver, whose bytes go with messages.

The layout of a window is that of `processes.exchange.Windows`: transfers from devices of the same
host and from the driver have regions, and transfers from other hosts have landings.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np

from tessera.backend.processes.exchange import Windows, aligned
from tessera.backend.service import Bytes, Model
from tessera.backend.transports.transport import Lose, PlannedPut, Transport, lose_nothing
from tessera.ir.plan.launch_program import (
    HOST,
    Landing,
    LandingId,
    LoweredReplica,
    Put,
    Transfer,
    TransferId,
)

_NOTE = struct.Struct("<Bqqq")
_ARRIVED, _CREDIT = 1, 2
_LANDING = -1

Arrive = Callable[[int, TransferId], None]
Free = Callable[[int, LandingId], None]


class TransportExchange:
    """The exchange of one device over a transport. Bytes for the driver are kept until taken.

    Bytes to be sent lie in `outgoing` until they have left; if this device is the source, `region`
    and `landing` are in that memory.
    """

    def __init__(self, lowered: LoweredReplica, device: str, window: Bytes) -> None:
        self.windows = Windows(lowered)
        self._device = device
        self._window = window
        self._landings = {landing.id: landing for landing in lowered.landings}
        self._transfers = {
            (trace.trace, transfer.id): transfer
            for trace in lowered.traces
            for transfer in trace.transfers
        }
        self._leaving: dict[tuple[int, int, int], Bytes] = {}
        sizes = {
            (slot, trace, number): transfer.size
            for slot in range(lowered.slots)
            for (trace, number), transfer in self._transfers.items()
            if transfer.source == device
        } | {
            (slot, _LANDING, int(landing.id)): landing.bytes
            for slot in range(lowered.slots)
            for landing in lowered.landings
            if landing.source == device
        }
        self.outgoing = np.empty(sum(map(aligned, sizes.values())), np.uint8)
        start = 0
        for key, size in sizes.items():
            self._leaving[key] = self.outgoing[start : start + size]
            start += aligned(size)
        self._ways = _ways(lowered, device)
        self._seats: dict[int, tuple[int, int]] = {}
        self._kept: dict[int, list[tuple[TransferId, Bytes]]] = {}
        self._transport: Transport | None = None
        self._lose: Lose = lose_nothing

    def attach(self, transport: Transport, lose: Lose) -> None:
        """Send bytes over this transport from now on; lost peers are reported to the driver."""
        self._transport, self._lose = transport, lose

    def puts(self) -> list[PlannedPut]:
        """Every put that requests may make."""
        return [
            PlannedPut(
                transfer.target, *self._way(trace, slot, transfer, self._ways[trace, transfer.id])
            )
            for (trace, number), transfer in self._transfers.items()
            for slot in range(self.windows.slots)
            if (trace, number) in self._ways
        ]

    def _way(
        self, trace: int, slot: int, transfer: Transfer, landing: LandingId | None
    ) -> tuple[int, Bytes]:
        """The offset of a transfer in its target's window, and its bytes on this device."""
        if landing is None:
            offset = self.windows.region(transfer.target, trace, slot, transfer.id)
            return offset, self._leaving[slot, trace, transfer.id]
        offset = self.windows.landing(transfer.target, slot, landing)
        return offset, self._leaving[slot, _LANDING, landing][: transfer.size]

    def begin(self, request: int, trace: int, slot: int) -> None:
        """Note that a request is about to begin here."""
        self._seats[request] = trace, slot

    def take_kept(self, request: int) -> list[tuple[TransferId, Bytes]]:
        """The outputs of a request that is done here."""
        self._seats.pop(request, None)
        return self._kept.pop(request, [])

    def region(self, trace: int, slot: int, transfer: TransferId) -> Bytes:
        """The bytes of a transfer: where they leave from, or where they arrive."""
        moved = self._transfers[trace, transfer]
        if moved.source == self._device:
            return self._leaving[slot, trace, transfer]
        start = self.windows.region(self._device, trace, slot, transfer)
        return self._window[start : start + moved.size]

    def landing(self, slot: int, landing: LandingId) -> Bytes:
        """The bytes of a landing, or the bytes to be sent there."""
        if self._landings[landing].source == self._device:
            return self._leaving[slot, _LANDING, landing]
        start = self.windows.landing(self._device, slot, landing)
        return self._window[start : start + self._landings[landing].bytes]

    def post(self, request: int, slot: int, transfer: Transfer, landing: LandingId | None) -> None:
        """Put the bytes into the window of the target, or keep them for the driver."""
        trace, _ = self._seats[request]
        if transfer.target == HOST:
            content = self._leaving[slot, trace, transfer.id].copy()
            self._kept.setdefault(request, []).append((transfer.id, content))
            return
        offset, content = self._way(trace, slot, transfer, landing)
        assert self._transport is not None
        note = _NOTE.pack(_ARRIVED, request, transfer.id, slot)
        try:
            self._transport.put(transfer.target, offset, content, note)
        except OSError as problem:
            self._lose(transfer.target, (problem.strerror or str(problem)).lower())

    def credit(self, request: int, landing: Landing) -> None:
        """Tell the source of a landing that it is free."""
        assert self._transport is not None
        note = _NOTE.pack(_CREDIT, request, landing.id, self._seats[request][1])
        try:
            self._transport.tell(landing.source, note)
        except OSError as problem:
            self._lose(landing.source, (problem.strerror or str(problem)).lower())

    def hear(self, peer: str, note: bytes, arrive: Arrive, free: Free) -> None:
        """Handle a note: a transfer has arrived, or a landing is free.

        A note has the request, the operation and the slot. A request that has begun here runs in
        one slot. A peer whose note names another slot is treated as lost, because it cannot be
        trusted with this memory.
        """
        try:
            kind, request, number, slot = _NOTE.unpack(note)
        except struct.error:
            self._lose(peer, "it sent a note that cannot be read")
            return
        seat = self._seats.get(request)
        if seat is not None and seat[1] != slot:
            self._lose(peer, f"it put request {request} into slot {slot}, not {seat[1]}")
        elif kind == _ARRIVED:
            arrive(request, TransferId(number))
        elif kind == _CREDIT:
            free(request, LandingId(number))


def _ways(lowered: LoweredReplica, device: str) -> dict[tuple[int, int], LandingId | None]:
    """The transfers of a device to others, each with its landing, if any."""
    ways: dict[tuple[int, int], LandingId | None] = {}
    for trace in lowered.traces:
        for transfer in trace.transfers:
            if transfer.source == device and transfer.target != HOST:
                ways[trace.trace, transfer.id] = None
        for program in trace.programs:
            for queued in program.operations:
                operation = queued.operation
                if isinstance(operation, Put) and (trace.trace, operation.transfer) in ways:
                    ways[trace.trace, operation.transfer] = operation.landing
    return ways


class DriverExchange:
    """The memory of inputs and outputs on the driver, per slot and transfer, allocated once."""

    def __init__(self, model: Model) -> None:
        self._sizes = {
            (trace.trace, transfer.id): transfer.size
            for trace in model.lowered.traces
            for transfer in trace.transfers
        }
        self._regions: dict[tuple[int, int, int], Bytes] = {}

    def region(self, trace: int, slot: int, transfer: TransferId) -> Bytes:
        """The bytes of a transfer from or to the driver."""
        key = (trace, slot, transfer)
        if key not in self._regions:
            self._regions[key] = np.empty(self._sizes[trace, transfer], np.uint8)
        return self._regions[key]

    def landing(self, slot: int, landing: LandingId) -> Bytes:
        """The driver has no landings."""
        raise KeyError(landing)

    def post(self, request: int, slot: int, transfer: Transfer, landing: LandingId | None) -> None:
        """Do nothing: inputs go with the message that begins a request."""

    def credit(self, request: int, landing: Landing) -> None:
        """The driver has no landings."""


def peers_of(lowered: LoweredReplica) -> dict[str, set[str]]:
    """The devices that each device sends to or receives from."""
    peers: dict[str, set[str]] = {device: set() for device in lowered.devices}
    for trace in lowered.traces:
        for transfer in trace.transfers:
            if HOST not in (transfer.source, transfer.target):
                peers[transfer.source].add(transfer.target)
                peers[transfer.target].add(transfer.source)
    return peers
