"""A device and what its queues do: `common.py` of emitted programs. Needs cuda-python and NumPy.

A device has, per slot, three streams: compute, in and out. Every program function hands one
request to one of them, in order. What has to wait does so on the GPU, for a word in pinned memory
to reach the number of the request: `record` writes such a word, `wait` waits for it. A transfer has
two: `ready`, which the receiver writes when the bytes may come, and `arrived`, which the sender
writes when they are there.

Streams may share a hardware queue, above all those of a slice, and a driver call may wait for the
GPU. So nothing may wait for what is handed over later: the functions are generators that name
(`yield from d.wait(...)`) the word they need, and go on when what writes it has been handed over.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

__all__ = [
    "MISSING",
    "POISON",
    "Device",
    "Request",
    "bits",
    "by_value",
    "check",
    "cuda",
    "np",
    "pinned",
    "u32",
    "u64",
]

MISSING = ""
try:
    import numpy as np
    from cuda.bindings import driver as cuda
except ModuleNotFoundError as problem:  # `--help` needs neither
    np = cuda = None  # type: ignore[assignment]
    MISSING = f"this program needs the packages `cuda-python` and `numpy`: {problem}"

HERE = Path(__file__).parent
POISON = 0xCB
NOT_READY = 600
LIMIT_S = 60.0
NOWHERE = 0x1CB << 44  # for pointers to buffers that a device does not have


def check(result: Any) -> Any:
    """The results of a driver call, or an error."""
    status, *rest = result
    if int(status):
        raise RuntimeError(f"CUDA: {getattr(status, 'name', status)}")
    return rest[0] if len(rest) == 1 else rest


def pinned(size: int) -> tuple[int, Any]:
    """Address and array of pinned host memory."""
    address = int(check(cuda.cuMemHostAlloc(max(size, 1), 3)))
    return address, np.ctypeslib.as_array((ctypes.c_uint8 * max(size, 1)).from_address(address))


def u32(value: int) -> bytes:
    """A 32-bit argument."""
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    """A 64-bit argument."""
    return struct.pack("<Q", value)


def bits(size: int, value: int) -> bytes:
    """An argument of any type, by its bits."""
    return value.to_bytes(size, "little")


def by_value(content: str, pointers: dict[int, bytes]) -> bytes:
    """A struct, with addresses put in."""
    data = bytearray(bytes.fromhex(content))
    for offset, address in pointers.items():
        data[offset : offset + 8] = address
    return bytes(data)


class Request:
    """One request: where it runs, and its inputs and outputs in pinned memory.

    A `Request` of the backends (`backend.service`), in a program that stands alone.
    """

    def __init__(
        self,
        number: int,
        trace: int,
        slot: int,
        lane: int,
        host: dict[str, Any],
        begin: dict[str, Any],
    ) -> None:
        self.number, self.trace, self.slot, self.lane = number, trace, slot, lane
        self.host = host  # buffer name: (address, array)
        self.begin = begin  # the same for outputs and temps that begin with something


class Device:
    """A GPU or a slice of one, with the memory, modules and streams of the plan.

    A `Device` of the machine (`ir.plan.machine`), in a program that stands alone.
    """

    all: ClassVar[dict[str, Device]] = {}
    handed_over: ClassVar[dict[int, int]] = {}  # what words will be, by address

    def __init__(
        self,
        name: str,
        areas: dict[str, tuple[int, int]],
        places: dict[int, dict[str, tuple[str, int]]],
        modules: dict[str, str],
        events: int,
        slots: int,
    ) -> None:
        self.name, self.areas, self.places, self.modules = name, areas, places, modules
        self.events, self.slots = events, slots
        Device.all[name] = self

    # --- starting ----------------------------------------------------------------------------

    def open(self, context: Any, green: Any, transfers: int) -> None:
        """Load modules, allocate memory, make streams."""
        self.context, self.green = context, green
        check(cuda.cuCtxSetCurrent(context))
        self.loaded = {
            name: check(cuda.cuModuleLoadData((HERE / file).read_bytes() + b"\0"))
            for name, file in self.modules.items()
        }
        self.functions: dict[tuple[str, str], tuple[Any, int]] = {}
        self.bases = {}
        for kind, (size, count) in self.areas.items():
            self.bases[kind] = int(check(cuda.cuMemAlloc(max(size * count, 1))))
            check(cuda.cuMemsetD8(self.bases[kind], POISON, max(size * count, 1)))
        lowest, highest = check(cuda.cuCtxGetStreamPriorityRange())
        self.streams = {
            (slot, queue): self._stream(lowest if queue == "compute" else highest)
            for slot in range(self.slots)
            for queue in ("compute", "in", "out")
        }
        self.flags, view = pinned(4 * self.slots * max(self.events, 1))
        view[:] = 0
        self.marks, view = pinned(8 * self.slots * max(transfers, 1))
        view[:] = 0
        self.transfers = max(transfers, 1)

    def _stream(self, priority: int) -> Any:
        if self.green is None:
            return check(cuda.cuStreamCreateWithPriority(1, priority))
        return check(cuda.cuGreenCtxStreamCreate(self.green, 1, priority))

    # --- places --------------------------------------------------------------------------------

    def address(self, trace: int, slot: int, lane: int, name: str) -> int:
        """Where a buffer is."""
        place = self.places[trace].get(name)
        if place is None:
            return NOWHERE
        kind, offset = place
        if kind == "module":
            module, _, symbol = name.rpartition(".")
            loaded = self.loaded[f"{trace}:{module}"]
            return int(check(cuda.cuModuleGetGlobal(loaded, symbol.encode()))[0])
        copy = {"weights": 0, "lane": lane, "slot": slot}[kind]
        return self.bases[kind] + copy * self.areas[kind][0] + offset

    def at(self, r: Request, name: str, offset: int = 0) -> bytes:
        """An address as an argument."""
        return u64(self.address(r.trace, r.slot, r.lane, name) + offset)

    def write(self, address: int, content: Any) -> None:
        """Fill device memory from the host, before the first request."""
        check(cuda.cuCtxSetCurrent(self.context))
        data = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
        if data.nbytes:
            check(cuda.cuMemcpyHtoD(address, data.ctypes.data, data.nbytes))

    def settle(self) -> None:
        """Wait for what was written: the streams of the queues do not wait for it themselves."""
        check(cuda.cuCtxSetCurrent(self.context))
        check(cuda.cuStreamSynchronize(0))

    def read(self, address: int, size: int) -> Any:
        """Device memory, after the last request."""
        check(cuda.cuCtxSetCurrent(self.context))
        data = np.empty(size, np.uint8)
        if size:
            check(cuda.cuMemcpyDtoH(data.ctypes.data, address, size))
        return data

    # --- what a queue does ---------------------------------------------------------------------

    def launch(
        self,
        r: Request,
        module: str,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared: int,
        args: list[bytes],
        cluster: tuple[int, int, int] | None = None,
        cooperative: bool = False,
    ) -> None:
        """A kernel on the compute queue."""
        check(cuda.cuCtxSetCurrent(self.context))
        function = self._function(f"{r.trace}:{module}", kernel, shared)
        values = [np.frombuffer(arg or b"\0", np.uint8).copy() for arg in args]
        pointers = np.array([value.ctypes.data for value in values], np.uint64)
        at = int(pointers.ctypes.data) if args else 0
        stream = self.streams[r.slot, "compute"]
        if cluster is None and not cooperative:
            check(cuda.cuLaunchKernel(function, *grid, *block, shared, stream, at, 0))
            return
        config = cuda.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = block
        config.sharedMemBytes, config.hStream = shared, stream
        attributes = []
        if cluster is not None:
            attribute = cuda.CUlaunchAttribute()
            attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            (
                attribute.value.clusterDim.x,
                attribute.value.clusterDim.y,
                attribute.value.clusterDim.z,
            ) = cluster
            attributes.append(attribute)
        if cooperative:
            attribute = cuda.CUlaunchAttribute()
            attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            attribute.value.cooperative = 1
            attributes.append(attribute)
        config.attrs, config.numAttrs = attributes, len(attributes)
        check(cuda.cuLaunchKernelEx(config, function, at, 0))

    def _function(self, module: str, kernel: str, shared: int) -> Any:
        """A kernel, allowed that much dynamic shared memory."""
        key = module, kernel
        if key not in self.functions:
            function = check(cuda.cuModuleGetFunction(self.loaded[module], kernel.encode()))
            self.functions[key] = function, 0
        function, allowed = self.functions[key]
        if shared > allowed:
            names = cuda.CUfunction_attribute
            largest = names.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            check(cuda.cuFuncSetAttribute(function, largest, shared))
            self.functions[key] = function, shared
        return function

    def memset(
        self, r: Request, name: str, offset: int, value: int, element_bytes: int, count: int
    ) -> None:
        """Set elements of a buffer on the compute queue."""
        target = self.address(r.trace, r.slot, r.lane, name) + offset
        call = {1: cuda.cuMemsetD8Async, 2: cuda.cuMemsetD16Async, 4: cuda.cuMemsetD32Async}
        if count:
            check(call[element_bytes](target, value, count, self.streams[r.slot, "compute"]))

    def memcpy(
        self,
        r: Request,
        target: str,
        target_offset: int,
        source: str,
        source_offset: int,
        size: int,
    ) -> None:
        """Copy bytes between two buffers on the compute queue."""
        target_address = self.address(r.trace, r.slot, r.lane, target) + target_offset
        source_address = self.address(r.trace, r.slot, r.lane, source) + source_offset
        self._copy(
            self.streams[r.slot, "compute"], target_address, source_address, [(0, size, 0, 1)]
        )

    def fill(self, r: Request, name: str, ranges: list[tuple[int, int]]) -> None:
        """What a buffer holds before anything writes it."""
        target = self.address(r.trace, r.slot, r.lane, name)
        stream = self.streams[r.slot, "compute"]
        for start, end in ranges:
            if name in r.begin:
                source = r.begin[name][0] + start
                check(cuda.cuMemcpyAsync(target + start, source, end - start, stream))
            else:
                check(cuda.cuMemsetD8Async(target + start, POISON, end - start, stream))

    def record(self, r: Request, queue: str, event: int) -> None:
        """An event: the queue has come here."""
        self._write(self.streams[r.slot, queue], self._flag(r, event), r)

    def wait(self, r: Request, queue: str, event: int) -> Iterator[tuple[int, int]]:
        """Go on when the event has happened."""
        yield from self._await(self.streams[r.slot, queue], self._flag(r, event), r)

    def _flag(self, r: Request, event: int) -> int:
        return self.flags + 4 * (r.slot * self.events + event)

    def send(
        self,
        r: Request,
        transfer: int,
        name: str,
        target: str,
        pieces: list[tuple[int, int, int, int]],
    ) -> Iterator[tuple[int, int]]:
        """Copy pieces (start, width, pitch, rows) of a buffer to another device."""
        other, stream = Device.all[target], self.streams[r.slot, "out"]
        ready = other.marks + 8 * (r.slot * self.transfers + transfer)
        yield from self._await(stream, ready, r)
        target_address = other.address(r.trace, r.slot, r.lane, name)
        self._copy(stream, target_address, self.address(r.trace, r.slot, r.lane, name), pieces)
        self._write(stream, ready + 4, r)

    def receive(self, r: Request, transfer: int) -> Iterator[tuple[int, int]]:
        """Let a transfer come, and go on when it is there."""
        ready = self.marks + 8 * (r.slot * self.transfers + transfer)
        stream = self.streams[r.slot, "in"]
        self._write(stream, ready, r)
        yield from self._await(stream, ready + 4, r)

    def _write(self, stream: Any, word: int, r: Request) -> None:
        check(cuda.cuCtxSetCurrent(self.context))
        check(cuda.cuStreamWriteValue32(stream, word, r.number + 1, 0))
        Device.handed_over[word] = r.number + 1

    def _await(self, stream: Any, word: int, r: Request) -> Iterator[tuple[int, int]]:
        yield word, r.number + 1
        check(cuda.cuCtxSetCurrent(self.context))
        check(cuda.cuStreamWaitValue32(stream, word, r.number + 1, 0))

    def receive_from_host(
        self, r: Request, name: str, pieces: list[tuple[int, int, int, int]]
    ) -> None:
        """Pieces of an input."""
        target = self.address(r.trace, r.slot, r.lane, name)
        self._copy(self.streams[r.slot, "in"], target, r.host[name][0], pieces)

    def send_to_host(self, r: Request, name: str, pieces: list[tuple[int, int, int, int]]) -> None:
        """Pieces of an output."""
        source = self.address(r.trace, r.slot, r.lane, name)
        self._copy(self.streams[r.slot, "out"], r.host[name][0], source, pieces)

    def _copy(
        self, stream: Any, target: int, source: int, pieces: list[tuple[int, int, int, int]]
    ) -> None:
        check(cuda.cuCtxSetCurrent(self.context))
        for start, width, pitch, rows in pieces:
            if rows == 1:
                check(cuda.cuMemcpyAsync(target + start, source + start, width, stream))
                continue
            copy = cuda.CUDA_MEMCPY2D()
            unified = cuda.CUmemorytype.CU_MEMORYTYPE_UNIFIED
            copy.srcMemoryType = copy.dstMemoryType = unified
            copy.srcDevice, copy.srcPitch = source + start, pitch
            copy.dstDevice, copy.dstPitch = target + start, pitch
            copy.WidthInBytes, copy.Height = width, rows
            check(cuda.cuMemcpy2DAsync(copy, stream))

    def finish(self, slot: int) -> None:
        """Wait until the streams of a slot are empty, but not for ever."""
        check(cuda.cuCtxSetCurrent(self.context))
        limit = time.monotonic() + LIMIT_S
        for queue in ("compute", "in", "out"):
            while int(status := cuda.cuStreamQuery(self.streams[slot, queue])[0]) == NOT_READY:
                if time.monotonic() > limit:
                    sys.stderr.write(f"{self.name}: the {queue} queue does not end\n")
                    sys.stderr.flush()
                    os._exit(1)  # a way out that waits for nothing
            check((status,))
