"""Two slices of a GPU, and work that is submitted to them: calls on streams, or nodes of graphs.

Slices are opened as the backend does it: all calls go through the primary context of the GPU, and a
green context gives streams. Memory: what the slices send and receive, words at which they meet, and
what kernels note of themselves.
"""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import Any

import numpy as np

from tessera.backend.cuda.api import Driver, host_view
from tessera.backend.cuda.slices import split_gpu

SMS = (84, 48)
KERNELS = ("step", "gate", "signal", "spin", "push", "sign", "arm", "ticks")
MOST_BYTES = 1 << 20
MOST_STEPS = 4096
LINE = 32  # words between two words that slices meet at
WORD_LINES = 4096
SPIN_NS = 2_000_000_000
IDLE_S = 4.0
GEQ, AND = 0, 2
THREADS = 256
RELEASED = 0x7FFFFFFF

Types = tuple[Any, ...]
POINTER, WORD, LONG = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64


class Hang(RuntimeError):
    """Work that did not end in time."""


class Slices:
    """Two slices of GPU 0 with streams, kernels and memory."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        driver.initialise()
        self.context = driver.retain(0)
        driver.use(self.context)
        self.greens = [green for green, _ in split_gpu(driver, 0, SMS, (0, 1))]
        lowest, highest = driver.priorities()
        self.streams = [driver.stream(lowest, green) for green in self.greens]
        self.copies = [driver.stream(highest, green) for green in self.greens]
        self.rescue = driver.stream(highest)
        text = (Path(__file__).parent / "exchange_kernels.ptx").read_bytes()
        module = driver.load(text)
        self.functions = {name: driver.function(module, name) for name in KERNELS}
        self._text = text + b"\0"
        self._library: Any = None
        self._kernels: dict[str, Any] = {}
        # By direction and parity of the step: what a slice makes, and what the other one reads.
        self.outboxes = [[driver.allocate(MOST_BYTES) for _ in range(2)] for _ in range(2)]
        self.inboxes = [[driver.allocate(MOST_BYTES) for _ in range(2)] for _ in range(2)]
        self.times = driver.allocate(16 * MOST_STEPS)
        self.small = driver.allocate(4096)
        self.words = {
            "device": driver.allocate(4 * LINE * WORD_LINES),
            "host": driver.allocate_host(4 * LINE * WORD_LINES),
        }
        self.base, self.wrong, self.late = self.small, self.small + 128, self.small + 256
        self.counts = [self.small + 640, self.small + 768]
        self.used = [self.small + 1024, self.small + 1280]
        self.requests = [self.word(WORD_LINES - 1), self.word(WORD_LINES - 2)]
        self.gate_address = driver.allocate_host(4096)
        self.gate = host_view(self.gate_address, 4).view(np.uint32)
        self._events: dict[Any, Any] = {}
        self.reset(0)
        self.own = self._own_sms()

    def word(self, number: int, place: str = "device") -> int:
        """The address of a word."""
        assert number < WORD_LINES
        return self.words[place] + 4 * LINE * number

    def kernel(self, name: str) -> Any:
        """A kernel of no context, for nodes of graphs."""
        if self._library is None:
            self._library = self.driver.call("cuLibraryLoadData", self._text, [], [], 0, [], [], 0)
        if name not in self._kernels:
            found = self.driver.call("cuLibraryGetKernel", self._library, name.encode())
            self._kernels[name] = found
        return self._kernels[name]

    def event(self, *key: Any) -> Any:
        """The event of a key."""
        if key not in self._events:
            self._events[key] = self.driver.event()
        return self._events[key]

    def _own_sms(self) -> list[set[int]]:
        """The SMs of each slice, by kernels on its stream."""
        for at in (0, 1):
            for _ in range(4):
                step(Calls(self), at, ctas=8 * SMS[at])
        self.finish()
        return [self.sms(at) for at in (0, 1)]

    def reset(self, base: int, *, keep_words: bool = False) -> None:
        """As before the first request; nothing may be under way.

        Words may stay as they are, and then requests keep counting.
        """
        times = np.empty((MOST_STEPS, 2), np.uint64)
        times[:] = (2**64 - 1, 0)
        self.driver.upload(self.times, times.view(np.uint8).reshape(-1))
        small = np.zeros(1024, np.uint32)
        small[0] = base
        self.driver.upload(self.small, small.view(np.uint8))
        if not keep_words:
            self.driver.fill(self.words["device"], 0, 4 * LINE * WORD_LINES)
            host_view(self.words["host"], 4 * LINE * WORD_LINES)[:] = 0
        self.gate[0] = 0
        self.driver.settle()

    def release(self) -> None:
        """Let every wait for a word end."""
        host_view(self.words["host"], 4 * LINE * WORD_LINES).view(np.uint32)[:] = RELEASED
        count = LINE * WORD_LINES
        self.gate[0] = 1
        address = self.words["device"]
        self.driver.call("cuMemsetD32Async", address, RELEASED, count, self.rescue)

    def finish(self, *streams: Any, most_s: float = IDLE_S) -> float:
        """Wait for streams by asking; seconds until all were idle."""
        begun = time.perf_counter()
        for stream in streams or (*self.streams, *self.copies):
            while not self.driver.is_idle(stream):
                if time.perf_counter() - begun > most_s:
                    raise Hang(f"a stream is not idle after {most_s} s")
        return time.perf_counter() - begun

    def stamps(self, count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Nanoseconds of begin and end, by step."""
        raw = self.driver.download(self.times, 16 * count).view(np.uint64).reshape(count, 2)
        return raw.astype(np.int64)

    def faults(self) -> dict[str, int]:
        """Words that were not what was sent, and waits that gave up."""
        small = self.driver.download(self.small, 4096).view(np.uint32)
        return {"wrong": int(small[32]), "late": int(small[64])}

    def sms(self, slice_: int) -> set[int]:
        """The SMs that ran steps of a slice since the last reset."""
        small = self.driver.download(self.used[slice_], 64).view(np.uint32)
        return {sm for sm in range(512) if small[sm // 32] >> (sm % 32) & 1}


class Calls:
    """Work as calls on the streams of the slices: made at once, or kept on a tape."""

    def __init__(
        self,
        slices: Slices,
        streams: list[Any] | None = None,
        tape: list[tuple[Any, Any]] | None = None,
    ) -> None:
        self.slices = slices
        self.driver = slices.driver
        self.streams = streams or slices.streams
        self._tape = tape

    def call(self, name: str, *args: Any) -> None:
        """Make or keep a call."""
        if self._tape is None:
            self.driver.call(name, *args)
        else:
            self._tape.append((getattr(self.driver.cu, name), args))

    def kernel(
        self, at: int, name: str, ctas: int, threads: int, values: Any, types: Types
    ) -> None:
        function = self.slices.functions[name]
        shape = (ctas, 1, 1, threads, 1, 1, 0)
        self.call("cuLaunchKernel", function, *shape, self.streams[at], (values, types), 0)

    def copy(self, at: int, target: int, source: int, size: int) -> None:
        self.call("cuMemcpyDtoDAsync", target, source, size, self.streams[at])

    def write(self, at: int, word: int, value: int) -> None:
        self.call("cuStreamWriteValue32", self.streams[at], word, value, 0)

    def wait(self, at: int, word: int, value: int, flags: int = GEQ) -> None:
        self.call("cuStreamWaitValue32", self.streams[at], word, value, flags)


class Nodes:
    """Work as nodes of a graph per slice, or of one graph; each follows its slice's last one."""

    def __init__(self, slices: Slices, *, one: bool = False) -> None:
        self.slices = slices
        self.driver = slices.driver
        self.contexts = [self.driver.call("cuCtxFromGreenCtx", green) for green in slices.greens]
        first = self.driver.call("cuGraphCreate", 0)
        self.graphs = [first, first if one else self.driver.call("cuGraphCreate", 0)]
        self.last: list[list[Any]] = [[], []]
        self.waits: list[tuple[int, Any, Any]] = []

    def _add(self, at: int, call: str, *args: Any) -> Any:
        after = self.last[at]
        node = self.driver.call(call, self.graphs[at], after, len(after), *args)
        self.last[at] = [node]
        return node

    def kernel(self, at: int, name: str, ctas: int, threads: int, values: Any, types: Types) -> Any:
        params = self.driver.cu.CUDA_KERNEL_NODE_PARAMS()
        params.kern = self.slices.kernel(name)
        params.ctx = self.contexts[at]
        params.gridDimX, params.gridDimY, params.gridDimZ = ctas, 1, 1
        params.blockDimX, params.blockDimY, params.blockDimZ = threads, 1, 1
        params.sharedMemBytes = 0
        params.kernelParams = (values, types)
        return self._add(at, "cuGraphAddKernelNode", params)

    def copy(self, at: int, target: int, source: int, size: int) -> Any:
        params = self.driver.cu.CUDA_MEMCPY3D()
        kind = self.driver.cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
        params.srcMemoryType, params.srcDevice = kind, source
        params.dstMemoryType, params.dstDevice = kind, target
        params.WidthInBytes, params.Height, params.Depth = size, 1, 1
        return self._add(at, "cuGraphAddMemcpyNode", params, self.contexts[at])

    def memory_operation(self, at: int, kind: str, word: int, value: int, flags: int) -> Any:
        """The parameters of a node with one operation."""
        cu = self.driver.cu
        operation = cu.CUstreamBatchMemOpParams()
        is_wait = kind == "WAIT"
        half = operation.waitValue if is_wait else operation.writeValue
        half.operation = getattr(cu.CUstreamBatchMemOpType, f"CU_STREAM_MEM_OP_{kind}_VALUE_32")
        half.address = cu.CUdeviceptr(word)
        half.value = cu.cuuint32_t(value)
        half.flags = flags
        params = cu.CUDA_BATCH_MEM_OP_NODE_PARAMS()
        params.ctx = self.contexts[at]
        params.count = 1
        params.paramArray = [operation]
        params.flags = 0
        return params

    def write(self, at: int, word: int, value: int) -> Any:
        params = self.memory_operation(at, "WRITE", word, value, 0)
        return self._add(at, "cuGraphAddBatchMemOpNode", params)

    def wait(self, at: int, word: int, value: int, flags: int = GEQ) -> Any:
        params = self.memory_operation(at, "WAIT", word, value, flags)
        node = self._add(at, "cuGraphAddBatchMemOpNode", params)
        self.waits.append((at, node, params))
        return node

    def ready(self) -> list[Any]:
        """The graphs, instantiated."""
        graphs = self.graphs[:1] if self.graphs[0] is self.graphs[1] else self.graphs
        return [self.driver.call("cuGraphInstantiate", graph, 0) for graph in graphs]


def step(
    to: Any,
    at: int,
    inbox: int = 0,
    outbox: int = 0,
    words: int = 0,
    number: int = 0,
    work_ns: int = 3000,
    stamp: int = MOST_STEPS - 1,
    *,
    ctas: int = 0,
) -> None:
    """The kernel of a step."""
    slices = to.slices
    times = slices.times + 16 * stamp
    memory = (times, slices.wrong, slices.used[at])
    values = (inbox, outbox, words, slices.base, number, work_ns, *memory)
    types = (POINTER, POINTER, LONG, POINTER, WORD, LONG, POINTER, POINTER, POINTER)
    to.kernel(at, "step", ctas or 2 * SMS[at], THREADS, values, types)
