"""States of lanes in which no request runs: read and set by the host, and handed to other replicas.

In: a replica on GPUs. Out: the methods for states of `Backend` and `HandingBackend` in
`backend.service`. Bytes for a replica of this process go from memory to memory, on a stream of
their own: the host waits for them, and lets the next request of the other lane begin afterwards.
Others go through pinned memory. Spans of one size at one distance are one copy of rows.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from tessera.backend.cuda.api import MOST_PITCH, Bytes, Driver, Handle, host_view
from tessera.backend.cuda.call_structures import copy_2d
from tessera.backend.cuda.replica import CudaReplica
from tessera.backend.service import Backend, StateParts
from tessera.ir.plan.hand_over import MovedSpan, StateTransfer


class LaneStates(ABC):
    """The part of a backend that reads, sets and hands over states."""

    replica: CudaReplica
    driver: Driver

    def __init__(self) -> None:
        self._moving: dict[str, Handle] = {}
        self._opening, self._staging = threading.Lock(), threading.Lock()
        self._room = 0, 0

    @abstractmethod
    def _at_rest(self) -> AbstractContextManager[None]:
        """A context of the driver, in which its errors become faults."""

    def read_states(self, lane: int) -> Mapping[str, Bytes]:
        """The states of a lane in which no request runs."""
        with self._at_rest():
            return self.replica.contents.read_states(lane)

    def read_parts(self, lane: int, device: str, parts: StateParts) -> Bytes:
        """Bytes of states of a lane, as a device has them."""
        size = sum(end - start for _, ranges in parts for start, end in ranges)
        with self._at_rest(), self._staging:
            stream, pinned = self._stream(device), self._pinned(size)
            for state, spans in self._spans(lane, device, parts):
                for strip in strips_of(spans):
                    self._copy(state, pinned, strip, stream)
            self.driver.call("cuStreamSynchronize", stream)
            return host_view(pinned, size).copy()

    def write_parts(self, lane: int, device: str, parts: StateParts, content: Bytes) -> None:
        """Set bytes of states of a lane, on one device."""
        with self._at_rest(), self._staging:
            stream, pinned = self._stream(device), self._pinned(content.nbytes)
            host_view(pinned, content.nbytes)[:] = content
            for state, spans in self._spans(lane, device, parts):
                for strip in strips_of([(at, start, size) for start, at, size in spans]):
                    self._copy(pinned, state, strip, stream)
            self.driver.call("cuStreamSynchronize", stream)

    def _spans(
        self, lane: int, device: str, parts: StateParts
    ) -> Iterator[tuple[int, list[MovedSpan]]]:
        """The address of each state, and where its ranges are there and when packed."""
        at = 0
        for name, ranges in parts:
            spans = []
            for start, end in ranges:
                spans.append((start, at, end - start))
                at += end - start
            yield self.replica.contents.state_address(lane, device, name), spans

    def _pinned(self, size: int) -> int:
        """Memory of the host for so many bytes; it is kept for the next ones."""
        if size > self._room[1]:
            if self._room[1]:
                self.driver.free_host(self._room[0])
            self._room = self.driver.allocate_host(size), size
        return self._room[0]

    def hand_to(self, other: Backend, lane: int, there: int, transfer: StateTransfer) -> bool:
        """Copy the bytes of a transfer to a replica of this process, if the other one is."""
        if not isinstance(other, LaneStates):
            return False
        with self._at_rest():
            stream = self._stream(transfer.source)
            for portion in transfer.portions:
                here = self.replica.contents
                source = here.state_address(lane, transfer.source, portion.state)
                contents = other.replica.contents
                target = contents.state_address(there, transfer.target, portion.state)
                for spans in strips_of(portion.spans):
                    self._copy(source, target, spans, stream)
            self.driver.call("cuStreamSynchronize", stream)
        return True

    def _copy(self, source: int, target: int, spans: Sequence[MovedSpan], stream: Handle) -> None:
        start, put, size = spans[0]
        if len(spans) == 1:
            self.driver.call("cuMemcpyAsync", target + put, source + start, size, stream)
            return
        pitches = spans[1][1] - put, spans[1][0] - start
        described = copy_2d(
            self.driver, target + put, pitches[0], source + start, pitches[1], size, len(spans)
        )
        self.driver.call("cuMemcpy2DAsync", described, stream)

    def _stream(self, device: str) -> Handle:
        """The stream of a device for what it hands over; its context is current afterwards."""
        self.driver.use(self.replica.devices[device].context)
        with self._opening:
            if device not in self._moving:
                self._moving[device] = self.driver.stream(self.driver.priorities()[0])
            return self._moving[device]

    def _end_moving(self) -> None:
        for device, stream in self._moving.items():
            self.driver.use(self.replica.devices[device].context)
            self.driver.destroy_stream(stream)
        self._moving.clear()
        if self._room[1]:
            self.driver.free_host(self._room[0])
            self._room = 0, 0


def strips_of(spans: Sequence[MovedSpan]) -> Iterator[Sequence[MovedSpan]]:
    """Spans in lists of one size, at one distance above it where they are read and written."""
    first, last = 0, 0
    while last < len(spans):
        pitches = (0, 0)
        last = first + 1
        if last < len(spans):
            pitches = spans[last][0] - spans[first][0], spans[last][1] - spans[first][1]
        if all(spans[first][2] <= pitch <= MOST_PITCH for pitch in pitches):
            start, put, size = spans[first]
            while last < len(spans) and spans[last] == (
                start + (last - first) * pitches[0],
                put + (last - first) * pitches[1],
                size,
            ):
                last += 1
        yield spans[first:last]
        first = last
