"""The CPU backend for plans: one process per device, and shared memory between them.

In: a model. Out: a `Backend`. The shared memory has no name, and the processes live as long as
their pipe to this process, so neither remains, however this process ends.
"""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from itertools import combinations
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import numpy as np

from tessera.backend.processes.device_group import DeviceGroup, part_of, refuse_library_calls
from tessera.backend.processes.exchange import MemoryExchange, exchange_bytes
from tessera.backend.processes.messages import (
    DeviceReady,
    Done,
    Faulted,
    Message,
    PartsDone,
    PassedGate,
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
from tessera.backend.ptx_executor.memory.host_memory import available_bytes
from tessera.backend.service import Backend, BackendOptions, Bytes, Model, ServiceFault
from tessera.diagnostics import Diagnostic, ExitCode, error

_SILENT_S = 2.0
_START_S = 60.0


class CpuBackend(DeviceGroup):
    """A replica on processes of this machine."""

    def __init__(self, model: Model, options: BackendOptions | None = None) -> None:
        super().__init__(model)
        self._options = options or BackendOptions()
        refuse_library_calls(model)
        exchange = exchange_bytes(model)
        self._check_memory(exchange)
        self._sending = threading.Lock()
        self._receiving = threading.Lock()
        self._devices: dict[str, DeviceProcess] = {}
        self._stop = weakref.finalize(self, stop_processes, self._devices)
        try:
            self._share(exchange)
            self._await_ready()
        except OSError as problem:
            self.close()
            raise not_started(problem) from None
        except BaseException:
            self.close()
            raise

    def _share(self, exchange: int) -> None:
        """Allocate memory for the exchange, and start the processes that share it."""
        lowered = self.model.lowered
        first = status_bytes(lowered.slots) * len(lowered.devices)
        descriptor = shared_memory(first + exchange)
        try:
            shared = mmap.mmap(descriptor, first + exchange)
            memory = np.frombuffer(shared, dtype=np.uint8, offset=first)
            self._exchange_by(MemoryExchange(self.model, memory, lambda *_: None))
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

    def _tell(self, device: str, message: Message, parts: Sequence[Bytes] = ()) -> None:
        self._send(self._devices[device], (message, parts))

    def _send(self, device: DeviceProcess, message: object) -> None:
        # If the process is gone, `collect` detects and reports it.
        with suppress(OSError), self._sending:
            device.connection.send(message)

    def _pump(self, timeout_s: float) -> None:
        """Take messages; after a fault, all pending ones, so that finished requests count."""
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
                self._hear(device, *device.connection.recv())
            except BlockingIOError:
                device.connection.close()
                self._stop_with(self._silent(device, _START_S))
            except (EOFError, OSError):
                device.connection.close()
                self._stop_with(self._lost(device))
        return bool(ready)

    def _hear(self, device: DeviceProcess, message: Message, parts: Sequence[Bytes]) -> None:
        match message:
            case DeviceReady():
                device.is_ready = True
            case PassedGate(number):
                self._pass_gate(number)
            case Done():
                self._report(device.name, message)
            case States() | PartsDone() | Waits():
                self._replies[device.name].append((message, parts))
            case Faulted():
                self._stop_with(self._faulted(device, message))
            case _:
                raise TypeError(f"the host does not take {type(message).__name__}")

    def _faulted(self, device: DeviceProcess, message: Faulted) -> BaseException:
        if message.diagnostic is None:
            return RuntimeError(f"the worker of device `{device.name}` failed:\n{message.text}")
        if message.request is None:
            return self._fault_in(device, message.diagnostic, exit_code=message.exit_code)
        # The notes already name the device, the request and the launch.
        fault = ServiceFault(message.diagnostic, exit_code=message.exit_code)
        fault.device, fault.request, fault.step = device.name, message.request, message.step
        return fault

    def _lost(self, device: DeviceProcess) -> ServiceFault:
        """The process of a device ended by itself."""
        try:
            code = device.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            code = 0
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        short = ("the system kills processes when memory is short",)
        notes = short if code == -signal.SIGKILL else ()
        diagnostic = error("TSR5051", f"the worker of device `{device.name}` {how}", notes=notes)
        return self._fault_in(device, diagnostic, waiting=min(self._underway, default=None))

    def _silent(
        self, device: DeviceProcess, seconds: float, waiting: int | None = None
    ) -> ServiceFault:
        diagnostic = error(
            "TSR5052", f"the worker of device `{device.name}` has not answered for {seconds:.0f} s"
        )
        return self._fault_in(device, diagnostic, waiting=waiting)

    def _fault_in(
        self,
        device: DeviceProcess,
        diagnostic: Diagnostic,
        *,
        waiting: int | None = None,
        exit_code: int = ExitCode.FAULT,
    ) -> ServiceFault:
        """The fault of a device's current launch, or of a waiting request if it runs none."""
        request, step = device.status.launch
        request = waiting if request is None else request
        return ServiceFault(
            diagnostic,
            device=device.name,
            request=request,
            step=step,
            name=self.step_name(request, step),
            exit_code=exit_code,
        )

    def progress(self) -> dict[int, object]:
        """By request: the number of devices that are done, and when each last made progress."""
        devices = self._devices.values()
        still = [d for d in devices if d.pulse.stands_still(d.status.beat_ns)]
        if still and self._underway:
            raise self._silent(still[0], still[0].status.silent_s, min(self._underway))
        return {
            number: (
                len(underway.done),
                *(d.status.got_on_ns(underway.request.slot) for d in devices),
            )
            for number, underway in list(self._underway.items())
        }

    def stalled(self, request: int, seconds: float) -> ServiceFault:
        """The fault: which process does not answer, or what the queues wait for."""
        done = self._underway[request].done if request in self._underway else {}
        for device in self._devices.values():
            if device.name not in done and device.status.silent_s > _SILENT_S:
                return self._silent(device, device.status.silent_s, request)
        return super().stalled(request, seconds)

    def _check_alive(self) -> None:
        for device in self._devices.values():
            if device.status.silent_s > _START_S:
                raise self._silent(device, device.status.silent_s)

    def close(self) -> None:
        """End the processes at once."""
        self._stop()


_: type[Backend] = CpuBackend
