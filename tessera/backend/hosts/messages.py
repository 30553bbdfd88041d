"""Messages between the driver and device processes, beside `backend.processes.messages`.

In: records. Out: the two unions of messages, and decoders that accept only these: an unknown kind,
a missing or unknown field, or a value of another type is an error. `Hello` alone may have more
fields, so that another version of Tessera can be named.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tessera.backend.processes.messages import (
    AskStates,
    AskWaits,
    Begin,
    DeviceReady,
    Done,
    Faulted,
    Message,
    PartsDone,
    PassedGate,
    ReadParts,
    SentParts,
    States,
    Waits,
    WriteParts,
)
from tessera.backend.processes.visits import QueueWait
from tessera.backend.service import BackendOptions
from tessera.backend.transports.transport import TransportPlace
from tessera.diagnostics import Diagnostic, error
from tessera.ir.program.program import LaunchId


class OwnWeight(NamedTuple):
    """A weight that a host reads from a file: the bytes from `first` to `end`, and their digest."""

    name: str
    sha256: str
    first: int = 0
    end: int | None = None


class PlanPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The part of a plan for a device. Its parts: the plan's text, contents in the order below.

    `known` are contents that accesses depend on: trace, buffer, digest. `own` are weights that the
    host reads from `path` itself; `weights` are sent. Contents may be a part of a buffer: `firsts`
    has their first bytes, where that is not byte 0.
    """

    replica: int
    known: tuple[tuple[int, int, str], ...]
    weights: tuple[str, ...]
    path: str
    own: tuple[OwnWeight, ...]
    firsts: dict[str, int]
    states: tuple[tuple[str, ...], ...]
    fillings: tuple[tuple[str, ...], ...]


class HostSetup(Message, frozen=True):
    """To a device: its setup. `hosts` has the host of every device; with targets, they are GPUs."""

    place: TransportPlace
    options: BackendOptions
    plan: PlanPart
    hosts: dict[str, str]


class OpenDoor(Message, frozen=True):
    """To a device: open one end of a way to a device of another replica."""

    door: str
    place: TransportPlace
    peer: str
    sends: bool


class JoinDoor(Message, frozen=True):
    """To a device: join the other end of a way."""

    door: str
    address: str


class SendParts(Message, frozen=True):
    """To a device: send bytes of states of a lane through a way, or set them as they come."""

    door: str
    lane: int
    parts: SentParts
    sends: bool


class CloseDoor(Message, frozen=True):
    """To a device: close one end of a way."""

    door: str


DoorMessage = OpenDoor | JoinDoor | SendParts | CloseDoor


class Examine(Message, frozen=True):
    """To a process: report the facts of its host."""

    place: TransportPlace


class Peers(Message, frozen=True):
    """To a device: the addresses of the devices that it exchanges bytes with."""

    addresses: dict[str, str]


class AskClock(Message, frozen=True):
    """To a device: send your time; `sent_ns` is the driver's time of the question."""

    sent_ns: int


class MeasureWay(Message, frozen=True):
    """To a process: measure the link to another process."""

    peer: str


class Release(Message, frozen=True):
    """To a device: this run is over; another may follow."""


class StillHere(Message, frozen=True):
    """To a process: a sign of life of the driver."""


class Hello(Message, frozen=True, forbid_unknown_fields=False):
    """From a process: its first message."""

    version: str
    pid: int = 0


class Beat(Message, frozen=True):
    """From a device: a sign of life. `marks` change when requests make progress."""

    marks: tuple[int | str, ...] = ()
    request: int | None = None
    step: LaunchId | None = None
    waits: tuple[QueueWait, ...] = ()


class Listening(Message, frozen=True):
    """From a device: how others reach it."""

    address: str


class ClockTold(Message, frozen=True):
    """From a device: its time, and the `sent_ns` of the question, in nanoseconds."""

    sent_ns: int
    here_ns: int


class Lost(Message, frozen=True):
    """From a device: it has lost a peer; `is_cut`: the link to it is cut."""

    peer: str
    why: str
    is_cut: bool = False


class HostFault(Message, frozen=True):
    """From a device: it has stopped. Without a code it is a bug in Tessera; `text` is a traceback.

    The text of the PTX trace is not sent: the position that the diagnostic names is a note.
    """

    exit_code: int
    request: int | None
    text: str = ""
    code: str = ""
    headline: str = ""
    notes: tuple[str, ...] = ()
    hint: str | None = None

    def diagnostic(self) -> Diagnostic | None:
        """The diagnostic of the fault; None if it has no code."""
        if not self.code:
            return None
        return error(self.code, self.headline, notes=self.notes, hint=self.hint)


class Released(Message, frozen=True):
    """From a device: it has given back everything of the run."""


class ToldFacts(Message, frozen=True):
    """From an examined process: the facts of its host."""

    address: str
    version: str
    python: str
    system: str
    cores: int
    free_bytes: int | None
    gpus: tuple[str, ...]
    clock_ns: int


class WayMeasured(Message, frozen=True):
    """From an examined process: the link to another process."""

    peer: str
    latency_ns: float
    bytes_per_s: float


ToRun = Begin | AskStates | ReadParts | WriteParts | AskWaits
"""Messages to a device during a run, on this machine and on other hosts."""

ToDevice = (
    ToRun | DoorMessage | HostSetup | Examine | Peers | AskClock | MeasureWay | Release | StillHere
)
FromRun = DeviceReady | PassedGate | Done | States | PartsDone | Waits | HostFault
FromDevice = (
    FromRun | Hello | Beat | Listening | ClockTold | Lost | Released | ToldFacts | WayMeasured
)

TO_DEVICE: msgspec.json.Decoder[ToDevice] = msgspec.json.Decoder(ToDevice)
FROM_DEVICE: msgspec.json.Decoder[FromDevice] = msgspec.json.Decoder(FromDevice)


def sent_fault(fault: Faulted) -> HostFault:
    """A fault as a message to another host."""
    diagnostic = fault.diagnostic
    if diagnostic is None:
        return HostFault(fault.exit_code, fault.request, fault.text)
    where = () if diagnostic.primary is None else (f"at {diagnostic.primary.span}",)
    return HostFault(
        exit_code=fault.exit_code,
        request=fault.request,
        code=diagnostic.code,
        headline=str(diagnostic.headline),
        notes=(*diagnostic.notes, *where),
        hint=diagnostic.hint,
    )
