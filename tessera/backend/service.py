"""The contract of every backend that runs launch programs: inputs, behavior and results.

In: nothing. Out: records and the protocol `Backend`. `backend.host_loop.dispatch` drives a backend:
it assigns slots, keeps the order of lanes, applies back-pressure to callers, and watches the clock.
A backend only starts requests and reports when they are done.

A backend is made with a `Model` and `BackendOptions`; making it loads modules and weights, sets
every lane's states, and allocates all memory that it will ever need. It raises `TesseraError` with
exit code 4 if a device is missing, 6 if memory runs out.

- `begin(request)` hands a request to the devices, and returns without waiting for them. The slot of
  the request has fewer than `depth` requests under way, and no other slot has a request of its lane
  under way. Requests of a slot run one after the other, in the order in which they were begun. The
  bytes of the inputs stay unchanged and alive until the request is collected.
- `collect(timeout_s)` waits until a request is done, and returns all requests that are done.
- Each of the two is called by one thread at a time, but both may run at the same time. `collect` is
  always called by the same thread, unless the backend is a `PatientBackend`.
- A fault on any device ends the backend: requests that had finished are still collected, then
  `collect` (or `begin`) raises a `ServiceFault`, and after that only `close` may be called.
- `close()` may be called at any time when neither `begin` nor `collect` is running, more than once,
  and after a fault. It leaves no process, no shared memory and no context behind.

Source: decision records 0005 and 0010.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tessera.backend.unwritten import ComparedSide
from tessera.diagnostics import Diagnostic, ExitCode, TesseraError
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.hand_over import StateTransfer
from tessera.ir.plan.launch_program import LoweredReplica, Queue, TransferId
from tessera.ir.plan.plan import Plan, Replica
from tessera.ir.program.program import BufferId, LaunchId, Program

Bytes = npt.NDArray[np.uint8]
"""The bytes of a buffer: a flat, contiguous array."""

StateParts = Sequence[tuple[str, Sequence[tuple[int, int]]]]
"""Byte ranges of states, by name: starts and ends (exclusive). Where they are packed, they follow
one another without gaps."""

DEFAULT_LIMIT_S = 60.0
LONGEST_S = 1e6
"""Longest duration of a throttled transfer in seconds; the watchdog ends longer ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTrace:
    """A trace of the plan. `arches[step]` is the module variant that runs the step, "" if none.

    `touched[step]` are the buffers that the step may touch, by the analysis; they are needed if
    patterns are written into memory (`BackendOptions.unwritten`).
    """

    name: str
    program: Program
    arches: tuple[str, ...]
    touched: tuple[frozenset[BufferId], ...] = ()


def served_traces(
    plan: Plan, replica: Replica, programs: Sequence[Program], graphs: Sequence[KernelGraph]
) -> tuple[ServedTrace, ...]:
    """The traces of a plan, with a replica's module variants and the buffers of each step."""
    placed = {placed_trace.trace: placed_trace for placed_trace in replica.traces}
    return tuple(
        ServedTrace(
            name=trace.name,
            program=program,
            arches=tuple(step.arch for step in placed[index].steps) if index in placed else (),
            touched=tuple(frozenset(a.buffer for a in node.accesses) for node in graph.nodes),
        )
        for index, (trace, program, graph) in enumerate(
            zip(plan.traces, programs, graphs, strict=True)
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One replica with everything it needs to run; contents are bytes of whole buffers by name.

    `traces` are all traces of the plan: `LoweredTrace.trace` indexes them. `weights` has every
    weight and `states[lane]` every state of every trace (equal names are one buffer).
    `fillings[trace]` has the outputs and temps for which the user gives contents; all others begin
    as poison, and so does an output on the host. A model for one device may have only the contents
    of its places; `firsts` has the first byte of those that do not begin at byte 0.
    """

    lowered: LoweredReplica
    traces: tuple[ServedTrace, ...]
    weights: Mapping[str, Bytes]
    states: Sequence[Mapping[str, Bytes]]
    fillings: Sequence[Mapping[str, Bytes]]
    firsts: Mapping[str, int] = field(default_factory=dict)

    def weight(self, name: str, held: tuple[int, int]) -> Bytes:
        """The bytes of a weight from the first to the end (exclusive) of `held`."""
        return self._bytes(self.weights, name, held)

    def state(self, lane: int, name: str, held: tuple[int, int]) -> Bytes:
        """The bytes of a lane's state, likewise."""
        return self._bytes(self.states[lane], name, held)

    def _bytes(self, contents: Mapping[str, Bytes], name: str, held: tuple[int, int]) -> Bytes:
        skipped = self.firsts.get(name, 0)
        return contents[name].reshape(-1).view(np.uint8)[held[0] - skipped : held[1] - skipped]


class CommonMemory:
    """Memory that several backends of this process share, by key.

    Replicas of different policies have the weights of a device in the same layout, and share one
    copy of them.
    """

    def __init__(self) -> None:
        self._held: dict[object, tuple[int, int]] = {}

    def has(self, key: object) -> bool:
        """Whether the memory of a key is allocated."""
        return key in self._held

    def take(self, key: object, allocate: Callable[[], int]) -> int:
        """The address of the memory of a key; the first call allocates it."""
        address, users = self._held.get(key) or (allocate(), 0)
        self._held[key] = address, users + 1
        return address

    def give_back(self, key: object) -> bool:
        """Drop a use; returns True if it was the last, whose user then frees the memory."""
        address, users = self._held.pop(key)
        if users > 1:
            self._held[key] = address, users - 1
        return users == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """Options of a run. A backend ignores options that do not apply to it.

    `targets` has the target of each device of the plan: `cuda:0`, `cuda:0:84sm` (a slice), `cpu`.
    `common` has weights that replicas share; `common_as` has the key of each device there.
    `memory_bytes` is the limit on the areas of each device. `throttle_bytes_per_s` slows down
    transfers between devices. `timeline` requests an event per operation; with `rows`, an event per
    row of steps without a wait between them, and no times of transfers with the host, which costs
    less. `unwritten` writes patterns into the place of a buffer when a request first uses it.
    """

    targets: Mapping[str, str] = field(default_factory=dict)
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    max_steps: int | None = None
    throttle_bytes_per_s: float | None = None
    timeline: bool = True
    rows: bool = False
    unwritten: ComparedSide | None = None
    common: CommonMemory | None = None
    common_as: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceBytes:
    """The bytes of an input in GPU memory, as found by `Backend.locate`.

    `type_name` is NumPy's name of the type, or empty. A stream has to wait for `ready` before it
    reads the bytes; `keep` keeps them alive.
    """

    address: int
    nbytes: int
    type_name: str
    ready: object
    keep: object


@dataclass(frozen=True, slots=True)
class EarlierOutput:
    """An input that is an output of the previous request in its lane, by the name of the output.

    The devices fetch it themselves: the host may hand the request over before it has the output.
    For backends on GPUs of one process, with room for two requests in a slot.
    """

    name: str


InPlace = Mapping[str, DeviceBytes | EarlierOutput]


@dataclass(slots=True, kw_only=True)
class Request:
    """A request to start: its trace, slot and lane, and the bytes of every input by name.

    Inputs `in_place` are, or will be, in memory that GPUs read; all others are in host memory.
    `number` and `slot` may be -1 until the request begins; from then on it does not change. A
    backend gets a number once, so that a late message about a request concerns no other. Neither
    `Request` nor `Completion` is frozen, because each request makes one of each and frozen records
    are slower to make. Emitted programs have their own `Request`, with pinned memory
    (`backend.cuda.emitted.common`).
    """

    number: int
    trace: int
    slot: int
    lane: int
    inputs: Mapping[str, Bytes]
    in_place: InPlace = field(default_factory=dict)


class EventKind(StrEnum):
    """What a queue does in an event; of several at a time, the first one here counts."""

    COMPUTING = "computing"
    MOVING = "moving"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEvent:
    """An operation that took place. Times are nanoseconds of one clock for all devices.

    `name` is the displayed name: a kernel's name, `memset`, `send x to b`. `bytes` is the number of
    bytes moved to or from `peer`, which is a device or the host, by the transfer with the number
    `transfer`. With `is_wait` it is the time before that, in which an end waits.
    """

    device: str
    queue: Queue
    slot: int
    request: int
    name: str
    start_ns: int
    end_ns: int
    step: LaunchId | None = None
    bytes: int = 0
    peer: str = ""
    transfer: TransferId | None = None
    is_wait: bool = False

    @property
    def kind(self) -> EventKind:
        """What the queue does in it."""
        if self.is_wait:
            return EventKind.WAITING
        computes = self.queue is Queue.COMPUTE and self.transfer is None
        return EventKind.COMPUTING if computes else EventKind.MOVING


@dataclass(slots=True, kw_only=True)
class Completion:
    """A request that is done on every device: its outputs by name, and its times.

    Words of `pointers` records in outputs have no meaning here: no device sends its addresses.
    `started_ns` and `ended_ns` are times of the clock of the events. A request starts when the
    devices have it and the previous request of its slot has ended: time spent in the queue of the
    slot does not count.
    """

    request: int
    outputs: Mapping[str, Bytes]
    started_ns: int
    ended_ns: int
    events: tuple[TimelineEvent, ...] = ()
    printed: str = ""


class ServiceFault(TesseraError):
    """A run that stopped; names the device, the request and the launch, if they are known.

    The primary span of the diagnostic is the PTX line, if it is known.
    """

    def __init__(
        self,
        diagnostic: Diagnostic,
        *,
        device: str | None = None,
        request: int | None = None,
        step: LaunchId | None = None,
        name: str = "",
        exit_code: int = ExitCode.FAULT,
    ) -> None:
        self.device = device
        self.request = request
        self.step = step
        where = [f"device `{device}`"] if device is not None else []
        where += [f"request {request}"] if request is not None else []
        where += (
            [f"launch #{step} `{name}`" if name else f"step #{step}"] if step is not None else []
        )
        notes = ((", ".join(where),) if where else ()) + diagnostic.notes
        super().__init__(replace(diagnostic, notes=notes), exit_code)


class Backend(Protocol):
    """One replica on its devices; the module docstring has the rules."""

    @property
    def depth(self) -> int:
        """The number of requests that may be under way in a slot."""

    def begin(self, request: Request) -> None:
        """Start a request."""

    def collect(self, timeout_s: float) -> tuple[Completion, ...]:
        """Requests that are newly done, in that order; none if the time runs out first."""

    def progress(self) -> Mapping[int, object]:
        """By request number, a mark that changes when a device does anything for the request.

        A request queued behind another of its slot may be left out. Raises the fault of a device
        whose process stands still. For the collecting thread.
        """

    def stalled(self, request: int, seconds: float) -> ServiceFault:
        """The fault of a request without progress for `seconds`: what it waits for."""

    def locate(self, given: object, size: int) -> DeviceBytes | None:
        """The place of an array in GPU memory if the devices can read it there; otherwise None.

        For any thread. The GPU waits for work that the caller has under way for the array.
        """

    def read_states(self, lane: int) -> Mapping[str, Bytes]:
        """The states of a lane in which no request runs, by buffer name.

        Words of `pointers` records that hold the address they were given read as zero.
        """

    def read_parts(self, lane: int, device: str, parts: StateParts) -> Bytes:
        """Bytes of states of a lane without a running request, as a device has them, packed.

        For any thread, while requests of other lanes run; so is `write_parts`.
        """

    def write_parts(self, lane: int, device: str, parts: StateParts, content: Bytes) -> None:
        """Set bytes of states of a lane without a running request, on one device.

        They are not addresses. Requests that begin after this find them.
        """

    def close(self) -> None:
        """Stop at once and release everything."""


@runtime_checkable
class ChainingBackend(Backend, Protocol):
    """A backend whose requests can take an output of the previous request (`EarlierOutput`)."""

    def prepare_chain(self, trace: int, inputs: tuple[str, ...]) -> None:
        """Prepare chained requests of a trace, with these inputs, so that none waits later."""


@runtime_checkable
class HandingBackend(Backend, Protocol):
    """A backend that can copy states to another one without the host."""

    def hand_to(self, other: Backend, lane: int, there: int, transfer: StateTransfer) -> bool:
        """Copy the bytes of a transfer from a lane to lane `there` of another backend.

        No request runs in either. False if the host has to carry them.
        """


@runtime_checkable
class PatientBackend(Backend, Protocol):
    """A backend whose requests any thread may wait for."""

    def wait(self, timeout_s: float) -> bool:
        """Sleep at most `timeout_s` seconds for something to collect; returns whether there is.

        For the thread that has the turn to collect. It changes nothing, and an interrupt may end
        it.
        """
