"""Loads contents into device memory: copied by several threads, or generated there from a seed.

In: addresses and their contents. Out: nothing; `finish` returns when all contents have arrived.
Large contents go through pinned memory: threads copy pieces into it (directly from the pages of a
mapped file) while the GPU reads other pieces. A kernel of `helpers.ptx` generates seeded floats,
with the same bytes as on the host.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Mapping

import numpy as np

from tessera.backend.cuda.api import Bytes, Driver, Handle, host_view
from tessera.backend.cuda.call_structures import LaunchParameters
from tessera.backend.cuda.helpers import Helpers
from tessera.backend.cuda.queued_work import pack_words
from tessera.backend.cuda.targets import OpenDevice
from tessera.ir.program.data_type import DataType
from tessera.ir.program.seeded import WORD_BYTES, Seeded, Source

PIECE_BYTES = 16 << 20
# Smaller contents are not worth threads, pinned memory or a kernel.
LEAST_STAGED_BYTES = 64 << 20
LEAST_SEEDED_BYTES = 1 << 18
_MOST_THREADS = 6
_BLOCKS, _THREADS = 528, 256
# The kind of a type for `seed_values`, and the number of generated values per element.
_KINDS = {
    DataType.F32: (0, 1),
    DataType.C64: (0, 2),
    DataType.F64: (1, 1),
    DataType.C128: (1, 2),
    DataType.BF16: (2, 1),
    DataType.F16: (3, 1),
    DataType.E5M2: (4, 1),
    DataType.E4M3: (5, 1),
}
_LOW = (1 << 64) - 1


class Loader:
    """Loads contents into the memory of a replica's devices."""

    def __init__(self, helpers: Helpers) -> None:
        self._driver = helpers.driver
        self._devices = helpers.devices
        self._helpers = helpers
        self._pieces: deque[tuple[str, int, Bytes]] = deque()
        self._used: set[str] = set()
        self._kept: list[LaunchParameters] = []

    def put(self, device: str, address: int, source: Source, start: int, end: int) -> None:
        """Load bytes `start` to `end` of some contents to `address + start`."""
        if isinstance(source, Seeded):
            if source.is_zero:
                self._use(device)
                self._driver.fill(address + start, 0, end - start)
                return
            is_even = start % WORD_BYTES == 0 and end in (end & -WORD_BYTES, source.buffer.bytes)
            if is_even and end - start >= LEAST_SEEDED_BYTES:
                self._seed(device, address, source, start, end)
                return
            source = source.read()
        content = np.ascontiguousarray(source).reshape(-1).view(np.uint8)[start:end]
        for at in range(0, content.nbytes, PIECE_BYTES):
            self._pieces.append((device, address + start + at, content[at : at + PIECE_BYTES]))

    def finish(self) -> None:
        """Copy all pending pieces, and wait until all contents have arrived."""
        total = sum(content.nbytes for _, _, content in self._pieces)
        if total < LEAST_STAGED_BYTES:
            for device, address, content in self._pieces:
                self._use(device)
                self._driver.upload(address, content)
        else:
            self._copy_staged(total)
        self._pieces.clear()
        for device in self._used:
            self._use(device)
            self._driver.finish()
        self._kept.clear()

    def _use(self, device: str) -> None:
        self._used.add(device)
        self._driver.use(self._devices[device].context)

    def _seed(self, device: str, address: int, source: Seeded, start: int, end: int) -> None:
        dtype = source.buffer.dtype
        assert dtype is not None, "only floats are made from a seed"
        kind, values = _KINDS[dtype]
        count = (end - start) // dtype.bytes * values
        state, increment = source.generator(start)
        numbers = (state >> 64, state & _LOW, increment >> 64, increment & _LOW)
        packed = pack_words((address + start, count, kind, *numbers))
        self._kept.append(packed)
        self._use(device)
        function = self._helpers.function(device, "seed_values")
        sizes = (_BLOCKS, 1, 1, _THREADS, 1, 1, 0, 0)
        self._driver.call("cuLaunchKernel", function, *sizes, packed.address, 0)

    def _copy_staged(self, total: int) -> None:
        for device in {device for device, _, _ in self._pieces}:
            self._use(device)
            self._driver.settle()  # the streams of the threads do not wait for fills
        wanted = min(_MOST_THREADS, os.cpu_count() or 1, -(-total // PIECE_BYTES))
        lanes = [_StagingLane(self._driver, self._devices, self._pieces) for _ in range(wanted)]
        try:
            threads = [threading.Thread(target=lane.run, daemon=True) for lane in lanes[1:]]
            for thread in threads:
                thread.start()
            lanes[0].run()
            for thread in threads:
                thread.join()
            for lane in lanes:
                if lane.problem is not None:
                    raise lane.problem
        finally:
            self._pieces.clear()  # a thread that is still copying ends after its piece
            for lane in lanes:
                lane.close()


class _StagingLane:
    """The resources of one copying thread: two pieces of pinned memory and a stream per device."""

    def __init__(
        self,
        driver: Driver,
        devices: Mapping[str, OpenDevice],
        pieces: deque[tuple[str, int, Bytes]],
    ) -> None:
        self._driver = driver
        self._devices = devices
        self._pieces = pieces
        self._pinned: list[int] = []
        self._busy: list[Handle | None] = [None, None]
        self._streams: dict[str, Handle] = {}
        self._events: dict[tuple[str, int], Handle] = {}
        self._is_idle = threading.Event()
        self._is_idle.set()
        self.problem: Exception | None = None

    def run(self) -> None:
        """Copy pieces until none is left."""
        self._is_idle.clear()
        try:
            turn = 0
            while self._pieces:
                try:
                    device, address, content = self._pieces.popleft()
                except IndexError:
                    break  # another thread took the last piece
                self._copy(turn, device, address, content)
                turn = 1 - turn
        except Exception as problem:  # raised by the thread that joins this one
            self.problem = problem
            self._pieces.clear()
        finally:
            self._is_idle.set()

    def _copy(self, side: int, device: str, address: int, content: Bytes) -> None:
        driver = self._driver
        driver.use(self._devices[device].context)
        while len(self._pinned) <= side:
            self._pinned.append(driver.allocate_host(PIECE_BYTES))
        busy = self._busy[side]
        if busy is not None:
            driver.call("cuEventSynchronize", busy)
        host_view(self._pinned[side], content.nbytes)[:] = content
        if device not in self._streams:
            self._streams[device] = driver.stream(0)
        stream = self._streams[device]
        driver.call("cuMemcpyAsync", address, self._pinned[side], content.nbytes, stream)
        if (device, side) not in self._events:
            self._events[device, side] = driver.event()
        self._busy[side] = self._events[device, side]
        driver.record(self._events[device, side], stream)

    def close(self) -> None:
        """Wait for the copies, and release all resources."""
        self._is_idle.wait()
        for device, stream in self._streams.items():
            self._driver.use(self._devices[device].context)
            self._driver.call("cuStreamSynchronize", stream)
            self._driver.destroy_stream(stream)
        for (device, _), event in self._events.items():
            self._driver.use(self._devices[device].context)
            self._driver.destroy_event(event)
        for pinned in self._pinned:
            self._driver.free_host(pinned)
