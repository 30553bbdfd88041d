"""A replica on its GPUs: everything loaded, allocated and captured, ready to run.

In: a model and options. Out: a `ReadyTrace` per trace, stage and lane: a graph, or the calls that
would make one. `release` frees everything that a replica holds.

A stage is the host memory of one request under way: pinned inputs and outputs, a done word, and
words for stamps and the trail. Every slot has `depth` stages, so that requests queue up on the GPU,
where the next begins as soon as the previous one ends. Stages are numbered over all slots: stage
`s` belongs to slot `s % slots`. All stages of a slot share its device memory.

Longer than 400 lines because it contains everything that happens before the first request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tessera.backend.cuda.api import Driver, DriverError, Handle
from tessera.backend.cuda.contents import ReplicaContents
from tessera.backend.cuda.enqueue import Enqueuer, Parts
from tessera.backend.cuda.faults import run_fault
from tessera.backend.cuda.helpers import Helpers
from tessera.backend.cuda.host_memory import HostMemory, Recycled, SlotBuffers, staged_bytes
from tessera.backend.cuda.issue_order import step_priorities, steps_of
from tessera.backend.cuda.links import Links
from tessera.backend.cuda.memory import ReplicaMemory
from tessera.backend.cuda.modules import DeviceModules, module_of_variable, steps_on
from tessera.backend.cuda.options import CudaOptions
from tessera.backend.cuda.process_ways import order_of
from tessera.backend.cuda.streams import Streams
from tessera.backend.cuda.tape import Refused, Tape, refusal, with_graph_rows
from tessera.backend.cuda.tape_writer import Surroundings
from tessera.backend.cuda.targets import close_devices, open_devices, open_driver
from tessera.backend.cuda.timing import Clock, Stamps, Timed, Words
from tessera.backend.cuda.torch_ops import OperatorRefused
from tessera.backend.cuda.trail import Trail, TrailKind
from tessera.backend.service import BackendOptions, Model, ServiceFault
from tessera.diagnostics import ExitCode, TesseraError, error
from tessera.ir.plan.launch_program import AreaKind, Queue, meets_often
from tessera.ir.program.program import BufferId, Launch, Role
from tessera.settings import read_settings

MOST_GRAPHS = 256
LEAST_UNDER_WAY = 4  # two per slot, if graphs and pinned memory allow it
MOST_STAGED_BYTES = 1 << 30
# Errors of calls that cannot be captured; requests then run call by call.
_NO_CAPTURE = ("CUDA_ERROR_STREAM_CAPTURE", "CUDA_ERROR_NOT_SUPPORTED")
_EMPTY = (Role.TEMP, Role.OUTPUT)


class _Captured(Enum):
    """What is captured as a graph: a whole request, each row of work on a queue, or nothing."""

    WHOLE = "whole"
    ROWS = "rows"
    NOTHING = "nothing"


_TRAILS = {
    _Captured.WHOLE: TrailKind.MARKS,
    _Captured.ROWS: TrailKind.ROWS,
    _Captured.NOTHING: TrailKind.EXACT,
}


@dataclass(slots=True)
class ReadyTrace:
    """A trace in a stage and lane, ready to begin."""

    stage: int
    trail: TrailKind
    tape: Tape
    graph: Handle | None
    rows: Sequence[Handle]
    buffers: SlotBuffers
    timed: tuple[Timed, ...]
    stamps: Words
    gate: Handle | None


@dataclass(slots=True, kw_only=True)
class Root:
    """The stream on which the requests of a slot begin and end."""

    stream: Handle
    context: Handle


class CudaReplica:
    """Everything that one replica has on its GPUs."""

    def __init__(
        self, model: Model, options: BackendOptions, cuda: CudaOptions | None, driver: Driver | None
    ) -> None:
        self.model = model
        self.options = options
        self.cuda = cuda or CudaOptions(graphs=read_settings().use_graphs)
        self.driver = open_driver(driver)
        self.ready: dict[tuple[int, int, int, tuple[str, ...]], ReadyTrace] = {}
        opened = open_devices(self.driver, model.lowered.devices, options.targets)
        self.devices = {device.name: device for device in opened}
        self._arches = self._module_arches()
        self.host = HostMemory(self.driver)
        self._recycled = Recycled()
        self.streams = Streams(self.driver, self.devices)
        self.helpers = Helpers(self.driver, self.devices)
        self._modules = {d.name: DeviceModules(self.driver, d) for d in opened}
        self._links: Links | None = None
        self.memory: ReplicaMemory | None = None
        try:
            self._start()
        except DriverError as problem:
            self.release()
            raise run_fault(problem) from None
        except BaseException:
            self.release()
            raise

    def _start(self) -> None:
        self._check_limits()
        self._load_modules()
        self._fill_memory()
        self._find_order()
        stages, scratch = range(self.model.lowered.slots * self.depth), self._scratch()
        self._make_stages(stages, scratch)
        self._prepare_all(stages)
        scratch.clear()  # from now on requests may be under way
        for device in self.devices.values():
            self.driver.use(device.context)
            self.driver.finish()

    def _fill_memory(self) -> None:
        """Allocate and fill device memory, and make the links between devices."""
        programs = [served.program for served in self.model.traces]
        self.memory = memory = ReplicaMemory(
            self.driver,
            self.model.lowered,
            programs,
            self.devices,
            self._variable_address,
            self.cuda.guard_bytes,
            self.options,
        )
        self.contents = ReplicaContents(self.helpers, self.model, memory)
        self.contents.write_all()
        self._links = Links(
            self.driver,
            self.devices,
            self.streams,
            self.host,
            throttle_bytes_per_s=self.options.throttle_bytes_per_s,
            allow_peers=self.cuda.peers,
            ways=self.cuda.ways,
        )

    def _find_order(self) -> None:
        """Find the hand-over order, and the number of requests that a slot has under way."""
        lowered = self.model.lowered
        self.clock = Clock(self.driver, self.streams, self.devices, self.helpers, self.host)
        self.orders = {t.trace: order_of(t, self.cuda.ways) for t in lowered.traces}
        self._spans = {
            trace: sum(bool(steps_of(order, device)) for device in self.devices) > 1
            for trace, order in self.orders.items()
        }
        self._often = {t.trace: meets_often(t, lowered.slots) for t in lowered.traces}
        self.of_lanes = {place.trace for place in lowered.places if place.kind is AreaKind.LANE}
        self.depth = self._find_depth()

    def _make_stages(self, stages: range, scratch: dict[int, frozenset[BufferId]]) -> None:
        """Make the host memory of every stage, and the parts that all tapes share."""
        lowered = self.model.lowered
        assert self.memory is not None
        assert self._links is not None
        self.trail = self._make_trail(stages)
        done = [self.host.allocate(16) for _ in stages]
        self.done = [view.data.cast("I") for _, view in done]
        around = Surroundings(
            driver=self.driver,
            devices=self.devices,
            memory=self.memory,
            streams=self.streams,
            helpers=self.helpers,
            options=self.options,
        )
        self.parts = Parts(
            around=around,
            model=self.model,
            modules=self._modules,
            links=self._links,
            fillings=self._pinned_fillings(),
            trails=self.trail.words,
            done_words=[address for address, _ in done],
            priorities={trace: self._priorities(trace) for trace in self.orders},
            scratch=scratch,
        )
        self.buffers = {
            (trace.trace, stage): SlotBuffers(self.host, self._recycled, self.model, trace)
            for trace in lowered.traces
            for stage in stages
        }
        self.stamps = {
            (trace, stage): Stamps(self.host, 2 * len(order) if self.options.timeline else 1)
            for trace, order in self.orders.items()
            for stage in stages
        }
        self.roots = [self._root(slot) for slot in range(lowered.slots)]
        self._prologues: dict[tuple[int, int, int], list[tuple[str, int, int, int]]] = {}

    def _prepare_all(self, stages: range) -> None:
        """Prepare tapes and graphs for all stages and lanes, up to the limit on graphs."""
        wanted = [
            (trace.trace, stage, lane)
            for stage in stages
            for trace in self.model.lowered.traces
            for lane in range(self._lanes(trace.trace))
        ]
        for key in wanted[:MOST_GRAPHS]:
            self.prepare(*key)

    def _lanes(self, trace: int) -> int:
        """The number of lanes of a trace with states; otherwise 1."""
        return self.model.lowered.lanes if trace in self.of_lanes else 1

    def _find_depth(self) -> int:
        """As many requests per slot as keep the GPUs busy, if graphs and pinned memory allow it."""
        if self.cuda.depth is not None:
            return self.cuda.depth
        lowered = self.model.lowered
        graphs = lowered.slots * sum(self._lanes(trace.trace) for trace in lowered.traces)
        staged = lowered.slots * sum(
            staged_bytes(self.model.traces[trace.trace].program, trace) for trace in lowered.traces
        )
        wanted = max(2, -(-LEAST_UNDER_WAY // lowered.slots))
        return max(1, min(wanted, MOST_GRAPHS // graphs, MOST_STAGED_BYTES // max(staged, 1)))

    def _priorities(self, trace: int) -> dict[int, int]:
        """Priorities of steps; none for a single request, device or graph.

        A request or device alone is better shared; in a graph, priorities would pick its queues.
        """
        is_alone = self.model.lowered.slots == 1 or not self._spans[trace]
        is_one = is_alone or self._captured(trace) is _Captured.WHOLE
        if not self.cuda.priorities or is_one or self.options.common is not None:
            return {}  # they would share hardware queues with streams of another plan
        return step_priorities(self.orders[trace], self.devices, *self.driver.priorities())

    def _root(self, slot: int) -> Root:
        first = next(iter(self.devices))
        stream = self.streams.stream(first, slot, Queue.COMPUTE)
        return Root(stream=stream, context=self.devices[first].context)

    def _check_limits(self) -> None:
        for device, limit in self.options.memory_bytes.items():
            if device not in self.devices:
                continue
            needed = self.model.lowered.memory_bytes(device)
            if needed > limit:
                diagnostic = error(
                    "TSR5102",
                    f"device `{device}` may use {limit} bytes, and the plan needs {needed} bytes",
                )
                raise TesseraError(diagnostic, ExitCode.FAULT)

    def _module_arches(self) -> dict[tuple[int, str, int], str]:
        """The variant of each module that a device runs, by trace, device and module."""
        arches: dict[tuple[int, str, int], str] = {}
        for device in self.devices:
            for trace, step, arch in steps_on(self.model, device):
                if isinstance(step, Launch):
                    arches[trace, device, int(step.module)] = arch
        return arches

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
            (trace, buffer.id): self.host.copy_of(self.model.fillings[trace][buffer.name])
            for trace, served in enumerate(self.model.traces)
            for buffer in served.program.buffers
            if buffer.name in self.model.fillings[trace]
        }

    def _scratch(self) -> dict[int, frozenset[BufferId]]:
        """Buffers that have no contents before a request, by trace."""
        return {
            trace: frozenset(b.id for b in served.program.buffers if b.role in _EMPTY)
            for trace, served in enumerate(self.model.traces)
        }

    def _make_trail(self, stages: range) -> Trail:
        trail = Trail()
        if self.cuda.trail is not False:
            for stage in stages:
                for device in self.devices:
                    trail.add(stage, device, *self.host.allocate(4))
        return trail

    def prepare(
        self, trace: int, stage: int, lane: int, in_place: tuple[str, ...] = ()
    ) -> ReadyTrace:
        """The tape, and the graph captured from it, of a trace in a stage and lane."""
        slot = stage % self.model.lowered.slots
        buffers, stamps = self.buffers[trace, stage], self.stamps[trace, stage]

        def write(kind: _Captured) -> tuple[Enqueuer, Tape, str]:
            writer = Enqueuer(
                self.parts,
                trace,
                slot,
                lane,
                buffers,
                stamps,
                stage=stage,
                in_place=in_place,
                trail=TrailKind.EXACT if self.cuda.trail else _TRAILS[kind],
                captured=kind is _Captured.WHOLE,
                in_strands=self._spans[trace] and kind is _Captured.WHOLE,
            )
            prologue = self._prologue(trace, slot, lane)
            tape, root, _ = writer.write(self.orders[trace], prologue)
            return writer, tape, root

        graph, kind = None, self._captured(trace)
        rows: list[Handle] = []
        try:
            writer, tape, root = write(kind)
            if kind is _Captured.WHOLE:
                graph = self.capture(tape, self.roots[slot].stream, root)
                if graph is None:
                    kind = _Captured.ROWS
                    writer, tape, root = write(kind)
            if kind is _Captured.ROWS:
                tape, rows = with_graph_rows(self.driver, tape, self.capture)
        except Refused as refused:
            raise self.refused(refused, trace) from None
        ready = ReadyTrace(
            stage=stage,
            trail=writer.trail_kind,
            tape=tape if graph is None else Tape(),
            graph=graph,
            rows=rows,
            buffers=buffers,
            timed=tuple(writer.timed),
            stamps=stamps.words,
            gate=writer.gate,
        )
        self.ready[trace, stage, lane, in_place] = ready
        return ready

    def _prologue(self, trace: int, slot: int, lane: int) -> list[tuple[str, int, int, int]]:
        """Copies made first; the same for every stage, since only devices read their sources."""
        key = trace, slot, lane
        if key not in self._prologues:
            self._prologues[key] = self.contents.prologue(self.host, *key)
        return self._prologues[key]

    def _captured(self, trace: int) -> _Captured:
        """The part of a request that is captured as one graph."""
        if not self.cuda.graphs:
            return _Captured.NOTHING
        if self.cuda.ways is not None and self.cuda.ways.has_words(trace):
            return _Captured.ROWS  # words have the number of the request, which a graph would keep
        if not self._spans[trace]:
            return _Captured.WHOLE
        is_one_gpu = len({device.gpu.ordinal for device in self.devices.values()}) == 1
        is_throttled = self.options.throttle_bytes_per_s is not None  # a strand would wait too
        wanted = self.cuda.spanning
        if wanted is None:
            wanted = self._often[trace]
        spanning = wanted and is_one_gpu and not is_throttled
        return _Captured.WHOLE if spanning else _Captured.ROWS

    def capture(self, tape: Tape, stream: Handle, root: str) -> Handle | None:
        """The tape as a graph; None if the driver cannot capture its calls."""
        self.driver.use(self.devices[root].context)
        self.driver.begin_capture(stream)
        try:
            tape.play(self.driver)
            self.driver.use(self.devices[root].context)
            graph = self.driver.end_capture(stream)
        except (Refused, DriverError) as failure:
            self.driver.cu.cuStreamEndCapture(stream)  # releases the streams
            self.driver.captured = None
            problem = failure.problem if isinstance(failure, Refused) else failure
            if isinstance(problem, OperatorRefused) or problem.name.startswith(_NO_CAPTURE):
                return None
            raise
        self.driver.upload_graph(graph, stream)
        return graph

    def refused(self, refused: Refused, trace: int, request: int | None = None) -> ServiceFault:
        """The fault of a launch or copy that the driver refuses."""
        return refusal(refused, self.model.traces[trace], request)

    # --- the end ------------------------------------------------------------------------------

    def release(self) -> None:
        """Free everything; no work may be under way."""
        closers = [self._close_graphs, self.streams.close]
        closers += [self._links.close] if self._links is not None else []
        closers += [self.helpers.close]
        closers += [self.memory.close] if self.memory is not None else []
        closers += [modules.close for modules in self._modules.values()]
        closers += [self.host.close]
        closers += [lambda: close_devices(self.driver, tuple(self.devices.values()))]
        for closer in closers:
            try:
                closer()
            except DriverError:
                continue  # after a fault every call fails; ending the context frees all

    def _close_graphs(self) -> None:
        for ready in self.ready.values():
            for graph in (ready.graph, *ready.rows):
                if graph is not None:
                    self.driver.destroy_graph(graph)
        self.ready.clear()
