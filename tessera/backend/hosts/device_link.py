"""The process of a device, here or on another host, and the two threads that talk to it.

In: a `HostEntry`, and a launcher (`launchers`). Out: a `DeviceLink`, which sends messages to the
process and puts its messages into an inbox. A process that does not read blocks only the thread
that writes to it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Collection, Sequence

from tessera.backend.hosts.channel import BadMessage, ChannelClosed, ControlChannel
from tessera.backend.hosts.launchers import Launcher
from tessera.backend.hosts.messages import FROM_DEVICE, FromDevice, StillHere
from tessera.backend.processes.messages import Message
from tessera.backend.service import Bytes
from tessera.ir.plan.hosts import HostEntry

_HANG_UP_S = 0.5
_JOIN_S = 1.0
_STILL_HERE_S = 5.0

Inbox = queue.SimpleQueue[tuple[str, FromDevice | BadMessage | None, list[Bytes]]]
"""The device, its message and the parts; None instead of a message if the process is gone."""


class DeviceLink:
    """One process, as the driver sees it."""

    def __init__(self, device: str, host: HostEntry, inbox: Inbox, launch: Launcher) -> None:
        """Start the process; raises `OSError` if the command of the host cannot be run."""
        self.host = host
        self.has_begun = False
        self.is_gone = False
        self.noise = ""
        self._outbox: queue.SimpleQueue[tuple[Message, Sequence[Bytes]] | None] = (
            queue.SimpleQueue()
        )
        self.process = launch(host)
        self._channel = ControlChannel(self.process.source, self.process.target, FROM_DEVICE)
        self.serve_as(device, inbox)
        self._threads = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._write, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def serve_as(self, device: str, inbox: Inbox) -> None:
        """Serve as this device from now on; messages go to this inbox."""
        self.heard_s = time.monotonic()
        self._to = inbox, device

    @property
    def heard_s(self) -> float:
        """When bytes last arrived from the process, including those of an unfinished message."""
        return max(self._heard_s, self._channel.read_s)

    @heard_s.setter
    def heard_s(self, at_s: float) -> None:
        self._heard_s = at_s

    @property
    def sent_s(self) -> float:
        """When the process last accepted bytes."""
        return self._channel.wrote_s

    @property
    def device(self) -> str:
        """The device that the process serves."""
        return self._to[1]

    def tell(self, message: Message, parts: Sequence[Bytes] = ()) -> None:
        """Queue a message; its parts must not change until it is sent."""
        self._outbox.put((message, parts))

    def _read(self) -> None:
        try:
            self._channel.await_start()
            self.has_begun = True
            while True:
                self._heard(*self._channel.receive())
        except BadMessage as problem:
            self._heard(problem, [])
            self._lose(problem)
        except (ChannelClosed, OSError, ValueError) as problem:
            self._lose(problem)
        self.process.close_source()

    def _heard(self, message: FromDevice | BadMessage | None, parts: list[Bytes]) -> None:
        self.heard_s = time.monotonic()
        inbox, device = self._to
        inbox.put((device, message, parts))

    def _lose(self, problem: Exception) -> None:
        self.noise = str(problem)
        self.is_gone = True
        self._heard(None, [])

    def _write(self) -> None:
        """Send the outbox; after `_STILL_HERE_S` seconds without a message, send a sign of life."""
        while True:
            try:
                message = self._outbox.get(timeout=_STILL_HERE_S)
            except queue.Empty:
                message = StillHere(), ()
            if message is None:
                break
            try:
                self._channel.send(*message)
            except (ChannelClosed, OSError, ValueError):
                break
        self.process.close_target()

    def ended(self) -> str:
        """How the process ended, in words."""
        return self.process.wait(_HANG_UP_S)

    def said(self) -> str:
        """The last line of its standard error, or what it wrote before its first message."""
        return self.process.said() or ("" if self.has_begun else self.noise.strip())

    def hang_up(self) -> None:
        """Close the channel once the outbox is sent; the process then ends."""
        self._outbox.put(None)

    def end(self, deadline_s: float) -> None:
        """End the process and the threads."""
        self.process.end(max(0.0, deadline_s - time.monotonic()))
        for thread in self._threads:
            thread.join(_JOIN_S)


def stop_links(links: dict[str, DeviceLink]) -> None:
    """Hang up, and end every process that does not end by itself."""
    ending: Collection[DeviceLink] = list(links.values())
    links.clear()
    for link in ending:
        link.hang_up()
    deadline_s = time.monotonic() + _HANG_UP_S
    for link in ending:
        link.end(deadline_s)
