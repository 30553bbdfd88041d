"""The calls of the CUDA driver that the backend makes: a thin, checked layer over the bindings.

In: the module `cuda.bindings.driver`, or anything with the same functions (tests pass a stand-in
that records the calls and performs them on host memory). Out: plain methods that raise
`DriverError`. Handles are opaque; device and pinned host addresses are integers of one address
space (UVA), so that one kind of copy serves every direction.

The bindings are imported when the first `Driver` is made, never before.

Source: CUDA driver API 12.8 and later.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

Handle = Any
Bytes = npt.NDArray[np.uint8]

NOT_READY = 600
NOT_SUPPORTED = 801
NON_BLOCKING = 1
EVENT_TIMED, EVENT_PLAIN = 0, 2
NODE_PRIORITY = 8
HOST_PORTABLE_MAPPED = 3
LOG_BYTES = 16384
MOST_PITCH = (1 << 31) - 1
LAZY_PEERS, HANDLE_BYTES = 1, 64  # new bindings give only the address of a handle


class DriverError(Exception):
    """A driver call that failed; `log` is the compiler's log if a module failed to load."""

    def __init__(self, call: str, code: int, name: str, log: str = "") -> None:
        super().__init__(f"{call}: {name}")
        self.call = call
        self.code = code
        self.name = name
        self.log = log


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """A GPU as the driver describes it."""

    ordinal: int
    name: str
    capability: tuple[int, int]
    sms: int
    memory_bytes: int

    @property
    def arch(self) -> str:
        """The architecture, such as `sm_90`."""
        return f"sm_{self.capability[0]}{self.capability[1]}"


def bindings() -> Any:
    """The module of the driver's bindings; raises `ImportError` if cuda-python is not installed."""
    from cuda.bindings import driver

    return driver


class Driver:
    """The CUDA driver. Contexts are current per thread: call `use` or `push` before other calls."""

    def __init__(self, module: Any) -> None:
        self.cu = module
        self.functions: MappingProxyType[str, Callable[..., Any]] = MappingProxyType(
            {
                name: getattr(module, name)
                for name in (
                    "cuEventRecord",
                    "cuStreamWaitEvent",
                    "cuMemcpyAsync",
                    "cuMemcpy2DAsync",
                    "cuLaunchKernel",
                    "cuLaunchKernelEx",
                    "cuGraphLaunch",
                    "cuCtxSetCurrent",
                    "cuStreamWriteValue32",
                    "cuStreamWaitValue32",
                    "cuMemsetD8Async",
                    "cuEventRecordWithFlags",
                    "cuMemsetD16Async",
                    "cuMemsetD32Async",
                )
            }
        )
        self._graph_launch = module.cuGraphLaunch
        self.captured: Handle | None = None
        self._current = module.cuCtxGetCurrent

    failure: type[Exception] = DriverError

    def call(self, name: str, *args: Any) -> Any:
        """Make a call, and return its results without the status."""
        status, *rest = getattr(self.cu, name)(*args)
        self.check(name, status)
        return rest[0] if len(rest) == 1 else rest

    def check(self, name: str, status: Any) -> None:
        """Raise if a call failed."""
        if int(status):
            raise DriverError(name, int(status), getattr(status, "name", f"error {int(status)}"))

    # --- GPUs ------------------------------------------------------------------------------

    def initialise(self) -> None:
        """Start the driver."""
        self.call("cuInit", 0)

    def version(self) -> int:
        """The CUDA version of the driver: 13000 is 13.0."""
        return int(self.call("cuDriverGetVersion"))

    def gpus(self) -> tuple[GpuFacts, ...]:
        """Every GPU, by ordinal."""
        return tuple(self._facts(i) for i in range(int(self.call("cuDeviceGetCount"))))

    def _facts(self, ordinal: int) -> GpuFacts:
        device = self.call("cuDeviceGet", ordinal)
        names = self.cu.CUdevice_attribute
        prefix = "CU_DEVICE_ATTRIBUTE_"

        def attribute(name: str) -> int:
            return int(self.call("cuDeviceGetAttribute", getattr(names, prefix + name), device))

        return GpuFacts(
            ordinal=ordinal,
            name=bytes(self.call("cuDeviceGetName", 256, device)).split(b"\0")[0].decode(),
            capability=(
                attribute("COMPUTE_CAPABILITY_MAJOR"),
                attribute("COMPUTE_CAPABILITY_MINOR"),
            ),
            sms=attribute("MULTIPROCESSOR_COUNT"),
            memory_bytes=int(self.call("cuDeviceTotalMem", device)),
        )

    def peers(self, source: int, target: int) -> bool:
        """Whether the source GPU can reach the memory of the target GPU."""
        source_device, target_device = (
            self.call("cuDeviceGet", ordinal) for ordinal in (source, target)
        )
        return bool(int(self.call("cuDeviceCanAccessPeer", source_device, target_device)))

    def free_memory(self) -> int:
        """Free bytes on the GPU of the current context."""
        return int(self.call("cuMemGetInfo")[0])

    # --- contexts --------------------------------------------------------------------------

    def retain(self, ordinal: int) -> Handle:
        """The primary context of a GPU."""
        return self.call("cuDevicePrimaryCtxRetain", self.call("cuDeviceGet", ordinal))

    def release(self, ordinal: int) -> None:
        """Release the primary context of a GPU."""
        self.call("cuDevicePrimaryCtxRelease", self.call("cuDeviceGet", ordinal))

    def use(self, context: Handle) -> None:
        """Make a context current in this thread."""
        self.call("cuCtxSetCurrent", context)

    def is_current(self, context: Handle) -> bool:
        """Whether a context is current in this thread."""
        answer = self._current()
        if answer[0]:
            self.check("cuCtxGetCurrent", answer[0])
        return int(answer[1]) == int(context)

    def using(self, context: Handle) -> _Using:
        """A context manager: makes a context current, and restores the previous one on exit."""
        return _Using(self, context)

    def enable_peer(self, context: Handle) -> None:
        """Let the current context reach another's memory; no error if it already can."""
        try:
            self.call("cuCtxEnablePeerAccess", context, 0)
        except DriverError as problem:
            if "ALREADY_ENABLED" not in problem.name:
                raise

    def destroy_green(self, green: Handle) -> None:
        """Destroy a green context."""
        self.call("cuGreenCtxDestroy", green)

    # --- modules ---------------------------------------------------------------------------

    def load(self, text: bytes) -> Handle:
        """Compile and load PTX in the current context."""
        log = bytearray(LOG_BYTES)
        option = self.cu.CUjit_option
        names = (option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
        values = (log, LOG_BYTES)
        status, *rest = self.cu.cuModuleLoadDataEx(text + b"\0", 2, list(names), list(values))
        if int(status):
            said = bytes(log).split(b"\0")[0].decode(errors="replace")
            name = getattr(status, "name", f"error {int(status)}")
            raise DriverError("cuModuleLoadDataEx", int(status), name, said)
        return rest[0]

    def unload(self, module: Handle) -> None:
        """Unload a module."""
        self.call("cuModuleUnload", module)

    def function(self, module: Handle, name: str) -> Handle:
        """A kernel of a module."""
        return self.call("cuModuleGetFunction", module, name.encode())

    def allow_shared(self, function: Handle, dynamic_bytes: int) -> None:
        """Allow launches with this many bytes of dynamic shared memory."""
        names = self.cu.CUfunction_attribute
        largest = names.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self.call("cuFuncSetAttribute", function, largest, dynamic_bytes)

    def allow_large_clusters(self, function: Handle) -> None:
        """Allow clusters of more than 8 blocks."""
        names = self.cu.CUfunction_attribute
        allowed = names.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        self.call("cuFuncSetAttribute", function, allowed, 1)

    def variable(self, module: Handle, name: str) -> int:
        """The address of a module variable."""
        return int(self.call("cuModuleGetGlobal", module, name.encode())[0])

    # --- memory ----------------------------------------------------------------------------

    def allocate(self, size: int) -> int:
        """Allocate memory on the GPU of the current context."""
        return int(self.call("cuMemAlloc", size))

    def free(self, address: int) -> None:
        """Free device memory."""
        self.call("cuMemFree", address)

    def allocate_host(self, size: int) -> int:
        """Pinned host memory that every GPU can reach."""
        return int(self.call("cuMemHostAlloc", size, HOST_PORTABLE_MAPPED))

    def free_host(self, address: int) -> None:
        """Free pinned memory."""
        self.call("cuMemFreeHost", address)

    def memory_handle(self, address: int) -> bytes:
        """The handle by which another process opens an allocation."""
        made = self.call("cuIpcGetMemHandle", address)
        return ctypes.string_at(made.getPtr(), HANDLE_BYTES)

    def open_memory(self, handle: bytes) -> int:
        """An allocation of another process, in the current context."""
        given = self.cu.CUipcMemHandle()
        ctypes.memmove(given.getPtr(), handle, HANDLE_BYTES)
        return int(self.call("cuIpcOpenMemHandle", given, LAZY_PEERS))

    def close_memory(self, address: int) -> None:
        """Close an allocation of another process."""
        self.call("cuIpcCloseMemHandle", address)

    def upload(self, address: int, data: Bytes) -> None:
        """Write device memory and wait; only during startup."""
        if data.nbytes:
            self.call("cuMemcpyHtoD", address, data.ctypes.data, data.nbytes)

    def download(self, address: int, size: int) -> Bytes:
        """Read device memory and wait; never while requests run."""
        data = np.empty(size, np.uint8)
        if size:
            self.call("cuMemcpyDtoH", data.ctypes.data, address, size)
        return data

    def fill(self, address: int, value: int, size: int) -> None:
        """Set bytes of device memory; only during startup."""
        if size:
            self.call("cuMemsetD8", address, value, size)

    def settle(self) -> None:
        """Wait until all uploads have arrived: a small upload returns before that."""
        self.call("cuStreamSynchronize", 0)

    def finish(self) -> None:
        """Wait for all work of the current context."""
        self.call("cuCtxSynchronize")

    # --- streams and events ----------------------------------------------------------------

    def priorities(self) -> tuple[int, int]:
        """The lowest and the highest stream priority; a smaller number is a higher priority."""
        lowest, highest = self.call("cuCtxGetStreamPriorityRange")
        return int(lowest), int(highest)

    def stream(self, priority: int, green: Handle | None = None) -> Handle:
        """A stream of the current context, or of a green context."""
        if green is not None:
            return self.call("cuGreenCtxStreamCreate", green, NON_BLOCKING, priority)
        return self.call("cuStreamCreateWithPriority", NON_BLOCKING, priority)

    def destroy_stream(self, stream: Handle) -> None:
        """Destroy a stream."""
        self.call("cuStreamDestroy", stream)

    def event(self, *, timed: bool = False) -> Handle:
        """An event of the current context."""
        return self.call("cuEventCreate", EVENT_TIMED if timed else EVENT_PLAIN)

    def destroy_event(self, event: Handle) -> None:
        """Destroy an event."""
        self.call("cuEventDestroy", event)

    def record(self, event: Handle, stream: Handle) -> None:
        """Record an event."""
        self.check("cuEventRecord", self.cu.cuEventRecord(event, stream)[0])

    def wait(self, stream: Handle, event: Handle) -> None:
        """Let later work on a stream wait for an event."""
        self.check("cuStreamWaitEvent", self.cu.cuStreamWaitEvent(stream, event, 0)[0])

    def elapsed_ns(self, start: Handle, end: Handle) -> int:
        """Nanoseconds between two timed events of one GPU."""
        return round(float(self.call("cuEventElapsedTime", start, end)) * 1e6)

    def is_done(self, event: Handle) -> bool:
        """Whether all work before an event is done."""
        return self._is_ready("cuEventQuery", self.cu.cuEventQuery(event)[0])

    def is_idle(self, stream: Handle) -> bool:
        """Whether a stream has no work left; raises the error of work that failed."""
        if stream is self.captured:
            return False  # another thread captures the stream, and a query would end the capture
        return self._is_ready("cuStreamQuery", self.cu.cuStreamQuery(stream)[0])

    def _is_ready(self, name: str, status: Any) -> bool:
        if int(status) == NOT_READY:
            return False
        self.check(name, status)
        return True

    # --- graphs ----------------------------------------------------------------------------

    def begin_capture(self, stream: Handle) -> None:
        """Capture later work on the stream, and on streams that wait for it, into a graph."""
        mode = self.cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self.captured = stream
        self.call("cuStreamBeginCapture", stream, mode)

    def end_capture(self, stream: Handle) -> Handle:
        """The captured graph, ready to launch; its nodes keep the priorities of their streams."""
        graph = self.call("cuStreamEndCapture", stream)
        self.captured = None
        try:
            return self.call("cuGraphInstantiate", graph, NODE_PRIORITY)
        finally:
            self.call("cuGraphDestroy", graph)

    def launch_graph(self, graph: Handle, stream: Handle) -> None:
        """Launch an instantiated graph."""
        status = self._graph_launch(graph, stream)[0]
        if status:
            self.check("cuGraphLaunch", status)

    def upload_graph(self, graph: Handle, stream: Handle) -> None:
        """Upload a graph to the device, so that its first launch is as fast as any other."""
        self.call("cuGraphUpload", graph, stream)

    def destroy_graph(self, graph: Handle) -> None:
        """Destroy an instantiated graph."""
        self.call("cuGraphExecDestroy", graph)


class _Using:
    """Makes a context current until exit; makes no call if the context already is current."""

    __slots__ = ("_context", "_driver", "_pushed")

    def __init__(self, driver: Driver, context: Handle) -> None:
        self._driver = driver
        self._context = context

    def __enter__(self) -> None:
        driver = self._driver
        self._pushed = not driver.is_current(self._context)
        if self._pushed:
            driver.check("cuCtxPushCurrent", driver.cu.cuCtxPushCurrent(self._context)[0])

    def __exit__(self, *problem: object) -> None:
        if self._pushed:
            self._driver.cu.cuCtxPopCurrent()


def host_view(address: int, size: int) -> Bytes:
    """Pinned memory as a NumPy array."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
