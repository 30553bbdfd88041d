"""Deaths of devices in the middle of requests: what is tried, and what has to hold afterwards.

A case is a seed. It draws devices, slots, lanes, a trace (whole, or with steps in parts and twins,
with landings or without), requests, and what happens to whom and when. Every request then ends with
the bytes of one device, or with one fault that names a device, or was canceled before it began.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from multiprocessing.connection import Connection
from typing import Any
from unittest import mock

import numpy as np

from tessera.backend.host_loop.dispatch import Dispatcher
from tessera.backend.processes import workers
from tessera.backend.processes.reference import Reference
from tessera.backend.processes.workers import CpuBackend
from tessera.backend.service import BackendOptions, Bytes, Model, ServiceFault
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.division.divide import divide
from tessera.passes.division.part_kernels import with_part_kernels
from tests.helpers.naps import SLEEP
from tests.helpers.random_divisions import random_devices, random_division
from tests.helpers.random_traces import random_program
from tests.helpers.served import contents, graph_of, model_of
from tests.helpers.traces import trace

KINDS = ("kill", "stop", "fault", "cancel", "pipe between devices", "pipe to the host")
LIMIT_S = 120.0
_SILENT_S, _STALLED_S = 4.0, 5.0  # a busy machine lets no process rest that long
_TRACES = 8
_NAPS = """
buffer x bytes=4 role=input dtype=u32 shape=1
buffer h bytes=4 role=temp dtype=u32 shape=1
buffer g bytes=4 role=temp dtype=u32 shape=1
buffer y bytes=4 role=output dtype=u32 shape=1
"""
_STOPS = """
launch m.doze grid=1,1,1 block=1,1,1 args=[h, x]
launch m.stop grid=1,1,1 block=1,1,1 args=[g, h]
launch m.doze grid=1,1,1 block=1,1,1 args=[y, g]
"""


@dataclass(frozen=True, slots=True)
class Served:
    """A model on several devices, and the same traces whole on one."""

    model: Model
    whole: Model

    def reference(self) -> Reference:
        whole = self.whole
        return Reference(whole.traces, whole.weights, whole.states, whole.fillings)


def random_served(rng: random.Random, *, stops: bool = False) -> Served:
    """A model of 2 to 3 devices with 1 to 8 slots; with `stops`, one whose second step may trap."""
    devices = "abc"[: rng.choice((2, 3))]
    slots = rng.randint(1, 8)
    sizes = {"slots": slots, "lanes": rng.randint(1, slots)}
    if stops:
        program = chain_that_may_stop()
        placed = ["a", "b", devices[-1]]
        model = model_of([program], [placed], **sizes)
        return Served(model, model)
    whole, divided = random_divided(rng.randrange(_TRACES), len(devices), rng.random() < 0.5)
    hosts = rng.choice(({}, {device: device for device in devices}))
    placed = random_devices(divided, rng, devices)
    model = model_of(
        [with_part_kernels(divided)], [placed], graphs=[graph_of(divided)], hosts=hosts, **sizes
    )
    return Served(model, model_of([whole], [["a"] * len(whole.steps)], **sizes))


def chain_that_may_stop() -> ir.Program:
    """Three steps, of which the second traps unless `x` is the largest number."""
    return trace(_NAPS, SLEEP, _STOPS)


@cache
def random_divided(seed: int, devices: int, is_cut: bool) -> tuple[ir.Program, ir.Program]:
    """A trace whose steps can be cut, whole and with steps in parts."""
    program = random_program(seed, steps=5, ctas=4, races=False)
    if not is_cut:
        return program, program
    division = random_division(AnalysisManager(program), random.Random(seed), devices)
    return program, divide(program, division)


class Replica:
    """A replica on processes, with its pipes between devices at hand."""

    def __init__(self, served: Served, *, limit_s: float, options: BackendOptions) -> None:
        self.model, self.reference = served.model, served.reference()
        lowered = self.model.lowered
        self.between: list[socket.socket] = []
        with mock.patch.object(workers, "Pipe", self._pipe):
            self.backend = CpuBackend(self.model, options)
        self.pids = {d.name: d.process.pid for d in self.backend._devices.values()}
        self.dispatcher = Dispatcher(
            self.backend, slots=lowered.slots, lanes=lowered.lanes, limit_s=limit_s
        )

    def _pipe(self) -> tuple[Connection, Connection]:
        one, other = REAL_PIPE()
        self.between.append(socket.socket(fileno=os.dup(one.fileno())))
        return one, other

    def in_use(self) -> list[socket.socket]:
        """The pipes between devices that exchange bytes, or all if none do."""
        names = combinations(self.model.lowered.devices, 2)
        ways = {frozenset((t.source, t.target)) for t in self.model.lowered.traces[0].transfers}
        used = [p for p, pair in zip(self.between, names, strict=True) if frozenset(pair) in ways]
        return used or self.between

    def submit(self, inputs: dict[str, Bytes], lane: int) -> Any:
        return self.dispatcher.submit(inputs, trace=0, lane=lane)

    def assert_right(self, inputs: dict[str, Bytes], lane: int, outputs: object) -> None:
        """As the next of its lane on one device."""
        wanted = self.reference.run(inputs, trace=0, lane=lane).outputs
        for name, content in dict(outputs).items():  # type: ignore[call-overload]
            np.testing.assert_array_equal(content, wanted[name], name)

    def drop(self, end: socket.socket) -> None:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it; no process remains, nor a zombie."""
        self.dispatcher.close(wait=False)
        for end in self.between:
            end.close()
        deadline = time.monotonic() + LIMIT_S
        for pid in self.pids.values():
            while os.path.exists(f"/proc/{pid}"):
                assert time.monotonic() < deadline, f"process {pid} is still there"
                time.sleep(0.01)


REAL_PIPE = workers.Pipe


@contextmanager
def nothing_is_left() -> Iterator[None]:
    """Descriptors and threads are as before; shared memory never has a name."""
    gc.collect()
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    yield
    gc.collect()
    deadline = time.monotonic() + LIMIT_S
    while (after := (len(os.listdir("/proc/self/fd")), threading.active_count())) != before:
        assert time.monotonic() < deadline, f"descriptors and threads: {before}, then {after}"
        time.sleep(0.01)
    if os.path.isdir("/dev/shm"):
        assert not [name for name in os.listdir("/dev/shm") if "tessera" in name]


def happen(kind: str, replica: Replica, rng: random.Random, handles: Sequence[Any]) -> str:
    """Let it happen to a device; returns its name, or nothing if it may be any."""
    victim = rng.choice(list(replica.pids))
    match kind:
        case "kill" | "stop":
            os.kill(replica.pids[victim], signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
        case "pipe between devices":
            replica.drop(rng.choice(replica.in_use()))
            return ""
        case "pipe to the host":
            with suppress(OSError):
                here = replica.backend._devices[victim].connection.fileno()
                with socket.socket(fileno=os.dup(here)) as end:
                    replica.drop(end)
        case "cancel":
            for handle in rng.sample(handles, len(handles) // 2):
                handle.cancel()
        case "fault":
            return "b"  # the step that traps is there, and its input is among the requests
    return victim


def try_death(seed: int, other: Replica | None = None) -> tuple[str, int, int]:
    """Try a case; returns its kind, and how many requests ended well and by the fault."""
    rng = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    served = random_served(rng, stops=kind == "fault")
    with nothing_is_left(), mock.patch.object(workers, "_SILENT_S", _SILENT_S):
        given = other and (_inputs(other.model, rng, ""), 0)
        beside = other and given and other.submit(*given)
        well, faults = _with_death(kind, served, rng)
        if other and given and beside:
            other.assert_right(*given, beside.result(LIMIT_S).outputs)
            del beside
        again = Replica(served, limit_s=LIMIT_S, options=BackendOptions())
        good = _inputs(served.model, rng, "")
        again.assert_right(good, 0, again.submit(good, 0).result(LIMIT_S).outputs)
        again.close()
        del again
    return kind, well, faults


def _with_death(kind: str, served: Served, rng: random.Random) -> tuple[int, int]:
    is_slow = kind in ("stop", "pipe between devices")
    options = BackendOptions(throttle_bytes_per_s=rng.choice((None, 2e4, 2e5)))
    lanes, slots = served.model.lowered.lanes, served.model.lowered.slots
    asked = [_inputs(served.model, rng, kind) for _ in range(slots + rng.randint(1, 4))]
    asks = [(inputs, rng.randrange(lanes)) for inputs in asked]
    replica = Replica(served, limit_s=_STALLED_S if is_slow else LIMIT_S, options=options)
    handles: list[Any] = []
    feeder = threading.Thread(target=_feed, args=(replica.submit, asks, handles))
    feeder.start()
    at = rng.randrange(len(asks) // 2 + 1)
    while len(handles) <= at and feeder.is_alive():
        time.sleep(1e-3)
    time.sleep(rng.uniform(0.0, 0.04))
    victim = happen(kind, replica, rng, list(handles))
    feeder.join(LIMIT_S)
    assert not feeder.is_alive(), "a submitter hangs"
    well, faults = _results(replica, asks, handles)
    replica.close()
    _assert_one_fault(faults, victim, kind)
    return well, len(faults)


def _inputs(model: Model, rng: random.Random, kind: str) -> dict[str, Bytes]:
    """Random inputs; those of a trace that may trap do so in one of six requests of a fault."""
    program = model.traces[0].program
    if not any(buffer.name == "g" and buffer.bytes == 4 for buffer in program.buffers):
        return contents(program, ir.Role.INPUT, rng.randrange(1 << 20))
    traps = kind == "fault" and rng.random() < 1 / 6
    return {"x": np.full(1, 7 if traps else 0xFFFFFFFF, np.uint32).view(np.uint8)}


def _feed(submit: Callable[..., Any], asks: Sequence[tuple[Any, int]], handles: list[Any]) -> None:
    for ask in asks:
        try:
            handles.append(submit(*ask))
        except ServiceFault as fault:
            handles.append(fault)


def _results(
    replica: Replica, asks: Sequence[tuple[Any, int]], handles: Sequence[Any]
) -> tuple[int, list[ServiceFault]]:
    """How many requests ended with the right bytes, and the faults of the others."""
    well, faults = 0, []
    for (inputs, lane), handle in zip(asks, handles, strict=True):
        if isinstance(handle, ServiceFault):
            faults.append(handle)
        elif not handle.cancelled():
            problem = handle.exception(LIMIT_S)
            if problem is None:
                replica.assert_right(inputs, lane, handle.result().outputs)
                well += 1
            else:
                assert isinstance(problem, ServiceFault), problem
                faults.append(problem)
    return well, faults


def _assert_one_fault(faults: Sequence[ServiceFault], victim: str, kind: str) -> None:
    assert len({str(fault) for fault in faults}) <= 1
    assert kind != "cancel" or not faults
    for fault in faults[:1]:
        assert fault.device is not None
        assert not victim or fault.device == victim, (kind, victim, str(fault))
