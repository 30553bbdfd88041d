"""Times of operations: a kernel of one thread writes the GPU's clock before and after each.

In: stamps enqueued while a request is handed over. Out: `TimelineEvent`s. An operation that follows
another on its queue without a wait between them starts when the other ends. The stamps lie in
pinned memory, so reading them takes no call. (Timed events are no alternative: the host takes as
long to launch a graph with such nodes as the GPU takes to run it.) Each GPU has its own clock,
whose offset to the host's clock is measured once, at startup.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tessera.backend.cuda.api import Driver
from tessera.backend.cuda.helpers import Helpers
from tessera.backend.cuda.host_memory import HostMemory
from tessera.backend.cuda.queued_work import pack_words
from tessera.backend.cuda.streams import Streams
from tessera.backend.cuda.targets import OpenDevice
from tessera.backend.service import TimelineEvent
from tessera.ir.plan.launch_program import Queue, TransferId
from tessera.ir.program.program import LaunchId

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """An operation between two stamps, given by number, on the GPU of device `clock`."""

    device: str
    queue: Queue
    name: str
    clock: str
    start: int
    end: int
    step: LaunchId | None = None
    bytes: int = 0
    peer: str = ""
    transfer: TransferId | None = None


class Stamps:
    """Words of pinned memory for the stamps of one trace in one slot."""

    def __init__(self, host: HostMemory, count: int) -> None:
        self.address, view = host.allocate(8 * count)
        self.words: Words = view.view(np.uint64)
        self.words[:] = 0


class Clock:
    """Converts stamps to the host's time, per device."""

    def __init__(
        self,
        driver: Driver,
        streams: Streams,
        devices: Mapping[str, OpenDevice],
        helpers: Helpers,
        host: HostMemory,
    ) -> None:
        self._ahead: dict[str, int] = {}
        known: dict[int, int] = {}  # slices of a GPU have one clock
        for name, device in devices.items():
            if device.gpu.ordinal in known:
                self._ahead[name] = known[device.gpu.ordinal]
                continue
            # Twice, because the first launch loads the kernel.
            for _ in range(2):
                stamps = Stamps(host, 1)
                packed = pack_words([stamps.address])
                driver.use(device.context)
                sizes = (1, 1, 1, 1, 1, 1, 0, streams.stream(name, 0, Queue.COMPUTE))
                function = helpers.function(name, "stamp")
                before = time.perf_counter_ns()
                driver.call("cuLaunchKernel", function, *sizes, packed.address, 0)
                driver.finish()
                middle = (before + time.perf_counter_ns()) // 2
            self._ahead[name] = known[device.gpu.ordinal] = middle - int(stamps.words[0])

    def events(
        self, operations: Sequence[Timed], words: Words, *, slot: int, request: int
    ) -> tuple[TimelineEvent, ...]:
        """The operations of a finished request, sorted by time."""
        times = words.tolist()
        events = [
            TimelineEvent(
                device=timed.device,
                queue=timed.queue,
                slot=slot,
                request=request,
                name=timed.name,
                start_ns=times[timed.start] + self._ahead[timed.clock],
                end_ns=times[timed.end] + self._ahead[timed.clock],
                step=timed.step,
                bytes=timed.bytes,
                peer=timed.peer,
                transfer=timed.transfer,
            )
            for timed in operations
        ]
        return tuple(sorted(events, key=lambda event: event.start_ns))
