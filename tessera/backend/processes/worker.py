"""The process of one device: its queues as threads, and a main thread that listens.

In: descriptors of the pipe to the host, of the pipes to the other devices, and of the shared
memory. Compute, in and out each have a thread, which takes the next task that its queue has
ready. When the host goes away, so does the process.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
import threading
import time
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import assert_never

import numpy as np

from tessera.backend.processes.arena import Seat, space_bytes
from tessera.backend.processes.engine import DeviceEngine
from tessera.backend.processes.exchange import Regions, open_exchange
from tessera.backend.processes.messages import (
    AskStates,
    AskWaits,
    Begin,
    DeviceReady,
    Done,
    Faulted,
    PassedGate,
    SetStates,
    Setup,
    States,
    Status,
    Waits,
    status_bytes,
)
from tessera.backend.processes.visits import ReadyOperation, Visit
from tessera.backend.service import ServiceFault
from tessera.diagnostics import TesseraError, error
from tessera.ir.plan.launch_program import Landing, LandingId, Queue, Run, Transfer, TransferId

_BEAT_S = 0.1
_SWITCH_S = 0.0002
_SMALL_BYTES = 1 << 16
_WORD = struct.Struct("<qqq")
"""Between devices: a request, the transfer that is there (or -1), the landing that is free."""


class Worker:
    """A device that answers to the host."""

    def __init__(self, host: Connection, peers: dict[str, Connection], memory: int) -> None:
        self._host = host
        self._peers = peers
        self._memory = memory
        self._sending = threading.Lock()
        self._telling = threading.Lock()
        self._changed = threading.Condition()

    def main(self) -> None:
        """Set up, then listen until the host is gone."""
        try:
            setup = self._host.recv()
        except (EOFError, OSError):
            return  # the host is gone
        assert isinstance(setup, Setup)
        try:
            self._set_up(setup)
            self._tell(DeviceReady())
            while True:
                for connection in wait([self._host, *self._peers.values()]):
                    assert isinstance(connection, Connection)
                    self._hear(connection)
        except BaseException as problem:
            self._fail(problem)

    def _set_up(self, setup: Setup) -> None:
        size = Regions(setup.model).bytes
        lowered = setup.model.lowered
        first = status_bytes(lowered.slots) * len(lowered.devices)
        shared = mmap.mmap(self._memory, first + size)
        self._status = Status(shared, setup.index, lowered.slots)
        self._status.beat()
        threading.Thread(target=self._beat, daemon=True).start()
        self._gates = {trace.trace: trace.gate for trace in lowered.traces}
        regions = np.frombuffer(shared, dtype=np.uint8, offset=first)
        exchange = open_exchange(setup.model, regions, self._post)
        self._engine = DeviceEngine(
            setup.name,
            setup.index,
            setup.model,
            exchange,
            memory_bytes=space_bytes(setup.model, setup.name),
            max_steps=setup.options.max_steps,
            bytes_per_s=setup.options.throttle_bytes_per_s,
        )
        threading.Thread(target=self._vouch, daemon=True).start()
        for queue in Queue:
            threading.Thread(target=self._serve, args=(queue,), daemon=True).start()

    def _beat(self) -> None:
        while True:
            self._status.beat()
            time.sleep(_BEAT_S)

    def _vouch(self) -> None:
        """Say of requests that compute, or wait for their turn, that they get on."""
        while True:
            with self._changed:
                for slot in self._engine.slots_that_get_on():
                    self._status.gets_on(slot)
            time.sleep(_BEAT_S)

    def _hear(self, connection: Connection) -> None:
        try:
            if connection is self._host:
                self._obey(connection.recv())
            else:
                request, transfer, landing = _WORD.unpack(connection.recv_bytes())
                with self._changed:
                    if transfer < 0:
                        self._engine.credit(request, LandingId(landing))
                    else:
                        self._engine.arrive(request, TransferId(transfer))
                self._receive_small()
                with self._changed:
                    self._changed.notify_all()
        except (EOFError, OSError):
            if connection is self._host:
                os._exit(0)
            # Another device is gone; the host knows, and decides.
            self._peers = {n: peer for n, peer in self._peers.items() if peer is not connection}

    def _obey(self, message: Begin | AskStates | SetStates | AskWaits) -> None:
        match message:
            case Begin(number, trace, slot, lane):
                with self._changed:
                    self._leave(self._engine.begin(number, Seat(trace, slot, lane)))
                self._receive_small()
                with self._changed:
                    self._changed.notify_all()
            case AskStates(lane):
                self._tell(States(self._engine.arena.states(lane)))
            case SetStates(lane, contents):
                self._engine.arena.set_states(lane, contents)
            case AskWaits():
                with self._changed:
                    self._tell(Waits(self._engine.waits()))
            case _:
                assert_never(message)

    def _serve(self, queue: Queue) -> None:
        """The thread of a queue."""
        try:
            while True:
                task = self._next(queue)
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
        """Take in what is done sooner than the thread of the in queue is awake."""
        while True:
            with self._changed:
                task = self._engine.next_task(Queue.IN, _SMALL_BYTES)
            if task is None:
                return
            self._engine.run(task)
            with self._changed:
                self._finish(task)

    def _next(self, queue: Queue) -> ReadyOperation:
        with self._changed:
            while (task := self._engine.next_task(queue)) is None:
                self._changed.wait()
            return task

    def _leave(self, visit: Visit | None) -> None:
        if visit is not None:
            self._tell(Done(visit.number, tuple(visit.events), tuple(visit.printed)))

    def _post(self, request: int, what: Transfer | Landing) -> None:
        free = isinstance(what, Landing)
        word = _WORD.pack(request, -1, what.id) if free else _WORD.pack(request, what.id, -1)
        peer = self._peers.get(what.source if free else what.target)
        if peer is None:  # the host
            return
        # Where the other device is gone, the host knows, and decides. Several queues may tell it.
        with suppress(OSError), self._telling:
            peer.send_bytes(word)

    def _tell(self, message: object) -> None:
        try:
            with self._sending:
                self._host.send(message)
        except OSError:
            os._exit(0)

    def _fail(self, problem: BaseException) -> None:
        match problem:
            case ServiceFault():
                faulted = Faulted(
                    problem.diagnostics[0], problem.exit_code, problem.request, problem.step
                )
            case TesseraError():
                faulted = Faulted(problem.diagnostics[0], problem.exit_code)
            case MemoryError():
                faulted = Faulted(error("TSR5020", "the machine is out of memory"), 6)
            case RuntimeError() if str(problem) == "can't start new thread":
                faulted = Faulted(error("TSR5020", "the machine has no room for a thread"), 6)
            case _:
                faulted = Faulted(None, 70, text="".join(traceback.format_exception(problem)))
        self._tell(faulted)


def main() -> None:
    """Start from the arguments that `workers` gives."""
    # Transfers must not wait for the interpreter of a kernel to let go.
    sys.setswitchinterval(_SWITCH_S)
    given = json.loads(sys.argv[1])
    peers = {name: Connection(handle) for name, handle in given["peers"].items()}
    Worker(Connection(given["host"]), peers, given["memory"]).main()
