"""The CUDA backend: requests as CUDA graphs that span all devices of a replica.

In: a model and options. Out: the `Backend` protocol of `backend.service`. Everything is loaded,
allocated and captured while it starts. To begin a request is then: inputs into pinned memory, one
graph launch. The graph ends by setting a word in pinned memory and waking the thread that collects.
Where graphs are off (or a trace calls library operators, which do not promise to be capturable)
the same calls are made one by one. No call in the steady state waits for a GPU.

A fault of a kernel takes the context with it. Outputs of finished requests are host memory by
then. Which launch it was is known from a trail of host words that the compute streams write before
every step; graphs leave the trail out unless asked for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tessera.backend.cuda.api import Bytes, Driver, DriverError, Handle
from tessera.backend.cuda.contents import Contents
from tessera.backend.cuda.enqueue import Enqueuer, Parts, step_name
from tessera.backend.cuda.faults import run_fault
from tessera.backend.cuda.helpers import Helpers
from tessera.backend.cuda.host_memory import HostMemory, Recycled, SlotBuffers
from tessera.backend.cuda.issue_order import Action, Do, Move, issue_order
from tessera.backend.cuda.links import Links
from tessera.backend.cuda.memory import Memory
from tessera.backend.cuda.modules import DeviceModules, module_of_variable, steps_on
from tessera.backend.cuda.streams import Streams
from tessera.backend.cuda.tape import Refused, Tape
from tessera.backend.cuda.targets import close_devices, open_devices, open_driver
from tessera.backend.cuda.timing import Clock, Stamps, Timed, Words
from tessera.backend.cuda.wakeup import Wakeup
from tessera.backend.service import (
    RUN_FAULT,
    BackendOptions,
    Completion,
    Model,
    Request,
    ServiceFault,
)
from tessera.diagnostics import TesseraError, error
from tessera.ir.launch_program import AreaKind, Run
from tessera.ir.program import BufferId, Launch, LaunchId, LibraryCall, Work, for_arch
from tessera.settings import read_settings

MOST_GRAPHS = 256
_END_S = 2.0
# What says that a call cannot be captured: requests then run call by call.
_NO_CAPTURE = ("CUDA_ERROR_STREAM_CAPTURE", "CUDA_ERROR_NOT_SUPPORTED")
# A fault wakes nobody: so often it is looked for.
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaOptions:
    """What only the CUDA backend knows.

    `guard_bytes`: guards round places, for tests. `trail`: write which step runs; None is only
    without graphs. `peers` off: copies between GPUs go through the host even where they need not.
    """

    graphs: bool = True
    guard_bytes: int = 0
    trail: bool | None = None
    peers: bool = True


@dataclass(slots=True)
class _Ready:
    """A trace in a slot and lane, ready to be begun."""

    tape: Tape
    graph: Handle | None
    stream: Handle
    context: Handle
    buffers: SlotBuffers
    timed: tuple[Timed, ...]
    stamps: Words


@dataclass(slots=True)
class _Flight:
    """A request under way."""

    request: Request
    ready: _Ready
    started_ns: int


@dataclass(slots=True)
class _Trail:
    """Words of pinned memory, by slot and device."""

    words: dict[tuple[int, str], int] = field(default_factory=dict)
    views: dict[tuple[int, str], Bytes] = field(default_factory=dict)


class CudaBackend:
    """One replica on GPUs and slices of GPUs."""

    def __init__(
        self,
        model: Model,
        options: BackendOptions,
        *,
        cuda: CudaOptions | None = None,
        driver: Driver | None = None,
    ) -> None:
        self.model = model
        self.options = options
        self.cuda = cuda or CudaOptions(graphs=read_settings().use_graphs)
        self.driver = open_driver(driver)
        self._lock = threading.Lock()
        self._wakeup = Wakeup()
        self._flights: list[_Flight] = []
        self._last_ns = time.perf_counter_ns()
        self._closed = False
        self._trail_seen: tuple[bytes, ...] = ()
        self._ready: dict[tuple[int, int, int], _Ready] = {}
        lowered = model.lowered
        opened = open_devices(self.driver, lowered.devices, options.targets)
        self.devices = {device.name: device for device in opened}
        self._arches = self._module_arches()
        self._host = HostMemory(self.driver)
        self._recycled = Recycled()
        self._ones: dict[int, int] = {}
        self._streams = Streams(self.driver, self.devices)
        self._helpers = Helpers(self.driver, self.devices)
        self._modules = {d.name: DeviceModules(self.driver, d) for d in opened}
        self._links: Links | None = None
        self.memory: Memory | None = None
        try:
            self._start()
        except DriverError as problem:
            self.close()
            raise run_fault(problem) from None
        except BaseException:
            self.close()
            raise

    # --- starting ----------------------------------------------------------------------------

    def _start(self) -> None:
        lowered = self.model.lowered
        self._check_limits()
        self._load_modules()
        programs = [served.program for served in self.model.traces]
        self.memory = Memory(
            self.driver, lowered, programs, self.devices, self._variable_address,
            self.cuda.guard_bytes,
        )  # fmt: skip
        self._contents = Contents(self.driver, self.model, self.devices, self.memory)
        self._contents.write_all()
        self._links = Links(
            self.driver, self.devices, self._streams, self._host, self._helpers,
            throttle_bytes_per_s=self.options.throttle_bytes_per_s, allow_peers=self.cuda.peers,
        )  # fmt: skip
        self._clock = Clock(self.driver, self._streams, self.devices, self._helpers, self._host)
        self._trail = self._make_trail()
        self._make_done_words()
        self._parts = Parts(
            driver=self.driver, model=self.model, devices=self.devices, memory=self.memory,
            modules=self._modules, streams=self._streams, links=self._links,
            helpers=self._helpers,
            fillings=self._pinned_fillings(), trails=self._trail.words,
            done_words=dict(enumerate(self._done_words)), ones=self._ones, wake=self._wake(),
            timeline=self.options.timeline,
        )  # fmt: skip
        self._orders = {trace.trace: issue_order(trace) for trace in lowered.traces}
        self._buffers = {
            (trace.trace, slot): SlotBuffers(self._host, self._recycled, self.model, trace)
            for trace in lowered.traces
            for slot in range(lowered.slots)
        }
        self._stamps = {
            (trace, slot): Stamps(self._host, 2 * len(order) if self.options.timeline else 1)
            for trace, order in self._orders.items()
            for slot in range(lowered.slots)
        }
        self._of_lanes = {place.trace for place in lowered.places if place.kind is AreaKind.LANE}
        wanted = [
            (trace.trace, slot, lane)
            for trace in lowered.traces
            for slot in range(lowered.slots)
            for lane in range(lowered.lanes if trace.trace in self._of_lanes else 1)
        ]
        for key in wanted[:MOST_GRAPHS]:
            self._prepare(*key)
        for device in self.devices.values():
            self.driver.use(device.context)
            self.driver.finish()

    def _check_limits(self) -> None:
        for device, limit in self.options.memory_bytes.items():
            if device not in self.devices:
                continue
            needed = self.model.lowered.memory_bytes(device)
            if needed > limit:
                found = error(
                    "TSR5102",
                    f"device `{device}` may use {limit} bytes, and the plan needs {needed} bytes",
                )
                raise TesseraError(found, RUN_FAULT)

    def _module_arches(self) -> dict[tuple[int, str, int], str]:
        """Which variant of a module a device runs, by trace, device and module."""
        found: dict[tuple[int, str, int], str] = {}
        for device in self.devices:
            for trace, step, arch in steps_on(self.model, device):
                if isinstance(step, Launch):
                    found[trace, device, int(step.module)] = arch
        return found

    def _load_modules(self) -> None:
        for name, device in self.devices.items():
            self.driver.use(device.context)
            for trace, step, arch in steps_on(self.model, name):
                if isinstance(step, Launch):
                    module = self.model.traces[trace].program.modules[step.module]
                    self._modules[name].load(trace, module, arch)

    def _variable_address(self, trace: int, device: str, buffer: BufferId) -> int:
        program = self.model.traces[trace].program
        module, symbol = module_of_variable(program, program.buffers[buffer].name)
        arch = self._arches.get((trace, device, int(module.id)), module.variants[0].arch)
        self.driver.use(self.devices[device].context)
        return self._modules[device].variable(trace, module, arch, symbol)

    def _pinned_fillings(self) -> dict[tuple[int, BufferId], int]:
        return {
            (trace, buffer.id): self._host.copy_of(self.model.fillings[trace][buffer.name])
            for trace, served in enumerate(self.model.traces)
            for buffer in served.program.buffers
            if buffer.name in self.model.fillings[trace]
        }

    def _make_trail(self) -> _Trail:
        wanted = self.cuda.trail if self.cuda.trail is not None else not self.cuda.graphs
        trail = _Trail()
        if wanted:
            for slot in range(self.model.lowered.slots):
                for device in self.devices:
                    address, view = self._host.allocate(4)
                    view[:] = 0
                    trail.words[slot, device], trail.views[slot, device] = address, view
        return trail

    def _make_done_words(self) -> None:
        """A pinned word per slot, and on every GPU a word that holds a 1."""
        made = [self._host.allocate(4) for _ in range(self.model.lowered.slots)]
        self._done_words = [address for address, _ in made]
        self._done = [view.view(np.uint32) for _, view in made]
        for device in self.devices.values():
            if device.gpu.ordinal not in self._ones:
                self.driver.use(device.context)
                self._ones[device.gpu.ordinal] = self.driver.allocate(4)
                one = np.array([1, 0, 0, 0], np.uint8)
                self.driver.upload(self._ones[device.gpu.ordinal], one)

    def _wake(self) -> tuple[int, int] | None:
        if not self._wakeup.function:
            return None
        return self._wakeup.function, self._wakeup.data

    def _prepare(self, trace: int, slot: int, lane: int) -> _Ready:
        """The tape, and the graph captured from it, of a trace in a slot and lane."""
        buffers = self._buffers[trace, slot]
        stamps = self._stamps[trace, slot]
        writer = Enqueuer(self._parts, trace, slot, lane, buffers, stamps)
        prologue = self._contents.prologue(self._host, trace, slot, lane)
        try:
            tape, root, queue = writer.write(self._orders[trace], prologue)
            stream = self._streams.stream(root, slot, queue)
            graph = self._capture(tape, stream, root) if self._may_capture(trace) else None
        except Refused as refused:
            raise self._refused(refused, trace) from None
        ready = _Ready(
            tape=tape if graph is None else Tape(),
            graph=graph,
            stream=stream,
            context=self.devices[root].context,
            buffers=buffers,
            timed=tuple(writer.timed),
            stamps=stamps.words,
        )
        self._ready[trace, slot, lane] = ready
        return ready

    def _may_capture(self, trace: int) -> bool:
        work = self.model.traces[trace].program.work()
        return self.cuda.graphs and not any(isinstance(step, LibraryCall) for step in work)

    def _capture(self, tape: Tape, stream: Handle, root: str) -> Handle | None:
        """The tape as a graph; None where the driver cannot capture what is on it."""
        self.driver.use(self.devices[root].context)
        self.driver.begin_capture(stream)
        try:
            tape.play(self.driver)
            self.driver.use(self.devices[root].context)
            graph = self.driver.end_capture(stream)
        except (Refused, DriverError) as failure:
            # What was captured is of no use; ending the capture frees the streams.
            self.driver.cu.cuStreamEndCapture(stream)
            problem = failure.problem if isinstance(failure, Refused) else failure
            if problem.name.startswith(_NO_CAPTURE):
                return None
            raise
        self.driver.upload_graph(graph, stream)
        return graph

    # --- the steady state ---------------------------------------------------------------------

    def begin(self, request: Request) -> None:
        """Start a request."""
        lane = request.lane if request.trace in self._of_lanes else 0
        key = (request.trace, request.slot, lane)
        started = time.perf_counter_ns()
        try:
            ready = self._ready.get(key) or self._prepare(*key)
            ready.buffers.put(request.inputs)
            self._done[request.slot][0] = 0
            self.driver.push(ready.context)
            try:
                self._hand_over(ready, request.slot)
            finally:
                self.driver.pop()
        except Refused as refused:
            raise self._refused(refused, request.trace, request.number) from None
        except DriverError as problem:
            raise self._fault(problem) from None
        with self._lock:
            self._flights.append(_Flight(request, ready, started))
            self._last_ns = started

    def _hand_over(self, ready: _Ready, slot: int) -> None:
        if ready.graph is not None:
            self.driver.launch_graph(ready.graph, ready.stream)
            return
        for device in self.devices if self._trail.views else ():
            self._trail.views[slot, device][:] = 0
        ready.tape.play(self.driver)

    def collect(self, timeout_s: float) -> tuple[Completion, ...]:
        """Requests that have become done; waits for one at most that long."""
        limit = time.perf_counter() + timeout_s
        while True:
            found = self._finished()
            left = limit - time.perf_counter()
            if found or left <= 0:
                return found
            if not self._wakeup.wait(min(left, _LOOK_S)):
                self._look_for_faults()

    def _finished(self) -> tuple[Completion, ...]:
        with self._lock:
            done = [one for one in self._flights if self._done[one.request.slot][0]]
            if not done:
                return ()
            self._flights = [one for one in self._flights if one not in done]
            self._last_ns = time.perf_counter_ns()
        return tuple(self._completion(flight) for flight in done)

    def _look_for_faults(self) -> None:
        """Nothing wakes the host after a fault: ask the streams."""
        with self._lock:
            flights = tuple(self._flights)
        try:
            for flight in flights:
                self.driver.use(flight.ready.context)
                self.driver.is_idle(flight.ready.stream)
        except DriverError as problem:
            raise self._fault(problem) from None

    def _completion(self, flight: _Flight) -> Completion:
        request = flight.request
        ready = flight.ready
        events = self._clock.events(
            ready.timed, ready.stamps, slot=request.slot, request=request.number
        )
        return Completion(
            request=request.number,
            outputs=ready.buffers.take(),
            started_ns=flight.started_ns,
            ended_ns=time.perf_counter_ns(),
            events=events,
        )

    def idle_s(self) -> float:
        """Seconds since a request was begun or done, or the trail moved where there is one."""
        seen = tuple(view.tobytes() for view in self._trail.views.values())
        if seen != self._trail_seen:
            self._trail_seen, self._last_ns = seen, time.perf_counter_ns()
        return (time.perf_counter_ns() - self._last_ns) / 1e9

    def read_states(self, lane: int) -> Mapping[str, Bytes]:
        """The states of a lane in which no request runs."""
        try:
            self.driver.push(next(iter(self.devices.values())).context)
            try:
                return self._contents.read_states(lane)
            finally:
                self.driver.pop()
        except DriverError as problem:
            raise self._fault(problem) from None

    # --- errors -------------------------------------------------------------------------------

    def stalled(self) -> ServiceFault:
        """What the requests that are under way wait for."""
        running = self._running()
        names = ", ".join(f"request {f.request.number}" for f in self._flights)
        notes = tuple(f"`{d}` runs step #{s.id} `{step_name(s)}`" for _, d, s in running)
        found = error(
            "TSR5052", f"nothing has happened on the GPUs for {self.idle_s():.1f} s",
            notes=(f"under way: {names}", *notes),
            hint="a kernel that never ends, or a limit that is too short for this plan",
        )  # fmt: skip
        return ServiceFault(found)

    def _running(self) -> list[tuple[Request, str, Work]]:
        """Steps that had begun, by the trail; the last of each device and request."""
        found = []
        for flight in self._flights:
            work = tuple(self.model.traces[flight.request.trace].program.work())
            for device in self.devices if self._trail.views else ():
                view = self._trail.views[flight.request.slot, device]
                number = int.from_bytes(view.tobytes(), "little")
                if number:
                    found.append((flight.request, device, work[number - 1]))
        return found

    def _fault(self, problem: DriverError) -> ServiceFault:
        running = self._running()
        requests = [flight.request.number for flight in self._flights]
        if len(running) == 1:
            request, device, step = running[0]
            return run_fault(
                problem, device=device, request=request.number, step=step.id,
                name=step_name(step), span=step.span,
            )  # fmt: skip
        notes = tuple(
            f"device `{d}` was in request {r.number}, step #{s.id} `{step_name(s)}`"
            for r, d, s in running
        )
        if not running:
            notes = (
                "a graph does not say which launch it was; with `TESSERA_NO_GRAPHS=1` it is known",
            )
        if len(requests) > 1:
            notes = (f"under way: requests {', '.join(map(str, requests))}", *notes)
        one = requests[0] if len(requests) == 1 else None
        only = next(iter(self.devices)) if len(self.devices) == 1 else None
        return run_fault(problem, device=only, request=one, notes=notes)

    def _refused(self, refused: Refused, trace: int, request: int | None = None) -> ServiceFault:
        """The driver does not take a launch or a copy."""
        work = tuple(self.model.traces[trace].program.work())
        device, step = _place_of(refused.action, work)
        if step is None:
            return run_fault(refused.problem, device=device, request=request)
        size = _sizes(step, self.model.traces[trace].arches[step.id])
        found = error(
            "TSR5108",
            f"the driver refuses the launch of `{step_name(step)}`: {refused.problem.name}",
            step.span,
            notes=(size,) if size else (),
        )
        return ServiceFault(
            found, device=device, request=request, step=LaunchId(step.id), name=step_name(step)
        )

    # --- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop and give everything back; what a GPU never finishes is left to the process's end."""
        if self._closed:
            return
        self._closed = True
        if not self._is_quiet():
            self._wakeup.abandon()
            return
        closers = [self._close_graphs, self._free_ones, self._streams.close]
        closers += [self._links.close] if self._links is not None else []
        closers += [self._helpers.close]
        closers += [self.memory.close] if self.memory is not None else []
        closers += [modules.close for modules in self._modules.values()]
        closers += [self._host.close]
        closers += [lambda: close_devices(self.driver, tuple(self.devices.values()))]
        for closer in closers:
            try:
                closer()
            except DriverError:
                continue  # after a fault every call fails; the context's end frees all

    def _close_graphs(self) -> None:
        for ready in self._ready.values():
            if ready.graph is not None:
                self.driver.destroy_graph(ready.graph)
        self._ready.clear()

    def _free_ones(self) -> None:
        for device in self.devices.values():
            address = self._ones.pop(device.gpu.ordinal, None)
            if address is not None:
                self.driver.use(device.context)
                self.driver.free(address)

    def _is_quiet(self) -> bool:
        """Whether all work has ended, or ends soon; freeing memory would wait for it."""
        limit = time.perf_counter() + _END_S
        while True:
            try:
                if all(self.driver.is_idle(flight.ready.stream) for flight in self._flights):
                    return True
            except DriverError:
                return True
            if time.perf_counter() > limit:
                return False
            time.sleep(1e-3)


def _place_of(action: Action | None, work: tuple[Work, ...]) -> tuple[str | None, Work | None]:
    match action:
        case Do(device, Run(step)):
            return device, work[step]
        case Do(device, _):
            return device, None
        case Move(transfer):
            return transfer.source, None
        case None:
            return None, None
        case _:
            return action.device, None


def _sizes(step: Work, arch: str) -> str:
    if not isinstance(step, Launch):
        return ""
    launch = for_arch(step, arch)
    grid, block = (",".join(map(str, size)) for size in (launch.grid, launch.block))
    text = f"grid {grid}, block {block}, {launch.shared_bytes} bytes of dynamic shared memory"
    if launch.cluster is not None:
        text += f", cluster {','.join(map(str, launch.cluster))}"
    return text + (", cooperative" if launch.cooperative else "")
