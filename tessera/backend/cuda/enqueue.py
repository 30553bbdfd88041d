"""From the actions of a request to driver calls on the streams of its slot.

In: actions in issue order, and addresses for one slot and lane. Out: a tape. It begins and ends on
the root stream of its slot: everything else is forked from it by an event and joined again, so
that the same tape can be captured as one graph that spans all devices. The root is the same for
all traces, so that requests of a slot that are handed over one after the other also run so.

The words of `pointers` records, and weights that have a copy per slot, are written first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, assert_never

from tessera.backend.cuda.api import Driver, DriverError, Handle
from tessera.backend.cuda.byte_pieces import pieces_of
from tessera.backend.cuda.call_structures import copy_2d, launch_config
from tessera.backend.cuda.helpers import Helpers
from tessera.backend.cuda.host_memory import SlotBuffers
from tessera.backend.cuda.issue_order import Action, Do, Hold, Mark, Move
from tessera.backend.cuda.links import Links
from tessera.backend.cuda.memory import Memory
from tessera.backend.cuda.modules import DeviceModules
from tessera.backend.cuda.parameters import pack_parameters
from tessera.backend.cuda.streams import Streams
from tessera.backend.cuda.tape import Refused, Tape
from tessera.backend.cuda.targets import OpenDevice
from tessera.backend.cuda.timing import Stamps, Timed
from tessera.backend.cuda.trail import TrailWriter, step_name
from tessera.backend.service import Model
from tessera.ir.launch_program import HOST, POISON, Bytes, Fill, Queue, Run, Transfer
from tessera.ir.program import (
    BufferId,
    Launch,
    LibraryCall,
    Memcpy,
    Memset,
    Pointer,
    Work,
    for_arch,
)

# An event of a graph that streams outside of it can wait for.
_EXTERNAL = 1
_QUEUE_ORDER = (Queue.COMPUTE, Queue.IN, Queue.OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What all tapes of a backend share. `fillings` are pinned contents by trace and buffer.

    `trails` are pinned words by stage and device that say which step runs; empty is none.
    `done_words` are pinned words by stage that become 1 when its request is done.
    """

    driver: Driver
    model: Model
    devices: Mapping[str, OpenDevice]
    memory: Memory
    modules: Mapping[str, DeviceModules]
    streams: Streams
    links: Links
    helpers: Helpers
    fillings: Mapping[tuple[int, BufferId], int]
    trails: Mapping[tuple[int, str], int]
    done_words: Sequence[int]
    timeline: bool


class Enqueuer:
    """Writes the tape of one trace in one slot and lane.

    `stage` says whose words are written: those of the trail, once in `trail_every` steps, and that
    the request is done. Inputs `in_place` are fetched from where a word in pinned memory says.
    Where the trace has a gate, `gate` is the event that is recorded there; `captured`: the tape
    becomes a graph, of which that event is to be a node.
    """

    def __init__(
        self, parts: Parts, trace: int, slot: int, lane: int, buffers: SlotBuffers, stamps: Stamps,
        *, stage: int = 0, in_place: Collection[str] = (), trail_every: int = 0,
        captured: bool = False,
    ) -> None:  # fmt: skip
        self.parts = parts
        self.trace = trace
        self.slot = slot
        self.lane = lane
        self.stage = stage
        self.in_place = in_place
        self.trail = TrailWriter(self, parts.trails, trail_every)
        self.captured = captured
        self.gate: Handle | None = None
        self.buffers = buffers
        self.stamps = stamps
        self.tape = Tape()
        self.timed: list[Timed] = []
        self.served = parts.model.traces[trace]
        self.work: tuple[Work, ...] = tuple(self.served.program.work())
        self._gate_step = next(one.gate for one in parts.model.lowered.traces if one.trace == trace)
        self.action: Action | None = None
        self.stages_used: set[tuple[str, str, int]] = set()
        self._last: dict[tuple[str, Queue], int | None] = {}
        self._stamped = 0
        self._several = len({device.gpu.ordinal for device in parts.devices.values()}) > 1
        self._gpu = -1

    # --- the request ------------------------------------------------------------------------

    def write(
        self, actions: Sequence[Action], prologue: Sequence[tuple[str, int, int, int]],
        *, tell: bool = True,
    ) -> tuple[Tape, str, Queue]:  # fmt: skip
        """The tape, and device and queue of its root stream.

        `prologue` are copies made first; `tell`: tell the host when all is done.
        """
        root = next(iter(self.parts.devices)), Queue.COMPUTE
        used = [root, *(place for place in self._queues(actions) if place != root)]
        for device, target, source, size in prologue:
            self.copy(device, Queue.COMPUTE, target, source, size, stream=self.stream(*root))
        self._fork(root, used)
        for action in actions:
            self.action = action
            self._act(action)
        self.action = None
        self.trail.finish(root)
        self._join(root, used)
        if tell:
            word = self.parts.done_words[self.stage]
            self.call(root[0], "cuMemsetD32Async", word, 1, 1, self.stream(*root))
        return self.tape, *root

    def _queues(self, actions: Sequence[Action]) -> list[tuple[str, Queue]]:
        """The queues in use."""
        seen: dict[tuple[str, Queue], None] = {}
        for action in actions:
            match action:
                case Do():
                    seen[action.device, Queue.COMPUTE] = None
                case Mark() | Hold():
                    seen[action.device, action.queue] = None
                case Move(transfer):
                    if transfer.source != HOST:
                        seen[transfer.source, Queue.OUT] = None
                    if transfer.target != HOST:
                        seen[transfer.target, Queue.IN] = None
        return sorted(seen, key=lambda place: _QUEUE_ORDER.index(place[1]))

    def _fork(self, root: tuple[str, Queue], used: Sequence[tuple[str, Queue]]) -> None:
        begun = self.parts.streams.event(root[0], ("begin", self.slot))
        self.record(root[0], root[1], begun)
        for place in used[1:]:
            self.wait(*place, begun)

    def _join(self, root: tuple[str, Queue], used: Sequence[tuple[str, Queue]]) -> None:
        for place in used[1:]:
            ended = self.parts.streams.event(place[0], ("end", self.slot, place[1]))
            self.record(*place, ended)
            self.wait(*root, ended)

    def _act(self, action: Action) -> None:
        match action:
            case Do(device, Fill(buffer, ranges)):
                with_name = self.served.program.buffers[buffer].name
                self.timing(device, Queue.COMPUTE, f"fill {with_name}", partial(
                    self._fill, device, buffer, ranges))  # fmt: skip
            case Do(device, Run(number)):
                step = self.work[number]
                self.trail.before(device, step)
                self.timing(
                    device, Queue.COMPUTE, step_name(step), partial(self._step, device, step),
                    step=step,
                )  # fmt: skip
                if number == self._gate_step:
                    self._open_gate(device)
            case Mark(device, queue, event):
                self.record(device, queue, self._event(device, int(event)))
            case Hold(device, queue, event):
                self.wait(device, queue, self._event(device, int(event)))
                self._last[device, queue] = None
            case Move(transfer):
                self._move(transfer)
            case _:
                raise AssertionError(action)

    def _open_gate(self, device: str) -> None:
        """From here on the next request may begin."""
        self.gate = self.parts.streams.event(device, ("gate", self.trace, self.stage))
        stream = self.stream(device, Queue.COMPUTE)
        if self.captured:
            self.call(device, "cuEventRecordWithFlags", self.gate, stream, _EXTERNAL)
        else:
            self.call(device, "cuEventRecord", self.gate, stream)

    def _move(self, transfer: Transfer) -> None:
        name = self.served.program.buffers[transfer.buffer].name
        if HOST not in (transfer.source, transfer.target):
            self.parts.links.move(self, transfer, name)
            return
        host = self.buffers.addresses[transfer.buffer]
        if transfer.source == HOST:
            place = self.address(transfer.target, transfer.buffer)
            device, queue, target, source = transfer.target, Queue.IN, place, host
            text = f"receive {name} from host"
            if name in self.in_place:
                fetch = partial(self._fetch, device, transfer, place)
                text = f"receive {name} in place"
                self.timing(device, queue, text, fetch, moved=transfer.size, peer=HOST)
                return
        else:
            place = self.address(transfer.source, transfer.buffer)
            device, queue, target, source = transfer.source, Queue.OUT, host, place
            text = f"send {name} to host"
        copy = partial(self.copy_ranges, device, queue, target, source, transfer.bytes)
        self.timing(device, queue, text, copy, moved=transfer.size, peer=HOST)

    def _fetch(self, device: str, transfer: Transfer, target: int) -> None:
        word = self.buffers.words[transfer.buffer]
        self.parts.links.fetch(self, (device, Queue.IN), target, word, transfer.bytes)

    # --- steps ------------------------------------------------------------------------------

    def _step(self, device: str, step: Work) -> None:
        match step:
            case Launch():
                self._launch(device, step)
            case Memset():
                self._memset(device, step)
            case Memcpy():
                self.copy(device, Queue.COMPUTE, self._pointer(device, step.target),
                          self._pointer(device, step.source), step.bytes)  # fmt: skip
            case LibraryCall():
                self._library_call(device, step)
            case _:
                assert_never(step)

    def _launch(self, device: str, step: Launch) -> None:
        arch = self.served.arches[step.id]
        launch = for_arch(step, arch)
        module = self.served.program.modules[step.module]
        self.parts.driver.use(self.parts.devices[device].context)
        try:
            function = self.parts.modules[device].kernel(self.trace, module, arch, launch)
        except DriverError as problem:
            raise Refused(problem, self.action) from None
        packed = pack_parameters(launch.arguments, partial(self._pointer, device))
        self.tape.kept.extend(packed.kept)
        stream = self.stream(device, Queue.COMPUTE)
        shared = launch.shared_bytes
        if launch.cluster is None and not launch.cooperative:
            sizes = (*launch.grid, *launch.block, shared, stream)
            self.call(device, "cuLaunchKernel", function, *sizes, packed.address, 0)
            return
        config = launch_config(
            self.parts.driver,
            launch.grid,
            launch.block,
            shared,
            stream,
            launch.cluster,
            launch.cooperative,
        )
        self.tape.kept.append(config)
        self.call(device, "cuLaunchKernelEx", config, function, packed.address, 0)

    def _memset(self, device: str, step: Memset) -> None:
        stream = self.stream(device, Queue.COMPUTE)
        target = self._pointer(device, step.target)
        count = step.bytes // step.element_bytes
        if not count:
            return
        name = f"cuMemsetD{8 * step.element_bytes}Async"
        self.call(device, name, target, step.value, count, stream)

    def _library_call(self, device: str, step: LibraryCall) -> None:
        from tessera.backend.cuda.torch_ops import prepare_call

        stream = self.stream(device, Queue.COMPUTE)
        ordinal = self.parts.devices[device].gpu.ordinal
        call = prepare_call(step, partial(self._pointer, device), ordinal, stream)
        self._use(device)
        self.tape.calls.append((step.operator, call, (), self.action))

    def _fill(self, device: str, buffer: BufferId, ranges: Bytes) -> None:
        """Contents that the user gives, or poison."""
        target = self.address(device, buffer)
        source = self.parts.fillings.get((self.trace, buffer))
        if source is not None:
            self.copy_ranges(device, Queue.COMPUTE, target, source, ranges)
            return
        stream = self.stream(device, Queue.COMPUTE)
        for start, end in ranges:
            self.call(device, "cuMemsetD8Async", target + start, POISON, end - start, stream)

    # --- calls ------------------------------------------------------------------------------

    def call(self, device: str, name: str, *arguments: Any) -> None:
        """One driver call, made while the device's context is current."""
        self._use(device)
        function = self.parts.driver.functions[name]
        self.tape.calls.append((name, function, arguments, self.action))

    def _use(self, device: str) -> None:
        """With one GPU its context stays current; with several every change is a call."""
        opened = self.parts.devices[device]
        if self._several and opened.gpu.ordinal != self._gpu:
            self._gpu = opened.gpu.ordinal
            function = self.parts.driver.functions["cuCtxSetCurrent"]
            self.tape.calls.append(("cuCtxSetCurrent", function, (opened.context,), None))

    def copy_ranges(
        self, device: str, queue: Queue, target: int, source: int, ranges: Bytes
    ) -> None:
        """The same ranges of two places, in as few copies as can be."""
        pieces = pieces_of(ranges)
        if self.parts.links.copy_many(self, device, queue, target, source, pieces):
            return
        stream = self.stream(device, queue)
        for piece in pieces:
            one, other = target + piece.start, source + piece.start
            if piece.rows == 1:
                self.copy(device, queue, one, other, piece.width)
                continue
            described = copy_2d(
                self.parts.driver, one, piece.pitch, other, piece.pitch, piece.width, piece.rows
            )
            self.tape.kept.append(described)
            self.call(device, "cuMemcpy2DAsync", described, stream)

    def copy(
        self, device: str, queue: Queue, target: int, source: int, size: int,
        stream: Handle | None = None,
    ) -> None:  # fmt: skip
        """One run of bytes."""
        if size:
            stream = self.stream(device, queue) if stream is None else stream
            self.call(device, "cuMemcpyAsync", target, source, size, stream)

    def record(self, device: str, queue: Queue, event: Handle) -> None:
        """Record an event on a queue."""
        self.call(device, "cuEventRecord", event, self.stream(device, queue))

    def wait(self, device: str, queue: Queue, event: Handle) -> None:
        """Let a queue wait for an event."""
        self.call(device, "cuStreamWaitEvent", self.stream(device, queue), event, 0)
        self._last[device, queue] = None

    def timing(
        self, device: str, queue: Queue, name: str, work: Any, *,
        step: Work | None = None, moved: int = 0, peer: str = "",
    ) -> None:  # fmt: skip
        """Do some work between two stamps, if anybody wants to know."""
        if not self.parts.timeline:
            work()
            return
        start = self._last.get((device, queue))
        if start is None:
            start = self._stamp(device, queue)
        work()
        end = self._stamp(device, queue)
        self._last[device, queue] = end
        self.timed.append(
            Timed(
                device=device, queue=queue, name=name, clock=device, start=start, end=end,
                step=None if step is None else step.id, bytes=moved, peer=peer,
            )
        )  # fmt: skip

    def timed_too(self, device: str, queue: Queue, name: str, peer: str) -> None:
        """What was timed last took place on this queue too: the other end of a transfer."""
        if self.parts.timeline:
            self.timed.append(
                replace(self.timed[-1], device=device, queue=queue, name=name, peer=peer)
            )

    def _stamp(self, device: str, queue: Queue) -> int:
        """Write the time to the next word; its number."""
        number, self._stamped = self._stamped, self._stamped + 1
        word = self.stamps.address + 8 * number
        self.parts.helpers.launch(self, (device, queue), "stamp", (word,))
        return number

    # --- names and places -------------------------------------------------------------------

    def stream(self, device: str, queue: Queue) -> Handle:
        """The stream of a queue in this slot."""
        return self.parts.streams.stream(device, self.slot, queue)

    def address(self, device: str, buffer: BufferId) -> int:
        """Where a buffer is for this slot and lane."""
        return self.parts.memory.address(self.trace, device, buffer, self.slot, self.lane)

    def _pointer(self, device: str, pointer: Pointer) -> int:
        return self.address(device, pointer.buffer) + pointer.offset

    def _event(self, device: str, number: int) -> Handle:
        return self.parts.streams.event(device, ("event", self.slot, number))
