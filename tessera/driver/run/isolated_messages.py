"""The messages between a runtime and the process of some of its replicas: a record each.

In: nothing. Out: records, which a pipe carries. First the runtime sends a `ChildSetup` and the
process a `ChildReady`; then requests and questions go one way, and results and answers the other.
Every other message is an error on either side.
"""

from __future__ import annotations

from dataclasses import dataclass

from tessera.backend.service import Bytes, Request, StateParts
from tessera.diagnostics import Diagnostic
from tessera.driver.run.options import ServingOptions
from tessera.ir.plan.plan import Plan
from tessera.ir.program.program import LaunchId


@dataclass(frozen=True, slots=True)
class ChildSetup:
    """The first message to a process. `plan` is a path if the plan is a file."""

    plan: Plan | str
    options: ServingOptions
    replicas: tuple[int, ...]
    place_bytes: int
    boot: str = ""


@dataclass(frozen=True, slots=True)
class BeginRequest:
    """Start a request; its outputs go to a place."""

    replica: int
    request: Request
    place: int


@dataclass(frozen=True, slots=True)
class PrepareChain:
    """Prepare for requests of a trace whose inputs are outputs of the request before."""

    replica: int
    trace: int
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadStates:
    """Answer with the states of a lane."""

    replica: int
    lane: int


@dataclass(frozen=True, slots=True)
class StatePartsOf:
    """Answer with bytes of states of a lane on a device; with `content`, set them instead."""

    replica: int
    lane: int
    device: str
    parts: StateParts
    content: Bytes | None = None


Question = PrepareChain | ReadStates | StatePartsOf
"""The messages that a replica answers with a `ChildAnswer`."""


@dataclass(frozen=True, slots=True)
class ChildReady:
    """All replicas are loaded; holds the number of requests that a slot of each takes."""

    depths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChildFault:
    """The problem that ended the process, and where it happened."""

    diagnostics: tuple[Diagnostic, ...]
    exit_code: int
    device: str | None = None
    request: int | None = None
    step: LaunchId | None = None


@dataclass(frozen=True, slots=True)
class ChildDone:
    """A completed request; its outputs are at its place, one after the other."""

    replica: int
    number: int
    started_ns: int
    ended_ns: int
    printed: str


@dataclass(frozen=True, slots=True)
class ChildAnswer:
    """The answer to a question."""

    replica: int
    value: object


@dataclass(frozen=True, slots=True)
class ChildBeat:
    """The process is alive."""

    count: int
