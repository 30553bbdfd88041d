"""Moves bytes from one device to another.

- Direct: between devices of one GPU, and GPUs that reach each other's memory. The copy runs on the
  out stream of the source once the in stream of the target has reached the receive; the in stream
  continues after the copy.
  In a strand (`strands`) there is the copy alone, and several ranges are one kernel.
- Staged: between GPUs that do not reach each other's memory. Each slot and pair has two pinned
  buffers: while the target reads one, the source writes the other.
- Between processes: the bytes lie in a window of the target until its in stream reaches the receive
  (`process_ways`).
- Throttled: before the bytes move, a kernel of one thread waits for its turn on the link, and
  another kernel waits for the time that a link of the given bandwidth would take. Transfers of all
  slots between one ordered pair of devices share one link, first come, first served.

If there are too many ranges for single copies, or a transfer is of several buffers and short, a
kernel with a table of ranges moves them. Such a kernel also moves inputs that lie in GPU memory: it
reads their address from a word that the host sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from tessera.backend.cuda.api import Bytes, Driver
from tessera.backend.cuda.byte_pieces import chunks_of, pieces_of
from tessera.backend.cuda.call_structures import copy_2d
from tessera.backend.cuda.host_memory import HostMemory
from tessera.backend.cuda.process_ways import ProcessWays
from tessera.backend.cuda.streams import Streams
from tessera.backend.cuda.tape_writer import TapeWriter
from tessera.backend.cuda.targets import OpenDevice, have_peers
from tessera.backend.service import LONGEST_S
from tessera.ir.plan.launch_program import Portion, Queue, Transfer

STAGE_BYTES = 4 << 20
FETCH_BYTES = 16 << 10
PART_BYTES = 4 << 10
MOST_ROWS = 8192
MANY_PIECES = 32
KERNEL_BYTES = 1 << 20
"""Most bytes of several buffers that one kernel moves: a copy of more takes longer than its start.
"""


_Rows = tuple[tuple[int, int, int], ...]
"""Rows of the table of a kernel: source, target, bytes."""


class _Strip(NamedTuple):
    """Rows of bytes to copy. Target and source are the address of the first row, and a pitch."""

    target: tuple[int, int]
    source: tuple[int, int]
    width: int
    rows: int


def _strips(target: int, source: int, ranges: Sequence[tuple[int, int]]) -> list[_Strip]:
    """The same ranges at two places."""
    return [
        _Strip((target + p.start, p.pitch), (source + p.start, p.pitch), p.width, p.rows)
        for p in pieces_of(tuple(ranges))
    ]


class Links:
    """The links between all devices of a replica."""

    def __init__(
        self,
        driver: Driver,
        devices: Mapping[str, OpenDevice],
        streams: Streams,
        host: HostMemory,
        *,
        throttle_bytes_per_s: float | None = None,
        allow_peers: bool = True,
        ways: ProcessWays | None = None,
    ) -> None:
        self._ways = ways
        self._driver = driver
        self._devices = devices
        self._streams = streams
        self._host = host
        self._rate = throttle_bytes_per_s
        self._direct = {
            (source, target): allow_peers and have_peers(driver, devices[source], devices[target])
            for source in devices
            for target in devices
            if source != target
        }
        self._free_at: dict[tuple[str, str], int] = {}
        self._ends: dict[tuple[int, str, str], int] = {}
        self._words: list[tuple[str, int]] = []
        self._tables: dict[tuple[str, _Rows], int] = {}
        self._stages: dict[tuple[int, str, str], tuple[int, int]] = {}

    def move(self, writer: TapeWriter, transfer: Transfer, name: str) -> None:
        """Write the calls of a transfer between two devices."""
        source, target = transfer.source, transfer.target
        if source not in self._devices or target not in self._devices:
            self._move_half(writer, transfer, name)
            return
        send, receive = f"send {name} to {target}", f"receive {name} from {source}"
        if writer.in_strands:
            self._move_in_strand(writer, transfer, send, receive)
            return
        slot = writer.slot
        ready = self._streams.event(target, ("ready", slot, int(transfer.id)))
        writer.record(target, Queue.IN, ready)
        writer.wait(source, Queue.OUT, ready)
        self._turn(writer, transfer)
        if self._direct[source, target]:
            work = partial(self._direct_copy, writer, transfer)
        else:
            work = partial(self._staged_copy, writer, transfer)
        writer.timing(source, Queue.OUT, send, work, moved=transfer, peer=target)
        writer.timed_too(target, Queue.IN, receive, source)
        arrived = self._streams.event(source, ("arrived", slot, int(transfer.id)))
        writer.record(source, Queue.OUT, arrived)
        writer.wait(target, Queue.IN, arrived)

    def _move_in_strand(
        self, writer: TapeWriter, transfer: Transfer, send: str, receive: str
    ) -> None:
        """Write the copy alone: the strand that makes it has waited for both ends."""
        self._turn(writer, transfer)
        ends = [(transfer.source, Queue.OUT, send), (transfer.target, Queue.IN, receive)]
        (device, queue, text), (peer, other, same) = sorted(
            ends, key=lambda end: end[:2] != writer.copying(transfer)
        )
        work = partial(self._direct_copy, writer, transfer)
        writer.timing(device, queue, text, work, moved=transfer, peer=peer)
        writer.timed_too(peer, other, same, device)

    def _move_half(self, writer: TapeWriter, transfer: Transfer, name: str) -> None:
        """Write the calls for the end of a transfer that is in this process."""
        source, target = transfer.source, transfer.target
        if source in self._devices:
            self._turn(writer, transfer)
            work, text = partial(self._leave, writer, transfer), f"send {name} to {target}"
            writer.timing(source, Queue.OUT, text, work, moved=transfer, peer=target)
        else:
            place = self._wait_for_bytes(writer, transfer)
            given = target, Queue.IN, place, transfer.portions
            work = partial(self._pack, writer, *given, at_once=self._is_joined(transfer))
            text = f"receive {name} from {source}"
            writer.timing(target, Queue.IN, text, work, moved=transfer, peer=source)

    def _leave(self, writer: TapeWriter, transfer: Transfer) -> None:
        assert self._ways is not None
        self._delay(writer, transfer)
        device = transfer.source
        place, word = self._ways.place(writer.trace, writer.slot, transfer)
        at_once = self._is_joined(transfer)
        self._pack(writer, device, Queue.OUT, place, transfer.portions, at_once=at_once)
        number = self._ways.number(writer.trace, writer.slot)
        writer.word(device, Queue.OUT, "cuStreamWriteValue32", word, number)

    def _wait_for_bytes(self, writer: TapeWriter, transfer: Transfer) -> int:
        """Let the target wait for the bytes of another process; returns their place."""
        assert self._ways is not None
        place, word = self._ways.place(writer.trace, writer.slot, transfer)
        number = self._ways.number(writer.trace, writer.slot)
        writer.word(transfer.target, Queue.IN, "cuStreamWaitValue32", word, number)
        writer.waited(transfer.target, Queue.IN)
        return place

    def _is_joined(self, transfer: Transfer) -> bool:
        """Whether a transfer between processes is of several buffers, and in GPU memory."""
        far = None if self._ways is None else self._ways.far
        return len(transfer.portions) > 1 and not (far is not None and far.is_far(transfer))

    def _direct_copy(self, writer: TapeWriter, transfer: Transfer) -> None:
        self._delay(writer, transfer)
        strips = []
        for portion in transfer.portions:
            target = writer.address(transfer.target, portion.buffer)
            source = writer.address(transfer.source, portion.buffer)
            strips += _strips(target, source, portion.bytes)
        is_joined = len(transfer.portions) > 1
        self._copy(writer, writer.copying(transfer), strips, at_once=is_joined)

    def _staged_copy(self, writer: TapeWriter, transfer: Transfer) -> None:
        """Copy through two pinned buffers; each is overwritten only after it has been read."""
        self._delay(writer, transfer)
        source, target, slot = transfer.source, transfer.target, writer.slot
        stages = self._stage(slot, source, target)
        for number, portions in enumerate(chunks_of(transfer.portions, STAGE_BYTES)):
            half = number % 2
            read = self._streams.event(target, ("read", slot, source, target, half))
            written = self._streams.event(source, ("written", slot, source, target, half))
            if (source, target, half) in writer.stages_used:
                writer.wait(source, Queue.OUT, read)
            writer.stages_used.add((source, target, half))
            self._pack(writer, source, Queue.OUT, stages[half], portions)
            writer.record(source, Queue.OUT, written)
            writer.wait(target, Queue.IN, written)
            self._pack(writer, target, Queue.IN, stages[half], portions)
            writer.record(target, Queue.IN, read)
        # The send is complete when the target has read the last part.
        writer.wait(source, Queue.OUT, read)

    def _pack(
        self,
        writer: TapeWriter,
        device: str,
        queue: Queue,
        stage: int,
        portions: Sequence[Portion],
        *,
        at_once: bool = False,
    ) -> None:
        """Copy from buffers into contiguous bytes on the out queue, and back on the in queue."""
        strips = []
        bases = ((writer.address(device, p.buffer), pieces_of(p.bytes)) for p in portions)
        for base, piece in ((base, piece) for base, pieces in bases for piece in pieces):
            own, packed = (base + piece.start, piece.pitch), (stage, piece.width)
            ends = (packed, own) if queue is Queue.OUT else (own, packed)
            strips.append(_Strip(*ends, piece.width, piece.rows))
            stage += piece.width * piece.rows
        self._copy(writer, (device, queue), strips, at_once=at_once)

    def _stage(self, slot: int, source: str, target: str) -> tuple[int, int]:
        key = slot, source, target
        if key not in self._stages:
            first, second = (self._host.allocate(STAGE_BYTES)[0] for _ in range(2))
            self._stages[key] = first, second
        return self._stages[key]

    # --- helper kernels ---------------------------------------------------------------------

    def _turn(self, writer: TapeWriter, transfer: Transfer) -> None:
        """Wait for the turn of a transfer on a throttled link; its time counts from here."""
        if self._rate is None:
            return
        pair = transfer.source, transfer.target
        if pair not in self._free_at:
            self._free_at[pair] = self._word(transfer.source)
        key = (writer.slot, *pair)
        if key not in self._ends:
            self._ends[key] = self._word(transfer.source)
        wait_ns = round(min(transfer.size / self._rate, LONGEST_S) * 1e9)
        arguments = (self._free_at[pair], wait_ns, self._ends[key])
        writer.launch_helper(writer.copying(transfer), "link_turn", arguments)
        writer.waited(*writer.copying(transfer))

    def _delay(self, writer: TapeWriter, transfer: Transfer) -> None:
        """Wait for the time that the bytes take on a throttled link."""
        if self._rate is not None:
            end = self._ends[writer.slot, transfer.source, transfer.target]
            writer.launch_helper(writer.copying(transfer), "link_delay", (end,))

    def _word(self, device: str) -> int:
        self._driver.use(self._devices[device].context)
        address = self._driver.allocate(8)
        self._driver.fill(address, 0, 8)
        self._words.append((device, address))
        return address

    def copy_ranges(
        self,
        writer: TapeWriter,
        device: str,
        queue: Queue,
        target: int,
        source: int,
        ranges: Sequence[tuple[int, int]],
    ) -> None:
        """Copy the same ranges from one place to another, in as few calls as possible."""
        self._copy(writer, (device, queue), _strips(target, source, ranges))

    def _copy(
        self,
        writer: TapeWriter,
        place: tuple[str, Queue],
        strips: Sequence[_Strip],
        *,
        at_once: bool = False,
    ) -> None:
        """Copy strips, by one kernel if there are many or if they are to be there `at_once`."""
        size = sum(strip.width * strip.rows for strip in strips)
        is_short = size <= KERNEL_BYTES and sum(strip.rows for strip in strips) <= MOST_ROWS
        is_kernel = writer.in_strands or (at_once and is_short)
        if len(strips) > MANY_PIECES or (is_kernel and len(strips) > 1):
            self._copy_strips(writer, place, strips, size)
            return
        for (target, target_pitch), (source, source_pitch), width, rows in strips:
            if rows == 1:
                writer.copy(*place, target, source, width)
                continue
            described = copy_2d(
                self._driver, target, target_pitch, source, source_pitch, width, rows
            )
            writer.tape.kept.append(described)
            writer.call(place[0], "cuMemcpy2DAsync", described, writer.stream(*place))

    def _copy_strips(
        self, writer: TapeWriter, place: tuple[str, Queue], strips: Sequence[_Strip], size: int
    ) -> None:
        # From the lowest addresses on: the table is then the same in every slot.
        target = min(strip.target[0] for strip in strips)
        source = min(strip.source[0] for strip in strips)
        most = PART_BYTES * max(1, -(-size // (PART_BYTES * MOST_ROWS)))
        table = tuple(
            (
                first + row * pitch + at - source,
                to + row * to_pitch + at - target,
                min(most, width - at),
            )
            for (to, to_pitch), (first, pitch), width, rows in strips
            for row in range(rows)
            for at in range(0, width, most)
        )
        self._copy_rows(writer, place, "copy_ranges", (target, source), table)

    def fetch(
        self,
        writer: TapeWriter,
        place: tuple[str, Queue],
        target: int,
        word: int,
        ranges: Sequence[tuple[int, int]],
    ) -> None:
        """Copy ranges from the address that a word in pinned memory holds when the request runs."""
        parts = tuple(
            (at, at, min(FETCH_BYTES, end - at))
            for start, end in ranges
            for at in range(start, end, FETCH_BYTES)
        )
        if parts:
            self._copy_rows(writer, place, "fetch_ranges", (target, word), parts)

    def _copy_rows(
        self,
        writer: TapeWriter,
        place: tuple[str, Queue],
        kernel: str,
        between: tuple[int, int],
        rows: _Rows,
    ) -> None:
        arguments = (*between, self._table(place[0], rows), len(rows))
        blocks = min(len(rows), 1024)
        writer.launch_helper(place, kernel, arguments, blocks=blocks, threads=128)

    def _table(self, device: str, rows: _Rows) -> int:
        """The address of a table in device memory."""
        gpu = f"gpu {self._devices[device].gpu.ordinal}"
        if (gpu, rows) not in self._tables:
            content: Bytes = np.array(rows, np.uint64).reshape(-1).view(np.uint8)
            self._driver.use(self._devices[device].context)
            address = self._driver.allocate(content.nbytes)
            self._driver.upload(address, content)
            self._driver.settle()
            self._tables[gpu, rows] = address
        return self._tables[gpu, rows]

    def close(self) -> None:
        """Free tables and words."""
        by_gpu = {device.gpu.ordinal: device.context for device in self._devices.values()}
        for device, address in self._words:
            self._driver.use(self._devices[device].context)
            self._driver.free(address)
        for (gpu, _), address in self._tables.items():
            self._driver.use(by_gpu[int(gpu.removeprefix("gpu "))])
            self._driver.free(address)
        self._words.clear()
        self._tables.clear()
