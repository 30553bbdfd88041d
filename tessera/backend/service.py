"""What every backend that runs launch programs is given, does and gives back.

In: nothing. Out: records and the protocol `Backend`. `backend.host_loop.dispatch` drives a backend:
it assigns slots, keeps the order of lanes, holds callers back, and watches the clock; a backend
only starts requests and says when they are done.

A backend is made with a `Model` and `BackendOptions`; making it loads modules and weights, sets
every lane's states, and allocates all that it will ever need. It raises `TesseraError` with exit
code 4 if a device is missing, 6 if memory runs out.

- `begin(request)` hands a request to the devices, and returns without waiting for them. Its slot
  has fewer than `depth` requests under way, and no other slot has one of its lane. Requests of a
  slot run one after the other, in the order in which they were begun. The bytes of the inputs
  stay unchanged and alive until the request is collected.
- `collect(timeout_s)` waits until a request is done and returns all that are.
- Both are called by one thread at a time each, but may be called at the same time. `collect` is
  always called by the same thread, unless the backend is a `PatientBackend`.
- A fault on any device ends the backend: what had finished before is still collected, then
  `collect` (or `begin`) raises a `ServiceFault`, and from then on only `close` may be called.
- `close()` may be called at any time when neither of the two is running, more than once, and
  after a fault. It leaves no process, no shared memory and no context behind.

Source: decision records 0005 and 0010.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tessera.backend.unwritten import ComparedSide
from tessera.diagnostics import Diagnostic, ExitCode, TesseraError
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.launch_program import LoweredReplica, Queue
from tessera.ir.plan.plan import Plan, Replica
from tessera.ir.program.program import BufferId, LaunchId, Program

Bytes = npt.NDArray[np.uint8]
"""The bytes of a buffer: flat, contiguous."""

DEFAULT_LIMIT_S = 60.0
LONGEST_S = 1e6
"""Longest duration of a throttled transfer in seconds; the watchdog ends longer ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTrace:
    """A trace of the plan. `arches[step]` is the module variant that runs it, "" where none.

    `touched[step]` are the buffers that it may touch, by the analysis; needed if patterns are
    written into memory (`BackendOptions.unwritten`).
    """

    name: str
    program: Program
    arches: tuple[str, ...]
    touched: tuple[frozenset[BufferId], ...] = ()


def served_traces(
    plan: Plan, replica: Replica, programs: Sequence[Program], graphs: Sequence[KernelGraph]
) -> tuple[ServedTrace, ...]:
    """The traces of a plan with the variants that a replica runs, and what their steps touch."""
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
    """One replica with all it needs to run; contents are the bytes of whole buffers by name.

    `traces` are all traces of the plan: `LoweredTrace.trace` indexes them. `weights` has every
    weight and `states[lane]` every state of every trace (equal names are one buffer).
    `fillings[trace]` has the outputs and temps for which the user gives contents; the others
    begin as poison, and so does an output on the host.
    """

    lowered: LoweredReplica
    traces: tuple[ServedTrace, ...]
    weights: Mapping[str, Bytes]
    states: Sequence[Mapping[str, Bytes]]
    fillings: Sequence[Mapping[str, Bytes]]


class CommonMemory:
    """Memory that several backends of this process have together, by what it is for.

    Replicas of different policies have the weights of a device in one layout, and once.
    """

    def __init__(self) -> None:
        self._held: dict[object, tuple[int, int]] = {}

    def has(self, key: object) -> bool:
        """Whether it is allocated."""
        return key in self._held

    def take(self, key: object, allocate: Callable[[], int]) -> int:
        """Its address; the first call allocates it."""
        address, users = self._held.get(key) or (allocate(), 0)
        self._held[key] = address, users + 1
        return address

    def give_back(self, key: object) -> bool:
        """Drop a use; True if it was the last one, whose user frees the memory."""
        address, users = self._held.pop(key)
        if users > 1:
            self._held[key] = address, users - 1
        return users == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """How to run. A backend ignores what it has no use for.

    `targets` says what stands for a device of the plan: `cuda:0`, `cuda:0:84sm` (a slice), `cpu`.
    `common` has weights of other replicas; those of a device are there as `common_as` says.
    `memory_bytes` is what the areas of a device may take. `throttle_bytes_per_s` slows down
    transfers between devices. `timeline` asks for an event per operation; with `rows`, for one per
    row of steps that nothing holds up, and none for when the host's bytes moved: that takes less.
    `unwritten` has patterns written into the place of a buffer when a request first uses it.
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
    """The bytes of an input in the memory of a GPU, as `Backend.locate` has found them.

    `type_name` is NumPy's, or empty. `ready` is what a stream has to wait for before it reads them;
    `keep` keeps them alive.
    """

    address: int
    nbytes: int
    type_name: str
    ready: object
    keep: object


@dataclass(frozen=True, slots=True)
class EarlierOutput:
    """An input that is an output of the request before in its lane, by the name of that.

    The devices fetch it themselves: the host may hand the request over before it knows it. For
    backends on GPUs of one process, with room for two requests in a slot.
    """

    name: str


InPlace = Mapping[str, DeviceBytes | EarlierOutput]


@dataclass(slots=True, kw_only=True)
class Request:
    """A request to start: which trace, where, and the bytes of every input by name.

    Those `in_place` are, or will be, where GPUs find them; all others in the memory of the host.
    `number` and `slot` may be -1 until it begins; from then on it does not change. Neither it nor
    `Completion` is frozen, since one of each is made per request. Emitted programs have their own
    `Request`, the same thing with pinned memory (`backend.cuda.emitted.common`).
    """

    number: int
    trace: int
    slot: int
    lane: int
    inputs: Mapping[str, Bytes]
    in_place: InPlace = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEvent:
    """An operation that took place. Nanoseconds of one clock for all devices of the backend.

    `name` is what to show: a kernel's name, `memset`, `send x to b`. `bytes` are those moved, to or
    from `peer`, a device or the host.
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


@dataclass(slots=True, kw_only=True)
class Completion:
    """A request that is done on every device: its outputs by name, and what it took.

    Words of `pointers` records in outputs mean nothing here: no device sends its addresses.
    `started_ns` and `ended_ns` are of the clock of the events. A request starts when the devices
    have it and the one before it in its slot has ended: time behind that one does not count.
    """

    request: int
    outputs: Mapping[str, Bytes]
    started_ns: int
    ended_ns: int
    events: tuple[TimelineEvent, ...] = ()
    printed: str = ""


class ServiceFault(TesseraError):
    """A run that stopped: on which device, in which request and launch, where they are known.

    The diagnostic carries the PTX line, where it is known, as its primary span.
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
        """How many requests may be under way in a slot."""

    def begin(self, request: Request) -> None:
        """Start a request."""

    def collect(self, timeout_s: float) -> tuple[Completion, ...]:
        """Requests that have become done, in that order; none if the time runs out first."""

    def progress(self) -> Mapping[int, object]:
        """By number, a mark per request under way that changes when a device does anything for it.

        A request behind another one of its slot may be left out. For the collecting thread.
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

    def write_states(self, lane: int, states: Mapping[str, Bytes]) -> None:
        """Set states of a lane in which no request runs, by buffer name; none has addresses."""

    def close(self) -> None:
        """Stop at once and give everything back."""


@runtime_checkable
class ChainingBackend(Backend, Protocol):
    """A backend whose requests can take an output of the one before (`EarlierOutput`)."""

    def prepare_chain(self, trace: int, inputs: tuple[str, ...]) -> None:
        """Prepare for such requests of a trace, with these inputs, so that none waits later."""


@runtime_checkable
class PatientBackend(Backend, Protocol):
    """A backend that allows any thread to wait for its requests."""

    def wait(self, timeout_s: float) -> bool:
        """Sleep until there is something to collect, at most `timeout_s`; whether there is.

        For the thread that may collect. It changes nothing, and an interrupt may end it.
        """
