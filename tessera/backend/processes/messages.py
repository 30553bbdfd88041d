"""What the host and the processes of the devices tell each other.

They are pickled, over pipes that nobody else has an end of; nothing from a file is unpickled. The
bytes of transfers do not go this way: they are in memory that all have mapped. `Status` is a row
of that kind too, one per device, which the host can still read when a process has been killed.
"""

from __future__ import annotations

import mmap
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tessera.backend.processes.host import Parts
from tessera.backend.processes.visits import QueueWait
from tessera.backend.ptx_executor.memory.memory import Array
from tessera.backend.service import BackendOptions, Model, ServiceFault, TimelineEvent
from tessera.diagnostics import Diagnostic, TesseraError, error
from tessera.ir.program.program import LaunchId

_ROW_BYTES = 64
_WORDS = 3


@dataclass(frozen=True, slots=True)
class Setup:
    """To a device: what it is. The model has only the contents that this device holds."""

    name: str
    index: int
    model: Model
    options: BackendOptions


@dataclass(frozen=True, slots=True)
class Begin:
    """To a device: a request whose inputs are in the exchange."""

    number: int
    trace: int
    slot: int
    lane: int


@dataclass(frozen=True, slots=True)
class AskStates:
    """To a device: send the states of a lane."""

    lane: int


@dataclass(frozen=True, slots=True)
class SetStates:
    """To a device: what states of a lane hold from now on."""

    lane: int
    contents: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class AskWaits:
    """To a device: say what the requests wait for."""


@dataclass(frozen=True, slots=True)
class DeviceReady:
    """From a device: it can take requests."""


@dataclass(frozen=True, slots=True)
class Done:
    """From a device: its part of a request is over."""

    number: int
    events: tuple[TimelineEvent, ...]
    printed: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class PassedGate:
    """From a device: a request has done the step after which the next of its trace may begin."""

    number: int


@dataclass(frozen=True, slots=True)
class States:
    """From a device: its parts of a lane's states."""

    parts: Parts


@dataclass(frozen=True, slots=True)
class Waits:
    """From a device: requests and what they wait for."""

    rows: tuple[QueueWait, ...]


@dataclass(frozen=True, slots=True)
class Faulted:
    """From a device: it has stopped. No diagnostic is a fault of Tessera: `text` has the trace."""

    diagnostic: Diagnostic | None
    exit_code: int
    request: int | None = None
    step: LaunchId | None = None
    text: str = ""


def fault_of(problem: BaseException) -> Faulted:
    """What is told of a problem that ends a device."""
    match problem:
        case ServiceFault():
            return Faulted(problem.diagnostics[0], problem.exit_code, problem.request, problem.step)
        case TesseraError():
            return Faulted(problem.diagnostics[0], problem.exit_code)
        case MemoryError():
            return Faulted(error("TSR5020", "the machine is out of memory"), 6)
        case RuntimeError() if str(problem) == "can't start new thread":
            return Faulted(error("TSR5020", "the machine has no room for a thread"), 6)
        case _:
            return Faulted(None, 70, text="".join(traceback.format_exception(problem)))


def status_bytes(slots: int) -> int:
    """What the status of one device takes."""
    return -(-8 * (_WORDS + slots) // _ROW_BYTES) * _ROW_BYTES


class Status:
    """Signs of life of one device: when it last beat, what it runs, when a slot last got on."""

    def __init__(self, memory: mmap.mmap, index: int, slots: int) -> None:
        size = status_bytes(slots)
        words: Array = np.frombuffer(memory, np.int64, size // 8, index * size)
        self._words, self._slots = words[:_WORDS], words[_WORDS : _WORDS + slots]

    def beat(self) -> None:
        """The process is alive."""
        self._words[0] = time.monotonic_ns()

    def gets_on(self, slot: int) -> None:
        """Something happens for the request in a slot."""
        self._slots[slot] = time.monotonic_ns()

    def running(self, request: int, step: int) -> None:
        """A launch starts."""
        self._words[1], self._words[2] = request + 1, step + 1

    def rest(self) -> None:
        """No launch runs."""
        self._words[1] = self._words[2] = 0

    @property
    def silent_s(self) -> float:
        """Seconds since the last beat."""
        return (time.monotonic_ns() - int(self._words[0])) / 1e9

    def got_on_ns(self, slot: int) -> int:
        """When something last happened for the request in a slot."""
        return int(self._slots[slot])

    @property
    def launch(self) -> tuple[int | None, LaunchId | None]:
        """The request and the step that runs, if any."""
        request, step = int(self._words[1]), int(self._words[2])
        return (request - 1 if request else None, LaunchId(step - 1) if step else None)
