"""A process that `tessc doctor` examines: facts of its host, and the speed of its links.

In: a channel. Out: facts, and measurements that the driver asks for, one pair at a time. Bytes go
over the transport of a run: shared memory inside a host, TCP or NIXL between hosts.
"""

from __future__ import annotations

import os
import platform
import queue
import statistics
import time

import numpy as np

from tessera.backend.cuda.api import DriverError
from tessera.backend.cuda.targets import open_driver
from tessera.backend.hosts.channel import ControlChannel
from tessera.backend.hosts.messages import (
    Lost,
    MeasureWay,
    Peers,
    StillHere,
    ToDevice,
    ToldFacts,
    WayMeasured,
)
from tessera.backend.processes.messages import DeviceReady
from tessera.backend.ptx_executor.memory.host_memory import available_bytes
from tessera.backend.transports.choice import open_transport
from tessera.backend.transports.shared_memory import shared_window
from tessera.backend.transports.transport import (
    PlannedPut,
    Transport,
    TransportFault,
    TransportPlace,
    WindowBytes,
    lose_nothing,
)
from tessera.diagnostics import TesseraError
from tessera.ir.version import __version__

WINDOW_BYTES = 8 << 20
_ROUNDS = 30
_LIMIT_S = 10.0
_PING, _PONG = b"ping", b"pong"


def _gpus() -> tuple[str, ...]:
    """Names and architectures of the GPUs of this host."""
    try:
        return tuple(f"{gpu.name} ({gpu.arch})" for gpu in open_driver().gpus())
    except (TesseraError, DriverError):
        return ()


def be_examined(channel: ControlChannel[ToDevice], place: TransportPlace) -> None:
    """Answer the driver until it is gone."""
    answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    window, descriptor = shared_window(WINDOW_BYTES)

    def hear(peer: str, note: bytes) -> None:
        if note == _PING:
            transport.tell(peer, _PONG)
        else:
            answers.put(note)

    content = np.ones(WINDOW_BYTES, np.uint8)
    transport = open_transport(place, window, descriptor, content, hear, lose_nothing)
    channel.send(
        ToldFacts(
            address=transport.address,
            version=__version__,
            python=platform.python_version(),
            system=f"{platform.system()} {platform.machine()}",
            cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
            free_bytes=available_bytes(),
            gpus=_gpus(),
            clock_ns=time.time_ns(),
        )
    )
    while True:
        asked, _ = channel.receive()
        match asked:
            case Peers(addresses):
                try:
                    puts = [PlannedPut(peer, 0, content) for peer in addresses]
                    transport.connect(addresses, puts)
                    channel.send(DeviceReady())
                except TransportFault as fault:
                    channel.send(Lost(fault.peer, fault.why))
            case MeasureWay(peer):
                latency_ns = _latency_ns(transport, peer, answers)
                speed = _bytes_per_s(transport, peer, content, answers, latency_ns)
                channel.send(WayMeasured(peer, latency_ns, speed))
            case StillHere():
                pass
            case _:
                raise TypeError(f"an examined process does not take {type(asked).__name__}")


def _latency_ns(transport: Transport, peer: str, answers: queue.SimpleQueue[bytes]) -> float:
    """Half of the median round trip of a note, in nanoseconds."""
    times = []
    for _ in range(_ROUNDS):
        started = time.perf_counter_ns()
        transport.tell(peer, _PING)
        answers.get(timeout=_LIMIT_S)
        times.append(time.perf_counter_ns() - started)
    return statistics.median(times) / 2


def _bytes_per_s(
    transport: Transport,
    peer: str,
    content: WindowBytes,
    answers: queue.SimpleQueue[bytes],
    latency_ns: float,
) -> float:
    """Bytes per second of the fastest of several puts of the window, less the answer's latency."""
    best = float("inf")
    for _ in range(4):
        started = time.perf_counter_ns()
        transport.put(peer, 0, content, _PING)
        answers.get(timeout=_LIMIT_S)
        best = min(best, time.perf_counter_ns() - started - latency_ns)
    return WINDOW_BYTES / max(best, 1.0) * 1e9
