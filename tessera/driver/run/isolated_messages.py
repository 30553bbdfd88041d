"""The messages between a runtime and the process of some of its replicas: a record each.

In: what either side has to say. Out: records, which a pipe carries. First the runtime sends a
`ChildSetup` and the process a `ChildReady`; then requests and questions go one way, and what came
of them the other. A message that is none of these is an error on either side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tessera.backend.service import Bytes, Request
from tessera.diagnostics import Diagnostic
from tessera.driver.run.options import ServingOptions
from tessera.ir.plan.plan import Plan
from tessera.ir.program.program import LaunchId


@dataclass(frozen=True, slots=True)
class ChildSetup:
    """What a process is told first. `plan` is a file where the plan was one."""

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
    """Make what requests of a trace need whose inputs are outputs of the one before."""

    replica: int
    trace: int
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadStates:
    """Answer with the states of a lane."""

    replica: int
    lane: int


@dataclass(frozen=True, slots=True)
class WriteStates:
    """Set states of a lane."""

    replica: int
    lane: int
    states: Mapping[str, Bytes]


Question = PrepareChain | ReadStates | WriteStates
"""What a replica answers (`ChildAnswer`)."""


@dataclass(frozen=True, slots=True)
class ChildReady:
    """All replicas are loaded; how many requests a slot of each takes."""

    depths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChildFault:
    """What ended the process, with where it happened."""

    diagnostics: tuple[Diagnostic, ...]
    exit_code: int
    device: str | None = None
    request: int | None = None
    step: LaunchId | None = None


@dataclass(frozen=True, slots=True)
class ChildDone:
    """A request that is done; its outputs are at its place, one after the other."""

    replica: int
    number: int
    started_ns: int
    ended_ns: int
    printed: str


@dataclass(frozen=True, slots=True)
class ChildAnswer:
    """What a question to a replica gives."""

    replica: int
    value: object


@dataclass(frozen=True, slots=True)
class ChildBeat:
    """The process is alive."""

    count: int
