"""States of lanes in which no request runs: read and set by the host, and handed to other replicas.

In: a replica on GPUs. Out: the methods for states of `Backend` and `HandingBackend` in
`backend.service`. Bytes for a replica of this process go from memory to memory, on a stream of
their own: the host waits for them, and lets the next request of the other lane begin afterwards.
On one GPU one kernel copies all of them; between GPUs, spans of one size at one distance are one
copy of rows. Others go through pinned memory.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

import numpy as np
import numpy.typing as npt

from tessera.backend.cuda.api import MOST_PITCH, Bytes, Driver, Handle, host_view
from tessera.backend.cuda.call_structures import copy_2d
from tessera.backend.cuda.links import MOST_ROWS, PART_BYTES
from tessera.backend.cuda.queued_work import pack_words
from tessera.backend.cuda.replica import CudaReplica
from tessera.backend.service import Backend, StateParts
from tessera.ir.plan.hand_over import MovedSpan, StateTransfer

_MOST_BLOCKS, _THREADS = 1024, 128


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
        here, contents = self.replica.contents, other.replica.contents
        rows: list[tuple[int, int, Sequence[MovedSpan]]] = [
            (
                here.state_address(lane, transfer.source, portion.state),
                contents.state_address(there, transfer.target, portion.state),
                portion.spans,
            )
            for portion in transfer.portions
        ]
        gpus = self.replica.devices[transfer.source].gpu, other.replica.devices[transfer.target].gpu
        with self._at_rest():
            if gpus[0].ordinal == gpus[1].ordinal and sum(len(own) for *_, own in rows) > 1:
                with self._staging:
                    self._copy_at_once(transfer.source, rows)
            else:
                stream = self._stream(transfer.source)
                for source, target, spans in rows:
                    for strip in strips_of(spans):
                        self._copy(source, target, strip, stream)
                self.driver.call("cuStreamSynchronize", stream)
        return True

    def _copy_at_once(
        self, device: str, rows: Sequence[tuple[int, int, Sequence[MovedSpan]]]
    ) -> None:
        """Copy many spans on one GPU by one kernel: a call of the host costs more than its copy."""
        table = copy_table(rows)
        stream, pinned = self._stream(device), self._pinned(table.nbytes)
        host_view(pinned, table.nbytes)[:] = table.reshape(-1).view(np.uint8)
        packed = pack_words((0, 0, pinned, len(table)))
        function = self.replica.helpers.function(device, "copy_ranges")
        sizes = (min(len(table), _MOST_BLOCKS), 1, 1, _THREADS, 1, 1, 0, stream)
        self.driver.call("cuLaunchKernel", function, *sizes, packed.address, 0)
        self.driver.call("cuStreamSynchronize", stream)

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
                green = self.replica.devices[device].green
                self._moving[device] = self.driver.stream(self.driver.priorities()[0], green)
            return self._moving[device]

    def _end_moving(self) -> None:
        for device, stream in self._moving.items():
            self.driver.use(self.replica.devices[device].context)
            self.driver.destroy_stream(stream)
        self._moving.clear()
        if self._room[1]:
            self.driver.free_host(self._room[0])
            self._room = 0, 0


def copy_table(
    rows: Sequence[tuple[int, int, Sequence[MovedSpan]]],
) -> npt.NDArray[np.uint64]:
    """The table of `copy_ranges`: rows of source, target and bytes, of parts that blocks copy."""
    spans = np.concatenate([np.array(own, np.int64).reshape(-1, 3) for _, _, own in rows])
    bases = np.array([(source, target, 0) for source, target, _ in rows], np.int64)
    spans += np.repeat(bases, [len(own) for _, _, own in rows], axis=0)
    most = PART_BYTES * max(1, -(-int(spans[:, 2].sum()) // (PART_BYTES * MOST_ROWS)))
    counts = -(-spans[:, 2] // most)
    which = np.repeat(np.arange(len(spans)), counts)
    skipped = (np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)) * most
    parts = spans[which]
    sizes = np.minimum(parts[:, 2] - skipped, most)
    table = np.stack([parts[:, 0] + skipped, parts[:, 1] + skipped, sizes], axis=1)
    return table.astype(np.uint64)


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
