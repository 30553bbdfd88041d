"""Pinned host memory: inputs and outputs of requests under way, initial contents, staging.

Copies between the host and a GPU run beside other work only if the host memory is pinned. All
pinned memory is allocated while a backend starts. Bytes of an output that no transfer writes are
set at that time and stay unchanged.
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
    """Pinned memory, by purpose."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._blocks: list[int] = []

    def allocate(self, size: int) -> tuple[int, Bytes]:
        """The address and the view of new pinned memory."""
        try:
            address = self._driver.allocate_host(max(size, 1))
        except DriverError as problem:
            raise start_failed(problem, f"{size} bytes of pinned host memory") from None
        self._blocks.append(address)
        return address, host_view(address, max(size, 1))[:size]

    def copy_of(self, content: Bytes) -> int:
        """The address of pinned memory that holds these bytes."""
        address, view = self.allocate(content.nbytes)
        view[:] = content
        return address

    def close(self) -> None:
        """Free all pinned memory."""
        for address in self._blocks:
            self._driver.free_host(address)
        self._blocks.clear()


# Smaller copies are cheaper in fresh memory, since they need no new pages.
_LEAST_KEPT = 1 << 16


# Number of results of one size that are recycled; further results get fresh memory.
_MOST_KEPT = 64


def _unused(kept: Iterable[Bytes], references: int) -> Bytes | None:
    """The first array with this reference count: only its keeper and this loop hold it."""
    for memory in kept:
        if sys.getrefcount(memory) == references:
            return memory
    return None


# The reference count of an unused array depends on the interpreter.
_REFERENCES = next(n for n in range(1, 9) if _unused([np.empty(1, np.uint8)], n) is not None)


class Recycled:
    """Memory for results, reused once no result in it is alive.

    The operating system provides the pages of fresh memory one by one on first write, which takes
    longer than the copy itself. A result is a view of its memory and refers to it; so does every
    view of the result.
    """

    def __init__(self) -> None:
        self._kept: dict[int, deque[Bytes]] = {}

    def copy_of(self, content: Bytes) -> Bytes:
        """A copy in memory that no other live result uses."""
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


def _inputs_read(trace: LoweredTrace) -> set[BufferId]:
    """The buffers of which a device reads bytes from the host."""
    return {p.buffer for t in trace.transfers if t.source == HOST for p in t.portions}


def staged_bytes(program: Program, trace: LoweredTrace) -> int:
    """Bytes of one request on the host: inputs that a device reads, and outputs."""
    wanted = _inputs_read(trace)
    return sum(b.bytes for b in program.buffers if b.id in wanted or b.role is Role.OUTPUT)


class SlotBuffers:
    """The host's inputs and outputs of a trace, for one request at a time.

    `words` hold the addresses of inputs that lie in GPU memory; the GPUs read them.
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
        wanted = _inputs_read(trace)
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
                # Address words are never sent to the host: they read as zero.
                for table in program.pointer_tables:
                    for word in table.words if table.buffer == buffer.id else ():
                        view[word.offset : word.offset + POINTER_BYTES] = 0
                self.outputs[buffer.name] = view

    def put(
        self, inputs: Mapping[str, Bytes], in_place: Mapping[str, DeviceBytes] | None = None
    ) -> None:
        """Store the inputs of a request, or their addresses, as far as a transfer reads them."""
        for name, view in self.inputs.items():
            if in_place and name in in_place:
                self._words[self._numbers[name]] = in_place[name].address
            else:
                view[:] = inputs[name]

    def take(self) -> dict[str, Bytes]:
        """Copies of the outputs."""
        return {name: self._recycled.copy_of(view) for name, view in self.outputs.items()}
