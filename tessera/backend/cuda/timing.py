"""When operations took place: timed events round each of them, as one clock for all devices.

In: marks set while a request is handed over. Out: `TimelineEvent`s. An operation that follows
another on its queue without a wait between them starts where that one ended. GPUs have clocks of
their own; each is tied to the host's by one event at the start, which costs a wait there. The
driver gives times as 32-bit floats, so the tie is renewed every few seconds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tessera.backend.cuda.api import Driver, Handle
from tessera.backend.cuda.streams import Streams
from tessera.backend.cuda.targets import OpenDevice
from tessera.backend.service import TimelineEvent
from tessera.ir.launch_program import Queue
from tessera.ir.program import LaunchId

RENEW_NS = 4_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """An operation between two events, which are of the GPU of `clock`."""

    device: str
    queue: Queue
    name: str
    clock: str
    start: Handle
    end: Handle
    step: LaunchId | None = None
    bytes: int = 0


class Clock:
    """The host's time of events, per GPU."""

    def __init__(self, driver: Driver, streams: Streams, devices: Mapping[str, OpenDevice]) -> None:
        self._driver = driver
        self._streams = streams
        self._bases: dict[int, tuple[Handle, int]] = {}
        self._next: dict[int, Handle] = {}
        self._gpu = {name: device.gpu.ordinal for name, device in devices.items()}
        self._round = 0
        for name, device in devices.items():
            if device.gpu.ordinal not in self._bases:
                driver.use(device.context)
                base = self._record(name)
                driver.call("cuEventSynchronize", base)
                self._bases[device.gpu.ordinal] = base, time.perf_counter_ns()

    def at(self, device: str, event: Handle) -> int:
        """The time of an event that has happened."""
        base, base_ns = self._bases[self._gpu[device]]
        return base_ns + self._driver.elapsed_ns(base, event)

    def renew(self, device: str) -> None:
        """Move the tie of a device's GPU forward if it is old; never waits."""
        gpu = self._gpu[device]
        pending = self._next.get(gpu)
        if pending is not None:
            if self._driver.is_done(pending):
                self._bases[gpu] = pending, self.at(device, pending)
                del self._next[gpu]
        elif time.perf_counter_ns() - self._bases[gpu][1] > RENEW_NS:
            self._next[gpu] = self._record(device)

    def events(
        self, operations: Sequence[Timed], *, slot: int, request: int
    ) -> tuple[TimelineEvent, ...]:
        """What a finished request did, by time."""
        found = [
            TimelineEvent(
                device=one.device, queue=one.queue, slot=slot, request=request, name=one.name,
                start_ns=self.at(one.clock, one.start), end_ns=self.at(one.clock, one.end),
                step=one.step, bytes=one.bytes,
            )
            for one in operations
        ]  # fmt: skip
        return tuple(sorted(found, key=lambda event: event.start_ns))

    def _record(self, device: str) -> Handle:
        self._round ^= 1
        event = self._streams.event(device, ("clock", self._gpu[device], self._round), timed=True)
        self._driver.record(event, self._streams.stream(device, 0, Queue.IN))
        return event
