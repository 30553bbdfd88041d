"""A replica whose devices are processes: the host's record of requests, answers and states.

In: a model, and a subclass that carries messages to the processes and back. Out: most of a
`Backend`. Requests of a trace with a gate are kept apart: the next request begins when the previous
one has passed its gate. The gate is a step that every request of the trace runs, so no request
waits forever.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tessera.backend.processes.exchange import Exchange, HostSide
from tessera.backend.processes.messages import (
    Answer,
    AskStates,
    AskWaits,
    Begin,
    Done,
    Message,
    ReadParts,
    States,
    Waits,
    WriteParts,
    pieces_of,
    sent_parts,
)
from tessera.backend.processes.visits import stall_fault, step_name
from tessera.backend.service import (
    Bytes,
    Completion,
    DeviceBytes,
    Model,
    Request,
    ServiceFault,
    StateParts,
    TimelineEvent,
)
from tessera.ir.plan.launch_program import HOST, TransferId
from tessera.ir.program import program as ir

_ANSWER_S = 2.0
"""Seconds that devices have to report what their requests wait for."""


@dataclass(slots=True)
class Underway:
    """A request that has begun: its start time, and the reports of devices that are done."""

    request: Request
    started_ns: int
    done: dict[str, Done] = field(default_factory=dict)


class Gates:
    """Records which request waits for which. Thread-safe. A trace without a step has no gate."""

    def __init__(self, steps: Mapping[int, int | None]) -> None:
        self._steps = steps
        self._lock = threading.Lock()
        self._last: dict[int, int] = {}
        self._short: set[int] = set()
        self._held: dict[int, Request] = {}

    def come(self, request: Request) -> bool:
        """Note that a request has a slot; returns whether it may begin now.

        If it may not, `passed` returns it later.
        """
        if self._steps.get(request.trace) is None:
            return True
        with self._lock:
            ahead = self._last.get(request.trace)
            self._last[request.trace] = request.number
            self._short.add(request.number)
            if ahead not in self._short:
                return True
            assert ahead is not None
            self._held[ahead] = request
            return False

    def passed(self, number: int) -> Request | None:
        """A request has passed its gate; returns the request that may begin now."""
        with self._lock:
            self._short.discard(number)
            return self._held.pop(number, None)


class DeviceGroup(ABC):
    """The devices of a replica, as the host sees them."""

    depth = 1

    def __init__(self, model: Model, *, has_gates: bool = True) -> None:
        self.model = model
        traces = model.lowered.traces if has_gates else ()
        self._gates = Gates({trace.trace: trace.gate for trace in traces})
        self._underway: dict[int, Underway] = {}
        self._finished: deque[Completion] = deque()
        self._replies: dict[str, deque[tuple[Answer, Sequence[Bytes]]]] = {
            device: deque() for device in model.lowered.devices
        }
        self._asking = threading.Lock()
        self._fault: BaseException | None = None

    def _exchange_by(self, exchange: Exchange) -> None:
        """Use this exchange for inputs and outputs from now on."""
        self._exchange = exchange
        self._host = HostSide(self.model, exchange)

    @abstractmethod
    def _tell(self, device: str, message: Message, parts: Sequence[Bytes] = ()) -> None:
        """Send a message to a device. If its process is gone, `_pump` detects it."""

    @abstractmethod
    def _pump(self, timeout_s: float) -> None:
        """Take messages, waiting at most `timeout_s` seconds for one; sets `_fault`."""

    def _inputs(self, request: Request, device: str) -> Sequence[TransferId]:
        """Transfers whose bytes go with the message `Begin`; none with shared memory."""
        return ()

    def _check_alive(self) -> None:  # noqa: B027
        """Raise if a device has been silent for too long; does nothing if `_pump` checks it."""

    # --- requests --------------------------------------------------------------------------

    def begin(self, request: Request) -> None:
        """Put the inputs into the exchange; tell the devices once the previous gate is passed."""
        self._host.put_inputs(request)
        if self._gates.come(request):
            self._send_out(request)

    def _send_out(self, request: Request) -> None:
        self._underway[request.number] = Underway(request, time.monotonic_ns())
        for device in self.model.lowered.devices:
            numbers = self._inputs(request, device)
            parts = [
                self._exchange.region(request.trace, request.slot, number) for number in numbers
            ]
            message = Begin(
                request.number, request.trace, request.slot, request.lane, tuple(numbers)
            )
            self._tell(device, message, parts)

    def _pass_gate(self, number: int) -> None:
        follower = self._gates.passed(number)
        if follower is not None:
            self._send_out(follower)

    def collect(self, timeout_s: float) -> tuple[Completion, ...]:
        """Requests that are done; raises the fault once there are none."""
        deadline = time.monotonic() + timeout_s
        while not self._finished:
            if self._fault is not None:
                raise self._fault
            left = deadline - time.monotonic()
            if left <= 0:
                return ()
            self._pump(left)
        return tuple(self._finished.popleft() for _ in range(len(self._finished)))

    def _report(self, device: str, done: Done) -> None:
        """A device is done with a request; the request is done when all devices are."""
        underway = self._underway[done.number]
        underway.done[device] = done
        if len(underway.done) == len(self.model.lowered.devices):
            self._finished.append(self._complete(self._underway.pop(done.number)))

    def _complete(self, underway: Underway) -> Completion:
        request, reports = underway.request, underway.done.values()
        printed = sorted(line for report in reports for line in report.printed)
        events: list[TimelineEvent] = [event for report in reports for event in report.events]
        return Completion(
            request=request.number,
            outputs=self._host.take_outputs(request.trace, request.slot),
            started_ns=underway.started_ns,
            ended_ns=time.monotonic_ns(),
            events=tuple(events),
            printed="".join(text for _, text in printed),
        )

    def _stop_with(self, fault: BaseException) -> None:
        self._fault = self._fault or fault

    def stalled(self, request: int, seconds: float) -> ServiceFault:
        """The fault of a request without progress: what the queues wait for."""
        answers = self._ask(AskWaits(), _ANSWER_S)
        rows = [(d, told.rows) for d, (told, _) in answers.items() if isinstance(told, Waits)]
        return stall_fault(rows, request, f"for {seconds:.0f} s")

    def locate(self, given: object, size: int) -> DeviceBytes | None:
        """None, because no device here reads GPU memory."""
        return None

    def step_name(self, request: int | None, step: int | None) -> str:
        """The name of a step of a request under way; empty if either is not known."""
        if request is None or step is None or request not in self._underway:
            return ""
        program = self.model.traces[self._underway[request].request.trace].program
        work = list(program.work())
        return step_name(program, work[step]) if 0 <= step < len(work) else ""

    # --- states ----------------------------------------------------------------------------

    def read_states(self, lane: int) -> dict[str, Bytes]:
        """The states of a lane in which no request runs."""
        answers = self._ask(AskStates(lane), None).values()
        current = [pieces_of(told, parts) for told, parts in answers if isinstance(told, States)]
        return self._host.join_states(lane, current)

    def read_parts(self, lane: int, device: str, parts: StateParts) -> Bytes:
        """Bytes of states of a lane, as a device has them."""
        message = ReadParts(lane, sent_parts(parts))
        return self._ask(message, None, devices=(device,))[device][1][0]

    def write_parts(self, lane: int, device: str, parts: StateParts, content: Bytes) -> None:
        """Set bytes of states of a lane, on one device."""
        message = WriteParts(lane, sent_parts(parts))
        self._ask(message, None, [np.ascontiguousarray(content)], devices=(device,))

    def _ask(
        self,
        message: Message,
        limit_s: float | None,
        parts: Sequence[Bytes] = (),
        *,
        devices: Sequence[str] = (),
    ) -> dict[str, tuple[Answer, Sequence[Bytes]]]:
        """The answers of devices, of all by default, that come within the limit."""
        deadline = None if limit_s is None else time.monotonic() + limit_s
        devices = devices or self.model.lowered.devices
        answers: dict[str, tuple[Answer, Sequence[Bytes]]] = {}
        with self._asking:  # an answer does not say to which question it belongs
            for device in devices:
                self._tell(device, message, parts)
            while True:
                for device in devices:
                    if self._replies[device] and device not in answers:
                        answers[device] = self._replies[device].popleft()
                if len(answers) == len(devices):
                    return answers
                if self._fault is not None:
                    raise self._fault
                if deadline is None:
                    self._check_alive()
                elif time.monotonic() > deadline:
                    return answers
                self._pump(0.02)


def transfers_to(model: Model, trace: int, device: str) -> list[TransferId]:
    """The transfers from the host to a device."""
    lowered = next(own for own in model.lowered.traces if own.trace == trace)
    return [t.id for t in lowered.transfers if t.source == HOST and t.target == device]


def part_of(model: Model, device: str) -> Model:
    """The model with the contents that one device holds."""
    held: dict[ir.Role, dict[str, tuple[int, int]]] = {role: {} for role in ir.Role}
    for place in model.lowered.places:
        if place.device == device:
            buffer = model.traces[place.trace].program.buffers[place.buffer]
            held[buffer.role][buffer.name] = place.held(buffer.bytes)
    weights, states = (sorted(held[r].items()) for r in (ir.Role.WEIGHT, ir.Role.STATE))
    return replace(
        model,
        weights={name: np.array(model.weight(name, own)) for name, own in weights},
        states=[
            {name: np.array(model.state(lane, name, own)) for name, own in states}
            for lane in range(len(model.states))
        ],
        firsts={name: first for name, (first, _) in (*weights, *states) if first},
        fillings=[{n: np.array(v) for n, v in given.items()} for given in model.fillings],
    )


def refuse_library_calls(model: Model) -> None:
    """Refuse `op` records, which need a library that the CPU backend does not have."""
    from tessera.backend.ptx_executor.run import refuse_library_calls as refuse

    for lowered in model.lowered.traces:
        refuse(model.traces[lowered.trace].program)
