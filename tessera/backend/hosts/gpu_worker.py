"""The process of a device on a GPU: a channel to the driver, and graphs for the GPU.

In: a model that was proved in this process, and a channel. Out: messages to
`backend.hosts.hosts_backend`, the same as those of `host_worker`. One thread receives the driver's
messages, one waits for requests to end, and one sends signs of life. The worker ends when the
driver releases it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tessera.backend.cuda.process_part import GpuPart, PartDone
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
from tessera.backend.processes.messages import (
    AskStates,
    AskWaits,
    Begin,
    DeviceReady,
    Done,
    PartsDone,
    ReadParts,
    Waits,
    WriteParts,
    fault_of,
    states_message,
)
from tessera.backend.processes.visits import QueueWait
from tessera.backend.service import Bytes, StateParts
from tessera.backend.transports.transport import TransportFault

_WAIT_S = 0.05
_MOST_ROWS = 12


class GpuWorker:
    """A device on a GPU that serves a driver."""

    def __init__(
        self,
        channel: ControlChannel[ToDevice],
        part: GpuPart,
        *,
        beat_s: float,
        orphan: Callable[[], None],
    ) -> None:
        """`orphan` ends the process: the driver is gone, or its GPU had a fault."""
        self._channel = channel
        self._line = DriverLine(channel, orphan)
        self._part = part
        part.lose = self._line.lose
        self._beat_s = beat_s
        self._orphan = orphan
        self._ready = False
        self._is_broken = False
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._doors = DoorKeeper(self._line.send, self._read_parts, self._write_parts)

    def _read_parts(self, lane: int, parts: StateParts) -> Bytes:
        return self._part.backend.read_parts(lane, self._part.device, parts)

    def _write_parts(self, lane: int, parts: StateParts, content: Bytes) -> None:
        self._part.backend.write_parts(lane, self._part.device, parts, content)

    def serve(self) -> None:
        """Send the address of the window, then obey the driver until it releases this device."""
        self._start(self._beat)
        self._line.send(Listening(self._part.address))
        while True:
            try:
                message, parts = self._channel.receive()
                if isinstance(message, Release):
                    break
                self._take(message, parts)
            except ChannelClosed:
                raise
            except BaseException as problem:
                self._fail(problem)
        self._release()

    def _release(self) -> None:
        """Release everything of this run; no message is sent from now on."""
        self._line.end()
        self._doors.close()
        self._over.set()
        if self._is_broken:
            self._orphan()  # a kernel fault destroys the context; only a new process gets another
        for thread in self._threads:
            thread.join()
        if not self._part.close():
            self._orphan()  # a stream waits for a device that is gone: the process frees its memory

    def _take(self, message: ToDevice, parts: list[Bytes]) -> None:
        match message:
            case Peers(addresses):
                try:
                    self._part.connect(addresses)
                except TransportFault as fault:
                    self._line.lose(fault.peer, fault.why)
                    return
                self._ready = True
                self._start(self._collect)
                self._line.send(DeviceReady())
            case Begin(number, trace, slot, lane):
                with self._lock:
                    self._part.begin(number, trace, slot, lane, parts)
            case AskStates(lane):
                pieces = self._part.backend.replica.contents.pieces(lane)
                self._line.send(*states_message(pieces))
            case ReadParts(lane, wanted):
                self._line.send(PartsDone(), [self._read_parts(lane, wanted)])
            case WriteParts(lane, wanted):
                self._write_parts(lane, wanted, parts[0])
                self._line.send(PartsDone())
            case AskWaits():
                self._line.send(Waits(self._waits()))
            case AskClock(sent_ns):
                self._line.send(ClockTold(sent_ns, time.monotonic_ns()))
            case StillHere():
                pass
            case OpenDoor() | JoinDoor() | SendParts() | CloseDoor():
                self._doors.obey(message)
            case _:
                raise TypeError(f"a device on a GPU does not take {type(message).__name__}")

    def _collect(self) -> None:
        """Report done requests to the driver."""
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
        transfers = tuple(int(transfer) for transfer, _ in report.outputs)
        done = Done(report.number, report.events, transfers=transfers)
        self._line.send(done, [content for _, content in report.outputs])

    def _waits(self) -> tuple[QueueWait, ...]:
        """The steps that the device may be running."""
        if not self._ready:
            return ()
        with self._lock:
            places = self._part.backend.reached()
        return tuple(
            QueueWait(request=place.request, text=place.text(), step=None, name="")
            for place in places[:_MOST_ROWS]
        )

    def _beat(self) -> None:
        while not self._over.wait(self._beat_s):
            marks: tuple[str, ...] = ()
            if self._ready:
                with self._lock:
                    marks = tuple(str(mark) for mark in self._part.backend.progress().items())
            self._line.send(Beat(marks, waits=self._waits()))

    def _fail(self, problem: BaseException) -> None:
        self._is_broken = True
        self._line.send(sent_fault(fault_of(problem)))

    def _start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, daemon=True)
        self._threads.append(thread)
        thread.start()
