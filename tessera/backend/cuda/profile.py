"""How long each step of a trace takes on a GPU or a slice of one.

In: a `CudaBackend` that has the whole trace on its first device; a second device, if there is one,
is the rest of the GPU. Out: times of every step, and of transfers by size.

A step is timed warm (many launches one after the other in a graph, so that what fits stays in L2)
and cold (after L2 was filled with something else), and, with a neighbour, warm beside work that
only computes and beside work that only moves memory. Memory that the step changes is put back
afterwards, and the step is done once, so that the next one finds what it would find.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tessera.backend.cuda.api import Driver, DriverError, Handle
from tessera.backend.cuda.backend import CudaBackend
from tessera.backend.cuda.enqueue import Enqueuer
from tessera.backend.cuda.issue_order import Do
from tessera.backend.cuda.parameters import pack_parameters
from tessera.backend.cuda.tape import Tape
from tessera.ir.data_type import DataType
from tessera.ir.launch_program import AreaKind, Queue, Run
from tessera.ir.program import LaunchId, Scalar

REPEATS = 9
_TARGET_NS = 200_000
_MOST_LAUNCHES = 64
_FLUSH_BYTES = 256 << 20
_NEIGHBOURS = Path(__file__).parent / "neighbours.ptx"
_NEIGHBOUR_BYTES = 256 << 20
# How much longer than needed alone a neighbour works, and between which limits.
_PATIENCE = 6
_LEAST_BUSY_NS = 3_000_000
_MOST_BUSY_NS = 2_000_000_000
_SIZES = tuple(1 << n for n in range(12, 29, 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Medians in nanoseconds; `spread` is the mean distance from the median, as a fraction."""

    step: int
    warm_ns: float
    cold_ns: float
    spread: float
    beside_compute_ns: float | None = None
    beside_memory_ns: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferTime:
    """Copies of one size: `kind` is device, in (from pinned memory) or out."""

    kind: str
    bytes: int
    ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTimes:
    """Everything about one device; `whole_ns` is the trace as one graph."""

    sms: int
    whole_ns: float
    steps: tuple[StepTimes, ...]
    transfers: tuple[TransferTime, ...]


class Profiler:
    """Measures on one backend."""

    def __init__(self, backend: CudaBackend, repeats: int = REPEATS) -> None:
        self.backend = backend
        self.driver: Driver = backend.driver
        self.repeats = repeats
        names = tuple(backend.devices)
        self.device = names[0]
        self.neighbour = names[1] if len(names) > 1 else None
        self.stream = backend._streams.stream(self.device, 0, Queue.COMPUTE)
        self.driver.use(backend.devices[self.device].context)
        self.start = self.driver.event(timed=True)
        self.end = self.driver.event(timed=True)
        self.flush = self.driver.allocate(_FLUSH_BYTES)
        self.saved: list[tuple[int, int, int]] = []

    def close(self) -> None:
        """Give memory and events back."""
        self.driver.use(self.backend.devices[self.device].context)
        self.driver.free(self.flush)
        for _, copy, _ in self.saved:
            self.driver.free(copy)
        for event in (self.start, self.end):
            self.driver.destroy_event(event)

    def measure(self, on_step: Callable[[int, int], None] | None = None) -> DeviceTimes:
        """Time everything; `on_step` hears of steps done and steps in all."""
        count = len(tuple(self.backend.model.traces[0].program.work()))
        whole = self._whole_ns()
        self._save_areas()
        found = []
        for number in range(count):
            found.append(self._step(number))
            if on_step is not None:
                on_step(number + 1, count)
        return DeviceTimes(
            sms=self.backend.devices[self.device].sms, whole_ns=whole, steps=tuple(found),
            transfers=tuple(self._transfers()),
        )  # fmt: skip

    # --- steps ------------------------------------------------------------------------------

    def _whole_ns(self) -> float:
        """The median of the whole trace, launched as a request is."""
        ready = self.backend._ready[0, 0, 0]
        graph, stream = ready.graph, ready.stream
        if graph is None:
            return self._timed(lambda: ready.tape.play(self.driver), stream)
        for _ in range(3):
            self._timed(lambda: self.driver.launch_graph(graph, stream), stream)
        return statistics.median(
            self._timed(lambda: self.driver.launch_graph(graph, stream), stream)
            for _ in range(self.repeats)
        )

    def _step(self, number: int) -> StepTimes:
        tape = self._tape(number)
        once = self._timed(lambda: tape.play(self.driver))
        once = min(once, self._timed(lambda: tape.play(self.driver)))
        launches = int(min(max(_TARGET_NS // max(once, 1), 1), _MOST_LAUNCHES))
        graph = self._repeated(tape, launches)
        try:
            warm, spread = self._warm(graph, launches)
            beside: list[float | None] = [None, None]
            if self.neighbour is not None:
                for place, kind in enumerate(("compute", "memory")):
                    beside[place] = self._beside(kind, graph, launches, warm)
        finally:
            self.driver.destroy_graph(graph)
        cold = self._cold(tape)
        self._restore_areas()
        tape.play(self.driver)
        self._keep_areas()
        return StepTimes(
            step=number, warm_ns=warm, cold_ns=max(cold, warm), spread=spread,
            beside_compute_ns=beside[0], beside_memory_ns=beside[1],
        )  # fmt: skip

    def _tape(self, number: int) -> Tape:
        """One step alone."""
        backend = self.backend
        writer = Enqueuer(backend._parts, 0, 0, 0, backend._buffers[0, 0], backend._stamps[0, 0])
        return writer.write([Do(self.device, Run(LaunchId(number)))], (), tell=False)[0]

    def _repeated(self, tape: Tape, launches: int) -> Handle:
        self.driver.begin_capture(self.stream)
        for _ in range(launches):
            tape.play(self.driver)
        return self.driver.end_capture(self.stream)

    def _warm(self, graph: Handle, launches: int) -> tuple[float, float]:
        def run() -> None:
            self.driver.launch_graph(graph, self.stream)

        self._timed(run)
        times = [self._timed(run) / launches for _ in range(self.repeats)]
        middle = statistics.median(times)
        away = statistics.fmean(abs(one - middle) for one in times)
        return middle, away / middle if middle else 0.0

    def _cold(self, tape: Tape) -> float:
        times = []
        for _ in range(self.repeats):
            self.driver.call("cuMemsetD8Async", self.flush, 0, _FLUSH_BYTES, self.stream)
            times.append(self._timed(lambda: tape.play(self.driver)))
        return statistics.median(times)

    def _timed(self, work: Callable[[], None], stream: Handle | None = None) -> float:
        stream = self.stream if stream is None else stream
        self.driver.record(self.start, stream)
        work()
        self.driver.record(self.end, stream)
        # Not the whole context: a neighbour may be at work in it.
        self.driver.call("cuStreamSynchronize", stream)
        return float(self.driver.elapsed_ns(self.start, self.end))

    # --- memory that steps change --------------------------------------------------------------

    def _save_areas(self) -> None:
        """Room for a copy of what is private to a request and of states, if there is room."""
        memory = self.backend.memory
        assert memory is not None
        for (device, kind), block in memory.blocks.items():
            size = block.stride * block.area.count
            if device != self.device or kind is AreaKind.WEIGHTS or not size:
                continue
            try:
                self.saved.append((block.base, self.driver.allocate(size), size))
            except DriverError:
                continue
        self._keep_areas()

    def _keep_areas(self) -> None:
        self._copy_areas([(copy, area, size) for area, copy, size in self.saved])

    def _restore_areas(self) -> None:
        self._copy_areas(self.saved)

    def _copy_areas(self, copies: list[tuple[int, int, int]]) -> None:
        for target, source, size in copies:
            self.driver.call("cuMemcpyAsync", target, source, size, self.stream)
        self.driver.call("cuStreamSynchronize", self.stream)

    # --- the neighbour ------------------------------------------------------------------------

    def _beside(self, kind: str, graph: Handle, launches: int, warm_ns: float) -> float | None:
        """The time while the rest of the GPU is at work; None where that ended too early."""
        assert self.neighbour is not None
        device = self.backend.devices[self.neighbour]
        stream = self.backend._streams.stream(self.neighbour, 0, Queue.COMPUTE)
        wanted = _PATIENCE * warm_ns * launches * (self.repeats + 1) + _LEAST_BUSY_NS
        size = _NEIGHBOUR_BYTES if kind == "memory" else 256
        buffers = [self.driver.allocate(size) for _ in range(2)]
        module = self.driver.load(_NEIGHBOURS.read_bytes())
        ended = self.driver.event()
        words = [int(min(wanted, _MOST_BUSY_NS)), buffers[0]]
        words += [buffers[1], size // 16] if kind == "memory" else []
        packed = pack_parameters([Scalar(DataType.U64, word) for word in words], lambda _: 0)
        function = self.driver.function(module, f"neighbour_{kind}")
        try:
            self.driver.call(
                "cuLaunchKernel", function, 2 * device.sms, 1, 1, 512, 1, 1, 0, stream,
                packed.address, 0,
            )  # fmt: skip
            self.driver.record(ended, stream)
            found = self._warm(graph, launches)[0]
            return None if self.driver.is_done(ended) else found
        finally:
            self.driver.finish()
            self.driver.destroy_event(ended)
            for address in buffers:
                self.driver.free(address)
            self.driver.unload(module)

    # --- transfers ------------------------------------------------------------------------------

    def _transfers(self) -> Iterator[TransferTime]:
        """Copies between device memory and device or pinned host memory, by size."""
        largest = max(_SIZES)
        other = self.driver.allocate(largest)
        pinned = self.driver.allocate_host(largest)
        pairs = {"device": (self.flush, other), "in": (other, pinned), "out": (pinned, other)}
        try:
            for kind, (target, source) in pairs.items():
                for size in _SIZES:
                    yield TransferTime(kind=kind, bytes=size, ns=self._copy(target, source, size))
        finally:
            self.driver.free(other)
            self.driver.free_host(pinned)

    def _copy(self, target: int, source: int, size: int) -> float:
        def once() -> None:
            self.driver.call("cuMemcpyAsync", target, source, size, self.stream)

        self._timed(once)
        return statistics.median(self._timed(once) for _ in range(self.repeats))
