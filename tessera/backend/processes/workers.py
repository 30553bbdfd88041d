"""The CPU backend for plans: a process per device, and shared memory between them.

In: a model. Out: a `Backend`. The shared memory has no name and the processes live as long as
their pipe to this one, so that nothing is left behind, however this process ends.
"""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import numpy as np

from tessera.backend.processes.device_part import part_of, refuse_library_calls
from tessera.backend.processes.exchange import Regions, open_exchange
from tessera.backend.processes.gates import Gates
from tessera.backend.processes.host import HostSide
from tessera.backend.processes.inline import stall_fault
from tessera.backend.processes.messages import (
    AskStates,
    AskWaits,
    Begin,
    DeviceReady,
    Done,
    Faulted,
    PassedGate,
    SetStates,
    Setup,
    States,
    Status,
    Waits,
    status_bytes,
)
from tessera.backend.processes.processes import (
    STOP_S,
    DeviceProcess,
    host_pipe,
    not_started,
    shared_memory,
    start_process,
    stop_processes,
)
from tessera.backend.processes.visits import step_name
from tessera.backend.ptx_executor.memory.host_memory import available_bytes
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
from tessera.diagnostics import error
from tessera.ir.program.program import LaunchId

_SILENT_S = 2.0
_START_S = 60.0


@dataclass(slots=True)
class _Underway:
    """A request that has begun: what each device has reported of it."""

    request: Request
    started_ns: int
    done: dict[str, Done] = field(default_factory=dict)


class CpuBackend:
    """A replica on processes of this machine."""

    depth = 1

    def __init__(self, model: Model, options: BackendOptions | None = None) -> None:
        self.model = model
        self._options = options or BackendOptions()
        refuse_library_calls(model)
        regions = Regions(model)
        self._check_memory(regions.bytes)
        self._underway: dict[int, _Underway] = {}
        self._gates = Gates({trace.trace: trace.gate for trace in model.lowered.traces})
        self._finished: deque[Completion] = deque()
        self._replies: dict[str, deque[States | Waits]] = {
            n: deque() for n in model.lowered.devices
        }
        self._fault: BaseException | None = None
        self._sending = threading.Lock()
        self._receiving = threading.Lock()
        self._devices: dict[str, DeviceProcess] = {}
        self._stop = weakref.finalize(self, stop_processes, self._devices)
        try:
            self._share(regions.bytes)
            self._await_ready()
        except OSError as problem:
            self.close()
            raise not_started(problem) from None
        except BaseException:
            self.close()
            raise

    def _share(self, exchange: int) -> None:
        """Set memory aside for the exchange, and start the processes that share it."""
        lowered = self.model.lowered
        first = status_bytes(lowered.slots) * len(lowered.devices)
        descriptor = shared_memory(first + exchange)
        try:
            shared = mmap.mmap(descriptor, first + exchange)
            memory = np.frombuffer(shared, dtype=np.uint8, offset=first)
            self._host = HostSide(self.model, open_exchange(self.model, memory, lambda *_: None))
            self._start(descriptor, shared)
        finally:
            os.close(descriptor)

    def _check_memory(self, exchange: int) -> None:
        lowered = self.model.lowered
        for name, limit in self._options.memory_bytes.items():
            if name in lowered.devices and lowered.memory_bytes(name) > limit:
                raise ServiceFault(
                    error(
                        "TSR5020",
                        f"device `{name}` has {limit} bytes, but the plan takes "
                        f"{lowered.memory_bytes(name)}",
                        hint="run with fewer `--slots`",
                    ),
                    device=name,
                )
        needed = exchange + sum(map(lowered.memory_bytes, lowered.devices))
        free = available_bytes()
        if free is not None and needed > free:
            raise ServiceFault(
                error(
                    "TSR5020",
                    f"the machine has no memory for the plan: {needed} bytes",
                    notes=(f"{free} bytes are available",),
                    hint="run with fewer `--slots` or `--lanes`",
                ),
            )

    def _start(self, memory: int, shared: mmap.mmap) -> None:
        names = self.model.lowered.devices
        ends: dict[str, dict[str, Connection]] = {name: {} for name in names}
        try:
            for left, right in combinations(names, 2):
                ends[left][right], ends[right][left] = Pipe()
            for index, name in enumerate(names):
                status = Status(shared, index, self.model.lowered.slots)
                here, there = host_pipe(_START_S)
                with there:
                    process = start_process(there, ends[name], memory)
                self._devices[name] = DeviceProcess(name, process, here, status)
            for index, device in enumerate(self._devices.values()):
                setup = Setup(device.name, index, part_of(self.model, device.name), self._options)
                self._send(device, setup)
        finally:
            for peers in ends.values():
                for connection in peers.values():
                    connection.close()

    def _await_ready(self) -> None:
        started = time.monotonic()
        while not all(device.is_ready for device in self._devices.values()):
            self._pump(0.2)
            if self._fault is not None:
                raise self._fault
            for device in self._devices.values():
                silent_s = min(device.status.silent_s, time.monotonic() - started)
                if not device.is_ready and silent_s > _START_S:
                    raise self._silent(device, silent_s)

    def begin(self, request: Request) -> None:
        """Put the inputs into the exchange; tell the devices, once the gate before is passed."""
        self._host.put_inputs(request)
        if self._gates.come(request):
            self._tell_all(request)

    def _tell_all(self, request: Request) -> None:
        self._underway[request.number] = _Underway(request, time.monotonic_ns())
        message = Begin(request.number, request.trace, request.slot, request.lane)
        for device in self._devices.values():
            self._send(device, message)

    def _send(self, device: DeviceProcess, message: object) -> None:
        # Where the process is gone, `collect` finds out and reports it.
        with suppress(OSError), self._sending:
            device.connection.send(message)

    def collect(self, timeout_s: float) -> tuple[Completion, ...]:
        """Requests that are done; a fault once there are none."""
        deadline = time.monotonic() + timeout_s
        while not self._finished:
            if self._fault is not None:
                raise self._fault
            left = deadline - time.monotonic()
            if left <= 0:
                return ()
            self._pump(left)
        return tuple(self._finished.popleft() for _ in range(len(self._finished)))

    def _pump(self, timeout_s: float) -> None:
        """Take messages; after a fault all that are there, so that what is done counts."""
        with self._receiving:
            if self._fault is not None:
                return
            self._take(timeout_s)
            while self._fault is not None and self._take(0.0):
                pass

    def _take(self, timeout_s: float) -> bool:
        by_connection: dict[Any, DeviceProcess] = {
            device.connection: device
            for device in self._devices.values()
            if not device.connection.closed
        }
        ready = wait(list(by_connection), timeout_s)
        for device in map(by_connection.__getitem__, ready):
            try:
                self._hear(device, device.connection.recv())
            except BlockingIOError:
                device.connection.close()
                self._fault = self._fault or self._silent(device, _START_S)
            except (EOFError, OSError):
                device.connection.close()
                self._fault = self._fault or self._lost(device)
        return bool(ready)

    def _hear(
        self,
        device: DeviceProcess,
        message: DeviceReady | PassedGate | Done | States | Waits | Faulted,
    ) -> None:
        match message:
            case DeviceReady():
                device.is_ready = True
            case PassedGate(number):
                follower = self._gates.passed(number)
                if follower is not None:
                    self._tell_all(follower)
            case Done(number):
                underway = self._underway[number]
                underway.done[device.name] = message
                if len(underway.done) == len(self._devices):
                    self._finished.append(self._complete(self._underway.pop(number)))
            case States() | Waits():
                self._replies[device.name].append(message)
            case Faulted():
                self._fault = self._fault or self._faulted(device, message)

    def _complete(self, underway: _Underway) -> Completion:
        request = underway.request
        reports = underway.done.values()
        printed = sorted(line for report in reports for line in report.printed)
        return Completion(
            request=request.number,
            outputs=self._host.take_outputs(request.trace, request.slot),
            started_ns=underway.started_ns,
            ended_ns=time.monotonic_ns(),
            events=tuple(event for report in reports for event in report.events),
            printed="".join(text for _, text in printed),
        )

    def _faulted(self, device: DeviceProcess, message: Faulted) -> BaseException:
        if message.diagnostic is None:
            return RuntimeError(f"the worker of device `{device.name}` failed:\n{message.text}")
        if message.request is not None:
            # The notes name device, request and launch already.
            fault = ServiceFault(message.diagnostic, exit_code=message.exit_code)
            fault.device, fault.request, fault.step = device.name, message.request, message.step
            return fault
        request, step = device.status.launch
        return ServiceFault(
            message.diagnostic,
            device=device.name,
            exit_code=message.exit_code,
            request=request,
            step=step,
            name=self._step_name(request, step),
        )

    def _lost(self, device: DeviceProcess) -> ServiceFault:
        """The process of a device ended by itself."""
        try:
            code = device.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            code = 0
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        short = ("the system ends processes so when memory is short",)
        notes = short if code == -signal.SIGKILL else ()
        request, step = device.status.launch
        if request is None:
            request = min(self._underway, default=None)
        return ServiceFault(
            error("TSR5051", f"the worker of device `{device.name}` {how}", notes=notes),
            device=device.name,
            request=request,
            step=step,
            name=self._step_name(request, step),
        )

    def _step_name(self, request: int | None, step: LaunchId | None) -> str:
        if request is None or step is None or request not in self._underway:
            return ""
        program = self.model.traces[self._underway[request].request.trace].program
        return step_name(program, list(program.work())[step])

    def progress(self) -> dict[int, object]:
        """When devices last did something for each request, and how many are done with it."""
        devices = self._devices.values()
        return {
            number: (
                len(underway.done),
                *(d.status.got_on_ns(underway.request.slot) for d in devices),
            )
            for number, underway in list(self._underway.items())
        }

    def stalled(self, request: int, seconds: float) -> ServiceFault:
        """Which process does not answer, or what the queues wait for."""
        done = self._underway[request].done if request in self._underway else {}
        for device in self._devices.values():
            if device.name not in done and device.status.silent_s > _SILENT_S:
                return self._silent(device, device.status.silent_s, request)
        waits = self._ask(AskWaits(), _SILENT_S)
        rows = [(name, reply.rows) for name, reply in waits.items() if isinstance(reply, Waits)]
        return stall_fault(rows, request, f"for {seconds:.0f} s")

    def _silent(
        self, device: DeviceProcess, seconds: float, waiting: int | None = None
    ) -> ServiceFault:
        request, step = device.status.launch
        request = waiting if request is None else request
        return ServiceFault(
            error(
                "TSR5052",
                f"the worker of device `{device.name}` has not answered for {seconds:.0f} s",
            ),
            device=device.name,
            request=request,
            step=step,
            name=self._step_name(request, step),
        )

    def locate(self, given: object, size: int) -> DeviceBytes | None:
        """None: nothing here reads the memory of a GPU."""
        return None

    def read_states(self, lane: int) -> dict[str, Bytes]:
        """The states of a lane in which no request runs."""
        parts = self._ask(AskStates(lane), None)
        current = [reply.parts for reply in parts.values() if isinstance(reply, States)]
        return self._host.join_states(lane, current)

    def write_states(self, lane: int, states: Mapping[str, Bytes]) -> None:
        """Set states of a lane in which no request runs; its next one is told after this."""
        self._host.keep_states(lane, states)
        for device in self._devices.values():
            self._send(device, SetStates(lane, states))

    def _ask(self, message: object, limit_s: float | None) -> dict[str, States | Waits]:
        """Every device's answer; those that come within the limit."""
        deadline = None if limit_s is None else time.monotonic() + limit_s
        for device in self._devices.values():
            self._send(device, message)
        answers: dict[str, States | Waits] = {}
        while len(answers) < len(self._devices):
            for name, replies in self._replies.items():
                if replies and name not in answers:
                    answers[name] = replies.popleft()
            if self._fault is not None:
                raise self._fault
            if deadline is not None and time.monotonic() > deadline:
                break
            for device in self._devices.values():
                if deadline is None and device.status.silent_s > _START_S:
                    raise self._silent(device, device.status.silent_s)
            if len(answers) < len(self._devices):
                self._pump(0.02)
        return answers

    def close(self) -> None:
        """End the processes, now."""
        self._stop()


_: type[Backend] = CpuBackend
