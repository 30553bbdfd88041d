"""Transfers between devices in processes of their own on one host, through CUDA IPC memory.

In: launch programs on one host, a device, a driver. Out: the window of the device, the handles that
processes exchange, and the places of transfers.

A window is device memory with a region and a word for every transfer to the device, per slot. The
source copies into the region and then writes the number of the request into the word; the target's
stream waits until the word has come to that number, and copies the bytes. Both are stream
operations (`cuStreamWriteValue32`, with the memory barrier before it; `cuStreamWaitValue32`, which
compares in a circle of 32 bits), so no host call is needed between the source and the target. A
region is used once in a request and a slot holds one request at a time, so a region is free when
its next transfer comes.

The number counts the requests of a trace in a slot, so each word takes every number once and in
order, and is never reset: a late write of an earlier request satisfies no later wait. Every process
counts by itself, since the host sends every request that begins to all, and no other. After a
fault, windows and counts are new.

Transfers to other hosts are in `far_ways`.

The CUDA driver does not know of these waits. Every process therefore hands its work over in the
same order: even if all streams of a process were one queue, the first unfinished operation could
proceed. `passes.checker.circles` proves it before a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from tessera.backend.cuda.api import Driver, DriverError, Handle
from tessera.backend.cuda.far_ways import WORD_MASK, FarWays
from tessera.backend.cuda.issue_order import Action, Hold, Mark, Move, issue_order
from tessera.ir.plan.launch_program import (
    HOST,
    PLACE_ALIGNMENT,
    LoweredReplica,
    LoweredTrace,
    Queue,
    Transfer,
)
from tessera.ir.plan.stream_operation import StreamOperation

_WORD_BYTES = 4
_BLOCK = 2 << 20
"""Bytes of an allocator block; CUDA IPC shares whole blocks, so a window fills its own blocks."""
_Key = tuple[int, int, int]


def part_of_device(lowered: LoweredReplica, device: str) -> LoweredReplica:
    """The part of launch programs for one device; homes stay, to know which bytes are elsewhere."""
    return replace(
        lowered,
        devices=(device,),
        areas=tuple(area for area in lowered.areas if area.device == device),
        places=tuple(place for place in lowered.places if place.device == device),
        traces=tuple(
            replace(
                trace,
                programs=tuple(p for p in trace.programs if p.device == device),
                transfers=tuple(t for t in trace.transfers if device in (t.source, t.target)),
            )
            for trace in lowered.traces
        ),
    )


def order_of(trace: LoweredTrace, ways: ProcessWays | None) -> tuple[Action, ...]:
    """The order in which the work of a request is handed over."""
    return issue_order(trace) if ways is None else ways.order(trace.trace)


class ProcessWays:
    """The window of a device, and those of the devices that it sends to."""

    def __init__(
        self, driver: Driver, lowered: LoweredReplica, device: str, hosts: Mapping[str, str]
    ) -> None:
        """`hosts` has the host of each device; it is empty if all are on one host."""
        self.device = device
        self.far: FarWays | None = None
        self._hosts = hosts
        self._driver = driver
        self._lowered = lowered
        self._regions: dict[tuple[str, _Key], int] = {}
        self._words: dict[tuple[str, _Key], int] = {}
        sizes = {name: self._lay_out(name) for name in lowered.devices}
        self._bytes = sizes[device]
        self._bases: dict[str, int] = {}
        self._context: Handle | None = None
        self._numbers: dict[tuple[int, int], list[int]] = {}
        self._orders: dict[int, tuple[Action, ...]] = {}

    def _lay_out(self, device: str) -> int:
        """Lay out the window of a device, the same in all processes; returns its bytes."""
        keys = [
            ((slot, trace.trace, int(transfer.id)), transfer.size)
            for slot in range(self._lowered.slots)
            for trace in self._lowered.traces
            for transfer in trace.transfers
            if transfer.target == device and transfer.source != HOST
            if self._hosts.get(transfer.source) == self._hosts.get(device)
        ]
        at = 0
        for number, (key, _) in enumerate(keys):
            self._words[device, key] = number * _WORD_BYTES
            at = (number + 1) * _WORD_BYTES
        for key, size in keys:
            at = -(-at // PLACE_ALIGNMENT) * PLACE_ALIGNMENT
            self._regions[device, key] = at
            at += size
        return -(-at // _BLOCK) * _BLOCK

    def open(self, ordinal: int) -> bytes:
        """Allocate the window on a GPU; returns its handle, empty if there is no window."""
        self._context = self._driver.retain(ordinal)
        self._ordinal = ordinal
        self._driver.use(self._context)
        self.far = FarWays(self._driver, self._lowered, self.device, self._hosts)
        if not self._bytes:
            return b""
        self._bases[self.device] = base = self._driver.allocate(self._bytes)
        self._driver.fill(base, 0, self._bytes)
        self._driver.finish()
        return self._driver.memory_handle(base)

    def connect(self, handles: Mapping[str, bytes]) -> None:
        """Open the windows of other devices."""
        assert self._context is not None
        self._driver.use(self._context)
        for device, handle in handles.items():
            if handle:
                self._bases[device] = self._driver.open_memory(handle)

    def order(self, trace: int) -> tuple[Action, ...]:
        """The actions of this device, in the order that all devices share."""
        return tuple(
            action
            for action in self._whole(trace)
            if (
                self.device in (action.transfer.source, action.transfer.target)
                if isinstance(action, Move)
                else action.device == self.device
            )
        )

    def _whole(self, trace: int) -> tuple[Action, ...]:
        if trace not in self._orders:
            lowered = next(t for t in self._lowered.traces if t.trace == trace)
            self._orders[trace] = issue_order(lowered)
        return self._orders[trace]

    def stream_operations(self, trace: int) -> dict[str, list[StreamOperation]]:
        """By device, what its process hands over for a request, in order: waits, and their ends."""
        lines: dict[str, list[StreamOperation]] = {device: [] for device in self._lowered.devices}
        for action in self._whole(trace):
            match action:
                case Mark(device, queue, event):
                    lines[device].append(
                        StreamOperation(queue.value, sets=f"event {event} of {device}")
                    )
                case Hold(device, queue, event):
                    waits = f"event {event} of {device}"
                    lines[device].append(StreamOperation(queue.value, waits=waits))
                case Move(transfer) if HOST not in (transfer.source, transfer.target):
                    name = f"transfer {transfer.id}"
                    lines[transfer.source].append(StreamOperation(Queue.OUT.value, sets=name))
                    lines[transfer.target].append(StreamOperation(Queue.IN.value, waits=name))
        return lines

    def begin(self, trace: int, slot: int) -> None:
        """Count a request that is about to be handed over."""
        number = self.number(trace, slot)
        number[0] = (number[0] + 1) & WORD_MASK

    def number(self, trace: int, slot: int) -> list[int]:
        """The number of the last request of a trace in a slot; the only element changes."""
        return self._numbers.setdefault((trace, slot), [0])

    def has_words(self, trace: int) -> bool:
        """Whether this device exchanges bytes with other processes in a trace."""
        return any(
            isinstance(action, Move)
            and HOST not in (action.transfer.source, action.transfer.target)
            for action in self.order(trace)
        )

    def place(self, trace: int, slot: int, transfer: Transfer) -> tuple[int, int]:
        """The address of a transfer's bytes in a window, and of the word that signals them."""
        if self.far is not None and self.far.is_far(transfer):
            return self.far.place(trace, slot, transfer)
        key = transfer.target, (slot, trace, int(transfer.id))
        base = self._bases[transfer.target]
        return base + self._regions[key], base + self._words[key]

    def close(self) -> None:
        """Close the windows of other devices; no work may be under way."""
        own = self._bases.pop(self.device, None)
        with suppress(DriverError):
            self._driver.use(self._context)
            if self.far is not None:
                self.far.close()
            for base in self._bases.values():
                self._driver.close_memory(base)
        self._bases = {} if own is None else {self.device: own}

    def free(self) -> None:
        """Free the window; no other process may have it open."""
        with suppress(DriverError):
            self._driver.use(self._context)
            for base in self._bases.values():
                self._driver.free(base)
        self._bases.clear()

    def leave(self) -> None:
        """Release the context; a newer user of the same GPU keeps it alive."""
        with suppress(DriverError):
            self._driver.release(self._ordinal)
