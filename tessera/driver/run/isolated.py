"""Replicas in a process of their own: a fault ends that process and no other.

In: a plan, the options of a runtime, and the replicas that the process has. Out: a `Backend`
for each of them, as the dispatcher drives it. The process opens the plan itself, so no weights pass
through here. Outputs come through shared memory: every request under way has a place there.

A kernel that faults on a GPU breaks the context of its process. The process reports the fault and
ends; the runtime starts another process. It also ends with this process, because it lives only as
long as the pipe. One thread reads the pipe and gives every backend its messages.
"""

from __future__ import annotations

import json
import mmap
import os
import queue
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe

import numpy as np

from tessera.backend.processes.processes import shared_memory
from tessera.backend.processes.pulse import Pulse
from tessera.backend.service import (
    Backend,
    Bytes,
    Completion,
    DeviceBytes,
    Model,
    Request,
    ServiceFault,
    StateParts,
)
from tessera.diagnostics import TesseraError, error
from tessera.driver.run.isolated_messages import (
    BeginRequest,
    ChildAnswer,
    ChildBeat,
    ChildDone,
    ChildFault,
    ChildReady,
    ChildSetup,
    PrepareChain,
    Question,
    ReadStates,
    StatePartsOf,
)
from tessera.driver.run.options import ServingOptions
from tessera.ir.plan.plan import Plan
from tessera.ir.program.program import Role

_HANG_UP_S = 2.0
_BOOT = (
    "import sys; sys.path[:] = sys.argv[2:];"
    "from tessera.driver.run.isolated_child import main; main()"
)


def output_sizes(model: Model, trace: int) -> list[tuple[str, int]]:
    """The outputs of a trace with their sizes in bytes, in their order at a place."""
    buffers = model.traces[trace].program.buffers
    return [(b.name, b.bytes) for b in buffers if b.role is Role.OUTPUT]


class ReplicaProcess:
    """A process with some replicas of a plan."""

    def __init__(
        self,
        plan: Plan | str,
        options: ServingOptions,
        models: Mapping[int, Model],
        boot: str = "",
    ) -> None:
        """Start the process and wait until it is loaded; it imports module `boot` first."""
        self.models = dict(models)
        largest = max(
            sum(size for _, size in output_sizes(model, trace))
            for model in models.values()
            for trace in range(len(model.traces))
        )
        self.place_bytes = max(largest, 1)
        self._inboxes: dict[int, queue.SimpleQueue[object]] = {
            replica: queue.SimpleQueue() for replica in models
        }
        self._answers: dict[int, queue.SimpleQueue[object]] = {
            replica: queue.SimpleQueue() for replica in models
        }
        self.beats = 0
        self._sending = threading.Lock()
        self._places = threading.Lock()
        self._asking = threading.Lock()
        self.fault: BaseException | None = None
        descriptor = shared_memory(self.place_bytes)
        try:
            self._start(descriptor)
            setup = ChildSetup(plan, options, tuple(models), self.place_bytes, boot)
            self._pipe.send(setup)
            self.depths = dict(zip(models, self._await_ready(), strict=True))
            slots = {r: m.lowered.slots * self.depths[r] for r, m in models.items()}
            count = sum(slots.values())
            os.ftruncate(descriptor, count * self.place_bytes)
            self._memory = np.frombuffer(
                mmap.mmap(descriptor, count * self.place_bytes), np.uint8
            ).reshape(count, self.place_bytes)
            self._free = list(range(count))
            self._pipe.send(count)
        except BaseException:
            self.close()
            raise
        finally:
            os.close(descriptor)
        threading.Thread(
            target=_read, args=(weakref.ref(self), self._pipe), name="tessera-pipe", daemon=True
        ).start()

    def _start(self, memory: int) -> None:
        self._pipe, there = Pipe()
        with there:
            given = json.dumps({"host": there.fileno(), "memory": memory})
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _BOOT, given, *sys.path],
                pass_fds=[there.fileno(), memory],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._stop = weakref.finalize(self, _end, self._pipe, self.process)

    def _await_ready(self) -> tuple[int, ...]:
        try:
            message = self._pipe.recv()
        except (EOFError, OSError):
            raise self._lost() from None
        if isinstance(message, ChildFault):
            raise TesseraError(message.diagnostics, message.exit_code)
        assert isinstance(message, ChildReady)
        return message.depths

    def _lost(self) -> ServiceFault:
        """The fault of a process that ended by itself."""
        try:
            code = self.process.wait(_HANG_UP_S)
        except subprocess.TimeoutExpired:
            code = 0
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        names = ", ".join(dict.fromkeys(d for m in self.models.values() for d in m.lowered.devices))
        return ServiceFault(error("TSR5051", f"the process of the replica on {names} {how}"))

    def hear(self, message: object) -> None:
        """Hand a message to its backend; runs in the thread that reads the pipe."""
        match message:
            case ChildDone():
                self._inboxes[message.replica].put(message)
            case ChildAnswer():
                self._answers[message.replica].put(message.value)
            case ChildBeat():
                self.beats = message.count
            case ChildFault():
                fault = ServiceFault(message.diagnostics[0], exit_code=message.exit_code)
                fault.device, fault.request = message.device, message.request
                fault.step = message.step
                self.break_off(fault)
            case None:
                self.break_off(self._lost())
            case _:
                what = f"a replica sent what is no message: {type(message).__name__}"
                self.break_off(ServiceFault(error("TSR5051", what)))

    def break_off(self, fault: BaseException) -> None:
        """Wake all waiting threads with the fault: no message follows."""
        self.fault = self.fault or fault
        for inbox in (*self._inboxes.values(), *self._answers.values()):
            inbox.put(None)

    def send(self, message: object) -> None:
        """Send a message; if the process is gone, `collect` raises what ended it."""
        with suppress(OSError), self._sending:
            self._pipe.send(message)

    def take_place(self) -> int:
        """A place for the outputs of a request."""
        with self._places:
            return self._free.pop()

    def outputs(self, replica: int, trace: int, place: int) -> dict[str, Bytes]:
        """Copies of the outputs at a place, which is free afterwards."""
        outputs, start = {}, 0
        for name, size in output_sizes(self.models[replica], trace):
            outputs[name] = self._memory[place, start : start + size].copy()
            start += size
        with self._places:
            self._free.append(place)
        return outputs

    def inbox(self, replica: int) -> queue.SimpleQueue[object]:
        """Completions of a replica."""
        return self._inboxes[replica]

    def ask(self, question: Question) -> object:
        """Send a question, and wait for its answer."""
        with self._asking:  # an answer does not say to which question it belongs
            self.send(question)
            value = self._answers[question.replica].get()
            if self.fault is not None:
                self._answers[question.replica].put(None)  # for the next one that asks
                raise self.fault
            return value

    def close(self) -> None:
        """Close the pipe, and kill the process if it does not end."""
        self._stop()


def _read(owner: weakref.ref[ReplicaProcess], pipe: Connection) -> None:
    while True:
        try:
            message = pipe.recv()
        except (EOFError, OSError, TypeError):  # TypeError: it was closed meanwhile
            message = None
        process = owner()
        if process is None:
            return
        process.hear(message)
        if message is None or isinstance(message, ChildFault):
            return
        del process


def _end(pipe: Connection, process: subprocess.Popen[bytes]) -> None:
    pipe.close()
    try:
        process.wait(_HANG_UP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class IsolatedBackend:
    """One replica in a `ReplicaProcess`."""

    def __init__(self, process: ReplicaProcess, replica: int) -> None:
        self._process = process
        self._replica = replica
        self._requests: dict[int, tuple[int, int]] = {}
        self._pulse = Pulse(process.process.pid)

    @property
    def depth(self) -> int:
        """The number of requests that a slot may have under way."""
        return self._process.depths[self._replica]

    def begin(self, request: Request) -> None:
        """Hand a request over."""
        place = self._process.take_place()
        self._requests[request.number] = request.trace, place
        inputs = {name: np.ascontiguousarray(given) for name, given in request.inputs.items()}
        plain = Request(
            number=request.number,
            trace=request.trace,
            slot=request.slot,
            lane=request.lane,
            inputs=inputs,
            in_place=request.in_place,
        )
        self._process.send(BeginRequest(self._replica, plain, place))

    def collect(self, timeout_s: float) -> tuple[Completion, ...]:
        """Completed requests; raises the fault once none are left."""
        inbox = self._process.inbox(self._replica)
        messages: list[object] = []
        with suppress(queue.Empty):
            messages.append(inbox.get(timeout=timeout_s) if timeout_s > 0 else inbox.get_nowait())
            while True:
                messages.append(inbox.get_nowait())
        done = [message for message in messages if isinstance(message, ChildDone)]
        if not done and self._process.fault is not None:
            raise self._process.fault
        if len(done) < len(messages):
            inbox.put(None)  # the fault, once these are taken
        return tuple(self._completion(message) for message in done)

    def _completion(self, message: ChildDone) -> Completion:
        trace, place = self._requests.pop(message.number)
        return Completion(
            request=message.number,
            outputs=self._process.outputs(self._replica, trace, place),
            started_ns=message.started_ns,
            ended_ns=message.ended_ns,
            printed=message.printed,
        )

    def progress(self) -> Mapping[int, object]:
        """The number of heartbeats: the process itself detects stalled requests.

        Raises if the process stands still.
        """
        if self._requests and self._pulse.stands_still(self._process.beats):
            message = "the process of the replica stands still"
            raise ServiceFault(error("TSR5052", message), request=min(tuple(self._requests)))
        return dict.fromkeys(tuple(self._requests), self._process.beats)

    def stalled(self, request: int, seconds: float) -> ServiceFault:
        """A fault: the process has sent no heartbeat."""
        message = f"the process of the replica has not answered for {seconds:.0f} s"
        return ServiceFault(error("TSR5052", message), request=request)

    def locate(self, given: object, size: int) -> DeviceBytes | None:
        """None, because arrays in GPU memory go through the host."""
        return None

    def prepare_chain(self, trace: int, inputs: tuple[str, ...]) -> None:
        """Prepare the process for requests whose inputs are outputs of the request before."""
        self._process.ask(PrepareChain(self._replica, trace, inputs))

    def read_states(self, lane: int) -> Mapping[str, Bytes]:
        """The states of a lane in which no request runs."""
        said = self._process.ask(ReadStates(self._replica, lane))
        assert isinstance(said, dict)
        return said

    def read_parts(self, lane: int, device: str, parts: StateParts) -> Bytes:
        """Bytes of states of a lane, as a device has them."""
        said = self._process.ask(StatePartsOf(self._replica, lane, device, parts))
        assert isinstance(said, np.ndarray)
        return said

    def write_parts(self, lane: int, device: str, parts: StateParts, content: Bytes) -> None:
        """Set bytes of states of a lane, on one device."""
        given = np.ascontiguousarray(content)
        self._process.ask(StatePartsOf(self._replica, lane, device, parts, given))

    def close(self) -> None:
        """End the process, and with it all of its replicas."""
        self._process.close()


_: type[Backend] = IsolatedBackend


def sharing_cards(cards: Sequence[frozenset[str]]) -> list[list[int]]:
    """Replicas grouped by process: those that share a card are in one group."""
    groups: list[tuple[set[str], list[int]]] = []
    for number, own in enumerate(cards):
        joined: tuple[set[str], list[int]] = (set(own), [number])
        rest = []
        for group in groups:
            if group[0] & joined[0]:
                joined = (group[0] | joined[0], group[1] + joined[1])
            else:
                rest.append(group)
        groups = [*rest, joined]
    return sorted(sorted(numbers) for _, numbers in groups)
