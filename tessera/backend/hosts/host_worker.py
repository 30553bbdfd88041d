"""The process of a device in a run over hosts: a thread per queue, and a channel to the driver.

In: a model that was proved in this process, and a channel. Out: messages to
`backend.hosts.hosts_backend`. The worker ends when the driver releases it; the process ends when
its channel closes.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Mapping, Sequence

import msgspec

from tessera.backend.hosts.channel import ChannelClosed, ControlChannel, DriverLine
from tessera.backend.hosts.doors import DoorKeeper
from tessera.backend.hosts.messages import (
    AskClock,
    Beat,
    ClockTold,
    CloseDoor,
    JoinDoor,
    Listening,
    OpenDoor,
    Peers,
    Release,
    SendParts,
    StillHere,
    ToDevice,
    sent_fault,
)
from tessera.backend.hosts.windows import TransportExchange
from tessera.backend.processes.arena import space_bytes
from tessera.backend.processes.device_worker import DeviceWorker
from tessera.backend.processes.engine import DeviceEngine
from tessera.backend.processes.exchange import Windows
from tessera.backend.processes.messages import (
    Begin,
    DeviceReady,
    Done,
    Faulted,
    Message,
    Status,
    status_bytes,
)
from tessera.backend.service import BackendOptions, Bytes, Model
from tessera.backend.transports.choice import open_transport
from tessera.backend.transports.shared_memory import shared_window
from tessera.backend.transports.transport import TransportFault, TransportPlace
from tessera.ir.plan.launch_program import TransferId

_MOST_ROWS = 12
_END_S = 1.0


class HostWorker(DeviceWorker):
    """A device that serves a driver."""

    def __init__(
        self,
        channel: ControlChannel[ToDevice],
        model: Model,
        options: BackendOptions,
        place: TransportPlace,
    ) -> None:
        super().__init__()
        self._channel = channel
        self._line = DriverLine(channel, lambda: os._exit(0))
        self._model = model
        self._beat_s = place.beat_s
        device = place.name
        lowered = model.lowered
        window, descriptor = shared_window(Windows(lowered).bytes(device))
        self._exchange = TransportExchange(lowered, device, window)
        self._transport = open_transport(
            place, window, descriptor, self._exchange.outgoing, self._hear_note, self._line.lose
        )
        self._exchange.attach(self._transport, self._line.lose)
        self._engine = DeviceEngine(
            device,
            lowered.devices.index(device),
            model,
            self._exchange,
            memory_bytes=space_bytes(model, device),
            max_steps=options.max_steps,
            bytes_per_s=options.throttle_bytes_per_s,
            unwritten=options.unwritten,
        )
        arena = self._engine.arena
        self._doors = DoorKeeper(self._line.send, arena.read_parts, arena.write_parts)

    def serve(self) -> None:
        """Send the address of this device, then obey the driver until it releases this device."""
        slots = self._model.lowered.slots
        self._begin_to_beat(Status(mmap.mmap(-1, status_bytes(slots)), 0, slots))
        self._line.send(Listening(self._transport.address))
        try:
            while not isinstance((told := self._channel.receive())[0], Release):
                self._take(*told)
        except ChannelClosed:
            os._exit(0)
        except BaseException as problem:
            self._fail(problem)
            while not isinstance(self._channel.receive()[0], Release):
                pass
        self._release()

    def _release(self) -> None:
        """Release everything of this run; no message is sent from now on."""
        self._line.end()
        self._doors.close()
        self._transport.close()
        if not self._end(_END_S):
            os._exit(0)  # a kernel that still runs ends only with the process

    def _take(self, message: ToDevice, parts: Sequence[Bytes]) -> None:
        match message:
            case Peers(addresses):
                self._join(addresses)
            case AskClock(sent_ns):
                self._line.send(ClockTold(sent_ns, time.monotonic_ns()))
            case StillHere():
                pass
            case OpenDoor() | JoinDoor() | SendParts() | CloseDoor():
                self._doors.obey(message)
            case Begin(number, trace, slot, _, transfers):
                for transfer, part in zip(transfers, parts, strict=True):
                    self._exchange.region(trace, slot, TransferId(transfer))[:] = part
                self._exchange.begin(number, trace, slot)
                self._obey(message, ())
            case _:
                self._obey(message, parts)

    def _join(self, addresses: Mapping[str, str]) -> None:
        try:
            self._transport.connect(addresses, self._exchange.puts())
        except TransportFault as fault:
            self._line.lose(fault.peer, fault.why)
            return
        lowered = self._model.lowered
        self._start(self._engine, {trace.trace: trace.gate for trace in lowered.traces})
        self._tell(DeviceReady())

    def _hear_note(self, peer: str, note: bytes) -> None:
        self._exchange.hear(peer, note, self._arrived, self._credited)

    def _beat(self) -> None:
        """Send signs of life, with the progress of requests."""
        slots = range(self._model.lowered.slots)
        while not self._over.wait(self._beat_s):
            request, step = self._status.launch
            with self._changed:
                waits = self._engine.waits()[:_MOST_ROWS]
            marks = tuple(self._status.got_on_ns(slot) for slot in slots)
            self._line.send(Beat(marks, request, step, waits))

    def _tell(self, message: Message, parts: Sequence[Bytes] = ()) -> None:
        match message:
            case Done(number):
                kept = self._exchange.take_kept(number)
                transfers = tuple(int(transfer) for transfer, _ in kept)
                message = msgspec.structs.replace(message, transfers=transfers)
                parts = [part for _, part in kept]
            case Faulted():
                message = sent_fault(message)
        self._line.send(message, parts)
