"""The process of a device, here or on another host, and the two threads that talk to it.

In: a `HostEntry`. Out: a `DeviceLink`: what it is told, and an inbox with what it says. The process
is started by the command of its host and lives as long as its channel, so nothing is left behind,
however this one ends. It has a session of its own: Ctrl-C is for us. A process that does not read
holds up nobody but the thread that writes to it.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import IO

from tessera.backend.hosts.channel import ChannelClosed, ControlChannel, Head, Part
from tessera.ir.plan.hosts import HostEntry
from tessera.settings import with_environment

MODULE = "tessera.driver.hosts.device_process"
_HANG_UP_S = 0.5
_JOIN_S = 1.0
_SAID = 2000
_STILL_HERE_S = 5.0

Inbox = queue.SimpleQueue[tuple[str, Head | None, list[Part]]]
"""Of which device, what it says, and bytes; no record: it is gone."""


class DeviceLink:
    """One process, seen from the driver."""

    def __init__(self, device: str, host: HostEntry, inbox: Inbox) -> None:
        """Start it; raises `OSError` where the command of the host cannot be run."""
        self.host = host
        self.has_begun = False
        self.is_gone = False
        self.noise = ""
        self.serve_as(device, inbox)
        self._outbox: queue.SimpleQueue[tuple[Head, Sequence[Part]] | None] = queue.SimpleQueue()
        self._errors = _error_file()
        try:
            self.process = _start(host, self._errors)
        except OSError:
            if self._errors is not None:
                self._errors.close()
            raise
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in, self._out = self.process.stdout, self.process.stdin
        self._channel = ControlChannel(self._in.fileno(), self._out.fileno())
        self._threads = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._write, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def serve_as(self, device: str, inbox: Inbox) -> None:
        """From now on it is the process of this device, and what it says goes there."""
        self.heard_s = time.monotonic()
        self._to = inbox, device

    @property
    def device(self) -> str:
        """The device whose process it is."""
        return self._to[1]

    def tell(self, head: Head, parts: Sequence[Part] = ()) -> None:
        """Send a record when those before it are sent; the parts must not change until then."""
        self._outbox.put((head, parts))

    def _read(self) -> None:
        try:
            self._channel.await_start()
            self.has_begun = True
            while True:
                head, parts = self._channel.receive()
                self.heard_s = time.monotonic()
                inbox, device = self._to
                inbox.put((device, head, parts))
        except (ChannelClosed, OSError, ValueError) as problem:
            self.noise = str(problem)
            self.is_gone = True
            inbox, device = self._to
            inbox.put((device, None, []))
        with suppress(OSError):
            self._in.close()

    def _write(self) -> None:
        """Send what is to be sent; now and then that the driver is still here."""
        while True:
            try:
                message = self._outbox.get(timeout=_STILL_HERE_S)
            except queue.Empty:
                message = {"kind": "beat"}, ()
            if message is None:
                break
            try:
                self._channel.send(*message)
            except (ChannelClosed, OSError, ValueError):
                break
        with suppress(OSError):
            self._out.close()

    def ended(self) -> str:
        """How the process has ended, in words."""
        try:
            code = self.process.wait(_HANG_UP_S)
        except subprocess.TimeoutExpired:
            return "has closed its channel"
        return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def said(self) -> str:
        """The last line that it wrote to its standard error, or before its first record."""
        if self._errors is not None:
            with suppress(OSError, ValueError):
                size = self._errors.seek(0, os.SEEK_END)
                self._errors.seek(max(0, size - _SAID))
                lines = self._errors.read().decode(errors="replace").strip().splitlines()
                if lines:
                    return lines[-1].strip()
        return "" if self.has_begun else self.noise.strip()

    def hang_up(self) -> None:
        """Let the process go."""
        self._outbox.put(None)

    def end(self, deadline_s: float) -> None:
        """Make sure that the process is gone, and the threads."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, deadline_s - time.monotonic()))
        with suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for thread in self._threads:
            thread.join(_JOIN_S)
        if self._errors is not None:
            self._errors.close()


def stop_links(links: dict[str, DeviceLink]) -> None:
    """Hang up, then make sure that every process is gone."""
    ending: Collection[DeviceLink] = list(links.values())
    links.clear()
    for link in ending:
        link.hang_up()
    deadline_s = time.monotonic() + _HANG_UP_S
    for link in ending:
        link.end(deadline_s)


def _start(host: HostEntry, errors: IO[bytes] | None) -> subprocess.Popen[bytes]:
    """The command of a host; on this machine it finds the package that runs here."""
    return subprocess.Popen(
        [*host.command, host.python or sys.executable, "-P", "-m", MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if errors is None else errors,
        env=with_environment({"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}),
        start_new_session=True,
    )


def _error_file() -> IO[bytes] | None:
    """Where a process writes its errors; a full disk here is no reason not to run."""
    try:
        return tempfile.TemporaryFile()
    except OSError:
        return None
