"""Processes of hosts that are kept for the next run.

In: devices with their hosts. Out: `DeviceLink`s. A process that a run has released holds no memory,
thread or connection of that run. It keeps the traces that it has read and analysed, and accepts
another plan. A process that does not confirm its release in time is ended.
"""

from __future__ import annotations

import queue
import threading
import time

from tessera.backend.hosts import host_faults
from tessera.backend.hosts.device_link import DeviceLink, Inbox, stop_links
from tessera.backend.hosts.launchers import Launcher
from tessera.backend.hosts.messages import Release, Released
from tessera.ir.plan.hosts import HostEntry

_RELEASE_S = 2.0
_SILENT_S = 1.0


class LinkPool:
    """Kept processes. Thread-safe."""

    def __init__(self, launch: Launcher) -> None:
        """`launch` starts a process on a host."""
        self._launch = launch
        self._idle: list[DeviceLink] = []
        self._changing = threading.Lock()
        self._is_closed = False

    def take(self, device: str, host: HostEntry, inbox: Inbox) -> DeviceLink:
        """A process for a device: a kept process, or a new one."""
        with self._changing:
            # A stopped process, or one whose host is lost, sends no beats.
            late_s = time.monotonic() - _SILENT_S
            gone = [link for link in self._idle if link.is_gone or link.heard_s < late_s]
            self._idle = [link for link in self._idle if link not in gone]
            here = [link for link in self._idle if link.host == host]
            # Prefer the process that served the same device: it has the code and the GPU of the
            # device.
            kept = min(here, key=lambda link: link.device != device, default=None)
            if kept is not None:
                self._idle.remove(kept)
        stop_links({str(number): link for number, link in enumerate(gone)})
        if kept is None:
            return start_link(device, host, inbox, self._launch)
        kept.serve_as(device, inbox)
        return kept

    def keep(self, links: dict[str, DeviceLink], inbox: Inbox) -> None:
        """Take processes back from a finished run; processes that do not answer are ended."""
        now_s = time.monotonic()
        asked = {
            device: link
            for device, link in links.items()
            if not self._is_closed and not link.is_gone and now_s - link.heard_s < _SILENT_S
        }
        for link in asked.values():
            link.tell(Release())
        free: list[DeviceLink] = []
        while asked and (left := now_s + _RELEASE_S - time.monotonic()) > 0:
            try:
                device, message, _ = inbox.get(timeout=left)
            except queue.Empty:
                break
            if message is None:
                asked.pop(device, None)
            elif isinstance(message, Released) and asked.pop(device, None) is not None:
                free += [links.pop(device)] if device in links else []  # or all are ended
        stop_links(links)
        with self._changing:
            if not self._is_closed:
                self._idle += free
                return
        stop_links({link.device: link for link in free})

    def processes(self) -> list[int]:
        """The ids of the processes that wait for a run."""
        with self._changing:
            return [link.process.pid for link in self._idle if not link.is_gone]

    def close(self) -> None:
        """End the processes that wait for a run."""
        with self._changing:
            self._is_closed = True
            idle, self._idle = self._idle, []
        stop_links({str(number): link for number, link in enumerate(idle)})


def start_link(device: str, host: HostEntry, inbox: Inbox, launch: Launcher) -> DeviceLink:
    """Start a process for a device; raises `ServiceFault` if the command cannot be run."""
    try:
        return DeviceLink(device, host, inbox, launch)
    except OSError as problem:
        words = " ".join([*host.command, host.python])
        raise host_faults.no_command(device, host.name, words, problem) from None
