"""The CPU backend over several hosts: a process per device, started by the command of its host.

In: a model, and a `HostsRun`: the host of each device, and the plan that its process proves again.
Out: a `Backend`. Inputs and outputs go over the channels of the processes; transfers between
devices go directly from one process to the other. A failure of a process or a link ends in a
fault that names it.
"""

from __future__ import annotations

import queue
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec

from tessera.backend.hosts import host_faults
from tessera.backend.hosts.channel import BadMessage
from tessera.backend.hosts.device_link import DeviceLink, Inbox, stop_links
from tessera.backend.hosts.host_faults import LastSeen, waits_of
from tessera.backend.hosts.link_pool import LinkPool
from tessera.backend.hosts.messages import (
    AskClock,
    Beat,
    ClockTold,
    CloseDoor,
    FromDevice,
    Hello,
    HostFault,
    HostSetup,
    JoinDoor,
    Listening,
    Lost,
    OpenDoor,
    Peers,
    PlanPart,
    SendParts,
)
from tessera.backend.hosts.windows import DriverExchange, peers_of
from tessera.backend.processes.device_group import (
    DeviceGroup,
    part_of,
    refuse_library_calls,
    transfers_to,
)
from tessera.backend.processes.messages import (
    Answer,
    DeviceReady,
    Done,
    Message,
    PartsDone,
    PassedGate,
    States,
    Waits,
    sent_parts,
)
from tessera.backend.service import Backend, BackendOptions, Bytes, Model, Request, ServiceFault
from tessera.backend.transports.transport import TransportPlace
from tessera.ir.plan.hand_over import StateTransfer
from tessera.ir.plan.hosts import HostEntry
from tessera.ir.plan.launch_program import TransferId
from tessera.ir.version import __version__

_START_S = 120.0
_SILENT_AT_START_S = 20.0
_BETTER_S, _LOOK_S = 0.2, 0.05
_CLOCK_LOOKS = 5
_CUT_SHARE = 0.4 / 1.5
"""Share of `silent_s` after which a link counts as cut, before a process counts as stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsRun:
    """The hosts of devices, the time limits of their processes, and the plan sent to them.

    Processes are taken from the pool and returned to it. Times are in seconds.
    """

    host_of: Mapping[str, HostEntry]
    describe: Callable[[Model, str], tuple[PlanPart, list[Bytes]]]
    pool: LinkPool
    heartbeat_s: float = 0.1
    silent_s: float = 1.5
    transport: str = "tcp"


class HostsBackend(DeviceGroup):
    """A replica on processes of several hosts."""

    # One at a time: a device answers one question after the other, and the ends of a way wait for
    # each other.
    _handing = threading.Lock()

    def __init__(self, model: Model, options: BackendOptions, run: HostsRun) -> None:
        if not options.targets:
            refuse_library_calls(model)
        super().__init__(model, has_gates=not options.targets)  # on GPUs, gates are events
        self._exchange_by(DriverExchange(model))
        self._options = options
        self._run = run
        self.name = secrets.token_hex(8)
        self._doors: dict[tuple[str, str, str], str] = {}
        self._inbox: Inbox = queue.SimpleQueue()
        self._links: dict[str, DeviceLink] = {}
        self._stop = weakref.finalize(self, stop_links, self._links)
        self._seen: dict[str, Beat] = {}
        self._addresses: dict[str, str] = {}
        self._ready: set[str] = set()
        self._ahead_ns: dict[str, tuple[int, int]] = {}
        self._looked_s = time.monotonic()
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    # --- start -----------------------------------------------------------------------------

    def _start(self) -> None:
        devices = self.model.lowered.devices
        token, name = secrets.token_hex(32), self.name
        for device in devices:
            host = self._run.host_of[device]
            self._links[device] = self._run.pool.take(device, host, self._inbox)
        for device in devices:
            self._set_up(device, token, name)
        self._until(lambda: len(self._addresses) == len(devices))
        peers = peers_of(self.model.lowered)
        for device in devices:
            self._tell(device, Peers({peer: self._addresses[peer] for peer in peers[device]}))
        self._until(lambda: len(self._ready) == len(devices))
        for _ in range(_CLOCK_LOOKS):
            for device in devices:
                self._tell(device, AskClock(time.monotonic_ns()))
        self._until(lambda: len(self._ahead_ns) == len(devices))

    def _set_up(self, device: str, token: str, run: str) -> None:
        plan, parts = self._run.describe(part_of(self.model, device), device)
        place = self._place(device, token, run)
        # Memory of this process, and limits on its devices, have no meaning on other hosts.
        options = replace(self._options, memory_bytes={}, common=None, common_as={})
        hosts = {name: self._run.host_of[name].name for name in self.model.lowered.devices}
        self._tell(device, HostSetup(place, options, plan, hosts), parts)

    def _place(self, device: str, token: str, run: str) -> TransportPlace:
        host = self._links[device].host
        return TransportPlace(
            kind=self._run.transport,
            name=device,
            host=host.name,
            bind=host.address,
            token=token,
            run=run,
            beat_s=self._run.heartbeat_s,
            cut_s=self._run.silent_s * _CUT_SHARE,
        )

    def _until(self, is_so: Callable[[], bool]) -> None:
        begun_s = time.monotonic()
        while not is_so():
            self._pump(_LOOK_S)
            if self._fault is not None:
                raise self._fault
            # Sending contents may take longer, and is not a fault.
            moved_s = max((link.sent_s for link in self._links.values()), default=begun_s)
            if time.monotonic() > max(begun_s, moved_s) + _START_S:
                late = [link for d, link in self._links.items() if d not in self._ready]
                raise host_faults.silent(late[0], _START_S, LastSeen())

    # --- messages --------------------------------------------------------------------------

    def _tell(self, device: str, message: Message, parts: Sequence[Bytes] = ()) -> None:
        link = self._links.get(device)
        if link is not None:
            link.tell(message, parts)

    def _inputs(self, request: Request, device: str) -> Sequence[TransferId]:
        return transfers_to(self.model, request.trace, device)

    def _pump(self, timeout_s: float) -> None:
        """Take all pending messages, even after a fault, so that finished requests count."""
        try:
            self._hear(*self._inbox.get(timeout=max(min(timeout_s, _LOOK_S), 0.001)))
            while True:
                self._hear(*self._inbox.get_nowait())
        except queue.Empty:
            pass
        self._look()

    def _look(self) -> None:
        """Find silent devices. A pause of this process does not count as silence of a device."""
        now_s = time.monotonic()
        away_s, self._looked_s = now_s - self._looked_s, now_s
        if away_s > 1.0:
            for link in self._links.values():
                link.heard_s = max(link.heard_s, now_s - self._run.silent_s / 2)
        for device, link in self._links.items():
            limit_s = self._run.silent_s if device in self._ready else _SILENT_AT_START_S
            if now_s - link.heard_s > limit_s:
                self._stop_with(host_faults.silent(link, now_s - link.heard_s, self._last(device)))

    def _hear(
        self, device: str, message: FromDevice | BadMessage | None, parts: list[Bytes]
    ) -> None:
        link = self._links.get(device)
        if link is None:
            return
        if message is None:
            is_known = device in self._ready
            gone = host_faults.gone(link, self._last(device)) if is_known else None
            self._stop_with(gone or host_faults.not_started(link))
            return
        try:
            if isinstance(message, BadMessage):
                raise message
            self._take(link, message, parts)
        except (KeyError, ValueError, TypeError, IndexError) as problem:
            why = f"it sent what cannot be read ({type(problem).__name__}: {problem})"
            self._stop_with(host_faults.cut(link, link, why, self._last(device)))

    def _take(self, link: DeviceLink, message: FromDevice, parts: list[Bytes]) -> None:
        device = link.device
        match message:
            case Hello(version):
                if version != __version__:
                    self._stop_with(host_faults.other_version(link, version[:40], __version__))
            case Beat():
                self._seen[device] = message
            case Listening(address):
                self._addresses[device] = address
            case DeviceReady():
                self._ready.add(device)
            case ClockTold(sent_ns, there_ns):
                self._set_clock(device, sent_ns, there_ns)
            case PassedGate(number):
                self._pass_gate(number)
            case Done():
                self._done(device, message, parts)
            case States() | PartsDone() | Waits():
                self._replies[device].append((message, parts))
            case Lost():
                self._lost(link, message)
            case HostFault():
                self._stop_with(self._faulted(link, message))
            case _:
                raise ValueError(f"`{type(message).__name__}` in a run")

    def _set_clock(self, device: str, sent_ns: int, there_ns: int) -> None:
        """Set the offset of a host's clock, from the question with the shortest round trip."""
        now_ns = time.monotonic_ns()
        took_ns = now_ns - sent_ns
        if device not in self._ahead_ns or took_ns < self._ahead_ns[device][0]:
            self._ahead_ns[device] = took_ns, there_ns - (sent_ns + now_ns) // 2

    def _done(self, device: str, done: Done, parts: list[Bytes]) -> None:
        request = self._underway[done.number].request
        for number, part in zip(done.transfers, parts, strict=True):
            self._exchange.region(request.trace, request.slot, TransferId(number))[:] = part
        ahead_ns = self._ahead_ns[device][1]
        events = tuple(
            replace(
                event,
                device=device,
                slot=request.slot,
                request=request.number,
                start_ns=event.start_ns - ahead_ns,
                end_ns=event.end_ns - ahead_ns,
            )
            for event in done.events
        )
        self._report(device, msgspec.structs.replace(done, events=events))

    # --- hand-overs ------------------------------------------------------------------------

    def hand_to(self, other: Backend, lane: int, there: int, transfer: StateTransfer) -> bool:
        """Send the bytes of a transfer from one process to the other, if they can be joined."""
        if not isinstance(other, HostsBackend) or other is self:
            return False
        with self._handing:
            return self._hand_to(other, lane, there, transfer)

    def _hand_to(self, other: HostsBackend, lane: int, there: int, transfer: StateTransfer) -> bool:
        ends = transfer.source, transfer.target
        key = other.name, *ends
        if key not in self._doors:
            self._doors[key] = self._open_door(other, *ends)
        door = self._doors[key]
        if not door:
            return False
        is_done = None is not self._both(
            other,
            ends,
            SendParts(door, lane, sent_parts(transfer.taken()), sends=True),
            SendParts(door, there, sent_parts(transfer.put()), sends=False),
        )
        if not is_done:
            del self._doors[key]
            for backend, device in zip((self, other), ends, strict=True):
                backend._tell(device, CloseDoor(door))
        return is_done

    def _open_door(self, other: HostsBackend, source: str, target: str) -> str:
        """A way from a device here to one of another replica; empty if they cannot be joined."""
        door, token = secrets.token_hex(8), secrets.token_hex(32)
        names = f"{door} a", f"{door} b"
        here = replace(self._place(source, token, door), name=names[0])
        there = replace(other._place(target, token, door), name=names[1])
        ends = source, target
        opening = OpenDoor(door, here, names[1], sends=True)
        opened = self._both(other, ends, opening, OpenDoor(door, there, names[0], sends=False))
        if opened is None:
            return ""
        joined = self._both(other, ends, JoinDoor(door, opened[1]), JoinDoor(door, opened[0]))
        return door if joined is not None else ""

    def _both(
        self, other: HostsBackend, ends: tuple[str, str], here: Message, there: Message
    ) -> tuple[str, str] | None:
        """Have both ends of a way do something at the same time.

        Returns the addresses that they tell, or None if not both have done it.
        """
        answers: dict[str, tuple[Answer, Sequence[Bytes]]] = {}

        def ask_other() -> None:
            with suppress(BaseException):  # what ends the other replica shows there
                answers.update(other._ask(there, None, devices=ends[1:]))

        asking = threading.Thread(target=ask_other, daemon=True)
        asking.start()
        try:
            told = self._ask(here, None, devices=ends[:1])[ends[0]][0]
        finally:
            asking.join()
        heard = answers[ends[1]][0] if answers else None
        if not (isinstance(told, PartsDone) and isinstance(heard, PartsDone)):
            return None
        return (told.address, heard.address) if told.is_done and heard.is_done else None

    # --- faults ----------------------------------------------------------------------------

    def _lost(self, link: DeviceLink, lost: Lost) -> None:
        """A device has lost a peer. If the peer's process has ended, that is the fault."""
        other = self._links.get(lost.peer)
        if other is None:
            return
        if len(self._ready) < len(self._links):
            self._stop_with(host_faults.not_joined(link, other, lost.why))
            return
        deadline = time.monotonic() + _BETTER_S
        while self._fault is None and not lost.is_cut and time.monotonic() < deadline:
            if other.process.poll() is not None:
                self._stop_with(host_faults.gone(other, self._last(lost.peer)))
            time.sleep(0.01)
        self._stop_with(host_faults.cut(link, other, lost.why, self._last(link.device)))

    def _last(self, device: str) -> LastSeen:
        """The activity of a device at its last beat."""
        beat = self._seen.get(device, Beat())
        request = min(self._underway, default=None) if beat.request is None else beat.request
        return LastSeen(
            request=request,
            step=beat.step,
            name=self.step_name(request, beat.step),
            waits=waits_of(self.model, self._underway, device, beat),
        )

    def _faulted(self, link: DeviceLink, message: HostFault) -> BaseException:
        diagnostic = message.diagnostic()
        if diagnostic is None:
            where = host_faults.where(link)
            return RuntimeError(f"the process of {where} failed:\n{message.text}")
        notes = (f"on host `{link.host.name}`, device `{link.device}`", *diagnostic.notes)
        fault = ServiceFault(replace(diagnostic, notes=notes), exit_code=message.exit_code)
        fault.device, fault.request = link.device, message.request
        return fault

    def progress(self) -> dict[int, object]:
        """By request: the number of devices that are done with it, and the marks of all devices."""
        marks = tuple(self._seen[d].marks if d in self._seen else () for d in self._links)
        return {number: (len(sent.done), marks) for number, sent in list(self._underway.items())}

    def close(self) -> None:
        """End the run at once; if all processes had begun, those that can return to the pool."""
        if self._links and len(self._ready) == len(self._links):
            self._run.pool.keep(self._links, self._inbox)
        self._stop()


_: type[Backend] = HostsBackend
