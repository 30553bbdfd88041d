"""The process of a device in a run over hosts: its queues as threads, a channel to the driver.

In: a model that was proved here, and a channel. Out: what `backend.hosts.hosts_backend` hears. The
worker ends when the driver lets go of it, and the process when its channel does.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Mapping, Sequence

from tessera.backend.hosts.channel import ChannelClosed, ControlChannel, Head, Part
from tessera.backend.hosts.records import (
    diagnostic_head,
    event_row,
    named_parts,
    states_record,
    wait_row,
)
from tessera.backend.hosts.windows import TransportExchange, Windows
from tessera.backend.processes.arena import space_bytes
from tessera.backend.processes.device_worker import DeviceWorker
from tessera.backend.processes.engine import DeviceEngine
from tessera.backend.processes.messages import (
    AskStates,
    AskWaits,
    Begin,
    DeviceReady,
    Done,
    Faulted,
    PassedGate,
    SetStates,
    States,
    Status,
    Waits,
    status_bytes,
)
from tessera.backend.service import BackendOptions, Model
from tessera.backend.transports.choice import TransportPlace, open_transport
from tessera.backend.transports.shared_memory import shared_window
from tessera.backend.transports.transport import TransportFault
from tessera.ir.plan.launch_program import TransferId

_MOST_ROWS = 12
_END_S = 1.0


class HostWorker(DeviceWorker):
    """A device that answers to a driver."""

    def __init__(
        self,
        channel: ControlChannel,
        model: Model,
        options: BackendOptions,
        place: TransportPlace,
    ) -> None:
        super().__init__()
        self._channel = channel
        self._model = model
        self._beat_s = place.beat_s
        device = place.name
        self._saying = threading.Lock()
        lowered = model.lowered
        window, descriptor = shared_window(Windows(lowered).bytes(device))
        self._exchange = TransportExchange(lowered, device, window)
        self._transport = open_transport(
            place, window, descriptor, self._exchange.outgoing, self._hear_note, self._lose
        )
        self._exchange.attach(self._transport, self._lose)
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

    def serve(self) -> None:
        """Say where this device listens, then do what the driver says until it lets go."""
        slots = self._model.lowered.slots
        self._begin_to_beat(Status(mmap.mmap(-1, status_bytes(slots)), 0, slots))
        self._send({"kind": "listening", "address": self._transport.address})
        try:
            self._obey_driver()
        except ChannelClosed:
            os._exit(0)
        except BaseException as problem:
            self._fail(problem)
            while self._channel.receive()[0]["kind"] != "release":
                pass
        self._release()

    def _obey_driver(self) -> None:
        while True:
            head, parts = self._channel.receive()
            if head["kind"] == "release":
                return
            self._take(head, parts)

    def _release(self) -> None:
        """Leave nothing of this run behind; nothing is said of it from here on."""
        with self._saying:
            self._over.set()
        self._transport.close()
        if not self._end(_END_S):
            os._exit(0)  # a kernel that goes on: only the end of the process ends it

    def _take(self, head: Head, parts: list[Part]) -> None:
        match head["kind"]:
            case "peers":
                self._join(head["addresses"])
            case "begin":
                number, trace, slot = head["number"], head["trace"], head["slot"]
                for transfer, part in zip(head["transfers"], parts, strict=True):
                    self._exchange.region(trace, slot, TransferId(transfer))[:] = part
                self._exchange.begin(number, trace, slot)
                self._obey(Begin(number, trace, slot, head["lane"]))
            case "states":
                self._obey(AskStates(head["lane"]))
            case "set states":
                contents = dict(zip(head["names"], parts, strict=True))
                self._obey(SetStates(head["lane"], contents))
            case "waits":
                self._obey(AskWaits())
            case "clock":
                self._send({"kind": "clock", "sent": head["sent"], "ns": time.monotonic_ns()})
            case _:
                pass  # a beat

    def _join(self, addresses: Mapping[str, str]) -> None:
        try:
            self._transport.connect(addresses, self._exchange.puts())
        except TransportFault as fault:
            self._lose(fault.peer, fault.why)
            return
        lowered = self._model.lowered
        self._start(self._engine, {trace.trace: trace.gate for trace in lowered.traces})
        self._tell(DeviceReady())

    def _hear_note(self, peer: str, note: bytes) -> None:
        self._exchange.hear(peer, note, self._arrived, self._credited)

    def _lose(self, peer: str, why: str, *, is_cut: bool = False) -> None:
        self._send({"kind": "lost", "peer": peer, "why": why, "is_cut": is_cut})

    def _beat(self) -> None:
        """Say that the process is alive, and how far its requests are."""
        slots = range(self._model.lowered.slots)
        while not self._over.wait(self._beat_s):
            request, step = self._status.launch
            with self._changed:
                rows = [wait_row(wait) for wait in self._engine.waits()[:_MOST_ROWS]]
            self._send(
                {
                    "kind": "beat",
                    "marks": [self._status.got_on_ns(slot) for slot in slots],
                    "launch": [request, None if step is None else int(step)],
                    "waits": rows,
                }
            )

    def _tell(self, message: object) -> None:
        match message:
            case DeviceReady():
                self._send({"kind": "ready"})
            case PassedGate(number):
                self._send({"kind": "gate", "number": number})
            case Done(number, events, printed):
                kept = self._exchange.take_kept(number)
                head: Head = {
                    "kind": "done",
                    "number": number,
                    "events": [event_row(event) for event in events],
                    "printed": [list(line) for line in printed],
                    "transfers": [int(transfer) for transfer, _ in kept],
                }
                self._send(head, [part for _, part in kept])
            case States(parts):
                self._send(*states_record(parts))
            case Waits(rows):
                self._send({"kind": "waits", "rows": [wait_row(wait) for wait in rows]})
            case Faulted():
                self._send(fault_head(message))
            case _:
                raise AssertionError(f"nobody expects {message}")

    def _send(self, head: Head, parts: Sequence[Part] = ()) -> None:
        try:
            with self._saying:
                if not self._over.is_set():
                    self._channel.send(head, parts)
        except ChannelClosed:
            os._exit(0)


def fault_head(fault: Faulted) -> Head:
    """A fault as a record."""
    return {
        "kind": "fault",
        "diagnostic": fault.diagnostic and diagnostic_head(fault.diagnostic),
        "exit_code": int(fault.exit_code),
        "request": fault.request,
        "step": None if fault.step is None else int(fault.step),
        "text": fault.text,
    }


def states_head(lane: int, contents: Mapping[str, Part]) -> tuple[Head, list[Part]]:
    """What states of a lane hold from now on, as a record and its bytes."""
    names, parts = named_parts(contents)
    return {"kind": "set states", "lane": lane, "names": names}, parts
