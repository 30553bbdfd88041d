"""The process of a device that is on a GPU: a channel to the driver, graphs for the GPU.

In: a model that was proved here, and a channel. Out: what `backend.hosts.hosts_backend` hears: the
records of `host_worker`. One thread takes what the driver says, one waits for requests to end, one
says that the process is alive. It ends when the driver lets go of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from tessera.backend.cuda.process_part import GpuPart, PartDone
from tessera.backend.hosts.channel import ChannelClosed, ControlChannel, Head, Part
from tessera.backend.hosts.host_worker import fault_head
from tessera.backend.hosts.records import event_row, states_record
from tessera.backend.processes.messages import fault_of
from tessera.backend.transports.transport import TransportFault

_WAIT_S = 0.05
_MOST_ROWS = 12


class GpuWorker:
    """A device on a GPU that answers to a driver."""

    def __init__(
        self, channel: ControlChannel, part: GpuPart, *, beat_s: float, orphan: Callable[[], None]
    ) -> None:
        """`orphan` ends the process: nobody hears it any more, or its GPU is lost to it."""
        self._channel = channel
        self._part = part
        part.lose = self._lose
        self._beat_s = beat_s
        self._orphan = orphan
        self._ready = False
        self._is_broken = False
        self._lock = threading.Lock()
        self._saying = threading.Lock()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def serve(self) -> None:
        """Say what the window is opened by, then do what the driver says until it is gone."""
        self._start(self._beat)
        self._send({"kind": "listening", "address": self._part.address})
        while True:
            head, parts = self._channel.receive()
            if head["kind"] == "release":
                break
            try:
                self._take(head, parts)
            except ChannelClosed:
                raise
            except BaseException as problem:
                self._fail(problem)
        self._release()

    def _release(self) -> None:
        """Leave nothing of this run behind; nothing is said of it from here on."""
        with self._saying:
            self._over.set()
        if self._is_broken:
            self._orphan()  # a fault of a kernel takes the context: only a new process has one
        for thread in self._threads:
            thread.join()
        self._part.close()

    def _take(self, head: Head, parts: list[Part]) -> None:
        match head["kind"]:
            case "peers":
                try:
                    self._part.connect(head["addresses"])
                except TransportFault as fault:
                    self._lose(fault.peer, fault.why)
                    return
                self._ready = True
                self._start(self._collect)
                self._send({"kind": "ready"})
            case "begin":
                with self._lock:
                    self._part.begin(
                        head["number"], head["trace"], head["slot"], head["lane"], parts
                    )
            case "states":
                pieces = self._part.backend.replica.contents.pieces(head["lane"])
                self._send(*states_record(pieces))
            case "set states":
                states = dict(zip(head["names"], parts, strict=True))
                self._part.backend.write_states(head["lane"], states)
            case "waits":
                self._send({"kind": "waits", "rows": self._rows()})
            case "clock":
                self._send({"kind": "clock", "sent": head["sent"], "ns": time.monotonic_ns()})
            case _:
                pass  # a beat

    def _lose(self, peer: str, why: str, *, is_cut: bool = False) -> None:
        self._send({"kind": "lost", "peer": peer, "why": why, "is_cut": is_cut})

    def _collect(self) -> None:
        """Tell the driver of requests that are done."""
        try:
            while not self._over.is_set():
                self._part.backend.wait(_WAIT_S)
                with self._lock:
                    done = self._part.collect(0)
                for report in done:
                    self._done(report)
        except BaseException as problem:
            self._fail(problem)

    def _done(self, report: PartDone) -> None:
        head: Head = {
            "kind": "done",
            "number": report.number,
            "events": [event_row(event) for event in report.events],
            "printed": [],
            "transfers": [int(transfer) for transfer, _ in report.outputs],
        }
        self._send(head, [content for _, content in report.outputs])

    def _rows(self) -> list[list[object]]:
        """The steps that the device may be at."""
        if not self._ready:
            return []
        with self._lock:
            places = self._part.backend.reached()
        return [[place.request, place.text(), -1, ""] for place in places[:_MOST_ROWS]]

    def _beat(self) -> None:
        while not self._over.wait(self._beat_s):
            marks: list[object] = []
            if self._ready:
                with self._lock:
                    marks = [str(mark) for mark in self._part.backend.progress().items()]
            self._send(
                {"kind": "beat", "marks": marks, "launch": [None, None], "waits": self._rows()}
            )

    def _fail(self, problem: BaseException) -> None:
        self._is_broken = True
        self._send(fault_head(fault_of(problem)))

    def _start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _send(self, head: Head, parts: Sequence[Part] = ()) -> None:
        try:
            with self._saying:
                if not self._over.is_set():
                    self._channel.send(head, parts)
        except ChannelClosed:
            self._orphan()
            raise
