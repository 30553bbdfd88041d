"""A device with a thread per queue.

In: a `DeviceEngine` and messages. Out: messages, sent by `_tell` of a subclass. The compute, in and
out queues have a thread each, which takes the next ready task of its queue.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from tessera.backend.processes.engine import DeviceEngine
from tessera.backend.processes.messages import (
    AskStates,
    AskWaits,
    Begin,
    Done,
    Message,
    PartsDone,
    PassedGate,
    ReadParts,
    Status,
    Waits,
    WriteParts,
    fault_of,
    states_message,
)
from tessera.backend.processes.visits import ReadyOperation, Seat, Visit
from tessera.backend.service import Bytes
from tessera.ir.plan.launch_program import LandingId, Queue, Run, TransferId

_BEAT_S = 0.1
_SMALL_BYTES = 1 << 16


class DeviceWorker(ABC):
    """The threads of a device."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    @abstractmethod
    def _tell(self, message: Message, parts: Sequence[Bytes] = ()) -> None:
        """Send a message to the host or the driver."""

    def _begin_to_beat(self, status: Status) -> None:
        self._status = status
        self._status.beat()
        self._run_thread(self._beat)

    def _run_thread(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _end(self, limit_s: float) -> bool:
        """End the threads, even with requests under way; returns whether all ended in time."""
        with self._changed:
            self._over.set()
            self._changed.notify_all()
        deadline = time.monotonic() + limit_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _start(self, engine: DeviceEngine, gates: Mapping[int, int | None]) -> None:
        """Start the threads of the queues."""
        self._engine = engine
        self._gates = gates
        self._run_thread(self._vouch)
        for queue in Queue:
            self._run_thread(self._serve, queue)

    def _beat(self) -> None:
        while not self._over.wait(_BEAT_S):
            self._status.beat()

    def _vouch(self) -> None:
        """Note progress of requests that compute or wait for their turn."""
        while not self._over.wait(_BEAT_S):
            with self._changed:
                for slot in self._engine.slots_that_get_on():
                    self._status.gets_on(slot)

    def _arrived(self, request: int, transfer: TransferId) -> None:
        """Note that the bytes of a transfer have arrived."""
        with self._changed:
            self._engine.arrive(request, transfer)
        self._receive_small()
        with self._changed:
            self._changed.notify_all()

    def _credited(self, request: int, landing: LandingId) -> None:
        """Note that a landing is free."""
        with self._changed:
            self._engine.credit(request, landing)
            self._changed.notify_all()

    def _obey(self, message: Message, parts: Sequence[Bytes]) -> None:
        """Handle a message during a run."""
        match message:
            case Begin(number, trace, slot, lane):
                with self._changed:
                    self._leave(self._engine.begin(number, Seat(trace, slot, lane)))
                self._receive_small()
                with self._changed:
                    self._changed.notify_all()
            case AskStates(lane):
                self._tell(*states_message(self._engine.arena.states(lane)))
            case ReadParts(lane, wanted):
                self._tell(PartsDone(), [self._engine.arena.read_parts(lane, wanted)])
            case WriteParts(lane, wanted):
                self._engine.arena.write_parts(lane, wanted, parts[0])
                self._tell(PartsDone())
            case AskWaits():
                with self._changed:
                    self._tell(Waits(self._engine.waits()))
            case _:
                raise TypeError(f"a device does not take {type(message).__name__}")

    def _serve(self, queue: Queue) -> None:
        """Run the tasks of a queue, in its thread."""
        try:
            while (task := self._next(queue)) is not None:
                self._status.gets_on(task.visit.seat.slot)
                if isinstance(task.operation, Run):
                    self._status.running(task.visit.number, task.operation.step)
                self._engine.run(task)
                if isinstance(task.operation, Run):
                    self._status.rest()
                    if task.operation.step == self._gates[task.visit.seat.trace]:
                        self._tell(PassedGate(task.visit.number))
                with self._changed:
                    self._finish(task)
                    self._changed.notify_all()
        except BaseException as problem:
            self._fail(problem)

    def _finish(self, task: ReadyOperation) -> None:
        self._status.gets_on(task.visit.seat.slot)
        self._leave(self._engine.finish(task))

    def _receive_small(self) -> None:
        """Receive small transfers in this thread: faster than waking the thread of the in queue."""
        while True:
            with self._changed:
                task = self._engine.next_task(Queue.IN, _SMALL_BYTES)
            if task is None:
                return
            self._engine.run(task)
            with self._changed:
                self._finish(task)

    def _next(self, queue: Queue) -> ReadyOperation | None:
        """The next task of a queue; None once the worker ends."""
        with self._changed:
            while not self._over.is_set():
                task = self._engine.next_task(queue)
                if task is not None:
                    return task
                self._changed.wait()
            return None

    def _leave(self, visit: Visit | None) -> None:
        if visit is not None:
            self._tell(Done(visit.number, tuple(visit.events), tuple(visit.printed)))

    def _fail(self, problem: BaseException) -> None:
        self._tell(fault_of(problem))
