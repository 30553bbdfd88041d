"""The process of one device: a thread per queue, and a main thread that receives messages.

In: descriptors of the pipe to the host, of the pipes to the other devices, and of the shared
memory. The process ends with the host.

A device learns from a pipe, not from a word in the shared memory, that a transfer has arrived: a
process that waits has to be woken, and one that watched a word would take a core. The message has
the number of the request, which a backend gets once, so a late one concerns no later request.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait

import numpy as np

from tessera.backend.processes.arena import space_bytes
from tessera.backend.processes.device_worker import DeviceWorker
from tessera.backend.processes.engine import DeviceEngine
from tessera.backend.processes.exchange import MemoryExchange, exchange_bytes
from tessera.backend.processes.messages import (
    DeviceReady,
    Message,
    Setup,
    Status,
    status_bytes,
)
from tessera.backend.service import Bytes
from tessera.ir.plan.launch_program import Landing, LandingId, Transfer, TransferId

_SWITCH_S = 0.0002
_WORD = struct.Struct("<qqq")
"""Between devices: a request, the transfer that has arrived (or -1), the landing that is free."""


class Worker(DeviceWorker):
    """A device that serves the host."""

    def __init__(self, host: Connection, peers: dict[str, Connection], memory: int) -> None:
        super().__init__()
        self._host = host
        self._peers = peers
        self._memory = memory
        self._sending = threading.Lock()
        self._telling = threading.Lock()

    def main(self) -> None:
        """Set up, then handle messages until the host is gone."""
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
        size = exchange_bytes(setup.model)
        lowered = setup.model.lowered
        first = status_bytes(lowered.slots) * len(lowered.devices)
        shared = mmap.mmap(self._memory, first + size)
        self._begin_to_beat(Status(shared, setup.index, lowered.slots))
        regions = np.frombuffer(shared, dtype=np.uint8, offset=first)
        engine = DeviceEngine(
            setup.name,
            setup.index,
            setup.model,
            MemoryExchange(setup.model, regions, self._post),
            memory_bytes=space_bytes(setup.model, setup.name),
            max_steps=setup.options.max_steps,
            bytes_per_s=setup.options.throttle_bytes_per_s,
            unwritten=setup.options.unwritten,
        )
        self._start(engine, {trace.trace: trace.gate for trace in lowered.traces})

    def _hear(self, connection: Connection) -> None:
        try:
            if connection is self._host:
                self._obey(*connection.recv())
                return
            request, transfer, landing = _WORD.unpack(connection.recv_bytes())
            if transfer < 0:
                self._credited(request, LandingId(landing))
            else:
                self._arrived(request, TransferId(transfer))
        except (EOFError, OSError):
            if connection is self._host:
                os._exit(0)
            # Another device is gone; the host detects it and decides.
            self._peers = {n: peer for n, peer in self._peers.items() if peer is not connection}

    def _post(self, request: int, what: Transfer | Landing) -> None:
        free = isinstance(what, Landing)
        word = _WORD.pack(request, -1, what.id) if free else _WORD.pack(request, what.id, -1)
        peer = self._peers.get(what.source if free else what.target)
        if peer is None:  # the host
            return
        # If the other device is gone, the host detects it and decides. Several queues may post.
        with suppress(OSError), self._telling:
            peer.send_bytes(word)

    def _tell(self, message: Message, parts: Sequence[Bytes] = ()) -> None:
        try:
            with self._sending:
                self._host.send((message, parts))
        except OSError:
            os._exit(0)


def main() -> None:
    """Start with the arguments that `workers` passes."""
    # A transfer must not wait until the interpreter thread of a kernel yields.
    sys.setswitchinterval(_SWITCH_S)
    given = json.loads(sys.argv[1])
    peers = {name: Connection(handle) for name, handle in given["peers"].items()}
    Worker(Connection(given["host"]), peers, given["memory"]).main()
