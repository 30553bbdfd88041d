"""Pinned host memory: the inputs and outputs of requests under way, contents to fill with, staging.

Copies between the host and a GPU only run beside everything else if the host's memory is pinned.
All of it is allocated while a backend starts. What an output holds where no transfer writes it is
set then, and stays.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Mapping

import numpy as np

from tessera.backend.cuda.api import Bytes, Driver, DriverError, host_view
from tessera.backend.cuda.faults import start_failed
from tessera.backend.service import DeviceBytes, Model
from tessera.ir.plan.launch_program import HOST, POISON, LoweredTrace
from tessera.ir.program.program import POINTER_BYTES, BufferId, Program, Role


class HostMemory:
    """Pinned memory by what it is for."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._blocks: list[int] = []

    def allocate(self, size: int) -> tuple[int, Bytes]:
        """Address and view of fresh pinned memory."""
        try:
            address = self._driver.allocate_host(max(size, 1))
        except DriverError as problem:
            raise start_failed(problem, f"{size} bytes of pinned host memory") from None
        self._blocks.append(address)
        return address, host_view(address, max(size, 1))[:size]

    def copy_of(self, content: Bytes) -> int:
        """The address of pinned memory with these bytes."""
        address, view = self.allocate(content.nbytes)
        view[:] = content
        return address

    def close(self) -> None:
        """Free all."""
        for address in self._blocks:
            self._driver.free_host(address)
        self._blocks.clear()


# Smaller copies are cheaper in fresh memory, which then needs no new pages.
_LEAST_KEPT = 1 << 16


# How many results of one size are recycled; further results of that size get fresh memory.
_MOST_KEPT = 64


def _unused(kept: Iterable[Bytes], references: int) -> Bytes | None:
    """The first memory with this reference count: held by its keeper and this loop alone."""
    for memory in kept:
        if sys.getrefcount(memory) == references:
            return memory
    return None


# That reference count depends on the interpreter.
_REFERENCES = next(n for n in range(1, 9) if _unused([np.empty(1, np.uint8)], n) is not None)


class Recycled:
    """Memory for results, used again once no result in it is alive.

    The system gives the pages of fresh memory one by one on first write, which takes longer than
    the copy. A result is a view of its memory, and refers to it; so does every view of the result.
    """

    def __init__(self) -> None:
        self._kept: dict[int, deque[Bytes]] = {}

    def copy_of(self, content: Bytes) -> Bytes:
        """A copy in memory of its own."""
        size = content.nbytes
        if size < _LEAST_KEPT:
            return content.copy()
        kept = self._kept.get(size)
        if kept is None:
            kept = self._kept[size] = deque(maxlen=_MOST_KEPT)
        memory = _unused(kept, _REFERENCES)
        if memory is None:
            memory = np.empty(size, np.uint8)
            kept.append(memory)
        memory[:] = content
        return memory[:]


def staged_bytes(program: Program, trace: LoweredTrace) -> int:
    """Bytes of a request on the host: inputs that a device reads, and outputs."""
    wanted = {t.buffer for t in trace.transfers if t.source == HOST}
    return sum(b.bytes for b in program.buffers if b.id in wanted or b.role is Role.OUTPUT)


class SlotBuffers:
    """The inputs and outputs on the host of one request at a time of a trace.

    `words` are where the GPUs find the addresses of inputs that lie in the memory of a GPU.
    """

    def __init__(
        self, host: HostMemory, recycled: Recycled, model: Model, trace: LoweredTrace
    ) -> None:
        self._recycled = recycled
        program = model.traces[trace.trace].program
        fillings = model.fillings[trace.trace]
        self.addresses: dict[BufferId, int] = {}
        self.inputs: dict[str, Bytes] = {}
        self.outputs: dict[str, Bytes] = {}
        wanted = {t.buffer for t in trace.transfers if t.source == HOST}
        first, words = host.allocate(8 * len(program.buffers) if wanted else 0)
        self.words = {buffer: first + 8 * int(buffer) for buffer in wanted}
        self._words = words.view(np.uint64)
        self._numbers: dict[str, int] = {}
        for buffer in program.buffers:
            if buffer.id in wanted:
                self.addresses[buffer.id], self.inputs[buffer.name] = host.allocate(buffer.bytes)
                self._numbers[buffer.name] = int(buffer.id)
            elif buffer.role is Role.OUTPUT:
                self.addresses[buffer.id], view = host.allocate(buffer.bytes)
                view[:] = fillings.get(buffer.name, POISON)
                # Words that are addresses never come to the host: they read as zero.
                for table in program.pointer_tables:
                    for word in table.words if table.buffer == buffer.id else ():
                        view[word.offset : word.offset + POINTER_BYTES] = 0
                self.outputs[buffer.name] = view

    def put(
        self, inputs: Mapping[str, Bytes], in_place: Mapping[str, DeviceBytes] | None = None
    ) -> None:
        """Take the inputs of a request or their addresses, as far as a transfer reads them."""
        for name, view in self.inputs.items():
            if in_place and name in in_place:
                self._words[self._numbers[name]] = in_place[name].address
            else:
                view[:] = inputs[name]

    def take(self) -> dict[str, Bytes]:
        """Copies of the outputs."""
        return {name: self._recycled.copy_of(view) for name, view in self.outputs.items()}
