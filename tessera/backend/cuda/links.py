"""How bytes get from one device to another.

- Direct: devices of one GPU, and GPUs that reach each other's memory. The copy runs on the out
  stream of the source, once the in stream of the target has come to the receive; the in stream
  goes on after it.
- Staged: GPUs that do not. Two pinned buffers per slot and pair: while the target reads one, the
  source writes the other.
- Throttled: before the bytes move, a kernel of one thread takes its turn on the link and waits for
  as long as a link of the given bandwidth would take. Transfers of all slots between one ordered
  pair of devices share one link, first come, first served.

Ranges that are too many for single copies are moved by a kernel with a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tessera.backend.cuda.api import Bytes, Driver, Handle
from tessera.backend.cuda.byte_pieces import Piece, chunks_of, pieces_of
from tessera.backend.cuda.host_memory import HostMemory
from tessera.backend.cuda.parameters import pack_parameters
from tessera.backend.cuda.streams import Streams
from tessera.backend.cuda.targets import OpenDevice, have_peers
from tessera.ir.data_type import DataType
from tessera.ir.launch_program import Queue, Transfer
from tessera.ir.program import Scalar

if TYPE_CHECKING:
    from tessera.backend.cuda.enqueue import Enqueuer

STAGE_BYTES = 4 << 20
MANY_PIECES = 32
_HELPERS = Path(__file__).with_name("helpers.ptx")


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
    ) -> None:
        self._driver = driver
        self._devices = devices
        self._streams = streams
        self._host = host
        self._rate = throttle_bytes_per_s
        self._direct = {
            (one, other): allow_peers and have_peers(driver, devices[one], devices[other])
            for one in devices
            for other in devices
            if one != other
        }
        self._modules: dict[int, Handle] = {}
        self._free_at: dict[tuple[str, str], int] = {}
        self._tables: dict[tuple[str, tuple[Piece, ...]], int] = {}
        self._stages: dict[tuple[int, str, str], tuple[int, int]] = {}

    def move(self, queue: Enqueuer, transfer: Transfer, name: str) -> None:
        """Hand a transfer between two devices over."""
        source, target = transfer.source, transfer.target
        slot = queue.slot
        ready = self._streams.event(target, ("ready", slot, int(transfer.id)))
        queue.record(target, Queue.IN, ready)
        queue.wait(source, Queue.OUT, ready)
        if self._direct[source, target]:
            work = partial(self._direct_copy, queue, transfer)
        else:
            work = partial(self._staged_copy, queue, transfer)
        queue.timing(source, Queue.OUT, f"send {name} to {target}", work, moved=transfer.size)
        queue.timed_too(target, Queue.IN, f"receive {name} from {source}")
        arrived = self._streams.event(source, ("arrived", slot, int(transfer.id)))
        queue.record(source, Queue.OUT, arrived)
        queue.wait(target, Queue.IN, arrived)

    def _direct_copy(self, queue: Enqueuer, transfer: Transfer) -> None:
        self._delay(queue, transfer)
        source = queue.address(transfer.source, transfer.buffer)
        target = queue.address(transfer.target, transfer.buffer)
        queue.copy_ranges(transfer.source, Queue.OUT, target, source, transfer.bytes)

    def _staged_copy(self, queue: Enqueuer, transfer: Transfer) -> None:
        """Through two pinned buffers; each is written again only when it has been read."""
        self._delay(queue, transfer)
        source, target, slot = transfer.source, transfer.target, queue.slot
        stages = self._stage(slot, source, target)
        out_base = queue.address(source, transfer.buffer)
        in_base = queue.address(target, transfer.buffer)
        for number, ranges in enumerate(chunks_of(transfer.bytes, STAGE_BYTES)):
            half = number % 2
            read = self._streams.event(target, ("read", slot, source, target, half))
            written = self._streams.event(source, ("written", slot, source, target, half))
            if (source, target, half) in queue.stages_used:
                queue.wait(source, Queue.OUT, read)
            queue.stages_used.add((source, target, half))
            self._pack(queue, source, Queue.OUT, out_base, stages[half], ranges, packing=True)
            queue.record(source, Queue.OUT, written)
            queue.wait(target, Queue.IN, written)
            self._pack(queue, target, Queue.IN, in_base, stages[half], ranges, packing=False)
            queue.record(target, Queue.IN, read)
        # The send is over when the target has read the last part.
        queue.wait(source, Queue.OUT, read)

    def _pack(
        self, queue: Enqueuer, device: str, kind: Queue, base: int, stage: int,
        ranges: tuple[tuple[int, int], ...], *, packing: bool,
    ) -> None:  # fmt: skip
        """Between ranges of a buffer and a run of bytes in staging."""
        at = stage
        stream = queue.stream(device, kind)
        for piece in pieces_of(ranges):
            place = base + piece.start
            target, source = (at, place) if packing else (place, at)
            pitches = (piece.width, piece.pitch) if packing else (piece.pitch, piece.width)
            if piece.rows == 1:
                queue.copy(device, kind, target, source, piece.width)
            else:
                described = self._driver.copy_2d(
                    target, pitches[0], source, pitches[1], piece.width, piece.rows
                )
                queue.tape.kept.append(described)
                queue.call(device, "cuMemcpy2DAsync", described, stream)
            at += piece.width * piece.rows

    def _stage(self, slot: int, source: str, target: str) -> tuple[int, int]:
        key = slot, source, target
        if key not in self._stages:
            first, second = (self._host.allocate(STAGE_BYTES)[0] for _ in range(2))
            self._stages[key] = first, second
        return self._stages[key]

    # --- kernels of our own -----------------------------------------------------------------

    def _delay(self, queue: Enqueuer, transfer: Transfer) -> None:
        if self._rate is None:
            return
        pair = transfer.source, transfer.target
        if pair not in self._free_at:
            self._driver.use(self._devices[transfer.source].context)
            self._free_at[pair] = self._driver.allocate(8)
            self._driver.fill(self._free_at[pair], 0, 8)
        wait_ns = round(transfer.size / self._rate * 1e9)
        self._launch(
            queue, transfer.source, Queue.OUT, "link_delay", 1, 1, (self._free_at[pair], wait_ns)
        )

    def copy_many(
        self, queue: Enqueuer, device: str, kind: Queue, target: int, source: int,
        pieces: Sequence[Piece],
    ) -> bool:  # fmt: skip
        """Copy many pieces with one kernel; False where single copies do."""
        if len(pieces) <= MANY_PIECES:
            return False
        rows = sum(piece.rows for piece in pieces)
        table = self._table(device, tuple(pieces))
        arguments = (target, source, table, rows)
        self._launch(queue, device, kind, "copy_ranges", min(rows, 1024), 128, arguments)
        return True

    def _table(self, device: str, pieces: tuple[Piece, ...]) -> int:
        """The ranges of the pieces in the memory of a device."""
        gpu = f"gpu {self._devices[device].gpu.ordinal}"
        if (gpu, pieces) not in self._tables:
            starts = [p.start + row * p.pitch for p in pieces for row in range(p.rows)]
            widths = [p.width for p in pieces for _ in range(p.rows)]
            rows = np.array([starts, starts, widths], np.uint64).T.copy()
            self._driver.use(self._devices[device].context)
            address = self._driver.allocate(rows.nbytes)
            content: Bytes = rows.reshape(-1).view(np.uint8)
            self._driver.upload(address, content)
            self._tables[gpu, pieces] = address
        return self._tables[gpu, pieces]

    def _launch(
        self, queue: Enqueuer, device: str, kind: Queue, kernel: str, blocks: int, threads: int,
        values: Sequence[int],
    ) -> None:  # fmt: skip
        packed = pack_parameters([Scalar(DataType.U64, value) for value in values], _no_pointer)
        queue.tape.kept.extend(packed.kept)
        function = self._driver.function(self._helpers(device), kernel)
        sizes = (blocks, 1, 1, threads, 1, 1, 0, queue.stream(device, kind))
        queue.call(device, "cuLaunchKernel", function, *sizes, packed.address, 0)

    def _helpers(self, device: str) -> Handle:
        gpu = self._devices[device].gpu.ordinal
        if gpu not in self._modules:
            self._driver.use(self._devices[device].context)
            self._modules[gpu] = self._driver.load(_HELPERS.read_bytes())
        return self._modules[gpu]

    def close(self) -> None:
        """Free tables and modules."""
        by_gpu = {device.gpu.ordinal: device.context for device in self._devices.values()}
        for (source, _), address in self._free_at.items():
            self._driver.use(self._devices[source].context)
            self._driver.free(address)
        for (gpu, _), address in self._tables.items():
            self._driver.use(by_gpu[int(gpu.removeprefix("gpu "))])
            self._driver.free(address)
        for ordinal, module in self._modules.items():
            self._driver.use(by_gpu[ordinal])
            self._driver.unload(module)
        self._free_at.clear()
        self._tables.clear()
        self._modules.clear()


def _no_pointer(pointer: object) -> int:
    raise AssertionError(f"no pointer is passed: {pointer}")
