"""What `benchmarks.gain.gain` does on the GPU: fill memory fast, profile, serve requests.

Memory of the size of real caches cannot be made on the host and sent for every plan: here the
driver fills whatever is larger than a block by repeating a block of random values, and the areas of
all plans lie in one arena, since only one of them runs at a time and each is filled anew before it
does. Everything else is the runtime as `tessera.Runtime` uses it.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.gain.clock import ClockWatch
from tessera.backend.cuda.api import Bytes, Driver, bindings
from tessera.backend.cuda.backend import CudaBackend, CudaOptions
from tessera.backend.cuda.enqueue import Enqueuer
from tessera.backend.cuda.issue_order import Do
from tessera.backend.cuda.measure import profile as cuda_profile
from tessera.backend.cuda.targets import open_driver
from tessera.backend.host_loop.dispatch import Dispatcher
from tessera.backend.service import BackendOptions, Model, ServedTrace
from tessera.driver import bench as benches
from tessera.driver import profile as profiling
from tessera.driver.analyze import load
from tessera.frontend.machine.gpus import parse_gpus
from tessera.ir.plan.launch_program import LoweredReplica, Run
from tessera.ir.program.program import Launch, LaunchId, Pointer, Program, Role, Work
from tessera.ir.program.seeded import Seeded, Source

BLOCK_BYTES = 16 << 20
LEAST_IN_ARENA = 16 << 20
MOST_REPLAYS = 400
Sample = tuple[float | None, float | None]
_ALIGNMENT = 2 << 20
_FILLED = (Role.WEIGHT, Role.INPUT, Role.STATE)
VOCABULARY = 32768


def random_block(seed: int = 0) -> Bytes:
    """bf16 values like those of weights."""
    values = np.random.default_rng(seed).standard_normal(BLOCK_BYTES // 2, np.float32) * 0.02
    return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)


@dataclass(slots=True)
class Arena:
    """Device memory that all plans share, and code; `bytes` is what one of them may take."""

    base: int
    bytes: int
    modules: dict[bytes, Any] = field(default_factory=dict)


class FillingDriver(Driver):
    """A driver that repeats a block instead of sending large contents; areas lie in an arena."""

    def __init__(self, module: Any, block: Bytes, arena: Arena | None = None) -> None:
        super().__init__(module)
        self._block = block
        self._arena = arena
        self._used = 0

    def upload(self, address: int, data: Bytes) -> None:
        if data.nbytes <= self._block.nbytes:
            super().upload(address, data)
            return
        super().upload(address, self._block)
        done = self._block.nbytes
        while done < data.nbytes:
            size = min(done, data.nbytes - done)
            self.call("cuMemcpyDtoD", address + done, address, size)
            done += size

    def allocate(self, size: int) -> int:
        if self._arena is None or size < LEAST_IN_ARENA:
            return super().allocate(size)
        start = self._used
        self._used += -(-size // _ALIGNMENT) * _ALIGNMENT
        if self._used > self._arena.bytes:
            raise MemoryError(f"the arena is too small: {self._used} bytes")
        return self._arena.base + start

    def free(self, address: int) -> None:
        arena = self._arena
        if arena is None or not arena.base <= address < arena.base + arena.bytes:
            super().free(address)

    def load(self, text: bytes) -> Any:
        if self._arena is None:
            return super().load(text)
        if text not in self._arena.modules:
            self._arena.modules[text] = super().load(text)
        return self._arena.modules[text]

    def unload(self, module: Any) -> None:
        if self._arena is None:
            super().unload(module)

    def free_memory(self) -> int:
        return super().free_memory() if self._arena is None else self._arena.bytes


class Filled:
    """Contents of a program that are never looked at but for what is small."""

    def __init__(self, block: Bytes) -> None:
        self._block = block

    def __enter__(self) -> Filled:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, buffer: Any) -> Bytes:
        """Bytes of a buffer: tokens, a part of the block, or memory that nobody touches."""
        if buffer.role is Role.INPUT:
            tokens = np.random.default_rng(1).integers(0, VOCABULARY, buffer.bytes // 4, np.int32)
            return np.asarray(tokens.view(np.uint8))
        if buffer.bytes <= self._block.nbytes:
            return self._block[: buffer.bytes]
        return np.empty(buffer.bytes, np.uint8)

    def source(self, buffer: Any) -> Source:
        """The same where they are made; large contents are made on the GPU, from a seed."""
        is_large = buffer.bytes > self._block.nbytes and buffer.role is not Role.INPUT
        return Seeded(buffer, 1) if is_large and buffer.dtype is not None else self.read(buffer)


# --- profile ---------------------------------------------------------------------------------


def kind_of(program: Program, step: Work) -> object:
    """Steps of one kind take the same time: the same code and sizes, other buffers."""
    if not isinstance(step, Launch):
        return step.id

    def value(argument: object) -> object:
        if isinstance(argument, Pointer):
            place = program.buffers[argument.buffer]
            return place.bytes, place.role, argument.offset
        return argument

    return (
        step.module,
        step.kernel,
        step.grid,
        step.block,
        step.shared_bytes,
        tuple(value(argument) for argument in step.arguments),
    )


class FoldingProfiler(cuda_profile.Profiler):
    """Measures each kind of step once: a model repeats its layers."""

    def _step(self, number: LaunchId) -> cuda_profile.StepTimes:
        known: dict[object, cuda_profile.StepTimes] = self.__dict__.setdefault("_known", {})
        kind = kind_of(self.backend.model.traces[0].program, self.work[number])
        if kind in known:
            self._play(*self._tape([Do(self.device, Run(number))]))
            return replace(known[kind], step=number)
        known[kind] = super()._step(number)
        return known[kind]


def profile(
    path: str, devices: str, repeats: int, block: Bytes, lock: Path | None = None
) -> dict[str, Any]:
    """`tessera.driver.profile.profile` with filled memory and each kind of step measured once.

    Who measures holds the `lock`: other processes read and analyse meanwhile.
    """
    measure, beside = profiling.Bench.measure, profiling.Bench.together

    def one_at_a_time(work: Callable[..., Any]) -> Callable[..., Any]:
        def locked(*given: Any) -> Any:
            with open(lock or os.devnull, "w") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX)
                return work(*given)

        return locked

    with (
        mock.patch.object(profiling.Bench, "measure", one_at_a_time(measure)),
        mock.patch.object(profiling.Bench, "together", one_at_a_time(beside)),
        mock.patch.object(benches, "open_contents", return_value=Filled(block)),
        mock.patch.object(cuda_profile, "Profiler", FoldingProfiler),
    ):
        return profiling.profile(
            path,
            profiling.ProfileOptions(devices=devices, repeats=repeats),
            driver=FillingDriver(bindings(), block),
        )


def together(path: str, devices: str, block: Bytes, lock: Path) -> dict[int, float | None]:
    """By SMs what a trace takes on a slice while the rest of the GPU is busy with it, too."""
    driver = open_driver(FillingDriver(bindings(), block))
    options = profiling.ProfileOptions(devices=devices)
    with mock.patch.object(benches, "open_contents", return_value=Filled(block)):
        bench = profiling.bench_of(load(path), path, options, driver)
    with open(lock, "w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        with profiling.open_contexts(driver, (0,)):
            return {entry.sms or 0: bench.together(entry, 0) for entry in parse_gpus(devices)}


# --- serve -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A plan ready to be opened: its replicas, and what stands for its devices.

    `turns` is the order of traces in which requests come, over and over; a unit of work is one
    round of it.
    """

    name: str
    replicas: tuple[LoweredReplica, ...]
    traces: tuple[tuple[ServedTrace, ...], ...]
    targets: Mapping[str, str]
    turns: tuple[int, ...] = (0,)
    graphs: bool = True
    depth: int | None = None


class Served:
    """A plan on the GPU."""

    def __init__(
        self, prepared: Prepared, block: Bytes, arena: Arena | None, module: Any = None
    ) -> None:
        self.prepared = prepared
        self.backends: list[CudaBackend] = []
        self.dispatchers: list[Dispatcher] = []
        driver = FillingDriver(module or bindings(), block, arena)
        options = BackendOptions(targets=prepared.targets, timeline=False)
        filled = Filled(block)
        for lowered, traces in zip(prepared.replicas, prepared.traces, strict=True):
            given = [
                {b.name: filled.source(b) for b in trace.program.buffers if b.role in _FILLED}
                for trace in traces
            ]
            every = {name: content for one in given for name, content in one.items()}
            model = Model(
                lowered=lowered,
                traces=traces,
                weights=every,
                states=(every,) * lowered.lanes,
                fillings=tuple({} for _ in traces),
            )
            cuda = CudaOptions(graphs=prepared.graphs, depth=prepared.depth)
            backend = CudaBackend(model, options, cuda=cuda, driver=driver)
            self.backends.append(backend)
            self.dispatchers.append(
                Dispatcher(backend, slots=lowered.slots, lanes=lowered.lanes, limit_s=20.0)
            )
        self.inputs = [
            {b.name: filled.read(b) for b in trace.program.buffers if b.role is Role.INPUT}
            for trace in prepared.traces[0]
        ]

    def refill(self) -> None:
        """Weights and states as at the start."""
        for backend in self.backends:
            backend.driver.use(next(iter(backend.replica.devices.values())).context)
            backend.replica.contents.write_all()
        self.backends[0].driver.finish()

    def period_ns(self, seconds: float) -> float:
        """Nanoseconds per round of requests, all slots of all replicas kept busy for so long."""
        turns = len(self.prepared.turns)
        ends: list[list[tuple[float, int]]] = [[] for _ in self.dispatchers]
        over = threading.Event()
        with ThreadPoolExecutor(len(ends)) as pool:
            feeding = [pool.submit(self.keep_busy, i, one, over) for i, one in enumerate(ends)]

            def wait(least: Sequence[int], until: float) -> float:
                while time.perf_counter() < until or any(
                    len(one) < count for one, count in zip(ends, least, strict=True)
                ):
                    if any(one.done() for one in feeding):
                        break
                    time.sleep(0.002)
                return time.perf_counter()

            begun = wait([2 * one.capacity * turns for one in self.dispatchers], 0.0)
            ended = wait([len(one) + 4 * turns for one in ends], begun + seconds)
            over.set()
        for one in feeding:
            one.result()
        return 1e9 * turns / sum(rate_between([at for at, _ in one], begun, ended) for one in ends)

    def keep_busy(self, index: int, ends: list[tuple[float, int]], over: threading.Event) -> None:
        """Requests one after the other until it is over; when each ended, and what it took in ns.

        One thread hands over and takes results, which it does not keep: their memory is used again.
        """
        dispatcher, lowered = self.dispatchers[index], self.prepared.replicas[index]
        turns = itertools.cycle(self.prepared.turns)
        handles: deque[Any] = deque()

        def take() -> None:
            result = handles.popleft().result()
            ends.append((result.ended_ns * 1e-9, result.ended_ns - result.started_ns))

        for number in itertools.count():
            if over.is_set():
                break
            trace = next(turns)
            handles.append(
                dispatcher.submit(self.inputs[trace], trace=trace, lane=number % lowered.lanes)
            )
            while handles and handles[0].done():
                take()
        while handles:
            take()

    def close(self) -> None:
        for dispatcher in self.dispatchers:
            dispatcher.close()


def rate_between(ends: Sequence[float], begun: float, ended: float) -> float:
    """Requests per second in a window: the slope of how many have ended over time.

    Requests of several slots may end in bunches, so from the first end to the last would be wrong
    by a bunch.
    """
    kept = [one for one in ends if begun <= one <= ended]
    if len(kept) < 3 or kept[0] == kept[-1]:
        raise RuntimeError(f"only {len(kept)} requests ended in {ended - begun:.2f} s")
    times = np.asarray(kept) - kept[0]
    return float(np.polyfit(times, np.arange(len(kept)), 1)[0])


class Replayed:
    """The steps of a plan on one device as one plain graph, replayed without a host in between."""

    def __init__(self, served: Served) -> None:
        (backend,) = served.backends
        self.driver = backend.driver
        self.context = next(iter(backend.replica.devices.values())).context
        self.driver.use(self.context)
        writer = Enqueuer(
            backend.replica.parts,
            0,
            0,
            0,
            backend.replica.buffers[0, 0],
            backend.replica.stamps[0, 0],
        )
        tape, device, queue = writer.write(backend.replica.orders[0], (), tell=False)
        self.stream = backend.replica.streams.stream(device, 0, queue)
        self.driver.begin_capture(self.stream)
        tape.play(self.driver)
        self.graph = self.driver.end_capture(self.stream)
        self.events = [self.driver.event(timed=True) for _ in range(2)]

    def period_ns(self, seconds: float) -> float:
        """Nanoseconds per replay."""
        self.driver.use(self.context)
        once = max(self._run(2), 1.0)
        return self._run(min(max(8, int(seconds * 1e9 / once)), MOST_REPLAYS))

    def _run(self, count: int) -> float:
        self.driver.record(self.events[0], self.stream)
        for _ in range(count):
            self.driver.launch_graph(self.graph, self.stream)
        self.driver.record(self.events[1], self.stream)
        self.driver.call("cuStreamSynchronize", self.stream)
        return float(self.driver.elapsed_ns(*self.events)) / count


def measure(
    prepared: Sequence[Prepared],
    arena_bytes: int,
    *,
    seconds: tuple[float, float],
    repeats: int,
    keep: Callable[[Mapping[str, Sequence[float]]], Mapping[str, str]],
    on_row: Callable[[str, list[float]], None],
    deadline: float,
    module: Any = None,
) -> tuple[dict[str, list[float]], dict[str, list[Sample]]]:
    """Periods of plans in turns: all once for a short time, then those that `keep` chooses.

    With them MHz and watts, the short time first. The plan named `serial` is replayed as a plain
    graph. What cannot be opened or fails is left out, and said. `deadline` is a time of the
    monotonic clock after which nothing more begins.
    """
    block = random_block()
    # As the backend does, which says how many hardware queues there are before the driver starts.
    first = FillingDriver(module or bindings(), block)
    open_driver(first)
    context = first.retain(0)
    first.use(context)
    arena = Arena(first.allocate(arena_bytes), arena_bytes)
    ways: dict[str, tuple[Served, Served | Replayed]] = {}
    clocks: dict[str, list[Sample]] = {}

    def once(name: str, length: float) -> list[float]:
        if name not in ways or time.monotonic() > deadline:
            return []
        served, way = ways[name]
        try:
            served.refill()
            with ClockWatch() as watch:
                found = [way.period_ns(length)]
            clocks.setdefault(name, []).append((watch.mhz, watch.watts))
            return found
        except Exception as problem:
            on_row(f"{name}: {type(problem).__name__}: {problem}"[:300], [])
            del ways[name]
            return []

    tried: dict[str, list[float]] = {}
    for one in prepared:
        try:
            served = Served(one, block, arena, module)
            ways[one.name] = served, Replayed(served) if one.name == "serial" else served
        except Exception as problem:
            on_row(f"{one.name}: {type(problem).__name__}: {problem}"[:300], [])
        tried[one.name] = once(one.name, seconds[0])
    for name, periods in tried.items():
        on_row(f"{name} (short)", periods)
    found: dict[str, list[float]] = {name: [] for name in keep(tried).values()}
    for _ in range(repeats):
        for name in found:
            found[name] += once(name, seconds[1])
    for name, periods in found.items():
        on_row(name, periods)
    for served, _ in ways.values():
        served.close()
    first.use(context)
    first.free(arena.base)
    return {f"{name} (short)": periods for name, periods in tried.items()} | found, clocks
