"""The way between the devices of the CPU backend: what carries the bytes of transfers.

In: a model. Out: an `Exchange`, which `open_exchange` makes for a device, for the host and for one
thread alike. The one that there is, `MemoryExchange`, lies in one flat array, which processes
share: a part per slot, in it a region per transfer of a trace, so that no region is used twice in a
request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tessera.backend.ptx_executor.memory.memory import Array
from tessera.backend.service import Model
from tessera.ir.plan.launch_program import Transfer, TransferId

_ALIGNMENT = 64


class Exchange(Protocol):
    """Where the bytes of transfers are between send and receive: a region per slot and transfer."""

    def region(self, trace: int, slot: int, transfer: TransferId) -> Array:
        """The bytes of a transfer, packed."""

    def post(self, request: int, transfer: Transfer) -> None:
        """Tell the target that the region is filled."""


class Regions:
    """Where transfers are in the exchange."""

    def __init__(self, model: Model) -> None:
        self._starts: dict[tuple[int, int], tuple[int, int]] = {}
        self._slot_bytes = 0
        for lowered in model.lowered.traces:
            at = 0
            for transfer in lowered.transfers:
                self._starts[lowered.trace, transfer.id] = at, transfer.size
                at += -(-transfer.size // _ALIGNMENT) * _ALIGNMENT
            self._slot_bytes = max(self._slot_bytes, at)
        self.bytes = max(1, self._slot_bytes * model.lowered.slots)

    def region(self, memory: Array, trace: int, slot: int, transfer: TransferId) -> Array:
        """The bytes of a transfer in the exchange's memory."""
        start, size = self._starts[trace, transfer]
        start += slot * self._slot_bytes
        return memory[start : start + size]


class MemoryExchange:
    """An exchange over an array; `notify` carries the word that a region is filled."""

    def __init__(
        self, model: Model, memory: Array, notify: Callable[[int, Transfer], None]
    ) -> None:
        self._regions = Regions(model)
        self._memory = memory
        self._notify = notify

    def region(self, trace: int, slot: int, transfer: TransferId) -> Array:
        """The bytes of a transfer, packed."""
        return self._regions.region(self._memory, trace, slot, transfer)

    def post(self, request: int, transfer: Transfer) -> None:
        """Tell the target that the region is filled."""
        self._notify(request, transfer)


def open_exchange(model: Model, memory: Array, notify: Callable[[int, Transfer], None]) -> Exchange:
    """The exchange of a model, over memory of `Regions.bytes`: the one place that makes one."""
    return MemoryExchange(model, memory, notify)
