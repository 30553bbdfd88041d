"""Measures the duration of each step of a trace on a GPU or a slice of a GPU.

In: a `CudaBackend` that has the whole trace on its first device; a second device, if there is one,
is the rest of the GPU. Out: times of every step, and of transfers by size.

Steps are taken in the order of a request, with its inputs in place. Each step is timed warm (many
launches in a row in a graph, so that data that fits stays in L2) and cold (after L2 was filled with
other data). With a neighbour, both are timed again beside work that only computes, and beside work
that only moves memory. Buffers that a step both reads and writes are restored between measurements,
and the step runs once at the end, so that the next step finds its usual inputs. Steps that differ
only in the places of their buffers (`alike`) are measured once; the others only run once.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tessera.backend.cuda.api import Bytes, Driver, DriverError, Handle
from tessera.backend.cuda.backend import CudaBackend
from tessera.backend.cuda.enqueue import Enqueuer
from tessera.backend.cuda.issue_order import Action, Do, Hold, Move
from tessera.backend.cuda.measure.alike import step_keys
from tessera.backend.cuda.measure.neighbours import Load, Neighbours
from tessera.backend.cuda.measure.stopwatch import Held, Stopwatch
from tessera.backend.cuda.measure.times import DeviceTimes, StepTimes, TimePair, TransferTime
from tessera.backend.cuda.queued_work import step_name
from tessera.backend.cuda.tape import Refused, Tape
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.launch_program import HOST, AreaKind, Queue, Run
from tessera.ir.program.program import LaunchId, LibraryCall, Work

REPEATS = 9
_TARGET_NS = 200_000
_MOST_LAUNCHES = 64
_FLUSH_BYTES = 256 << 20
_WARM_UP_NS = 200_000_000
# How many times longer than alone a measurement may take beside a neighbour, tried in turn.
_PATIENCE = (3, 9, 27)
_LEAST_BUSY_NS = 1_000_000
_MOST_BUSY_NS = 2_000_000_000
_SIZES = tuple(1 << n for n in range(12, 29, 2))
_UNTIMED = 2
_MOST_PAUSE_NS = 50_000_000
_PAUSE_NS = 100_000


@dataclass(frozen=True, slots=True)
class _Repeated:
    """A step, `launches` times in a row; `restore` puts back the memory that it changes.

    Without a graph, the stream is held up for `pause_ns` while the host hands over the launches:
    otherwise the host would be timed.
    """

    run: Callable[[], None]
    launches: int
    restore: Callable[[], None]
    pause_ns: int = 0


class Profiler:
    """Measures on one backend. `inputs` are those of the request whose steps are measured."""

    def __init__(
        self,
        backend: CudaBackend,
        graph: KernelGraph,
        inputs: Mapping[str, Bytes],
        *,
        repeats: int = REPEATS,
        limit_s: float,
    ) -> None:
        self.backend = backend
        self.graph = graph
        self.driver: Driver = backend.driver
        self.repeats = repeats
        names = tuple(backend.replica.devices)
        self.device = names[0]
        self.beside = backend.replica.devices[names[1]] if len(names) > 1 else None
        self.work: tuple[Work, ...] = tuple(backend.model.traces[0].program.work())
        self.stream = backend.replica.streams.stream(self.device, 0, Queue.COMPUTE)
        self.driver.use(backend.replica.devices[self.device].context)
        self.watch = Stopwatch(self.driver, limit_s)
        self.ended = self.driver.event()
        self.neighbours = Neighbours(self.driver, moves=self.beside is not None)
        self.flush = self.driver.allocate(_FLUSH_BYTES)
        backend.replica.buffers[0, 0].put(inputs)

    def close(self) -> None:
        """Free memory and events, unless work is still running."""
        if self.watch.is_stuck:
            return
        self.driver.use(self.backend.replica.devices[self.device].context)
        self.watch.close()
        self.driver.destroy_event(self.ended)
        self.neighbours.close()
        self.driver.free(self.flush)

    def measure(self, on_step: Callable[[int, int], None] | None = None) -> DeviceTimes:
        """Time everything; `on_step` gets the number of steps done and the number of all steps."""
        device = self.backend.replica.devices[self.device]
        clock = self._warm_up()
        steps = []
        for step in self._steps():
            steps.append(step)
            if on_step is not None:
                on_step(len(steps), len(self.work))
        self.watch.what = "the whole trace"
        return DeviceTimes(
            sms=device.sms,
            clock_mhz=clock,
            whole_ns=self._whole_ns(),
            steps=tuple(sorted(steps, key=lambda timed: timed.step)),
            transfers=tuple(self._transfers()),
        )

    def measure_steps(self, numbers: Container[int]) -> Iterator[StepTimes]:
        """Time these steps; all other steps only run."""
        self._warm_up()
        return self._steps(numbers)

    def _warm_up(self) -> int:
        """Keep the device busy for a while; returns the clock of its SMs after that, in MHz."""
        device = self.backend.replica.devices[self.device]
        self.neighbours.start(Load.COMPUTE, _WARM_UP_NS, device.sms, self.stream)
        self.neighbours.start_clock(self.stream)
        self.watch.finish(self.stream)
        clock = self.neighbours.clock_mhz()
        self._overhead_ns = self._measure_overhead()
        return clock

    # --- the whole trace ----------------------------------------------------------------------

    def _whole_ns(self) -> float:
        """The median time of all steps in a row; states are restored in between."""
        order = self.backend.replica.orders[0]
        moves = [action for action in order if _is_input(action)]
        held = [
            i
            for i, action in enumerate(order)
            if isinstance(action, Hold) and action.queue is Queue.IN
        ]
        # An input that has to wait until its place is free is part of the timed work.
        early = not held or all(order.index(action) < held[0] for action in moves)
        timed = [action for action in order if isinstance(action, Do)] if early else list(order)
        bring = self._tape(moves if early else (), prologue=True)
        tape, stream = self._tape(timed)
        graph = self._captured(tape, stream, 1)
        states = Held(self.driver, self.stream, self._states())
        times = []
        try:
            self._play(*bring)
            run, pause_ns = self._runner(tape, stream, graph, 1)
            for _ in range(_UNTIMED + self.repeats):
                states.restore()
                self._play(*bring)
                # Without the pause, the time to launch the graph would count.
                self.neighbours.pause(max(pause_ns, _PAUSE_NS), stream)
                times.append(self.watch.time(run, stream))
            states.restore()
        finally:
            self._release(graph, states)
        return statistics.median(times[_UNTIMED:])

    def _states(self) -> list[tuple[int, int]]:
        memory = self.backend.replica.memory
        assert memory is not None
        return [
            (block.base, block.stride * block.area.count)
            for (device, kind), block in memory.blocks.items()
            if device == self.device and kind is AreaKind.LANE
        ]

    # --- steps ------------------------------------------------------------------------------

    def _steps(self, numbers: Container[int] | None = None) -> Iterator[StepTimes]:
        """Run the actions of a request in an order that its queues allow; time these steps."""
        self._play(*self._tape((), prologue=True))
        served = self.backend.model.traces[0]
        keys = step_keys(served.program, self.graph, served.arches)
        known: dict[Hashable, StepTimes] = {}
        for action in self.backend.replica.orders[0]:
            match action:
                case Do(_, Run(number)):
                    self.watch.what = f"step #{number} `{step_name(self.work[number])}`"
                    is_wanted = numbers is None or number in numbers
                    if not is_wanted or keys[number] in known:
                        self._play(*self._tape([action]))
                    else:
                        known[keys[number]] = self._step(number)
                    if is_wanted:
                        yield replace(known[keys[number]], step=number)
                case _ if isinstance(action, Do) or _is_input(action):
                    self._play(*self._tape([action]))
                case _:
                    pass

    def _step(self, number: LaunchId) -> StepTimes:
        tape, stream = self._tape([Do(self.device, Run(number))])
        held = Held(self.driver, self.stream, self._changed(number))
        graph = None
        try:
            once = min(self._timed(lambda: tape.play(self.driver)) for _ in range(2))
            launches = int(min(max(_TARGET_NS // max(once, 1), 1), _MOST_LAUNCHES))
            graph = self._captured(tape, stream, launches)
            run, pause_ns = self._runner(tape, stream, graph, launches)
            work = _Repeated(run, launches, held.restore, pause_ns)
            begun = time.perf_counter()
            alone = self._pair(work, tape)
            seconds = time.perf_counter() - begun
            measure = partial(self._pair, work, tape)
            compute, memory = (self._beside(load, measure, seconds) for load in Load)
            held.restore()
            self._play(tape, stream)
        finally:
            self._release(graph, held)
        return StepTimes(step=number, alone=alone, beside_compute=compute, beside_memory=memory)

    def _changed(self, number: LaunchId) -> list[tuple[int, int]]:
        """Addresses and sizes of the buffers that a step both reads and writes."""
        memory = self.backend.replica.memory
        assert memory is not None
        accesses = self.graph.nodes[number].accesses
        reads = {access.buffer for access in accesses if access.kind.reads}
        writes = {access.buffer for access in accesses if access.kind.writes}
        return [
            (memory.address(0, self.device, buffer, 0, 0), self.graph.buffers[buffer].bytes)
            for buffer in sorted(reads & writes)
        ]

    def _pair(self, work: _Repeated, tape: Tape) -> TimePair:
        warm, spread = self._warm(work)
        work.restore()
        cold = self._cold(tape)
        return TimePair(warm_ns=warm, cold_ns=max(cold, warm), spread=spread)

    def _warm(self, work: _Repeated) -> tuple[float, float]:
        times = []
        for _ in range(self.repeats):
            work.restore()
            work.run()
            if work.pause_ns:
                self.neighbours.pause(work.pause_ns, self.stream)
            times.append(self._timed(work.run) / work.launches)
        middle = statistics.median(times)
        away = statistics.fmean(abs(duration - middle) for duration in times)
        return middle, away / middle if middle else 0.0

    def _cold(self, tape: Tape) -> float:
        """The time of single launches, less the overhead of timing a single launch."""
        return self._flushed(lambda: tape.play(self.driver)) - self._overhead_ns

    def _measure_overhead(self) -> float:
        """How much longer the shortest launch takes alone than in a row, in nanoseconds."""
        launches = _MOST_LAUNCHES
        self.driver.begin_capture(self.stream)
        for _ in range(launches):
            self.neighbours.pause(0, self.stream)
        graph = self.driver.end_capture(self.stream)
        run = partial(self.driver.launch_graph, graph, self.stream)
        in_a_row = self._warm(_Repeated(run, launches, lambda: None))[0]
        self.driver.destroy_graph(graph)
        alone = self._flushed(lambda: self.neighbours.pause(0, self.stream))
        return max(alone - in_a_row, 0.0)

    def _flushed(self, work: Callable[[], None]) -> float:
        times = []
        for _ in range(self.repeats):
            self.driver.call("cuMemsetD8Async", self.flush, 0, _FLUSH_BYTES, self.stream)
            times.append(self._timed(work))
        return statistics.median(times)

    def _timed(self, work: Callable[[], None]) -> float:
        return self.watch.time(work, self.stream)

    def _beside(
        self, load: Load, measure: Callable[[], TimePair], seconds: float
    ) -> TimePair | None:
        """The times while the rest of the GPU is busy; None if its work always ended too early.

        `seconds` is the duration of the measurement alone.
        """
        if self.beside is None:
            return None
        stream = self.backend.replica.streams.stream(self.beside.name, 0, Queue.COMPUTE)
        for patience in _PATIENCE:
            wanted = int(patience * seconds * 1e9) + _LEAST_BUSY_NS
            self.neighbours.start(load, min(wanted, _MOST_BUSY_NS), self.beside.sms, stream)
            self.driver.record(self.ended, stream)
            pair = measure()
            was_busy = not self.driver.is_done(self.ended)
            self.watch.wait(self.ended)
            if was_busy:
                return pair
        return None

    # --- tapes ----------------------------------------------------------------------------------

    def _tape(self, actions: Sequence[Action], *, prologue: bool = False) -> tuple[Tape, Handle]:
        """The tape of some actions of the request, and the stream on which it begins and ends."""
        backend = self.backend
        first = backend.replica.contents.prologue(backend.replica.host, 0, 0, 0) if prologue else ()
        writer = Enqueuer(
            backend.replica.parts,
            0,
            0,
            0,
            backend.replica.buffers[0, 0],
            backend.replica.stamps[0, 0],
        )
        tape, device, queue = writer.write(actions, first, tell=False)
        if all(isinstance(action, Do) for action in actions):
            # A single queue needs no events, and they would be timed too.
            tape.calls = [call for call in tape.calls if call[0] != "cuEventRecord"]
        return tape, backend.replica.streams.stream(device, 0, queue)

    def _play(self, tape: Tape, stream: Handle) -> None:
        tape.play(self.driver)
        self.watch.finish(stream)

    def _captured(self, tape: Tape, stream: Handle, launches: int) -> Handle | None:
        """A graph of `launches` plays of the tape; None if a library call cannot be captured."""
        self.driver.begin_capture(stream)
        try:
            for _ in range(launches):
                tape.play(self.driver)
            return self.driver.end_capture(stream)
        except (Refused, DriverError):
            # The partial capture is discarded; ending it releases the stream.
            self.driver.cu.cuStreamEndCapture(stream)
            self.driver.captured = None
            if any(isinstance(step, LibraryCall) for step in self.work):
                return None
            raise

    def _runner(
        self, tape: Tape, stream: Handle, graph: Handle | None, launches: int
    ) -> tuple[Callable[[], None], int]:
        """A function that plays the tape `launches` times, and its host time without a graph."""
        if graph is not None:
            return partial(self.driver.launch_graph, graph, stream), 0

        def play() -> None:
            for _ in range(launches):
                tape.play(self.driver)

        begun = time.perf_counter()
        play()
        seconds = time.perf_counter() - begun
        self.watch.finish(stream)
        return play, min(int(2e9 * seconds), _MOST_PAUSE_NS)

    def _release(self, graph: Handle | None, held: Held) -> None:
        if self.watch.is_stuck:
            return
        if graph is not None:
            self.driver.destroy_graph(graph)
        held.close()

    # --- transfers ------------------------------------------------------------------------------

    def _transfers(self) -> Iterator[TransferTime]:
        """Times of copies between device memory and device or pinned host memory, by size."""
        self.watch.what = "a copy"
        largest = max(_SIZES)
        other = self.driver.allocate(largest)
        pinned = self.driver.allocate_host(largest)
        pairs = {"device": (self.flush, other), "in": (other, pinned), "out": (pinned, other)}
        try:
            for kind, (target, source) in pairs.items():
                for size in _SIZES:
                    yield TransferTime(kind=kind, bytes=size, ns=self._copy(target, source, size))
        finally:
            if not self.watch.is_stuck:
                self.driver.free(other)
                self.driver.free_host(pinned)

    def _copy(self, target: int, source: int, size: int) -> float:
        def once() -> None:
            self.driver.call("cuMemcpyAsync", target, source, size, self.stream)

        times = []
        for _ in range(_UNTIMED + self.repeats):
            self.neighbours.pause(_PAUSE_NS, self.stream)
            times.append(self._timed(once))
        return statistics.median(times[_UNTIMED:])


def _is_input(action: Action) -> bool:
    return isinstance(action, Move) and action.transfer.source == HOST
