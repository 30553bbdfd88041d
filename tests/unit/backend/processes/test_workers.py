"""Devices in processes: pipelining, faults of every kind, and nothing left behind."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tessera.backend.host_loop.dispatch import Dispatcher
from tessera.backend.processes import workers
from tessera.backend.processes.device_group import Gates
from tessera.backend.processes.engine import DeviceEngine
from tessera.backend.processes.inline import InlineBackend
from tessera.backend.processes.messages import Faulted
from tessera.backend.processes.processes import host_pipe
from tessera.backend.processes.workers import CpuBackend
from tessera.backend.service import BackendOptions, Model, Request, ServiceFault
from tessera.diagnostics import TesseraError, error
from tessera.ir.plan.launch_program import Queue, Send
from tests.helpers.exchanges import exchange_model, joined
from tests.helpers.naps import BUFFERS, SLEEP
from tests.helpers.random_traces import random_program
from tests.helpers.served import Ask, assert_equal, expected, inputs_of, model_of, serve
from tests.helpers.traces import trace

# Started as for users; the others are forked, with the same descriptors and signals.
fresh = pytest.mark.usefixtures("fresh_devices")


def two_steps(first: str, second: str, *, slots: int = 2, lanes: int = 2) -> Model:
    """A step on device `a`, and one on `b` that needs its result."""
    steps = f"""
    launch m.{first} grid=1,1,1 block=1,1,1 args=[h, x]
    launch m.{second} grid=1,1,1 block=1,1,1 args=[y, h]
    """
    return model_of([trace(BUFFERS, SLEEP, steps)], [["a", "b"]], slots=slots, lanes=lanes)


@contextmanager
def running(model: Model, limit_s: float = 300.0) -> Iterator[tuple[Dispatcher, CpuBackend]]:
    """A dispatcher over processes, none of which may outlive it."""
    backend = CpuBackend(model)
    pids = [device.process.pid for device in backend._devices.values()]
    dispatcher = Dispatcher(
        backend, slots=model.lowered.slots, lanes=model.lowered.lanes, limit_s=limit_s
    )
    try:
        yield dispatcher, backend
    finally:
        dispatcher.close(wait=False)
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


@pytest.fixture(scope="module")
def dozing() -> Iterator[tuple[Model, Dispatcher]]:
    """Two devices that take 50 ms each, for tests that leave them whole."""
    model = two_steps("doze", "doze")
    with running(model) as (dispatcher, _):
        yield model, dispatcher


@fresh
@pytest.mark.parametrize("wide", [False, True])
def test_equal_to_one_device(wide: bool) -> None:
    program = random_program(3, wide=wide)
    placement = ["abc"[n % 3] for n in range(len(program.steps))]
    model = model_of([program], [placement], slots=3, lanes=2)
    assert any(place.first for place in model.lowered.places) == wide
    asks = [Ask(n, lane=n % 2) for n in range(5)]
    done, states = serve(CpuBackend(model), model, asks)
    assert_equal(model, asks, expected(model, asks), done, states)
    assert {event.device for one in done for event in one.events} == {"a", "b", "c"}
    assert all(event.start_ns <= event.end_ns for one in done for event in one.events)


def test_transfers_of_several_buffers() -> None:
    model = exchange_model(12)
    assert joined(model) > 2
    asks = [Ask(n) for n in range(5)]
    done, states = serve(CpuBackend(model), model, asks)
    assert_equal(model, asks, expected(model, asks), done, states)
    names = {event.name for one in done for event in one.events if event.queue is Queue.OUT}
    assert any(", v" in name for name in names), names


def test_a_gate_keeps_requests_apart() -> None:
    """The next request does nothing before the gate of the one before is done, on any device."""
    model = two_steps("doze", "doze", slots=3, lanes=3)
    (lowered,) = model.lowered.traces
    gated = replace(model.lowered, traces=(replace(lowered, gate=1),))
    model = replace(model, lowered=gated)
    asks = [Ask(n, lane=n % 3) for n in range(5)]
    done, states = serve(CpuBackend(model), model, asks)
    assert_equal(model, asks, expected(model, asks), done, states)
    for before, after in itertools.pairwise(sorted(done, key=lambda one: one.request)):
        passed = next(event.end_ns for event in before.events if event.step == 1)
        assert after.started_ns >= passed
        assert all(event.start_ns >= passed for event in after.events)


def test_a_gate_holds_its_own_trace_alone() -> None:
    gates = Gates({0: 1, 1: None, 2: 0})

    def request(number: int, trace: int) -> Request:
        return Request(number=number, trace=trace, slot=0, lane=0, inputs={})

    first, second, third = request(0, 0), request(1, 0), request(2, 0)
    assert gates.come(first)
    assert not gates.come(second)
    assert not gates.come(third)
    assert gates.come(request(3, 1))
    assert gates.come(request(4, 1))
    assert gates.come(request(5, 2))
    assert gates.passed(0) is second
    assert gates.passed(5) is None
    assert gates.passed(1) is third
    assert gates.passed(2) is None
    assert gates.come(request(6, 0))


def test_pipelining_is_real(dozing: tuple[Model, Dispatcher]) -> None:
    """Two kernels of 50 ms on two devices: 8 requests take about 9 sleeps, not 16."""
    model, dispatcher = dozing
    times: list[float] = []
    limit = time.monotonic() + 600  # the machine may be busy
    while min(times, default=1.0) > 0.65 * 0.8 and time.monotonic() < limit:
        started = time.monotonic()
        asks = [Ask(n, lane=n % 2) for n in range(8)]
        futures = [dispatcher.submit(inputs_of(model, a), trace=0, lane=a.lane) for a in asks]
        for future in futures:
            future.result(300)
        times.append(time.monotonic() - started)
    sequential = 8 * 2 * 0.050
    assert 0.050 * 9 <= min(times) <= 0.65 * sequential


def test_submitting_waits_for_a_slot(dozing: tuple[Model, Dispatcher]) -> None:
    model, dispatcher = dozing
    futures = [dispatcher.submit(inputs_of(model, Ask(n)), trace=0, lane=n) for n in (0, 1)]
    assert not any(future.done() for future in futures)
    third = dispatcher.submit(inputs_of(model, Ask(2)), trace=0, lane=0)
    assert any(future.done() for future in futures)
    third.result(300)


def test_requests_from_many_threads(dozing: tuple[Model, Dispatcher]) -> None:
    model, dispatcher = dozing
    asks = [Ask(n, lane=n % 2) for n in range(6)]
    wanted = expected(model, asks)
    got: dict[int, bytes] = {}

    def send(ask: Ask) -> None:
        future = dispatcher.submit(inputs_of(model, ask), trace=0, lane=ask.lane)
        got[ask.seed] = future.result(300).outputs["y"].tobytes()

    threads = [threading.Thread(target=send, args=(ask,)) for ask in asks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {a.seed: w.outputs["y"].tobytes() for a, w in zip(asks, wanted, strict=True)}


def test_shared_memory_has_no_name(dozing: tuple[Model, Dispatcher]) -> None:
    """So that none is left, however a run ends."""
    shared = Path("/dev/shm")
    assert not shared.is_dir() or not [p for p in shared.iterdir() if "tessera" in p.name]


def test_a_kernel_with_a_bad_address() -> None:
    model = two_steps("doze", "wild", slots=1, lanes=1)
    with running(model) as (dispatcher, _):
        future = dispatcher.submit(inputs_of(model, Ask(0)), trace=0, lane=0)
        with pytest.raises(ServiceFault) as failure:
            future.result(300)
        assert_fault(failure.value, "TSR5002", "wild", 0)
        with pytest.raises(ServiceFault):
            dispatcher.submit(inputs_of(model, Ask(0)), trace=0, lane=0)


def assert_fault(fault: ServiceFault, code: str, kernel: str, request: int) -> None:
    """It names device, request, launch and PTX line."""
    assert (fault.device, fault.request, fault.step) == ("b", request, 1)
    (found,) = fault.diagnostics
    assert found.code == code
    assert found.primary is not None
    assert "trace.ptx" in str(found.primary.span)
    assert found.notes[0] == f"device `b`, request {request}, launch #1 `m.{kernel}`"
    assert fault.exit_code == 6


def test_a_trap_and_what_had_finished_before() -> None:
    """`stop` traps for inputs that are not zero: the first two requests finish."""
    model = two_steps("doze", "stop", slots=1, lanes=1)
    zero = {"x": inputs_of(model, Ask(0))["x"] * 0 + 255}
    with running(model) as (dispatcher, _):
        good = [dispatcher.submit(zero, trace=0, lane=0) for _ in range(2)]
        bad = dispatcher.submit(inputs_of(model, Ask(1)), trace=0, lane=0)
        with pytest.raises(ServiceFault) as failure:
            bad.result(300)
        assert_fault(failure.value, "TSR5012", "stop", 2)
        assert all(future.result(0).outputs["y"].tolist() == [0] * 4 for future in good)


@fresh
def test_a_worker_that_is_killed() -> None:
    model = two_steps("doze", "doze")
    with running(model) as (dispatcher, backend):
        first = dispatcher.submit(inputs_of(model, Ask(0)), trace=0, lane=0)
        first.result(300)
        future = dispatcher.submit(inputs_of(model, Ask(1)), trace=0, lane=0)
        time.sleep(0.02)
        os.kill(backend._devices["a"].process.pid, signal.SIGKILL)
        with pytest.raises(ServiceFault, match=r"TSR5051.*`a` was ended by signal 9") as failure:
            future.result(300)
        assert failure.value.request == 1
        assert failure.value.exit_code == 6
        assert first.result().outputs["y"].any()


def test_a_worker_that_stops_answering() -> None:
    model = two_steps("doze", "doze")
    with running(model, limit_s=2.5) as (dispatcher, backend):
        os.kill(backend._devices["b"].process.pid, signal.SIGSTOP)
        future = dispatcher.submit(inputs_of(model, Ask(0)), trace=0, lane=0)
        with pytest.raises(ServiceFault, match=r"TSR5052.*worker of device `b`") as failure:
            future.result(300)
        assert failure.value.device == "b"


def test_a_worker_that_stops_in_the_middle_of_a_message() -> None:
    """The rest is not waited for without end; nor is room for what it does not take."""
    model = two_steps("doze", "doze")
    with running(model) as (_, backend):
        here, there = host_pipe(0.2)
        real, backend._devices["b"].connection = backend._devices["b"].connection, here
        os.write(there.fileno(), struct.pack("!i", 1000) + b"the beginning")
        with pytest.raises(ServiceFault, match=r"TSR5052.*worker of device `b`") as failure:
            backend.collect(300.0)
        assert failure.value.device == "b"
        assert here.closed
        here, full = host_pipe(0.2)
        with pytest.raises(BlockingIOError):
            here.send_bytes(bytes(1 << 24))
        for one in (real, here, full, there):
            one.close()


def test_a_transfer_that_never_comes() -> None:
    """Without its send, a transfer is waited for until the limit, and named."""
    model = without_sends(two_steps("doze", "doze"), 0)
    with running(model, limit_s=1.0) as (dispatcher, _):
        future = dispatcher.submit(inputs_of(model, Ask(0)), trace=0, lane=0)
        with pytest.raises(ServiceFault, match=r"waits for transfer .*`h` from `a`") as failure:
            future.result(300)
        fault = failure.value
        assert (fault.device, fault.request, fault.step) == ("b", 0, 1)
        assert fault.diagnostics[0].notes[0] == "device `b`, request 0, launch #1 `m.doze`"


def without_sends(model: Model, trace: int) -> Model:
    """Device `a` sends nothing in one of the traces."""
    traces = list(model.lowered.traces)
    programs = tuple(
        replace(
            program,
            operations=tuple(
                one
                for one in program.operations
                if not (program.device == "a" and isinstance(one.operation, Send))
            ),
        )
        for program in traces[trace].programs
    )
    traces[trace] = replace(traces[trace], programs=programs)
    return replace(model, lowered=replace(model.lowered, traces=tuple(traces)))


def test_a_slot_that_hangs_while_the_other_goes_on() -> None:
    """Requests of another trace keep both devices busy; the one that hangs is named."""
    steps = """
    launch m.doze grid=1,1,1 block=1,1,1 args=[h, x]
    launch m.doze grid=1,1,1 block=1,1,1 args=[y, h]
    """
    program = trace(BUFFERS, SLEEP, steps)
    made = model_of([program, program], [["a", "b"], ["a", "b"]], slots=2, lanes=2)
    model = without_sends(made, 1)
    with running(model, limit_s=1.0) as (dispatcher, _):
        hung = dispatcher.submit(inputs_of(model, Ask(0, trace=1)), trace=1, lane=0)
        limit = time.monotonic() + 600

        def go_on() -> None:
            while time.monotonic() < limit:
                dispatcher.submit(inputs_of(model, Ask(1)), trace=0, lane=1).result(300)

        with pytest.raises(ServiceFault, match=r"waits for transfer .*`h` from `a`") as failure:
            go_on()
        assert (failure.value.device, failure.value.request) == ("b", 0)
        assert hung.exception(300) is failure.value


def test_who_computes_or_waits_in_line_gets_on() -> None:
    """Whatever it takes; who waits for a transfer, or is in the middle of one, does not."""
    model = two_steps("doze", "doze")
    inline = InlineBackend(model)
    for number in range(2):
        asked = inputs_of(model, Ask(number))
        inline.begin(Request(number=number, trace=0, slot=number, lane=number, inputs=asked))
    first, second = inline.engines["a"], inline.engines["b"]
    for _ in range(2):
        do(first, Queue.IN)
    assert first.slots_that_get_on() == []  # the queue is free
    task = first.next_task(Queue.COMPUTE)
    assert task is not None
    assert first.slots_that_get_on() == [0, 1]
    assert second.slots_that_get_on() == []
    first.run(task)
    first.finish(task)
    sending = first.next_task(Queue.OUT)
    assert sending is not None
    assert first.slots_that_get_on() == []
    do(first, Queue.COMPUTE)
    assert first.slots_that_get_on() == [1]  # behind the other's transfer


def do(engine: DeviceEngine, queue: Queue) -> None:
    task = engine.next_task(queue)
    assert task is not None
    engine.run(task)
    engine.finish(task)


def test_a_link_too_slow_for_any_clock() -> None:
    """It is a transfer that does not come, and nothing worse; either end may be asked first."""
    model = two_steps("doze", "doze", slots=1, lanes=1)
    backend = CpuBackend(model, BackendOptions(throttle_bytes_per_s=1e-300))
    dispatcher = Dispatcher(backend, slots=1, lanes=1, limit_s=0.5)
    try:
        future = dispatcher.submit(inputs_of(model, Ask(0)), trace=0, lane=0)
        with pytest.raises(ServiceFault, match=r"TSR5052.*`h` (to `b`|from `a`)"):
            future.result(300)
    finally:
        dispatcher.close(wait=False)


def test_a_plan_that_needs_more_memory_than_the_device_has() -> None:
    model = two_steps("doze", "doze")
    with pytest.raises(TesseraError, match=r"TSR5020.*device `b` has 100 bytes") as failure:
        CpuBackend(model, BackendOptions(memory_bytes={"b": 100}))
    assert failure.value.exit_code == 6


@fresh
@pytest.mark.parametrize("what", ["shared_memory", "start_process", "Pipe", "host_pipe"])
def test_processes_that_the_system_refuses(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was started before is gone again."""
    real = getattr(workers, what)
    made: list[Any] = []

    def refuse(*given: Any) -> Any:
        if what == "start_process" and not made:
            made.append(real(*given))
            return made[0]
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(workers, what, refuse)
    with pytest.raises(ServiceFault, match="cannot be started: too many open files") as failure:
        CpuBackend(two_steps("doze", "doze"))
    assert failure.value.exit_code == 6
    assert all(process.poll() is not None for process in made)


def test_a_device_out_of_memory_says_what_it_was_doing() -> None:
    with running(two_steps("doze", "doze")) as (_, backend):
        device = backend._devices["b"]
        device.status.running(3, 1)
        fault = backend._faulted(device, Faulted(error("TSR5020", "out of memory"), 6))
    assert isinstance(fault, ServiceFault)
    assert (fault.exit_code, fault.device, fault.request, fault.step) == (6, "b", 3, 1)
    assert "device `b`, request 3" in fault.diagnostics[0].notes[0]


def test_closing_in_the_middle() -> None:
    model = two_steps("doze", "doze")
    with running(model) as (dispatcher, _):
        future = dispatcher.submit(inputs_of(model, Ask(0)), trace=0, lane=0)
        dispatcher.close(wait=False)
        with pytest.raises(TesseraError, match="TSR5050"):
            future.result(300)
        with pytest.raises(TesseraError, match="TSR5050"):
            dispatcher.submit(inputs_of(model, Ask(0)), trace=0, lane=0)
