"""Messages between the host and the processes of devices, on this machine and on other hosts.

A message is a record with a kind; arrays of bytes go beside it, in the order of its fields. Between
processes of this machine both are pickled, over pipes to which no other process has access; nothing
from a file is unpickled. Between hosts a message is JSON (`backend.hosts.channel`). Messages never
carry the bytes of transfers between devices. `Status` is memory that the host and the devices
share, with a row per device; the host can still read it after a process has been killed.
"""

from __future__ import annotations

import mmap
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from tessera.backend.processes.visits import QueueWait
from tessera.backend.service import (
    BackendOptions,
    Bytes,
    Model,
    ServiceFault,
    StateParts,
    TimelineEvent,
)
from tessera.diagnostics import Diagnostic, ExitCode, TesseraError, error
from tessera.ir.program.program import LaunchId

_ROW_BYTES = 64
_WORDS = 3

Pieces = Mapping[str, Sequence[tuple[int, Bytes]]]
"""Pieces of states by name: the start of each, and its bytes."""


@dataclass(frozen=True, slots=True)
class Setup:
    """To a device of this machine: its setup, with only the contents that the device holds."""

    name: str
    index: int
    model: Model
    options: BackendOptions


class Message(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag=str.lower
):
    """A message; its kind is the name of its class in lower case."""


class Begin(Message, frozen=True):
    """To a device: begin a request. Over a channel, with the bytes of `transfers` from the host."""

    number: int
    trace: int
    slot: int
    lane: int
    transfers: tuple[int, ...] = ()


class AskStates(Message, frozen=True):
    """To a device: send the states of a lane."""

    lane: int


SentParts = tuple[tuple[str, tuple[tuple[int, int], ...]], ...]
"""`service.StateParts` in a message."""


class ReadParts(Message, frozen=True):
    """To a device: send bytes of states of a lane."""

    lane: int
    parts: SentParts


class WriteParts(Message, frozen=True):
    """To a device: set bytes of states of a lane, which go beside it."""

    lane: int
    parts: SentParts


class AskWaits(Message, frozen=True):
    """To a device: report what the requests wait for."""


class DeviceReady(Message, frozen=True):
    """From a device: it can take requests."""


class Done(Message, frozen=True):
    """From a device: its part of a request is done. `transfers` are those to the host."""

    number: int
    events: tuple[TimelineEvent, ...]
    printed: tuple[tuple[int, str], ...] = ()
    transfers: tuple[int, ...] = ()


class PassedGate(Message, frozen=True):
    """From a device: a request has run the step after which the next of its trace may begin."""

    number: int


class States(Message, frozen=True):
    """From a device: its pieces of a lane's states, by name and first byte."""

    names: tuple[str, ...]
    starts: tuple[int, ...]


class PartsDone(Message, frozen=True):
    """From a device: it has read or set bytes of states; those that it has read go beside it.

    Of a door of `backend.hosts.doors`: whether it was used, and the address of one that was opened.
    """

    is_done: bool = True
    address: str = ""


class Waits(Message, frozen=True):
    """From a device: requests and what they wait for."""

    rows: tuple[QueueWait, ...]


class Faulted(Message, frozen=True):
    """From a device: it has stopped. Without a diagnostic it is a bug in Tessera; see `text`."""

    diagnostic: Diagnostic | None
    exit_code: int
    request: int | None = None
    step: LaunchId | None = None
    text: str = ""


def states_message(pieces: Pieces) -> tuple[States, list[Bytes]]:
    """The states of a lane on a device."""
    rows = [(name, start, piece) for name in sorted(pieces) for start, piece in pieces[name]]
    names = tuple(name for name, _, _ in rows)
    starts = tuple(start for _, start, _ in rows)
    return States(names, starts), [piece for _, _, piece in rows]


def pieces_of(states: States, parts: Sequence[Bytes]) -> Pieces:
    """The inverse of `states_message`."""
    pieces: dict[str, list[tuple[int, Bytes]]] = {}
    for name, start, part in zip(states.names, states.starts, parts, strict=True):
        pieces.setdefault(name, []).append((start, part))
    return pieces


Answer = States | PartsDone | Waits
"""What a device answers a question with."""


def sent_parts(parts: StateParts) -> SentParts:
    """Byte ranges of states for a message."""
    return tuple((name, tuple((int(s), int(e)) for s, e in ranges)) for name, ranges in parts)


def fault_of(problem: BaseException) -> Faulted:
    """The message about an exception that ends a device."""
    match problem:
        case ServiceFault():
            return Faulted(problem.diagnostics[0], problem.exit_code, problem.request, problem.step)
        case TesseraError():
            return Faulted(problem.diagnostics[0], problem.exit_code)
        case MemoryError():
            return Faulted(error("TSR5020", "the machine is out of memory"), ExitCode.FAULT)
        case RuntimeError() if str(problem) == "can't start new thread":
            diagnostic = error("TSR5020", "the machine has no room for a thread")
            return Faulted(diagnostic, ExitCode.FAULT)
        case _:
            text = "".join(traceback.format_exception(problem))
            return Faulted(None, ExitCode.INTERNAL, text=text)


def status_bytes(slots: int) -> int:
    """Bytes that the status of one device takes."""
    return -(-8 * (_WORDS + slots) // _ROW_BYTES) * _ROW_BYTES


class Status:
    """Status of one device: its last beat, its current launch, the last progress of each slot."""

    def __init__(self, memory: mmap.mmap, index: int, slots: int) -> None:
        size = status_bytes(slots)
        words = np.frombuffer(memory, np.int64, size // 8, index * size)
        self._words, self._slots = words[:_WORDS], words[_WORDS : _WORDS + slots]

    def beat(self) -> None:
        """Note that the process is alive."""
        self._words[0] = time.monotonic_ns()

    def gets_on(self, slot: int) -> None:
        """Note progress of the request in a slot."""
        self._slots[slot] = time.monotonic_ns()

    def running(self, request: int, step: int) -> None:
        """Note that a launch starts."""
        self._words[1], self._words[2] = request + 1, step + 1

    def rest(self) -> None:
        """Note that no launch runs."""
        self._words[1] = self._words[2] = 0

    @property
    def beat_ns(self) -> int:
        """The time of the last beat."""
        return int(self._words[0])

    @property
    def silent_s(self) -> float:
        """Seconds since the last beat."""
        return (time.monotonic_ns() - self.beat_ns) / 1e9

    def got_on_ns(self, slot: int) -> int:
        """When the request in a slot last made progress."""
        return int(self._slots[slot])

    @property
    def launch(self) -> tuple[int | None, LaunchId | None]:
        """The request and the step of the current launch, if any."""
        request, step = int(self._words[1]), int(self._words[2])
        return (request - 1 if request else None, LaunchId(step - 1) if step else None)
