"""One device of a replica, on a GPU, in a process of its own.

In: the part of a model for one device, and packed inputs. Out: packed outputs, and states. Other
devices are reached by `process_ways`. The driver of the run is another process, and hands requests
to all devices in one order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tessera.backend.cuda.api import Bytes, Driver, DriverError
from tessera.backend.cuda.backend import CudaBackend
from tessera.backend.cuda.far_ways import FarWays
from tessera.backend.cuda.faults import start_failed
from tessera.backend.cuda.options import CudaOptions
from tessera.backend.cuda.process_ways import ProcessWays, part_of_device
from tessera.backend.cuda.targets import find_gpu_of, open_driver
from tessera.backend.service import BackendOptions, Model, Request, TimelineEvent
from tessera.backend.transports.choice import open_transport
from tessera.backend.transports.transport import Lose, Transport, TransportPlace, lose_nothing
from tessera.ir.plan.launch_program import HOST, Portion, TransferId
from tessera.ir.plan.one_host import on_one_host
from tessera.ir.plan.stream_operation import StreamOperation
from tessera.settings import read_settings


@dataclass(slots=True, kw_only=True)
class PartDone:
    """A request that is done on this device, with what is sent to the driver."""

    number: int
    outputs: list[tuple[TransferId, Bytes]]
    events: tuple[TimelineEvent, ...]


class GpuPart:
    """A device: first its window, then everything else once the other windows are known."""

    def __init__(
        self,
        model: Model,
        device: str,
        options: BackendOptions,
        driver: Driver | None = None,
        *,
        hosts: Mapping[str, str] | None = None,
        place: TransportPlace | None = None,
    ) -> None:
        """`hosts` has the host of each device; devices of other hosts are reached from `place`."""
        lowered = on_one_host(model.lowered)
        self._hosts = hosts or {}
        self._driver = open_driver(driver)
        own = self._hosts.get(device)
        targets = {n: t for n, t in options.targets.items() if self._hosts.get(n) == own}
        self._options = replace(options, targets=targets)
        self._model = replace(model, lowered=part_of_device(lowered, device))
        self._ways = ProcessWays(self._driver, lowered, device, self._hosts)
        ordinal = find_gpu_of(self._driver, device, targets[device])
        try:
            self._handle = self._ways.open(ordinal)
        except DriverError as problem:
            raise start_failed(problem, f"the window of `{device}` on cuda:{ordinal}") from None
        self._transport: Transport | None = None
        self.lose: Lose = lose_nothing
        if place is not None and self._far:
            far = self._far
            self._transport = open_transport(
                place, far.window, -1, far.outgoing, far.hear, self._lost
            )
        self._backend: CudaBackend | None = None
        self._traces: dict[int, int] = {}
        self._transfers = {
            trace.trace: [t for t in trace.transfers if HOST in (t.source, t.target)]
            for trace in self._model.lowered.traces
        }

    @property
    def device(self) -> str:
        """The device."""
        return self._ways.device

    @property
    def address(self) -> str:
        """The text by which others open the window, and by which other hosts reach this one."""
        there = "" if self._transport is None else self._transport.address
        return json.dumps([self._handle.hex(), there])

    def stream_operations(self) -> list[dict[str, list[StreamOperation]]]:
        """For each trace, the operations of a request on the streams of every device."""
        return [self._ways.stream_operations(trace) for trace in self._transfers]

    @property
    def _far(self) -> FarWays:
        assert self._ways.far is not None
        return self._ways.far

    def _lost(self, peer: str, why: str, *, is_cut: bool = False) -> None:
        self.lose(peer, why, is_cut=is_cut)

    def connect(self, addresses: Mapping[str, str]) -> None:
        """Load, allocate and capture everything; raises `TransportFault` for a peer."""
        own = self._hosts.get(self._ways.device)
        given = {peer: json.loads(address) for peer, address in addresses.items()}
        near = {peer for peer in given if self._hosts.get(peer) == own}
        self._ways.connect({peer: bytes.fromhex(given[peer][0]) for peer in near})
        if self._transport is not None:
            far = {peer: str(given[peer][1]) for peer in given if peer not in near}
            self._transport.connect(far, self._far.puts())
            self._far.attach(self._transport, self._lost)
        # The next request of a slot begins when all devices are done with the previous one.
        cuda = CudaOptions(graphs=read_settings().use_graphs, depth=1, ways=self._ways)
        self._backend = CudaBackend(self._model, self._options, cuda=cuda, driver=self._driver)

    @property
    def backend(self) -> CudaBackend:
        """The backend of this device, once it is connected."""
        assert self._backend is not None
        return self._backend

    def begin(self, number: int, trace: int, slot: int, lane: int, given: list[Bytes]) -> None:
        """Begin a request with the bytes of its transfers from the driver, in their order."""
        program = self._model.traces[trace].program
        coming = [t for t in self._transfers[trace] if t.source == HOST]
        inputs: dict[str, Bytes] = {}
        for transfer, part in zip(coming, given, strict=True):
            (portion,) = transfer.portions
            buffer = program.buffers[portion.buffer]
            if buffer.name not in inputs:
                inputs[buffer.name] = np.zeros(buffer.bytes, np.uint8)
            _unpack(portion, part, inputs[buffer.name])
        self._traces[number] = trace
        self._far.under_way = len(self._traces)
        self._ways.begin(trace, slot)
        request = Request(number=number, trace=trace, slot=slot, lane=lane, inputs=inputs)
        self.backend.begin(request)

    def collect(self, timeout_s: float) -> list[PartDone]:
        """Requests that are done on this device."""
        done = []
        for completion in self.backend.collect(timeout_s):
            trace = self._traces.pop(completion.request)
            self._far.under_way = len(self._traces)
            buffers = self._model.traces[trace].program.buffers
            outputs = [
                (transfer.id, _pack(portion, completion.outputs[buffers[portion.buffer].name]))
                for transfer in self._transfers[trace]
                if transfer.target == HOST
                for portion in transfer.portions
            ]
            done.append(
                PartDone(number=completion.request, outputs=outputs, events=completion.events)
            )
        return done

    def close(self) -> bool:
        """Release everything but the window, which others may have open.

        False if work is under way that does not end, such as a stream that waits for a word of a
        device that is gone: then only the end of this process frees its memory. The word is not
        written instead, since the kernels after it would run on bytes that nobody has sent.
        """
        if self._backend is not None:
            self._backend.close()
            if not self._backend.is_released:
                return False
        self._ways.close()
        return True

    def free_window(self) -> None:
        """Free the window, once all others have closed it."""
        self._ways.free()

    def leave(self) -> None:
        """Release the context: a next part that is already open need not make a new one."""
        self._ways.leave()


def _pack(portion: Portion, content: Bytes) -> Bytes:
    return np.concatenate([content[start:end] for start, end in portion.bytes])


def _unpack(portion: Portion, packed: Bytes, content: Bytes) -> None:
    at = 0
    for start, end in portion.bytes:
        content[start:end] = packed[at : at + end - start]
        at += end - start
