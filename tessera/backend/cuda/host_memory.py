"""Pinned host memory: the inputs and outputs of every slot, contents to fill with, staging.

Copies between the host and a GPU only run beside everything else if the host's memory is pinned.
All of it is allocated while a backend starts. What an output holds where no transfer writes it is
set then, and stays.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping

import numpy as np

from tessera.backend.cuda.api import Bytes, Driver, DriverError, host_view
from tessera.backend.cuda.faults import start_failed
from tessera.backend.service import Model
from tessera.ir.launch_program import HOST, POISON, LoweredTrace
from tessera.ir.program import POINTER_BYTES, BufferId, Role


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


class Recycled:
    """Memory for results, used again once nobody has a result in it.

    The pages of fresh memory are given by the system one by one when they are first written,
    which takes longer than the copy. Every result, and every view of it, keeps its memory.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[Bytes]] = {}

    def copy_of(self, content: Bytes) -> Bytes:
        """A copy in memory of its own."""
        size = content.nbytes
        if not size:
            return content.copy()
        kept = self._free.setdefault(size, [])
        memory = kept.pop() if kept else np.empty(size, np.uint8)
        # Views of an array refer to the object below it that is no array: this one.
        holder = (ctypes.c_uint8 * size).from_buffer(memory.data)
        result = np.frombuffer(memoryview(holder).cast("B"), np.uint8)
        weakref.finalize(holder, kept.append, memory).atexit = False
        result[:] = content
        return result


class SlotBuffers:
    """The inputs and outputs of one trace in one slot, on the host."""

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
        for buffer in program.buffers:
            if buffer.id in wanted:
                self.addresses[buffer.id], self.inputs[buffer.name] = host.allocate(buffer.bytes)
            elif buffer.role is Role.OUTPUT:
                self.addresses[buffer.id], view = host.allocate(buffer.bytes)
                view[:] = fillings.get(buffer.name, POISON)
                # Words that are addresses never come to the host: they read as zero.
                for table in program.pointer_tables:
                    for word in table.words if table.buffer == buffer.id else ():
                        view[word.offset : word.offset + POINTER_BYTES] = 0
                self.outputs[buffer.name] = view

    def put(self, inputs: Mapping[str, Bytes]) -> None:
        """Take the inputs of a request; bytes no transfer wants are left."""
        for name, view in self.inputs.items():
            view[:] = inputs[name]

    def take(self) -> dict[str, Bytes]:
        """Copies of the outputs."""
        return {name: self._recycled.copy_of(view) for name, view in self.outputs.items()}
