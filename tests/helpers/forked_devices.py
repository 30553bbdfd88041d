"""Processes of devices that are forked from one that has imported what a device needs.

Importing takes most of the life of a process in a test. So a run asks a process without threads,
which lives as long as the tests, to fork. All else is as in `start_process`: descriptors, session,
folder, environment. Tests of how processes start take the fixture `fresh_devices`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any

_ROOM = 1 << 20
_LOOK_S = 0.02
_BOOT = (
    "import sys; sys.path[:] = sys.argv[2:];"
    "from tests.helpers.forked_devices import serve; serve(int(sys.argv[1]))"
)


class ForkedProcess:
    """What a host asks of `subprocess.Popen`, for a process that another process has started."""

    def __init__(self, pid: int, ended: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = ended

    def poll(self) -> int | None:
        """Returns how the process ended, and None while it runs."""
        if self.returncode is None and select.select([self._ended], [], [], 0)[0]:
            said = os.read(self._ended, 16)
            self.returncode = int(said) if said else -signal.SIGKILL
            os.close(self._ended)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits until the process ends."""
        if self.returncode is None and not select.select([self._ended], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("a device", timeout or 0.0)
        code = self.poll()
        assert code is not None
        return code

    def kill(self) -> None:
        """Ends the process at once."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class Forker:
    """The process that forks, seen from the tests."""

    def __init__(self) -> None:
        self._one = threading.Lock()
        self._server: tuple[socket.socket, subprocess.Popen[bytes]] | None = None

    def start(self, host: Connection, peers: dict[str, Connection], memory: int) -> ForkedProcess:
        """Stands in for `start_process`."""
        ended, tell = os.pipe()
        message = {"names": list(peers), "folder": os.getcwd(), "environment": dict(os.environ)}
        descriptors = [tell, 2, host.fileno(), memory, *(peer.fileno() for peer in peers.values())]
        with self._one:
            here = self._socket()
            socket.send_fds(here, [json.dumps(message).encode()], descriptors)
            pid = int(here.recv(16))
        os.close(tell)
        return ForkedProcess(pid, ended)

    def _socket(self) -> socket.socket:
        if self._server is None:
            here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM)
            with there:
                process = subprocess.Popen(
                    [sys.executable, "-c", _BOOT, str(there.fileno()), *sys.path],
                    pass_fds=[there.fileno()],
                    start_new_session=True,
                )
            self._server = here, process
        return self._server[0]

    def close(self) -> None:
        """Hangs up: the process that forks ends."""
        if self._server is not None:
            self._server[0].close()
            self._server[1].wait()


def serve(descriptor: int) -> None:
    """Forks a device for every message, and says how each ended, until the tests hang up."""
    from tessera.backend.processes import worker

    running: dict[int, int] = {}
    with socket.socket(fileno=descriptor) as tests:
        while True:
            ready = select.select([tests], [], [], _LOOK_S if running else None)[0]
            for pid, tell in list(running.items()):
                if (ended := os.waitpid(pid, os.WNOHANG))[0]:
                    os.write(tell, str(os.waitstatus_to_exitcode(ended[1])).encode())
                    os.close(running.pop(pid))
            if ready:
                message, descriptors, _, _ = socket.recv_fds(tests, _ROOM, 250)
                if not message:
                    return
                tell, *given = descriptors
                if not (pid := os.fork()):
                    for other in (tell, tests.fileno(), *running.values()):
                        os.close(other)
                    _become(worker, json.loads(message), given)
                for each in given:
                    os.close(each)
                running[pid] = tell
                tests.send(str(pid).encode())


def _become(worker: Any, message: dict[str, Any], descriptors: list[int]) -> None:
    """Goes on as the process of a device."""
    errors, host, memory, *peers = descriptors
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for standard, source in ((0, null), (1, null), (2, errors)):
        os.dup2(source, standard)
    os.chdir(message["folder"])
    os.environ.clear()
    os.environ.update(message["environment"])
    given = {"host": host, "peers": dict(zip(message["names"], peers, strict=True))}
    sys.argv[1:] = [json.dumps(given | {"memory": memory})]
    code = 1
    try:
        worker.main()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
