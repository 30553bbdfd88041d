"""Starts the process of a device: the interface, and the launcher that runs a host's command.

In: a `HostEntry`. Out: a `StartedDevice`: two descriptors for a channel, and methods to end the
process. A launcher is a function; the launcher of a Ray cluster is in `driver.hosts.ray_launcher`.
A process lives as long as its channel, so no process remains, however this process ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Protocol

from tessera.ir.plan.hosts import HostEntry
from tessera.settings import with_environment

_SAID = 2000


class StartedDevice(Protocol):
    """A started process, on any host."""

    @property
    def pid(self) -> int:
        """The process id on its host, or that of the command that started it."""

    @property
    def source(self) -> int:
        """The descriptor to read its messages from."""

    @property
    def target(self) -> int:
        """The descriptor to write messages to."""

    def poll(self) -> int | None:
        """The exit code; None while the process runs, or if the code is not known."""

    def wait(self, limit_s: float) -> str:
        """How the process ended, as the rest of a sentence; waits at most `limit_s` seconds."""

    def said(self) -> str:
        """The last line of its standard error."""

    def close_source(self) -> None:
        """Close the reading end."""

    def close_target(self) -> None:
        """Close the writing end, so that the process ends."""

    def end(self, limit_s: float) -> None:
        """End the process if it has not ended by itself within `limit_s` seconds."""


Launcher = Callable[[HostEntry], StartedDevice]


class CommandProcess:
    """A process started by its host's command, in its own session: Ctrl-C does not reach it."""

    def __init__(self, host: HostEntry, module: str) -> None:
        """Start a Python module on a host; raises `OSError` if the command cannot be run."""
        self._errors = _error_file()
        try:
            self._process = _start(host, module, self._errors)
        except OSError:
            if self._errors is not None:
                self._errors.close()
            raise
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdout, self._process.stdin

    @property
    def pid(self) -> int:
        """The process id of the command."""
        return self._process.pid

    @property
    def source(self) -> int:
        """The descriptor of its standard output."""
        return self._in.fileno()

    @property
    def target(self) -> int:
        """The descriptor of its standard input."""
        return self._out.fileno()

    def poll(self) -> int | None:
        """Its exit code."""
        return self._process.poll()

    def wait(self, limit_s: float) -> str:
        """How the process ended, in words."""
        try:
            code = self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return "has closed its channel"
        return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def said(self) -> str:
        """The last line that it wrote to its standard error."""
        if self._errors is not None:
            with suppress(OSError, ValueError):
                size = self._errors.seek(0, os.SEEK_END)
                self._errors.seek(max(0, size - _SAID))
                lines = self._errors.read().decode(errors="replace").strip().splitlines()
                if lines:
                    return lines[-1].strip()
        return ""

    def close_source(self) -> None:
        """Close the reading end."""
        with suppress(OSError):
            self._in.close()

    def close_target(self) -> None:
        """Close the writing end, so that the process ends."""
        with suppress(OSError):
            self._out.close()

    def end(self, limit_s: float) -> None:
        """End the process, with all processes that it has started."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(limit_s)
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._errors is not None:
            self._errors.close()


def _start(host: HostEntry, module: str, errors: IO[bytes] | None) -> subprocess.Popen[bytes]:
    """Start the command of a host; on this machine it finds the package that runs here."""
    return subprocess.Popen(
        [*host.command, host.python or sys.executable, "-P", "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if errors is None else errors,
        env=with_environment({"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}),
        start_new_session=True,
    )


def _error_file() -> IO[bytes] | None:
    """A file for standard error; None if the disk is full, which does not stop a run."""
    try:
        return tempfile.TemporaryFile()
    except OSError:
        return None
