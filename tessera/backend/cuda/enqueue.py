"""Turns the actions of a request into driver calls on the streams of its slot.

In: actions in issue order, and addresses for one slot and lane. Out: a tape. The tape begins and
ends on the root stream of its slot. All other streams are forked from the root by an event and
joined to it again, so that the tape can be captured as one graph that spans all devices. All traces
of a slot have the same root, so requests that are handed over one after the other also run one
after the other.

The words of `pointers` records, and weights that have a copy per slot, are written first. In a
verified run, a pattern is written into the place of a buffer right before the first action on the
device that uses the buffer, on the queue of that action. `passes.checker.tenants` has proved that
all earlier uses of that place are over by then, and that all other actions on the buffer come
later.

Longer than 400 lines because it contains everything that a request does on its streams.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import assert_never

from tessera.backend.cuda.api import DriverError, Handle
from tessera.backend.cuda.call_structures import launch_config
from tessera.backend.cuda.host_memory import SlotBuffers
from tessera.backend.cuda.issue_order import Action, Do, Hold, Mark, Move
from tessera.backend.cuda.links import Links
from tessera.backend.cuda.modules import DeviceModules
from tessera.backend.cuda.queued_work import (
    CopyCall,
    KernelCall,
    OperatorCall,
    SetCall,
    describe_step,
    pack_parameters,
    step_name,
)
from tessera.backend.cuda.strands import StrandWork, strands
from tessera.backend.cuda.tape import QueueRow, Refused, Tape, TapeCall
from tessera.backend.cuda.tape_writer import Surroundings, TapeWriter
from tessera.backend.cuda.timing import Stamps, Timed
from tessera.backend.cuda.trail import TrailKind, TrailWriter
from tessera.backend.service import Model
from tessera.backend.unwritten import ComparedSide, buffer_key, device_key, ranges_without_words
from tessera.ir.plan.launch_program import (
    HOST,
    POISON,
    AreaKind,
    Bytes,
    Fill,
    Portion,
    Queue,
    Run,
    Transfer,
)
from tessera.ir.program.program import Buffer, BufferId, LibraryCall, Role, Work

# Flag of an event in a graph that streams outside the graph can wait for.
_EXTERNAL = 1
_QUEUE_ORDER = (Queue.COMPUTE, Queue.IN, Queue.OUT)
NUMBER_AT = 8
# A buffer with more ranges than this between its address words gets no pattern.
_MOST_RANGES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Parts that all tapes of a backend share. `fillings` are pinned contents by trace and buffer.

    `trails` are pinned words by stage and device that show which step runs; if empty, no trail is
    written. `done_words` are pinned words by stage that become 1 when the request is done. If
    patterns are written into memory, the number of the request is stored `NUMBER_AT` bytes after
    the word. `priorities` are step priorities by trace; a step without a priority has that of its
    stream. `scratch` are buffers, by trace, whose contents are not needed until the first request
    begins.
    """

    around: Surroundings
    model: Model
    modules: Mapping[str, DeviceModules]
    links: Links
    fillings: Mapping[tuple[int, BufferId], int]
    trails: Mapping[tuple[int, str], int]
    done_words: Sequence[int]
    priorities: Mapping[int, Mapping[int, int]]
    scratch: Mapping[int, Collection[BufferId]]


class Enqueuer:
    """Writes the tape of one trace in one slot and lane.

    `stage` selects the trail words and the done word to write. Inputs `in_place` are fetched from
    the address in a word of pinned memory. If the trace has a gate, `gate` is the event that is
    recorded there. `captured`: the tape becomes a graph, and the gate event becomes a node of it.
    `in_strands`: each device has one stream (`strands`).
    """

    def __init__(
        self,
        parts: Parts,
        trace: int,
        slot: int,
        lane: int,
        buffers: SlotBuffers,
        stamps: Stamps,
        *,
        stage: int = 0,
        in_place: Collection[str] = (),
        trail: TrailKind = TrailKind.NONE,
        captured: bool = False,
        in_strands: bool = False,
    ) -> None:
        self.parts = parts
        self.writer = TapeWriter(
            parts.around, trace=trace, slot=slot, lane=lane, stamps=stamps, in_strands=in_strands
        )
        self.buffers = buffers
        self.gate: Handle | None = None
        self._trace = trace
        self._stage = stage
        self._in_place = in_place
        self.trail_kind = trail
        self._trail = TrailWriter(self.writer, parts.trails, trail, stage)
        self._captured = captured
        self._served = parts.model.traces[trace]
        self._priorities = parts.priorities[trace]
        self._present: dict[tuple[str, BufferId], set[Queue]] = {}
        self._work: tuple[Work, ...] = tuple(self._served.program.work())
        lowered = next(own for own in parts.model.lowered.traces if own.trace == trace)
        self._gate_step = lowered.gate
        self._moved = {p.buffer for transfer in lowered.transfers for p in transfer.portions}

    @property
    def timed(self) -> list[Timed]:
        """The operations that have time stamps."""
        return self.writer.timed

    # --- the request ------------------------------------------------------------------------

    def write(
        self,
        actions: Sequence[Action],
        prologue: Sequence[tuple[str, int, int, int]],
        *,
        tell: bool = True,
    ) -> tuple[Tape, str, Queue]:
        """The tape, and the device and queue of its root stream.

        `prologue` are the copies made first; `tell`: report the end of the request to the host.
        """
        root = next(iter(self.parts.around.devices)), Queue.COMPUTE
        in_strands = self.writer.in_strands
        works = strands(actions) if in_strands else ()
        places = dict.fromkeys((work.device, Queue.COMPUTE) for work in works)
        queues = places if in_strands else self._queues(actions)
        used = [root, *(place for place in queues if place != root)]
        for device, target, source, size in prologue:
            stream = self.writer.stream(*root)
            self.writer.copy(device, Queue.COMPUTE, target, source, size, stream)
        self._fork(root, used)
        if in_strands:
            self._weave(works)
        else:
            for action in actions:
                self.act(action)
        self.writer.action = None
        self.writer.end_rows()
        self.writer.rise(root[0], None)
        self._trail.finish(root)
        self._join(root, used)
        if tell:
            word = self.parts.done_words[self._stage]
            self.writer.call(root[0], "cuMemsetD32Async", word, 1, 1, self.writer.stream(*root))
        return self.writer.tape, *root

    def _weave(self, works: Sequence[StrandWork]) -> None:
        """Write the work of all strands, and the waits between them."""
        awaited = {number for work in works for number in work.after}
        for number, work in enumerate(works):
            for other in work.after:
                done = self._strand_event(works[other].device, other)
                self.writer.wait(work.device, Queue.COMPUTE, done)
            self.act(work.action)
            if number in awaited:
                self.writer.record(
                    work.device, Queue.COMPUTE, self._strand_event(work.device, number)
                )

    def _strand_event(self, device: str, number: int) -> Handle:
        return self.writer.event(device, "strand", self.writer.slot, number)

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
                    if transfer.source in self.parts.around.devices:
                        seen[transfer.source, Queue.OUT] = None
                    if transfer.target in self.parts.around.devices:
                        seen[transfer.target, Queue.IN] = None
        return sorted(seen, key=lambda place: _QUEUE_ORDER.index(place[1]))

    def _fork(self, root: tuple[str, Queue], used: Sequence[tuple[str, Queue]]) -> None:
        begun = self.writer.event(root[0], "begin", self.writer.slot)
        self.writer.record(root[0], root[1], begun)
        for place in used[1:]:
            self.writer.wait(*place, begun)

    def _join(self, root: tuple[str, Queue], used: Sequence[tuple[str, Queue]]) -> None:
        for place in used[1:]:
            ended = self.writer.event(place[0], "end", self.writer.slot, place[1])
            self.writer.record(*place, ended)
            self.writer.wait(*root, ended)

    def act(self, action: Action) -> None:
        """Write the calls of one action."""
        self.writer.action = action
        if self.parts.around.options.unwritten is not None:
            self._move_in(action, self.parts.around.options.unwritten)
        match action:
            case Do(device, Fill(buffer, ranges)):
                with_name = self._served.program.buffers[buffer].name
                self.writer.timing(
                    device,
                    Queue.COMPUTE,
                    f"fill {with_name}",
                    partial(self._fill, device, buffer, ranges),
                )
            case Do(device, Run(number)):
                step = self._work[number]
                self.writer.rise(device, self._priorities.get(number))
                self._trail.before(device, step)
                self.writer.timing(
                    device,
                    Queue.COMPUTE,
                    step_name(step),
                    partial(self._step, device, step),
                    step=step,
                )
                if number == self._gate_step:
                    self._open_gate(device)
            case Mark(device, queue, event):
                self.writer.record(device, queue, self._event(device, int(event)))
            case Hold(device, queue, event):
                self.writer.wait(device, queue, self._event(device, int(event)))
            case Move(transfer):
                self._move(transfer)
            case _:
                raise AssertionError(action)

    def _move_in(self, action: Action, side: ComparedSide) -> None:
        """Write a pattern into each buffer whose first use is this action.

        Another queue may use other bytes of the buffer next, and waits for the pattern.
        """
        used: list[tuple[str, Queue, BufferId]] = []
        copying: tuple[str, Queue] | None = None
        match action:
            case Do(device, Run(number)):
                touched = sorted(self._served.touched[number])
                used = [(device, Queue.COMPUTE, buffer) for buffer in touched]
            case Do(device, Fill(buffer)):
                used = [(device, Queue.COMPUTE, buffer)]
            case Move(transfer):
                ends = (transfer.source, Queue.OUT), (transfer.target, Queue.IN)
                used = [(*end, portion.buffer) for portion in transfer.portions for end in ends]
                if self.writer.in_strands and HOST not in (ends[0][0], ends[1][0]):
                    copying = self.writer.copying(transfer)
            case _:
                return
        places = self.parts.around.memory.places
        for device, queue, own in used:
            place = places.get((self._trace, device, own))
            filled = self._served.program.buffers[own]
            is_here = place is not None and place.kind is AreaKind.SLOT
            if not is_here or filled.role is Role.WEIGHT:
                continue
            queues = self._present.setdefault((device, own), set())
            if not queues:
                self._write_pattern(device, copying or (device, queue), filled, side)
            if own in self._moved and queue not in queues:
                written = self.writer.event(device, "pattern", self.writer.slot, int(own))
                if queues:
                    self.writer.wait(device, queue, written)
                else:
                    self.writer.record(device, queue, written)
            queues.add(queue)

    def _write_pattern(
        self, device: str, at: tuple[str, Queue], buffer: Buffer, side: ComparedSide
    ) -> None:
        target = self.writer.address(device, buffer.id)
        number = self.parts.done_words[self._stage] + NUMBER_AT
        keys = buffer_key(self._trace, buffer.id), device_key(device)
        ranges = ranges_without_words(self._served.program, buffer)
        place = self.parts.around.memory.places[self._trace, device, buffer.id]
        first, last = place.held(buffer.bytes)
        for given in ranges if len(ranges) <= _MOST_RANGES else ():
            start, end = max(given[0], first), min(given[1], last)
            if start >= end:
                continue
            blocks = min(1024, -(-(end - start) // 4096))
            words = (target, start, end, number, *keys, int(side))
            self.writer.launch_helper(at, "fill_unwritten", words, blocks=blocks, threads=256)

    def _event(self, device: str, number: int) -> Handle:
        return self.writer.event(device, "event", self.writer.slot, number)

    def _open_gate(self, device: str) -> None:
        """Record the event after which the next request may begin."""
        self.gate = self.writer.event(device, "gate", self._trace, self._stage)
        stream = self.writer.stream(device, Queue.COMPUTE)
        if self._captured:
            self.writer.call(device, "cuEventRecordWithFlags", self.gate, stream, _EXTERNAL)
        else:
            self.writer.call(device, "cuEventRecord", self.gate, stream)

    def _move(self, transfer: Transfer) -> None:
        name = transfer.names(lambda buffer: self._served.program.buffers[buffer].name)
        if HOST not in (transfer.source, transfer.target):
            self.parts.links.move(self.writer, transfer, name)
            return
        (portion,) = transfer.portions
        host = self.buffers.addresses[portion.buffer]
        if transfer.source == HOST:
            place = self.writer.address(transfer.target, portion.buffer)
            device, queue, target, source = transfer.target, Queue.IN, place, host
            text = f"receive {name} from host"
            if name in self._in_place:
                fetch = partial(self._fetch, device, portion, place)
                text = f"receive {name} in place"
                self.writer.timing(device, queue, text, fetch, moved=transfer, peer=HOST)
                return
        else:
            place = self.writer.address(transfer.source, portion.buffer)
            device, queue, target, source = transfer.source, Queue.OUT, host, place
            text = f"send {name} to host"
        copy = partial(
            self.parts.links.copy_ranges, self.writer, device, queue, target, source, portion.bytes
        )
        self.writer.timing(device, queue, text, copy, moved=transfer, peer=HOST)

    def _fetch(self, device: str, portion: Portion, target: int) -> None:
        word = self.buffers.words[portion.buffer]
        self.parts.links.fetch(self.writer, (device, Queue.IN), target, word, portion.bytes)

    # --- steps ------------------------------------------------------------------------------

    def _step(self, device: str, step: Work) -> None:
        writer = self.writer
        match describe_step(step, self._served.arches[step.id]):
            case KernelCall() as call:
                self._launch(device, call)
            case SetCall() as call if call.count:
                name = f"cuMemsetD{8 * call.element_bytes}Async"
                target = writer.pointer(device, call.target)
                stream = writer.stream(device, Queue.COMPUTE)
                row = QueueRow(device, stream)
                writer.call(device, name, target, call.value, call.count, stream, row=row)
            case SetCall():
                pass
            case CopyCall() as call:
                target = writer.pointer(device, call.target)
                source = writer.pointer(device, call.source)
                writer.copy(device, Queue.COMPUTE, target, source, call.size)
            case OperatorCall(call):
                self._library_call(device, call)
            case _ as never:
                assert_never(never)

    def _launch(self, device: str, call: KernelCall) -> None:
        writer, launch = self.writer, call.launch
        driver = self.parts.around.driver
        module = self._served.program.modules[call.module]
        driver.use(self.parts.around.devices[device].context)
        try:
            function = self.parts.modules[device].kernel(self._trace, module, call.arch, launch)
        except DriverError as problem:
            raise Refused(problem, writer.action) from None
        packed = pack_parameters(call.arguments, partial(writer.pointer, device))
        writer.tape.kept.extend(packed.kept)
        stream = writer.stream(device, Queue.COMPUTE)
        row = QueueRow(device, stream)
        if call.is_plain:
            sizes = (*launch.grid, *launch.block, launch.shared_bytes, stream)
            writer.call(device, "cuLaunchKernel", function, *sizes, packed.address, 0, row=row)
            return
        config = launch_config(
            driver,
            launch.grid,
            launch.block,
            launch.shared_bytes,
            stream,
            launch.cluster,
            launch.cooperative,
        )
        writer.tape.kept.append(config)
        writer.call(device, "cuLaunchKernelEx", config, function, packed.address, 0, row=row)

    def _library_call(self, device: str, step: LibraryCall) -> None:
        from tessera.backend.cuda.torch_ops import prepare_call

        writer = self.writer
        stream = writer.stream(device, Queue.COMPUTE)
        opened = self.parts.around.devices[device]
        call = prepare_call(
            step,
            partial(writer.pointer, device),
            opened.gpu.ordinal,
            stream,
            sms=None if opened.green is None else opened.sms,
            scratch=self.parts.scratch.get(self._trace, ()),
        )
        writer.use(device)
        row = QueueRow(device, stream)
        writer.tape.calls.append(TapeCall(step.operator, call, (), writer.action, row))

    def _fill(self, device: str, buffer: BufferId, ranges: Bytes) -> None:
        """Write the contents that the user gives, or else poison."""
        target = self.writer.address(device, buffer)
        source = self.parts.fillings.get((self._trace, buffer))
        if source is not None:
            self.parts.links.copy_ranges(self.writer, device, Queue.COMPUTE, target, source, ranges)
            return
        stream = self.writer.stream(device, Queue.COMPUTE)
        for start, end in ranges:
            self.writer.call(device, "cuMemsetD8Async", target + start, POISON, end - start, stream)
