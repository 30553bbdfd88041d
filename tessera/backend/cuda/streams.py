"""Streams and events: three streams per device and slot, events by what they stand for.

Transfers have the highest priority, so that a copy that is ready starts before the next block of
a kernel. A device also has a stream in each slot for marks of how far its compute queue has come,
for which nothing waits. All are made when they are first asked for, which is while a backend
starts.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from tessera.backend.cuda.api import Driver, Handle
from tessera.backend.cuda.targets import OpenDevice
from tessera.ir.plan.launch_program import Queue


class Streams:
    """The streams and events of a replica."""

    def __init__(self, driver: Driver, devices: Mapping[str, OpenDevice]) -> None:
        self._driver = driver
        self._devices = devices
        self._streams: dict[tuple[str, int, Queue | str], Handle] = {}
        self._events: dict[tuple[str, Hashable], Handle] = {}

    def stream(self, device: str, slot: int, queue: Queue) -> Handle:
        """The stream of a queue."""
        return self._stream(device, slot, queue)

    def marks(self, device: str, slot: int) -> Handle:
        """The stream that writes how far a device has come."""
        return self._stream(device, slot, "marks")

    def _stream(self, device: str, slot: int, queue: Queue | str) -> Handle:
        key = device, slot, queue
        if key not in self._streams:
            opened = self._devices[device]
            self._driver.use(opened.context)
            lowest, highest = self._driver.priorities()
            priority = highest if queue in (Queue.IN, Queue.OUT) else lowest
            self._streams[key] = self._driver.stream(priority, opened.green)
        return self._streams[key]

    def event(self, device: str, key: Hashable) -> Handle:
        """The event of a device for something; the same key gives the same event."""
        if (device, key) not in self._events:
            self._driver.use(self._devices[device].context)
            self._events[device, key] = self._driver.event()
        return self._events[device, key]

    def close(self) -> None:
        """Give all back."""
        for (device, _), event in self._events.items():
            self._driver.use(self._devices[device].context)
            self._driver.destroy_event(event)
        for (device, _, _), stream in self._streams.items():
            self._driver.use(self._devices[device].context)
            self._driver.destroy_stream(stream)
        self._events.clear()
        self._streams.clear()
