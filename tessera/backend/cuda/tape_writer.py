"""Writes driver calls to the tape of one request.

In: calls, each with its device and queue. Out: a tape, and the timed operations. A writer knows the
streams, addresses and contexts of one trace in one slot and lane. `enqueue` decides what a request
does; it uses the writer, as do `links` and `trail`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tessera.backend.cuda.api import Driver, Handle
from tessera.backend.cuda.helpers import Helpers
from tessera.backend.cuda.issue_order import Action
from tessera.backend.cuda.memory import ReplicaMemory
from tessera.backend.cuda.queued_work import pack_words
from tessera.backend.cuda.streams import Streams
from tessera.backend.cuda.tape import QueueRow, Tape, TapeCall
from tessera.backend.cuda.targets import OpenDevice
from tessera.backend.cuda.timing import Stamps, Timed
from tessera.backend.service import BackendOptions
from tessera.ir.plan.launch_program import HOST, Queue, Transfer
from tessera.ir.program.program import BufferId, Pointer, Work

Place = tuple[str, Queue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The parts that all writers of a replica share."""

    driver: Driver
    devices: Mapping[str, OpenDevice]
    memory: ReplicaMemory
    streams: Streams
    helpers: Helpers
    options: BackendOptions


class TapeWriter:
    """Writes the tape of one trace in one slot and lane. `action` is the action of its calls.

    `in_strands`: all queues of a device are its compute queue (`strands`).
    """

    def __init__(
        self,
        around: Surroundings,
        *,
        trace: int,
        slot: int,
        lane: int,
        stamps: Stamps,
        in_strands: bool = False,
    ) -> None:
        self.around = around
        self.trace = trace
        self.slot = slot
        self.lane = lane
        self.in_strands = in_strands
        self.tape = Tape()
        self.timed: list[Timed] = []
        self.action: Action | None = None
        self.stages_used: set[tuple[str, str, int]] = set()
        self._stamps = stamps
        self._last: dict[Place, int | None] = {}
        self._rows: dict[str, int] = {}
        self._beside: list[Timed] = []
        self._priorities: dict[str, int | None] = {}
        self._stamped = 0
        self._several = len({device.gpu.ordinal for device in around.devices.values()}) > 1
        self._gpu = -1

    # --- calls ------------------------------------------------------------------------------

    def call(self, device: str, name: str, *arguments: Any, row: QueueRow | None = None) -> None:
        """Add one driver call, made while the device's context is current."""
        self.use(device)
        function = self.around.driver.functions[name]
        self.tape.calls.append(TapeCall(name, function, arguments, self.action, row))

    def row(self, device: str, stream: Handle) -> QueueRow | None:
        """The row of a plain work call on a stream; None if the stream is of another queue."""
        return QueueRow(device, stream) if stream == self.stream(device, Queue.COMPUTE) else None

    def use(self, device: str) -> None:
        """Make the context of a device current; adds a call only if there are several GPUs."""
        opened = self.around.devices[device]
        if self._several and opened.gpu.ordinal != self._gpu:
            self._gpu = opened.gpu.ordinal
            function = self.around.driver.functions["cuCtxSetCurrent"]
            self.tape.calls.append(TapeCall("cuCtxSetCurrent", function, (opened.context,), None))

    def copy(
        self,
        device: str,
        queue: Queue,
        target: int,
        source: int,
        size: int,
        stream: Handle | None = None,
    ) -> None:
        """Add a copy of contiguous bytes."""
        if size:
            stream = self.stream(device, queue) if stream is None else stream
            row = self.row(device, stream)
            self.call(device, "cuMemcpyAsync", target, source, size, stream, row=row)

    def record(self, device: str, queue: Queue, event: Handle) -> None:
        """Record an event on a queue."""
        self.call(device, "cuEventRecord", event, self.stream(device, queue))

    def wait(self, device: str, queue: Queue, event: Handle) -> None:
        """Let a queue wait for an event."""
        stream, queue = self.stream(device, queue), self._queue(queue)
        if queue is Queue.COMPUTE:
            self.end_row(device)
        self.call(device, "cuStreamWaitEvent", stream, event, 0)
        self.waited(device, queue)

    def waited(self, device: str, queue: Queue) -> None:
        """Note that a queue may have waited: what follows begins with a stamp of its own."""
        self._last[device, self._queue(queue)] = None

    def word(self, device: str, queue: Queue, name: str, word: int, number: list[int]) -> None:
        """Add a write of a word, or a wait for it, with the number that a request has when it runs.

        Such a tape is not captured, since a graph would keep the number. No flags: bytes written
        before are visible before the word is, and a wait is over from the number on.
        """
        self.use(device)
        stream, function = self.stream(device, queue), self.around.driver.functions[name]

        def call() -> Any:
            return function(stream, word, number[0], 0)

        self.tape.calls.append(TapeCall(name, call, (), self.action))

    def launch_helper(
        self,
        place: Place,
        kernel: str,
        words: Sequence[int],
        *,
        blocks: int = 1,
        threads: int = 1,
    ) -> None:
        """Launch a kernel of `helpers.ptx`; all its parameters are 64-bit words."""
        packed = pack_words(words)
        self.tape.kept.extend(packed.kept)
        stream = self.stream(*place)
        sizes = (blocks, 1, 1, threads, 1, 1, 0, stream)
        function = self.around.helpers.function(place[0], kernel)
        row = self.row(place[0], stream)
        self.call(place[0], "cuLaunchKernel", function, *sizes, packed.address, 0, row=row)

    # --- times ------------------------------------------------------------------------------

    def timing(
        self,
        device: str,
        queue: Queue,
        name: str,
        work: Callable[[], None],
        *,
        step: Work | None = None,
        moved: Transfer | None = None,
        peer: str = "",
    ) -> None:
        """Add some work, between two stamps if there is a timeline."""
        size = 0 if moved is None else moved.size
        if not self.around.options.timeline:
            work()
            return
        if self.around.options.rows and peer in ("", HOST):
            self._in_row(device, queue, name, work, size, peer)
            return
        own = device, self._queue(queue)
        if own[1] is Queue.COMPUTE:
            self.end_row(device)
        start = self._last.get(own)
        if start is None:
            start = self._stamp(device, queue)
        work()
        end = self._stamp(device, queue)
        self._last[own] = end
        timed = Timed(
            device=device,
            queue=queue,
            name=name,
            clock=device,
            start=start,
            end=end,
            step=None if step is None else step.id,
            bytes=size,
            peer=peer,
            transfer=None if moved is None else moved.id,
        )
        self.timed.append(timed)

    def _in_row(
        self, device: str, queue: Queue, name: str, work: Callable[[], None], size: int, peer: str
    ) -> None:
        """Add some work without a stamp after it; a row of steps has one stamp before it."""
        if peer == HOST:
            self._beside.append(
                Timed(
                    device=device,
                    queue=queue,
                    name=name,
                    clock=device,
                    start=0,
                    end=0,
                    bytes=size,
                    peer=peer,
                )
            )
        elif device not in self._rows:
            self._rows[device] = self._stamp(device, queue)
        work()

    def end_row(self, device: str) -> None:
        """End a row of steps: later work on the compute queue of a device may have to wait."""
        start = self._rows.pop(device, None)
        if start is not None:
            end = self._stamp(device, Queue.COMPUTE)
            timed = Timed(
                device=device,
                queue=Queue.COMPUTE,
                name="steps",
                clock=device,
                start=start,
                end=end,
            )
            self.timed.append(timed)

    def end_rows(self) -> None:
        """End all rows; transfers with the host get the time of any other event."""
        for device in [*self._rows]:
            self.end_row(device)
        if self._beside and not self.timed:
            first = self._beside[0]
            number = self._stamp(first.device, first.queue)
            self.timed.append(replace(first, start=number, end=number, bytes=0))
        for moved in self._beside:
            some = self.timed[0]
            self.timed.append(replace(moved, clock=some.clock, start=some.end, end=some.end))
        self._beside.clear()

    def timed_too(self, device: str, queue: Queue, name: str, peer: str) -> None:
        """Time the other end of the last timed transfer."""
        if self.around.options.timeline:
            last = self.timed[-1]
            self.timed.append(replace(last, device=device, queue=queue, name=name, peer=peer))

    def _stamp(self, device: str, queue: Queue) -> int:
        """Add a stamp into the next word; returns the number of the word."""
        number, self._stamped = self._stamped, self._stamped + 1
        word = self._stamps.address + 8 * number
        self.launch_helper((device, queue), "stamp", (word,))
        return number

    # --- names and places -------------------------------------------------------------------

    def stream(self, device: str, queue: Queue) -> Handle:
        """The stream of a queue in this slot; for compute, that of the current priority."""
        streams, queue = self.around.streams, self._queue(queue)
        if queue is Queue.COMPUTE:
            return streams.compute(device, self.slot, self._priorities.get(device))
        return streams.stream(device, self.slot, queue)

    def _queue(self, queue: Queue) -> Queue:
        return Queue.COMPUTE if self.in_strands else queue

    def copying(self, transfer: Transfer) -> Place:
        """The queue that makes the copy of a transfer between devices."""
        if self.in_strands:
            return transfer.target, Queue.IN
        return transfer.source, Queue.OUT

    def rise(self, device: str, priority: int | None) -> None:
        """Continue the compute queue of a device on a stream of another priority."""
        before = self.stream(device, Queue.COMPUTE)
        self._priorities[device] = priority
        after = self.stream(device, Queue.COMPUTE)
        if after != before:
            reached = self.event(device, "rise", self.slot, priority)
            self.call(device, "cuEventRecord", reached, before)
            self.call(device, "cuStreamWaitEvent", after, reached, 0)

    def event(self, device: str, *name: object) -> Handle:
        """An event of a device, by its name."""
        return self.around.streams.event(device, name)

    def address(self, device: str, buffer: BufferId) -> int:
        """The address of a buffer for this slot and lane."""
        return self.around.memory.address(self.trace, device, buffer, self.slot, self.lane)

    def pointer(self, device: str, pointer: Pointer) -> int:
        """The address that a pointer of the trace stands for."""
        return self.address(device, pointer.buffer) + pointer.offset
