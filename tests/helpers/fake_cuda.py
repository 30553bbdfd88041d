"""A stand-in for `cuda.bindings.driver` that records calls and does them on host memory.

Kernels run on the CPU executor; copies and memsets on bytes. Nothing runs when it is enqueued:
work waits in a graph of dependences, and whenever the host looks (queries, synchronises) some of
what is ready runs, in random order. What streams and events leave unordered therefore does run in
any order, and what the host overwrites too early is lost. Capture follows the driver's rules: a
stream joins by waiting for a captured event, and all must be joined at the end.

`peers=False` makes GPUs that cannot reach each other. With `one_queue` all streams of a GPU share a
hardware queue: nothing overtakes what was handed over before it, whatever its stream. Kernels named
in `hang` never end. A kernel that faults breaks the context: every later call fails. With `shares`
large allocations can be opened by stand-ins of other processes.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import mmap
import os
import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from tessera.backend.ptx_executor.device import Device, LoadedModule
from tessera.backend.unwritten import ComparedSide, unwritten_bytes
from tessera.diagnostics import TesseraError
from tessera.frontend.ptx.read_ptx import parse_module


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_CONTEXT = 201
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209
    CUDA_ERROR_INVALID_PTX = 218
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222
    CUDA_ERROR_INVALID_HANDLE = 400
    CUDA_ERROR_ILLEGAL_STATE = 401
    CUDA_ERROR_NOT_FOUND = 500
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704
    CUDA_ERROR_ILLEGAL_INSTRUCTION = 715
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904
    CUDA_ERROR_CAPTURED_EVENT = 907


OK = CUresult.CUDA_SUCCESS
# Kernels of the backend that reach pinned memory, which the CPU executor does not.
HELPERS = ("link_turn", "link_delay", "copy_ranges", "fetch_ranges", "stamp", "fill_unwritten")


class Names(SimpleNamespace):
    """An enumeration of which only the names matter."""

    def __getattr__(self, name: str) -> str:
        return name


@dataclass(eq=False)
class Node:
    """Work, and what it comes after."""

    label: str
    run: Any
    after: set[Node]
    done: bool = False
    may: Any = None
    records: Event | None = None


@dataclass(eq=False)
class Stream:
    gpu: int
    sms: int
    priority: int
    tail: set[Node] = field(default_factory=set)
    capture: Graph | None = None
    before: set[Node] = field(default_factory=set)

    def __int__(self) -> int:
        return id(self)


@dataclass(eq=False)
class Event:
    gpu: int
    nodes: set[Node] = field(default_factory=set)
    capture: Graph | None = None
    time: float | None = None


@dataclass(eq=False)
class Graph:
    nodes: list[Node] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)


@dataclass(eq=False)
class Function:
    module: LoadedModule
    name: str
    gpu: int
    shared: int = 0


def resource(first: int, count: int, *, is_cut: bool = False) -> Any:
    """SMs from `first` on; what is cut off cannot be cut again."""
    return SimpleNamespace(sm=SimpleNamespace(smCount=count), first=first, is_cut=is_cut)


@dataclass(eq=False)
class Context:
    gpu: int
    sms: int

    def __int__(self) -> int:
        return id(self)


class SharedBlock:
    """Memory that other processes can open."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor = descriptor
        self.bytes = (ctypes.c_uint8 * size).from_buffer(mmap.mmap(descriptor, size))
        self.address = ctypes.addressof(self.bytes)

    def close(self) -> None:
        os.close(self.descriptor)


parsed = functools.cache(parse_module)


class MemoryHandle:
    """Memory for other processes: bytes at an address, as of the bindings."""

    def __init__(self, text: bytes = b"") -> None:
        self._bytes = ctypes.create_string_buffer(text, 64)

    @property
    def raw(self) -> bytes:
        return self._bytes.raw

    def getPtr(self) -> int:
        return ctypes.addressof(self._bytes)


class FakeCuda:
    """The functions of the driver that Tessera calls."""

    CUdevice_attribute = Names()
    CUdevResourceType = Names()
    CUjit_option = Names()
    CUfunction_attribute = Names()
    CUstreamCaptureMode = Names()
    CUmemorytype = Names()
    CUlaunchAttributeID = Names()
    CUmemLocationType = Names()
    CUmemAllocationType = Names()
    CUmemAccess_flags = Names()
    CUmemAllocationGranularity_flags = Names()
    CUDA_MEMCPY2D = SimpleNamespace
    CUlaunchConfig = SimpleNamespace

    def __init__(
        self,
        *,
        gpus: int = 1,
        sms: int = 132,
        memory: int = 64 << 20,
        peers: bool = True,
        seed: int = 0,
        version: int = 13000,
        capability: tuple[int, int] = (9, 0),
        hang: tuple[str, ...] = (),
        name: str = "Fake GPU",
        one_queue: bool = False,
        shares: bool = False,
    ) -> None:
        self.shares = shares
        self.gpu_count, self.sms, self.memory, self.version = gpus, sms, memory, version
        self.capability, self.can_peer, self.hang = capability, peers, hang
        self.name = name
        self.computes = True  # False: kernels take their time and leave memory as it is
        self.last: dict[int, Node] | None = {} if one_queue else None
        self.greens: dict[Context, list[Any]] = {}
        self.random = random.Random(seed)
        self.devices = [Device(k, memory_bytes=memory) for k in range(gpus)]
        self.contexts = [Context(k, sms) for k in range(gpus)]
        self.legacy = [Stream(k, sms, 0) for k in range(gpus)]
        self.host: dict[int, Any] = {}
        self.allocated: dict[int, tuple[int, Any]] = {}
        self.pending: list[Node] = []
        self.calls: Counter[str] = Counter()
        self.launched: list[tuple[str, int]] = []
        self.copied_bytes = 0
        self.clock = 0.0
        self.broken: CUresult | None = None
        self.modules: dict[int, Any] = {}
        self.peered: set[tuple[int, int]] = set()
        self.lock = threading.RLock()
        self.here = threading.local()
        for name in dir(type(self)):
            if name.startswith("cu"):
                setattr(self, name, self._guarded(name, getattr(self, name)))

    def _guarded(self, name: str, function: Any) -> Any:
        def call(*arguments: Any) -> tuple[Any, ...]:
            with self.lock:
                self.calls[name] += 1
                if self.broken is not None:
                    return (self.broken, None, None)
                result = function(*arguments)
                return result if isinstance(result, tuple) else (result,)

        return call

    # --- what is there ---------------------------------------------------------------------

    def cuInit(self, flags: int) -> Any:
        return OK if self.gpu_count else CUresult.CUDA_ERROR_NO_DEVICE

    def cuDriverGetVersion(self) -> Any:
        return OK, self.version

    def cuDeviceGetCount(self) -> Any:
        return OK, self.gpu_count

    def cuDeviceGet(self, ordinal: int) -> Any:
        return OK, ordinal

    def cuDeviceGetName(self, size: int, device: int) -> Any:
        return OK, self.name.encode() + b"\0\0"

    def cuDeviceTotalMem(self, device: int) -> Any:
        return OK, self.memory

    def cuDeviceGetAttribute(self, name: str, device: int) -> Any:
        if name.endswith("MULTIPROCESSOR_COUNT"):
            return OK, self.sms
        return OK, self.capability[0 if name.endswith("MAJOR") else 1]

    def cuDeviceCanAccessPeer(self, one: int, other: int) -> Any:
        return OK, int(self.can_peer and one != other)

    def cuMemGetInfo(self) -> Any:
        used = sum(allocation.size for allocation in self.devices[self._gpu()].space.table)
        return OK, self.memory - used, self.memory

    # --- contexts --------------------------------------------------------------------------

    def cuDevicePrimaryCtxRetain(self, device: int) -> Any:
        return OK, self.contexts[device]

    def cuDevicePrimaryCtxRelease(self, device: int) -> Any:
        return OK

    def cuCtxSetCurrent(self, context: Context) -> Any:
        self.here.context = context
        return OK

    def cuCtxGetCurrent(self) -> Any:
        return OK, getattr(self.here, "context", None) or 0

    def cuCtxPushCurrent(self, context: Context) -> Any:
        self.here.stack = [*getattr(self.here, "stack", ()), getattr(self.here, "context", None)]
        self.here.context = context
        return OK

    def cuCtxPopCurrent(self) -> Any:
        popped, self.here.context = self.here.context, self.here.stack.pop()
        return OK, popped

    def cuCtxEnablePeerAccess(self, context: Context, flags: int) -> Any:
        pair = (self._gpu(), context.gpu)
        if pair in self.peered:
            return CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
        self.peered.add(pair)
        return OK

    def cuDeviceGetDevResource(self, device: int, kind: str) -> Any:
        return OK, resource(0, self.sms)

    def cuDevSmResourceSplitByCount(self, groups: int, whole: Any, flags: int, least: int) -> Any:
        step = 2 if flags else 8
        count = -(-least // step) * step
        if whole.is_cut or least < 1 or groups * count > whole.sm.smCount:
            return CUresult.CUDA_ERROR_INVALID_VALUE, None, None, None
        first = [whole.first + i * count for i in range(groups + 1)]
        parts = [resource(one, count, is_cut=True) for one in first[:-1]]
        # As on an H200: not all groups can lie together.
        usable = groups - 1 if step == 8 and groups == whole.sm.smCount // 8 > 1 else groups
        return (
            OK,
            parts,
            usable,
            resource(first[-1], whole.sm.smCount - groups * count, is_cut=True),
        )

    def cuDevResourceGenerateDesc(self, parts: list[Any], count: int) -> Any:
        assert count == len(parts)
        return OK, parts

    def cuGreenCtxCreate(self, described: list[Any], device: int, flags: int) -> Any:
        green = Context(device, sum(part.sm.smCount for part in described))
        self.greens[green] = described
        return OK, green

    def cuGreenCtxGetDevResource(self, green: Context, kind: str) -> Any:
        (part,) = self.greens[green]
        return OK, resource(part.first, part.sm.smCount)

    def cuGreenCtxDestroy(self, green: Context) -> Any:
        del self.greens[green]
        return OK

    def sms_in_use(self) -> list[int]:
        """The SMs of all green contexts that there are."""
        parts = [part for green in self.greens.values() for part in green]
        return [part.first + i for part in parts for i in range(part.sm.smCount)]

    # --- modules ---------------------------------------------------------------------------

    def cuModuleLoadDataEx(self, image: bytes, count: int, names: Any, values: Any) -> Any:
        text = image.rstrip(b"\0").decode()
        try:
            module = parsed(text)
        except TesseraError:
            log = b"ptxas application ptx input, line 3; fatal : Parsing error\0"
            values[0][: len(log)] = log
            return CUresult.CUDA_ERROR_INVALID_PTX, None
        if 1000 * (module.version[0] + 4) + 10 * module.version[1] > self.version:
            return CUresult.CUDA_ERROR_UNSUPPORTED_PTX_VERSION, None
        target = next(t for t in module.target if t.startswith("sm_"))
        if int("".join(filter(str.isdigit, target))) > 10 * self.capability[0] + self.capability[1]:
            return CUresult.CUDA_ERROR_NO_BINARY_FOR_GPU, None
        return OK, LoadedModule(self.devices[self._gpu()], module)

    def cuModuleLoadData(self, image: bytes | int) -> Any:
        image = ctypes.string_at(image) if isinstance(image, int) else image
        return self.cuModuleLoadDataEx(image, 0, [], [bytearray(100), 100])

    def cuModuleUnload(self, module: LoadedModule) -> Any:
        module.close()
        return OK

    def cuModuleGetFunction(self, module: LoadedModule, name: bytes) -> Any:
        if not any(kernel.name == name.decode() for kernel in module.module.kernels()):
            return CUresult.CUDA_ERROR_NOT_FOUND, None
        return OK, Function(module, name.decode(), module.device.index)

    def cuFuncSetAttribute(self, function: Function, name: str, value: int) -> Any:
        if name.endswith("MAX_DYNAMIC_SHARED_SIZE_BYTES"):
            if value > 227 * 1024:
                return CUresult.CUDA_ERROR_INVALID_VALUE
            function.shared = value
        return OK

    def cuModuleGetGlobal(self, module: LoadedModule, name: bytes) -> Any:
        variable = module.variables[name.decode()]
        return OK, variable.address, variable.nbytes

    # --- memory ----------------------------------------------------------------------------

    def _gpu(self) -> int:
        return int(self.here.context.gpu)

    def view(self, address: int, size: int) -> np.ndarray:
        """The bytes at an address, of a GPU or of the host."""
        index = (address >> 40) - 1
        if 0 <= index < self.gpu_count:
            space = self.devices[index].space
            start = address - space.base
            inside = any(
                a.address <= address and address + size <= a.address + a.size for a in space.table
            )
            assert inside, f"{size} bytes at {address:#x} are outside every allocation"
            return space.bytes[start : start + size]
        block = next(b for a, b in self.host.items() if a <= address < a + max(len(b), 1))
        assert address + size <= ctypes.addressof(block) + len(block), "outside pinned memory"
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))

    def cuMemAlloc(self, size: int) -> Any:
        if size > self.memory:
            return CUresult.CUDA_ERROR_OUT_OF_MEMORY, None
        if self.shares and size % (2 << 20) == 0:
            descriptor = os.memfd_create("fake")
            os.ftruncate(descriptor, size)
            block = SharedBlock(descriptor, size)
            self.host[block.address] = block.bytes
            self.allocated[block.address] = (size, block)
            return OK, block.address
        array = self.devices[self._gpu()].empty(size, np.uint8)
        self.allocated[array.address] = (size, array)
        return OK, array.address

    @staticmethod
    def CUmemAllocationProp() -> Any:
        return SimpleNamespace(location=SimpleNamespace())

    CUmemAccessDesc = CUmemAllocationProp

    def cuMemGetAllocationGranularity(self, kind: Any, which: str) -> Any:
        return OK, 2 << 20

    def cuMemAddressReserve(self, size: int, alignment: int, address: int, flags: int) -> Any:
        array = self.devices[self._gpu()].empty(size + alignment, np.uint8)  # all of it is mapped
        return OK, -(-array.address // alignment) * alignment

    def cuMemCreate(self, size: int, kind: Any, flags: int) -> Any:
        return OK, size

    def cuMemMap(self, address: int, size: int, offset: int, handle: Any, flags: int) -> Any:
        return OK

    def cuMemSetAccess(self, address: int, size: int, access: list[Any], count: int) -> Any:
        return OK

    CUipcMemHandle = MemoryHandle

    def cuIpcGetMemHandle(self, address: int) -> Any:
        size, array = self.allocated[address]  # only whole allocations can be opened elsewhere
        descriptor = array.descriptor if isinstance(array, SharedBlock) else -1
        text = f"{os.getpid()} {descriptor} {size} {address}"
        return OK, MemoryHandle(text.encode().ljust(64))

    def cuIpcOpenMemHandle(self, handle: Any, flags: int) -> Any:
        """Of a stand-in in another process, or of who shares this one, and its addresses."""
        assert flags == 1
        process, descriptor, size, address = map(int, handle.raw.split())
        if process == os.getpid():
            return OK, address
        opened = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR)
        block = SharedBlock(opened, size)
        self.host[block.address] = block.bytes
        return OK, block.address

    def cuIpcCloseMemHandle(self, address: int) -> Any:
        return OK

    def cuMemFree(self, address: int) -> Any:
        self._pump(None)
        self.allocated.pop(address)[1].close()
        return OK

    def cuMemHostAlloc(self, size: int, flags: int) -> Any:
        block = (ctypes.c_uint8 * size)()
        self.host[ctypes.addressof(block)] = block
        return OK, ctypes.addressof(block)

    def cuMemFreeHost(self, address: int) -> Any:
        self._pump(None)
        del self.host[address]
        return OK

    def cuMemcpyHtoD(self, target: int, source: int, size: int) -> Any:
        """As the driver does with memory that is not pinned: read now, written at some time."""
        raw = np.frombuffer(ctypes.string_at(source, size), np.uint8)

        def write() -> None:
            self.view(target, size)[:] = raw

        return self._enqueue(self.legacy[self._gpu()], "upload", write)

    def cuMemcpyDtoH(self, target: int, source: int, size: int) -> Any:
        self._finish(self.legacy[self._gpu()])
        ctypes.memmove(target, self.view(source, size).tobytes(), size)
        return OK

    def cuMemcpyDtoD(self, target: int, source: int, size: int) -> Any:
        def copy() -> None:
            self.view(target, size)[:] = self.view(source, size).copy()

        return self._enqueue(self.legacy[self._gpu()], "copy", copy)

    def cuMemsetD8(self, target: int, value: int, size: int) -> Any:
        """The host does not wait for it, nor do streams that do not block."""
        return self._memset(target, value, size, 1, self.legacy[self._gpu()])

    # --- streams and events ----------------------------------------------------------------

    def cuCtxGetStreamPriorityRange(self) -> Any:
        return OK, 0, -5

    def cuStreamCreateWithPriority(self, flags: int, priority: int) -> Any:
        return OK, Stream(self._gpu(), self.sms, priority)

    def cuGreenCtxStreamCreate(self, green: Context, flags: int, priority: int) -> Any:
        return OK, Stream(green.gpu, green.sms, priority)

    def cuStreamDestroy(self, stream: Stream) -> Any:
        return OK

    def cuEventCreate(self, flags: int) -> Any:
        return OK, Event(self._gpu())

    def cuEventDestroy(self, event: Event) -> Any:
        return OK

    def cuEventRecord(self, event: Event, stream: Stream) -> Any:
        if event.gpu != stream.gpu:
            return CUresult.CUDA_ERROR_INVALID_HANDLE
        if stream.capture is None:
            self._enqueue(stream, "record", lambda: self._stamp(event))
        event.nodes, event.capture = set(stream.tail), stream.capture
        return OK

    def cuEventRecordWithFlags(self, event: Event, stream: Stream, flags: int) -> Any:
        """With flag 1 a node of a graph that records the event whenever the graph is launched."""
        if flags != 1 or stream.capture is None:
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        found = self._enqueue(stream, "record", lambda: self._stamp(event))
        stream.capture.nodes[-1].records = event
        return (found,)

    def _stamp(self, event: Event) -> None:
        event.time = self.clock

    def cuEventElapsedTime(self, start: Event, end: Event) -> Any:
        if start.gpu != end.gpu or start.time is None or end.time is None:
            return CUresult.CUDA_ERROR_INVALID_HANDLE, None
        return OK, end.time - start.time

    def cuStreamWaitEvent(self, stream: Stream, event: Event, flags: int) -> Any:
        if stream.capture is not None and event.capture is not stream.capture:
            return CUresult.CUDA_ERROR_CAPTURED_EVENT
        if event.capture is not None and stream.capture is None:
            self._join(stream, event.capture)
        stream.tail = stream.tail | event.nodes
        return OK

    def cuEventQuery(self, event: Event) -> Any:
        self._pump(self.random.randrange(8))
        if self.broken is not None:
            return self.broken
        ready = all(node.done for node in event.nodes)
        return OK if ready else CUresult.CUDA_ERROR_NOT_READY

    def cuEventSynchronize(self, event: Event) -> Any:
        while self.broken is None and not all(node.done for node in event.nodes):
            self._pump(1 + self.random.randrange(8))
        return self.broken or OK

    def cuStreamQuery(self, stream: Stream) -> Any:
        self._pump(self.random.randrange(8))
        if self.broken is not None:
            return self.broken
        ready = all(node.done for node in stream.tail)
        return OK if ready else CUresult.CUDA_ERROR_NOT_READY

    def cuCtxSynchronize(self) -> Any:
        self._pump(None)
        return self.broken or OK

    def cuStreamSynchronize(self, stream: Stream | int) -> Any:
        """0 is the legacy stream of the current context, which streams here do not wait for."""
        self._finish(self.legacy[self._gpu()] if isinstance(stream, int) else stream)
        return self.broken or OK

    def _finish(self, stream: Stream) -> None:
        """Run until a stream is empty, and some more."""
        while self.broken is None and not all(node.done for node in stream.tail):
            before = len(self.pending)
            self._pump(1 + self.random.randrange(8))
            assert len(self.pending) < before, "the stream waits for what never happens"

    # --- work --------------------------------------------------------------------------------

    def cuMemcpyAsync(self, target: int, source: int, size: int, stream: Stream) -> Any:
        def copy() -> None:
            self.view(target, size)[:] = self.view(source, size)
            self.copied_bytes += size

        return self._enqueue(stream, f"copy {size}", copy)

    def cuMemcpy2DAsync(self, what: Any, stream: Stream) -> Any:
        rows = [
            (what.dstDevice + row * what.dstPitch, what.srcDevice + row * what.srcPitch)
            for row in range(what.Height)
        ]
        width = what.WidthInBytes
        if width > what.dstPitch or width > what.srcPitch:
            return CUresult.CUDA_ERROR_INVALID_VALUE

        def copy() -> None:
            for target, source in rows:
                self.view(target, width)[:] = self.view(source, width)
            self.copied_bytes += width * len(rows)

        return self._enqueue(stream, f"copy {width} x {len(rows)}", copy)

    def _memset(self, target: int, value: int, count: int, width: int, stream: Stream) -> Any:
        pattern = np.frombuffer(value.to_bytes(width, "little"), np.uint8)

        def fill() -> None:
            self.view(target, count * width).reshape(-1, width)[:] = pattern

        return self._enqueue(stream, "memset", fill)

    def cuMemsetD8Async(self, target: int, value: int, count: int, stream: Stream) -> Any:
        return self._memset(target, value, count, 1, stream)

    def cuMemsetD16Async(self, target: int, value: int, count: int, stream: Stream) -> Any:
        return self._memset(target, value, count, 2, stream)

    def cuMemsetD32Async(self, target: int, value: int, count: int, stream: Stream) -> Any:
        return self._memset(target, value, count, 4, stream)

    def cuStreamWriteValue32(self, stream: Stream, address: int, value: int, flags: int) -> Any:
        assert flags == 0, "without a barrier, bytes may be seen after the word"
        raw = np.frombuffer(value.to_bytes(4, "little"), np.uint8)

        def write() -> None:
            self.view(address, 4)[:] = raw

        return self._enqueue(stream, "write", write)

    def cuStreamWaitValue32(self, stream: Stream, address: int, value: int, flags: int) -> Any:
        assert flags == 0, "only waiting for at least a value"
        self._enqueue(stream, "wait", lambda: None)
        (node,) = stream.tail
        node.may = lambda: (
            (int(self.view(address, 4).view(np.uint32)[0]) - value) & 0xFFFFFFFF < 1 << 31
        )
        return OK

    def cuLaunchKernel(self, function: Function, *rest: Any) -> Any:
        grid, block, shared, stream, parameters = rest[:3], rest[3:6], *rest[6:9]
        stream = self.legacy[self._gpu()] if isinstance(stream, int) else stream
        return self._launch(function, grid, block, shared, stream, parameters, None)

    def cuLaunchKernelEx(self, config: Any, function: Function, parameters: int, extra: int) -> Any:
        cluster = None
        assert config.numAttrs == len(config.attrs)
        for one in config.attrs:
            if one.id.endswith("CLUSTER_DIMENSION"):
                where = one.value.clusterDim
                cluster = (where.x, where.y, where.z)
        grid = config.gridDimX, config.gridDimY, config.gridDimZ
        block = config.blockDimX, config.blockDimY, config.blockDimZ
        shared, stream = config.sharedMemBytes, config.hStream
        return self._launch(function, grid, block, shared, stream, parameters, cluster)

    @staticmethod
    def CUlaunchAttribute() -> Any:
        return SimpleNamespace(value=SimpleNamespace(clusterDim=SimpleNamespace()))

    def _launch(
        self,
        function: Function,
        grid: Any,
        block: Any,
        shared: int,
        stream: Stream,
        parameters: int,
        cluster: Any,
    ) -> Any:
        if function.gpu != stream.gpu:
            return CUresult.CUDA_ERROR_INVALID_HANDLE
        if shared > 48 * 1024 and shared > function.shared:
            return CUresult.CUDA_ERROR_INVALID_VALUE
        if block[0] * block[1] * block[2] > 1024:
            return CUresult.CUDA_ERROR_INVALID_VALUE
        kernel = function.module[function.name]
        sizes = [size for _, size in kernel.program.parameters]
        # As the driver does, parameters are read now, not when the kernel runs.
        pointers = (ctypes.c_uint64 * len(sizes)).from_address(parameters) if sizes else ()
        values = [
            ctypes.string_at(pointer, size) for pointer, size in zip(pointers, sizes, strict=True)
        ]

        def run() -> None:
            self.launched.append((function.name, stream.sms))
            if function.name in HELPERS:
                self._helper(function.name, [int.from_bytes(v, "little") for v in values])
            elif self.computes:
                kernel.launch(tuple(grid), tuple(block), values, shared=shared, cluster=cluster)

        return self._enqueue(stream, function.name, run)

    def _helper(self, name: str, values: list[int]) -> None:
        """A kernel of the backend."""
        if name in ("copy_ranges", "fetch_ranges"):
            target, source, table, rows = values
            if name == "fetch_ranges":
                source = int(self.view(source, 8).view(np.uint64)[0])
            for row in self.view(table, 24 * rows).view(np.uint64).reshape(-1, 3).tolist():
                self.view(target + row[1], row[2])[:] = self.view(source + row[0], row[2])
                self.copied_bytes += row[2]
            return
        if name == "fill_unwritten":
            target, start, end, number, buffer, device, side = values
            request = int(self.view(number, 8).view(np.uint64)[0])
            content = unwritten_bytes(ComparedSide(side), request, device, buffer, start, end)
            self.view(target + start, end - start)[:] = content
        if name == "stamp":
            self.view(values[0], 8).view(np.uint64)[0] = round(self.clock * 1e6)
        if name == "link_turn":
            self.clock += values[1] / 1e6

    # --- graphs ----------------------------------------------------------------------------

    def cuStreamBeginCapture(self, stream: Stream, mode: str) -> Any:
        self._join(stream, Graph())
        return OK

    def _join(self, stream: Stream, graph: Graph) -> None:
        stream.before, stream.capture, stream.tail = stream.tail, graph, set()
        graph.streams.append(stream)

    def cuStreamEndCapture(self, stream: Stream) -> Any:
        graph = stream.capture
        if graph is None:
            return CUresult.CUDA_ERROR_ILLEGAL_STATE, None
        reached: set[Node] = set()
        todo = list(stream.tail)
        while todo:
            node = todo.pop()
            if node not in reached:
                reached.add(node)
                todo.extend(node.after)
        for joined in graph.streams:
            joined.capture, joined.tail = None, joined.before
        if len(reached) != len(graph.nodes):
            return CUresult.CUDA_ERROR_STREAM_CAPTURE_UNJOINED, None
        return OK, graph

    def cuGraphInstantiate(self, graph: Graph, flags: int) -> Any:
        return OK, graph

    def cuGraphDestroy(self, graph: Graph) -> Any:
        return OK

    def cuGraphExecDestroy(self, graph: Graph) -> Any:
        return OK

    def cuGraphUpload(self, graph: Graph, stream: Stream) -> Any:
        return OK

    def cuGraphLaunch(self, graph: Graph, stream: Stream) -> Any:
        """A copy of the graph's nodes, after all that the stream has."""
        copies: dict[Node, Node] = {}
        before = set(stream.tail)
        for node in graph.nodes:
            after = {copies[other] for other in node.after} or before
            copies[node] = Node(node.label, node.run, set(after), may=node.may)
            if node.records is not None:
                node.records.nodes, node.records.capture = {copies[node]}, None
        self.pending.extend(copies.values())
        inner = {other for node in graph.nodes for other in node.after}
        stream.tail = {copies[node] for node in graph.nodes if node not in inner} or before
        return OK

    def _enqueue(self, stream: Stream, label: str, run: Any) -> Any:
        node = Node(label, run, set(stream.tail))
        if self.last is not None and stream.capture is None:
            node.after |= {self.last[stream.gpu]} if stream.gpu in self.last else set()
            self.last[stream.gpu] = node
        stream.tail = {node}
        if stream.capture is not None:
            stream.capture.nodes.append(node)
        else:
            self.pending.append(node)
        return OK

    def _pump(self, most: int | None) -> None:
        """Run some of what is ready, or all of it, in random order."""
        done = 0
        while self.broken is None and (most is None or done < most):
            ready = [node for node in self.pending if self._is_ready(node)]
            if not ready:
                return
            self._run(self.random.choice(ready))
            done += 1

    def _is_ready(self, node: Node) -> bool:
        while node.after:
            other = next(iter(node.after))
            if not other.done:
                return False
            node.after.discard(other)
        return node.label not in self.hang and (node.may is None or node.may())

    def _run(self, node: Node) -> None:
        self.clock += 0.001
        try:
            node.run()
        except TesseraError as problem:
            trapped = problem.diagnostics[0].code == "TSR5012"
            self.broken = (
                CUresult.CUDA_ERROR_ILLEGAL_INSTRUCTION
                if trapped
                else CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
            )
            return
        node.done = True
        node.after = set()
        self.pending.remove(node)
