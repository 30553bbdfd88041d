"""Carries the bytes of transfers between the devices of the CPU backend.

In: a model. Out: an `Exchange`, and `HostSide`, the host's side of a request: inputs and outputs
pass through the exchange as ordinary transfers. Devices, the host, and a run in one thread all use
`MemoryExchange`, which is one flat array that processes share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Protocol

import numpy as np

from tessera.backend.processes.messages import Pieces
from tessera.backend.ptx_executor.memory.memory import Array
from tessera.backend.service import Bytes, Model, Request
from tessera.ir.plan.launch_program import (
    HOST,
    POISON,
    Landing,
    LandingId,
    LoweredReplica,
    LoweredTrace,
    Put,
    Transfer,
    TransferId,
)
from tessera.ir.program import program as ir

_ALIGNMENT = 64
_LANDING = -1  # stands for the trace in the key of a landing

Notify = Callable[[int, Transfer | Landing], None]
"""Tells the target of a transfer that it has arrived, or the source of a landing that it is
free."""


ViewOf = Callable[[ir.BufferId], tuple[Array, int]]
"""Bytes of a buffer, and the number of the first of them."""


def pack(transfer: Transfer, view_of: ViewOf, region: Array) -> None:
    """Copy the bytes of a transfer from its buffers, one range after the other."""
    for own, packed in _both(transfer, view_of, region):
        packed[:] = own


def unpack(transfer: Transfer, region: Array, view_of: ViewOf) -> None:
    """The inverse of `pack`."""
    for own, packed in _both(transfer, view_of, region):
        own[:] = packed


def _both(transfer: Transfer, view_of: ViewOf, region: Array) -> Iterator[tuple[Array, Array]]:
    """The ranges of a transfer in its buffers, and where they are when packed."""
    at = 0
    for portion in transfer.portions:
        view, first = view_of(portion.buffer)
        for start, end in portion.bytes:
            yield view[start - first : end - first], region[at : at + end - start]
            at += end - start


class Exchange(Protocol):
    """Holds the bytes of transfers between send and receive: a region per slot and transfer."""

    def region(self, trace: int, slot: int, transfer: TransferId) -> Array:
        """The bytes of a transfer, packed."""

    def landing(self, slot: int, landing: LandingId) -> Array:
        """The bytes of a landing."""

    def post(self, request: int, slot: int, transfer: Transfer, landing: LandingId | None) -> None:
        """Bring the bytes of the region or landing to the target, and notify it."""

    def credit(self, request: int, landing: Landing) -> None:
        """Tell the source of a landing that it is free."""


SHARED = ""
"""The window of an exchange in memory that all devices share."""


class Windows:
    """Offsets of transfers in windows: a window per device for its incoming bytes, or a shared one.

    A window has a part per slot, with the landings and a region for every other transfer. Regions
    are used once in a request, so they need no credits.
    """

    def __init__(self, lowered: LoweredReplica, *, is_shared: bool = False) -> None:
        self.slots = lowered.slots
        self._is_shared = is_shared
        self._starts: dict[tuple[int, int], int] = {}
        first = dict.fromkeys((SHARED,) if is_shared else lowered.devices, 0)
        for landing in lowered.landings:
            self._set_aside(first, (_LANDING, landing.id), landing.target, landing.bytes)
        self._slot_bytes = first
        for trace in lowered.traces:
            put = {
                queued.operation.transfer
                for program in trace.programs
                for queued in program.operations
                if isinstance(queued.operation, Put)
            }
            at = dict(first)
            for transfer in trace.transfers:
                if transfer.id not in put:
                    key = trace.trace, transfer.id
                    self._set_aside(at, key, transfer.target, transfer.size)
            self._slot_bytes = {w: max(size, at[w]) for w, size in self._slot_bytes.items()}

    def _set_aside(self, at: dict[str, int], key: tuple[int, int], target: str, size: int) -> None:
        """Reserve room in a window; transfers to the host have none in the windows of devices."""
        window = SHARED if self._is_shared else target
        if window in at:
            self._starts[key] = at[window]
            at[window] += aligned(size)

    def bytes(self, window: str) -> int:
        """Bytes of a window."""
        return max(1, self._slot_bytes[window] * self.slots)

    def region(self, window: str, trace: int, slot: int, transfer: TransferId) -> int:
        """The offset of a transfer's bytes in a window."""
        return slot * self._slot_bytes[window] + self._starts[trace, transfer]

    def landing(self, window: str, slot: int, landing: LandingId) -> int:
        """The offset of a landing in a window."""
        return self.region(window, _LANDING, slot, TransferId(landing))


def aligned(size: int) -> int:
    """The size, rounded up to the alignment."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def exchange_bytes(model: Model) -> int:
    """Bytes of a `MemoryExchange`."""
    return Windows(model.lowered, is_shared=True).bytes(SHARED)


class MemoryExchange:
    """An exchange over an array; `notify` tells devices about arrivals and free landings."""

    def __init__(self, model: Model, memory: Array, notify: Notify) -> None:
        self._windows = Windows(model.lowered, is_shared=True)
        self._memory = memory
        self._notify = notify
        self._landings = {landing.id: landing.bytes for landing in model.lowered.landings}
        self._sizes = {
            (trace.trace, transfer.id): transfer.size
            for trace in model.lowered.traces
            for transfer in trace.transfers
        }

    def region(self, trace: int, slot: int, transfer: TransferId) -> Array:
        """The bytes of a transfer, packed."""
        start = self._windows.region(SHARED, trace, slot, transfer)
        return self._memory[start : start + self._sizes[trace, transfer]]

    def landing(self, slot: int, landing: LandingId) -> Array:
        """The bytes of a landing."""
        start = self._windows.landing(SHARED, slot, landing)
        return self._memory[start : start + self._landings[landing]]

    def post(self, request: int, slot: int, transfer: Transfer, landing: LandingId | None) -> None:
        """Tell the target that the bytes have arrived: it uses the same memory."""
        self._notify(request, transfer)

    def credit(self, request: int, landing: Landing) -> None:
        """Tell the source of a landing that it is free."""
        self._notify(request, landing)


class HostSide:
    """The host's part of every request: inputs, outputs and states."""

    def __init__(self, model: Model, exchange: Exchange) -> None:
        self._model = model
        self._exchange = exchange
        self._lowered: dict[int, LoweredTrace] = {t.trace: t for t in model.lowered.traces}

    def put_inputs(self, request: Request) -> None:
        """Put the inputs of a request into the exchange before it begins."""
        for transfer in self._lowered[request.trace].transfers:
            if transfer.source == HOST:
                region = self._exchange.region(request.trace, request.slot, transfer.id)
                pack(transfer, partial(self._content, request), region)

    def _content(self, request: Request, number: ir.BufferId) -> tuple[Bytes, int]:
        buffer = self._model.traces[request.trace].program.buffers[number]
        if buffer.role is ir.Role.INPUT:
            return request.inputs[buffer.name], 0
        return self._initial(request.trace, buffer), 0

    def _initial(self, trace: int, buffer: ir.Buffer) -> Bytes:
        given = self._model.fillings[trace].get(buffer.name)
        return np.full(buffer.bytes, POISON, np.uint8) if given is None else given.copy()

    def take_outputs(self, trace: int, slot: int) -> dict[str, Bytes]:
        """The outputs of a request that is done on every device; address words are zero."""
        buffers = self._model.traces[trace].program.buffers
        outputs = {b.id: self._initial(trace, b) for b in buffers if b.role is ir.Role.OUTPUT}
        for transfer in self._lowered[trace].transfers:
            if transfer.target == HOST:
                region = self._exchange.region(trace, slot, transfer.id)
                unpack(transfer, region, lambda buffer: (outputs[buffer], 0))
        for table in self._model.traces[trace].program.pointer_tables:
            for word in table.words if table.buffer in outputs else ():
                outputs[table.buffer][word.offset : word.offset + ir.POINTER_BYTES] = 0
        return {buffers[number].name: content for number, content in outputs.items()}

    def join_states(self, lane: int, devices: Iterable[Pieces]) -> dict[str, Bytes]:
        """A lane's states: the initial bytes, overwritten by those current on devices."""
        first = self._model.states[lane]
        states = {name: np.array(given, np.uint8) for name, given in first.items()}
        for served in self._model.traces:
            for table in served.program.pointer_tables:
                content = states.get(served.program.buffers[table.buffer].name)
                for word in table.words if content is not None else ():
                    assert content is not None
                    content[word.offset : word.offset + ir.POINTER_BYTES] = 0
        for states_there in devices:
            for name, pieces in states_there.items():
                for start, piece in pieces:
                    states[name][start : start + len(piece)] = piece
        return states
