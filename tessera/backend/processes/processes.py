"""Starts and ends the processes of devices, and makes the memory that they share.

A process lives as long as its pipe to the host, and the shared memory has no name, so neither
remains, however the host ends.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe

from tessera.backend.processes.messages import Status
from tessera.backend.processes.pulse import Pulse
from tessera.backend.service import ServiceFault
from tessera.diagnostics import error

STOP_S = 2.0
_HANG_UP_S = 0.5  # Ctrl-C ends a run within a second; a device has nothing to tidy up
_STANDARD = 2
# Nothing may be imported before the path is the host's: `-c` would import from the current folder,
# which may hold a plan of unknown origin. `-P` has the same purpose.
_BOOT = (
    "import sys; sys.path[:] = sys.argv[2:];"
    "from tessera.backend.processes.worker import main; main()"
)


@dataclass(slots=True)
class DeviceProcess:
    """The process of a device, as the host sees it."""

    name: str
    process: subprocess.Popen[bytes]
    connection: Connection
    status: Status
    is_ready: bool = False
    pulse: Pulse = field(init=False)

    def __post_init__(self) -> None:
        self.pulse = Pulse(self.process.pid)


def shared_memory(size: int) -> int:
    """A descriptor of memory without a name, which is freed when its last user ends."""
    _fill_standard_descriptors()
    make: Callable[[str], int] | None = getattr(os, "memfd_create", None)
    if make is not None:
        descriptor = make("tessera")
    else:
        with tempfile.TemporaryFile() as stream:
            descriptor = os.dup(stream.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def _fill_standard_descriptors() -> None:
    """Open descriptors 0, 1 and 2 if they are closed.

    A child has its standard streams there, so it would not inherit a pipe with one of these
    numbers.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STANDARD:
        pass
    os.close(descriptor)


def host_pipe(limit_s: float) -> tuple[Connection, Connection]:
    """A pipe between the host and a device; the host's end comes first.

    If a process is stopped in the middle of a message, the host's end raises `BlockingIOError`
    after `limit_s` seconds instead of waiting forever for the rest.
    """
    here, there = Pipe()
    with socket.socket(fileno=os.dup(here.fileno())) as end:
        limit = struct.pack("@ll", int(limit_s), int(limit_s % 1 * 1e6))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            end.setsockopt(socket.SOL_SOCKET, option, limit)
    return here, there


def start_process(
    host: Connection, peers: dict[str, Connection], memory: int
) -> subprocess.Popen[bytes]:
    """Start the process of a device, in a session of its own: Ctrl-C reaches only the host."""
    handles = {name: peer.fileno() for name, peer in peers.items()}
    given = json.dumps({"host": host.fileno(), "peers": handles, "memory": memory})
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _BOOT, given, *sys.path],
        pass_fds=[host.fileno(), memory, *handles.values()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def stop_processes(devices: dict[str, DeviceProcess]) -> None:
    """Hang up, and end every process that does not end by itself."""
    for device in devices.values():
        device.connection.close()
    deadline = time.monotonic() + _HANG_UP_S
    for device in devices.values():
        try:
            device.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            device.process.kill()
            device.process.wait()


def not_started(problem: OSError) -> ServiceFault:
    """The fault if the system refuses memory, files or processes."""
    reason = (problem.strerror or str(problem)).lower()
    return ServiceFault(
        error(
            "TSR5051",
            f"the processes of the devices cannot be started: {reason}",
            notes=("each device is a process, with a pipe to every other one",),
            hint="raise the limits of this shell (`ulimit -a` shows them), or plan for fewer "
            "devices",
        )
    )
