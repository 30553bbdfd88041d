"""Streams and events: three streams per device and slot, events by what they stand for.

A compute queue changes to another stream when the priority of its kernels changes. In a graph whose
kernels differ in priority the driver picks the queues, and on an H200 requests waited for each
other in those queues: splits of experts took up to 66% longer.

Transfers have the highest priority, so that a copy that is ready starts before the next block of a
kernel. In each slot, a device also has a stream for progress marks of its compute queue; nothing
waits for the marks. Streams are made on first use, which is during startup.
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
        self._priorities: tuple[int, int] | None = None
        self._streams: dict[tuple[str, int, Queue | str | int | None], Handle] = {}
        self._events: dict[tuple[str, Hashable], Handle] = {}

    def stream(self, device: str, slot: int, queue: Queue) -> Handle:
        """The stream of a queue."""
        return self._stream(device, slot, queue)

    def marks(self, device: str, slot: int) -> Handle:
        """The stream for marks of progress."""
        return self._stream(device, slot, "marks")

    def compute(self, device: str, slot: int, priority: int | None) -> Handle:
        """The stream of a compute queue for kernels of a priority; None is the lowest priority."""
        lowest, _ = self._range()
        return self._stream(device, slot, Queue.COMPUTE if priority in (None, lowest) else priority)

    def _stream(self, device: str, slot: int, queue: Queue | str | int | None) -> Handle:
        key = device, slot, queue
        if key not in self._streams:
            opened = self._devices[device]
            lowest, highest = self._range()
            self._driver.use(opened.context)
            priority = highest if queue in (Queue.IN, Queue.OUT) else lowest
            self._streams[key] = self._driver.stream(
                queue if isinstance(queue, int) else priority, opened.green
            )
        return self._streams[key]

    def _range(self) -> tuple[int, int]:
        """The lowest and the highest priority; the same for all GPUs."""
        if self._priorities is None:
            self._driver.use(next(iter(self._devices.values())).context)
            self._priorities = self._driver.priorities()
        return self._priorities

    def event(self, device: str, key: Hashable) -> Handle:
        """The event of a device for a key; the same key gives the same event."""
        if (device, key) not in self._events:
            self._driver.use(self._devices[device].context)
            self._events[device, key] = self._driver.event()
        return self._events[device, key]

    def close(self) -> None:
        """Destroy all streams and events."""
        for (device, _), event in self._events.items():
            self._driver.use(self._devices[device].context)
            self._driver.destroy_event(event)
        for (device, _, _), stream in self._streams.items():
            self._driver.use(self._devices[device].context)
            self._driver.destroy_stream(stream)
        self._events.clear()
        self._streams.clear()
