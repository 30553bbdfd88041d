"""One virtual device that runs its launch programs, one operation at a time.

In: requests that begin, and transfers that arrive. Out: ready tasks, their effects, and a record of
each request on this device. The engine knows nothing of threads or processes: its caller asks for a
task of a queue (`next_task`), runs it, and reports it done (`finish`). Tasks of different queues
may run at the same time; the calls that take and finish them may not.

On each of the three queues, the oldest request goes first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import assert_never

from tessera.backend.processes.arena import Arena
from tessera.backend.processes.exchange import Exchange, pack, unpack
from tessera.backend.processes.sight import buffers_in_sight
from tessera.backend.processes.visits import QueueWait, ReadyOperation, Seat, Visit, step_name
from tessera.backend.ptx_executor.device import Device
from tessera.backend.ptx_executor.memory.memory import Array
from tessera.backend.ptx_executor.simt.chunk import DEFAULT_STEPS
from tessera.backend.ptx_executor.simt.launch import LaunchResult
from tessera.backend.ptx_executor.steps import StepExecutor
from tessera.backend.service import LONGEST_S, Model, ServiceFault, TimelineEvent
from tessera.backend.unwritten import ComparedSide
from tessera.diagnostics import TesseraError
from tessera.ir.plan.launch_program import (
    HOST,
    Await,
    AwaitPut,
    Credit,
    DeviceProgram,
    Fill,
    Free,
    LandingId,
    LoweredTrace,
    Operation,
    Put,
    Queue,
    Receive,
    Record,
    Run,
    Send,
    Transfer,
    TransferId,
)
from tessera.ir.program import program as ir

Observer = Callable[[str, int, ir.Work, LaunchResult | None, Callable[[ir.BufferId], Array]], None]
"""Called after every step: device, request, step, result, and a function that reads a buffer."""


class DeviceEngine:
    """A device and its requests."""

    def __init__(
        self,
        name: str,
        index: int,
        model: Model,
        exchange: Exchange,
        *,
        memory_bytes: int,
        max_steps: int | None = None,
        bytes_per_s: float | None = None,
        in_real_time: bool = True,
        observer: Observer | None = None,
        unwritten: ComparedSide | None = None,
    ) -> None:
        self.name = name
        self.model = model
        self.exchange = exchange
        self.visits: dict[int, Visit] = {}
        self.early: dict[int, set[TransferId]] = {}
        self._bytes_per_s = bytes_per_s
        self._in_real_time = in_real_time
        self._observer = observer
        self._max_steps = DEFAULT_STEPS if max_steps is None else max_steps
        self.device = Device(index, memory_bytes=memory_bytes)
        self.arena = Arena(self.device, name, model, unwritten)
        self._lowered: dict[int, LoweredTrace] = {t.trace: t for t in model.lowered.traces}
        self._transfers = {
            t.trace: {transfer.id: transfer for transfer in t.transfers}
            for t in model.lowered.traces
        }
        self._landings = {landing.id: landing for landing in model.lowered.landings}
        self._work = [list(served.program.work()) for served in model.traces]
        self._queues: dict[int, dict[Queue, tuple[Operation, ...]]] = {}
        self._sight: dict[int, dict[ir.LaunchId, frozenset[ir.BufferId]]] = {}
        for trace, lowered in self._lowered.items():
            self._prepare(trace, lowered)

    def _prepare(self, trace: int, lowered: LoweredTrace) -> None:
        program = next(
            (own for own in lowered.programs if own.device == self.name),
            DeviceProgram(device=self.name, operations=()),
        )
        places = {int(b): p for (t, b), p in self.arena.places.items() if t == trace}
        self._queues[trace] = {queue: tuple(program.on(queue)) for queue in Queue}
        self._sight[trace] = buffers_in_sight(lowered, self.model.traces[trace], program, places)

    def begin(self, request: int, seat: Seat) -> Visit | None:
        """Start a request; returns its visit if it has no task here."""
        visit = Visit(request, seat, self._queues[seat.trace])
        visit.arrived |= self.early.pop(request, set())
        self.arena.begin(seat)
        visit.arrived |= {
            transfer.id
            for transfer in self._transfers[seat.trace].values()
            if transfer.source == HOST and transfer.target == self.name
        }
        self.visits[request] = visit
        return self.settle(visit)

    def arrive(self, request: int, transfer: TransferId) -> None:
        """Note that the bytes of a transfer to this device are in the exchange."""
        visit = self.visits.get(request)
        if visit is None:
            # The sender began the request before this device did.
            self.early.setdefault(request, set()).add(transfer)
        else:
            visit.arrived.add(transfer)

    def credit(self, request: int, landing: LandingId) -> None:
        """Note that a landing is free again; a request that is done here needs none."""
        visit = self.visits.get(request)
        if visit is not None:
            visit.held.discard(landing)

    def next_task(self, queue: Queue, most_bytes: int | None = None) -> ReadyOperation | None:
        """Take the oldest request's next operation on a queue that can run now.

        With `most_bytes`, take only an operation that moves at most that many bytes.
        """
        for number in sorted(self.visits):
            visit = self.visits[number]
            if queue in visit.taken:
                continue
            operation = self._head(visit, queue)
            if operation is None or self._blocked(visit, operation):
                continue
            if most_bytes is None or self._size(visit, operation) <= most_bytes:
                visit.taken.add(queue)
                # Here nothing else begins: two queues may use a buffer first, each its own bytes.
                self.arena.move_in(visit.number, visit.seat, visit.present, operation)
                return ReadyOperation(visit, queue, operation)
        return None

    def _head(self, visit: Visit, queue: Queue) -> Operation | None:
        """The next operation that is not an event; events before it happen."""
        operations = visit.queues[queue]
        while visit.at[queue] < len(operations):
            operation = operations[visit.at[queue]]
            match operation:
                case Record(event):
                    visit.recorded.add(event)
                case Await(event) if event in visit.recorded:
                    pass
                case _:
                    return operation
            visit.at[queue] += 1
        return None

    def _blocked(self, visit: Visit, operation: Operation) -> bool:
        match operation:
            case Await():
                return True
            case Receive(transfer) | AwaitPut(transfer):
                return transfer not in visit.arrived
            case Put(_, landing):
                return landing in visit.held
            case _:
                return False

    def _size(self, visit: Visit, operation: Operation) -> int:
        match operation:
            case Send(transfer) | Receive(transfer) | Put(transfer) | AwaitPut(transfer):
                return self._transfers[visit.seat.trace][transfer].size
            case Free(buffer) | Fill(buffer, _):
                return self.model.traces[visit.seat.trace].program.buffers[buffer].bytes
            case _:
                return 0

    def run(self, task: ReadyOperation) -> None:
        """Run a task; the fault of a launch names its place."""
        started = time.monotonic_ns()
        visit, seat = task.visit, task.visit.seat
        name, peer = "", ""
        moved: Transfer | None = None
        match task.operation:
            case Run(step):
                name = self._step(visit, self._work[seat.trace][step])
            case Fill(buffer, spans):
                self.arena.fill(seat, buffer, spans)
                name = f"fill {self._name(seat, buffer)}"
            case Free(buffer):
                self.arena.free(seat, buffer)
                name = f"free {self._name(seat, buffer)}"
            case Send(number) | Put(number):
                moved = self._transfers[seat.trace][number]
                landing = None if isinstance(task.operation, Send) else task.operation.landing
                if landing is not None:
                    visit.held.add(landing)
                self._send(visit, moved, landing)
                peer = moved.target
                name = f"send {self._names(seat, moved)} to {peer}"
            case Receive(number) | AwaitPut(number):
                moved = self._transfers[seat.trace][number]
                landing = None if isinstance(task.operation, Receive) else task.operation.landing
                self._receive(visit, moved, landing)
                peer = moved.source
                name = f"receive {self._names(seat, moved)} from {peer}"
            case Credit(landing):
                self.exchange.credit(visit.number, self._landings[landing])
                peer = self._landings[landing].source
                name = f"credit {landing} to {peer}"
            case Record() | Await():
                raise AssertionError("events happen when a head is looked for")
            case _:
                assert_never(task.operation)
        visit.events.append(
            TimelineEvent(
                device=self.name,
                queue=task.queue,
                slot=seat.slot,
                request=visit.number,
                name=name,
                start_ns=started,
                end_ns=time.monotonic_ns(),
                bytes=0 if moved is None else moved.size,
                peer=peer,
                step=task.operation.step if isinstance(task.operation, Run) else None,
                transfer=None if moved is None else moved.id,
            )
        )

    def finish(self, task: ReadyOperation) -> Visit | None:
        """Note that a task has run; returns its visit if that was the last task here."""
        visit = task.visit
        visit.taken.discard(task.queue)
        visit.at[task.queue] += 1
        return self.settle(visit)

    def settle(self, visit: Visit) -> Visit | None:
        """Let events happen; returns the visit if no task is left here."""
        before = -1
        while before != len(visit.recorded):
            before = len(visit.recorded)
            for queue in Queue:
                if queue not in visit.taken:
                    self._head(visit, queue)
        if not visit.is_done:
            return None
        del self.visits[visit.number]
        return visit

    def slots_that_get_on(self) -> list[int]:
        """Slots whose request computes here, or waits for a queue that runs another request."""
        busy = {queue for visit in self.visits.values() for queue in visit.taken}
        return [
            visit.seat.slot
            for visit in self.visits.values()
            if any(self._gets_on(visit, queue) for queue in busy)
        ]

    def _gets_on(self, visit: Visit, queue: Queue) -> bool:
        """Whether a request makes progress on a busy queue: it computes, or is ready to be next."""
        operation = self._head(visit, queue)
        if queue in visit.taken:
            return isinstance(operation, Run)
        return operation is not None and not self._blocked(visit, operation)

    def waits(self) -> tuple[QueueWait, ...]:
        """The operations that each request waits for."""
        waits = []
        for number, visit in sorted(self.visits.items()):
            step = self._next_step(visit)
            at = None if step is None else step.id
            name = "" if step is None else step_name(self._program(visit.seat), step)
            for queue in Queue:
                operation = self._head(visit, queue)
                if operation is not None:
                    text = f"the {queue.value} queue {self._waits_for(visit, operation)}"
                    waits.append(
                        QueueWait(
                            request=number,
                            text=text,
                            step=at,
                            name=name,
                            is_transfer=isinstance(operation, Send | Put | Receive | AwaitPut),
                        )
                    )
        return tuple(waits)

    def _next_step(self, visit: Visit) -> ir.Work | None:
        """The current or next step of a request here."""
        left = visit.queues[Queue.COMPUTE][visit.at[Queue.COMPUTE] :]
        steps = (
            self._work[visit.seat.trace][operation.step]
            for operation in left
            if isinstance(operation, Run)
        )
        return next(steps, None)

    def _waits_for(self, visit: Visit, operation: Operation) -> str:
        transfers = self._transfers[visit.seat.trace]
        match operation:
            case Put(number, landing) if self._blocked(visit, operation):
                name = self._names(visit.seat, transfers[number])
                target = transfers[number].target
                return f"waits for landing {landing} at `{target}` to put `{name}` there"
            case Receive(number) | AwaitPut(number) if self._blocked(visit, operation):
                name = self._names(visit.seat, transfers[number])
                return f"waits for transfer {number}: `{name}` from `{transfers[number].source}`"
            case Send(number) | Put(number):
                name = self._names(visit.seat, transfers[number])
                return f"is at transfer {number}: `{name}` to `{transfers[number].target}`"
            case Await(event):
                return f"waits for event {event}"
            case Run(step):
                work = self._work[visit.seat.trace][step]
                return f"is at step #{step} `{step_name(self._program(visit.seat), work)}`"
            case _:
                return f"is at {type(operation).__name__.lower()}"

    def _program(self, seat: Seat) -> ir.Program:
        return self.model.traces[seat.trace].program

    def _name(self, seat: Seat, buffer: ir.BufferId) -> str:
        return self._program(seat).buffers[buffer].name

    def _names(self, seat: Seat, transfer: Transfer) -> str:
        return transfer.names(partial(self._name, seat))

    def _step(self, visit: Visit, step: ir.Work) -> str:
        seat = visit.seat
        served = self.model.traces[seat.trace]
        modules = self.arena.modules[seat.trace]
        runner = StepExecutor(
            self.device,
            lambda buffer: self.arena.address(seat, buffer),
            lambda launch: modules.load(launch.module, served.arches[launch.id]),
            self._max_steps,
        )
        self.arena.show(seat, self._sight[seat.trace][step.id])
        started = time.monotonic_ns()
        try:
            result = runner.do(step)
        except TesseraError as failure:
            raise ServiceFault(
                failure.diagnostics[0],
                device=self.name,
                request=visit.number,
                step=step.id,
                name=step_name(served.program, step),
                exit_code=failure.exit_code,
            ) from None
        if result is not None:
            if result.output:
                visit.printed.append((int(step.id), result.output))
            left_ns = result.slept_ns - (time.monotonic_ns() - started)
            if self._in_real_time and left_ns > 0:
                time.sleep(left_ns / 1e9)
        if self._observer is not None:
            view = lambda buffer: self.arena.whole(seat, buffer)  # noqa: E731
            self._observer(self.name, visit.number, step, result, view)
        return step_name(served.program, step)

    def _send(self, visit: Visit, transfer: Transfer, landing: LandingId | None = None) -> None:
        seat = visit.seat
        pack(transfer, partial(self._held, seat), self._region(seat, transfer, landing))
        if self._bytes_per_s:
            time.sleep(min(transfer.size / self._bytes_per_s, LONGEST_S))
        self.exchange.post(visit.number, seat.slot, transfer, landing)

    def _receive(self, visit: Visit, transfer: Transfer, landing: LandingId | None = None) -> None:
        seat = visit.seat
        unpack(transfer, self._region(seat, transfer, landing), partial(self._held, seat))

    def _held(self, seat: Seat, buffer: ir.BufferId) -> tuple[Array, int]:
        return self.arena.view(seat, buffer), self.arena.held(seat, buffer)[0]

    def _region(self, seat: Seat, transfer: Transfer, landing: LandingId | None) -> Array:
        """The bytes of a transfer between send and receive: in a landing, or in its own region."""
        if landing is None:
            return self.exchange.region(seat.trace, seat.slot, transfer.id)
        return self.exchange.landing(seat.slot, landing)[: transfer.size]
