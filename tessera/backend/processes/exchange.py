"""The way between the devices of the CPU backend: what carries the bytes of transfers.

In: a model. Out: an `Exchange`. `MemoryExchange` serves a device, the host and one thread alike; it
lies in one flat array, which processes
share: a part per slot, in it a region per transfer of a trace, so that no region is used twice in a
request, and the landings of the slot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tessera.backend.ptx_executor.memory.memory import Array
from tessera.backend.service import Model
from tessera.ir.plan.launch_program import (
    Landing,
    LandingId,
    LoweredTrace,
    Put,
    Transfer,
    TransferId,
)

_ALIGNMENT = 64
_LANDING = -1  # in place of a trace

Notify = Callable[[int, Transfer | Landing], None]
"""Carries a word of a request: to its target, that a transfer is there; to its source, that a
landing is free."""


def pack(transfer: Transfer, buffer: Array, region: Array) -> None:
    """The bytes of a transfer from a buffer, one range after the other."""
    at = 0
    for start, end in transfer.bytes:
        region[at : at + end - start] = buffer[start:end]
        at += end - start


def unpack(transfer: Transfer, region: Array, buffer: Array) -> None:
    """The inverse of `pack`."""
    at = 0
    for start, end in transfer.bytes:
        buffer[start:end] = region[at : at + end - start]
        at += end - start


class Exchange(Protocol):
    """Where the bytes of transfers are between send and receive: a region per slot and transfer."""

    def region(self, trace: int, slot: int, transfer: TransferId) -> Array:
        """The bytes of a transfer, packed."""

    def landing(self, slot: int, landing: LandingId) -> Array:
        """The bytes of a landing."""

    def post(self, request: int, slot: int, transfer: Transfer, landing: LandingId | None) -> None:
        """Bring the bytes of the region, or of the landing, to the target, and tell it."""

    def credit(self, request: int, landing: Landing) -> None:
        """Tell the source of a landing that it is free."""


class Regions:
    """Where transfers are in the exchange."""

    def __init__(self, model: Model) -> None:
        self._starts: dict[tuple[int, int], tuple[int, int]] = {}
        self._slot_bytes = 0
        first = 0
        for landing in model.lowered.landings:
            self._starts[_LANDING, landing.id] = first, landing.bytes
            first += _aligned(landing.bytes)
        for lowered in model.lowered.traces:
            put = _put_in(lowered)
            at = first
            for transfer in lowered.transfers:
                if transfer.id not in put:
                    self._starts[lowered.trace, transfer.id] = at, transfer.size
                    at += _aligned(transfer.size)
            self._slot_bytes = max(self._slot_bytes, at)
        self.bytes = max(1, self._slot_bytes * model.lowered.slots)

    def region(self, memory: Array, trace: int, slot: int, transfer: TransferId) -> Array:
        """The bytes of a transfer in the exchange's memory."""
        return self._span(memory, slot, (trace, transfer))

    def landing(self, memory: Array, slot: int, landing: LandingId) -> Array:
        """The bytes of a landing in the exchange's memory."""
        return self._span(memory, slot, (_LANDING, landing))

    def _span(self, memory: Array, slot: int, key: tuple[int, int]) -> Array:
        start, size = self._starts[key]
        start += slot * self._slot_bytes
        return memory[start : start + size]


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _put_in(lowered: LoweredTrace) -> set[TransferId]:
    """The transfers that go through landings."""
    return {
        queued.operation.transfer
        for program in lowered.programs
        for queued in program.operations
        if isinstance(queued.operation, Put)
    }


class MemoryExchange:
    """An exchange over an array; `notify` carries the word that something is filled, or free."""

    def __init__(self, model: Model, memory: Array, notify: Notify) -> None:
        self._regions = Regions(model)
        self._memory = memory
        self._notify = notify

    def region(self, trace: int, slot: int, transfer: TransferId) -> Array:
        """The bytes of a transfer, packed."""
        return self._regions.region(self._memory, trace, slot, transfer)

    def landing(self, slot: int, landing: LandingId) -> Array:
        """The bytes of a landing."""
        return self._regions.landing(self._memory, slot, landing)

    def post(self, request: int, slot: int, transfer: Transfer, landing: LandingId | None) -> None:
        """Tell the target that the bytes are there: it has the same memory."""
        self._notify(request, transfer)

    def credit(self, request: int, landing: Landing) -> None:
        """Tell the source of a landing that it is free."""
        self._notify(request, landing)
