"""The CPU backend over several hosts: a process per device, started by the command of its host.

In: a model, and a `HostsRun`: which device is where, and what its process proves again. Out: a
`Backend`. Inputs and outputs go over the channels of the processes, transfers between devices from
one process to the other. Whatever happens to a process or a link ends in a fault that names it.
"""

from __future__ import annotations

import queue
import secrets
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from tessera.backend.hosts import host_faults
from tessera.backend.hosts.channel import Head, Part
from tessera.backend.hosts.device_link import DeviceLink, Inbox, stop_links
from tessera.backend.hosts.driver_side import (
    DeviceDone,
    DriverExchange,
    SentRequest,
    peers_of,
)
from tessera.backend.hosts.host_worker import states_head
from tessera.backend.hosts.hosts_run import HostsRun
from tessera.backend.hosts.last_seen import LastSeen, last_seen
from tessera.backend.hosts.records import diagnostic_of, event_of, options_head, wait_of
from tessera.backend.processes.device_part import part_of, refuse_library_calls
from tessera.backend.processes.gates import Gates
from tessera.backend.processes.host import HostSide
from tessera.backend.processes.inline import stall_fault
from tessera.backend.service import (
    Backend,
    BackendOptions,
    Bytes,
    Completion,
    DeviceBytes,
    Model,
    Request,
    ServiceFault,
)
from tessera.ir.plan.launch_program import HOST, Transfer, TransferId
from tessera.ir.version import __version__

_START_S = 120.0
_SILENT_AT_START_S = 20.0
_BETTER_S, _LOOK_S = 0.2, 0.05
_CLOCK_LOOKS = 5
_CUT_SHARE = 0.4 / 1.5
"""A cable counts as cut before a process counts as stopped."""


class HostsBackend:
    """A replica on processes of several hosts."""

    depth = 1

    def __init__(self, model: Model, options: BackendOptions, run: HostsRun) -> None:
        if not options.targets:
            refuse_library_calls(model)
        self.model = model
        self._options = options
        self._run = run
        self._inbox: Inbox = queue.SimpleQueue()
        self._links: dict[str, DeviceLink] = {}
        self._stop = weakref.finalize(self, stop_links, self._links)
        self._exchange = DriverExchange(model)
        self._host = HostSide(model, self._exchange)
        traces = () if options.targets else model.lowered.traces  # gates of GPUs are events there
        self._gates = Gates({trace.trace: trace.gate for trace in traces})
        self._underway: dict[int, SentRequest] = {}
        self._finished: deque[Completion] = deque()
        self._fault: BaseException | None = None
        self._seen: dict[str, Head] = {}
        self._replies: dict[str, deque[tuple[Head, list[Part]]]] = {}
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
        token, name = secrets.token_hex(32), secrets.token_hex(8)
        for device in devices:
            self._replies[device] = deque()
            host = self._run.host_of[device]
            self._links[device] = self._run.pool.take(device, host, self._inbox)
        for device, link in self._links.items():
            head, parts = self._run.describe(part_of(self.model, device), device)
            head |= {
                "kind": "setup",
                "device": device,
                "host": link.host.name,
                "bind": link.host.address,
                "token": token,
                "run": name,
                "beat_s": self._run.heartbeat_s,
                "cut_s": self._run.silent_s * _CUT_SHARE,
                "transport": self._run.transport,
                "options": options_head(self._options),
                "hosts": {name: self._run.host_of[name].name for name in devices},
            }
            link.tell(head, parts)
        self._until(lambda: len(self._addresses) == len(devices))
        peers = peers_of(self.model.lowered)
        for device, link in self._links.items():
            addresses = {peer: self._addresses[peer] for peer in peers[device]}
            link.tell({"kind": "peers", "addresses": addresses})
        self._until(lambda: len(self._ready) == len(devices))
        for _ in range(_CLOCK_LOOKS):
            for link in self._links.values():
                link.tell({"kind": "clock", "sent": time.monotonic_ns()})
        self._until(lambda: len(self._ahead_ns) == len(devices))

    def _until(self, is_so: Callable[[], bool]) -> None:
        begun_s = time.monotonic()
        while not is_so():
            self._pump(_LOOK_S)
            if self._fault is not None:
                raise self._fault
            # Contents may be under way for longer: that is no fault.
            moved_s = max((link.sent_s for link in self._links.values()), default=begun_s)
            if time.monotonic() > max(begun_s, moved_s) + _START_S:
                late = [link for d, link in self._links.items() if d not in self._ready]
                raise host_faults.silent(late[0], _START_S, LastSeen())

    # --- requests --------------------------------------------------------------------------

    def begin(self, request: Request) -> None:
        """Pack the inputs; send them once the gate before is passed."""
        self._host.put_inputs(request)
        if self._gates.come(request):
            self._send_out(request)

    def _send_out(self, request: Request) -> None:
        self._underway[request.number] = SentRequest(request, time.monotonic_ns())
        given: dict[str, list[TransferId]] = {device: [] for device in self._links}
        for transfer in self._lowered(request.trace):
            if transfer.source == HOST:
                given[transfer.target].append(transfer.id)
        for device, link in list(self._links.items()):
            numbers = given[device]
            parts = [self._exchange.region(request.trace, request.slot, n) for n in numbers]
            head: Head = {
                "kind": "begin",
                "number": request.number,
                "trace": request.trace,
                "slot": request.slot,
                "lane": request.lane,
                "transfers": [int(number) for number in numbers],
            }
            link.tell(head, parts)

    def _lowered(self, trace: int) -> tuple[Transfer, ...]:
        return next(t.transfers for t in self.model.lowered.traces if t.trace == trace)

    def collect(self, timeout_s: float) -> tuple[Completion, ...]:
        """Requests that are done; a fault once there are none."""
        deadline = time.monotonic() + timeout_s
        while not self._finished:
            if self._fault is not None:
                raise self._fault
            left = deadline - time.monotonic()
            if left <= 0:
                return ()
            self._pump(min(left, _LOOK_S))
        return tuple(self._finished.popleft() for _ in range(len(self._finished)))

    def _pump(self, timeout_s: float) -> None:
        """Take what has come; after a fault all that is there, so that what is done counts."""
        try:
            self._hear(*self._inbox.get(timeout=max(timeout_s, 0.001)))
            while True:
                self._hear(*self._inbox.get_nowait())
        except queue.Empty:
            pass
        self._look()

    def _look(self) -> None:
        """Find who is silent. Time counts only as far as somebody looks."""
        now_s = time.monotonic()
        away_s, self._looked_s = now_s - self._looked_s, now_s
        if away_s > 1.0:
            for link in self._links.values():
                link.heard_s = max(link.heard_s, now_s - self._run.silent_s / 2)
        for device, link in self._links.items():
            limit_s = self._run.silent_s if device in self._ready else _SILENT_AT_START_S
            if now_s - link.heard_s > limit_s:
                self._stop_with(host_faults.silent(link, now_s - link.heard_s, self._last(device)))

    def _stop_with(self, fault: BaseException) -> None:
        self._fault = self._fault or fault

    def _hear(self, device: str, head: Head | None, parts: list[Part]) -> None:
        link = self._links.get(device)
        if link is None:
            return
        if head is None:
            known = device in self._ready
            self._stop_with(
                host_faults.gone(link, self._last(device))
                if known
                else host_faults.not_started(link)
            )
            return
        try:
            self._take(link, head, parts)
        except (KeyError, ValueError, TypeError, IndexError) as problem:
            why = f"it sent what cannot be read ({type(problem).__name__}: {problem})"
            self._stop_with(host_faults.cut(link, link, why, self._last(device)))

    def _take(self, link: DeviceLink, head: Head, parts: list[Part]) -> None:
        device = link.device
        match head["kind"]:
            case "hello":
                if head["version"] != __version__:
                    theirs = str(head["version"])[:40]
                    self._stop_with(host_faults.other_version(link, theirs, __version__))
            case "beat":
                self._seen[device] = head
            case "listening":
                self._addresses[device] = str(head["address"])
            case "ready":
                self._ready.add(device)
            case "clock":
                self._set_clock(device, int(head["sent"]), int(head["ns"]))
            case "gate":
                follower = self._gates.passed(int(head["number"]))
                if follower is not None:
                    self._send_out(follower)
            case "done":
                self._done(device, head, parts)
            case "states" | "waits":
                self._replies[device].append((head, parts))
            case "lost":
                is_cut = bool(head.get("is_cut"))
                self._lost(link, str(head["peer"]), str(head["why"]), is_cut=is_cut)
            case "fault":
                self._stop_with(self._faulted(link, head))
            case _:
                pass

    def _set_clock(self, device: str, sent_ns: int, there_ns: int) -> None:
        """The clock of a host: the look that took the least time counts."""
        now_ns = time.monotonic_ns()
        took_ns = now_ns - sent_ns
        if device not in self._ahead_ns or took_ns < self._ahead_ns[device][0]:
            self._ahead_ns[device] = took_ns, there_ns - (sent_ns + now_ns) // 2

    def _done(self, device: str, head: Head, parts: list[Part]) -> None:
        sent = self._underway[int(head["number"])]
        request = sent.request
        for number, part in zip(head["transfers"], parts, strict=True):
            self._exchange.region(request.trace, request.slot, TransferId(int(number)))[:] = part
        ahead_ns = self._ahead_ns[device][1]
        events = tuple(
            event_of(row, device, request.slot, request.number, ahead_ns) for row in head["events"]
        )
        printed = [(int(step), str(text)) for step, text in head["printed"]]
        sent.done[device] = DeviceDone(events, printed)
        if len(sent.done) == len(self._links):
            self._finished.append(self._complete(self._underway.pop(request.number)))

    def _complete(self, sent: SentRequest) -> Completion:
        request = sent.request
        printed = sorted(line for report in sent.done.values() for line in report.printed)
        return Completion(
            request=request.number,
            outputs=self._host.take_outputs(request.trace, request.slot),
            started_ns=sent.started_ns,
            ended_ns=time.monotonic_ns(),
            events=tuple(event for report in sent.done.values() for event in report.events),
            printed="".join(text for _, text in printed),
        )

    # --- faults ----------------------------------------------------------------------------

    def _lost(self, link: DeviceLink, peer: str, why: str, *, is_cut: bool) -> None:
        """A device has lost another. If its process has ended, that is what is to be said."""
        other = self._links.get(peer)
        if other is None:
            return
        if len(self._ready) < len(self._links):
            self._stop_with(host_faults.not_joined(link, other, why))
            return
        deadline = time.monotonic() + _BETTER_S
        while self._fault is None and not is_cut and time.monotonic() < deadline:
            if other.process.poll() is not None:
                self._stop_with(host_faults.gone(other, self._last(peer)))
            time.sleep(0.01)
        self._stop_with(host_faults.cut(link, other, why, self._last(link.device)))

    def _last(self, device: str) -> LastSeen:
        """What a device was doing when it last beat."""
        return last_seen(self.model, self._underway, device, self._seen.get(device, {}))

    def _faulted(self, link: DeviceLink, head: Head) -> BaseException:
        if head["diagnostic"] is None:
            where = host_faults.where(link)
            return RuntimeError(f"the process of {where} failed:\n{head['text']}")
        diagnostic = diagnostic_of(head["diagnostic"])
        notes = (f"on host `{link.host.name}`, device `{link.device}`", *diagnostic.notes)
        fault = ServiceFault(replace(diagnostic, notes=notes), exit_code=int(head["exit_code"]))
        fault.device, fault.request = link.device, head["request"]
        return fault

    def progress(self) -> dict[int, object]:
        """When devices last did something for each request, and how many are done with it."""
        return {
            number: (
                len(sent.done),
                *(tuple(self._seen.get(device, {}).get("marks", ())) for device in self._links),
            )
            for number, sent in list(self._underway.items())
        }

    def stalled(self, request: int, seconds: float) -> ServiceFault:
        """What the queues wait for."""
        waits = self._ask({"kind": "waits"}, 1.0)
        rows = [
            (device, tuple(wait_of(row) for row in head["rows"]))
            for device, (head, _) in waits.items()
        ]
        return stall_fault(rows, request, f"for {seconds:.0f} s")

    def locate(self, given: object, size: int) -> DeviceBytes | None:
        """None: nothing here reads the memory of a GPU."""
        return None

    # --- states ----------------------------------------------------------------------------

    def read_states(self, lane: int) -> dict[str, Bytes]:
        """The states of a lane in which no request runs."""
        current = []
        for head, parts in self._ask({"kind": "states", "lane": lane}, None).values():
            pieces: dict[str, list[tuple[int, Bytes]]] = {}
            for name, start, part in zip(head["names"], head["starts"], parts, strict=True):
                pieces.setdefault(str(name), []).append((int(start), part))
            current.append(pieces)
        return self._host.join_states(lane, current)

    def write_states(self, lane: int, states: Mapping[str, Bytes]) -> None:
        """Set states of a lane in which no request runs; its next one is told after this."""
        self._host.keep_states(lane, states)
        head, parts = states_head(lane, {name: np.array(own) for name, own in states.items()})
        for link in self._links.values():
            link.tell(head, parts)

    def _ask(self, head: Head, limit_s: float | None) -> dict[str, tuple[Head, list[Part]]]:
        """Every device's answer; those that come within the limit."""
        deadline = None if limit_s is None else time.monotonic() + limit_s
        for link in self._links.values():
            link.tell(head)
        answers: dict[str, tuple[Head, list[Part]]] = {}
        while len(answers) < len(self._links):
            self._pump(0.01)
            if self._fault is not None:
                raise self._fault
            for device, replies in self._replies.items():
                if replies and device not in answers:
                    answers[device] = replies.popleft()
            if deadline is not None and time.monotonic() > deadline:
                break
        return answers

    def close(self) -> None:
        """End the processes, now; where all had begun, those that can go back to the pool."""
        if self._links and len(self._ready) == len(self._links):
            self._run.pool.keep(self._links, self._inbox)
        self._stop()


_: type[Backend] = HostsBackend
